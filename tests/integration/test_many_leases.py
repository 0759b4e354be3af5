"""Many leases at once: they end in bounded batches, and are all there again behind a restart."""

import http.client
import json
import os
import unittest
import urllib.parse

import audit
from gateway import Gateway
from metrics import Metrics
from waiting import wait_for

MANY = 600  # more than two batches
LIMITS = {
    "lease": {"per_session": 1000, "per_user": 1000},
    "security": {"rate_limit": {"requests_per_second": 100000, "burst": 100000}},
}


class ManyLeases(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, LIMITS)
        chat = self.gateway.new_chat()["chat_id"]
        self.sandbox, _ = self.gateway.open(chat)
        self.session = self.sandbox["session_id"]

    def grant(self, n, ttl_s):
        address = urllib.parse.urlsplit(self.gateway.url)
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        body = json.dumps({"session_id": self.session, "ttl_s": ttl_s})
        headers = {"Authorization": f"Bearer {self.gateway.admin_key}"}
        ids = []
        for _ in range(n):
            connection.request("POST", "/api/v1/leases", body, headers)
            answer = connection.getresponse()
            self.assertEqual(answer.status, 201)
            ids.append(json.loads(answer.read())["lease"]["lease_id"])
        connection.close()
        return ids

    def count(self, state):
        return Metrics.of(self.gateway)["leasehold_leases", state]

    def test_leases_that_end_together_are_all_closed_and_others_go_on(self):
        other = self.grant(1, 600)[0]
        ids = self.grant(MANY, 5)
        wait_for(self, "the end of all", lambda: sum(map(self.count, ("pending", "active"))) == 1)
        answer = self.gateway.expect(200, "DELETE", f"/leases/{other}?wait_ms=5000")
        self.assertTrue(answer["doors"][0]["acked"])
        wait_for(self, "their closing", lambda: self.count("expiring") == 0)
        for lease_id in ids[:: MANY // 10]:
            got = self.gateway.expect(200, "GET", f"/leases/{lease_id}")
            self.assertEqual((got["state"], got["revoked_reason"]), ("closed", "expired"))
        self.gateway.stop()
        trail = audit.entries(os.path.join(self.gateway.dir, "data", "leasehold.db"))
        told = [e["object"] for e in trail if e["action"] == "lease.expire"]
        self.assertEqual(sorted(told), sorted(f"lease:{i}" for i in ids))
        seqs = [int(e["detail"].split("seq=")[1]) for e in trail if "seq=" in e["detail"]]
        self.assertEqual(sorted(set(seqs)), list(range(1, max(seqs) + 1)))  # the log: no gap
        expired = {e["detail"] for e in trail if e["action"] == "lease.expire"}
        self.assertLess(len(expired), MANY / 4)  # many share an entry of it

    def test_all_are_there_behind_a_restart(self):
        self.grant(MANY, 600)
        self.gateway.kill9()
        self.gateway.start()
        wait_for(self, "the door's return", lambda: self.count("active") == MANY)
        body = {"selector": {"session_id": self.session}, "wait_ms": 5000}
        answer = self.gateway.expect(200, "POST", "/leases/revoke", body)
        self.assertEqual(answer["revoked"], MANY)
        wait_for(self, "their closing", lambda: self.count("revoking") == 0)


if __name__ == "__main__":
    unittest.main()

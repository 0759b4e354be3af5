"""`use: once`: one admission for each lease, whatever is killed and however many come at once."""

import sqlite3
import threading
import unittest
import os

from gateway import Gateway
from waiting import wait_for
from ws import WsClosed, WsHandshakeError



class Once(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, {"lease": {"seal_after_seconds": 60}})
        chat = self.gateway.new_chat()
        self.sandbox, _ = self.gateway.open(chat["chat_id"])

    def grant(self, **members):
        body = {"session_id": self.sandbox["session_id"], "use": "once", **members}
        return self.gateway.expect(201, "POST", "/leases", body)

    def admitted(self, grant):
        """A connection that is in, or None when it was refused for its token."""
        try:
            return self.gateway.connect(grant)
        except (WsClosed, WsHandshakeError) as refused:
            self.assertEqual(getattr(refused, "code", None), 4401)
            return None

    def consumed_at(self, grant):
        with sqlite3.connect(f"file:{self.database()}?mode=ro", uri=True) as db:
            row = db.execute(
                "SELECT consumed_at FROM leases WHERE lease_id = ?", (grant["lease"]["lease_id"],)
            ).fetchone()
        return row[0]

    def database(self):
        folder = os.path.join(self.gateway.dir, "data")
        return next(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".db"))

    def wait_consumed(self, grant):
        wait_for(self, "its use to be known", lambda: self.consumed_at(grant) > 0)

    def wait_door(self):
        """Until the door is connected: a fresh lease becomes active."""
        grant = self.grant(use="multi")
        path = f"/leases/{grant['lease']['lease_id']}"
        state = lambda: self.gateway.expect(200, "GET", path)["state"]
        wait_for(self, "the door to come back", lambda: state() == "active")

    def test_it_lets_in_once_and_never_again(self):
        grant = self.grant()
        self.assertEqual(grant["lease"]["use"], "once")
        self.assertEqual(self.consumed_at(grant), 0)
        client = self.admitted(grant)
        self.assertIsNotNone(client)
        self.assertIsNone(self.admitted(grant))
        client.close()
        self.assertIsNone(self.admitted(grant))
        self.wait_consumed(grant)

    def test_of_many_at_once_one_comes_in(self):
        grant, clients, start = self.grant(), [], threading.Barrier(12)

        def present():
            start.wait()
            try:
                clients.append(self.gateway.connect(grant))
            except (WsClosed, WsHandshakeError):
                pass

        threads = [threading.Thread(target=present) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(clients), 1)
        clients[0].close()

    def test_its_connection_lives_through_a_renewal_and_a_new_token_opens_nothing(self):
        grant = self.grant()
        client = self.admitted(grant)
        path = f"/leases/{grant['lease']['lease_id']}/renew"
        renewed = self.gateway.expect(200, "POST", path, {})
        client.send_text("still here")
        self.assertIn(b"still here", client.recv()[1])
        self.assertIsNone(self.admitted(renewed))
        client.close()

    def test_a_gateway_that_is_killed_and_comes_back_does_not_forget(self):
        grant, fresh = self.grant(), self.grant()
        client = self.admitted(grant)
        self.wait_consumed(grant)
        self.gateway.kill9()
        self.gateway.start()
        self.wait_door()
        self.assertIsNone(self.admitted(grant))
        client.close()
        self.assertIsNone(self.admitted(grant))
        other = self.admitted(fresh)
        self.assertIsNotNone(other)
        other.close()

    def test_what_was_used_while_no_gateway_was_there_is_told_to_the_next(self):
        grant = self.grant()
        self.wait_door()
        self.gateway.kill9()
        client = self.gateway.connect(grant)  # the door still admits: it is not stale yet
        client.close()
        self.assertEqual(self.consumed_at(grant), 0)
        self.gateway.start()
        self.wait_consumed(grant)
        self.wait_door()
        self.assertIsNone(self.admitted(grant))


if __name__ == "__main__":
    unittest.main()

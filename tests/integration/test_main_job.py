"""The main job through the running daemon: chat, sandbox, lease, direct connection, cut."""

import threading
import time
import unittest
import uuid

from gateway import Gateway
from waiting import wait_equal


def closed_code(client):
    """The close code the door gives; messages before it are read away."""
    return client.wait_closed()


def echo(test, client, line):
    client.send_text(line)
    _, got = client.recv()
    test.assertEqual(got.decode(), line)


class MainJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.chat = self.gateway.new_chat(title="first", metadata={"a": [1, 2]})

    def open(self, **lease):
        return self.gateway.open(self.chat["chat_id"], lease=lease)

    def test_open_with_a_lease_in_one_call_and_talk_to_the_agent_directly(self):
        sandbox, grant = self.open()
        self.assertEqual(sandbox["status"], "running")
        self.assertEqual(sandbox["container_id"], "local-" + sandbox["session_id"])
        self.assertEqual(sandbox["isolation"]["network"], "none")
        self.assertTrue(sandbox["isolation"]["netns"] and sandbox["isolation"]["userns"])
        self.assertEqual(grant["lease"]["scope"], ["read", "write"])
        self.assertEqual(grant["endpoint"]["protocol"], "leasehold.door.v1")
        self.assertIsNone(grant["endpoint"]["ca_pem"])
        client = self.gateway.connect(grant)
        self.assertEqual(client.ready["session_id"], sandbox["session_id"])
        self.assertEqual(client.ready["lease_id"], grant["lease"]["lease_id"])
        self.assertEqual(client.ready["scope"], ["read", "write"])
        echo(self, client, "hello")
        client.close()

    def test_lines_of_one_byte_to_256_kib_by_several_clients_at_once(self):
        # stdio is one process for all: each reader sees every line, so each finds its own.
        sandbox, grant = self.open(max_connections=4)
        clients = [self.gateway.connect(grant) for _ in range(4)]
        sizes = [1, 2, 125, 126, 4096, 65535, 65536, 262144]
        failures = []

        def talk(number, client):
            for size in sizes:
                line = (f"{number}:" + "x" * size)[:size] if size > 2 else str(number) * size
                client.send_text(line)
                for _ in range(len(clients) * len(sizes)):
                    _, got = client.recv(60)
                    if got.decode() == line:
                        break
                else:
                    failures.append((number, size))

        threads = [
            threading.Thread(target=talk, args=(i, c), daemon=True) for i, c in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertFalse(any(t.is_alive() for t in threads), "a client waits for ever")
        self.assertEqual(failures, [])
        for client in clients:
            client.close()

    def test_a_reader_that_does_not_read_is_bounded_and_closed_with_1013(self):
        sandbox, grant = self.open(max_connections=2)
        slow, fast = self.gateway.connect(grant), self.gateway.connect(grant)
        line = "y" * 200000
        for _ in range(60):  # 12 MB: more than kernel buffers and the door's queue take
            echo(self, fast, line)
        self.assertEqual(closed_code(slow), 1013)
        echo(self, fast, "still here")
        fast.close()

    def test_what_waits_in_the_kernel_for_a_reader_that_does_not_read_is_dropped_at_the_cut(self):
        _, grant = self.open(max_connections=2)
        reader = self.gateway.connect(grant)
        deaf = self.gateway.connect(grant, rcvbuf=4096)
        line = "z" * 100000
        for _ in range(6):  # less than the door's queue: the deaf one is behind, not cut
            echo(self, reader, line)
        lease_id = grant["lease"]["lease_id"]
        self.gateway.expect(200, "DELETE", f"/leases/{lease_id}?wait_ms=5000")
        time.sleep(1)  # the door kills who does not take its Close
        taken = 0
        try:
            while piece := deaf.sock.recv(65536):
                taken += len(piece)
        except ConnectionResetError:
            pass
        # What the client's own small buffer held, not the hundreds of kilobytes behind it.
        self.assertLess(taken, 200000)
        reader.close()
        deaf.close()

    def test_renew_keeps_the_socket_up_past_the_first_expiry(self):
        sandbox, grant = self.open(ttl_s=5)
        client = self.gateway.connect(grant)
        lease_id = grant["lease"]["lease_id"]
        renewed = self.gateway.expect(200, "POST", f"/leases/{lease_id}/renew", {"ttl_s": 60})
        self.assertEqual(renewed["lease"]["lease_id"], lease_id)
        self.assertGreater(renewed["lease"]["expires_at"], grant["lease"]["expires_at"])
        self.assertNotEqual(renewed["token"], grant["token"])
        self.assertEqual(renewed["lease"]["state"], "active")  # never back to pending
        time.sleep(6.2)
        echo(self, client, "past the first expiry")
        again = self.gateway.expect(200, "GET", f"/leases/{lease_id}")
        self.assertEqual((again["state"], again["connections"]), ("active", 1))
        client.close()

    def test_revoke_cuts_the_live_connection_with_4403_and_measures_it(self):
        sandbox, grant = self.open()
        client = self.gateway.connect(grant)
        lease_id = grant["lease"]["lease_id"]
        answer = self.gateway.expect(
            200, "DELETE", f"/leases/{lease_id}?wait_ms=5000&reason=abuse"
        )
        self.assertEqual((answer["matched"], answer["revoked"]), (1, 1))
        self.assertEqual(answer["unconfirmed"], [])
        [door] = answer["doors"]
        self.assertEqual(
            (door["session_id"], door["acked"], door["cut"]), (sandbox["session_id"], True, 1)
        )
        self.assertGreater(door["latency_us"], 0)
        self.assertEqual(closed_code(client), 4403)
        lease = self.wait_lease(lease_id, "closed")
        self.assertEqual(lease["revoked_reason"], "abuse")
        self.assertIsNotNone(lease["revoked_at"])
        # The same token again, and again a revoke: nothing to do.
        self.assertEqual(closed_code(self.gateway.dial(grant["endpoint"], grant["token"])), 4401)
        again = self.gateway.expect(200, "DELETE", f"/leases/{lease_id}?wait_ms=1000")
        self.assertEqual(again["revoked"], 0)
        status, _, body = self.gateway.rest("POST", f"/leases/{lease_id}/renew")
        self.assertEqual((status, body["code"]), (409, "lease_terminal"))

    def wait_lease(self, lease_id, state):
        lease = lambda: self.gateway.expect(200, "GET", f"/leases/{lease_id}")
        wait_equal(self, state, lambda: lease()["state"])
        return lease()

    def test_revoke_by_session_cuts_every_lease_of_it_and_no_other(self):
        sandbox, one = self.open()
        two = self.gateway.expect(201, "POST", "/leases", {"session_id": sandbox["session_id"]})
        other_chat = self.gateway.new_chat()
        _, other = self.gateway.open(other_chat["chat_id"], lease={})
        clients = [self.gateway.connect(g) for g in (one, two)]
        bystander = self.gateway.connect(other)
        answer = self.gateway.expect(
            200,
            "POST",
            "/leases/revoke",
            {"selector": {"session_id": sandbox["session_id"]}, "wait_ms": 5000},
        )
        self.assertEqual(answer["revoked"], 2)
        self.assertEqual(answer["doors"][0]["cut"], 2)
        self.assertEqual([closed_code(c) for c in clients], [4403, 4403])
        echo(self, bystander, "not me")
        bystander.close()

    def test_without_wait_ms_a_revocation_is_answered_202_when_durable(self):
        _, grant = self.open()
        client = self.gateway.connect(grant)
        answer = self.gateway.expect(202, "DELETE", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual(answer["revoked"], 1)
        self.assertEqual(closed_code(client), 4403)

    def test_expiry_cuts_the_live_connection_with_4401(self):
        _, grant = self.open(ttl_s=4)
        client = self.gateway.connect(grant)
        self.assertEqual(closed_code(client), 4401)
        lease = self.wait_lease(grant["lease"]["lease_id"], "closed")
        self.assertEqual((lease["revoked_reason"], lease["revoked_at"]), ("expired", None))
        self.assertEqual(closed_code(self.gateway.dial(grant["endpoint"], grant["token"])), 4401)

    def test_stop_cuts_with_4403_closes_the_leases_and_leaves_nothing(self):
        sandbox, grant = self.open()
        client = self.gateway.connect(grant)
        session = sandbox["session_id"]
        stopped = self.gateway.expect(
            200, "POST", f"/sandboxes/{session}/stop", {"reason": "done", "grace_s": 5}
        )
        self.assertEqual((stopped["status"], stopped["reason"]), ("stopped", "done"))
        self.assertEqual(closed_code(client), 4403)
        lease = self.gateway.expect(200, "GET", f"/leases/{grant['lease']['lease_id']}")
        self.assertEqual((lease["state"], lease["revoked_reason"]), ("closed", "done"))
        with self.assertRaises(OSError):
            self.gateway.dial(grant["endpoint"], grant["token"])
        again = self.gateway.expect(200, "DELETE", f"/sandboxes/{session}")
        self.assertEqual((again["status"], again["reason"]), ("stopped", "done"))
        status, _, body = self.gateway.rest("POST", "/leases", {"session_id": session})
        self.assertEqual((status, body["code"]), (409, "session_not_running"))

    def test_two_opens_of_one_chat_at_once_start_one_sandbox(self):
        answers = []

        def open_it():
            answers.append(
                self.gateway.rest("POST", "/sandboxes", {"chat_id": self.chat["chat_id"]})
            )

        threads = [threading.Thread(target=open_it) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sorted(a[0] for a in answers), [200] * 9 + [201])
        self.assertEqual(len({a[2]["sandbox"]["session_id"] for a in answers}), 1)

    def test_create_is_the_compatible_form_and_makes_an_unknown_chat(self):
        user = str(uuid.uuid4())
        key = self.gateway.new_key(default_user=user)
        chat_id = uuid.uuid4()
        spelled = "{" + str(chat_id).upper() + "}"
        first = self.gateway.expect(200, "POST", "/create", {"chat_id": spelled}, key=key)
        again = self.gateway.expect(200, "POST", "/create", {"chat_id": chat_id.hex}, key=key)
        self.assertEqual(first["chat_id"], str(chat_id))
        self.assertEqual(first["session_id"], again["session_id"])
        self.assertEqual(set(first), {"session_id", "chat_id", "container_id", "status", "expires_at"})
        chat = self.gateway.expect(200, "GET", f"/chats/{chat_id}", key=key)
        self.assertEqual(chat["user_id"], user)

    def test_the_agent_may_end_by_itself_and_the_next_open_starts_afresh(self):
        gateway = Gateway.for_test(
            self,
            {"profiles": [{"name": "default", "command": ["/bin/sh", "-c", "read line; exit 3"]}]},
        )
        chat = gateway.new_chat()
        sandbox, grant = gateway.open(chat["chat_id"], lease={})
        client = gateway.connect(grant)
        client.send_text("bye")
        self.assertEqual(closed_code(client), 4411)
        path = f"/sandboxes/{sandbox['session_id']}"
        wait_equal(self, "failed", lambda: gateway.expect(200, "GET", path)["status"])
        self.assertEqual(gateway.expect(200, "GET", path)["reason"], "exited(3)")
        fresh, _ = gateway.open(chat["chat_id"])
        self.assertNotEqual(fresh["session_id"], sandbox["session_id"])
        self.assertEqual(fresh["generation"], sandbox["generation"] + 1)

    def test_two_grants_of_a_chat_are_independent(self):
        sandbox, one = self.open()
        two = self.gateway.expect(201, "POST", "/leases", {"chat_id": self.chat["chat_id"]})
        first, second = self.gateway.connect(one), self.gateway.connect(two)
        self.gateway.expect(200, "DELETE", f"/leases/{one['lease']['lease_id']}?wait_ms=5000")
        self.assertEqual(closed_code(first), 4403)
        echo(self, second, "the other one lives")
        second.close()

    def test_a_lease_with_read_alone_cannot_write(self):
        _, grant = self.open(scope=["read"])
        client = self.gateway.connect(grant)
        client.send_text("no")
        self.assertEqual(closed_code(client), 4430)

    def test_more_connections_than_the_lease_allows_are_refused(self):
        _, grant = self.open()
        first = self.gateway.connect(grant)
        self.assertEqual(closed_code(self.gateway.dial(grant["endpoint"], grant["token"])), 4409)
        echo(self, first, "the first one lives")
        first.close()


if __name__ == "__main__":
    unittest.main()

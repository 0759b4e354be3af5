"""Lists: pages by cursor that no row that comes or goes can shift, filters, and who sees what."""

import base64
import json
import os
import threading
import time
import unittest
import uuid

from gateway import Gateway
from waiting import wait_equal
from ws import WsClient


def all_pages(gateway, path, limit, key=None, between=None):
    """The items of every page; `between` runs after each."""
    items, cursor = [], None
    while True:
        query = f"limit={limit}" + (f"&cursor={cursor}" if cursor else "")
        page = gateway.expect(200, "GET", f"{path}{'&' if '?' in path else '?'}{query}", key=key)
        if set(page) != {"items", "next_cursor"} or len(page["items"]) > limit:
            raise AssertionError(page)
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items
        if between:
            between(items)


class ChatLists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)

    def setUp(self):
        self.user = str(uuid.uuid4())

    def chats(self, n, user=None):
        return [self.gateway.new_chat(user or self.user) for _ in range(n)]

    def test_pages_hold_every_chat_once_in_the_order_of_making(self):
        made = self.chats(7)
        path = f"/chats?user_id={self.user}"
        for limit in (1, 2, 3, 6, 7, 8, 200):
            got = all_pages(self.gateway, path, limit)
            self.assertEqual(sorted(c["chat_id"] for c in got), sorted(c["chat_id"] for c in made))
            places = [(c["created_at"], c["chat_id"]) for c in got]
            self.assertEqual(places, sorted(places))
        self.assertEqual(got, sorted(made, key=lambda c: (c["created_at"], c["chat_id"])))

    def test_an_exact_last_page_has_no_cursor(self):
        self.chats(4)
        page = self.gateway.expect(200, "GET", f"/chats?user_id={self.user}&limit=4")
        self.assertEqual((len(page["items"]), page["next_cursor"]), (4, None))
        page = self.gateway.expect(200, "GET", f"/chats?user_id={uuid.uuid4()}")
        self.assertEqual(page, {"items": [], "next_cursor": None})

    def test_rows_that_come_and_go_shift_no_page(self):
        made = [c["chat_id"] for c in self.chats(12)]
        order = [c["chat_id"] for c in all_pages(self.gateway, f"/chats?user_id={self.user}", 50)]
        self.assertEqual(sorted(order), sorted(made))
        new, gone = [], []

        def between(items):
            new.append(self.gateway.new_chat(self.user)["chat_id"])
            if len(gone) < 2:  # one that was listed already, and the place of the cursor itself
                victim = order[0] if not gone else items[-1]["chat_id"]
                gone.append(victim)
                self.gateway.expect(204, "DELETE", f"/chats/{victim}")

        got = all_pages(self.gateway, f"/chats?user_id={self.user}", 3, between=between)
        listed = [c["chat_id"] for c in got]
        self.assertEqual(len(gone), 2)
        self.assertEqual(listed[:12], order)
        self.assertEqual(len(listed), len(set(listed)))
        self.assertTrue(set(listed) <= set(order) | set(new))

    def test_pages_stay_whole_while_others_make_and_delete(self):
        made = {c["chat_id"] for c in self.chats(30)}
        stop = threading.Event()

        def churn():
            while not stop.is_set():
                chat = self.gateway.new_chat(self.user)["chat_id"]
                self.gateway.expect(204, "DELETE", f"/chats/{chat}")

        threads = [threading.Thread(target=churn, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                listed = []
                cursor = ""
                for _ in range(100):
                    page = self.gateway.expect(
                        200, "GET", f"/chats?user_id={self.user}&limit=4{cursor}"
                    )
                    listed += [c["chat_id"] for c in page["items"]]
                    if made <= set(listed) or not page["next_cursor"]:
                        break
                    cursor = f"&cursor={page['next_cursor']}"
                self.assertEqual(len(listed), len(set(listed)))
                self.assertLessEqual(made, set(listed))
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)

    def test_the_largest_page_of_the_largest_chats_fits(self):
        metadata = {"m": "x" * 16000}
        for _ in range(201):
            self.gateway.new_chat(self.user, metadata=metadata, title="t" * 256)
        page = self.gateway.expect(200, "GET", f"/chats?user_id={self.user}&limit=200")
        self.assertEqual(len(page["items"]), 200)
        self.assertEqual(page["items"][0]["metadata"], metadata)
        rest = self.gateway.expect(
            200, "GET", f"/chats?user_id={self.user}&limit=200&cursor={page['next_cursor']}"
        )
        self.assertEqual((len(rest["items"]), rest["next_cursor"]), (1, None))

    def test_a_limited_key_sees_full_pages_of_its_users_alone(self):
        other = str(uuid.uuid4())
        key = self.gateway.new_key(allowed_users=[self.user])
        for _ in range(6):
            self.chats(1)
            self.chats(2, other)
        page = self.gateway.expect(200, "GET", "/chats?limit=5", key=key)
        self.assertEqual([c["user_id"] for c in page["items"]], [self.user] * 5)
        self.assertIsNotNone(page["next_cursor"])
        self.assertEqual(len(all_pages(self.gateway, "/chats", 5, key=key)), 6)
        self.assertEqual(all_pages(self.gateway, f"/chats?user_id={other}", 5, key=key), [])
        nobody = self.gateway.new_key(allowed_users=[])
        self.assertEqual(all_pages(self.gateway, "/chats", 5, key=nobody), [])

    def test_limits_and_cursors_are_checked(self):
        cursor = None
        self.chats(2)
        cursor = self.gateway.expect(200, "GET", f"/chats?limit=1")["next_cursor"]
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        other_kind = base64.urlsafe_b64encode(b"s" + raw[1:]).decode().rstrip("=")
        bad = ("x", "A" * 34, cursor[:-1], cursor + "A", cursor + "=", other_kind, "%2e%2e", "A" * 41)
        for value in bad:
            status, _, problem = self.gateway.rest("GET", f"/chats?cursor={value}")
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), value)
            self.assertEqual(problem["errors"][0]["pointer"], "/cursor")
        for value in ("0", "201", "-1", "x", "1.5", ""):
            status, _, problem = self.gateway.rest("GET", f"/chats?limit={value}")
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), value)
        for path in ("/sandboxes", "/leases", "/api-keys"):
            status, _, problem = self.gateway.rest("GET", f"{path}?cursor={cursor}")
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), path)

    def test_a_viewer_lists_and_nobody_lists_without_a_key(self):
        viewer = self.gateway.new_key("viewer")
        for path in ("/chats", "/sandboxes", "/leases"):
            self.gateway.expect(200, "GET", path, key=viewer)
            self.gateway.expect(401, "GET", path, key="")
        self.gateway.expect(403, "GET", "/api-keys", key=viewer)


class ChatDeletion(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.user = str(uuid.uuid4())
        self.chat = self.gateway.new_chat(self.user)["chat_id"]
        self.dir = os.path.join(
            self.gateway.dir, "data", "workspaces", self.user, "chats", self.chat
        )
        self.quarantine = os.path.join(self.gateway.dir, "data", "quarantine")

    def wait_empty_quarantine(self):
        wait_equal(self, [], lambda: os.listdir(self.quarantine))

    def test_a_deleted_chat_is_gone_with_all_it_had(self):
        sandbox, grant = self.gateway.open(self.chat, lease={})
        status, _, problem = self.gateway.rest("DELETE", f"/chats/{self.chat}")
        self.assertEqual((status, problem["code"]), (409, "chat_has_active_sandbox"))
        self.assertTrue(os.path.isdir(self.dir))
        self.gateway.expect(200, "DELETE", f"/sandboxes/{sandbox['session_id']}")
        deep = os.path.join(self.dir, "files")
        for n in range(300):  # deeper than a path can be long, if each had a name of some length
            deep = os.path.join(deep, "d")
            os.mkdir(deep)
            with open(os.path.join(deep, "f"), "w", encoding="ascii") as out:
                out.write("x")
        outside = os.path.join(self.gateway.dir, "outside")
        os.mkdir(outside)
        with open(os.path.join(outside, "keep"), "w", encoding="ascii") as out:
            out.write("x")
        os.symlink(outside, os.path.join(self.dir, "files", "link"))
        self.gateway.expect(204, "DELETE", f"/chats/{self.chat}")
        self.assertFalse(os.path.exists(self.dir))
        self.wait_empty_quarantine()
        self.assertTrue(os.path.exists(os.path.join(outside, "keep")))
        for path in (
            f"/chats/{self.chat}",
            f"/sandboxes/{sandbox['session_id']}",
            f"/leases/{grant['lease']['lease_id']}",
        ):
            self.gateway.expect(404, "GET", path)
        status, _, problem = self.gateway.rest("DELETE", f"/chats/{self.chat}")
        self.assertEqual((status, problem["code"]), (404, "chat_not_found"))
        again = self.gateway.expect(
            201, "POST", "/chats", {"user_id": self.user, "chat_id": self.chat}
        )
        self.assertEqual(again["chat_id"], self.chat)
        self.assertEqual(os.listdir(os.path.join(self.dir, "files")), [])
        self.gateway.open(self.chat)

    def test_a_chat_of_another_user_cannot_be_deleted_or_told_of(self):
        key = self.gateway.new_key(allowed_users=[str(uuid.uuid4())])
        self.gateway.expect(404, "DELETE", f"/chats/{self.chat}", key=key)
        self.gateway.expect(403, "DELETE", f"/chats/{self.chat}", key=self.gateway.new_key("viewer"))
        self.gateway.expect(200, "GET", f"/chats/{self.chat}")

    def test_a_deletion_broken_off_is_undone_or_finished_at_the_next_start(self):
        gone = self.gateway.new_chat(self.user)["chat_id"]
        self.gateway.expect(204, "DELETE", f"/chats/{gone}")
        self.wait_empty_quarantine()
        self.gateway.kill9()
        with open(os.path.join(self.dir, "files", "mine"), "w", encoding="ascii") as out:
            out.write("x")
        os.rename(self.dir, os.path.join(self.quarantine, f"{self.user}.{self.chat}"))
        os.makedirs(os.path.join(self.quarantine, f"{self.user}.{gone}", "files", "a"))
        self.gateway.start()
        self.assertTrue(os.path.exists(os.path.join(self.dir, "files", "mine")))
        self.wait_empty_quarantine()
        self.gateway.open(self.chat)

    def test_a_workspace_tells_what_its_chats_take(self):
        workspace = self.gateway.expect(200, "GET", f"/users/{self.user}/workspace")
        self.assertEqual((workspace["user_id"], workspace["chats"]), (self.user, 1))
        self.assertFalse(workspace["over_quota"])
        before = workspace["used_bytes"]
        files = os.path.join(self.dir, "files")
        with open(os.path.join(files, "a"), "wb") as out:
            out.write(b"x" * 1000)
        os.link(os.path.join(files, "a"), os.path.join(files, "b"))
        os.mkdir(os.path.join(files, "d"))
        with open(os.path.join(files, "d", "c"), "wb") as out:
            out.write(b"x" * 234)
        os.symlink("/etc/passwd", os.path.join(files, "link"))
        os.symlink("/", os.path.join(files, "root"))
        after = self.gateway.expect(200, "GET", f"/users/{self.user}/workspace")["used_bytes"]
        self.assertEqual(after - before, 1234)
        history = sum(
            os.path.getsize(os.path.join(self.dir, name)) for name in ("history.db", "history.md")
        )
        self.assertEqual(before, history)
        for path, key in (
            (f"/users/{uuid.uuid4()}/workspace", None),
            (f"/users/{self.user}/workspace", self.gateway.new_key(allowed_users=[])),
        ):
            status, _, problem = self.gateway.rest("GET", path, key=key)
            self.assertEqual((status, problem["code"]), (404, "workspace_not_found"))


class SessionLists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.user = str(uuid.uuid4())
        cls.chats = [cls.gateway.new_chat(cls.user)["chat_id"] for _ in range(2)]
        cls.ended, _ = cls.gateway.open(cls.chats[0])
        cls.gateway.expect(200, "DELETE", f"/sandboxes/{cls.ended['session_id']}")
        cls.live = [cls.gateway.open(chat)[0] for chat in cls.chats]
        cls.foreign, cls.foreign_grant = cls.gateway.open(
            cls.gateway.new_chat()["chat_id"], lease={}
        )

    def ids(self, path, name, key=None):
        return [item[name] for item in all_pages(self.gateway, path, 2, key=key)]

    def test_sandboxes_by_chat_user_and_status(self):
        ended = self.ended["session_id"]
        live = [s["session_id"] for s in self.live]
        name = "session_id"
        self.assertEqual(self.ids(f"/sandboxes?user_id={self.user}", name), [ended, *live])
        self.assertEqual(self.ids(f"/sandboxes?chat_id={self.chats[0]}", name), [ended, live[0]])
        self.assertEqual(
            self.ids(f"/sandboxes?user_id={self.user}&status=running", name), live
        )
        self.assertEqual(
            self.ids(f"/sandboxes?chat_id={self.chats[0]}&status=stopped", name), [ended]
        )
        self.assertEqual(self.ids(f"/sandboxes?user_id={self.user}&status=failed", name), [])
        self.assertIn(self.foreign["session_id"], self.ids("/sandboxes", name))
        key = self.gateway.new_key("viewer", allowed_users=[self.user])
        self.assertEqual(self.ids("/sandboxes", name, key), [ended, *live])
        self.assertEqual(
            self.ids(f"/sandboxes?chat_id={self.foreign['chat_id']}", name, key), []
        )
        got = all_pages(self.gateway, f"/sandboxes?chat_id={self.chats[1]}", 5)
        self.assertEqual(got[0]["isolation"], self.live[1]["isolation"])
        status, _, problem = self.gateway.rest("GET", "/sandboxes?status=asleep")
        self.assertEqual((status, problem["errors"][0]["pointer"]), (422, "/status"))

    def test_leases_by_session_chat_user_and_state(self):
        session = self.live[0]["session_id"]
        grants = [
            self.gateway.expect(201, "POST", "/leases", {"session_id": session}) for _ in range(5)
        ]
        ids = [g["lease"]["lease_id"] for g in grants]
        self.gateway.expect(200, "DELETE", f"/leases/{ids[0]}?wait_ms=5000")
        self.wait_state(ids[0], "closed")
        for lease in ids[1:]:
            self.wait_state(lease, "active")
        name = "lease_id"
        for query in (f"session_id={session}", f"chat_id={self.chats[0]}", f"user_id={self.user}"):
            self.assertEqual(sorted(self.ids(f"/leases?{query}", name)), sorted(ids))
            self.assertEqual(self.ids(f"/leases?{query}&state=closed", name), [ids[0]])
            self.assertEqual(sorted(self.ids(f"/leases?{query}&state=active", name)), sorted(ids[1:]))
            for state in ("pending", "revoking", "expiring", "unconfirmed"):
                self.assertEqual(self.ids(f"/leases?{query}&state={state}", name), [])
        everybody = self.ids("/leases?state=active", name)
        self.assertIn(self.foreign_grant["lease"]["lease_id"], everybody)
        key = self.gateway.new_key("viewer", allowed_users=[self.user])
        self.assertEqual(sorted(self.ids("/leases", name, key)), sorted(ids))
        client = self.gateway.connect(grants[1])
        path = f"/leases?session_id={session}&state=active"
        connections = lambda: {i["lease_id"]: i["connections"] for i in all_pages(self.gateway, path, 2)}
        wait_equal(self, {lease: int(lease == ids[1]) for lease in ids[1:]}, connections)
        client.close()
        self.gateway.expect(422, "GET", "/leases?state=lost")

    def wait_state(self, lease_id, state):
        path = f"/leases/{lease_id}"
        wait_equal(self, state, lambda: self.gateway.expect(200, "GET", path)["state"])

    def test_renew_starts_the_idle_time_anew(self):
        session = self.live[1]["session_id"]
        path = f"/sandboxes/{session}/renew"
        long = self.gateway.expect(200, "POST", path, {"idle_ttl_s": 5000})
        short = self.gateway.expect(200, "POST", path, {"idle_ttl_s": 100})
        self.assertLess(short["expires_at"], long["expires_at"])
        time.sleep(0.05)
        again = self.gateway.expect(200, "POST", path)
        self.assertGreater(again["expires_at"], short["expires_at"])
        self.assertLess(again["expires_at"], long["expires_at"])
        self.assertGreater(again["last_activity_at"], short["last_activity_at"])
        for body in ({"idle_ttl_s": 0}, {"idle_ttl_s": "1"}, {"x": 1}):
            self.gateway.expect(422, "POST", path, body)
        status, _, problem = self.gateway.rest(
            "POST", f"/sandboxes/{self.ended['session_id']}/renew"
        )
        self.assertEqual((status, problem["code"]), (409, "session_not_running"))
        self.gateway.expect(404, "POST", path, key=self.gateway.new_key(allowed_users=[]))
        self.gateway.expect(404, "POST", f"/sandboxes/{uuid.uuid4()}/renew")


class Opening(unittest.TestCase):
    def test_without_waiting_the_sandbox_is_starting_and_then_runs(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        answer = gateway.expect(202, "POST", "/sandboxes", {"chat_id": chat, "wait": False})
        self.assertEqual((answer["sandbox"]["status"], answer["grant"]), ("starting", None))
        self.assertEqual(answer["sandbox"]["isolation"], {  # not told yet, which is not "none"
            "network": "none", "netns": None, "userns": None, "uid": None, "seccomp": None})  # fmt: skip
        session = answer["sandbox"]["session_id"]
        deadline = time.monotonic() + 30
        while (got := gateway.expect(200, "GET", f"/sandboxes/{session}"))["status"] != "running":
            self.assertEqual(got["status"], "starting")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertTrue(got["isolation"]["netns"] and got["isolation"]["uid"])
        self.assertIsNone(got["detail"])
        again = gateway.expect(200, "POST", "/sandboxes", {"chat_id": chat, "wait": False})
        self.assertEqual(again["sandbox"]["session_id"], session)
        status, _, problem = gateway.rest(
            "POST", "/sandboxes", {"chat_id": chat, "wait": False, "lease": {}}
        )
        self.assertEqual((status, problem["errors"][0]["pointer"]), (422, "/lease"))

    def test_an_open_that_waits_joins_one_that_did_not(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        first = gateway.expect(202, "POST", "/sandboxes", {"chat_id": chat, "wait": False})
        sandbox, grant = gateway.open(chat, lease={})
        self.assertEqual(sandbox["session_id"], first["sandbox"]["session_id"])
        gateway.connect(grant).close()

    def test_a_start_that_fails_behind_the_answer_is_told_by_the_sandbox(self):
        gateway = Gateway.for_test(
            self, {"profiles": [{"name": "default", "command": ["/no/such/program"]}]}
        )
        chat = gateway.new_chat()["chat_id"]
        answer = gateway.expect(202, "POST", "/sandboxes", {"chat_id": chat, "wait": False})
        path = f"/sandboxes/{answer['sandbox']['session_id']}"
        wait_equal(self, "failed", lambda: gateway.expect(200, "GET", path)["status"])
        failed = gateway.expect(200, "GET", path)
        told = gateway.expect(503, "POST", "/sandboxes", {"chat_id": chat})["detail"]
        self.assertEqual((failed["reason"], failed["detail"]), ("start_failed", told))

    def test_the_environment_reaches_the_agent_and_nothing_else(self):
        # Tells of a value without saying it: what the agent says is recorded.
        agent = 'while read -r name; do eval "v=\\$$name"; echo "$name ${#v} ${v%%-*}"; done'
        gateway = Gateway.for_test(
            self, {"profiles": [{"name": "default", "command": ["/bin/sh", "-c", agent]}]}
        )
        secret = "canary-" + uuid.uuid4().hex
        chat = gateway.new_chat()["chat_id"]
        sandbox, grant = gateway.open(chat, lease={}, env={"MY_TOKEN": secret, "_x1": ""})
        client = gateway.connect(grant)
        client.send_text("MY_TOKEN")
        self.assertEqual(client.recv()[1].decode(), f"MY_TOKEN {len(secret)} canary")
        client.close()
        for process in gateway.sandboxes_left():
            try:
                with open(f"/proc/{process.pid}/cmdline", "rb") as text:
                    self.assertNotIn(secret.encode(), text.read())
            except FileNotFoundError:
                pass
        self.assertNotIn(secret, gateway.log_text())
        gateway.stop()
        for folder, _, names in os.walk(gateway.dir):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as data:
                        self.assertNotIn(secret.encode(), data.read(), path)

    def test_environments_are_checked(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        for env in (
            {"1A": "x"},
            {"A-B": "x"},
            {"": "x"},
            {"A=B": "x"},
            {"A": 1},
            {"A": None},
            {"A": ["x"]},
            {"Ä": "x"},
            {f"A{n}": "x" for n in range(65)},
            {"A": "x" * 32768},
            "A=1",
            ["A"],
        ):
            status, _, problem = gateway.rest("POST", "/sandboxes", {"chat_id": chat, "env": env})
            self.assertEqual((status, problem["code"]), (422, "invalid_request"), str(env)[:60])
            self.assertTrue(problem["errors"][0]["pointer"].startswith("/env"), problem)
        sandbox, _ = gateway.open(chat, env={f"A{n}": "x" * 400 for n in range(64)})
        self.assertEqual(sandbox["status"], "running")

    def test_an_environment_for_a_sandbox_that_runs_is_a_conflict(self):
        gateway = Gateway.for_test(self)
        chat = gateway.new_chat()["chat_id"]
        first, _ = gateway.open(chat, env={"A": "1"})
        answer = gateway.expect(409, "POST", "/sandboxes", {"chat_id": chat, "env": {"A": "1"}})
        self.assertEqual(answer["code"], "conflict")
        self.assertIn("env", answer["detail"])
        again, _ = gateway.open(chat, env={})
        self.assertEqual(again["session_id"], first["session_id"])


class OverWebSocket(unittest.TestCase):
    """The same operations by the other face."""

    def setUp(self):
        self.gateway = Gateway.for_test(self)
        self.user = str(uuid.uuid4())
        self.key = self.gateway.new_key()
        self.bot = WsClient.connect(
            self.gateway.url.replace("http", "ws", 1),
            path="/api/v1/ws",
            protocols=["leasehold.v1"],
            headers={"Authorization": f"Bearer {self.key}"},
        )
        self.addCleanup(self.bot.close)

    def call(self, op, **args):
        self.bot.send_text(json.dumps({"id": "1", "op": op, "args": args}))
        answer = json.loads(self.bot.recv(60)[1])
        return answer["result"] if answer["ok"] else answer["error"]["code"]

    def test_lists_opens_and_deletions(self):
        chats = [self.call("chat.create", user_id=self.user)["chat_id"] for _ in range(3)]
        page = self.call("chat.list", user_id=self.user, limit=2)
        rest = self.call("chat.list", user_id=self.user, limit=2, cursor=page["next_cursor"])
        listed = [c["chat_id"] for c in page["items"] + rest["items"]]
        self.assertEqual((sorted(listed), rest["next_cursor"]), (sorted(chats), None))
        self.assertEqual(self.call("chat.list", cursor="x"), "invalid_request")
        starting = self.call("sandbox.open", chat_id=chats[0], wait=False)["sandbox"]
        self.assertEqual(starting["status"], "starting")
        opened = self.call("sandbox.open", chat_id=chats[0], lease={})
        self.assertEqual(opened["sandbox"]["session_id"], starting["session_id"])
        self.assertEqual(self.call("chat.delete", chat_id=chats[0]), "chat_has_active_sandbox")
        self.assertIsNone(self.call("chat.delete", chat_id=chats[1]))
        self.assertEqual(self.call("workspace.get", user_id=self.user)["chats"], 2)
        [lease] = self.call("lease.list", chat_id=chats[0])["items"]
        self.assertEqual(lease["lease_id"], opened["grant"]["lease"]["lease_id"])
        self.assertEqual(self.call("key.list"), "forbidden")

    def test_a_revoked_key_closes_its_sockets(self):
        self.gateway.expect(204, "DELETE", f"/api-keys/{self.key.split('_')[1]}")
        self.assertEqual(self.bot.wait_closed(), 4401)


if __name__ == "__main__":
    unittest.main()

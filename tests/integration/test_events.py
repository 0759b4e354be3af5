"""Events of bots: what is told, to whom, and that nothing is lost or comes twice."""

import contextlib
import os
import random
import sqlite3
import threading
import time
import unittest
import uuid

from bot import Bot
from gateway import Gateway
from metrics import Metrics
from waiting import until, wait_for
from ws import WsClosed, WsError

WIDE = {"lease": {"per_user": 100000, "per_session": 100000}}
RING = 4096  # events that are read from memory


def names(events):
    return [e["event"] for e in events]


class Watched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls, WIDE)

    def bot(self, key=None, gateway=None, **options):
        gateway = gateway or self.gateway
        return Bot(self, gateway, key or gateway.admin_key, **options)

class Events(Watched):
    def test_the_life_of_a_sandbox_and_its_leases_in_order(self):
        chat = self.gateway.new_chat()
        watcher, bot = self.bot(), self.bot()
        since = watcher.subscribe(f"chat:{chat['chat_id']}")
        opened = bot.ok("sandbox.open", {"chat_id": chat["chat_id"], "lease": {}})
        session, lease = opened["sandbox"]["session_id"], opened["grant"]["lease"]["lease_id"]
        bot.ok("lease.renew", {"lease_id": lease})
        bot.ok("lease.revoke", {"selector": {"lease_id": lease}, "reason": "seen"})
        second = bot.ok("lease.grant", {"session_id": session})["lease"]["lease_id"]
        bot.ok("sandbox.stop", {"session_id": session, "reason": "done"})
        events = watcher.events_until("sandbox.stopped")
        self.assertEqual(names(events), [
            "sandbox.starting", "sandbox.running", "lease.granted", "lease.renewed",
            "lease.revoked", "lease.granted", "sandbox.stopping", "lease.revoked",
            "sandbox.stopped",
        ])
        seqs = [e["seq"] for e in events]
        self.assertEqual(seqs, sorted(set(seqs)))
        self.assertGreater(seqs[0], since)
        for event in events:
            self.assertEqual(set(event), {"event", "seq", "at", "data"})
            self.assertRegex(event["at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            for member, value in (("chat_id", chat["chat_id"]), ("user_id", chat["user_id"]),
                                  ("session_id", session)):
                self.assertEqual(event["data"][member], value)
        leases = [e["data"].get("lease_id") for e in events]
        self.assertEqual(leases[2:8], [lease, lease, lease, second, None, second])
        self.assertEqual([events[4]["data"]["reason"], events[8]["data"]["reason"]],
                         ["seen", "done"])

    def test_a_lease_that_is_not_renewed_is_told_of_before_and_at_its_end(self):
        chat = self.gateway.new_chat()
        watcher = self.bot()
        watcher.subscribe(f"user:{chat['user_id']}")
        self.gateway.open(chat["chat_id"], lease={"ttl_s": 2})
        events = watcher.events_until("lease.expired")
        self.assertEqual(names(events)[2:], ["lease.granted", "lease.expiring", "lease.expired"])

    def test_a_failed_start_is_told_of_with_what_a_waiting_open_is_told(self):
        gateway = Gateway.for_test(
            self, {"profiles": [{"name": "default", "command": ["/no/such/program"]}]}
        )
        chat = {"chat_id": gateway.new_chat()["chat_id"]}
        watcher = self.bot(gateway=gateway)
        watcher.subscribe(f"chat:{chat['chat_id']}")
        told = gateway.expect(503, "POST", "/sandboxes", chat)["detail"]
        failed = watcher.events_until("sandbox.failed")[-1]["data"]
        self.assertEqual((failed["reason"], failed["detail"]), ("start_failed", told))

    def test_a_sandbox_is_told_of_before_it_is_stopped_as_idle(self):
        chat = self.gateway.new_chat()
        watcher = self.bot()
        watcher.subscribe(f"user:{chat['user_id']}")
        self.gateway.open(chat["chat_id"], idle_ttl_s=4)
        soon = watcher.events_until("sandbox.idle_soon")[-1]
        self.assertEqual((soon["data"]["status"], soon["data"]["reason"]), ("running", "idle"))

    def test_since_brings_what_was_missed_once_and_in_order(self):
        chat = self.gateway.new_chat()
        topic = f"user:{chat['user_id']}"
        first = self.bot()
        start = first.subscribe(topic)
        session = self.gateway.open(chat["chat_id"], lease={})[0]["session_id"]
        seen = first.events_until("lease.granted")
        first.ws.close()
        for _ in range(3):
            self.gateway.expect(201, "POST", "/leases", {"session_id": session})
        again, whole = self.bot(), self.bot()
        again.subscribe(topic, since=seen[-1]["seq"])
        whole.subscribe(topic, since=start)
        self.gateway.expect(201, "POST", "/leases", {"session_id": session})
        rest = [again.event() for _ in range(4)]
        self.assertEqual([whole.event() for _ in range(7)], seen + rest)
        again.no_event()
        whole.no_event()

    def test_a_subscription_replaces_the_one_before(self):
        one, other = self.gateway.new_chat(), self.gateway.new_chat()
        bot = self.bot()
        bot.subscribe(f"user:{one['user_id']}", "all")
        bot.subscribe(f"user:{other['user_id']}", f"chat:{other['chat_id']}")
        for chat in (one, other):
            self.gateway.open(chat["chat_id"])
        events = bot.events_until("sandbox.running")
        self.assertEqual({e["data"]["user_id"] for e in events}, {other["user_id"]})
        self.assertEqual(len(events), 2)  # two of its topics, and yet once
        bot.subscribe()
        self.gateway.expect(201, "POST", "/leases", {"chat_id": other["chat_id"]})
        bot.no_event()

    def test_what_is_no_topic_is_refused(self):
        bot = self.bot()
        self.assertEqual(bot.error("subscribe")["code"], "invalid_request")
        for topic in ("", "All", "user:", "user:x", f"users:{uuid.uuid4()}", f"chat {uuid.uuid4()}"):
            error = bot.error("subscribe", {"topics": ["all", topic]})
            self.assertEqual(error["errors"][0]["pointer"], "/topics/1", topic)
        for since in (-1, "1", 1.5):
            error = bot.error("subscribe", {"topics": ["all"], "since": since})
            self.assertEqual(error["code"], "invalid_request")
        self.assertEqual(bot.error("subscribe", {"topics": ["all"] * 257})["code"], "invalid_request")

    def test_another_log_than_the_client_knows_is_a_gap(self):
        bot = self.bot()
        newest = bot.subscribe("all")
        bot.subscribe("all", since=newest + 1000)
        self.assertEqual(bot.event(), {"event": "gap", "data": {"oldest": newest + 1}})
        self.gateway.open(self.gateway.new_chat()["chat_id"])
        self.assertEqual(bot.event()["event"], "sandbox.starting")


class Visibility(Watched):
    def test_a_user_can_be_watched_before_the_first_chat(self):
        bot, user = self.bot(), str(uuid.uuid4())
        bot.subscribe(f"user:{user}")
        self.gateway.open(self.gateway.new_chat(user)["chat_id"])
        self.assertEqual(names(bot.events_until("sandbox.running")),
                         ["sandbox.starting", "sandbox.running"])

    def test_a_key_sees_its_users_alone_and_others_do_not_exist(self):
        mine, other = self.gateway.new_chat(), self.gateway.new_chat()
        bot = self.bot(self.gateway.new_key(allowed_users=[mine["user_id"]]))
        session = self.gateway.open(other["chat_id"])[0]["session_id"]
        for topic, code in ((f"user:{other['user_id']}", "not_found"),
                            (f"chat:{other['chat_id']}", "chat_not_found"),
                            (f"chat:{uuid.uuid4()}", "chat_not_found"),
                            (f"session:{session}", "not_found"),
                            (f"session:{uuid.uuid4()}", "not_found")):
            error = bot.error("subscribe", {"topics": [topic]})
            self.assertEqual((error["code"], error["status"]), (code, 404))
        for since in (None, 0):
            bot.subscribe("all", since=since)
            self.gateway.expect(201, "POST", "/leases", {"session_id": session})
            bot.no_event()
        self.gateway.open(mine["chat_id"])
        self.assertEqual(names(bot.events_until("sandbox.running")),
                         ["sandbox.starting", "sandbox.running"])

    def test_a_key_that_sees_many_users_gets_the_events_of_each(self):
        chats = [self.gateway.new_chat() for _ in range(2)]
        users = [c["user_id"] for c in chats] + [str(uuid.uuid4()) for _ in range(60)]
        bot = self.bot(self.gateway.new_key(allowed_users=users))
        bot.subscribe("all")
        for chat in (chats[1], self.gateway.new_chat(), chats[0]):
            self.gateway.open(chat["chat_id"])
        events = [bot.event() for _ in range(4)]
        self.assertEqual([e["data"]["user_id"] for e in events],
                         [chats[1]["user_id"]] * 2 + [chats[0]["user_id"]] * 2)

    def test_changed_rights_count_at_once(self):
        one, other = self.gateway.new_chat(), self.gateway.new_chat()
        made = self.gateway.expect(201, "POST", "/api-keys", {
            "name": "n", "role": "viewer", "allowed_users": [one["user_id"]]})
        path = f"/api-keys/{made['api_key']['key_id']}"
        bot = self.bot(made["key"])
        bot.subscribe("all")
        self.gateway.open(one["chat_id"])
        bot.events_until("sandbox.running")
        self.gateway.expect(200, "PATCH", path, {"allowed_users": [other["user_id"]]})
        self.gateway.expect(201, "POST", "/leases", {"chat_id": one["chat_id"]})
        self.gateway.open(other["chat_id"])
        self.assertEqual({e["data"]["user_id"] for e in bot.events_until("sandbox.running")},
                         {other["user_id"]})
        self.gateway.expect(204, "DELETE", path)
        self.assertEqual(bot.ws.wait_closed(), 4401)


class Granting(unittest.TestCase):
    def grants(self, gateway, session, count):
        bot = Bot(self, gateway, gateway.admin_key)
        for start in range(0, count, 50):
            for _ in range(min(50, count - start)):
                bot.send("lease.grant", {"session_id": session})
            for _ in range(min(50, count - start)):
                self.assertTrue(bot.answer()["ok"])


class Log(Granting):
    """What needs a gateway of its own."""

    def test_a_reader_far_behind_catches_up_from_the_log(self):
        gateway = Gateway.for_test(self, WIDE)
        chat = gateway.new_chat()
        start = Bot(self, gateway, gateway.admin_key).subscribe("all")
        session = gateway.open(chat["chat_id"])[0]["session_id"]
        self.grants(gateway, session, RING + 500)
        for reader in ("before a restart", "behind it"):
            bot = Bot(self, gateway, gateway.admin_key)
            bot.subscribe("all", since=start)
            seqs = [bot.event()["seq"] for _ in range(RING + 502)]
            self.assertEqual(seqs, list(range(start + 1, start + RING + 503)), reader)
            self.grants(gateway, session, 1)
            self.assertEqual(bot.event()["event"], "lease.granted")
            self.grants_taken_back(gateway, start, seqs[-1])
            gateway.restart()

    def grants_taken_back(self, gateway, start, last):
        """From the middle, past one event that came since, up to the newest."""
        bot = Bot(self, gateway, gateway.admin_key)
        bot.subscribe("all", since=start + 100)
        self.assertEqual(bot.event()["seq"], start + 101)
        bot.subscribe("all", since=last)
        while bot.event()["seq"] <= last:
            pass

    def test_what_retention_took_is_a_gap(self):
        gateway = Gateway.for_test(self, {
            **WIDE, "sandbox": {"cleanup_interval_seconds": 1}, "retention": {"events_max": 20}})
        session = gateway.open(gateway.new_chat()["chat_id"])[0]["session_id"]
        self.grants(gateway, session, 200)
        path = os.path.join(gateway.dir, "data", "leasehold.db")

        def kept():
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                return db.execute("SELECT MAX(last_seq) - MIN(first_seq) FROM event_log").fetchone()[0]

        wait_for(self, "retention", lambda: kept() < 120)
        gateway.restart()
        bot = Bot(self, gateway, gateway.admin_key)
        bot.subscribe("all", since=0)
        gap = bot.event()
        self.assertEqual(gap["event"], "gap")
        newest = bot.subscribe("all")
        self.assertLess(newest - gap["data"]["oldest"], 120)
        bot.subscribe("all", since=gap["data"]["oldest"] - 1)
        self.assertEqual(bot.event()["seq"], gap["data"]["oldest"])

    def test_a_slow_reader_is_closed_with_1013_and_resumes(self):
        gateway = Gateway.for_test(self, WIDE, env={"LEASEHOLD_TEST_WS_QUEUE_MAX": "65536"})
        session = gateway.open(gateway.new_chat()["chat_id"])[0]["session_id"]
        slow = Bot(self, gateway, gateway.admin_key, rcvbuf=4096)
        since = slow.subscribe("all")
        reason = "r" * 60
        deadline = time.monotonic() + 60
        while not gateway.log_lines("ws_slow_reader"):
            self.assertLess(time.monotonic(), deadline)
            self.grants(gateway, session, 500)
            gateway.expect((200, 202), "POST", "/leases/revoke",
                           {"selector": {"session_id": session}, "reason": reason})
        seqs = []
        with self.assertRaises(WsClosed) as closed:
            while True:
                seqs.append(slow.event()["seq"])
        self.assertEqual(closed.exception.code, 1013)
        again = Bot(self, gateway, gateway.admin_key)
        newest = again.subscribe("all")
        again.subscribe("all", since=seqs[-1])
        while seqs[-1] < newest:
            seqs.append(again.event()["seq"])
        self.assertEqual(seqs, list(range(since + 1, newest + 1)))


class FanOut(Granting):
    """Many events of one commit, for many subscribers: the loop tells them in turns, with all else that
    may happen in between."""

    WATCHERS = 60
    LEASES = 1024

    def setUp(self):
        self.gateway = Gateway.for_test(self, WIDE)
        chat = self.gateway.new_chat()
        self.session = self.gateway.open(chat["chat_id"])[0]["session_id"]
        self.user = chat["user_id"]
        self.grants(self.gateway, self.session, self.LEASES)
        topics = ["all"], [f"user:{self.user}"], [f"session:{self.session}", f"chat:{chat['chat_id']}"]
        self.topics = [topics[i % 3] for i in range(self.WATCHERS)]
        self.bots = [self.bot() for _ in range(self.WATCHERS)]
        self.since = max([bot.subscribe(*t) for bot, t in zip(self.bots, self.topics)])

    def bot(self, key=None):
        return Bot(self, self.gateway, key or self.gateway.admin_key)

    def revoke_all(self):
        """Sent: it runs while the test goes on."""
        bot = self.bot()
        bot.send("lease.revoke", {"selector": {"session_id": self.session}, "reason": "all at once"})
        return bot

    def seqs_of(self, bot):
        """Up to the last of the leases."""
        last, seqs = self.since + self.LEASES, []
        while not seqs or seqs[-1] < last:
            seqs.append(bot.event()["seq"])
        return seqs

    def assert_all(self, seqs, what=None):
        self.assertEqual(seqs, list(range(self.since + 1, self.since + self.LEASES + 1)), what)

    def test_no_turn_of_the_loop_tells_all_of_it(self):
        """Far from the millisecond it may take: what a host takes from its guest counts as CPU time."""
        for _ in range(100):
            self.bot().subscribe("all")
        before = Metrics.of(self.gateway)
        self.revoke_all().answer()
        for bot in self.bots:
            self.assert_all(self.seqs_of(bot))
        name = "leasehold_loop_long_turn_cpu_seconds"
        spent = Metrics.of(self.gateway).since(before)
        self.assertEqual(spent[name + "_count"] - spent[name + "_bucket", "0.025"], 0)

    def test_an_answer_comes_behind_the_events_of_its_call(self):
        watching = self.bots[0]
        watching.ok("lease.revoke", {"selector": {"session_id": self.session}, "reason": "mine"})
        self.assert_all([event["seq"] for event in watching.events])

    def test_who_subscribes_again_meanwhile_misses_nothing(self):
        revoking = self.revoke_all()
        heard = {}
        for number in range(0, self.WATCHERS, 4):
            seq = self.bots[number].subscribe(*self.topics[number], "all")
            self.assertEqual([e for e in self.bots[number].events if e["seq"] > seq], [])
        for number in range(1, self.WATCHERS, 4):
            heard[number] = [self.bots[number].event()["seq"]]
            self.bots[number].subscribe(*self.topics[number], since=heard[number][0])
            self.bots[number].events.clear()  # of the former subscription: they come again
        for number, bot in enumerate(self.bots):
            self.assert_all(heard.get(number, []) + self.seqs_of(bot), number)
            bot.no_event(0.01)
        revoking.answer()

    def test_who_leaves_meanwhile_can_resume_and_disturbs_nobody(self):
        revoking = self.revoke_all()
        heard = {}
        for number in range(0, self.WATCHERS, 2):
            heard[number] = [self.bots[number].event()["seq"] for _ in range(number + 1)]
            self.bots[number].ws.sock.close()
        for number, seqs in heard.items():
            again = self.bot()
            again.subscribe(*self.topics[number], since=seqs[-1])
            self.assert_all(seqs + self.seqs_of(again), number)
        for number in range(1, self.WATCHERS, 2):
            self.assert_all(self.seqs_of(self.bots[number]), number)
        revoking.answer()

    def test_rights_that_change_meanwhile_lose_no_event(self):
        made = self.gateway.expect(201, "POST", "/api-keys", {
            "name": "n", "role": "viewer", "allowed_users": [self.user]})
        bots = [self.bot(made["key"]) for _ in range(4)]
        for bot in bots:
            bot.subscribe("all")
        revoking = self.revoke_all()
        many = [self.user] + [str(uuid.uuid4()) for _ in range(60)]
        for users in (many, [self.user], many, [self.user], many):
            self.gateway.expect(200, "PATCH", f"/api-keys/{made['api_key']['key_id']}",
                                {"allowed_users": users})
        for bot in bots:
            self.assert_all(self.seqs_of(bot))
        revoking.answer()

    def test_a_stop_meanwhile_loses_nothing(self):
        self.revoke_all()
        self.bots[-1].event()
        self.gateway.stop()
        heard = [self.heard_before_the_end(bot) for bot in self.bots[:12]]
        self.gateway.start()
        newest = self.bot().subscribe("all")
        for number, seqs in enumerate(heard):
            again = self.bot()
            again.subscribe("all", since=seqs[-1] if seqs else self.since)
            while (seqs[-1] if seqs else self.since) < newest:
                seqs.append(again.event()["seq"])
            self.assertEqual(seqs, list(range(self.since + 1, newest + 1)), number)

    def heard_before_the_end(self, bot):
        seqs = []
        try:
            while True:
                seqs.append(bot.event()["seq"])
        except (OSError, WsError, WsClosed):
            return seqs


class Reader(threading.Thread):
    """Follows the log past every end of its connection: the gateway's, and with `leaves` its own, in the
    middle of what comes. One that `dozes` falls behind and has to read the log itself."""

    def __init__(self, test, gateway, topic, leaves=False, dozes=False):
        super().__init__(daemon=True)
        self.test, self.gateway, self.topic = test, gateway, topic
        self.leaves, self.dozes, self.chance = leaves, dozes, random.Random(topic)
        self.seqs, self.cursor, self.over, self.faults = [], 0, threading.Event(), []
        self.left = 0

    def run(self):
        while not self.over.is_set():
            try:
                bot = Bot(self.test, self.gateway, self.gateway.admin_key)
                bot.subscribe(self.topic, since=self.cursor)
                while not self.over.is_set() and not self.leave(bot):
                    self.take(bot)
            except (OSError, WsError, WsClosed):
                time.sleep(0.02)

    def leave(self, bot):
        """Without a word, and with events on their way."""
        if self.dozes and self.chance.random() < 0.01:
            time.sleep(0.3)
        if not self.leaves or self.chance.random() > 0.02:
            return False
        bot.ws.sock.close()
        self.left += 1
        return True

    def take(self, bot):
        try:
            event = bot.event(0.5)
        except TimeoutError:
            return
        if event["event"] == "gap" or event["seq"] <= self.cursor:
            self.faults.append(event)
            return
        self.cursor = event["seq"]
        self.seqs.append((event["seq"], event["event"], event["data"].get("lease_id"), event["at"]))


class Killed(unittest.TestCase):
    ROUNDS = 6

    def test_the_stream_is_whole_when_the_gateway_is_killed_at_random_under_load(self):
        gateway = Gateway.for_test(self, WIDE)
        chat = gateway.new_chat()
        session = gateway.open(chat["chat_id"])[0]["session_id"]
        readers = [Reader(self, gateway, "all"),
                   Reader(self, gateway, f"user:{chat['user_id']}", leaves=True),
                   Reader(self, gateway, f"session:{session}", leaves=True, dozes=True),
                   Reader(self, gateway, f"chat:{chat['chat_id']}", dozes=True)]
        granted, revoked, over = [], [], threading.Event()

        def load():
            while not over.is_set():
                try:
                    bot = Bot(self, gateway, gateway.admin_key)
                    while not over.is_set():
                        for _ in range(20):
                            bot.send("lease.grant", {"session_id": session})
                        for _ in range(20):
                            answer = bot.answer(10)
                            if answer["ok"]:
                                granted.append(answer["result"]["lease"]["lease_id"])
                        lease = granted[-1]
                        bot.ok("lease.revoke", {"selector": {"lease_id": lease}})
                        revoked.append(lease)
                        time.sleep(0.02)  # as many as who dozes can read in time, however fast they are
                except (OSError, WsError, WsClosed):
                    time.sleep(0.02)

        threads = [*readers, *(threading.Thread(target=load) for _ in range(2))]
        for thread in threads:
            thread.start()
        chance = random.Random(8)
        for _ in range(self.ROUNDS):
            time.sleep(0.2 + chance.random() * 0.6)
            gateway.kill9() if chance.random() < 0.8 else gateway.stop()
            gateway.start()
        over.set()
        for thread in threads[len(readers):]:
            thread.join(30)
        newest = Bot(self, gateway, gateway.admin_key).subscribe("all")
        until(lambda: min(r.cursor for r in readers) >= newest)
        for reader in readers:
            reader.over.set()
            reader.join(30)
            self.assertEqual(reader.faults, [])
            self.assertEqual([seq for seq, *_ in reader.seqs], list(range(1, newest + 1)))
            self.assertEqual(reader.seqs, readers[0].seqs)  # the same of each, whatever it went through
        self.assertGreater(sum(reader.left for reader in readers), 5)
        place = {"lease.granted": {}, "lease.revoked": {}}
        for seq, event, lease, _ in readers[0].seqs:
            if event in place:
                self.assertNotIn(lease, place[event])
                place[event][lease] = seq
        self.assertEqual(set(granted) - set(place["lease.granted"]), set())
        self.assertEqual(set(revoked) - set(place["lease.revoked"]), set())
        for lease, seq in place["lease.revoked"].items():
            self.assertGreater(seq, place["lease.granted"][lease])
        self.assertGreater(len(granted), 100)
        self.assertGreater(len(revoked), 3)


if __name__ == "__main__":
    unittest.main()

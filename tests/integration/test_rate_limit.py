"""Rates: of a key's calls on both faces, and of refused proofs from an address."""

import json
import os
import re
import tempfile
import time
import unittest

from bot import Bot
from files import FileClient
from gateway import BIN, Gateway
from waiting import wait_equal
from ws import WsHandshakeError


class Rates(unittest.TestCase):
    RATE, BURST = 1, 10

    def setUp(self):
        self.gateway = Gateway.for_test(self, {"security": {"rate_limit": {
            "requests_per_second": self.RATE, "burst": self.BURST}}})

    def get(self, key):
        return self.gateway.rest("GET", "/chats", key=key)

    def spend(self, key, good=200, path="/chats"):
        """The answer that says it is enough."""
        for _ in range(self.BURST + 20):
            status, headers, body = self.gateway.rest("GET", path, key=key)
            if status != good:
                return status, headers, body
        raise AssertionError("no limit")

    def test_a_key_over_its_rate_is_told_to_wait_and_others_are_not(self):
        one, other = self.gateway.new_key(), self.gateway.new_key()
        status, headers, body = self.spend(one)
        self.assertEqual((status, body["code"]), (429, "rate_limited"))
        wait = int(headers["Retry-After"])
        self.assertIn(wait, (1, 2))
        self.assertEqual(self.get(other)[0], 200)
        time.sleep(wait + 0.2)
        self.assertEqual(self.get(one)[0], 200)

    def test_messages_count_like_requests(self):
        key = self.gateway.new_key()
        bot = Bot(self, self.gateway, key)
        begin = time.monotonic()
        for _ in range(self.BURST + 20):
            bot.send("chat.list")
        answers = [bot.answer() for _ in range(self.BURST + 20)]
        earned = self.RATE * (time.monotonic() - begin + 1)
        refused = [a["error"]["code"] for a in answers if not a["ok"]]
        self.assertGreaterEqual(len(refused), 20 - earned)
        self.assertEqual(set(refused), {"rate_limited"})
        self.assertEqual(self.spend(key)[0], 429)
        time.sleep(1.2)
        self.assertTrue(bot.call("chat.list")["ok"])  # the connection has stayed

    def test_guessing_is_slowed_down_and_keys_that_hold_go_on(self):
        key = self.gateway.new_key()
        self.assertEqual(self.get("lhk_no")[0], 401)
        self.assertEqual(self.spend("lhk_no", 401)[0], 429)
        wait_equal(self, 429, self.guess_by_bot)
        self.assertEqual(self.get(key)[0], 200)
        self.assertEqual(self.gateway.rest("GET", "//healthz", key="")[0], 200)

    def guess_by_bot(self):
        """The answer; a second after the last guess another one is heard."""
        with self.assertRaises(WsHandshakeError) as refused:
            Bot(self, self.gateway, "lhk_no")
        return refused.exception.status

    def test_links_that_do_not_hold_are_slowed_down_and_those_that_do_go_on(self):
        client = FileClient(self.gateway)
        path = f"/chats/{client.chat_id}/artifacts?name=a"
        artifact = json.loads(client.ask("POST", path, b"x")[2])["artifact_id"]
        link = self.gateway.expect(200, "GET", f"/artifacts/{artifact}/download")["url"]
        link = "//" + link.split("/", 3)[3]
        guess = re.sub("signature=[^&]*", "signature=aa", link)
        self.assert_slowed_down(guess, 403)
        self.assertEqual(self.gateway.rest("GET", link, key="")[0], 200)
        self.assertEqual(self.get(self.gateway.new_key())[0], 200)

    def test_paths_that_are_none_are_slowed_down(self):
        self.assert_slowed_down("//nothing", 404)

    def assert_slowed_down(self, path, status):
        self.assertEqual(self.gateway.rest("GET", path, key="")[0], status)
        got, headers, body = self.spend("", status, path)
        self.assertEqual((got, body["code"]), (429, "rate_limited"))
        self.assertIn("Retry-After", headers)


class Places(unittest.TestCase):
    def test_no_key_takes_all_places_for_connections(self):
        script = "ulimit -n 256; exec \"$0\" \"$@\""
        gateway = Gateway.for_test(self, launcher=Limited(script))
        one, other = gateway.new_key(), gateway.new_key()
        refused = 0
        for _ in range(120):  # of 128 places
            try:
                Bot(self, gateway, one)
            except WsHandshakeError as fault:
                self.assertEqual((fault.status, json.loads(fault.body)["code"]), (503, "busy"))
                refused += 1
        self.assertEqual(refused, 120 - 116)
        self.assertEqual(Bot(self, gateway, other).ok("health.get")["status"], "ok")
        late = Bot(self, gateway)
        late.send("auth", {"token": one})
        self.assertEqual(late.ws.wait_closed(), 1013)


class Limited:
    """Runs the programs with fewer descriptors."""

    def __init__(self, script):
        self.script = script

    @staticmethod
    def new_dir(prefix):
        return tempfile.mkdtemp(prefix=prefix)

    def command(self, name, *args):
        return ["bash", "-c", self.script, os.path.join(BIN, name), *args]


if __name__ == "__main__":
    unittest.main()

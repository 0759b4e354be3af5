"""Rates: of a key's calls on both faces, and of refused proofs from an address."""

import time
import unittest

from bot import Bot
from gateway import Gateway
from ws import WsHandshakeError


class Rates(unittest.TestCase):
    RATE, BURST = 1, 10

    def setUp(self):
        self.gateway = Gateway.for_test(self, {"security": {"rate_limit": {
            "requests_per_second": self.RATE, "burst": self.BURST}}})

    def get(self, key):
        return self.gateway.rest("GET", "/chats", key=key)

    def spend(self, key):
        """The answer that says it is enough."""
        for _ in range(self.BURST + 20):
            status, headers, body = self.get(key)
            if status != 200:
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
        for _ in range(self.BURST + 20):
            bot.send("chat.list")
        answers = [bot.answer() for _ in range(self.BURST + 20)]
        refused = [a["error"]["code"] for a in answers if not a["ok"]]
        self.assertGreaterEqual(len(refused), 18)
        self.assertEqual(set(refused), {"rate_limited"})
        self.assertEqual(self.get(key)[0], 429)
        time.sleep(1.2)
        self.assertTrue(bot.call("chat.list")["ok"])  # the connection has stayed

    def test_guessing_is_slowed_down_and_keys_that_hold_go_on(self):
        key = self.gateway.new_key()
        seen = [self.get("lhk_no")[0] for _ in range(self.BURST + 5)]
        self.assertEqual(seen[0], 401)
        self.assertEqual(seen[-1], 429)
        with self.assertRaises(WsHandshakeError) as refused:
            Bot(self, self.gateway, "lhk_no")
        self.assertEqual(refused.exception.status, 429)
        self.assertEqual(self.get(key)[0], 200)
        self.assertEqual(self.gateway.rest("GET", "//healthz", key="")[0], 200)


if __name__ == "__main__":
    unittest.main()

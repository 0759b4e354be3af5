"""Pings of bots' WebSockets, by a server that pings each second and a half instead of every twenty."""

import os
import time
import unittest
from unittest import mock

from test_http_server import EchoServer
from ws import OP_PING, OP_PONG, OP_TEXT, WsClient


class Pings(unittest.TestCase):
    def setUp(self):
        with mock.patch.dict(os.environ, {"ECHO_PING_MS": "1500"}):
            self.server = EchoServer()
        self.addCleanup(self.server.close)
        self.addCleanup(self.server.stop)

    def open(self, protocol="leasehold.v1", local=False):
        target = self.server.control if local else f"ws://127.0.0.1:{self.server.port}"
        client = WsClient.connect(target, path="/api/v1/ws", protocols=[protocol])
        self.addCleanup(client.close)
        self.assertEqual(client.recv(), (OP_TEXT, protocol.encode()))
        return client

    def test_one_that_never_answers_is_closed_after_two(self):
        silent = self.open()
        got = [silent.recv_frame()[1] for _ in range(2)]
        self.assertEqual(got, [OP_PING, OP_PING])
        self.assertEqual(silent.wait_closed(), 4408)

    def test_messages_are_no_answer_to_a_ping(self):
        chatty = self.open()
        pings = 0
        while pings < 2:
            chatty.send_text("here")
            time.sleep(0.1)
            pings += chatty.recv_frame()[1] == OP_PING
        self.assertEqual(chatty.wait_closed(), 4408)

    def test_one_that_answers_stays(self):
        alive, late = self.open(), self.open()
        for n in range(4):  # the late one answers every second ping
            self.assertEqual(alive.recv_frame()[1], OP_PING)
            alive.send_frame(OP_PONG)
            self.assertEqual(late.recv_frame()[1], OP_PING)
            if n % 2:
                late.send_frame(OP_PONG)
        for client in (alive, late):
            client.send_text("still")
            self.assertEqual(client.recv(), (OP_TEXT, b"still"))

    def test_a_door_is_not_pinged(self):
        door = self.open("leasehold.control.v1", local=True)
        with self.assertRaises(TimeoutError):
            door.recv_frame(3.5)


if __name__ == "__main__":
    unittest.main()

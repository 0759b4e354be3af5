"""A bot on the WebSocket face: calls, answers and events, each when asked for."""

import json

from waiting import PATIENCE_S
from ws import OP_TEXT, WsClient

PROTOCOL = "leasehold.v1"


class Bot:
    """One connection of a bot; `key` goes with the upgrade, None: not."""

    def __init__(self, test, gateway, key=None, **options):
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        headers.update(options.pop("headers", {}))
        self.ws = WsClient.connect(
            gateway.url.replace("http", "ws", 1),
            path=options.pop("path", "/api/v1/ws"),
            protocols=options.pop("protocols", [PROTOCOL]),
            headers=headers,
            **options,
        )
        test.addCleanup(self.ws.close)
        self.last_id = 0
        self.events = []  # that came while an answer was waited for

    def send(self, op, args=None, message_id=None):
        self.last_id += 1
        message = {"id": message_id or str(self.last_id), "op": op}
        if args is not None:
            message["args"] = args
        self.ws.send_text(json.dumps(message))
        return message["id"]

    def message(self, timeout=60):
        opcode, text = self.ws.recv(timeout)
        assert opcode == OP_TEXT
        return json.loads(text)

    def answer(self, timeout=60):
        while True:
            message = self.message(timeout)
            if "event" not in message:
                return message
            self.events.append(message)

    def call(self, op, args=None):
        """The whole answer to one call."""
        asked = self.send(op, args)
        answer = self.answer()
        assert answer["id"] == asked, answer
        return answer

    def ok(self, op, args=None):
        answer = self.call(op, args)
        assert answer["ok"] is True and set(answer) == {"id", "ok", "result"}, answer
        return answer["result"]

    def error(self, op, args=None):
        answer = self.call(op, args)
        assert answer["ok"] is False and set(answer) == {"id", "ok", "error"}, answer
        return answer["error"]

    def auth(self, key):
        return self.ok("auth", {"token": key})

    # -- events ------------------------------------------------------------------------------------

    def subscribe(self, *topics, since=None):
        """The seq behind which events come."""
        args = {"topics": list(topics)}
        if since is not None:
            args["since"] = since
        return self.ok("subscribe", args)["seq"]

    def event(self, timeout=PATIENCE_S):
        if self.events:
            return self.events.pop(0)
        message = self.message(timeout)
        assert "event" in message, message
        return message

    def events_until(self, name, timeout=PATIENCE_S):
        """All up to and with the first one of this name."""
        found = []
        while not found or found[-1]["event"] != name:
            found.append(self.event(timeout))
        return found

    def no_event(self, seconds=0.3):
        assert not self.events, self.events
        try:
            message = self.message(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected: {message}")

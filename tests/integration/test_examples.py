"""The example bots, run as their pages say, against a messenger that stands in for a real one."""

import glob
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
import time
import unittest
import urllib.request

import ports
from gateway import ROOT, Gateway
from waiting import PATIENCE_S, until

EXAMPLES = os.path.join(ROOT, "docs", "examples")
NODE_PACKAGES = os.path.join(ROOT, "build", "example-bot")


# Each says "hello" to a door that has just broken, and prints what the door behind it is told.
SPEAK_PY = """
import asyncio, websockets
from talk import Talk

class Gateway:
    async def call(self, *_):
        await asyncio.Event().wait()

class Broken:
    async def send(self, _):
        raise websockets.ConnectionClosedError(None, None)

class Next:
    async def send(self, text):
        print(text, flush=True)
        raise asyncio.CancelledError

async def main():
    talk = Talk(Gateway(), "user", "chat", print, lambda *_: None)
    talk.say("hello")
    for door in (Broken(), Next()):
        await asyncio.wait([asyncio.create_task(talk._speak(door))], timeout=2)

asyncio.run(main())
"""
SPEAK_MJS = """
import { WebSocketServer } from "ws";
import { Talk } from "./talk.mjs";

setTimeout(() => process.exit(1), 5000);
const server = new WebSocketServer({ port: 0, host: "127.0.0.1" }, () => {
  const endpoint = { url: `ws://127.0.0.1:${server.address().port}/`, protocol: "p", ca_pem: null };
  const renew_after = new Date(Date.now() + 60_000).toISOString();
  const grant = { endpoint, token: "t", lease: { lease_id: "l" }, renew_after };
  let doors = 0;
  server.on("connection", (door) => {
    doors += 1;
    door.on("message", (text) => (console.log(text.toString()), process.exit(0)));
    door.send(JSON.stringify({ type: "ready" }));
    if (doors === 1) door.send("first words");
  });
  const talk = new Talk({
    gateway: { call: async () => ({ grant }) },
    onText: () => (talk.door.terminate(), talk.say("hello")),
    onEnd: console.error,
  });
});
"""


class Pages(unittest.TestCase):
    def test_what_a_page_runs_can_be_run(self):
        commands = set()
        for page in glob.glob(os.path.join(EXAMPLES, "*", "README.md")):
            with open(page, encoding="utf-8") as text:
                for word in re.findall(r"^(\.{1,2}/\S+)", text.read(), re.MULTILINE):
                    commands.add(os.path.normpath(os.path.join(os.path.dirname(page), word)))
        self.assertGreaterEqual(len(commands), 3)
        for command in commands:
            self.assertTrue(os.access(command, os.X_OK), command)
            with open(command, encoding="utf-8") as text:
                self.assertEqual(text.readline(), "#!/usr/bin/python3\n", command)


def poor_messenger():
    """The example's messenger where it goes wrong: the first messages of the bot are not taken, each
    in another way, and of those behind them every second one takes its time. Its server."""
    spec = importlib.util.spec_from_file_location("messenger", os.path.join(EXAMPLES, "messenger.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sent = itertools.count()

    class Handler(module.Handler):
        def do_POST(self):
            number = next(sent) if self.path == "/send" else -1
            if number in (0, 1):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.close_connection = True
                if number == 0:
                    self.answer(503, {})
                return
            if number % 2 == 0:
                time.sleep(0.2)
            super().do_POST()

    server = module.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.messenger = True, module.Messenger()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


FULL_PY = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from outbox import Outbox
taken, empty = [], []
async def main():
    away = [True]
    def post(text):
        if away[0]:
            raise OSError("away")
        taken.append(text)
    box = Outbox(post, lambda: empty.append(len(taken)), most=10)
    for n in range(1000):
        box.add(f"{n:04}")
    await asyncio.sleep(0.05)
    away[0] = False
    await box.task
    box.add("x" * 100)
    await box.task
asyncio.run(main())
print(taken, empty)
"""
FULL_MJS = """
const { Outbox } = await import(process.argv[1] + "/outbox.mjs");
const taken = [], empty = [];
let away = true, over;
const post = async (text) => {
  if (away) throw new Error("away");
  taken.push(text);
  return { ok: true, status: 200 };
};
const box = new Outbox(post, () => { empty.push(taken.length); over(); }, 10);
const emptied = () => new Promise((resolve) => (over = resolve));
for (let n = 0; n < 1000; n++) box.add(String(n).padStart(4, "0"));
setTimeout(() => (away = false), 50);
await emptied();
box.add("x".repeat(100));
await emptied();
console.log(`['${taken.join("', '")}'] [${empty.join(", ")}]`);
"""


class Outboxes(unittest.TestCase):
    """A messenger that stays away costs a bot no more memory than is said, and people learn of it."""

    def check(self, command, bot):
        done = subprocess.run([*command, os.path.join(EXAMPLES, bot)], capture_output=True, text=True,
                              timeout=60, check=True)  # fmt: skip
        told = "(998 messages got lost: too much waited)"
        self.assertEqual(done.stdout.splitlines()[-1],
                         f"{['0000', '0001', told, 'x' * 100]} [3, 4]", done.stderr)  # fmt: skip

    def test_what_waits_for_a_messenger_is_bounded_in_python(self):
        self.check(["/usr/bin/python3", "-c", FULL_PY], "bot-python")

    def test_what_waits_for_a_messenger_is_bounded_in_node(self):
        self.check(["node", "--input-type=module", "-e", FULL_MJS], "bot-node")


class Chat(unittest.TestCase):
    """What every bot must do."""

    def setUp(self):
        self.gateway = Gateway.for_test(self, {
            "lease": {"ttl_seconds": 5}, "http": {"port": ports.reserve()}})
        self.key = self.gateway.expect(201, "POST", "/api-keys", {"name": "bot", "role": "bot"})
        self.messenger = subprocess.Popen(
            ["/usr/bin/python3", os.path.join(EXAMPLES, "messenger.py")], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, self.messenger)
        self.url = self.messenger.stdout.readline().strip()
        self.shown = 0
        self.bot = None
        self.start_bot()

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def start_bot(self):
        env = {**os.environ, "LEASEHOLD_URL": self.gateway.url, "LEASEHOLD_KEY": self.key["key"],
               "MESSENGER_URL": self.url}
        with open(os.path.join(self.gateway.dir, "bot.log"), "ab") as log:
            self.bot = subprocess.Popen(
                [*self.command(), os.path.join(self.gateway.dir, "state")], env=env, stdout=log, stderr=log)
        self.addCleanup(self.end, self.bot)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(self.url + path, data, timeout=30) as answer:
            return json.load(answer)

    def say(self, person, text):
        self.ask("/say", {"person": person, "text": text})

    def reply(self, person, seen):
        """The first thing shown to her behind the number `seen`: (number, text)."""
        shown = until(lambda: self.ask(f"/shown?person={person}&after={seen}"))
        if shown:
            return shown[0]["n"], shown[0]["text"]
        with open(os.path.join(self.gateway.dir, "bot.log"), encoding="utf-8") as log:
            raise AssertionError(f"no reply; the bot's log:\n{log.read()}")

    def talk(self, person, text, seen=0):
        self.say(person, text)
        number, reply = self.reply(person, seen)
        self.assertEqual(reply, text)  # the demo agent echoes
        return number

    def leases(self):
        listed = self.gateway.expect(200, "GET", "/leases?limit=200")["items"]
        return [x for x in listed if x["state"] == "active"]

    def run_bot(self):
        seen = self.talk("ann", "hello")
        self.talk("bob", "hello from bob")
        lease = self.leases()[0]
        time.sleep(6)  # longer than a term: it renews
        seen = self.talk("ann", "still the same", max(seen, self.last()))
        self.assertIn(lease["lease_id"], [x["lease_id"] for x in self.leases()])

        self.say("ann", "/save note.txt keep this")
        seen, text = self.reply("ann", seen)
        self.assertEqual(text, "(saved note.txt, 9 bytes)")

        ann = [x for x in self.leases() if x["chat_id"] == self.chats()["ann"]][0]
        body = {"selector": {"lease_id": ann["lease_id"]}, "reason": "enough for today"}
        self.gateway.expect(202, "POST", "/leases/revoke", body)
        seen, text = self.reply("ann", seen)
        self.assertIn("the session has ended", text)
        seen = self.talk("ann", "once more", seen)

        self.gateway.kill9()
        self.gateway.start()
        seen = self.talk("ann", "past a crash of the gateway", seen)

        self.end(self.bot)
        self.say("ann", "said while the bot was away")
        self.start_bot()
        seen, text = self.reply("ann", seen)
        self.assertEqual(text, "said while the bot was away")

        self.gateway.expect(204, "DELETE", f"/api-keys/{self.key['api_key']['key_id']}")
        self.assertIsNotNone(self.bot.wait(PATIENCE_S))

    def run_with_a_poor_messenger(self):
        self.end(self.bot)
        server = poor_messenger()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"
        texts = [f"number {i}" for i in range(6)]
        for text in texts:
            self.say("ann", text)
        self.start_bot()
        self.reply("ann", len(texts) - 1)
        self.assertEqual([m["text"] for m in self.ask("/shown?person=ann&after=0")], texts)
        self.assertIsNone(self.bot.poll())

    def speak_past_a_broken_door(self, command, folder):
        done = subprocess.run(command, cwd=os.path.join(EXAMPLES, folder), capture_output=True,
                              text=True, timeout=30, check=False,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.stdout.split(), ["hello"], done.stderr)

    def last(self):
        shown = self.ask("/shown?person=ann&after=0")
        return shown[-1]["n"] if shown else 0

    def chats(self):
        """Whose chat is which: ann spoke first."""
        listed = self.gateway.expect(200, "GET", "/chats?limit=200")["items"]
        return {"ann": listed[0]["chat_id"]}


class Python(Chat):
    def command(self):
        return ["/usr/bin/python3", "-u", os.path.join(EXAMPLES, "bot-python", "bot.py")]

    def test_the_bot_in_python(self):
        self.run_bot()

    def test_what_is_said_to_a_door_that_breaks_goes_to_the_next_in_python(self):
        self.end(self.bot)
        self.speak_past_a_broken_door(["/usr/bin/python3", "-c", SPEAK_PY], "bot-python")

    def test_the_bot_in_python_loses_nothing_to_a_poor_messenger(self):
        self.run_with_a_poor_messenger()


class Node(Chat):
    def command(self):
        if not os.path.exists(os.path.join(NODE_PACKAGES, "installed")):
            raise AssertionError(f"run: scripts/npm.sh docs/examples/bot-node {NODE_PACKAGES}")
        # Beside its packages, as `npm ci` in its own folder would have it.
        for name in os.listdir(os.path.join(EXAMPLES, "bot-node")):
            if name.endswith(".mjs"):
                shutil.copy(os.path.join(EXAMPLES, "bot-node", name), NODE_PACKAGES)
        return ["node", os.path.join(NODE_PACKAGES, "bot.mjs")]

    def test_the_bot_in_node(self):
        self.run_bot()

    def test_what_is_said_to_a_door_that_breaks_goes_to_the_next_in_node(self):
        self.end(self.bot)
        script = os.path.join(NODE_PACKAGES, "speak.mjs")
        with open(script, "w", encoding="ascii") as file:
            file.write(SPEAK_MJS)
        self.speak_past_a_broken_door(["node", script], "bot-node")

    def test_the_bot_in_node_loses_nothing_to_a_poor_messenger(self):
        self.run_with_a_poor_messenger()


if __name__ == "__main__":
    unittest.main()

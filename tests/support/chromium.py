"""A real browser, for what a page sees."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request

from waiting import PATIENCE_S
from ws import WsClient


class Chromium:
    """Headless, told what to do by the DevTools protocol."""

    def __init__(self, test, url, *options):
        self.dir = tempfile.mkdtemp(prefix="lh-chromium-")
        test.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-port=0",
             f"--user-data-dir={self.dir}", *options, url],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        test.addCleanup(self.end)
        self.socket = WsClient.connect(self.page(url), timeout=30)
        test.addCleanup(self.socket.close)
        self.last = 0

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def page(self, url):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with open(os.path.join(self.dir, "DevToolsActivePort"), encoding="ascii") as text:
                    port = int(text.readline())
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                    for target in json.load(answer):
                        if target["type"] == "page" and target["url"].startswith(url):
                            return target["webSocketDebuggerUrl"]
            except (OSError, ValueError):
                pass
            time.sleep(0.1)
        raise AssertionError("the browser does not come up")

    def evaluate(self, expression):
        self.last += 1
        self.socket.send_text(json.dumps({"id": self.last, "method": "Runtime.evaluate", "params": {
            "expression": expression, "returnByValue": True}}))
        while True:
            answer = json.loads(self.socket.recv()[1])
            if answer.get("id") == self.last:
                return answer["result"]["result"].get("value")

    def wait_for(self, expression, value):
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            seen = self.evaluate(expression)
            if seen == value:
                return
            time.sleep(0.1)
        raise AssertionError(f"{expression} is {seen!r} instead of {value!r}")

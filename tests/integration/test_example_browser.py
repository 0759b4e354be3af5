"""The example page in a real browser: it redeems a lease, talks to the agent, and sees its end."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request

from gateway import ROOT, Gateway
from ws import WsClient

SERVER = os.path.join(ROOT, "docs", "examples", "browser", "server.py")


class Chromium:
    """Headless, told what to do by the DevTools protocol."""

    def __init__(self, test, url):
        self.dir = tempfile.mkdtemp(prefix="lh-chromium-")
        test.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-port=0",
             f"--user-data-dir={self.dir}", url],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        test.addCleanup(self.end)
        self.socket = WsClient.connect(self.page(url), timeout=30)
        test.addCleanup(self.socket.close)
        self.last = 0

    def end(self):
        self.process.terminate()
        self.process.wait(20)

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
            answer = json.loads(self.socket.recv(30)[1])
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


class Page(unittest.TestCase):
    STATE = "document.querySelector('#state').textContent"
    TALK = "document.querySelector('#talk').innerText"

    def test_a_page_redeems_a_lease_renews_it_and_sees_it_revoked(self):
        gateway = Gateway.for_test(self, {"lease": {"ttl_seconds": 4}})
        key = gateway.new_key()
        gateway.stop()
        site = subprocess.Popen(
            ["/usr/bin/python3", SERVER], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "LEASEHOLD_URL": gateway.url, "LEASEHOLD_KEY": key})
        self.addCleanup(site.stdout.close)
        self.addCleanup(site.wait)
        self.addCleanup(site.kill)
        url = site.stdout.readline().strip()
        gateway.edit_config({"http": {"port": int(gateway.url.rsplit(":", 1)[1])},
                             "door": {"origins": [url]}})
        gateway.start()

        browser = Chromium(self, url)
        browser.wait_for(self.STATE, "connected")
        browser.evaluate("document.querySelector('#text').value = '<b>hello</b>';"
                         "document.querySelector('form').requestSubmit()")
        browser.wait_for(self.TALK, "you: <b>hello</b>\nagent: <b>hello</b>")
        lease = gateway.expect(200, "GET", "/leases")["items"][0]
        time.sleep(5)  # longer than a term
        self.assertEqual(browser.evaluate(self.STATE), "connected")
        gateway.expect(200, "POST", "/leases/revoke",
                       {"selector": {"lease_id": lease["lease_id"]}, "wait_ms": 5000})
        browser.wait_for(self.STATE, "ended: the lease was revoked")
        self.assertNotIn("eyJ", browser.evaluate("location.href"))


if __name__ == "__main__":
    unittest.main()

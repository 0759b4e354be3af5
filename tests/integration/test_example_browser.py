"""The example page in a real browser: it redeems a lease, talks to the agent, and sees its end."""

import os
import subprocess
import time
import unittest

from chromium import Chromium
from gateway import ROOT, Gateway

SERVER = os.path.join(ROOT, "docs", "examples", "browser", "server.py")


class Page(unittest.TestCase):
    STATE = "document.querySelector('#state').textContent"
    TALK = "document.querySelector('#talk').innerText"

    def test_a_page_redeems_a_lease_renews_it_and_sees_it_revoked(self):
        gateway = Gateway.for_test(self, {"lease": {"ttl_seconds": 6}})
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
        time.sleep(7)  # longer than a term
        self.assertEqual(browser.evaluate(self.STATE), "connected")
        gateway.expect(200, "POST", "/leases/revoke",
                       {"selector": {"lease_id": lease["lease_id"]}, "wait_ms": 5000})
        browser.wait_for(self.STATE, "ended: the lease was revoked")
        self.assertNotIn("eyJ", browser.evaluate("location.href"))


if __name__ == "__main__":
    unittest.main()

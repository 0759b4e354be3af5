"""Clients made by others at a door with TLS: python3-websockets, npm ws, Chromium. Each gets its `ready`,
has messages of many lengths back as they were, and sees the code of its end."""

import asyncio
import http.server
import json
import os
import ssl
import subprocess
import threading
import unittest

import websockets
from chromium import Chromium
from gateway import ROOT, Gateway
from waiting import PATIENCE_S

PACKAGES = os.path.join(ROOT, "build", "example-bot")
PROTOCOL = "leasehold.door.v1"
LENGTHS = [1, 125, 126, 65535, 65536, 300000]

NODE = """
const WebSocket = require('ws');
const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const got = {ready: null, lengths: [], whole: true, pong: false};
const socket = new WebSocket(given.url, given.protocol, {ca: given.ca, perMessageDeflate: true,
  headers: {authorization: 'Bearer ' + given.token}});
const say = () => socket.send('x'.repeat(given.lengths[got.lengths.length]));
socket.on('pong', () => { got.pong = true; });
socket.on('message', (data, binary) => {
  const text = data.toString();
  if (!got.ready) {
    got.ready = JSON.parse(text);
    socket.ping('p');
    say();
    return;
  }
  got.whole &&= !binary && text === 'x'.repeat(text.length);
  got.lengths.push(text.length);
  if (got.lengths.length < given.lengths.length) say();
  else if (given.last === 'close') socket.close(1000, 'bye');
  else console.log('talked');
});
socket.on('close', (code) => console.log(JSON.stringify({...got, code, protocol: socket.protocol})));
socket.on('error', (error) => console.log(JSON.stringify({error: String(error)})));
"""

PAGE = """
window.got = [];
window.socket = new WebSocket(%s, %s);
socket.onopen = () => socket.send(JSON.stringify({type: 'auth', token: %s}));
socket.onmessage = (m) => { got.push(m.data.length); };
socket.onclose = (c) => { window.ended = c.code; };
"""


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        body = b"<!DOCTYPE html><title>a page</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = http.server.HTTPServer(("127.0.0.1", 0), Site)
        cls.origin = f"http://127.0.0.1:{cls.site.server_port}"
        threading.Thread(target=cls.site.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.site.shutdown)
        cls.gateway = Gateway.for_class(cls, {"door": {"tls": "internal-ca", "origins": [cls.origin]}})

    def grant(self):
        return self.gateway.open(self.gateway.new_chat()["chat_id"], lease={})[1]

    def revoke(self, grant):
        lease = grant["lease"]["lease_id"]
        self.gateway.expect(200, "DELETE", f"/leases/{lease}?wait_ms=5000")

    # -- python3-websockets -----------------------------------------------------------------------

    async def talk(self, grant):
        endpoint = grant["endpoint"]
        options = {
            "ssl": ssl.create_default_context(cadata=endpoint["ca_pem"]),
            "subprotocols": [PROTOCOL],
            "extra_headers": {"Authorization": "Bearer " + grant["token"]},
            "max_size": 1 << 20,
        }
        async with websockets.connect(endpoint["url"], **options) as client:
            self.assertEqual(client.subprotocol, PROTOCOL)
            self.assertEqual(json.loads(await client.recv())["type"], "ready")
            await asyncio.wait_for(await client.ping(), PATIENCE_S)
            for n in LENGTHS:
                await client.send("y" * n)
                self.assertEqual(await client.recv(), "y" * n)
            await client.send(iter(["in ", "pieces"]))
            self.assertEqual(await client.recv(), "in pieces")
            await asyncio.get_running_loop().run_in_executor(None, self.revoke, grant)
            await client.wait_closed()
            return client.close_code

    def test_python_websockets(self):
        self.assertEqual(asyncio.run(self.talk(self.grant())), 4403)

    # -- npm ws -----------------------------------------------------------------------------------

    def node(self, grant, last):
        if not os.path.exists(os.path.join(PACKAGES, "installed")):
            raise AssertionError(f"run: scripts/npm.sh docs/examples/bot-node {PACKAGES}")
        endpoint = grant["endpoint"]
        given = {"url": endpoint["url"], "ca": endpoint["ca_pem"], "token": grant["token"],
                 "protocol": PROTOCOL, "lengths": LENGTHS, "last": last}
        process = subprocess.Popen(
            ["node", "-e", NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "NODE_PATH": os.path.join(PACKAGES, "node_modules")})
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        process.stdin.write(json.dumps(given))
        process.stdin.close()
        return process

    def ended(self, process):
        got = json.loads(process.stdout.readline())
        self.assertEqual(got["ready"]["type"], "ready")
        self.assertEqual((got["lengths"], got["whole"], got["pong"]), (LENGTHS, True, True))
        self.assertEqual(got["protocol"], PROTOCOL)
        return got["code"]

    def test_npm_ws_closes(self):
        self.assertEqual(self.ended(self.node(self.grant(), "close")), 1000)

    def test_npm_ws_is_cut(self):
        grant = self.grant()
        process = self.node(grant, "stay")
        self.assertEqual(process.stdout.readline(), "talked\n")
        self.revoke(grant)
        self.assertEqual(self.ended(process), 4403)

    # -- Chromium ---------------------------------------------------------------------------------

    def test_chromium(self):
        grant = self.grant()
        page = Chromium(self, self.origin + "/", "--ignore-certificate-errors")
        url, token = grant["endpoint"]["url"], grant["token"]
        page.wait_for("document.title + document.readyState", "a pagecomplete")
        page.evaluate(PAGE % (json.dumps(url), json.dumps(PROTOCOL), json.dumps(token)))
        page.wait_for("got.length", 1)
        for n in LENGTHS:
            page.evaluate(f"socket.send('z'.repeat({n}))")
        page.wait_for("JSON.stringify(got.slice(1))", json.dumps(LENGTHS, separators=(",", ":")))
        self.assertEqual(page.evaluate("socket.protocol"), PROTOCOL)
        self.revoke(grant)
        page.wait_for("window.ended", 4403)


if __name__ == "__main__":
    unittest.main()

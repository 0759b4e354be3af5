"""A real Ceph RGW over TLS, with a CA of our own, and with the bucket in the host's name: both, each
alone and together, by the store of objects and through the daemon."""

import hashlib
import http.client
import os
import socket
import ssl
import subprocess
import tempfile
import unittest
import urllib.parse

from artifacts import BUCKET, ArtifactTest, data_of, s3_config
from gateway import ROOT
from objects_tool import ObjectError, Store
from s3_proxy import Answer, FaultProxy
from s3_servers import start_rgw

MIB = 1 << 20
IN_PARTS = ["part_bytes=5242880", "multipart_at=5242880"]
DOMAIN = "s3.localhost"  # rgw_dns_name; curl takes any name beneath localhost for this machine


def setUpModule():
    global RGW, CERTS, TLS_PORT
    folder = tempfile.TemporaryDirectory(prefix="lh-certs-")
    unittest.addModuleCleanup(folder.cleanup)
    CERTS = folder.name
    issue = os.path.join(ROOT, "certs", "issue.sh")
    names = [DOMAIN, "*." + DOMAIN]
    subprocess.run([issue, CERTS, "server", *names], check=True, capture_output=True)
    RGW = start_rgw(BUCKET)
    TLS_PORT = RGW.another_with_tls(CERTS)


def ca_file():
    return os.path.join(CERTS, "ca.pem")


def fetch(url):
    """By the name that the link says, from this machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        trust = ssl.create_default_context(cafile=ca_file())
        wire = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=trust)
        wire._create_connection = lambda address, *rest: _connect(address[1], *rest)
    else:
        wire = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=30)
    try:
        wire.request("GET", f"{parts.path}?{parts.query}", headers={"Host": parts.netloc})
        answer = wire.getresponse()
        return answer.status, answer.read()
    finally:
        wire.close()


def _connect(port, timeout, *_):
    return socket.create_connection(("127.0.0.1", port), timeout)


class Hosts(unittest.TestCase):
    WAYS = [("http", 0), ("https", 1), ("https", 0)]  # and how a bucket is named: in the path?

    def store(self, scheme, path_style, **more):
        port = TLS_PORT if scheme == "https" else RGW.port
        options = {"endpoint": f"{scheme}://{DOMAIN}:{port}", "path_style": path_style}
        if scheme == "https":
            options["ca_file"] = ca_file()
        return Store(RGW.args(BUCKET, **{**options, **more}))

    def test_objects_are_put_got_listed_and_deleted(self):
        for way in self.WAYS:
            with self.subTest(way=way):
                self.go_through(self.store(*way))

    def go_through(self, store):
        store.ask("check")
        objects = {"h/a b+%/..": b"", "h/p": data_of(11 * MIB), "h/small": data_of(3000)}
        for key, data in objects.items():
            info = store.put(key, data, "token", more=IN_PARTS)
            self.assertEqual(info["sha256"], hashlib.sha256(data).hexdigest())
            self.assertEqual(store.get(key), data)
            self.assertEqual(store.head(key)["token"], "token")
        self.assertEqual(store.list("h"), list(objects))
        self.assertEqual(store.uploads("h/"), [])
        for key in objects:
            store.delete(key)
        self.assertEqual(store.list("h"), [])

    def test_a_link_names_the_host_and_holds(self):
        for scheme, path_style in self.WAYS:
            with self.subTest(scheme=scheme, path_style=path_style):
                store = self.store(scheme, path_style)
                store.put("link", b"linked")
                url = store.presign("link", 60)
                host = DOMAIN if path_style else f"{BUCKET}.{DOMAIN}"
                self.assertTrue(url.startswith(f"{scheme}://{host}:"), url)
                self.assertEqual(fetch(url), (200, b"linked"))
                self.assertEqual(fetch(url[:-1] + ("0" if url[-1] != "0" else "1"))[0], 403)

    def test_many_connections_at_once_speak_tls(self):
        self.assertIn(b'"failed": 0', self.store("https", 0).ask("many", "tls/", "40", "2000", "8"))

    def assert_distrusted(self, store):
        for command in (("check",), ("head", "k"), ("del", "k")):
            with self.assertRaises(ObjectError) as caught:
                store.ask(*command)
            self.assertEqual(caught.exception.code, "object_store_unavailable")
            self.assertIn("SSL", str(caught.exception))

    def test_nobody_else_is_trusted(self):
        hasty = {"tries": 1, "backoff_ms": 1}
        self.assert_distrusted(self.store("https", 1, ca_file="/etc/ssl/certs/ca-certificates.crt", **hasty))
        other = f"https://127.0.0.1:{TLS_PORT}"
        self.assert_distrusted(self.store("https", 1, endpoint=other, **hasty))
        plain = f"https://{DOMAIN}:{RGW.port}"  # no TLS is spoken there
        self.assert_distrusted(self.store("https", 1, endpoint=plain, **hasty))

    def test_parts_over_tls_are_signed_only_where_that_is_wanted(self):
        with FaultProxy(RGW.port, tls=CERTS) as proxy:
            for signing, is_signed in ((0, False), (1, True)):
                proxy.rule = lambda request: Answer(403) if request.step == "part" else None
                store = self.store("https", 1, endpoint=f"https://{DOMAIN}:{proxy.port}", signing=signing)
                with self.assertRaises(ObjectError):
                    store.put_by_place("k", b"x" * 6 * MIB, more=IN_PARTS)
                (part,) = [r for r in proxy.requests if r.step == "part"][:1]
                headers = {name.lower(): value for name, value in part.headers.items()}
                self.assertEqual(headers["x-amz-content-sha256"] != "UNSIGNED-PAYLOAD", is_signed)
                proxy.requests.clear()

    def test_a_redirect_never_leads_out_of_tls(self):
        with FaultProxy(RGW.port, tls=CERTS) as proxy:
            plain = f"http://{DOMAIN}:{RGW.port}/{BUCKET}/k"
            proxy.rule = lambda _: Answer(307, {"Location": plain})
            store = self.store("https", 1, endpoint=f"https://{DOMAIN}:{proxy.port}")
            with self.assertRaises(ObjectError):
                store.put("k", b"secret")
            self.assertEqual(proxy.steps(), ["put"])
        with self.assertRaises(ObjectError):
            self.store("http", 1).head("k")


class Daemon(ArtifactTest):
    def configure(self):
        more = {"endpoint": f"https://{DOMAIN}:{TLS_PORT}", "path_style": False, "ca_file": ca_file()}
        self.gateway.edit_config(s3_config(RGW, self.gateway.dir, **more))

    def test_artifacts_go_over_tls_to_the_host_of_the_bucket(self):
        self.make()
        for size in (1000, 17 * MIB):
            artifact = self.put(data_of(size))
            url = self.link(artifact)["url"]
            self.assertTrue(url.startswith(f"https://{BUCKET}.{DOMAIN}:{TLS_PORT}/test/"), url)
            self.assertEqual(fetch(url), (200, data_of(size)))


if __name__ == "__main__":
    unittest.main()

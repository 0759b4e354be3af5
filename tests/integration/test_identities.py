"""Callers that others vouch for: JWTs of a trusted issuer, client certificates; and when a key was used."""

import base64
import contextlib
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import time
import unittest
import uuid

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bot import Bot
from gateway import ROOT, Gateway
from waiting import PATIENCE_S, until, wait_for
from ws import WsHandshakeError

ISSUER, AUDIENCE = "https://login.example", "leasehold"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Signs what it is told to, rightly or wrongly."""

    def __init__(self):
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def jwks(self):
        n = self.rsa.public_key().public_numbers()
        p = self.ec.public_key().public_numbers()
        return json.dumps({"keys": [
            {"kty": "RSA", "kid": "r1", "use": "sig", "alg": "RS256", "n": number(n.n), "e": number(n.e)},
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "AAAA"},
            {"kty": "EC", "crv": "P-256", "kid": "e1", "x": number(p.x, 32), "y": number(p.y, 32)},
        ]})

    def pem(self, key=None):
        return (key or self.rsa).public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def sign(self, header, payload, key=None):
        """`header` and `payload`: objects, or JSON text as it is."""
        parts = [b64((p if isinstance(p, str) else json.dumps(p)).encode()) for p in (header, payload)]
        data = ".".join(parts).encode()
        if isinstance(key, bytes):
            mac = hmac.HMAC(key, hashes.SHA256())
            mac.update(data)
            signature = mac.finalize()
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        else:
            signature = (key or self.rsa).sign(data, padding.PKCS1v15(), hashes.SHA256())
        return f"{data.decode()}.{b64(signature)}"

    def claims(self, **more):
        now = int(time.time())
        return {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600,
                "role": "bot", **more}

    def token(self, header=None, **claims):
        return self.sign(header or {"alg": "RS256", "typ": "JWT", "kid": "r1"}, self.claims(**claims))


def hup(gateway, event):
    seen = len(gateway.log_lines(event))
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: len(gateway.log_lines(event)) > seen)


class Trusting(unittest.TestCase):
    jwt = {}

    @classmethod
    def setUpClass(cls):
        cls.issuer = Issuer()
        cls.gateway = Gateway.for_class(cls, start=False)
        with open(os.path.join(cls.gateway.dir, "issuer.keys"), "w", encoding="ascii") as out:
            out.write(cls.keys())
        cls.gateway.edit_config({"security": {"jwt": {
            "issuer": ISSUER, "audience": AUDIENCE, "key_file": "issuer.keys", **cls.jwt}}})
        cls.gateway.start()

    @classmethod
    def keys(cls):
        return cls.issuer.jwks()

    def status(self, token, path="/chats"):
        return self.gateway.rest("GET", path, key=token)[0]

    def identity(self, name):
        keys = self.gateway.expect(200, "GET", "/api-keys?limit=200")["items"]
        found = [k for k in keys if k["name"] == name]
        self.assertEqual(len(found), 1, name)
        return found[0]


class Tokens(Trusting):
    jwt = {"users_claim": "users"}

    def test_a_token_is_a_key_on_every_face(self):
        user, sub = str(uuid.uuid4()), f"s{uuid.uuid4()}"
        token = self.issuer.token(sub=sub, users=[user])
        chat = self.gateway.expect(201, "POST", "/chats", {"user_id": user}, key=token)
        self.assertEqual(self.gateway.expect(200, "GET", "/chats", key=token)["items"], [chat])
        upgraded = Bot(self, self.gateway, token)
        self.assertEqual(upgraded.ok("chat.get", {"chat_id": chat["chat_id"]}), chat)
        told = Bot(self, self.gateway)
        self.assertEqual(told.auth(token)["role"], "bot")
        self.assertEqual(told.ok("chat.list")["items"], [chat])
        row = self.identity(f"jwt:{sub}")
        self.assertEqual((row["role"], row["allowed_users"], row["default_user"]), ("bot", [user], user))

    def test_the_first_call_of_an_identity_sees_its_own(self):
        """Lists go by the rows: these are written before."""
        user = str(uuid.uuid4())
        chat = self.gateway.new_chat(user)
        for n in range(10):
            token = self.issuer.token(sub=f"first-{n}", users=[user])
            self.assertEqual(self.gateway.expect(200, "GET", "/chats", key=token)["items"], [chat])

    def test_what_it_may_not_see_is_not_there_and_what_its_role_lacks_is_forbidden(self):
        other = self.gateway.new_chat()
        token = self.issuer.token(sub="limited", users=str(uuid.uuid4()))
        self.assertEqual(self.status(token, f"/chats/{other['chat_id']}"), 404)
        self.assertEqual(self.status(token, "/api-keys"), 403)
        viewer = self.issuer.token(sub="viewer", role=["staff", "viewer"], users=[other["user_id"]])
        self.assertEqual(self.status(viewer, f"/chats/{other['chat_id']}"), 200)
        body = {"user_id": other["user_id"]}
        self.assertEqual(self.gateway.rest("POST", "/chats", body, key=viewer)[0], 403)
        admin = self.issuer.token(sub="root", role="admin")
        self.assertEqual(self.status(admin, "/api-keys"), 200)

    def test_audiences_may_be_several(self):
        self.assertEqual(self.status(self.issuer.token(aud=["x", AUDIENCE], role="admin")), 200)

    def test_every_other_claim_is_refused(self):
        now = int(time.time())
        users = [str(uuid.uuid4())]
        bad = [
            {"iss": "https://evil.example"}, {"iss": None}, {"aud": "other"}, {"aud": None}, {"aud": []},
            {"aud": ["other"]}, {"aud": 5}, {"aud": [AUDIENCE, 5]}, {"exp": now - 31}, {"exp": None},
            {"exp": "soon"}, {"exp": now + 0.5}, {"nbf": now + 60}, {"iat": now + 60}, {"sub": ""},
            {"sub": None}, {"sub": 5}, {"sub": "x" * 121}, {"role": "root"}, {"role": None}, {"role": []},
            {"role": {"bot": 1}}, {"users": None}, {"users": ["x"]}, {"users": [5]}, {"users": {}},
        ]
        for claims in bad:
            self.assertEqual(self.status(self.issuer.token(**{"users": users, **claims})), 401, claims)
        for claims in ({"exp": now - 20}, {"nbf": now + 20}, {"iat": now + 20}):  # the leeway
            self.assertEqual(self.status(self.issuer.token(sub="l", users=users, **claims)), 200, claims)

    def test_every_other_header_is_refused(self):
        good = {"alg": "RS256", "typ": "JWT", "kid": "r1"}
        for more in ({"crit": ["exp"]}, {"jwk": {}}, {"jku": "https://evil.example"}, {"x5u": "x"},
                     {"x5c": []}, {"b64": False}, {"zip": "DEF"}, {"typ": "lease+jwt"}, {"kid": "r2"},
                     {"kid": "e1"}, {"kid": 1}, {"alg": "RS512"}, {"alg": "none"}, {"alg": "rs256"}):
            self.assertEqual(self.status(self.issuer.token({**good, **more}, role="admin")), 401, more)
        self.assertEqual(self.status(self.issuer.token(good, role="admin")), 200)
        twice = '{"alg":"RS256","alg":"RS256","kid":"r1"}'
        self.assertEqual(self.status(self.issuer.sign(twice, self.issuer.claims(role="admin"))), 401)
        self.assertEqual(self.status(self.issuer.token({"alg": "RS256"}, role="admin")), 401)  # which key?

    def test_forgeries_are_refused(self):
        claims = self.issuer.claims(role="admin")
        header = {"alg": "RS256", "kid": "r1"}
        good = self.issuer.sign(header, claims)
        head, body, signature = good.split(".")
        shared = self.issuer.sign({"alg": "HS256", "kid": "r1"}, claims, self.issuer.pem())
        disguised = self.issuer.sign(header, claims, self.issuer.pem())
        for token in (
            self.issuer.sign(header, claims, self.issuer.other), shared, disguised,
            self.issuer.sign({"alg": "ES256", "kid": "e1"}, claims, self.issuer.ec),
            f"{head}.{body}.", f"{head}.{body}", f".{body}.{signature}", f"{good}.x", good + "=",
            f"{head}.{b64(json.dumps({**claims, 'sub': 'eve'}).encode())}.{signature}",
            f"{b64(json.dumps({'alg': 'none'}).encode())}.{body}.", good[:-6] + "AAAAAA", "a.b.c", "..",
            self.issuer.sign(header, '{"iss":"%s","iss":"%s"}' % (ISSUER, ISSUER)), "x" * 9000,
        ):
            self.assertEqual(self.status(token), 401, token[:60])
        self.assertEqual(self.status(good), 200)

    def test_a_newer_token_narrows_and_the_older_one_gives_nothing_back(self):
        one, other = self.gateway.new_chat(), self.gateway.new_chat()
        now = int(time.time())
        users = [one["user_id"], other["user_id"]]
        wide = self.issuer.token(sub="narrowed", users=users, iat=now - 20)
        narrow = self.issuer.token(sub="narrowed", users=users[:1], iat=now - 10)
        clients = {}
        for chat in (one, other):
            opened = self.gateway.expect(201, "POST", "/sandboxes",
                                         {"chat_id": chat["chat_id"], "lease": {}}, key=wide)
            clients[chat["chat_id"]] = self.gateway.connect(opened["grant"])
        self.assertEqual(self.status(narrow, f"/chats/{other['chat_id']}"), 404)
        self.assertEqual(clients[other["chat_id"]].wait_closed(), 4403)
        self.assertEqual(self.status(wide), 401)
        clients[one["chat_id"]].send_text("still")
        self.assertEqual(clients[one["chat_id"]].recv()[1], b"still")
        self.gateway.restart()
        self.assertEqual(self.status(wide), 401)
        self.assertEqual(self.status(narrow, f"/chats/{one['chat_id']}"), 200)

    def test_an_identity_can_be_revoked_here_like_a_key(self):
        chat = self.gateway.new_chat()
        token = self.issuer.token(sub="revoked", users=[chat["user_id"]])
        opened = self.gateway.expect(201, "POST", "/sandboxes",
                                     {"chat_id": chat["chat_id"], "lease": {}}, key=token)
        client, bot = self.gateway.connect(opened["grant"]), Bot(self, self.gateway, token)
        key_id = self.identity("jwt:revoked")["key_id"]
        self.gateway.expect(204, "DELETE", f"/api-keys/{key_id}")
        self.assertEqual(client.wait_closed(), 4403)
        self.assertEqual(bot.ws.wait_closed(), 4401)
        self.assertEqual(self.status(token), 401)
        self.assertEqual(self.status(self.issuer.token(sub="revoked", users=[chat["user_id"]])), 401)

    def test_nothing_outlives_the_token(self):
        chat = self.gateway.new_chat()
        exp = int(time.time()) - 30 + 10  # with the leeway still good
        token = self.issuer.token(sub="brief", users=[chat["user_id"]], exp=exp + 30)
        bot = Bot(self, self.gateway, token)
        lease = bot.ok("sandbox.open", {"chat_id": chat["chat_id"], "lease": {}})["grant"]["lease"]
        until = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(exp + 30))
        self.assertEqual(lease["max_expires_at"], until)
        self.assertEqual(bot.ws.wait_closed(), 4401)


class OneKeyOfASet(Trusting):
    @classmethod
    def keys(cls):
        return json.dumps({"keys": json.loads(cls.issuer.jwks())["keys"][:1]})

    def test_the_only_key_is_meant_without_a_kid_but_not_by_another(self):
        for header, status in (({"alg": "RS256"}, 200), ({"alg": "RS256", "kid": "r1"}, 200),
                               ({"alg": "RS256", "kid": "other"}, 401)):
            token = self.issuer.sign(header, self.issuer.claims(role="viewer"))
            self.assertEqual(self.status(token), status, header)


class NewKeys(Trusting):
    def put(self, text):
        with open(os.path.join(self.gateway.dir, "issuer.keys"), "w", encoding="ascii") as out:
            out.write(text)

    def test_sighup_takes_the_issuers_new_keys_and_drops_no_connection(self):
        old, fresh = self.issuer, Issuer()
        token = old.token()
        self.assertEqual(self.status(token), 200)
        bot = Bot(self, self.gateway, token)
        self.put("{}")
        hup(self.gateway, "reload_failed")
        self.assertEqual(self.status(token), 200)  # the keys of before are good still
        self.put(fresh.jwks())
        hup(self.gateway, "reloaded")
        self.assertEqual(self.status(fresh.token()), 200)
        self.assertEqual(self.status(token), 401)  # though it was proved before
        self.assertEqual(self.status(old.token()), 401)
        bot.ok("chat.list")  # until its token expires
        with self.assertRaises(WsHandshakeError):
            Bot(self, self.gateway, token)


class PemAndEc(Trusting):
    jwt = {"algorithm": "ES256"}

    @classmethod
    def keys(cls):
        return cls.issuer.pem(cls.issuer.ec).decode()

    def test_one_key_in_pem_is_meant_by_every_kid(self):
        for header in ({"alg": "ES256"}, {"alg": "ES256", "kid": "any"}):
            token = self.issuer.sign(header, self.issuer.claims(role="viewer"), self.issuer.ec)
            self.assertEqual(self.status(token), 200)
        token = self.issuer.sign({"alg": "RS256"}, self.issuer.claims(role="viewer"))
        self.assertEqual(self.status(token), 401)

    def test_a_file_without_a_key_of_use_stops_the_start_and_the_check(self):
        gateway = Gateway.for_test(self, start=False)
        weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        for text in (b"", b"nonsense", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"AAAA"}]}',
                     self.issuer.pem(weak), self.issuer.pem(self.issuer.ec), None):
            keys = os.path.join(gateway.dir, "keys.pem")
            if text is None:
                os.unlink(keys)
            else:
                with open(keys, "wb") as out:
                    out.write(text)
            gateway.edit_config({"security": {"jwt": {
                "issuer": ISSUER, "audience": AUDIENCE, "key_file": "keys.pem"}}})
            for command in ("run", "check-config"):
                done = gateway.run_program("leasehold", command, "--config", gateway.config)
                self.assertNotEqual(done.returncode, 0, (command, text))
                self.assertIn("security.jwt.key_file", done.stderr, (command, text))


def issue(folder, *args):
    subprocess.run([os.path.join(ROOT, "certs", "issue.sh"), folder, *args], check=True,
                   capture_output=True)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.user = str(uuid.uuid4())
        cls.gateway = Gateway.for_class(cls, start=False)
        cls.certs = os.path.join(cls.gateway.dir, "tls")
        issue(cls.certs, "server", "localhost", "127.0.0.1")
        for name in ("ops.example", "bot.example", "stranger.example"):
            issue(cls.certs, "client", name)
        issue(os.path.join(cls.gateway.dir, "other"), "client", "ops.example")
        cls.gateway.edit_config({
            "http": {"tls": {"cert_file": "tls/server.pem", "key_file": "tls/server.key",
                             "client_ca_file": "tls/ca.pem"}},
            "security": {"client_certificates": [
                {"name": "ops.example", "role": "admin"},
                {"name": "bot.example", "role": "bot", "allowed_users": [cls.user]}]}})
        cls.gateway.start()

    def context(self, client=None, folder=None):
        context = ssl.create_default_context(cafile=os.path.join(self.certs, "ca.pem"))
        if client:
            base = os.path.join(folder or self.certs, f"client-{client}")
            context.load_cert_chain(base + ".pem", base + ".key")
        return context

    def rest(self, method, path, body=None, client=None, key="", folder=None):
        self.gateway.ssl_context = self.context(client, folder)
        self.gateway.connection(fresh=True)
        return self.gateway.rest(method, path, body, key=key)

    def test_a_certificate_has_the_role_of_its_name(self):
        self.assertEqual(self.rest("GET", "/api-keys", client="ops.example")[0], 200)
        self.assertEqual(self.rest("GET", "/api-keys", client="bot.example")[0], 403)
        status, _, chat = self.rest("POST", "/chats", {"user_id": self.user}, client="bot.example")
        self.assertEqual(status, 201)
        status, _, listed = self.rest("GET", "/chats", client="bot.example")
        self.assertEqual(listed["items"], [chat])
        body = {"user_id": str(uuid.uuid4())}
        self.assertEqual(self.rest("POST", "/chats", body, client="bot.example")[0], 404)
        bot = Bot(self, self.gateway, None, ssl_context=self.context("bot.example"))
        self.assertEqual(bot.ok("chat.list")["items"], [chat])

    def test_without_a_known_one_a_key_is_needed(self):
        for client in (None, "stranger.example"):
            self.assertEqual(self.rest("GET", "/chats", client=client)[0], 401)
            self.assertEqual(self.rest("GET", "/chats", client=client, key=self.gateway.admin_key)[0], 200)
        with self.assertRaises(WsHandshakeError) as refused:
            Bot(self, self.gateway, None, ssl_context=self.context("stranger.example"))
        self.assertEqual(refused.exception.status, 401)

    def test_a_key_goes_before_the_certificate(self):
        self.assertEqual(self.rest("GET", "/chats", client="ops.example", key="lhk_no")[0], 401)

    def test_a_certificate_of_another_ca_is_no_certificate(self):
        with self.assertRaises(OSError):
            self.rest("GET", "/chats", client="ops.example",
                      folder=os.path.join(self.gateway.dir, "other"))

    def s_client(self, *args):
        host = self.gateway.url.split("//")[1]
        return subprocess.run(["openssl", "s_client", "-connect", host, "-CAfile",
                               os.path.join(self.certs, "ca.pem"), *args],
                              input="", capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def test_modern_settings(self):
        self.assertIn("Verify return code: 0 (ok)", self.s_client("-tls1_3").stdout)
        two = self.s_client("-tls1_2", "-servername", "localhost").stdout
        self.assertRegex(two, r"Cipher is ECDHE-\w+-(AES\d+-GCM|CHACHA20)")
        for args in (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                     ["-tls1_2", "-cipher", "AES128-SHA"], ["-tls1_2", "-cipher", "AES128-GCM-SHA256"]):
            self.assertIn("Cipher is (NONE)", self.s_client(*args).stdout, args)

    def test_curl(self):
        done = subprocess.run(
            ["curl", "-sS", "--cacert", os.path.join(self.certs, "ca.pem"), "--cert",
             os.path.join(self.certs, "client-ops.example.pem"), "--key",
             os.path.join(self.certs, "client-ops.example.key"), self.gateway.url + "/api/v1/chats"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertIn("items", json.loads(done.stdout), done.stderr)

    def served(self):
        port = int(self.gateway.url.rsplit(":", 1)[1])
        return ssl.get_server_certificate(("127.0.0.1", port))

    def hup(self, event):
        hup(self.gateway, event)

    def test_sighup_takes_new_certificates_and_drops_no_connection(self):
        bot = Bot(self, self.gateway, self.gateway.admin_key, ssl_context=self.context())
        before = self.served()
        issue(self.certs, "server", "localhost", "127.0.0.1")
        self.hup("reloaded")
        after = self.served()
        self.assertNotEqual(before, after)
        with open(os.path.join(self.certs, "server.pem"), encoding="ascii") as text:
            self.assertEqual(text.read().strip(), after.strip())
        self.assertEqual(bot.ok("health.get")["status"], "ok")

    def test_sighup_takes_new_authorities_of_clients_and_drops_no_connection(self):
        """Nor does a session of the former authority come back by resumption."""
        authority = os.path.join(self.certs, "clients.pem")
        mine, other = self.certs, os.path.join(self.gateway.dir, "other")

        def trust(folder):
            with open(os.path.join(folder, "ca.pem"), encoding="ascii") as text:
                data = text.read()
            with open(authority, "w", encoding="ascii") as out:
                out.write(data)

        def resumed(context, session):
            port = int(self.gateway.url.rsplit(":", 1)[1])
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain:
                with context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
                    tls.sendall(b"GET /api/v1/chats HTTP/1.1\r\nHost: x\r\n\r\n")
                    return tls.recv(12)[9:], tls.session_reused, tls.session

        trust(mine)
        self.gateway.edit_config({"http": {"tls": {"client_ca_file": "tls/clients.pem"}}})
        self.gateway.restart()
        bot = Bot(self, self.gateway, None, ssl_context=self.context("ops.example"))
        context = self.context("ops.example")
        status, _, session = resumed(context, None)
        self.assertEqual(status, b"200")
        self.assertEqual(resumed(context, session)[:2], (b"200", True))
        trust(other)
        self.hup("reloaded")
        self.assertEqual(self.rest("GET", "/chats", client="ops.example", folder=other)[0], 200)
        for again in (None, session):
            with self.assertRaises(OSError):
                resumed(context, again)
        self.assertEqual(bot.ok("health.get")["status"], "ok")
        with open(authority, "w", encoding="ascii") as out:
            out.write("nonsense")
        self.hup("reload_failed")
        self.assertEqual(self.rest("GET", "/chats", client="ops.example", folder=other)[0], 200)
        trust(mine)
        self.hup("reloaded")
        self.assertEqual(self.rest("GET", "/chats", client="ops.example")[0], 200)

    def test_a_pair_that_does_not_fit_changes_nothing(self):
        before = self.served()
        key = os.path.join(self.certs, "server.key")
        with open(key, encoding="ascii") as text:
            good = text.read()
        try:
            issue(os.path.join(self.gateway.dir, "third"), "server", "localhost")
            with open(os.path.join(self.gateway.dir, "third", "server.key"), encoding="ascii") as text:
                wrong = text.read()
            for bad in (wrong, "nonsense", ""):
                with open(key, "w", encoding="ascii") as out:
                    out.write(bad)
                self.hup("reload_failed")
                self.assertEqual(self.served(), before)
        finally:
            with open(key, "w", encoding="ascii") as out:
                out.write(good)
        self.hup("reloaded")
        self.assertEqual(self.served(), before)


class Use(unittest.TestCase):
    def test_the_last_use_of_a_key_is_known_and_kept(self):
        gateway = Gateway.for_test(self, {"sandbox": {"cleanup_interval_seconds": 1}})
        made = gateway.expect(201, "POST", "/api-keys", {"name": "used", "role": "bot"})

        def last_used():
            keys = gateway.expect(200, "GET", "/api-keys")["items"]
            return [k["last_used_at"] for k in keys if k["key_id"] == made["api_key"]["key_id"]][0]

        self.assertIsNone(last_used())
        gateway.expect(200, "GET", "/chats", key=made["key"])
        at = last_used()
        self.assertRegex(at, r"^20\d\d-")
        path = os.path.join(gateway.dir, "data", "leasehold.db")

        def kept():
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT last_used_at FROM api_keys WHERE name = 'used'")
                return rows.fetchone()[0]

        wait_for(self, "its being kept", kept)
        gateway.kill9()
        gateway.start()
        self.assertEqual(last_used(), at)


if __name__ == "__main__":
    unittest.main()

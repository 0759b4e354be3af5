"""Holder binding (`cnf.jkt`): only who has the client's key comes in, also after a renewal."""

import base64
import hashlib
import json
import unittest

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gateway import Gateway


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Holder:
    """A client's P-256 key, by a library that shares no code with ours."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        point = self.key.public_key().public_numbers()
        self.jwk = {
            "kty": "EC",
            "crv": "P-256",
            "x": b64(point.x.to_bytes(32, "big")),
            "y": b64(point.y.to_bytes(32, "big")),
        }
        canonical = json.dumps(self.jwk, sort_keys=True, separators=(",", ":"))
        self.jkt = b64(hashlib.sha256(canonical.encode()).digest())

    def prove(self, nonce, session_id, lease_id):
        text = f"{nonce}.{session_id}.{lease_id}".encode()
        r, s = decode_dss_signature(self.key.sign(text, ec.ECDSA(hashes.SHA256())))
        sig = b64(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return json.dumps({"type": "proof", "jwk": self.jwk, "sig": sig})


class Binding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway.for_class(cls)
        cls.chat = cls.gateway.new_chat()
        cls.sandbox, _ = cls.gateway.open(cls.chat["chat_id"])

    def grant(self, holder, **members):
        body = {"session_id": self.sandbox["session_id"], "cnf": {"jkt": holder.jkt}, **members}
        return self.gateway.expect(201, "POST", "/leases", body)

    def challenged(self, grant):
        client = self.gateway.dial(grant["endpoint"], grant["token"])
        self.addCleanup(client.close)
        challenge = json.loads(client.recv()[1])
        self.assertEqual(challenge["type"], "challenge")
        return client, challenge["nonce"]

    def enter(self, grant, holder):
        client, nonce = self.challenged(grant)
        lease = grant["lease"]
        client.send_text(holder.prove(nonce, lease["session_id"], lease["lease_id"]))
        self.assertEqual(json.loads(client.recv()[1])["type"], "ready")
        return client

    def assert_kept_out(self, grant, proof):
        client, nonce = self.challenged(grant)
        client.send_text(proof(nonce))
        self.assertEqual(client.wait_closed(), 4401)

    def test_the_holder_comes_in_and_talks(self):
        holder = Holder()
        client = self.enter(self.grant(holder), holder)
        client.send_text("hello")
        self.assertIn(b"hello", client.recv()[1])

    def test_who_has_the_token_alone_does_not(self):
        holder, thief = Holder(), Holder()
        grant = self.grant(holder)
        session, lease = grant["lease"]["session_id"], grant["lease"]["lease_id"]
        stolen = holder.prove("A" * 43, session, lease)
        for name, proof in {
            "another key": lambda nonce: thief.prove(nonce, session, lease),
            "an old proof": lambda nonce: stolen,
            "another lease": lambda nonce: holder.prove(nonce, session, session),
            "no proof": lambda nonce: "hello",
        }.items():
            with self.subTest(name):
                self.assert_kept_out(grant, proof)
        self.enter(grant, holder)

    def test_a_renewal_keeps_the_binding(self):
        holder = Holder()
        grant = self.grant(holder)
        path = f"/leases/{grant['lease']['lease_id']}/renew"
        renewed = self.gateway.expect(200, "POST", path, {})
        self.assert_kept_out(renewed, lambda nonce: "hello")
        self.enter(renewed, holder)

    def test_a_restart_keeps_the_binding(self):
        gateway = Gateway.for_test(self)
        holder = Holder()
        sandbox, grant = gateway.open(
            gateway.new_chat()["chat_id"], lease={"cnf": {"jkt": holder.jkt}}
        )
        gateway.kill9()
        gateway.start()
        path = f"/leases/{grant['lease']['lease_id']}/renew"
        renewed = gateway.expect(200, "POST", path, {})
        claims = json.loads(base64.urlsafe_b64decode(renewed["token"].split(".")[1] + "=="))
        self.assertEqual(claims["cnf"], {"jkt": holder.jkt})
        self.assertEqual(claims["sid"], sandbox["session_id"])

    def test_a_sandbox_is_opened_with_a_bound_lease(self):
        holder = Holder()
        _, grant = self.gateway.open(self.chat["chat_id"], lease={"cnf": {"jkt": holder.jkt}})
        self.enter(grant, holder)

    def test_what_is_no_thumbprint_is_refused(self):
        jkt = Holder().jkt
        for wrong in ("", "x", jkt[:-1], jkt + "A", jkt[:-1] + "=", "+" + jkt[1:], 5):
            body = {"session_id": self.sandbox["session_id"], "cnf": {"jkt": wrong}}
            with self.subTest(wrong):
                problem = self.gateway.expect(422, "POST", "/leases", body)
                self.assertEqual(problem["errors"][0]["pointer"], "/cnf/jkt")
        for cnf in ({}, {"jkt": jkt, "jwk": {}}, {"x5t#S256": jkt}):
            body = {"session_id": self.sandbox["session_id"], "cnf": cnf}
            with self.subTest(cnf):
                self.gateway.expect(422, "POST", "/leases", body)


if __name__ == "__main__":
    unittest.main()

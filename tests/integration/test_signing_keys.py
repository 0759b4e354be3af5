"""The keys that sign leases: rotation, retirement, death."""

import base64
import json
import os
import threading
import time
import unittest

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gateway import Gateway
from waiting import wait_for
from ws import WsClosed



def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(token, n):
    text = token.split(".")[n]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def kid_of(grant):
    return part(grant["token"], 0)["kid"]


def forge(pem, token, **claims):
    """The token with other claims, signed with a private key that was stolen."""
    key = serialization.load_pem_private_key(pem, None)
    head = token.split(".")[0]
    body = {**part(token, 1), **claims}
    text = f"{head}.{b64(json.dumps(body, separators=(',', ':')).encode())}"
    r, s = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class KeysCase(unittest.TestCase):
    OVERRIDES = {"lease": {"per_session": 500, "per_user": 500}}

    def setUp(self):
        self.gateway = Gateway.for_test(self, self.OVERRIDES)
        chat = self.gateway.new_chat()
        self.sandbox, _ = self.gateway.open(chat["chat_id"])

    def grant(self, **members):
        body = {"session_id": self.sandbox["session_id"], **members}
        return self.gateway.expect(201, "POST", "/leases", body)

    def renew(self, grant):
        path = f"/leases/{grant['lease']['lease_id']}/renew"
        return self.gateway.expect(200, "POST", path, {})

    def rotate(self):
        """{state: [kid]} afterwards."""
        return self.by_state(self.gateway.expect(200, "POST", "/keys/rotate"))

    def kill(self, kid, status=200, **options):
        return self.gateway.expect(status, "POST", f"/keys/{kid}/kill", **options)

    def by_state(self, answer):
        states = {}
        for key in answer["keys"]:
            states.setdefault(key["state"], []).append(key["kid"])
        return states

    def published(self):
        return {k["kid"] for k in self.gateway.expect(200, "GET", "//.well-known/jwks.json")["keys"]}

    def key_files(self):
        return set(os.listdir(os.path.join(self.gateway.dir, "keys")))

    def refused(self, grant):
        with self.assertRaises(WsClosed) as end:
            self.gateway.connect(grant)
        self.assertEqual(end.exception.code, 4401)


class SigningKeys(KeysCase):
    def test_the_next_key_is_published_before_it_signs(self):
        old = self.grant()
        before = self.published()
        self.assertEqual(len(before), 2)
        states = self.rotate()
        self.assertEqual(states["retired"], [kid_of(old)])
        self.assertEqual(states["signing"], [kid_of(self.grant())])
        self.assertEqual(before, {kid_of(old), *states["signing"]})
        self.assertEqual(self.published(), before | set(states["next"]))

    def test_a_rotation_disturbs_nobody(self):
        old = self.grant(max_connections=2)
        live = self.gateway.connect(old)
        self.rotate()
        live.send_text("still here")
        self.assertIn(b"still here", live.recv()[1])
        self.gateway.connect(old).close()
        self.gateway.connect(self.grant()).close()
        renewed = self.renew(old)
        self.assertNotEqual(kid_of(renewed), kid_of(old))
        live.close()

    def test_a_retired_key_signs_nothing_new(self):
        with open(os.path.join(self.gateway.dir, "keys", "lease-signing.pem"), "rb") as pem:
            stolen = pem.read()
        grant = self.grant(max_connections=4)
        claims = part(grant["token"], 1)
        good = {**grant, "token": forge(stolen, grant["token"])}
        self.rotate()
        self.gateway.connect(good).close()  # as good as the gateway's own
        until = int(time.time()) + 3  # by the gateway's clock, which is the same
        while time.time() < until:
            time.sleep(0.1)
        now = int(time.time())
        self.assertGreater(claims["exp"], now)
        self.refused({**grant, "token": forge(stolen, grant["token"], iat=now, nbf=now)})
        self.gateway.connect(grant).close()
        answer = self.gateway.expect(
            200, "POST", "/leases/introspect",
            {"token": forge(stolen, grant["token"], iat=now, nbf=now)},
        )
        self.assertEqual(answer, {"active": False})

    def test_states_and_keys_outlive_a_crash(self):
        old = self.grant()
        states = self.rotate()
        self.gateway.kill9()
        self.gateway.start()
        self.assertEqual(self.published(), {k for kids in states.values() for k in kids})
        self.assertEqual([kid_of(self.grant())], states["signing"])
        wait_for(self, "the loss to be known", lambda: self.gateway.expect(
            200, "GET", f"/leases/{old['lease']['lease_id']}")["state"] == "active")
        self.gateway.connect(old).close()

    def test_a_killed_key_ends_everywhere_at_once_with_its_leases(self):
        old = self.grant(max_connections=2)
        live = self.gateway.connect(old)
        files = self.key_files()
        answer = self.kill(kid_of(old))
        self.assertEqual(answer["revoked"], 1)
        self.assertEqual(live.wait_closed(), 4403)
        self.refused(old)
        self.assertNotIn(kid_of(old), self.published())
        self.assertEqual(len(self.published()), 2)
        self.assertNotIn("lease-signing.pem", self.key_files())
        self.assertEqual(len(self.key_files()), len(files))
        fresh = self.grant()
        self.assertNotEqual(kid_of(fresh), kid_of(old))
        self.gateway.connect(fresh).close()
        self.assertEqual(self.kill(kid_of(old))["revoked"], 0)
        self.gateway.kill9()
        self.gateway.start()
        self.assertNotIn(kid_of(old), self.published())

    def test_a_stolen_key_is_worth_nothing_once_it_is_killed(self):
        with open(os.path.join(self.gateway.dir, "keys", "lease-signing.pem"), "rb") as pem:
            stolen = pem.read()
        old = self.grant()
        self.kill(kid_of(old))
        fresh = self.grant()
        forged = forge(stolen, old["token"], jti=fresh["lease"]["lease_id"])
        self.refused({**fresh, "token": forged})

    def test_leases_go_by_the_key_of_their_issue_and_of_their_renewal(self):
        first = self.grant()
        self.rotate()
        renewed = self.renew(first)
        second = self.grant()
        self.assertEqual(kid_of(renewed), kid_of(second))
        self.assertEqual(self.kill(kid_of(second))["revoked"], 2)

    def test_the_next_key_can_be_killed(self):
        old = self.grant()
        [spare] = self.published() - {kid_of(old)}
        self.assertEqual(self.kill(spare)["revoked"], 0)
        self.assertNotIn(spare, self.published())
        states = self.rotate()
        self.assertNotIn(spare, states["signing"])
        self.gateway.connect(self.grant()).close()

    def test_every_lease_of_a_killed_key_ends(self):
        grants = [self.grant() for _ in range(300)]
        self.assertEqual(self.kill(kid_of(grants[0]))["revoked"], 300)

    def test_leases_that_are_issued_while_keys_rotate_are_all_good(self):
        grants, stop = [], threading.Event()

        def issue():
            while not stop.is_set():
                grants.append(self.grant())

        threads = [threading.Thread(target=issue) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                self.rotate()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertGreater(len({kid_of(g) for g in grants}), 1)
        for grant in grants[-100:]:
            self.gateway.connect(grant).close()

    def test_only_admins_and_only_keys_that_there_are(self):
        bot = self.gateway.new_key()
        self.gateway.expect(403, "POST", "/keys/rotate", key=bot)
        self.kill(kid_of(self.grant()), 403, key=bot)
        self.kill("A" * 43, 404)

    def test_they_are_listed_with_what_each_is_for(self):
        bot = self.gateway.new_key()
        self.gateway.expect(403, "GET", "/keys", key=bot)
        states = self.rotate()
        listed = self.gateway.expect(200, "GET", "/keys")
        self.assertEqual(self.by_state(listed), states)
        self.assertEqual({k["kid"] for k in listed["keys"]}, self.published())
        made = [k["created_at"] for k in listed["keys"]]
        self.assertEqual(made, sorted(made))
        self.kill(states["retired"][0])
        self.assertNotIn("retired", self.by_state(self.gateway.expect(200, "GET", "/keys")))

    def test_leasectl_lists_them(self):
        states = self.rotate()
        done = self.gateway.ctl("key", "signing")
        self.assertEqual(done.returncode, 0, done.stderr)
        names, *rows = (line.split() for line in done.stdout.splitlines())
        self.assertEqual(names, ["kid", "state", "created_at", "signing_at", "retired_at"])
        self.assertEqual({(row[1], row[0]) for row in rows},
                         {(state, kid) for state, kids in states.items() for kid in kids})

    def test_leasectl_revokes_nothing_by_a_kid_that_nobody_has(self):
        kid = kid_of(self.grant())
        self.rotate()
        unused = self.by_state(self.gateway.expect(200, "GET", "/keys"))["next"][0]
        for wrong in ("nonsense", "A" * 43, kid[:-1]):
            for options in (("--dry-run",), ()):
                done = self.gateway.ctl("lease", "revoke", "--kid", wrong, *options)
                self.assertEqual(done.returncode, 3, done)
                self.assertIn(f"no signing key has the kid {wrong}", done.stderr)
        for known, matched in ((unused, 0), (kid, 1)):
            done = self.gateway.ctl("--json", "lease", "revoke", "--kid", known, "--dry-run")
            self.assertEqual((done.returncode, json.loads(done.stdout)["matched"]), (0, matched), done)

    def test_leasectl_rotates_and_kills(self):
        old = kid_of(self.grant())
        done = self.gateway.ctl("key", "rotate")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(old, done.stdout)
        done = self.gateway.ctl("key", "kill", "--", old)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(old, self.published())


class Retirement(KeysCase):
    OVERRIDES = {
        "lease": {"ttl_seconds": 4, "ttl_max_seconds": 4, "clock_skew_seconds": 1},
        "sandbox": {"cleanup_interval_seconds": 1},
    }

    def test_a_retired_key_goes_when_all_that_it_signed_has_run_out(self):
        old = self.grant()
        self.rotate()
        self.assertIn(kid_of(old), self.published())
        wait_for(self, "its end", lambda: kid_of(old) not in self.published())
        wait_for(self, "its file to go", lambda: "lease-signing.pem" not in self.key_files())
        self.gateway.connect(self.grant()).close()


if __name__ == "__main__":
    unittest.main()

"""Lease tokens between our codec and npm's jose: each verifies what the other signs, and what jose
refuses we never take."""

import base64
import json
import os
import random
import subprocess
import tempfile
import unittest
import uuid

from gateway import BIN, ROOT

PACKAGES = os.path.join(ROOT, "build", "jose")
SECOND_OPINION = os.path.join(ROOT, "tests", "tools", "jose", "second_opinion.js")
NOW = 1_800_000_000
SEED = 20261129
CLAIMS = ("iss", "node", "sid", "sub", "chat", "jti", "ep", "rq", "iat", "nbf", "exp", "mex", "mc", "use")
SCOPES = ("read", "write", "admin")


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def require_packages():
    """Installed by scripts/npm.sh, which `make test` runs."""
    if os.path.exists(os.path.join(PACKAGES, "installed")):
        return
    raise AssertionError(f"run: scripts/npm.sh tests/tools/jose {PACKAGES}")


def run(*command, text=""):
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{command[:3]}: {done.stderr}")
    return done.stdout


def ours(*args, text=""):
    return run(os.path.join(BIN, "token_judge"), *args, text=text)


def jose(asked):
    return json.loads(run("node", SECOND_OPINION, PACKAGES, text=json.dumps(asked)))


def as_hex(token):
    return (token if isinstance(token, bytes) else token.encode("latin-1")).hex()


def private_jwk(path, public):
    """The PKCS#8 of a P-256 key is fixed up to the scalar."""
    with open(path, encoding="ascii") as pem:
        der = base64.b64decode("".join(pem.read().splitlines()[1:-1]))
    return {"kty": "EC", "crv": "P-256", "x": public["x"], "y": public["y"], "d": b64(der[36:68])}


class Differential(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require_packages()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.key = os.path.join(folder.name, "key.pem")
        cls.other_key = os.path.join(folder.name, "other.pem")
        mint = os.path.join(BIN, "mint_token")
        for path in (cls.key, cls.other_key):
            run(mint, "generate", path)
        cls.public = json.loads(run(mint, "public", cls.key))
        cls.other_public = json.loads(run(mint, "public", cls.other_key))
        cls.jwk = {"kty": "EC", "crv": "P-256", "x": cls.public["x"], "y": cls.public["y"]}
        cls.minted = ours("mint", cls.key, str(NOW), "60").split()

    def judge(self, tokens, now=NOW):
        """Both verdicts of each: (ours as a word, what we read), jose's answer."""
        lines = "".join(as_hex(token) + "\n" for token in tokens)
        words = [
            line.partition(" ") for line in ours("verify", self.key, str(now), text=lines).splitlines()
        ]
        theirs = jose(
            {"do": "verify", "now": now, "jwk": self.jwk, "tokens": [as_hex(t) for t in tokens]}
        )
        self.assertEqual((len(words), len(theirs)), (len(tokens), len(tokens)))
        return [
            ((word, json.loads(read) if read else None), their)
            for (word, _, read), their in zip(words, theirs)
        ]

    def sign(self, headers_and_payloads, path=None, public=None):
        jwk = private_jwk(path or self.key, public or self.public)
        tokens = [{"header": header, "payload": text} for header, text in headers_and_payloads]
        return jose({"do": "sign", "jwk": jwk, "tokens": tokens})

    def header(self, **more):
        return {"alg": "ES256", "typ": "lease+jwt", "kid": self.public["kid"], **more}

    def claims(self, **more):
        sid = str(uuid.uuid4())
        return {
            "iss": "https://leasehold.example",
            "aud": f"door:{sid}",
            "sub": str(uuid.uuid4()),
            "chat": str(uuid.uuid4()),
            "node": "node-1",
            "sid": sid,
            "ep": 7,
            "jti": str(uuid.uuid4()),
            "scope": ["read", "write"],
            "iat": NOW,
            "nbf": NOW,
            "exp": NOW + 120,
            "mex": NOW + 3600,
            "rq": 4711,
            **more,
        }

    def assert_same_claims(self, read, claims):
        for name in CLAIMS:
            if name in claims:
                self.assertEqual(read[name], claims[name], name)
        self.assertEqual(claims["aud"], f"door:{read['sid']}")
        scopes = [name for bit, name in enumerate(SCOPES) if read["scope"] >> bit & 1]
        self.assertEqual(scopes, claims["scope"])
        self.assertEqual(read["jkt"], claims.get("cnf", {}).get("jkt", ""))

    def test_jose_verifies_what_we_mint_and_reads_the_same(self):
        for (word, read), their in self.judge(self.minted):
            self.assertEqual(word, "ok")
            self.assertTrue(their["ok"], their)
            self.assertEqual(their["header"], self.header())
            self.assert_same_claims(read, their["claims"])

    def test_we_verify_what_jose_signs_and_read_the_same(self):
        variants = [{}, {"use": "once"}, {"mc": 8}, {"scope": ["read"]}, {"exp": NOW + 900}]
        variants += [{"cnf": {"jkt": self.public["kid"]}}, {"ep": 2**40 - 1, "rq": 2**40 - 1}]
        claims = [self.claims(**variant) for variant in variants * 5]
        tokens = self.sign([(self.header(), json.dumps(one)) for one in claims])
        for one, ((word, read), their) in zip(claims, self.judge(tokens)):
            self.assertEqual((word, their["ok"]), ("ok", True), one)
            self.assert_same_claims(read, one)

    def refused_by_both(self):
        good = json.dumps(self.claims())
        late = json.dumps(self.claims(iat=NOW - 200, nbf=NOW - 200, exp=NOW))
        early = json.dumps(self.claims(iat=NOW + 100, nbf=NOW + 100, exp=NOW + 200))
        missing = self.claims()
        del missing["sub"]
        yield "expired", self.sign([(self.header(), late)])[0]
        yield "not yet", self.sign([(self.header(), early)])[0]
        yield "no sub", self.sign([(self.header(), json.dumps(missing))])[0]
        yield "another key", self.sign([(self.header(), good)], self.other_key, self.other_public)[0]
        yield "another typ", self.sign([(self.header(typ="JWT"), good)])[0]
        yield "no object", self.sign([(self.header(), '"claims"')])[0]
        head, body, signature = self.minted[0].split(".")
        for alg in ("none", "HS256", "RS256", "ES384"):
            renamed = b64(json.dumps(self.header(alg=alg)).encode())
            yield f"alg {alg}", f"{renamed}.{body}.{signature}"
            yield f"alg {alg}, unsigned", f"{renamed}.{body}."
        yield "crit", f"{b64(json.dumps(self.header(crit=['x'], x=1)).encode())}.{body}.{signature}"
        yield "signature of another", f"{head}.{body}.{self.minted[1].split('.')[2]}"
        yield "no signature", f"{head}.{body}."
        yield "two parts", f"{head}.{body}"
        yield "four parts", f"{head}.{body}.{signature}.{signature}"
        yield "short signature", f"{head}.{body}.{b64(unb64(signature)[:63])}"
        yield "zero signature", f"{head}.{body}.{b64(bytes(64))}"
        yield "swapped halves", f"{head}.{body}.{b64(unb64(signature)[32:] + unb64(signature)[:32])}"
        yield "nothing", ""

    def test_both_refuse(self):
        names, tokens = zip(*self.refused_by_both())
        for name, ((word, _), their) in zip(names, self.judge(tokens)):
            self.assertNotEqual(word, "ok", name)
            self.assertFalse(their["ok"], name)

    def test_headers_that_jose_takes_and_we_do_not(self):
        """Well signed, and of a kind by which others were led to a key of the sender's choice."""
        own = {"kty": "EC", "crv": "P-256", "x": self.public["x"], "y": self.public["y"]}
        extras = [
            {"jwk": own},
            {"jku": "https://example.org/keys"},
            {"x5u": "https://example.org/cert"},
            {"x5c": ["AAAA"]},
            {"x5t": "AAAA"},
            {"cty": "JWT"},
            {"zip": "DEF"},
            {"unknown": 1},
        ]
        good = json.dumps(self.claims())
        tokens = self.sign([(self.header(**extra), good) for extra in extras])
        tokens += self.sign([(self.header(kid="x" * 43), good), ({"alg": "ES256", "typ": "lease+jwt"}, good)])
        for (word, _), their in self.judge(tokens):
            self.assertTrue(their["ok"])
            self.assertIn(word, ("bad_header", "unknown_key"))

    def spoiled(self, rng):
        """One to three changes of any bytes of a good token, mostly within the alphabet."""
        alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        token = bytearray(rng.choice(self.minted).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(token))
            byte = rng.choice(alphabet) if rng.random() < 0.8 else rng.randrange(256)
            what = rng.randrange(3)
            if what == 0:
                token[at] = byte
            elif what == 1:
                token.insert(at, byte)
            else:
                del token[at]
        return bytes(token)

    def test_what_jose_refuses_we_never_take(self):
        rng = random.Random(SEED)
        tokens = [self.spoiled(rng) for _ in range(3000)]
        taken = 0
        for token, ((word, _), their) in zip(tokens, self.judge(tokens)):
            if word == "ok":
                taken += 1
                self.assertTrue(their["ok"], token)
                self.assertIn(token.decode(), self.minted)  # a change that changed nothing
        self.assertLess(taken, 100)

    def test_claims_of_every_kind_of_wrong(self):
        """Signed by jose: whatever we take of these jose takes, too, with the same values."""
        rng = random.Random(SEED + 1)
        values = [0, -1, 1.5, 2**53, "", "x", None, True, [], {}, ["read"], str(NOW), NOW, NOW - 1]
        claims = []
        for _ in range(400):
            one = self.claims()
            for name in rng.sample(sorted(one), rng.randint(1, 2)):
                one[name] = rng.choice(values)
            claims.append(one)
        tokens = self.sign([(self.header(), json.dumps(one)) for one in claims])
        for one, ((word, read), their) in zip(claims, self.judge(tokens)):
            if word == "ok":
                self.assertTrue(their["ok"], one)
                self.assert_same_claims(read, their["claims"])


if __name__ == "__main__":
    unittest.main()

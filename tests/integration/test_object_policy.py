"""The least policy that docs/artifacts.md shows is enough for all that the gateway asks of a bucket, and
none of its actions is too much: said by a real Ceph RGW to a user who has nothing else."""

import copy
import json
import os
import re
import unittest

from gateway import ROOT
from objects_tool import ObjectError, Store
from s3_servers import start_rgw

BUCKET, PREFIX = "artifacts", "leasehold/"  # of the policy
MIB = 1 << 20
IN_PARTS = ["part_bytes=5242880", "multipart_at=5242880"]
USER = "least"


def policy_of_the_docs():
    with open(os.path.join(ROOT, "docs", "artifacts.md"), encoding="utf-8") as text:
        (policy,) = re.findall(r"```json\n(.*?)```", text.read(), re.DOTALL)
    policy = json.loads(policy)
    for statement in policy["Statement"]:
        statement["Principal"] = {"AWS": [f"arn:aws:iam:::user/{USER}"]}
    return policy


def without(policy, action):
    less = copy.deepcopy(policy)
    for statement in less["Statement"]:
        statement["Action"] = [a for a in statement["Action"] if a != action]
    return less


class LeastPolicy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = start_rgw(BUCKET)
        cls.server.add_user(USER, "AKIDLEAST000000001")

    def setUp(self):
        self.store = Store(self.server.args(BUCKET, access_key="AKIDLEAST000000001", tries=1))

    def allow(self, policy):
        """And nothing is there but what the bucket's own user put: of one's own one may do more."""
        for key in self.server.client.keys(BUCKET):
            self.server.client.ask("DELETE", f"/{BUCKET}/{key}")
        self.server.client.ask("PUT", f"/{BUCKET}/{PREFIX}u/c/other", body=b"other")
        owner = Store(self.server.args(BUCKET))
        for upload in owner.uploads(""):
            owner.ask("abort", upload["key"], upload["upload_id"])
        body = json.dumps(policy).encode()
        status, _, said = self.server.client.ask("PUT", f"/{BUCKET}", [("policy", "")], body=body)
        self.assertIn(status, (200, 204), said)

    def live(self):
        """All that an artifact, its failure and the walks of a gateway ask of the store."""
        store, key, other = self.store, PREFIX + "u/c/a", PREFIX + "u/c/other"
        store.ask("check")
        with self.assertRaises(ObjectError) as missing:
            store.head(key)
        if missing.exception.code != "not_found":
            raise missing.exception
        store.put(key, b"whole")
        self.assertEqual(store.get(key), b"whole")
        self.assertEqual(store.get(other), b"other")
        self.assertEqual(store.head(other)["size_bytes"], 5)
        self.assertEqual(store.list(PREFIX + "u"), [key, other])
        store.put(key, b"x" * 6 * MIB, more=IN_PARTS)
        store.run("put", key, "t", data=b"x" * 6 * MIB, more=[*IN_PARTS, "begun=kill"])
        for upload in store.uploads(PREFIX):
            store.ask("abort", upload["key"], upload["upload_id"])
        self.assertEqual(store.uploads(PREFIX), [])
        for mine in (key, other):
            store.delete(mine)
        self.assertEqual(store.list(PREFIX), [])

    def test_it_is_enough(self):
        with self.assertRaises(ObjectError):
            self.live()
        self.allow(policy_of_the_docs())
        self.live()
        with self.assertRaises(ObjectError):
            self.store.put("elsewhere/a", b"x")

    def test_none_of_its_actions_is_too_much(self):
        policy = policy_of_the_docs()
        for action in [a for statement in policy["Statement"] for a in statement["Action"]]:
            with self.subTest(action=action):
                self.allow(without(policy, action))
                with self.assertRaises(ObjectError) as refused:
                    self.live()
                self.assertEqual(refused.exception.code, "object_store_unavailable")


if __name__ == "__main__":
    unittest.main()

"""Objects whose rows are gone, as after the restore of an older backup, are told of, counted and
removed a grace later; what another installation keeps in the same bucket is never touched."""

import glob
import os
import shutil
import unittest
import uuid

from artifact_stores import ArtifactsInBucket, ArtifactsOnDisk
from artifacts import BUCKET, fetch
from metrics import Metrics
from waiting import wait_for

GRACE = {"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 2}}


def setUpModule():
    ArtifactsInBucket.start_server()


class Orphans:
    def lose(self, make):
        """What `make` gives; and then the metadata are a backup that was made before."""
        kept = os.path.join(self.gateway.dir, "kept.db")
        config = ("--config", self.gateway.config)
        done = self.gateway.run_program("leasehold", "backup", kept, *config)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = make()
        self.gateway.stop()
        database = os.path.join(self.gateway.dir, "data", "leasehold.db")
        for path in glob.glob(database + "*"):
            os.unlink(path)
        shutil.move(kept, database)
        return made

    def counted(self, result):
        return Metrics.of(self.gateway)["leasehold_artifact_orphans_total", result]

    def dry_run(self):
        items = self.gateway.expect(200, "POST", "/retention/run?dry_run=true")["items"]
        return [i for i in items if i["reason"] == "orphan"]

    def test_what_an_older_backup_does_not_know_is_told_and_removed_a_grace_later(self):
        self.make({"retention": {"interval_seconds": 1, "artifact_delivered_grace_seconds": 5}})
        kept = self.put(b"kept")
        lost = self.lose(lambda: self.put(b"lost, " * 10))
        self.gateway.start()
        (told,) = wait_for(self, "dry run", self.dry_run)
        self.assertEqual(
            (told["kind"], told["id"], told["size_bytes"]), ("artifact", lost["artifact_id"], 60)
        )
        self.assertEqual(len(self.objects()), 2)
        wait_for(self, "its end", lambda: len(self.objects()) == 1)
        (removed,) = wait_for(self, "log", lambda: self.gateway.log_lines("object_orphan_removed"))
        (marked,) = self.gateway.log_lines("object_orphan")
        self.assertIn(lost["artifact_id"], marked["key"])
        self.assertEqual(marked["key"], removed["key"])
        (entry,) = self.gateway.expect(200, "GET", "/audit?action=artifact.orphan")["items"]
        self.assertEqual(entry["object"], f"artifact:{lost['artifact_id']}")
        self.assertEqual((self.counted("marked"), self.counted("removed")), (1, 1))
        self.assertEqual(self.dry_run(), [])
        self.assertEqual(fetch(self.link(kept)["url"])[2], b"kept")


class OnDisk(Orphans, ArtifactsOnDisk):
    def test_files_that_are_no_objects_of_ours_stay(self):
        self.make(GRACE)
        artifact = self.put(b"kept")
        at = os.path.join(self.gateway.dir, "data/objects/**", artifact["artifact_id"] + "*")
        (path,) = glob.glob(at, recursive=True)
        orphan = path.replace(artifact["artifact_id"], str(uuid.uuid4()))
        foreign = os.path.join(os.path.dirname(path), "foreign.obj")
        for planted in (orphan, foreign):
            shutil.copyfile(path, planted)
        wait_for(self, "the orphan's end", lambda: not os.path.exists(orphan))
        self.assertTrue(os.path.exists(path) and os.path.exists(foreign))
        self.assertEqual(self.get(artifact)["state"], "stored")


class InS3(Orphans, ArtifactsInBucket):
    def plant(self, key, maker=None):
        headers = {"x-amz-meta-leasehold-maker": maker} if maker else {}
        status, _, body = self.server.client.ask("PUT", f"/{BUCKET}/{key}", headers=headers, body=b"x")
        self.assertEqual(status, 200, body)

    def maker_of(self, key):
        status, headers, _ = self.server.client.ask("HEAD", f"/{BUCKET}/{key}")
        self.assertEqual(status, 200)
        return headers["x-amz-meta-leasehold-maker"]

    def test_what_others_keep_beside_ours_is_not_touched(self):
        self.make(GRACE)
        artifact = self.put(b"kept")
        (ours,) = self.objects()
        maker = self.maker_of(ours)
        self.assertNotIn("default", maker)
        strange = [
            ours.replace(artifact["artifact_id"], str(uuid.uuid4())),
            "/".join(["test", *(str(uuid.uuid4()) for _ in range(3))]),
        ]
        self.plant(strange[0], "0" * 32)
        self.plant(strange[1])
        ours_but = [
            "/".join(["test2", *ours.split("/")[1:]]),
            ours + "/" + str(uuid.uuid4()),
            ours.replace(artifact["artifact_id"], artifact["artifact_id"].upper()),
            "test/backup.tar",
        ]
        for key in ours_but:
            self.plant(key, maker)
        orphan = ours.replace(artifact["artifact_id"], str(uuid.uuid4()))
        self.plant(orphan, maker)
        wait_for(self, "the orphan's end", lambda: orphan not in self.objects())
        self.assertEqual(sorted(self.objects()), sorted([ours, *strange, *ours_but]))
        told = sum(line["objects"] for line in self.gateway.log_lines("objects_foreign"))
        self.assertEqual(told, 2)

    def test_a_copy_of_the_metadata_under_another_name_removes_nothing(self):
        self.make(GRACE)
        self.lose(lambda: self.put(b"of production"))
        (key,) = self.objects()
        self.gateway.edit_config({"app": {"instance": "staging"}})
        self.gateway.start()
        wait_for(self, "told", lambda: self.gateway.log_lines("objects_foreign"))
        self.assertEqual(self.dry_run(), [])
        self.assertEqual(self.objects(), [key])


if __name__ == "__main__":
    unittest.main()

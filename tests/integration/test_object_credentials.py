"""The credentials of the bucket are changed under a gateway that serves."""

import os
import signal
import unittest

import artifact_stores
from artifacts import BUCKET
from waiting import wait_for

NEW_KEY, NEW_SECRET = "AKIDRGWTEST00000002", "another+SECRET/of+the+same+user"


def setUpModule():
    artifact_stores.ArtifactsInBucket.start_server()


def tearDownModule():
    unittest.doModuleCleanups()


class Credentials(artifact_stores.ArtifactsInBucket):
    def reload(self, event):
        seen = len(self.gateway.log_lines(event))
        self.gateway.process.send_signal(signal.SIGHUP)
        wait_for(self, event, lambda: len(self.gateway.log_lines(event)) > seen)
        return self.gateway.log_lines(event)[-1]

    def secret_is(self, text):
        path = os.path.join(self.gateway.dir, "s3.secret")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_a_reload_takes_new_ones_and_uploads_under_way_go_on(self):
        self.make()
        self.put(b"before", name="before")
        with self.half_a_body() as wire:
            end_the_former = self.server.change_key(NEW_KEY, NEW_SECRET)
            self.secret_is(NEW_SECRET + "\n")
            self.gateway.edit_config({"objects": {"access_key": NEW_KEY}})
            self.reload("reloaded")
            end_the_former()
            wire.sendall(b"y" * 500_000)
            self.assertIn(b" 201 ", wire.recv(65536).split(b"\r\n")[0])
        self.assertEqual(self.put(b"behind")["state"], "stored")
        self.assertEqual(len(self.server.client.keys(BUCKET)), 3)
        self.assertNotIn(NEW_SECRET, self.gateway.log_text())

    def test_a_secret_that_cannot_be_read_leaves_the_former_ones(self):
        self.make()
        path = self.secret_is("\n")
        self.assertIn("no secret in objects.secret_key_file", self.reload("reload_failed")["detail"])
        self.put(b"one", name="one")
        os.unlink(path)
        self.assertIn(path, self.reload("reload_failed")["detail"])
        self.put(b"two", name="two")


if __name__ == "__main__":
    unittest.main()

"""What an administrator's commands leave in a directory that is the service's, and what they take for a store."""

import os
import shutil
import subprocess
import tempfile
import unittest

import gateway
from gateway import Gateway
from without_root import UID, WithoutRoot

SERVICE = 65534


def owners(directory):
    """{path: (uid, gid)} of all that is there."""
    found = {}
    for folder, _, names in os.walk(directory):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            state = os.lstat(path)
            found[path] = (state.st_uid, state.st_gid)
    return found


class Commands(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway.for_test(self, start=False)
        self.data = os.path.join(self.gateway.dir, "data")
        self.db = os.path.join(self.data, "leasehold.db")

    def run_all(self, code):
        """What each of the commands that open the store has said; the directory's owner stays who it is."""
        os.remove(os.path.join(self.gateway.dir, "admin.key"))
        said = {}
        for command in (["clock-reset"], ["audit-verify"], ["admin-key"],
                        ["backup", os.path.join(self.gateway.dir, "copy.db")]):  # fmt: skip
            done = self.gateway.run_program("leasehold", *command, "--config", self.gateway.config)
            self.assertEqual(done.returncode, code, (command, done))
            said[command[0]] = done.stderr
        return said


class Owners(Commands):
    def all_is_the_services(self, directory, but=()):
        strangers = {path for path, who in owners(directory).items() if who != (SERVICE, SERVICE)}
        self.assertEqual(strangers - set(but), set())

    def test_what_root_makes_beside_the_store_is_the_services(self):
        for left in os.listdir(self.data):
            if left != "leasehold.db" and left.startswith("leasehold.db"):
                os.remove(os.path.join(self.data, left))
        for path in owners(self.gateway.dir):
            os.chown(path, SERVICE, SERVICE)
        self.run_all(0)
        self.assertIn("leasehold.db.lock", os.listdir(self.data))
        # The copy is for whoever asked for it.
        self.all_is_the_services(self.gateway.dir, [os.path.join(self.gateway.dir, "copy.db")])

    def test_init_in_a_directory_of_the_service_is_for_the_service(self):
        directory = tempfile.mkdtemp(prefix="leasehold-owner-")
        self.addCleanup(shutil.rmtree, directory)
        os.chown(directory, SERVICE, SERVICE)
        done = self.gateway.run_program("leasehold", "init", "--dir", directory)
        self.assertEqual(done.returncode, 0, done)
        self.all_is_the_services(directory)
        inner = os.path.join(directory, "roots")
        done = self.gateway.run_program("leasehold", "init", "--dir", inner)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(set(owners(inner).values()), {(0, 0)})


    def test_who_else_reads_a_secret_is_asked_for_the_service_when_root_asks(self):
        for path in owners(self.gateway.dir):
            os.chown(path, SERVICE, SERVICE)
        key = os.path.join(self.gateway.dir, "admin.key")
        os.chmod(key, 0o640)
        for owner, warned in ((0, False), (SERVICE, True)):
            os.chown(key, owner, SERVICE)
            done = self.gateway.run_program("leasehold", "check-config", "--config", self.gateway.config)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(f"admin key {key}: others may read it" in done.stderr, warned, (owner, done))


class Daemons(unittest.TestCase):
    """A directory is that of whose gateway ran in it first."""

    def run_as(self, command):
        env = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD_")}
        return subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)

    def test_root_is_refused_where_a_service_ran_and_leaves_nothing(self):
        service = WithoutRoot.for_test(self, gateway.BIN)
        log = {"logging": {"output": "file", "file_path": "own.log"}}
        daemon = Gateway.for_test(self, log, launcher=service)
        chat = daemon.new_chat()["chat_id"]
        daemon.stop()
        os.remove(os.path.join(daemon.dir, "own.log"))
        os.chown(daemon.log_file, UID, UID)  # the test's
        done = self.run_as([os.path.join(gateway.BIN, "leasehold"), "run", "--config", daemon.config])
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"leasehold.lock is of the user {UID}, who has run a gateway here", done.stderr)
        self.assertEqual(set(owners(daemon.dir).values()), {(UID, UID)})
        daemon.start()
        daemon.open(chat)

    def test_a_service_is_told_that_root_ran_and_root_goes_on(self):
        service = WithoutRoot.for_test(self, gateway.BIN)
        daemon = Gateway.for_test(self)
        daemon.stop()
        for path in (daemon.dir, os.path.join(daemon.dir, "run"), daemon.config):
            os.chown(path, UID, UID)
        done = self.run_as(service.command("leasehold", "run", "--config", daemon.config))
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("leasehold.lock is of the user 0, who has run a gateway here", done.stderr)
        daemon.start()

    def test_root_is_warned_where_nobody_ran_yet(self):
        daemon = Gateway.for_test(self, start=False)
        for path in owners(daemon.dir):
            os.chown(path, UID, UID)
        for _ in range(2):
            daemon.start()
            daemon.stop()
            self.assertIn("directory_of_another_user", daemon.log_text())


class EmptyFile(Commands):
    def test_an_emptied_store_is_not_begun_anew_by_anybody(self):
        with open(self.db, "r+b") as file:
            file.truncate(0)
        said = self.run_all(1)
        done = self.gateway.run_program("leasehold", "run", "--config", self.gateway.config)
        self.assertEqual(done.returncode, 1, done)
        for command, why in {**said, "run": done.stderr}.items():
            self.assertIn(f"the database {self.db} is empty", why, command)
        self.assertEqual(os.path.getsize(self.db), 0)
        self.assertNotIn("admin.key", os.listdir(self.gateway.dir))


class Words(Commands):
    def test_what_is_empty_or_given_twice_is_named_and_nothing_is_done(self):
        given = ["--config", self.gateway.config]
        for words, why in (
            (["clock-reset", "--config", ""], "--config needs a value that is not empty"),
            (["check-config", *given, *given], "--config is given twice"),
            (["backup", "", *given], "FILE needs a value that is not empty"),
            (["clock-reset", *given, "--mark", "", "--reason", "r"], "--mark needs a value"),
            (["init", "--dir", ""], "--dir needs a value that is not empty"),
        ):
            done = self.gateway.run_program("leasehold", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(f"leasehold: {why}", done.stderr)

    def test_a_backup_that_cannot_get_its_name_leaves_nothing(self):
        taken = os.path.join(self.gateway.dir, "taken")
        os.mkdir(taken)
        given = ["--config", self.gateway.config]
        done = self.gateway.run_program("leasehold", "backup", taken, *given)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"make {taken}: Is a directory", done.stderr)
        self.assertFalse(os.path.exists(taken + ".part"))


if __name__ == "__main__":
    unittest.main()

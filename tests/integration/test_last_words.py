"""What a sandbox and its door said before they failed is in the gateway's log."""

import os
import shutil
import tempfile
import time
import unittest

import gateway
from gateway import Gateway
from waiting import wait_for
from without_root import copy_programs


def profile(script, transport="stdio"):
    command = ["/bin/sh", "-c", script]
    return {"profiles": [{"name": "default", "command": command, "transport": transport}]}


class OtherDoor:
    """Programs of which leasedoor is a script."""

    def __init__(self, script):
        self.bin = copy_programs(gateway.BIN)
        door = os.path.join(self.bin, "leasedoor")
        os.unlink(door)
        with open(door, "w", encoding="ascii") as out:
            out.write("#!/bin/sh\n" + script + "\n")
        os.chmod(door, 0o755)

    def new_dir(self, prefix):
        return tempfile.mkdtemp(prefix=prefix)

    def command(self, name, *args):
        return [os.path.join(self.bin, name), *args]


class LastWords(unittest.TestCase):
    def failed_start(self, daemon):
        """The answer's detail, and the event, of an open that fails."""
        chat = daemon.new_chat()
        answer = daemon.expect(503, "POST", "/sandboxes", {"chat_id": chat["chat_id"]})
        self.assertEqual(answer["code"], "sandbox_start_failed")
        [event] = daemon.log_lines("sandbox_start_failed")
        return answer["detail"], event

    def ended(self, daemon):
        wait_for(self, "the end", lambda: daemon.log_lines("sandbox_cleaned"))
        [event] = daemon.log_lines("sandbox_ended")
        return event

    def test_an_agent_that_fails_at_once_is_quoted(self):
        # Nobody listens there, so it is never ready, however late its end is noticed.
        daemon = Gateway.for_test(self, profile("echo one >&2; echo 'bo\"o' >&2; exit 3", "tcp:9"))
        detail, event = self.failed_start(daemon)
        self.assertEqual(detail, "the agent ended at once: exited(3)")
        self.assertEqual((event["step"], event["keep_log"]), ("ready", 'one\nbo"o'))

    def test_of_much_only_the_end_is_told(self):
        daemon = Gateway.for_test(self, profile("seq 100000 >&2; exit 3", "tcp:9"))
        _, event = self.failed_start(daemon)
        self.assertTrue(event["keep_log"].endswith("\n99999\n100000"))
        self.assertLessEqual(len(event["keep_log"]), 512)
        self.assertEqual(len(event["keep_log"].split()[0]), 5)  # no line is cut

    def test_a_door_that_fails_is_named_and_not_waited_for(self):
        launcher = OtherDoor("echo first >&2; echo 'no luck today' >&2; exit 1")
        self.addCleanup(shutil.rmtree, launcher.bin)
        daemon = Gateway.for_test(self, launcher=launcher)
        begin = time.monotonic()
        detail, event = self.failed_start(daemon)
        self.assertEqual(detail, "the door did not start: no luck today")
        self.assertEqual(event["door_log"], "first\nno luck today")
        self.assertLess(time.monotonic() - begin, 8)  # before leaseinit gives up on its door

    def test_an_agent_that_fails_later_is_quoted(self):
        daemon = Gateway.for_test(self, profile("read line; echo boo >&2; exit 3"))
        _, grant = daemon.open(daemon.new_chat()["chat_id"], lease={})
        client = daemon.connect(grant)
        client.send_text("go")
        event = self.ended(daemon)
        self.assertEqual((event["level"], event["reason"]), ("warning", "exited(3)"))
        self.assertEqual(event["keep_log"], "boo")

    def test_a_sandbox_that_is_stopped_has_not_ended_by_itself(self):
        daemon = Gateway.for_test(self)
        sandbox, _ = daemon.open(daemon.new_chat()["chat_id"])
        daemon.expect(200, "DELETE", f"/sandboxes/{sandbox['session_id']}")
        self.assertEqual(daemon.log_lines("sandbox_ended"), [])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/python3
"""leasekeep, leaseinit and bubblewrap together: life, ends and limits of a local sandbox.

Needs root, bubblewrap and the built programs (LEASEHOLD_BIN, default build/release/bin).
"""

import os
import shutil
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

import keep_sandbox
import processes
import without_root
from fake_door import LINE_MAX, Ended
from keep_sandbox import (LOG_MAX, Sandbox, SandboxTest, cgroups_of, processes_with, start_ticks)
from waiting import until

DEMO = ["/run/leasehold/demo-agent"]
PYTHON = "/usr/bin/python3"


def setUpModule():
    keep_sandbox.require()


def mounts_of(sandbox):
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if sandbox.root in line or "leasekeep" in line]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def name_of(pid):
    process = processes.look(pid)
    return process and process.name


def guard_of(keep):
    """It takes its name a moment after it has begun."""
    guard = until(lambda: next((pid for pid in children_of(keep) if name_of(pid) == "leasekeep-guard"), 0))
    if not guard:
        raise AssertionError(f"leasekeep has no guard among {children_of(keep)}")
    return guard


class Life(SandboxTest):
    def test_lines_of_any_length_and_content_are_echoed(self):
        self.start(DEMO)
        for size in (0, 1, 2, 100, 4095, 4096, 65535, 65536, 65537, LINE_MAX - 1, LINE_MAX):
            line = os.urandom(size).replace(b"\n", b"\xff")
            self.sandbox.door.send(line)
            self.assertEqual(self.sandbox.door.line(), line, f"{size} bytes")

    def test_many_messages_at_once_keep_their_order(self):
        self.start(DEMO)
        total = 20000
        sender = threading.Thread(
            target=lambda: [self.sandbox.door.send(b"%d" % i) for i in range(total)]
        )
        sender.start()
        for i in range(total):
            self.assertEqual(self.sandbox.door.line(), b"%d" % i)
        sender.join()

    def test_a_longer_line_arrives_in_frames_of_the_greatest_length(self):
        lines = self.python("print('x' * (2 * 1048576 + 5)); print('y' * 1048576); print('z')")
        self.assertEqual([len(line) for line in lines], [LINE_MAX, LINE_MAX, 5, LINE_MAX, 1])

    def test_output_waits_for_a_door_that_does_not_read(self):
        self.start([PYTHON, "-c", "for i in range(200000): print('line', i)"])
        time.sleep(0.3)
        lines, ended = self.sandbox.door.until_exit()
        self.assertEqual(len(lines), 200000)
        self.assertEqual((lines[-1], ended), (b"line 199999", (0, 0)))

    def test_the_exit_code_is_reported_after_all_output(self):
        self.assertEqual(self.sh("echo one; printf two; exit 7"), ["one", "two"])
        self.assertEqual(self.exit, (7, 0))
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 7, 0))

    def test_an_exit_code_above_128_is_not_taken_for_a_signal(self):
        self.sh("exit 137")
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 137, 0))

    def test_a_signal_is_reported(self):
        self.sh("kill -SEGV $$")
        self.assertEqual(self.exit, (139, 11))
        self.assertEqual(self.sandbox.ended()[:3], ("signaled", 139, 11))

    def test_a_missing_command_never_says_hello_and_ends_with_127_and_a_message(self):
        self.sandbox.start(["/nowhere/agent"])
        with self.assertRaises(Ended):
            self.sandbox.door.accept()
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 127, 0))
        self.assertIn("cannot run /nowhere/agent: No such file", self.sandbox.file("keep.log"))

    def test_an_agent_that_closes_its_stdout_lives_on(self):
        self.start(["/bin/sh", "-c", "exec >&-; read line; exit 5"])
        with self.assertRaises(TimeoutError):
            self.sandbox.door.frame(0.3)
        self.sandbox.door.send(b"go on")
        self.assertEqual(self.sandbox.door.until_exit(), ([], (5, 0)))

    def test_orphans_in_the_sandbox_are_reaped(self):
        script = ("(sleep 0.1 &) ; sleep 0.5; for i in $(seq 300); do "
                  "cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z ' || exec echo reaped; sleep 0.1; done")
        self.assertEqual(self.sh(script), ["reaped"])

    def test_stop_lets_the_agent_end_by_itself(self):
        self.start(DEMO)
        self.sandbox.door.send(b"up")
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("exited", 0, 0))

    def test_stop_at_any_moment_of_the_start_ends_it(self):
        for delay_ms in range(0, 24, 2):
            with self.subTest(delay_ms=delay_ms):
                sandbox = Sandbox()
                self.addCleanup(sandbox.close)
                sandbox.start(DEMO, env=[("MARKER", sandbox.session)], pids=64)
                time.sleep(delay_ms / 1000)
                sandbox.signal(signal.SIGTERM)
                self.assertIn(sandbox.wait(), (0, 1, -signal.SIGTERM))
                self.assertEqual(processes_with(sandbox.session), [])
                self.assertEqual(cgroups_of(sandbox.session), [])

    def test_kill_9_at_any_moment_of_the_start_leaves_nothing(self):
        for step in range(60):
            with self.subTest(step=step):
                sandbox = Sandbox()
                self.addCleanup(sandbox.close)
                # The session stands in the command line, so that it is in bwrap's as well.
                sandbox.start(DEMO + [sandbox.session], pids=64 * (step % 2))
                time.sleep(step / 4000)
                sandbox.signal(signal.SIGKILL)
                sandbox.wait()
                self.assertTrue(until(lambda: not processes_with(sandbox.session)))
                self.assertTrue(until(lambda: not cgroups_of(sandbox.session)))

    def test_stop_kills_an_agent_that_ignores_it(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"],
                   grace_ms=300)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0::2][:2], ("signaled", 9))

    def test_a_second_stop_ends_the_grace(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"],
                   grace_ms=3600000)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.sandbox.signal(signal.SIGTERM)
        time.sleep(0.1)
        self.assertIsNotNone(start_ticks(self.sandbox.pid))
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)

    def test_at_the_end_of_its_longest_life_it_is_stopped(self):
        self.start(["/bin/sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done"],
                   max_ms=3000)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.assertEqual(self.sandbox.door.until_exit()[1], (5, 0))
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("max_ttl", 5, 0))

    def test_at_the_end_of_its_longest_life_the_grace_holds_too(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"],
                   max_ms=3000, grace_ms=200)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[:3], ("max_ttl", 137, 9))

    def test_the_end_of_the_doors_link_ends_the_sandbox(self):
        self.start(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        self.sandbox.door.conn.close()
        self.assertEqual(self.sandbox.wait(), 0)

    def test_a_frame_that_is_not_valid_ends_the_sandbox(self):
        self.start(DEMO)
        self.sandbox.door.send(b"x", kind=77)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertIn("not valid", self.sandbox.file("keep.log"))

    def test_the_pid_file_names_and_locks_leasekeep(self):
        self.start(DEMO)
        pid, ticks = map(int, self.sandbox.file("keep.pid").split())
        self.assertEqual((pid, ticks), (self.sandbox.pid, start_ticks(pid)))
        self.assertTrue(until(lambda: self.sandbox.file("keep.state") == "running\n"))
        second = Sandbox()
        self.addCleanup(second.close)
        second.run = self.sandbox.run
        second.start(DEMO)
        self.assertEqual(second.wait(), 1)
        self.assertEqual(self.sandbox.file("keep.state"), "running\n")

    def test_the_starter_is_told_once_the_sandbox_runs(self):
        told, self.sandbox.notify_fd = os.pipe()
        self.addCleanup(os.close, told)
        self.start(DEMO)
        os.close(self.sandbox.notify_fd)
        self.assertEqual(os.read(told, 10), b"r")
        self.assertEqual(self.sandbox.file("keep.state"), "running\n")
        self.assertEqual(os.read(told, 10), b"")  # nobody else holds it

    def check_kill_9(self, **limits):
        marker = "MARK" + self.sandbox.session
        self.start(["/bin/sh", "-c", "sleep 1000 & (setsid sleep 1000 &) ; echo up; sleep 1000"],
                   env=[("MARKER", marker)], **limits)
        self.assertEqual(self.sandbox.door.line(), b"up")
        self.assertTrue(processes_with(marker))
        self.assertEqual(bool(cgroups_of(self.sandbox.session)), bool(limits))
        init = self.sandbox.init_pid()
        self.sandbox.signal(signal.SIGKILL)
        self.assertEqual(self.sandbox.wait(), -signal.SIGKILL)
        self.assertTrue(until(lambda: not processes_with(marker)))
        self.assertTrue(until(lambda: start_ticks(init) is None))
        self.assertTrue(until(lambda: not cgroups_of(self.sandbox.session)))
        self.assertEqual(mounts_of(self.sandbox), [])

    def test_kill_9_of_leasekeep_leaves_nothing(self):
        self.check_kill_9(memory_bytes=1 << 28, pids=64, cpus_milli=1000)

    def test_kill_9_of_leasekeep_leaves_nothing_without_control_groups(self):
        self.check_kill_9()

    def start_with_guard(self):
        """A sandbox with every control group there can be, and the pid of its guard."""
        self.start(DEMO, memory_bytes=1 << 28, pids=64, cpus_milli=1000)
        self.assertTrue(cgroups_of(self.sandbox.session))
        return guard_of(self.sandbox.pid)

    def check_stopped_without_guard(self, guard):
        self.sandbox.signal(signal.SIGTERM)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0], "exited")
        self.assertEqual(cgroups_of(self.sandbox.session), [])
        self.assertIsNone(start_ticks(guard))
        self.assertEqual(self.sandbox.file("keep.groups"), "")

    def test_kill_9_of_the_guard_leaves_nothing(self):
        guard = self.start_with_guard()
        os.kill(guard, signal.SIGKILL)
        self.assertTrue(until(lambda: start_ticks(guard) is None))
        self.check_stopped_without_guard(guard)

    def test_a_stopped_guard_holds_up_no_stop(self):
        guard = self.start_with_guard()
        os.kill(guard, signal.SIGSTOP)
        self.check_stopped_without_guard(guard)

    def test_the_control_groups_are_noted_for_the_gateway(self):
        self.start_with_guard()
        self.assertEqual(sorted(self.sandbox.file("keep.groups").split()),
                         sorted(cgroups_of(self.sandbox.session)))

    def test_kill_9_of_bwrap_ends_everything(self):
        self.start(["/bin/sh", "-c", "echo up; sleep 1000"])
        self.assertEqual(self.sandbox.door.line(), b"up")
        with open(f"/proc/{self.sandbox.init_pid()}/stat") as file:
            bwrap = int(file.read().rpartition(")")[2].split()[1])
        os.kill(bwrap, signal.SIGKILL)
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0::2][:2], ("signaled", 9))

    def test_an_ordinary_end_leaves_nothing(self):
        self.sh("exit 0", memory_bytes=1 << 28, pids=64, cpus_milli=500)
        self.assertEqual(cgroups_of(self.sandbox.session), [])
        self.assertEqual(mounts_of(self.sandbox), [])
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_a_flood_on_stderr_blocks_nobody_and_keeps_the_newest(self):
        self.python("import sys\nfor i in range(10000): sys.stderr.write(f'{i:0999}\\n')")
        old, new = self.sandbox.file("keep.log.old"), self.sandbox.file("keep.log")
        self.assertLessEqual(len(new), LOG_MAX)
        self.assertEqual(len(old), LOG_MAX)
        lines = (old + new).splitlines()
        numbers = [int(line) for line in lines[1:]]  # the first may be cut
        self.assertEqual(numbers, list(range(10000 - len(numbers), 10000)))


class Refusals(SandboxTest):
    def refused(self, detail):
        self.assertEqual(self.sandbox.wait(), 1)
        reason, _, _, text = self.sandbox.ended()
        self.assertEqual(reason, "start_failed")
        self.assertIn(detail, text)

    def test_every_fault_of_the_spec_is_named(self):
        good = self.sandbox.records(DEMO)

        def without(name):
            return [r for r in good if not r.startswith(name + "=")]

        cases = [
            (good + ["what=1"], "unknown record"),
            (good + ["what"], "without ="),
            (good + ["uid=5"], "given twice"),
            (without("uid") + ["uid=0"], "never runs as root"),
            (without("gid") + ["gid=0"], "never runs as root"),
            (without("uid") + ["uid=-1"], "no number"),
            (without("pids") + ["pids=99999999999999999999"], "no number"),
            (without("session"), "session"),
            (without("session") + ["session=../x"], "session"),
            (without("box"), "box"),
            (without("box") + ["box=relative"], "box"),
            (without("arg"), "no command"),
            (without("transport"), "transport"),
            (without("root") + ["root=/"], "root"),
            (good + ["bind=ro\t/usr"], "bind 2"),
            (good + ["bind=rx\t/usr\t/x"], "bind 2"),
            (good + ["bind=ro\t/usr/../etc\t/x"], "bind 2"),
            (good + ["bind=ro\t/usr\t/proc/sys"], "target"),
            (good + ["bind=ro\t/usr\t/run"], "target"),
            (good + ["bind=ro\t/usr\t/run/leasehold/x"], "target"),
            (good + ["helper=../x\t/usr/bin/true"], "helper"),
            (good + ["env=1A=x"], "env 1"),
            (good + ["env=A"], "env 1"),
            (good + ["arg=x"] * 600, "words"),
            (good + ["env=A=" + "x" * 300000], "longer than"),
        ]
        for records, detail in cases:
            with self.subTest(detail=detail, last=records[-1][:40]):
                self.sandbox.start_raw("".join(r + "\0" for r in records).encode())
                self.sandbox.status = None
                self.refused(detail)
        self.sandbox.status = None
        self.sandbox.start_raw("\0".join(good).encode())
        self.refused("not complete")

    def test_an_unknown_transport_is_named(self):
        self.sandbox.start(DEMO, transport="pigeon:7")
        self.refused('no transport "pigeon:7"')

    def test_a_missing_source_is_named_by_its_target(self):
        self.sandbox.start(DEMO, binds=[("ro", self.sandbox.root + "/no", "/opt/dependencies")])
        self.refused("/opt/dependencies: No such file")

    def test_a_symlink_planted_in_a_source_is_refused(self):
        link = os.path.join(self.sandbox.chat, "planted")
        os.symlink("/etc", link)
        for source in (link, link + "/ssl"):
            with self.subTest(source=source):
                self.sandbox.status = None
                self.sandbox.start(DEMO, binds=[("ro", source, "/workspace/x")])
                self.refused("symlink")

    def test_a_device_or_fifo_is_no_source(self):
        fifo = os.path.join(self.sandbox.root, "fifo")
        os.mkfifo(fifo)
        for source in (fifo, "/dev/null"):
            with self.subTest(source=source):
                self.sandbox.status = None
                self.sandbox.start(DEMO, binds=[("ro", source, "/workspace/x")])
                self.refused("neither file nor directory")

    def test_a_symlink_at_a_helpers_mount_point_is_refused(self):
        victim = os.path.join(self.sandbox.root, "victim")
        os.symlink(victim, os.path.join(self.sandbox.box, "leaseinit"))
        self.sandbox.start(DEMO)
        self.refused("mount point of leaseinit")
        self.assertFalse(os.path.exists(victim))


class WithoutRoot(SandboxTest):
    def test_the_agent_runs_isolated_with_the_uid_of_its_starter(self):
        uid = without_root.UID
        self.sandbox.bin = without_root.copy_programs(keep_sandbox.BIN)
        self.addCleanup(shutil.rmtree, self.sandbox.bin)
        for top, dirs, files in os.walk(self.sandbox.root):
            for name in [top] + [os.path.join(top, f) for f in files]:
                os.chown(name, uid, uid)
        self.sandbox.start_as = uid
        lines = self.sh("id -u; cat /proc/self/status | grep CapEff; id -un; "
                        "ls /root /proc/sys/x 2>/dev/null; echo > /workspace/chat/x && echo wrote; "
                        "unshare -U true 2>/dev/null || echo no; ls -d /tmp/* 2>/dev/null")
        self.assertEqual(lines, [str(uid), "CapEff:\t0000000000000000", "sandbox", "wrote", "no"])
        self.assertEqual(os.stat(self.sandbox.chat + "/x").st_uid, uid)


class Limits(SandboxTest):
    def test_memory_over_the_limit_ends_as_oom(self):
        self.start([PYTHON, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"],
                   memory_bytes=64 << 20)
        try:
            self.sandbox.door.until_exit()
        except Ended:
            pass
        self.assertEqual(self.sandbox.wait(), 0)
        self.assertEqual(self.sandbox.ended()[0], "oom", self.sandbox.file("keep.log"))
        self.assertEqual(cgroups_of(self.sandbox.session), [])

    def test_memory_too_little_for_the_sandbox_itself_is_named(self):
        self.sandbox.start(DEMO, memory_bytes=1)
        self.assertEqual(self.sandbox.wait(), 1)
        self.assertEqual(self.sandbox.ended(), ("start_failed", 1, 0,
                                                "memory_bytes is too little for a sandbox to start"))

    def test_a_plain_kill_is_not_oom(self):
        self.sh("kill -9 $$", memory_bytes=64 << 20)
        self.assertEqual(self.sandbox.ended()[:3], ("signaled", 137, 9))

    def test_the_pids_limit_stops_a_fork_bomb(self):
        script = """
import os, time
n = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
    except OSError:
        break
print(n + 1)
"""
        self.assertEqual(self.python(script, pids=32), ["32"])

    def test_the_cpu_quota_is_set(self):
        self.start(DEMO, cpus_milli=500)
        groups = [g for g in cgroups_of(self.sandbox.session)
                  if os.path.exists(g + "/cpu.cfs_quota_us") or os.path.exists(g + "/cpu.max")]
        self.assertEqual(len(groups), 1)
        name = "cpu.max" if os.path.exists(groups[0] + "/cpu.max") else "cpu.cfs_quota_us"
        with open(os.path.join(groups[0], name)) as file:
            self.assertEqual(file.read().split()[0], "50000")


if __name__ == "__main__":
    unittest.main(verbosity=2)

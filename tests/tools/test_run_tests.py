"""The test runner must not be able to say "passed" about what did not run."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

TOOLS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, TOOLS)

import run_tests  # noqa: E402


def judge(output, code=0, tap=True):
    passed, failed, skipped = run_tests.judge(run_tests.Job("x", [], tap=tap), code, output)
    return passed, len(failed), len(skipped)


class Judge(unittest.TestCase):
    def test_counts_cases_of_several_groups(self):
        self.assertEqual(judge("1..2\nok 1 - a\nok 2 - b\n# ok - t\n1..1\nok 1 - c\n"), (3, 0, 0))

    def test_a_failed_case_is_one_failure(self):
        self.assertEqual(judge("1..2\nok 1 - a\nnot ok 2 - b\n# why\n", code=1), (1, 1, 0))

    def test_a_case_that_never_reported_is_a_failure(self):
        self.assertEqual(judge("1..3\nok 1 - a\n", code=134), (1, 2, 0))

    def test_no_case_at_all_is_a_failure(self):
        self.assertEqual(judge(""), (0, 1, 0))

    def test_a_bad_exit_is_a_failure_though_all_cases_passed(self):
        self.assertEqual(judge("1..1\nok 1 - a\n", code=125), (1, 1, 0))

    def test_a_skip_is_a_failure(self):
        self.assertEqual(judge("1..1\nok 1 # SKIP t.a: no docker here\n"), (0, 1, 0))
        self.assertEqual(judge("1..1\nnot ok 1 # SKIP a\n"), (0, 1, 0))

    def test_a_skip_for_podman_is_allowed(self):
        self.assertEqual(judge("1..1\nok 1 # SKIP t.a: podman is not installed\n"), (0, 0, 1))

    def test_a_program_without_cases_is_judged_by_its_exit(self):
        self.assertEqual(judge("", tap=False), (1, 0, 0))
        self.assertEqual(judge("", code=77, tap=False), (0, 1, 0))

    def test_nothing_passed_is_no_success(self):
        self.assertFalse(run_tests.closing_line([])[1])


class Sanitizers(unittest.TestCase):
    """A stand-in for a sanitized daemon: a report of a process whose exit nobody looks at."""

    def run_script(self, script):
        job = run_tests.Job("tools/sanitizers", ["/bin/sh", "-c", f"echo 1..1; {script}; echo ok 1 - a"])
        os.makedirs(run_tests.LOGS, exist_ok=True)
        return run_tests.run_job(job, 10)

    def test_a_report_of_any_process_is_a_failure(self):
        for name in run_tests.SANITIZERS:
            report = f'setsid sh -c \'echo "==1==ERROR: found" >"${{{name}##*log_path=}}.1"\' || true'
            outcome = self.run_script(report)
            self.assertEqual((outcome.passed, len(outcome.failed)), (1, 1), outcome.output)
            self.assertIn("==1==ERROR: found", outcome.output)

    def test_no_report_is_none(self):
        self.assertEqual(self.run_script("true").failed, [])


class Contain(unittest.TestCase):
    def contain(self, timeout_s, script, **options):
        command = [sys.executable, os.path.join(TOOLS, "contain.py"), str(timeout_s), "--"]
        done = subprocess.run(
            [*command, "/bin/sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            **options,
        )
        return done.returncode, done.stdout

    def assert_gone(self, pid):
        for _ in range(100):
            if not os.path.exists(f"/proc/{pid}"):
                return
            time.sleep(0.01)
        self.fail(f"process {pid} is still there")

    def test_hands_on_the_exit_status(self):
        self.assertEqual(self.contain(10, "exit 7")[0], 7)
        self.assertEqual(self.contain(10, "kill -9 $$")[0], 137)

    def test_hands_down_no_ignored_signal(self):
        """But 32 and 33, the thread library's own, which make(1) leaves ignored."""

        def ignore():
            for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "TSTP", "TTIN", "TTOU", "CHLD"):
                signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)

        for ignored in (None, ignore):
            with self.subTest(ignored=ignored):
                script = "grep SigIgn /proc/self/status; exit 7"
                code, out = self.contain(10, script, preexec_fn=ignored)
                self.assertEqual(code, 7)
                self.assertRegex(out, r"^SigIgn:\t0000000[01][08]0000000\n")

    def test_ends_at_the_timeout_what_left_the_session(self):
        code, out = self.contain(0.5, "setsid -f sh -c 'echo $$; exec sleep 99'; exec sleep 99")
        self.assertEqual(code, 124)
        self.assert_gone(int(out.splitlines()[0]))

    def test_names_and_kills_what_was_left_behind(self):
        code, out = self.contain(10, "setsid -f sh -c 'echo $$; exec sleep 99'")
        self.assertEqual(code, 125)
        self.assertIn("left behind: sleep", out)
        self.assert_gone(int(out.splitlines()[0]))


class PythonCases(unittest.TestCase):
    def run_file(self, body):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "test_sample.py")
            with open(path, "w", encoding="utf-8") as out:
                out.write("import unittest\nclass T(unittest.TestCase):\n")
                out.write(textwrap.indent(textwrap.dedent(body), "    "))
            done = subprocess.run(
                [sys.executable, os.path.join(TOOLS, "run_unittest_file.py"), path],
                capture_output=True,
                text=True,
                check=False,
            )
        passed, failed, skipped = run_tests.judge(
            run_tests.Job("x", []), done.returncode, done.stdout
        )
        return passed, len(failed), len(skipped)

    def test_good_and_bad_cases_are_counted(self):
        body = """
            def test_a(self): pass
            def test_b(self): self.fail("no")
            def test_c(self): raise OSError("gone")
        """
        self.assertEqual(self.run_file(body), (1, 2, 0))

    def test_a_failed_subtest_is_a_failure(self):
        body = """
            def test_a(self):
                for i in (1, 2):
                    with self.subTest(i=i): self.assertEqual(i, 1)
        """
        self.assertEqual(self.run_file(body)[1], 1)

    def test_a_class_that_cannot_be_set_up_fails(self):
        body = """
            @classmethod
            def setUpClass(cls): raise OSError("no daemon")
            def test_a(self): pass
        """
        passed, failed, _ = self.run_file(body)
        self.assertEqual(passed, 0)
        self.assertGreater(failed, 0)

    def test_a_file_that_does_not_load_fails(self):
        self.assertEqual(self.run_file("import no_such_module"), (0, 1, 0))


class Selection(unittest.TestCase):
    def test_a_name_that_fits_no_file_is_answered_with_those_there_are(self):
        done = subprocess.run(
            [sys.executable, os.path.join(TOOLS, "run_tests.py"), "--only", "no_such", "tools"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn('no test file matches "no_such"; there are: ', done.stderr)
        self.assertIn("test_run_tests", done.stderr)


if __name__ == "__main__":
    unittest.main()

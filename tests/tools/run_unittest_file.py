"""Runs the unittest cases of one file and prints their results as TAP.

    run_unittest_file.py FILE

The runner (run_tests.py) reads the same lines from C and Python tests: `ok N - name`,
`not ok N - name`, `ok N # SKIP name: reason`, and the plan `1..N` before the first.
"""

import importlib.util
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class TapResult(unittest.TestResult):
    """One line a case, as soon as it is known: a run that is cut short still tells how far it came."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.broken = False

    def line(self, verdict, separator, text):
        self.count += 1
        print(f"{verdict} {self.count} {separator} {text}", flush=True)

    def bad(self, test, trace):
        self.broken = True
        self.line("not ok", "-", test.id())
        for text in trace.rstrip().split("\n"):
            print(f"# {text}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line("ok", "-", test.id())

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.bad(test, self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.bad(test, self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line("ok", "# SKIP", f"{test.id()}: {reason}")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.bad(test, "an expected failure is not a result")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.bad(test, "an expected failure succeeded")

    def addSubTest(self, test, subtest, err):
        """unittest reports only the failed ones apart; the case as a whole then has no success."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            failures = self.failures if issubclass(err[0], test.failureException) else self.errors
            self.bad(subtest, failures[-1][1])


def load(path):
    """Imports the file under its own name, with its own folder and tests/support importable."""
    sys.path[:0] = [os.path.dirname(path), os.path.join(ROOT, "tests", "support")]
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def main(argv):
    suite = load(os.path.abspath(argv[1]))
    print(f"1..{suite.countTestCases()}", flush=True)
    result = TapResult()
    suite.run(result)
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""The test runner: several files at once, one closing line.

    run_tests.py [--verbose] [--only REGEX] [-j N] [--timeout S] SUITE...

A suite is KIND=BINDIR:
    unit=DIR         DIR/test_NAME of every tests/unit/test_NAME.c (cmocka)
    contract=DIR     the same of tests/contract
    property=DIR     the same of tests/property: the simulation of the lease core
    integration=DIR  tests/integration/test_*.py, with LEASEHOLD_BIN=DIR
    fuzz=DIR         DIR/fuzz_NAME over its corpus, once, of every tests/fuzz/fuzz_NAME.c
    memcheck=DIR     the unit suite under valgrind, and tests/memcheck/test_*.py
    tools            tests/tools/test_*.py: the checkers' own tests

Every file is a process of its own under contain.py, which ends it after the timeout with all that
it has started. A skipped case counts as failed unless its reason begins with "podman": what is
not run proves nothing. Output is shown of failed files, kept of all in build/test-logs/.
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import memcheck

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, "tests", "tools")
LOGS = os.path.join(ROOT, "build", "test-logs")
PYTHON = "/usr/bin/python3"

EXIT_NOT_STARTED = 127  # of contain.py

SHOWN_BYTES = 64 * 1024
SLOWEST_SHOWN = 5
SKIPS_ALLOWED = "podman"

# Whatever a test starts, and however that ends, says what it has found in a file of its own.
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
SANITIZER_REPORT = "report"

TAP_RESULT = re.compile(r"^(not )?ok \d+ (-|# SKIP) ?(.*)")
TAP_PLAN = re.compile(r"^1\.\.(\d+)$")


@dataclass
class Job:
    """One test file."""

    name: str
    command: list
    env: dict = field(default_factory=dict)
    tap: bool = True  # else the exit status is its one case
    weight: int = 0  # those with more start first: one long file at the end would run alone


@dataclass
class Outcome:
    job: Job
    seconds: float
    passed: int
    failed: list
    skipped: list
    output: str


# --- suites ----------------------------------------------------------------------------------


def sources(pattern):
    return sorted(glob.glob(os.path.join(ROOT, "tests", pattern)))


def stem(path):
    return os.path.splitext(os.path.basename(path))[0]


def c_suite(kind, bindir):
    """By source, not by what stands in the folder: a test whose build is missing must fail, and the
    program of a deleted one must not run."""
    for path in sources(f"{kind}/test_*.c"):
        program = os.path.join(bindir, stem(path))
        yield Job(job_name(kind, bindir, path), [program], {"CMOCKA_MESSAGE_OUTPUT": "tap"})


def python_suite(kind, bindir):
    env = {"LEASEHOLD_BIN": bindir} if bindir else {}
    for path in sources(f"{kind}/test_*.py"):
        command = [PYTHON, os.path.join(TOOLS, "run_unittest_file.py"), path]
        # What waits for a daemon takes time by the number of its cases.
        yield Job(job_name(kind, bindir, path), command, env, weight=os.path.getsize(path))


def memcheck_suite(kind, bindir):
    for path in sources("unit/test_*.c"):
        command = memcheck.command(os.path.join(bindir, stem(path)))
        yield Job(job_name(kind, bindir, path), command, {"CMOCKA_MESSAGE_OUTPUT": "tap"})
    yield from python_suite(kind, bindir)


def fuzz_suite(kind, bindir):
    for path in sources("fuzz/fuzz_*.c"):
        corpus = os.path.join(ROOT, "tests", "fuzz", "corpus", stem(path).removeprefix("fuzz_"))
        # An empty folder would be a target that nothing is fed to.
        command = [os.path.join(bindir, stem(path)), *sorted(glob.glob(corpus + "/*"))]
        if len(command) == 1:
            command = ["/bin/sh", "-c", f"echo 'no corpus in {corpus}'; exit 1"]
        yield Job(job_name(kind, bindir, path), command, tap=False)


SUITES = {
    "unit": c_suite,
    "contract": c_suite,
    "property": c_suite,
    "integration": python_suite,
    "memcheck": memcheck_suite,
    "tools": python_suite,
    "fuzz": fuzz_suite,
}


def job_name(kind, bindir, path):
    """integration/test_cut of the release build, unit.asan/test_token of another."""
    build = os.path.basename(os.path.dirname(bindir)) if bindir else ""
    label = "" if build in ("", "release", kind) else f".{build}"
    return f"{kind}{label}/{stem(path)}"


def suite_jobs(text):
    kind, _, bindir = text.partition("=")
    if kind not in SUITES or (kind == "tools") == bool(bindir):
        raise SystemExit(f"run_tests: no such suite: {text}\n{__doc__}")
    return list(SUITES[kind](kind, os.path.abspath(bindir) if bindir else ""))


# --- one file --------------------------------------------------------------------------------


def read_tap(output):
    """(passed, failed names, skipped texts). Cases that were planned and never reported failed."""
    passed, failed, skipped, planned = 0, [], [], 0
    for line in output.splitlines():
        plan = TAP_PLAN.match(line)
        if plan:
            planned += int(plan.group(1))
            continue
        result = TAP_RESULT.match(line)
        if not result:
            continue
        bad, kind, text = result.groups()
        if kind == "# SKIP":
            skipped.append(text)
        elif bad:
            failed.append(text)
        else:
            passed += 1
    missing = planned - passed - len(failed) - len(skipped)
    failed += ["(never reported)"] * missing
    return passed, failed, skipped


def judge(job, code, output):
    """What the file proves: its cases, and its own end."""
    if not job.tap:
        return (1, [], []) if code == 0 else (0, [f"exit status {code}"], [])
    passed, failed, skipped = read_tap(output)
    failed += [text for text in skipped if not skip_allowed(text)]
    if passed + len(failed) == 0 and not skipped:
        failed.append("not built" if code == EXIT_NOT_STARTED else "no case was run")
    if code != 0 and not failed:
        failed.append(f"exit status {code}")
    return passed, failed, [text for text in skipped if skip_allowed(text)]


def skip_allowed(text):
    return text.partition(": ")[2].startswith(SKIPS_ALLOWED)


def sanitizer_env(folder):
    os.chmod(folder, 0o1777)  # a door is another user
    path = f"log_path={folder}/{SANITIZER_REPORT}"
    return {name: f"{options}:{path}" for name, options in SANITIZERS.items()}


def sanitizer_reports(folder):
    for path in sorted(glob.glob(f"{folder}/{SANITIZER_REPORT}.*")):
        with open(path, encoding="utf-8", errors="replace") as text:
            yield text.read()


def run_job(job, timeout_s):
    with tempfile.TemporaryDirectory(prefix="sanitizer.") as folder:
        return run_watched(job, timeout_s, folder)


def run_watched(job, timeout_s, folder):
    command = [PYTHON, os.path.join(TOOLS, "contain.py"), str(timeout_s), "--", *job.command]
    log = os.path.join(LOGS, job.name.replace("/", "-") + ".log")
    started = time.monotonic()
    with open(log, "wb") as out:
        code = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **sanitizer_env(folder), **job.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    reports = list(sanitizer_reports(folder))
    with open(log, "a", encoding="utf-8") as out:
        out.writelines(reports)
    with open(log, encoding="utf-8", errors="replace") as text:
        output = text.read()
    passed, failed, skipped = judge(job, code, output)
    failed += ["a sanitizer's report"] * len(reports)
    return Outcome(job, time.monotonic() - started, passed, failed, skipped, output)


# --- report ----------------------------------------------------------------------------------


def show(outcome, verbose):
    verdict = "FAIL" if outcome.failed else "ok"
    counts = f"{outcome.passed} passed"
    if outcome.failed:
        counts += f", {len(outcome.failed)} failed"
    if outcome.skipped:
        counts += f", {len(outcome.skipped)} skipped"
    print(f"{verdict:4} {outcome.job.name:44} {counts} ({outcome.seconds:.1f} s)", flush=True)
    if outcome.failed or verbose:
        text = outcome.output[-SHOWN_BYTES:].rstrip()
        print("\n".join("     | " + line for line in text.splitlines()), flush=True)
    for name, times in Counter(outcome.failed).items():
        print(f"     failed: {name}" + (f" ({times})" if times > 1 else ""), flush=True)


def closing_line(outcomes):
    passed = sum(o.passed for o in outcomes)
    failed = sum(len(o.failed) for o in outcomes)
    skipped = sum(len(o.skipped) for o in outcomes)
    line = f"{passed} passed, {failed} failed"
    return (line + f", {skipped} skipped" if skipped else line), failed == 0 and passed > 0


def report(outcomes):
    slowest = sorted(outcomes, key=lambda o: -o.seconds)[:SLOWEST_SHOWN]
    print("slowest: " + ", ".join(f"{o.job.name} {o.seconds:.1f} s" for o in slowest))
    line, good = closing_line(outcomes)
    print(line, flush=True)
    return 0 if good else 1


def parse_args(argv):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("suites", nargs="+", metavar="SUITE")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--only", default="", metavar="REGEX")
    # Two more than there are processors: most files wait most of the time.
    parser.add_argument("-j", type=int, default=(os.cpu_count() or 1) + 2, dest="parallel")
    parser.add_argument("--timeout", type=float, default=900.0, dest="timeout_s")
    return parser.parse_args(argv)


def main(argv):
    args = parse_args(argv)
    every = [job for suite in args.suites for job in suite_jobs(suite)]
    jobs = [job for job in every if re.search(args.only, job.name)]
    if not jobs and every:
        names = ", ".join(job.name for job in every)
        print(f'no test file matches "{args.only}"; there are: {names}', file=sys.stderr)
        return 1
    os.makedirs(LOGS, exist_ok=True)
    jobs.sort(key=lambda job: -job.weight)
    outcomes = []
    with ThreadPoolExecutor(args.parallel) as pool:
        for outcome in pool.map(lambda job: run_job(job, args.timeout_s), jobs):
            show(outcome, args.verbose)
            outcomes.append(outcome)
    return report(outcomes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

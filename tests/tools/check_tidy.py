"""clang-tidy over the C files of the five folders: no finding at all (.clang-tidy says what counts).

    check_tidy.py BUILD_DIR [FILE...]

What was found clean stays so until the file, a header it includes, the way it is compiled, the
rules or clang-tidy itself change: build/tidy-clean/ holds the name of each such state.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import tree

FOLDERS = ("base/", "lease/", "storage/", "runtime/", "gateway/")
RULES = os.path.join(tree.ROOT, ".clang-tidy")
CLEAN = os.path.join(tree.ROOT, "build", "tidy-clean")


def entries(build_dir, only):
    """One command a file, even if two programs are built of it."""
    with open(os.path.join(build_dir, "compile_commands.json"), encoding="utf-8") as text:
        by_file = {os.path.relpath(e["file"], tree.ROOT): e for e in json.load(text)}
    for path, entry in sorted(by_file.items()):
        if path.startswith(FOLDERS) and (not only or path in only):
            yield path, entry


def output_of(command, folder=tree.ROOT):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def included(entry):
    """The files that the compiler reads for this one, itself among them."""
    words = shlex.split(entry["command"])[1:]
    at = words.index("-o")
    del words[at : at + 2]
    words = [word for word in words if word not in ("-c", "-MD") and not word.startswith("-o")]
    for flag in ("-MF", "-MT"):
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
    done = output_of(["clang", "-M", *words], entry["directory"])
    names = done.stdout.partition(":")[2].replace("\\\n", " ").split()
    return [os.path.join(entry["directory"], name) for name in names]


def digest_of(entry, common):
    """None if that cannot be told: then clang-tidy says why."""
    digest = hashlib.sha256(common + entry["command"].encode())
    names = included(entry)
    for name in names:
        with open(name, "rb") as text:
            digest.update(hashlib.sha256(text.read()).digest())
    return digest.hexdigest() if names else None


def check(path, entry, build_dir, common):
    digest = digest_of(entry, common)
    mark = os.path.join(CLEAN, digest) if digest else None
    if mark and os.path.exists(mark):
        os.utime(mark)
        return None
    done = output_of(["clang-tidy", "--quiet", "-p", build_dir, os.path.join(tree.ROOT, path)])
    if done.returncode == 0 and not done.stdout.strip():
        if mark:
            open(mark, "w", encoding="utf-8").close()
        return None
    return f"{path}:\n{done.stdout.strip() or done.stderr.strip()}"


def drop_old(keep):
    """The marks of states long past."""
    marks = sorted((os.path.join(CLEAN, name) for name in os.listdir(CLEAN)), key=os.path.getmtime)
    for mark in marks[:-keep]:
        os.unlink(mark)


def main(argv):
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    build_dir = os.path.abspath(argv[1])
    os.makedirs(CLEAN, exist_ok=True)
    with open(RULES, "rb") as rules:
        common = rules.read() + output_of(["clang-tidy", "--version"]).stdout.encode()
    work = list(entries(build_dir, argv[2:]))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = pool.map(lambda item: check(*item, build_dir, common), work)
        faults = [fault for fault in faults if fault]
    if not work:
        faults.append("nothing to check")
    drop_old(10 * max(len(work), 1))
    return tree.report("check_tidy", faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

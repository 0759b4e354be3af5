"""Compiles without linking, for two questions the build does not ask.

    check_compile.py headers           does every public header stand alone?
    check_compile.py clang BUILD_DIR   does clang agree with gcc that there is nothing to warn of?
"""

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import tree

PUBLIC = "include/leasehold/"
CLANG_ONLY = ["-Wno-sign-conversion", "-Wno-string-concatenation"]  # as in cmake/flags.cmake
WARNINGS = ["-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror"]


def header_commands():
    for path in tree.files(".h"):
        if path.startswith(PUBLIC):
            command = ["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Iinclude", "-fsyntax-only"]
            # Included by a file of its own: as the main file it could not use #pragma once.
            yield path, [*command, *WARNINGS, "-include", path, "-x", "c", "/dev/null"], tree.ROOT


def clang_commands(build_dir):
    with open(os.path.join(build_dir, "compile_commands.json"), encoding="utf-8") as text:
        entries = json.load(text)
    for entry in entries:
        words = shlex.split(entry["command"])[1:]
        at = words.index("-o")
        del words[at : at + 2]
        words.remove("-c")
        command = ["clang", "-fsyntax-only", *words, *CLANG_ONLY]
        yield entry["file"], command, entry["directory"]


def compile_one(item):
    name, command, folder = item
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f"{name}:\n{done.stderr}" if done.returncode else None


def main(argv):
    if argv[1:] == ["headers"]:
        commands = list(header_commands())
    elif len(argv) == 3 and argv[1] == "clang":
        commands = list(clang_commands(argv[2]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(compile_one, commands) if fault]
    if not commands:
        faults.append("nothing to compile")
    return tree.report("check_compile", faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

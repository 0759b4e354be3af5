"""Runs a program under valgrind's memcheck: an error or a definite leak becomes exit status 99.

    memcheck.py PROGRAM [ARGUMENT...]

Replaces itself, so the process id is the program's. What the program executes is not followed.
System calls that valgrind does not know are made by a helper (tests/memcheck).
"""

import os
import sys

VALGRIND = "/usr/bin/valgrind"  # a door has no PATH
OPTIONS = (
    "--quiet",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
    "--error-exitcode=99",
    "--num-callers=30",
)


def command(program, *args):
    folder = os.path.dirname(os.path.abspath(program))
    env = [f"LD_PRELOAD={folder}/memcheck_preload.so", f"MEMCHECK_HELPER={folder}/memcheck_helper"]
    return ["/usr/bin/env", *env, VALGRIND, *OPTIONS, program, *args]


if __name__ == "__main__":
    words = command(*sys.argv[1:])
    os.execv(words[0], words)

"""The project's own files, for the checkers. Paths are relative to the root, sorted."""

import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOREIGN = {"build", ".git", "__pycache__"}

STRING_OR_COMMENT = re.compile(
    r'"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'" r"|/\*.*?\*/" r"|//[^\n]*", re.DOTALL
)


def files(*suffixes, root=ROOT):
    """All files whose name ends in one of the suffixes; all files without suffixes."""
    found = []
    for folder, names, leaves in os.walk(root):
        names[:] = [name for name in names if name not in FOREIGN]
        for leaf in leaves:
            if not suffixes or leaf.endswith(suffixes):
                found.append(os.path.relpath(os.path.join(folder, leaf), root))
    return sorted(found)


def read(path, root=ROOT):
    with open(os.path.join(root, path), encoding="utf-8") as text:
        return text.read()


def code_only(text):
    """C source with comments and the contents of literals blanked, line numbers kept."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())

    return STRING_OR_COMMENT.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def report(name, faults):
    """Prints the faults; the exit status of a checker."""
    for fault in faults:
        print(fault)
    if faults:
        print(f"{name}: {len(faults)} faults")
    return 1 if faults else 0

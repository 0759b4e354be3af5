"""Text that must not stand in the tree: marks of unfinished work, unsafe calls, dead links."""

import os
import re
import sys

import tree

# Written apart, so that this file passes its own check.
MARKS = re.compile(r"\b(?:" + "|".join(("TO" "DO", "FIX" "ME", "X" "XX")) + r")\b")

# No bound, no error, static state or a shell. Tests may: the sanitizers watch them, no stranger
# feeds them.
CALLS = re.compile(
    r"\b(strcpy|stpcpy|strcat|sprintf|vsprintf|gets|atoi|atol|atoll|atof|strtok|system|popen"
    r"|tmpnam|mktemp|alloca)\s*\("
)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

SOURCES = (".c", ".h", ".py", ".sh", ".js", ".css", ".html", ".cmake", ".txt", ".md", ".yaml")
UNNAMED = {"Makefile", ".ci/run"}


def check_marks(path, text):
    for match in MARKS.finditer(text):
        yield f"{path}:{tree.line_of(text, match.start())}: {match.group()}: finish it or file it"


def check_calls(path, text):
    code = tree.code_only(text)
    for match in CALLS.finditer(code):
        yield f"{path}:{tree.line_of(code, match.start())}: {match.group(1)} is not used here"


def check_links(path, text, root):
    """Links to files of the tree must lead somewhere; the world outside is not asked."""
    prose = FENCE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for match in LINK.finditer(prose):
        target = match.group(1).partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            continue
        if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            yield f"{path}:{tree.line_of(prose, match.start())}: dead link {target}"


def check(root):
    faults = []
    for path in tree.files(root=root):
        if not path.endswith(SOURCES) and path not in UNNAMED:
            continue
        text = tree.read(path, root)
        faults += check_marks(path, text)
        if path.endswith((".c", ".h")) and not path.startswith("tests/"):
            faults += check_calls(path, text)
        if path.endswith(".md"):
            faults += check_links(path, text, root)
    return faults


if __name__ == "__main__":
    sys.exit(tree.report("check_text", check(tree.ROOT)))

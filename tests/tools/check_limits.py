"""Sizes: a function has at most 80 lines, a file at most 600 (tests are free of the second).

ctags knows where a C function ends; ast knows it for Python.
"""

import ast
import json
import statistics
import subprocess
import sys

import tree

FUNCTION_MAX = 80
FILE_MAX = 600


def c_functions(paths):
    """(path, line, name, lines) of every function definition."""
    command = ["ctags", "--languages=C", "--langmap=C:.c.h", "--kinds-C=f", "--fields=+ne"]
    command += ["--output-format=json", "-f", "-", "-L", "-"]
    done = subprocess.run(
        command, cwd=tree.ROOT, input="\n".join(paths), capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        tag = json.loads(line)
        yield tag["path"], tag["line"], tag["name"], tag["end"] - tag["line"] + 1


def python_functions(paths):
    for path in paths:
        for node in ast.walk(ast.parse(tree.read(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node.lineno, node.name, node.end_lineno - node.lineno + 1


def long_files(paths):
    for path in paths:
        lines = tree.read(path).count("\n")
        if lines > FILE_MAX and not path.startswith("tests/"):
            yield f"{path}: {lines} lines, {FILE_MAX} allowed"


def main():
    c_files, python_files = tree.files(".c", ".h"), tree.files(".py")
    of_c = list(c_functions(c_files))
    faults = [
        f"{path}:{line}: {name} has {lines} lines, {FUNCTION_MAX} allowed"
        for path, line, name, lines in [*of_c, *python_functions(python_files)]
        if lines > FUNCTION_MAX
    ]
    faults += long_files([*c_files, *python_files, *tree.files(".sh", ".js", ".css")])
    if of_c:
        median = statistics.median(lines for *_, lines in of_c)
        print(f"{len(of_c)} C functions, median {median:g} lines")
    return tree.report("check_limits", faults)


if __name__ == "__main__":
    sys.exit(main())

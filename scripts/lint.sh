#!/bin/bash
# All checks that run nothing of the project. The build with warnings as errors came before
# (BUILD_DIR: its compile_commands.json). Every step runs; the first failure decides the status.
#
#   scripts/lint.sh BUILD_DIR
#
# shellcheck disable=SC2317 # the checks are called by name, through step
set -euo pipefail
cd "$(dirname "$0")/.."

build_dir=${1:?usage: lint.sh BUILD_DIR}
failed=0

step() {
    local name=$1 output status=0
    shift
    output=$("$@" 2>&1) || status=$?
    if [ "$status" -eq 0 ]; then
        printf 'ok   %-10s %s\n' "$name" "${output##*$'\n'}"
    else
        printf 'FAIL %s\n%s\n' "$name" "$output"
        failed=1
    fi
}

# Not `git ls-files`: a clone of another owner is "dubious" to git when root lints it.
files() {
    local tests=()
    for pattern in "$@"; do
        tests+=(-o -name "$pattern")
    done
    find . \( -name build -o -name .git \) -prune -o -type f \( "${tests[@]:1}" \) -print | sort
}

tool() {
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "tests/tools/$1.py" "${@:2}"
}

check_format() {
    local faults
    faults=$(files '*.c' '*.h' | xargs clang-format --dry-run -Werror 2>&1 |
        sed -n 's/^\([^: ]*:[0-9]*\):[0-9]*: error: .*/\1/p' | sort -u -t: -k1,1) || true
    [ -z "$faults" ] || { printf '%s\n' "$faults" 'first faults of each file; run: make format'; exit 1; }
}

check_shell() {
    { files '*.sh'; printf '%s\n' .ci/run packaging/p*; } | xargs shellcheck
}

check_python() {
    # Compiled in memory: py_compile would leave its files in the tree.
    files '*.py' | xargs /usr/bin/python3 -c '
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as source:
        compile(source.read(), path, "exec", dont_inherit=True)'
}

step format check_format
step includes tool check_includes
step limits tool check_limits
step text tool check_text
step headers tool check_compile headers
step clang tool check_compile clang "$build_dir"
step tidy tool check_tidy "$build_dir"
step shell check_shell
step python check_python
step selftest tool run_tests tools
exit "$failed"

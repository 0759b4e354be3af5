#!/bin/bash
# Lets every fuzzer search for a while from its corpus. Finds stay in build/fuzz/found/; new inputs
# that reach further in build/fuzz/corpus/, the committed corpus is only read.
#
#   scripts/fuzz.sh SECONDS_EACH
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: fuzz.sh SECONDS_EACH}
failed=0
ran=0

for source in tests/fuzz/fuzz_*.c; do
    [ -e "$source" ] || break
    target=$(basename "$source" .c)
    name=${target#fuzz_}
    grown=build/fuzz/corpus/$name
    found=build/fuzz/found/$name
    mkdir -p "$grown" "$found"
    echo "fuzz: $name for $seconds s"
    "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$found/" "$grown" "tests/fuzz/corpus/$name" ||
        failed=1
    ran=$((ran + 1))
done

if [ "$ran" -eq 0 ]; then
    echo "fuzz: there is no target in tests/fuzz" >&2
    exit 1
fi
echo "fuzz: $ran targets, $([ "$failed" -eq 0 ] && echo nothing found || echo faults in build/fuzz/found)"
exit "$failed"

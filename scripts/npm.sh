#!/bin/bash
# Installs exactly what FROM/package-lock.json names into TO. Offline and quick when it is there. A
# failure is kept in TO/install.log and left to the test that needs the packages to tell.
#
#   scripts/npm.sh FROM TO
set -euo pipefail

from=${1:?usage: npm.sh FROM TO}
to=${2:?usage: npm.sh FROM TO}

mkdir -p "$to"
if [ -e "$to/installed" ] && cmp -s "$from/package-lock.json" "$to/installed"; then
    exit 0
fi
cp "$from/package.json" "$from/package-lock.json" "$to/"
# No scripts of packages: nothing of theirs runs before the test itself.
if (cd "$to" && npm ci --ignore-scripts --no-audit --no-fund </dev/null) >"$to/install.log" 2>&1; then
    cp "$to/package-lock.json" "$to/installed"
else
    echo "npm: the packages of $from cannot be installed; see $to/install.log" >&2
fi

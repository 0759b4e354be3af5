#!/bin/bash
# Installs the Debian packages of the named sections of packages.txt that are missing.
# Offline and quick when none is.
set -euo pipefail

list=$(dirname "$0")/../packages.txt

wanted() {
    awk -v sections=" $* " '
        { sub(/#.*/, "") }
        /^\[/ { gsub(/[][]/, ""); on = index(sections, " " $1 " "); next }
        on && NF { print $1 }' "$list" | sort -u
}

# By name, or as part of another package that is there: NodeSource's nodejs has npm in it, and
# Debian's npm cannot be installed beside it.
installed() {
    dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' |
        awk '$1 == "installed" { gsub(/\([^)]*\)|,/, ""); for (i = 2; i <= NF; i++) print $i }' | sort -u
}

if ! command -v dpkg-query >/dev/null; then
    echo "deps: this is not a Debian system; see packages.txt for what is needed" >&2
    exit 0
fi

mapfile -t want < <(wanted "$@")
mapfile -t missing < <(comm -23 <(printf '%s\n' "${want[@]}") <(installed))
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: missing ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "deps: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update </dev/null || echo "deps: apt-get update failed; going on with the lists at hand" >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null

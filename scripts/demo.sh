#!/bin/bash
# The main job, step by step, on the embedded defaults: SQLite, disk, the `local` engine.
# On a terminal the gateway stays up at the end; otherwise everything is taken down again.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${LEASEHOLD_BIN:-$root/build/release/bin}
unset LEASEHOLD_BIN # the daemon takes every LEASEHOLD_ variable for a key of its configuration
dir=$(mktemp -d /tmp/leasehold-demo.XXXXXX)
gateway=
clients=()

now_us() { echo $((${EPOCHREALTIME/./})); }
ms_since() { awk -v us=$(($(now_us) - $1)) 'BEGIN { printf "%.1f ms", us / 1000 }'; }
step=0
say() { step=$((step + 1)); printf '%2d. %-58s %s\n' "$step" "$1" "$2"; }
die() { echo "demo: $1" >&2; tail -n 20 "$dir/gateway.log" >&2; exit 1; }

# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt "$end" ] || die "waited in vain for $what"
        sleep 0.01
    done
}

lines_in() { [ "$(wc -l <"$1")" -ge "$2" ]; }
# One `ready` and no `reconnecting`: the connection was never made anew.
same_socket() {
    [ "$(grep -c '"event":"ready"' "$1")" = 1 ] || die "the connection was made anew"
    if has_event "$1" reconnecting || has_event "$1" closed; then die "the connection was lost"; fi
}
has_event() { grep -q "\"event\":\"$2\"" "$1"; }
ready_again() {
    kill -0 "$gateway" 2>/dev/null || die "the gateway has ended"
    [ "$(sed -n 2p "$dir/run/ready" 2>/dev/null)" = "$gateway" ]
}

start_gateway() {
    "$bin/leasehold" run --config "$dir/leasehold.yaml" >>"$dir/gateway.log" 2>&1 &
    gateway=$!
    wait_for 20 "the gateway" ready_again
    LEASEHOLD_URL=$(sed -n 1p "$dir/run/ready")
    LEASEHOLD_HTTP_PORT=${LEASEHOLD_URL##*:} # the same one after a restart
    export LEASEHOLD_URL LEASEHOLD_HTTP_PORT
}

admin() { "$bin/leasectl" --key-file "$dir/admin.key" --json "$@"; }
bot() { "$bin/leasectl" --key-file "$dir/bot.key" --json "$@"; }

# connect NAME: a client in the background; say lines to descriptor $in, read $dir/NAME.out.
connect() {
    mkfifo "$dir/$1.in"
    "$bin/leasectl" --key-file "$dir/bot.key" --json connect "$chat" --ttl "$2" \
        <"$dir/$1.in" >"$dir/$1.out" 2>"$dir/$1.events" &
    clients+=($!)
    exec {in}>"$dir/$1.in"
    wait_for 20 "the connection" has_event "$dir/$1.events" ready
}

clean_up() {
    local status=$?
    trap - EXIT INT TERM
    if [ -n "$gateway" ] && kill -0 "$gateway" 2>/dev/null; then
        admin sandbox ls --status running 2>/dev/null | jq -r '.items[].session_id' |
            while read -r id; do admin sandbox stop "$id" >/dev/null 2>&1 || true; done || true
        kill "$gateway" 2>/dev/null || true
        wait "$gateway" 2>/dev/null || true
    fi
    for pid in "${clients[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

echo "leasehold: the main job on the embedded defaults, in $dir"
echo

t=$(now_us)
"$bin/leasehold" init --dir "$dir" >/dev/null
say "init: configuration, signing key, admin key, store" "$(ms_since "$t")"

t=$(now_us)
LEASEHOLD_HTTP_PORT=0
export LEASEHOLD_HTTP_PORT
start_gateway
say "gateway up at $LEASEHOLD_URL" "$(ms_since "$t")"

t=$(now_us)
admin key create --name demo-bot --role bot --out "$dir/bot.key" >/dev/null
say "an API key for a bot, made by the admin" "$(ms_since "$t")"

t=$(now_us)
chat=$(bot chat create --user "$(cat /proc/sys/kernel/random/uuid)" --title demo | jq -r .chat_id)
say "chat $chat" "$(ms_since "$t")"

t=$(now_us)
opened=$(bot sandbox open "$chat" --lease)
session=$(jq -r .sandbox.session_id <<<"$opened")
say "sandbox opened with a lease in one call" "$(ms_since "$t")"
say "  door $(jq -r .grant.endpoint.url <<<"$opened"), network: $(jq -r .sandbox.isolation.network <<<"$opened")" ""

connect first 4
lease=$(sed -n 's/.*"event":"ready".*"lease_id":"\([^"]*\)".*/\1/p' "$dir/first.events")
t=$(now_us)
echo "hello, agent" >&"$in"
wait_for 10 "the agent's answer" lines_in "$dir/first.out" 1
say "leasectl connect: the agent answers \"$(tail -n1 "$dir/first.out")\"" "$(ms_since "$t")"

wait_for 20 "the renewal" has_event "$dir/first.events" renewed
t=$(now_us)
echo "still the same socket" >&"$in"
wait_for 10 "the agent's answer" lines_in "$dir/first.out" 2
same_socket "$dir/first.events"
say "the lease was renewed: \"$(tail -n1 "$dir/first.out")\"" "$(ms_since "$t")"

revoked=$(admin lease revoke "$lease" --wait 5000 --reason demo)
wait_for 10 "the cut" has_event "$dir/first.events" closed
say "the admin revoked it: closed with $(sed -n 's/.*"event":"closed".*"code":\([0-9]*\).*/\1/p' "$dir/first.events"), commit to confirmed cut" \
    "$(jq -r '.doors[0].latency_us / 1000' <<<"$revoked") ms"
exec {in}>&-

connect second 60
lease=$(sed -n 's/.*"event":"ready".*"lease_id":"\([^"]*\)".*/\1/p' "$dir/second.events")
{ kill -9 "$gateway" && wait "$gateway"; } 2>/dev/null || true
t=$(now_us)
echo "who needs a gateway" >&"$in"
wait_for 10 "the agent's answer" lines_in "$dir/second.out" 1
say "the gateway was killed with -9: \"$(tail -n1 "$dir/second.out")\"" "$(ms_since "$t")"
t=$(now_us)
start_gateway
took=$(ms_since "$t")
echo "welcome back" >&"$in"
wait_for 10 "the agent's answer" lines_in "$dir/second.out" 2
same_socket "$dir/second.events"
say "restarted, sandbox adopted, same connection: \"$(tail -n1 "$dir/second.out")\"" "$took"

t=$(now_us)
status=$(bot sandbox stop "$session" | jq -r .status)
took=$(ms_since "$t")
wait_for 10 "the cut" has_event "$dir/second.events" closed
say "sandbox $status; its lease is $(bot lease get "$lease" | jq -r .state)" "$took"
exec {in}>&-
session=

echo
if [ -t 0 ] && [ -t 1 ]; then
    echo "The gateway stays up at $LEASEHOLD_URL until you press Ctrl-C. In another terminal:"
    echo "  $bin/leasectl --url $LEASEHOLD_URL --key-file $dir/bot.key connect $chat"
    wait "$gateway" || true
else
    echo "done."
fi

#!/usr/bin/env bash
# Starts a server with three accounts and shows what each of them can do with the others, and what not.
#
#   run.sh [NUTHATCH]      the binary: target/release/nuthatch, else target/debug/nuthatch, by default
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
nuthatch=${1:-}
for build in release debug; do
    [ -n "$nuthatch" ] || [ ! -x "$repo/target/$build/nuthatch" ] || nuthatch=$repo/target/$build/nuthatch
done
[ -n "$nuthatch" ] || { echo "no nuthatch: cargo build, or name the binary" >&2; exit 2; }

nuthatch=$(realpath "$nuthatch")

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-accounts.XXXXXX")
server="" listener=""
trap 'for pid in $listener $server; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$work"' EXIT
cd "$work"
mkdir ports
"$nuthatch" serve -c "$here/server.conf" -p -1 -sd store --ports_file_dir ports >server.log 2>&1 &
server=$!
address=""
for _ in $(seq 1200); do
    address=$(cat ports/*.ports 2>/dev/null | grep -o '127\.0\.0\.1:[0-9]*' | head -1) && break
    kill -0 "$server" 2>/dev/null || { cat server.log >&2; exit 1; }
    sleep 0.1
done
[ -n "$address" ] || { cat server.log >&2; exit 1; }

# Runs a command of nuthatch as the user of an account.
as() {
    local user=$1
    shift
    "$nuthatch" --no-context -s "nats://$user:$user@$address" --timeout 60s "$@"
}
refused() {
    local what=$1
    shift
    if "$@" >refused.out 2>&1; then
        echo "not refused: $what" >&2
        cat refused.out >&2
        exit 1
    fi
    echo "refused: $what"
}
expect() { # what, found, text that must be in it
    [[ $2 == *"$3"* ]] || { echo "$1: expected $3, found: $2" >&2; exit 1; }
    echo "$1: $3"
}

as store stream add ORDERS --subjects 'orders.place.*' >/dev/null
expect "an order of SHOP is acknowledged by a stream of STORE" "$(as shop request buy.seeds 'three bags')" '"stream":"ORDERS"'
expect "STORE has it under its own subject" "$(as store stream info ORDERS --json)" '"messages": 1'
refused "a request of SHOP to STORE's own subject" as shop request orders.place.seeds x
refused "an order of AUDIT, which imports no service" as audit request buy.seeds x

across=(--js-api-prefix store.API)
expect "SHOP sees the stream through the imported API" "$(as shop "${across[@]}" stream ls)" ORDERS
as shop "${across[@]}" consumer add ORDERS desk --pull --ack explicit >/dev/null
expect "SHOP reads and acknowledges" "$(as shop "${across[@]}" consumer next ORDERS desk --ack)" "three bags"
refused "AUDIT asks for JetStream" as audit stream ls

as audit sub 'heard.>' --count 1 >heard.out &
listener=$!
for _ in $(seq 1200); do
    as store pub --quiet news.today 'the shop is open'
    kill -0 "$listener" 2>/dev/null || break
    sleep 0.1
done
wait "$listener"
listener=""
expect "AUDIT hears the news under its own subject" "$(cat heard.out)" "heard.today"
echo "all as it should be"

#!/usr/bin/env bash
# Starts a server that knows only an operator, brings it accounts while it runs, and shows what their users can do.
#
#   run.sh [NUTHATCH]      the binary: target/release/nuthatch, else target/debug/nuthatch, by default
#
# Needs go, for the tokens.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
nuthatch=${1:-}
for build in release debug; do
    [ -n "$nuthatch" ] || [ ! -x "$repo/target/$build/nuthatch" ] || nuthatch=$repo/target/$build/nuthatch
done
[ -n "$nuthatch" ] || { echo "no nuthatch: cargo build, or name the binary" >&2; exit 2; }
command -v go >/dev/null || { echo "go is needed, for the tokens" >&2; exit 2; }
nuthatch=$(realpath "$nuthatch")

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-operator.XXXXXX")
server=""
stop() { [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }; server=""; }
trap 'stop; rm -rf "$work"' EXIT
(cd "$here/tokens" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -o "$work/tokens" .)
cd "$work"
cp "$here/server.conf" .
./tokens init

start() {
    rm -rf ports
    mkdir ports
    "$nuthatch" serve -c server.conf -p -1 -sd store --ports_file_dir ports >>server.log 2>&1 &
    server=$!
    address=""
    for _ in $(seq 1200); do
        address=$(cat ports/*.ports 2>/dev/null | grep -o '127\.0\.0\.1:[0-9]*' | head -1) && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat server.log >&2
    exit 1
}

# Runs a command of nuthatch with the credentials of a user.
as() {
    local user=$1
    shift
    "$nuthatch" --no-context -s "nats://$address" --creds "$user.creds" --timeout 60s "$@"
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
# What `nsc push` sends.
push() {
    expect "the server takes account $1" "$(as admin request '$SYS.REQ.CLAIMS.UPDATE' "$(./tokens account "$@")")" "jwt updated"
}

start
refused "a user of an account that the server does not have" as store rtt
push STORE
push SHOP

as store stream add ORDERS --subjects 'orders.place.*' >/dev/null
expect "an order of SHOP, which has a permit, is acknowledged by a stream of STORE" "$(as shop request buy.seeds 'three bags')" '"stream":"ORDERS"'
expect "desk7 may order in its own name" "$(as desk7 request buy.desk7 'one bag')" '"seq":2'
refused "desk7 orders in another name" as desk7 request --timeout 2s buy.desk8 x
refused "SHOP has no JetStream" as shop stream ls

push SHOP desk7
refused "desk7 is revoked" as desk7 rtt
stop
start
expect "after a restart the accounts are there" "$(as store stream info ORDERS --json)" '"messages": 2'
refused "after a restart desk7 is still revoked" as desk7 rtt
echo "all as it should be"

#!/usr/bin/env bash
# Starts a hub and a leaf node and shows what crosses between their JetStream domains.
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

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-leaf.XXXXXX")
hub="" leaf=""
trap 'for pid in $leaf $hub; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$work"' EXIT
cd "$work"

# Starts a server: name, port for clients, configuration. Sets $started and $address.
serve() {
    # Somebody may hold a port that was ours a moment ago.
    for _ in 1 2 3 4 5; do
        try_serve "$@" && return
        sleep 2
    done
    cat "$1/log" >&2
    exit 1
}
try_serve() {
    mkdir -p "$1/ports"
    rm -f "$1"/ports/*
    "$nuthatch" serve -c "$3" -a 127.0.0.1 -p "$2" -sd "$1/store" --ports_file_dir "$1/ports" >"$1/log" 2>&1 &
    started=$!
    address=""
    for _ in $(seq 1200); do
        address=$(cat "$1"/ports/*.ports 2>/dev/null | grep -o '127\.0\.0\.1:[0-9]*' | head -1) && return
        kill -0 "$started" 2>/dev/null || return 1
        sleep 0.1
    done
    kill "$started"
    return 1
}
expect() { # what, text that must come, command
    local what=$1 text=$2 found=""
    shift 2
    for _ in $(seq 1200); do
        found=$("$@" 2>&1) || true
        [[ $found == *"$text"* ]] && { echo "$what: $text"; return; }
        sleep 0.1
    done
    echo "$what: expected $text, found: $found" >&2
    tail -20 hub/log leaf/log >&2
    exit 1
}

serve hub -1 "$here/hub.conf"
hub=$started at_hub=$address
port=$(grep -o 'leafnode connections on 127\.0\.0\.1:[0-9]*' hub/log | grep -o '[0-9]*$')
export HUB="nats-leaf://edge:edge@127.0.0.1:$port"
serve leaf -1 "$here/leaf.conf"
leaf=$started at_leaf=$address

at() { # address, command of nuthatch
    local where=$1
    shift
    "$nuthatch" --no-context -s "nats://$where" --timeout 60s "$@"
}
expect "a client of the leaf makes a stream in the hub's domain" '"state"' at "$at_leaf" request \
    '$JS.hub.API.STREAM.CREATE.ORDERS' '{"name":"ORDERS","subjects":["orders.>"]}'
expect "and lists it" ORDERS at "$at_leaf" --js-api-prefix '$JS.hub.API' stream ls
expect "the hub acknowledges what is published at the leaf" '"domain":"hub"' at "$at_leaf" request orders.seeds 'three bags'
at "$at_leaf" request '$JS.API.STREAM.CREATE.COPY' '{"name":"COPY","mirror":{"name":"ORDERS","external":{"api":"$JS.hub.API"}}}' >/dev/null
expect "the leaf has a mirror of it" '"messages": 1' at "$at_leaf" stream info COPY --json

kill "$hub"
wait "$hub" 2>/dev/null || true
hub=""
expect "the leaf works on while the hub is away" '"messages": 1' at "$at_leaf" stream info COPY --json
sed "s/127.0.0.1:-1/127.0.0.1:$port/" "$here/hub.conf" >hub.conf
serve hub "${at_hub##*:}" "$PWD/hub.conf"
hub=$started
at "$at_hub" request orders.bulbs 'a dozen' >/dev/null
expect "and goes on where it was when the hub is back" '"messages": 2' at "$at_leaf" stream info COPY --json
echo "all as it should be"

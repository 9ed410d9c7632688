#!/usr/bin/env bash
# Makes certificates, starts a server, and shows who gets in as whom and who does not.
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
command -v openssl >/dev/null || { echo "openssl is needed and not there" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-tls.XXXXXX")
server=""
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"
"$here/make-certs.sh" certs
mkdir ports
"$nuthatch" serve -c "$here/server.conf" -p -1 -sd store --ports_file_dir ports >server.log 2>&1 &
server=$!
url=""
for _ in $(seq 1200); do
    url=$(cat ports/*.ports 2>/dev/null | grep -o 'tls://127\.0\.0\.1:[0-9]*' | head -1) && break
    kill -0 "$server" 2>/dev/null || { cat server.log >&2; exit 1; }
    sleep 0.1
done
[ -n "$url" ] || { cat server.log >&2; exit 1; }

# Runs a command of nuthatch with somebody's certificate.
as() {
    local who=$1
    shift
    "$nuthatch" --no-context -s "$url" --timeout 60s \
        --tlsca certs/ca.pem --tlscert "certs/$who.pem" --tlskey "certs/$who.key" "$@"
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

expect "ada's certificate is that of the user" "$(as ada --json account info)" "ada@birds.example"
as ada stream add REPORTS --subjects 'reports.>' --defaults >/dev/null
as device pub --quiet reports.nest 'three eggs'
expect "carol's certificate is that of the user" "$(as carol --json account info)" "O=Birds, OU=ops, CN=carol"
expect "what the device wrote, carol reads" "$(as carol stream get REPORTS 1)" "three eggs"
refused "a device that wants to know about streams" as device stream ls
refused "a client without a certificate" \
    "$nuthatch" --no-context -s "$url" --timeout 60s --tlsca certs/ca.pem pub a b
refused "a certificate of another authority" as mallory pub a b
echo "all as it should be"

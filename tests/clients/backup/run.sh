#!/usr/bin/env bash
# Backs up and restores with jsm.go between two servers of ours and a nats-server (built by tests/peers.sh).
#
#   run.sh [--server-cmd "CMD ARGS"]
#
# Needs go; a missing tool is an error, never a skip. What is built goes to ../.cache/ (git-ignored).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
cache=$here/../.cache
# shellcheck source=../../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../../binary.sh
. "$repo/tests/binary.sh"
ready_limit_s=120
limit_s=900

server_cmd=""
while [ $# -gt 0 ]; do
    case $1 in
    --server-cmd) server_cmd=$2; shift 2 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
done

die() { echo "run.sh: $*" >&2; exit 2; }
command -v go >/dev/null || die "go is needed and not there"
theirs=${NATS_SERVER:-$repo/target/peers/nats-server}
[ -x "$theirs" ] || die "$theirs is absent: run tests/peers.sh once, or name a nats-server 2.15.2 with NATS_SERVER"
[ -n "$server_cmd" ] || server_cmd="$(nuthatch_binary "$repo") serve"

mkdir -p "$cache"
(cd "$here" && persistently go_fetch . && go_build -o "$cache/backup" .)

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-backup.XXXXXX")
pids=()
stop() {
    local pid
    for pid in "${pids[@]}"; do end_process "$pid"; done
    rm -rf "$work"
}
trap stop EXIT

# Starts a server on a random port; sets url.
start() {
    local name=$1
    shift
    mkdir -p "$work/$name/store" "$work/$name/ports"
    "$@" -js -sd "$work/$name/store" -a 127.0.0.1 -p -1 --ports_file_dir "$work/$name/ports" >"$work/$name/log" 2>&1 &
    pids+=($!)
    local deadline=$((SECONDS + ready_limit_s))
    url=""
    while [ -z "$url" ]; do
        kill -0 "${pids[-1]}" 2>/dev/null || { cat "$work/$name/log" >&2; die "$name ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$work/$name/log" >&2; die "$name was not ready in $ready_limit_s s"; }
        url=$(cat "$work/$name"/ports/*.ports 2>/dev/null | grep -o 'nats://127\.0\.0\.1:[0-9]*' | head -1) || sleep 0.1
    done
}

# shellcheck disable=SC2086  # the command may carry arguments
start ours $server_cmd; ours=$url
# shellcheck disable=SC2086
start other $server_cmd; other=$url
start theirs "$theirs"; theirs_url=$url
timeout -k 5 "$limit_s" "$cache/backup" --ours "$ours" --other "$other" --theirs "$theirs_url" || {
    echo "-- last lines of our server's log" && tail -20 "$work/ours/log"
    exit 1
}

#!/usr/bin/env bash
# Runs the shared scenario list (SCENARIOS.md) with unmodified third-party clients, each against a freshly started server.
#
#   run.sh [--server-cmd "CMD ARGS"] [--only id,id] [--install-only] [client ...]
#
# Clients: nats-py nats-go async-nats nats-js jnats (all by default). Needs python3 with venv, go, cargo, node with npm, and
# java, javac and mvn; a missing tool is an error, never a skip. What is downloaded or built goes to .cache/ (git-ignored).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=$here/.cache
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
all_clients=(nats-py nats-go async-nats nats-js jnats)
# A minute each where nothing else runs; only what hangs needs a limit.
client_limit_s=1200
ready_limit_s=120

server_cmd="" only="" install_only=false clients=()
while [ $# -gt 0 ]; do
    case $1 in
    --server-cmd) server_cmd=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --install-only) install_only=true; shift ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) clients+=("$1"); shift ;;
    esac
done
[ ${#clients[@]} -gt 0 ] || clients=("${all_clients[@]}")

die() { echo "run.sh: $*" >&2; exit 2; }

# Runs a command quietly; its output is shown only if it fails.
quiet() {
    local log=$cache/install.log
    "$@" >"$log" 2>&1 || { tail -50 "$log" >&2; die "failed: $*"; }
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || die "$tool is needed and not there"
    done
}

# True if the stamp of a client is not that of these files: then it must be installed again.
stale() {
    local client=$1 sum
    shift
    sum=$(cat "$@" | cksum)
    [ "$(cat "$cache/$client.stamp" 2>/dev/null)" != "$sum" ] || return 1
    new_stamp=$sum
}

stamp() { echo "$new_stamp" >"$cache/$1.stamp"; }

install_nats_py() {
    need python3
    stale nats-py "$here/nats-py/requirements.txt" || return 0
    rm -rf "$cache/nats-py"
    quiet python3 -m venv "$cache/nats-py"
    quiet persistently "$cache/nats-py/bin/pip" install --disable-pip-version-check -r "$here/nats-py/requirements.txt"
    stamp nats-py
}
run_nats_py() { PYTHONDONTWRITEBYTECODE=1 "$cache/nats-py/bin/python" "$here/nats-py/main.py" "$@"; }

install_nats_go() {
    need go
    (cd "$here/nats-go" && quiet persistently go_fetch . && quiet go_build -o "$cache/nats-go" .)
}
run_nats_go() { "$cache/nats-go" "$@"; }

install_async_nats() {
    need cargo
    quiet persistently cargo_fetch "$here/async-nats/Cargo.toml"
    quiet env CARGO_TARGET_DIR="$cache/async-nats" cargo build --locked --manifest-path "$here/async-nats/Cargo.toml"
}
run_async_nats() { "$cache/async-nats/debug/clients-async-nats" "$@"; }

install_nats_js() {
    need node npm
    stale nats-js "$here/nats-js/package.json" "$here/nats-js/package-lock.json" || return 0
    rm -rf "$cache/nats-js"
    mkdir -p "$cache/nats-js"
    cp "$here/nats-js/package.json" "$here/nats-js/package-lock.json" "$cache/nats-js/"
    quiet persistently npm ci --no-audit --no-fund --prefix "$cache/nats-js"
    stamp nats-js
}
run_nats_js() { NODE_PATH="$cache/nats-js/node_modules" node "$here/nats-js/main.js" "$@"; }

install_jnats() {
    need java javac mvn
    if stale jnats-jars "$here/jnats/pom.xml"; then
        rm -rf "$cache/jnats"
        quiet persistently mvn -B -f "$here/jnats/pom.xml" dependency:copy-dependencies -DoutputDirectory="$cache/jnats/jars"
        stamp jnats-jars
        rm -f "$cache/jnats.stamp"
    fi
    stale jnats "$here"/jnats/*.java || return 0
    rm -rf "$cache/jnats/classes"
    quiet javac -d "$cache/jnats/classes" -cp "$cache/jnats/jars/*" "$here"/jnats/*.java
    stamp jnats
}
run_jnats() { java -Xmx1g -cp "$cache/jnats/classes:$cache/jnats/jars/*" Main "$@"; }

server_pid="" work=""
stop_server() {
    [ -z "$server_pid" ] || end_process "$server_pid"
    [ -z "$work" ] || rm -rf "$work"
    server_pid="" work=""
}
trap stop_server EXIT

# Starts the server on a random port; sets url.
start_server() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-clients.XXXXXX")
    mkdir "$work/store" "$work/ports"
    # shellcheck disable=SC2086  # the command may carry arguments
    $server_cmd -js -c "$here/server.conf" -sd "$work/store" -a 127.0.0.1 -p -1 --ports_file_dir "$work/ports" \
        >"$work/server.log" 2>&1 &
    server_pid=$!
    local deadline=$((SECONDS + ready_limit_s))
    url=""
    while [ -z "$url" ]; do
        kill -0 "$server_pid" 2>/dev/null || { cat "$work/server.log" >&2; die "the server ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$work/server.log" >&2; die "the server was not ready in $ready_limit_s s"; }
        url=$(cat "$work"/ports/*.ports 2>/dev/null | grep -o 'nats://127\.0\.0\.1:[0-9]*' | head -1) || sleep 0.1
    done
}

summary="" failed=0
run_client() {
    local client=$1 out began=$SECONDS status=0 closing verdict=ok
    start_server
    echo "== $client ($url)"
    out=$work/client.out
    local args=(--url "$url")
    [ -z "$only" ] || args+=(--only "$only")
    export -f "run_${client//-/_}"
    export here cache
    timeout -k 5 "$client_limit_s" bash -c '"$@"' _ "run_${client//-/_}" "${args[@]}" 2>&1 | tee "$out" || status=$?
    closing=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -1) || closing="no closing line"
    kill -0 "$server_pid" 2>/dev/null || { closing="$closing; the server died"; status=1; }
    if [ $status -ne 0 ]; then
        verdict=FAILED failed=1
        echo "-- last lines of the server's log" && tail -20 "$work/server.log"
    fi
    summary+=$(printf '%-12s %-7s %4ds  %s' "$client" "$verdict" $((SECONDS - began)) "$closing")$'\n'
    stop_server
}

mkdir -p "$cache"
# Other scripts install from here too, maybe at the same time.
exec {lock}>"$cache/clients.lock"
flock "$lock"
for client in "${clients[@]}"; do
    declare -F "install_${client//-/_}" >/dev/null || die "unknown client $client (there are: ${all_clients[*]})"
    echo "installing $client"
    "install_${client//-/_}"
done
exec {lock}>&-
! $install_only || exit 0
[ -n "$server_cmd" ] || server_cmd="$(nuthatch_binary "$repo") serve"
for client in "${clients[@]}"; do run_client "$client"; done
printf '\n%s' "$summary"
exit $failed

#!/usr/bin/env bash
# What needs a listener of its own: /metrics for a Prometheus parser, websocket with nats.js in Node and in a real
# Chromium, TLS with nats.go, nats.js and jnats, operator mode with nats.go, the examples, and the programs and links
# of the documentation.
#
#   run.sh [--server-cmd "CMD ARGS"] [--install-only] [metrics|websocket|browser|tls|operator|callout|examples|docs ...]
#
# Needs python3 with venv, node with npm, go, cargo, java, openssl, and a Chromium (Debian: chromium; or CHROMIUM=…). A missing
# tool is an error, never a skip. As root or with sudo, a missing Chromium is installed with apt-get.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
clients=$(cd "$here/.." && pwd)
repo=$(cd "$here/../../.." && pwd)
cache=$clients/.cache
# shellcheck source=../../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../../binary.sh
. "$repo/tests/binary.sh"
all_parts=(metrics websocket browser tls operator callout examples docs)
# For each program of a part; only what hangs needs a limit.
part_limit_s=900
ready_limit_s=120
user=ada@birds.example

server_cmd="" install_only=false parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --server-cmd) server_cmd=$2; shift 2 ;;
    --install-only) install_only=true; shift ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) parts+=("$1"); shift ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")

die() { echo "run.sh: $*" >&2; exit 2; }

quiet() {
    local log=$cache/net-install.log
    "$@" >"$log" 2>&1 || { tail -50 "$log" >&2; die "failed: $*"; }
}

need() {
    local tool
    for tool in "$@"; do command -v "$tool" >/dev/null || die "$tool is needed and not there"; done
}

stale() { # name, files…: true if they have changed since `stamp`
    local name=$1 sum
    shift
    sum=$(cat "$@" | cksum)
    [ "$(cat "$cache/$name.stamp" 2>/dev/null)" != "$sum" ] || return 1
    new_stamp=$sum
}
stamp() { echo "$new_stamp" >"$cache/$1.stamp"; }

install_node() {
    need node npm
    stale net-node "$here/package.json" "$here/package-lock.json" || return 0
    rm -rf "$cache/net-node"
    mkdir -p "$cache/net-node"
    cp "$here/package.json" "$here/package-lock.json" "$cache/net-node/"
    quiet persistently npm ci --no-audit --no-fund --prefix "$cache/net-node"
    stamp net-node
}

install_metrics() {
    need python3
    stale net-python "$here/requirements.txt" || return 0
    rm -rf "$cache/net-python"
    quiet python3 -m venv "$cache/net-python"
    quiet persistently "$cache/net-python/bin/pip" install --disable-pip-version-check -r "$here/requirements.txt"
    stamp net-python
}

install_websocket() { install_node; need openssl; }

chromium() {
    local path
    for path in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome /usr/bin/google-chrome-stable; do
        [ -z "$path" ] || [ ! -x "$path" ] || { echo "$path"; return; }
    done
}

install_browser() {
    install_node
    [ -z "$(chromium)" ] || return 0
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    command -v apt-get >/dev/null || die "a Chromium is needed: install one, or name one with CHROMIUM=…"
    # Another apt-get may be at work on a machine that has just started.
    quiet persistently "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 update
    quiet persistently "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium
    [ -n "$(chromium)" ] || die "a Chromium is needed: install the package chromium, or name one with CHROMIUM=…"
}

install_tls() {
    need openssl go java javac
    install_node
    (cd "$clients/nats-go" && quiet persistently go_fetch ./tlscheck && quiet go_build -o "$cache/nats-go-tls" ./tlscheck)
    quiet "$clients/run.sh" --install-only jnats
    mkdir -p "$cache/net-java"
    quiet javac -d "$cache/net-java" -cp "$cache/jnats/jars/*" "$here/Tls.java"
}

install_operator() {
    need go
    (cd "$clients/nats-go" && quiet persistently go_fetch ./jwtcheck && quiet go_build -o "$cache/nats-go-jwt" ./jwtcheck)
}

install_callout() {
    need go
    (cd "$clients/nats-go" && quiet persistently go_fetch ./calloutcheck && quiet go_build -o "$cache/nats-go-callout" ./calloutcheck)
}

install_examples() {
    need openssl go
    (cd "$repo/examples/operator-jwt/tokens" && quiet persistently go_fetch .)
}

install_docs() {
    need git python3
    quiet "$clients/run.sh" --install-only nats-py nats-go nats-js jnats async-nats
}

server_pid="" work=""
stop_server() {
    [ -z "$server_pid" ] || end_process "$server_pid"
    server_pid=""
}
cleanup() {
    stop_server
    [ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT

# Starts the server with this configuration; sets nats, monitoring and websocket to its URLs.
start_server() {
    stop_server
    rm -rf "$work/ports" "$work/store"
    mkdir "$work/ports"
    if [ -n "${kept:-}" ]; then mv "$kept" "$work/store"; else mkdir "$work/store"; fi
    printf '%s\n' "$1" >"$work/server.conf"
    # shellcheck disable=SC2086  # the command may carry arguments
    (cd "$work" && exec $server_cmd -js -c server.conf -sd store -a 127.0.0.1 -p -1 --ports_file_dir ports) \
        >"$work/server.log" 2>&1 &
    server_pid=$!
    local deadline=$((SECONDS + ready_limit_s)) ports
    until ports=$(cat "$work"/ports/*.ports 2>/dev/null); do
        kill -0 "$server_pid" 2>/dev/null || { cat "$work/server.log" >&2; die "the server ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$work/server.log" >&2; die "the server was not ready in $ready_limit_s s"; }
        sleep 0.1
    done
    nats=$(grep -oE '(nats|tls)://127\.0\.0\.1:[0-9]+' <<<"$ports" | head -1) || nats=""
    monitoring=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' <<<"$ports" | head -1) || monitoring=""
    websocket=$(grep -oE 'wss?://127\.0\.0\.1:[0-9]+' <<<"$ports" | head -1) || websocket=""
}

limited() { timeout -k 5 "$part_limit_s" "$@"; }

users='authorization { timeout: 60, users: [
    { user: web, password: web, allowed_connection_types: [WEBSOCKET] }
    { user: tcp, password: tcp, allowed_connection_types: [STANDARD] } ] }'

run_metrics() {
    start_server 'http: "127.0.0.1:-1"'
    limited "$cache/net-python/bin/python" "$here/metrics.py" "$monitoring/metrics" "$repo/docs/metrics.md"
}

run_websocket() {
    "$repo/examples/tls-verify-and-map/make-certs.sh" "$work/certs"
    start_server "$users
        websocket { host: 127.0.0.1, port: -1, no_tls: true, compression: true }"
    local plain_pid=$server_pid plain=$websocket
    server_pid=""
    mv "$work/ports" "$work/ports-plain"
    mv "$work/store" "$work/store-plain"
    start_server "$users
        websocket { host: 127.0.0.1, port: -1, compression: true
            tls { cert_file: certs/server.pem, key_file: certs/server.key, timeout: 60 } }"
    local status=0
    NODE_PATH=$cache/net-node/node_modules limited node "$here/websocket.js" "$plain" "$websocket" "$work/certs/ca.pem" || status=$?
    kill "$plain_pid" && wait "$plain_pid" 2>/dev/null || true
    return $status
}

run_browser() {
    local status=0
    for _ in 1 2 3; do
        status=0
        try_browser || status=$?
        [ $status -eq 75 ] || break
    done
    return $status
}
try_browser() { # 75: the port of the page was taken by somebody else
    local page_port
    page_port=$(node -e 's=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
    start_server "$users
        websocket { host: 127.0.0.1, port: -1, no_tls: true, compression: true
            allowed_origins: [\"http://127.0.0.1:$page_port\"] }"
    CHROMIUM=$(chromium) NODE_PATH=$cache/net-node/node_modules limited node "$here/browser.js" "$websocket" "$page_port"
}

tls_block() { # more keys
    echo "tls { cert_file: certs/server.pem, key_file: certs/server.key, ca_file: certs/ca.pem, timeout: 60
        verify_and_map: true, $1 }
        authorization { users: [ { user: \"$user\" } ] }"
}

run_tls() {
    "$repo/examples/tls-verify-and-map/make-certs.sh" "$work/certs"
    local name
    openssl pkcs12 -export -in "$work/certs/ada.pem" -inkey "$work/certs/ada.key" -out "$work/certs/ada.p12" -passout pass:changeit
    keytool -importcert -noprompt -alias ca -file "$work/certs/ca.pem" -keystore "$work/certs/ca.p12" \
        -storetype PKCS12 -storepass changeit 2>/dev/null
    check() { # when
        limited "$cache/nats-go-tls" "$nats" "$work/certs" "$user" "$1"
        NODE_PATH=$cache/net-node/node_modules limited node "$here/tls.js" "$nats" "$work/certs" "$user" "$1"
        limited java -cp "$cache/net-java:$cache/jnats/jars/*" Tls "$nats" "$work/certs" "$user" "$1"
    }
    start_server "$(tls_block 'handshake_first: false')"
    check after
    start_server "$(tls_block 'handshake_first: true')"
    check first
    # Far longer than auto's 50 ms, within which a cold virtual machine on a busy computer may not begin; who waits for
    # INFO need not wait long.
    start_server "$(tls_block 'handshake_first: "60s"')"
    check first
    start_server "$(tls_block 'handshake_first: "200ms"')"
    check after
}

# Operator mode; the accounts' directory stays when the server is started again, and so does the store.
run_operator() {
    local conf
    conf=$(limited "$cache/nats-go-jwt" setup "$work/tokens")
    start_server "$conf"
    limited "$cache/nats-go-jwt" run "$nats" "$work/tokens"
    stop_server
    mv "$work/store" "$work/store-kept"
    kept=$work/store-kept start_server "$conf"
    limited "$cache/nats-go-jwt" after "$nats" "$work/tokens"
}

run_callout() {
    mkdir -p "$work/callout"
    start_server "$(limited "$cache/nats-go-callout" config "$work/callout")"
    limited "$cache/nats-go-callout" run "$nats" "$work/callout"
}

run_examples() {
    local example
    for example in "$repo"/examples/*/run.sh; do
        echo "-- ${example#"$repo/"}"
        limited "$example" "${server_cmd%% *}"
    done
}

# Each page on a server of its own.
run_docs() {
    python3 -B "$clients/docs/pages.py" links "$repo"
    local page
    for page in "$repo"/docs/*/*.md "$repo"/docs/patterns.md; do
        grep -q '^```' "$page" || continue
        start_server 'max_payload: 1MB'
        limited python3 -B "$clients/docs/pages.py" run "$repo" "$cache" "$nats" "$page"
    done
}

mkdir -p "$cache"
for part in "${parts[@]}"; do
    declare -F "install_$part" >/dev/null || die "unknown part $part (there are: ${all_parts[*]})"
    echo "installing what $part needs"
    "install_$part"
done
! $install_only || exit 0
[ -n "$server_cmd" ] || server_cmd="$(nuthatch_binary "$repo") serve"
work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-net.XXXXXX")
failed=0
for part in "${parts[@]}"; do
    echo "== $part"
    status=0
    # In the background: a list with || would switch off errexit inside.
    (trap stop_server EXIT; "run_$part") &
    wait $! || status=$?
    if [ $status -ne 0 ]; then
        failed=1
        echo "FAILED: $part"
        [ ! -e "$work/server.log" ] || tail -20 "$work/server.log"
    fi
done
exit $failed

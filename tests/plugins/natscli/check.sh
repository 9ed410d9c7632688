#!/usr/bin/env bash
# NATS's own command line as an operator uses it: its `top` (which was the program nats-top), its Prometheus exporter of checks, its
# checks and reports of servers (what surveyor asks for), its publishers of batches, backups and traces, each of a server of ours. check.sh SERVER NATS DIRECTORY
set -euo pipefail
server=$1 nats=$2 dir=$3
mkdir -p "$dir"
export HOME=$dir XDG_CONFIG_HOME=$dir/config
cat >"$dir/server.conf" <<CONFIG
host: 127.0.0.1
port: -1
server_name: plug
jetstream { store_dir: "$dir/store" }
system_account: SYS
accounts {
  SYS: { users: [{ user: sys, password: pw }] }
  A: { jetstream: enabled, users: [{ user: a, password: pw }] }
}
CONFIG
"$server" serve -c "$dir/server.conf" --console off >"$dir/server.log" 2>&1 &
pids=$!
# What runs in the background is started as itself and not by a function, so that $! is its id.
# Called by the trap.
# shellcheck disable=SC2329
ended() {
    for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap ended EXIT
failed() { echo "natscli: $*" >&2; exit 1; }
for _ in $(seq 600); do ! grep -q 'Server is ready' "$dir/server.log" || break; sleep 0.1; done
port=$(sed -n 's/.*client connections on 127.0.0.1:\([0-9]*\).*/\1/p' "$dir/server.log" | head -1)
[ -n "$port" ] || { cat "$dir/server.log" >&2; failed "the server did not start"; }
user() { "$nats" --server "nats://a:pw@127.0.0.1:$port" "$@"; }
system() { "$nats" --server "nats://sys:pw@127.0.0.1:$port" "$@"; }
# Says what is wrong if a text does not have every word.
expect() {
    local what=$1 text=$2
    shift 2
    for word in "$@"; do
        grep -qF -- "$word" <<<"$text" || { printf '%s\n' "$text" >&2; failed "$what: there is no \"$word\""; }
    done
}

user stream add ORDERS --subjects 'orders.>' --defaults >/dev/null
user consumer add ORDERS worker --pull --defaults >/dev/null
user pub orders.new 'hello {{.Count}}' --count 100 >/dev/null 2>&1
user kv add settings >/dev/null
user kv put settings mode fast >/dev/null
"$nats" --server "nats://a:pw@127.0.0.1:$port" --connection-name watcher sub 'orders.>' >/dev/null 2>&1 &
pids+=" $!"

# nats-top: the first look, to a file.
for _ in $(seq 100); do
    system top plug --output "$dir/top.txt" --subs
    ! grep -q watcher "$dir/top.txt" || break
    sleep 0.1
done
expect "nats top" "$(cat "$dir/top.txt")" "NATS server version" "(uptime:" "Connections Polled:" watcher "orders.>"
echo "natscli: top"

# What surveyor asks of every server: VARZ, JSZ, CONNZ, ACCOUNTZ, STATSZ.
expect "server ls" "$(system server ls 1)" plug
expect "server ping" "$(system server ping 1)" plug
expect "server info" "$(system server info plug)" plug JetStream
expect "report jetstream" "$(system server report jetstream --account A)" plug
expect "report connections" "$(system server report connections)" watcher
expect "report accounts" "$(system server report accounts)" SYS A
for what in variables connections jetstream accounts subscriptions gateways routes leafnodes; do
    expect "request $what" "$(system server request "$what" 1)" '"server"' '"plug"'
done
echo "natscli: reports"

expect "check connection" "$(user server check connection)" "OK Connection"
expect "check stream" "$(user server check stream --stream ORDERS --msgs-warn 10 --msgs-critical 5)" "OK ORDERS"
expect "check consumer" "$(user server check consumer --stream ORDERS --consumer worker)" "OK ORDERS_worker"
expect "check message" "$(user server check message --stream ORDERS --subject orders.new)" "OK Stream Message"
expect "check kv" "$(user server check kv --bucket settings --key mode)" "OK settings"
expect "check jetstream" "$(user server check jetstream)" "OK JetStream"
expect "check server" "$(system server check server --name plug)" "OK plug"
expect "check request" "$(user reply ping pong --count 1 >/dev/null 2>&1 & sleep 1; user server check request --subject ping)" "OK ping"
echo "natscli: checks"

# The publishers of level 5 and of batches: as many messages are there as each says it has published.
for kind in sync async atomic fast; do
    user bench js pub "$kind" "bench.$kind" --create --stream "BENCH_$kind" --msgs 5000 --size 128 --storage file --no-progress >"$dir/bench.txt" 2>&1 \
        || { cat "$dir/bench.txt" >&2; failed "bench js pub $kind"; }
    stored=$(user stream info "BENCH_$kind" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"]["messages"])')
    [ "$stored" = 5000 ] || { cat "$dir/bench.txt" >&2; failed "bench js pub $kind: $stored messages are stored, not 5000"; }
done
expect "bench js fetch" "$(user bench js fetch --stream BENCH_fast --consumer bench --msgs 5000 --no-progress 2>&1)" "5,000"
echo "natscli: publishers"

# A backup, and the stream as it was from that.
list() { user stream get "$1" --last-for orders.new --json | python3 -c 'import json, sys; m = json.load(sys.stdin); print(m["seq"], m["data"])'; }
before=$(list ORDERS)
user stream backup ORDERS "$dir/backup" --no-progress >/dev/null 2>"$dir/backup.txt" || { cat "$dir/backup.txt" >&2; failed "stream backup"; }
user stream rm ORDERS --force >/dev/null
user stream restore "$dir/backup" --no-progress >/dev/null 2>"$dir/backup.txt" || { cat "$dir/backup.txt" >&2; failed "stream restore"; }
[ "$(list ORDERS)" = "$before" ] || failed "the restored stream ends with $(list ORDERS), not $before"
expect "consumer of the restored stream" "$(user consumer ls ORDERS --names)" worker
echo "natscli: backup"

# Where a message goes: with --deliver it goes there.
expect "trace" "$(user trace orders.new traced 2>&1)" "ORDERS" "orders.new"
[ "$(list ORDERS)" = "$before" ] || failed "a trace alone stored a message"
expect "trace --deliver" "$(user trace --deliver orders.new traced 2>&1)" "ORDERS"
[ "$(list ORDERS)" != "$before" ] || failed "a trace that delivers stored nothing"
echo "natscli: trace"

# The exporter, as Prometheus reads it.
printf '{"url": "nats://127.0.0.1:%s", "user": "a", "password": "pw"}' "$port" >"$dir/user.json"
printf '{"url": "nats://127.0.0.1:%s", "user": "sys", "password": "pw"}' "$port" >"$dir/system.json"
cat >"$dir/checks.yaml" <<CHECKS
context: $dir/user.json
checks:
  - { name: connected, kind: connection, properties: {} }
  - { name: orders, kind: stream, properties: { stream_name: ORDERS, min_messages: 1 } }
  - { name: worker, kind: consumer, properties: { stream_name: ORDERS, consumer_name: worker } }
  - { name: settings, kind: kv, properties: { bucket: settings } }
  - { name: account, kind: jetstream, properties: {} }
  - { name: server, kind: server, context: $dir/system.json, properties: { name: plug } }
CHECKS
exported=$(python3 "$(dirname "$0")/../../ports.py")
"$nats" --server "nats://a:pw@127.0.0.1:$port" server check exporter --config "$dir/checks.yaml" --port "$exported" >"$dir/exporter.log" 2>&1 &
pids+=" $!"
metrics=""
for _ in $(seq 100); do
    metrics=$(python3 -c "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:$exported/metrics', timeout=30).read().decode())" 2>/dev/null) && break
    sleep 0.1
done
codes=$(grep -E '^nats_server_check_[a-z]+_status_code\{' <<<"$metrics" || true)
# A check that fails is told with another code than 0.
bad=$(grep -v ' 0$' <<<"$codes" || true)
[ -z "$bad" ] || { cat "$dir/exporter.log" >&2; failed "the exporter: $bad"; }
[ "$(wc -l <<<"$codes")" -eq 6 ] || { printf '%s\n' "$metrics" >&2; failed "the exporter tells not of six checks: $codes"; }
expect "exporter" "$metrics" 'nats_server_check_server_uptime{item="server"}' 'nats_server_check_stream_sources{item="orders"} 0'
echo "natscli: exporter"

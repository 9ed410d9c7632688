#!/usr/bin/env bash
# What packaging/ has for Prometheus and Grafana, against the real server: promtool on /metrics, on the rules and on their
# unit tests; then a Prometheus scrapes a server at work and many with trouble for some minutes, and each expression of each
# dashboard must have a value, each rule be evaluated, and each alert fire about a server that has its trouble, and about none
# without (troubles.py makes most of them). The first servers send to a small OTLP collector, so the binary must have the
# feature `otlp`.
#
#   run.sh [--server-cmd "CMD ARGS"] [--install-only]
#
# Needs python3, and prometheus with promtool: from the PATH, else unpacked from the Debian package into target/prometheus
# (nothing is installed; apt-get update, as root or with sudo, only where there are no package lists). A missing tool is an
# error, never a skip.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
unpacked=$repo/target/prometheus
ready_limit_s=120
# Each stage of the check; only what hangs needs a limit.
stage_limit_s=300

server_cmd="" install_only=false
while [ $# -gt 0 ]; do
    case $1 in
    --server-cmd) server_cmd=$2; shift 2 ;;
    --install-only) install_only=true; shift ;;
    *) echo "run.sh: unknown argument $1" >&2; exit 2 ;;
    esac
done

die() { echo "run.sh: $*" >&2; exit 2; }

fetch_package() { (cd "$unpacked" && apt-get -q download prometheus >/dev/null); }

install_prometheus() {
    PATH=$PATH:$unpacked/usr/bin
    if command -v promtool >/dev/null && command -v prometheus >/dev/null; then return 0; fi
    command -v apt-get >/dev/null || die "prometheus and promtool are needed: install them"
    mkdir -p "$unpacked"
    if ! fetch_package 2>/dev/null; then
        local root=()
        [ "$(id -u)" = 0 ] || root=(sudo -n)
        persistently "${root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null
        persistently fetch_package
    fi
    dpkg-deb -x "$unpacked"/prometheus_*.deb "$unpacked"
    rm -f "$unpacked"/prometheus_*.deb
    command -v promtool >/dev/null || die "the package prometheus has no promtool"
}

command -v python3 >/dev/null || die "python3 is needed and not there"
install_prometheus
! $install_only || exit 0
[ -n "$server_cmd" ] || server_cmd="$(nuthatch_binary "$repo") serve"
# The client commands are in the same file.
nuthatch=${server_cmd%% *}

work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-monitoring.XXXXXX")
# No context of whoever runs this counts.
export XDG_CONFIG_HOME=$work/config
started=()
cleanup() {
    local pid
    for pid in "${started[@]:-}"; do [ -z "$pid" ] || end_process "$pid"; done
    rm -rf "$work"
}
trap cleanup EXIT

# Starts a server in its own directory below $work; sets nats and monitoring to its URLs. With a size its store is a file
# system of that size, in a mount namespace of its own.
start_server() { # name, sync_interval, size of the store
    local dir=$work/$1 inside=() tier="tier { store: \"file://$work/$1/tier\", local_max: 8MB }"
    if [ -n "${3-}" ]; then
        # Nothing may make room.
        tier=""
        inside=(unshare --mount)
        [ "$(id -u)" = 0 ] || inside+=(--user --map-root-user)
        # shellcheck disable=SC2016  # for the shell inside
        inside+=(sh -c 'mount -t tmpfs -o size="$0" store store && exec "$@"' "$3")
    fi
    mkdir -p "$dir/ports" "$dir/store" "$dir/tier" "$dir/cold"
    cat >"$dir/server.conf" <<CONF
server_name: $1
http: "127.0.0.1:-1"
accounts {
    SHOP {
        users: [{ user: shop, password: shop }]
        jetstream { max_file: 8GB, max_mem: 1GB, max_streams: 100, max_consumers: 100 }
    }
}
no_auth_user: shop
otlp { endpoint: "http://127.0.0.1:$(cat "$work/otlp/port")", interval: 1s }
jetstream {
    sync_interval: $2
    max_file: 16GB
    max_mem: 2GB
    $tier
    logs { cold { store: "file://$dir/cold", cache { dir: "$dir/cache", max_bytes: 16MB } } }
}
CONF
    # shellcheck disable=SC2086  # the command may carry arguments
    (cd "$dir" && exec "${inside[@]}" $server_cmd -js -c server.conf -sd store -a 127.0.0.1 -p -1 --ports_file_dir ports) \
        >"$dir/server.log" 2>&1 &
    started+=($!)
    local deadline=$((SECONDS + ready_limit_s)) ports
    until ports=$(cat "$dir"/ports/*.ports 2>/dev/null); do
        kill -0 $! 2>/dev/null || { cat "$dir/server.log" >&2; die "the server $1 ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$dir/server.log" >&2; die "the server $1 was not ready in $ready_limit_s s"; }
        sleep 0.1
    done
    nats=$(grep -oE 'nats://127\.0\.0\.1:[0-9]+' <<<"$ports" | head -1)
    monitoring=$(grep -oE '127\.0\.0\.1:[0-9]+' <<<"${ports#*monitoring}" | head -1)
}

# Two streams, in the log with a tier and in that in a bucket, with a consumer each, which takes what is new.
make_streams() { # url
    "$nuthatch" -s "$1" stream add ORDERS --subjects 'orders.>' --max-bytes 1GB --max-msgs 10000000
    "$nuthatch" -s "$1" stream add COLD --subjects 'cold.>' --tag log:cold
    "$nuthatch" -s "$1" consumer add ORDERS workers --filter orders.new --wait 1s
    "$nuthatch" -s "$1" consumer add COLD workers --filter cold.new --wait 1s
}

# More than may stay on the local disk.
fill() { # url, subject, messages
    "$nuthatch" -s "$1" bench js pub --no-create --stream ORDERS --subject "$2" --msgs "${3-1500}" --size 16KiB
}

# Publishes that nobody takes, until it is ended.
fall_behind() { # url
    while kill -0 $$; do
        "$nuthatch" -s "$1" pub -q -J orders.new more --count 20
        sleep 0.5
    done
}

# A little of everything, until it is ended: publishes to both logs, acknowledged and redelivered messages, reads.
work_on() { # url
    set +e
    while kill -0 $$; do
        "$nuthatch" -s "$1" pub -q -J orders.new '{{Random 200 400}}' --count 20
        "$nuthatch" -s "$1" pub -q -J cold.new '{{Random 200 400}}' --count 5
        "$nuthatch" -s "$1" consumer next ORDERS workers --no-ack --wait 1s
        "$nuthatch" -s "$1" consumer next ORDERS workers --count 50 --wait 1s
        "$nuthatch" -s "$1" consumer next COLD workers --count 5 --wait 1s
        "$nuthatch" -s "$1" stream get COLD 1 --raw
        sleep 0.2
    done
}

# What is told only after minutes or hours, or beyond a GiB, is told after seconds, and beyond a MiB.
hasten() {
    sed -E 's/for: [0-9]+[smh]$/for: 2s/; s/\[(2m|5m|15m|30m|1h)\]/[1m]/g; s/\[1d\] offset 1h/[1m] offset 20s/; s/> 3600$/> 20/
        s/1024 \* 1024 \* 1024$/1024 * 1024/; s/512 \* 1024 \* 1024$/8 * 1024 * 1024/' "$repo/packaging/prometheus/rules.yml"
}

start_prometheus() {
    hasten >"$work/rules.yml"
    cat >"$work/prometheus.yml" <<CONF
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ["$work/rules.yml"]
scrape_configs:
  - job_name: nuthatch
    static_configs: [{ targets: ["$sound", "$troubled", "$full", "127.0.0.1:1"] }]
    file_sd_configs: [{ files: ["$work/troubles/targets.json"] }]
CONF
    promtool check config "$work/prometheus.yml"
    prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
        --web.listen-address=127.0.0.1:0 >"$work/prometheus.log" 2>&1 &
    started+=($!)
    local deadline=$((SECONDS + ready_limit_s))
    until prometheus=$(grep -oE '"Listening on" address=127\.0\.0\.1:[0-9]+' "$work/prometheus.log" | grep -oE '127.*'); do
        kill -0 $! 2>/dev/null || { cat "$work/prometheus.log" >&2; die "prometheus ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$work/prometheus.log" >&2; die "prometheus does not listen"; }
        sleep 0.1
    done
}

check() { # stage, arguments…
    timeout -k 5 "$stage_limit_s" python3 "$here/check.py" "$repo" "$@"
}

promtool test rules "$here/rules.test.yml"
check files

mkdir "$work/otlp" "$work/troubles"
python3 "$here/collector.py" "$work/otlp" >"$work/collector.log" 2>&1 &
started+=($!)
until [ -f "$work/otlp/port" ]; do kill -0 $! || { cat "$work/collector.log" >&2; die "the collector ended"; }; sleep 0.1; done

start_server sound always
sound=$monitoring sound_nats=$nats
start_server troubled never
troubled=$monitoring troubled_nats=$nats
start_server full always 96m
full=$monitoring full_nats=$nats
make_streams "$sound_nats" >/dev/null
make_streams "$troubled_nats" >/dev/null
fill "$sound_nats" orders.bulk >/dev/null
work_on "$sound_nats" >/dev/null 2>"$work/load.log" &
started+=($!)
python3 "$here/troubles.py" "$nuthatch" "$work/troubles" >"$work/troubles.log" 2>&1 &
troubles=$!
started+=("$troubles")
until [ -f "$work/troubles/targets.json" ]; do
    kill -0 "$troubles" 2>/dev/null || { cat "$work/troubles.log" >&2; die "servers for trouble do not start"; }
    sleep 0.1
done
start_prometheus
check scraped "$prometheus" "$sound" "$troubled" "$full"
check dashboards "$prometheus" "$sound" "$(cat "$work/troubles/node")"
# From here on troubles.py makes its own.
echo "$prometheus" >"$work/troubles/address" && mv "$work/troubles/address" "$work/troubles/prometheus"

# The trouble: both buckets are gone. The log in one stops with the next publish, nothing moves to the other, and nobody
# reads what is published meanwhile.
rm -rf "$work/troubled/cold" "$work/troubled/tier"
: >"$work/troubled/tier"
fill "$troubled_nats" orders.new >/dev/null
fall_behind "$troubled_nats" >/dev/null 2>&1 &
started+=($!)
! "$nuthatch" -s "$troubled_nats" pub -q -J cold.new lost 2>/dev/null || die "a publish without its bucket was acknowledged"
# The third one has no room for what is published.
"$nuthatch" -s "$full_nats" stream add ORDERS --subjects 'orders.>' >/dev/null
fill "$full_nats" orders.bulk 10000 >"$work/full.log" 2>&1 || true
# Where a frame of many did not fit, one message still may.
body=$(head -c 16384 /dev/zero | tr '\0' x) refused=no
for _ in $(seq 7000); do
    "$nuthatch" -s "$full_nats" pub -q -J orders.bulk "$body" 2>/dev/null || { refused=yes; break; }
done
[ "$refused" = yes ] || die "publishes that do not fit were acknowledged"
check page "$sound"
check collected "$work/otlp"
check alerts "$prometheus" "$sound" "$troubled" "$full"
wait "$troubles" || { cat "$work/troubles.log" >&2; die "not all alerts fire"; }
cat "$work/troubles.log"

#!/usr/bin/env bash
# The web console in a real Chromium: each page opened, each action done, hostile names and payloads, refused users,
# and the screenshots of docs/images/console.
#
#   run.sh [--install-only] [--screenshots]
#
# Screenshots are written with --screenshots only. Needs node with npm and a Chromium (Debian: chromium; or CHROMIUM=…).
# As root or with sudo, a missing Chromium is installed with apt-get.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=$repo/tests/clients/.cache
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
# Only what hangs needs limits.
ready_limit_s=120
limit_s=600

install_only=false screenshots=""
while [ $# -gt 0 ]; do
    case $1 in
    --install-only) install_only=true; shift ;;
    --screenshots) screenshots=$repo/docs/images/console; shift ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
done

die() { echo "run.sh: $*" >&2; exit 2; }

quiet() {
    local log=$cache/console-install.log
    "$@" >"$log" 2>&1 || { tail -50 "$log" >&2; die "failed: $*"; }
}

chromium() {
    local path
    for path in "${CHROMIUM:-}" /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome /usr/bin/google-chrome-stable; do
        [ -z "$path" ] || [ ! -x "$path" ] || { echo "$path"; return; }
    done
}

install() {
    local tool sum
    for tool in node npm; do command -v "$tool" >/dev/null || die "$tool is needed and not there"; done
    mkdir -p "$cache"
    sum=$(cat "$here/package.json" "$here/package-lock.json" | cksum)
    if [ "$(cat "$cache/console.stamp" 2>/dev/null)" != "$sum" ]; then
        rm -rf "$cache/console"
        mkdir -p "$cache/console"
        cp "$here/package.json" "$here/package-lock.json" "$cache/console/"
        quiet persistently npm ci --no-audit --no-fund --prefix "$cache/console"
        echo "$sum" >"$cache/console.stamp"
    fi
    [ -z "$(chromium)" ] || return 0
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    command -v apt-get >/dev/null || die "a Chromium is needed: install one, or name one with CHROMIUM=…"
    # Another apt-get may be at work on a machine that has just started.
    quiet persistently "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 update
    quiet persistently "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium
    [ -n "$(chromium)" ] || die "a Chromium is needed: install the package chromium, or name one with CHROMIUM=…"
}

install
! $install_only || exit 0
binary=$(nuthatch_binary "$repo")
work=$(mktemp -d "${TMPDIR:-/tmp}/nuthatch-console.XXXXXX")
pids=()
cleanup() {
    local pid
    for pid in "${pids[@]}"; do end_process "$pid"; done
    rm -rf "$work"
}
trap cleanup EXIT

# Starts a server; sets console and nats to its URLs.
start_server() { # name, flags…
    local name=$1 log deadline=$((SECONDS + ready_limit_s))
    shift
    log=$work/$name.log
    "$binary" serve -a 127.0.0.1 -p -1 -n workshop -sd "$work/$name" --console 127.0.0.1:-1 "$@" >"$log" 2>&1 &
    pids+=($!)
    until grep -q 'Server is ready' "$log"; do
        kill -0 "${pids[-1]}" 2>/dev/null || { cat "$log" >&2; die "the server ended at its start"; }
        [ $SECONDS -lt $deadline ] || { cat "$log" >&2; die "the server was not ready in $ready_limit_s s"; }
        sleep 0.05
    done
    console=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$log" | head -1)
    nats=127.0.0.1:$(grep -oE 'client connections on 127\.0\.0\.1:[0-9]+' "$log" | grep -oE '[0-9]+$')
}

cat >"$work/server.conf" <<'CONF'
accounts {
    SHOP {
        jetstream: { max_file: 10GB, max_mem: 1GB, max_streams: 1000, max_consumers: 1000 }
        users: [
            { user: ada, password: birds }
            { user: viewer, password: birds, permissions: { publish: [
                "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>",
                "$JS.API.CONSUMER.LIST.>", "$JS.API.CONSUMER.INFO.>", "$SYS.REQ.USER.INFO" ] } }
        ]
    }
    OTHER { jetstream: enabled, users: [ { user: other, password: birds }, { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }
    SYS { users: [ { user: root, password: birds } ] }
}
system_account: SYS
jetstream { logs { spare { mode: local } } }
CONF
start_server main -c "$work/server.conf"
main_console=$console main_nats=$nats
# The other server's store had a byte that changed, which the doctor has mended.
start_server rot
"$binary" --no-context -s "$nats" stream add ROT --defaults >/dev/null
"$binary" --no-context -s "$nats" pub ROT 'a message to be looked after' -J -q --count 20
end_process "${pids[-1]}"
sed -i '0,/to be looked after/s//to be looked aftar/' "$work"/rot/nuthatch/default/*.seg
"$binary" doctor "$work/rot" --apply >"$work/doctor.txt" || { cat "$work/doctor.txt" >&2; die "the doctor does not mend"; }
mv "$work/rot" "$work/readonly"
start_server readonly --console-read-only
readonly_console=$console readonly_nats=$nats
# Three nodes; only the first one has a console.
read -ra node_ports < <(python3 "$here/../ports.py" 3)
routes=$(printf '127.0.0.1:%s,' "${node_ports[@]}")
for number in 3 2 1; do
    start_server "n$number" --node-name "n$number" --cluster-listen "127.0.0.1:${node_ports[number - 1]}" --routes "${routes%,}"
    [ $number != 3 ] || last_node=${pids[-1]}
done
status=0
CHROMIUM=$(chromium) NODE_PATH=$cache/console/node_modules timeout -k 5 "$limit_s" node "$here/console.js" \
    "$main_console" "$readonly_console" "$binary" "$main_nats" "$readonly_nats" "$work/main.log" "$console" "$last_node" "$screenshots" || status=$?
if [ $status -ne 0 ]; then
    tail -n 20 "$work/main.log"
    tail -n 20 "$work/readonly.log"
fi
exit $status

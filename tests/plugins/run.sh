#!/usr/bin/env bash
# What people already run on NATS, unchanged and pinned, against our server: FastStream and taskiq (Python), Watermill's own test
# suites, kine with its own and NATS's command line with its top, reports and exporter of checks (Go), NestJS and Moleculer (Node);
# and a small run of the benchmark of ingest and search, whose index is a library of others. Needs python3 with venv, go, node with npm, cargo for the C library, and unshare: one suite knows only
# port 4222, so it gets a network of its own. Not here, since the Go module proxy refuses them: NATS's Prometheus exporter and
# surveyor; and nats-top by itself, of which the checksum database knows no version (the command line contains it).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
# shellcheck source=../steps.sh
. "$repo/tests/steps.sh"
for tool in python3 go node npm cargo unshare; do
    command -v "$tool" >/dev/null || { echo "plugins/run.sh: $tool is needed and not there" >&2; exit 2; }
done
server=$(nuthatch_binary "$repo")
work=$(target_dir "$repo")/plugins
data=$(mktemp -d)
pid=""
# Called by the trap.
# shellcheck disable=SC2329
ended() {
    local status=$?
    [ -z "$pid" ] || end_process "$pid"
    (exit $status) || true
    show_steps || true
    rm -rf "$data"
    exit $status
}
trap ended EXIT
mkdir -p "$work"

step "plugins: install"
if [ ! -x "$work/python/bin/python" ]; then
    python3 -m venv "$work/python"
fi
persistently "$work/python/bin/pip" install -q -r "$here/python/requirements.txt"
mkdir -p "$work/node"
cp "$here"/node/* "$work/node/"
(cd "$work/node" && persistently npm ci --silent --no-audit --no-fund)
for suite in nats jetstream; do
    (cd "$here/watermill" && GOFLAGS=-mod=readonly persistently go test -c -o "$work/watermill-$suite" \
        "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/$suite")
done
# kine's tests ask nats-server's packages for a server in their process: in a copy, they ask package process for one of ours.
(
    cd "$here/kine"
    export GOFLAGS=-mod=readonly CGO_ENABLED=0
    persistently go build -o "$work/kine" github.com/k3s-io/kine
    go vet ./...
    go test -c -o "$work/kine-etcd" .
    source=$(go list -m -f '{{.Dir}}' github.com/k3s-io/kine)
    rm -rf "$work/kine-source"
    cp -r "$source" "$work/kine-source"
    chmod -R u+w "$work/kine-source"
    cp -r process "$work/kine-source/pkg/process"
    cd "$work/kine-source"
    sed -i -E 's#"github.com/nats-io/nats-server/v2/(server|test)"#\1 "github.com/k3s-io/kine/pkg/process"#' pkg/drivers/nats/*_test.go
    persistently go test -c -o "$work/kine-own" ./pkg/drivers/nats
)
(cd "$here/natscli" && GOFLAGS=-mod=readonly CGO_ENABLED=0 persistently go build -o "$work/nats" github.com/nats-io/natscli/nats)
"$repo/packaging/c-library.sh" "$work/prefix"

"$server" serve -js -a 127.0.0.1 -p -1 -sd "$data/store" --console off >"$data/server.log" 2>&1 &
pid=$!
for _ in $(seq 600); do
    ! grep -q 'Server is ready' "$data/server.log" || break
    kill -0 "$pid" 2>/dev/null || { cat "$data/server.log" >&2; exit 1; }
    sleep 0.1
done
port=$(sed -n 's/.*client connections on 127.0.0.1:\([0-9]*\).*/\1/p' "$data/server.log" | head -1)
url=nats://127.0.0.1:$port

# A program of somebody else says what it has to say only if it fails.
quietly() {
    local log=$data/plugin.log
    timeout 300 "$@" >"$log" 2>&1 || { tail -50 "$log" >&2; echo "plugins/run.sh: failed: $*" >&2; exit 1; }
    grep -E '^(faststream|taskiq|nestjs|moleculer|natscli|nuthatch.*):|^(PASS|ok)' "$log"
}

step "plugins: FastStream"
quietly "$work/python/bin/python" "$here/python/faststream_app.py" "$url"
step "plugins: taskiq"
quietly "$work/python/bin/python" "$here/python/taskiq_app.py" "$url"
step "plugins: NestJS and Moleculer"
(cd "$work/node" && quietly node nest.cjs "$url" && quietly node moleculer.cjs "$url")
step "plugins: kine"
export NUTHATCH_BINARY=$server KINE_BINARY=$work/kine
quietly "$work/kine-own"
quietly "$work/kine-etcd"
step "plugins: NATS's command line"
quietly bash "$here/natscli/check.sh" "$server" "$work/nats" "$data/natscli"
step "plugins: ingest and search"
quietly "$work/python/bin/python" "$repo/bench/ingest_search.py" --engines nuthatch-embedded,nuthatch --rows 2700 --alone-s 1 \
    --limit-s 120 --nuthatch "$server" --library "$work/prefix/lib/libnuthatch.so.1" --dir "$data" --svg "$data/picture.svg"
grep -q '</svg>' "$data/picture.svg"
step "plugins: Watermill"
export WATERMILL_TEST_NATS_URL=$url
quietly "$work/watermill-nats" -test.short
# shellcheck disable=SC2016
quietly unshare --user --map-root-user --net bash -euc '
    ip link set lo up
    "$1" serve -js -a 127.0.0.1 -p 4222 -sd "$2/js" --console off >"$2/js.log" 2>&1 &
    trap "kill $!" EXIT
    for _ in $(seq 600); do ! grep -q "Server is ready" "$2/js.log" || break; sleep 0.1; done
    "$3" -test.short' - "$server" "$data" "$work/watermill-jetstream"

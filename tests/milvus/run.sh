#!/usr/bin/env bash
# Milvus's log on Nuthatch: Milvus's own conformance test of its write-ahead log, as it is, against a broker in its process, a server
# and a log in a bucket; then crashes, fencing, truncation; its older message stream; the migration from a natsmq, which a nats-server
# plays, and from RocksMQ (where librocksdb-dev is); and the fence of a channel over takeovers in a
# cluster. The modules are pinned in integrations/milvus/go.sum. Needs cargo, gcc, pkg-config and go.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
# shellcheck source=../steps.sh
. "$repo/tests/steps.sh"
for tool in cargo gcc pkg-config go; do
    command -v "$tool" >/dev/null || { echo "milvus/run.sh: $tool is needed and not there" >&2; exit 2; }
done
work=$(target_dir "$repo")/milvus
prefix=$work/prefix
trap 'show_steps' EXIT
NUTHATCH_BINARY=${NUTHATCH_BINARY:-$(nuthatch_binary "$repo")}
export NUTHATCH_BINARY PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib GOFLAGS=-mod=readonly

step "milvus: the library"
"$repo/packaging/c-library.sh" "$prefix"

step "milvus: build"
cd "$repo/integrations/milvus"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted" >&2; exit 1; }
persistently go_fetch ./...
go vet -tags test ./...
mkdir -p "$work/tests"
go test -tags test -c -o "$work/tests/" . ./walimpls ./mqwrapper ./takeover ./migration

step "milvus: records"
"$work/tests/milvus.test" -test.timeout 1m

step "milvus: conformance, crashes, fencing, truncation"
cd walimpls && "$work/tests/walimpls.test" -test.v -test.timeout 20m "$@" 2>&1 | grep -E '^ *(---|===|ok|FAIL|PASS|panic|.*_test\.go)' ; [ "${PIPESTATUS[0]}" -eq 0 ]
step "milvus: the older message stream"
cd ../mqwrapper && "$work/tests/mqwrapper.test" -test.timeout 10m
step "milvus: migration from natsmq"
"$repo/tests/peers.sh"
cd ../migration && NUTHATCH_NATS_SERVER=$repo/target/peers/nats-server "$work/tests/migration.test" -test.v -test.timeout 10m
step "milvus: migration from RocksMQ"
if [ -f /usr/include/rocksdb/c.h ]; then
    # RocksDB 7 has dropped functions that Milvus's binding names and nothing calls.
    (cd ../compare && CGO_CFLAGS="-O2 -g -I$repo/bench/peers/rocksmq/rocksdb7" persistently go test -count=1 -v -timeout 20m .)
else
    echo "left out: there is no librocksdb-dev"
fi
step "milvus: takeovers in a cluster"
"$work/tests/takeover.test" -test.v -test.timeout 20m

#!/usr/bin/env bash
# Measures Milvus's write-ahead log on Nuthatch, RocksMQ and Woodpecker through one interface, one after the other, and prints a
# table: run.sh [-seconds N] [-rounds N] [-engines a,b]. Needs go, cargo, gcc, pkg-config and Debian's librocksdb-dev.
# NUTHATCH_LIBRARIES names a directory with a built libnuthatch, NUTHATCH_COMPARE_DIR where the data goes (a temporary one).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
work=${CARGO_TARGET_DIR:-$repo/target}/milvus-compare
"$repo/packaging/c-library.sh" "$work/prefix"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib
# RocksDB 7 has dropped functions that Milvus's binding names and nothing calls.
export CGO_CFLAGS="-O2 -g -I$repo/bench/peers/rocksmq/rocksdb7"
(cd "$here" && GOFLAGS=-mod=readonly go build -o "$work/compare" .)
data=$(mktemp -d -p "${NUTHATCH_COMPARE_DIR:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$data"' EXIT
"$work/compare" -dir "$data" "$@" | grep '^|'

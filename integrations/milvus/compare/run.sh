#!/usr/bin/env bash
# Measures Milvus's write-ahead log on Nuthatch, RocksMQ and Woodpecker through one interface, one after the other, and prints a
# table: run.sh [--into PAGE] [-seconds N] [-rounds N] [-engines a,b]. With --into PAGE the table, the day and the machine also replace what
# stands there between <!-- walimpls --> and <!-- /walimpls -->. Needs go, cargo, gcc, pkg-config, python3 and Debian's librocksdb-dev.
# NUTHATCH_LIBRARIES names a directory with a built libnuthatch, NUTHATCH_COMPARE_DIR where the data goes (a temporary one), NUTHATCH_PROFILE the
# profile that is built (release).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
page=""
if [ "${1-}" = --into ]; then
    page=$(realpath "$2")
    shift 2
fi
work=${CARGO_TARGET_DIR:-$repo/target}/milvus-compare
"$repo/packaging/c-library.sh" "$work/prefix"
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib
# RocksDB 7 has dropped functions that Milvus's binding names and nothing calls.
export CGO_CFLAGS="-O2 -g -I$repo/bench/peers/rocksmq/rocksdb7"
(cd "$here" && GOFLAGS=-mod=readonly go build -o "$work/compare" .)
data=$(mktemp -d -p "${NUTHATCH_COMPARE_DIR:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$data"' EXIT
before=$(cut -d' ' -f1 /proc/loadavg)
# Milvus writes to the standard output, too.
"$work/compare" -dir "$data" "$@" | grep -E '^\||^With [0-9]+ appenders|^$' | cat -s >"$work/table.md"
cat "$work/table.md"
[ -z "$page" ] || python3 "$repo/bench/into_page.py" "$page" walimpls "compare/run.sh $*; load average before: $before" <"$work/table.md"

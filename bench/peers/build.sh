#!/usr/bin/env bash
# Builds programs of peers where the workbench looks for them: build.sh [rocksmq] [woodpecker] [minio]; the first two unless some are
# named. They are for measuring, and not to be given away (README.md). Needs go; rocksmq needs gcc and Debian's librocksdb-dev, too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
to=${NUTHATCH_PEERS:-$HOME/.cache/nuthatch-peers}
mkdir -p "$to"
# shellcheck source=../../tests/patience.sh
. "$here/../../tests/patience.sh"
export GOFLAGS=-mod=readonly
[ $# -gt 0 ] || set -- rocksmq woodpecker
for peer in "$@"; do
    if [ "$peer" = minio ]; then
        GOBIN="$to" persistently go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
        echo "$to/$peer"
        continue
    fi
    [ -d "$here/$peer" ] && [ -f "$here/$peer/main.go" ] || { echo "build.sh: there is no peer $peer" >&2; exit 2; }
    # RocksDB 7 has dropped functions that Milvus's binding names and nothing calls.
    [ "$peer" != rocksmq ] || export CGO_CFLAGS="-O2 -g -I$here/rocksmq/rocksdb7"
    (cd "$here/$peer" && persistently go build -o "$to/$peer" .)
    echo "$to/$peer"
    # The server of its service, unchanged out of the module that go.mod names.
    if [ "$peer" = woodpecker ]; then
        (cd "$here/$peer" && persistently go build -o "$to/woodpecker-node" github.com/zilliztech/woodpecker/cmd)
        echo "$to/woodpecker-node"
    fi
done

#!/usr/bin/env bash
# Builds the servers we compare ourselves with into target/peers, once. Needs go.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
version=v2.15.2
peers="$PWD/target/peers"
if [ -x "$peers/nats-server" ] && "$peers/nats-server" -v | grep -qF "$version"; then
  exit 0
fi
command -v go >/dev/null || { echo "peers.sh: go is needed to build nats-server $version" >&2; exit 1; }
mkdir -p "$peers"
GOBIN="$peers" persistently go install "github.com/nats-io/nats-server/v2@$version"
"$peers/nats-server" -v | grep -qF "$version" || { echo "peers.sh: not $version" >&2; exit 1; }

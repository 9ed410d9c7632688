#!/usr/bin/env bash
# The scenario list against a cluster, each client at a fourth node that has no JetStream: all five clients, or those named.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
# shellcheck source=../../binary.sh
. "$repo/tests/binary.sh"
exec "$here/../run.sh" --server-cmd "$here/server.py $(nuthatch_binary "$repo")" "$@"

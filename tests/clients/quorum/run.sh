#!/usr/bin/env bash
# A quorum log on three processes, seen by a third-party client: what was acknowledged survives kill -9 of its owner.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
# shellcheck source=../../binary.sh
. "$repo/tests/binary.sh"
"$here/../run.sh" --install-only nats-py
PYTHONDONTWRITEBYTECODE=1 "$here/../.cache/nats-py/bin/python" "$here/failover.py" "$(nuthatch_binary "$repo")"
# The benchmark of clusters runs as people run it; its figures mean nothing here.
"$repo/bench/replicated.py" kills --count 2 --only nuthatch-r3 --nuthatch "$(nuthatch_binary "$repo")"

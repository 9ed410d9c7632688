#!/usr/bin/env bash
# A quorum log on three processes, seen by a third-party client: what was acknowledged survives kill -9 of its owner.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../../.." && pwd)
# shellcheck source=../../binary.sh
. "$repo/tests/binary.sh"
"$here/../run.sh" --install-only nats-py
PYTHONDONTWRITEBYTECODE=1 "$here/../.cache/nats-py/bin/python" "$here/failover.py" "$(nuthatch_binary "$repo")"

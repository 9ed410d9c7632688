#!/usr/bin/env bash
# Real processes keep a quorum log under faults of a fixed seed, in about a minute where nothing else runs:
#
#   run.sh [arguments of ring3.py instead of the fixed ones]
#
# Everything as root with /dev/fuse: a namespace for each node, and disks that forget what was not synced. What this
# machine cannot do is said and left out. Needs python3 with venv, cargo and rustc, and for lossy links and the proxy nft.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
export PYTHONDONTWRITEBYTECODE=1
NUTHATCH_BINARY=$(nuthatch_binary "$repo")
export NUTHATCH_BINARY

quiet() {
  local log
  log=$(mktemp)
  "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "run.sh: failed: $*" >&2; exit 1; }
  rm -f "$log"
}

"$repo/tests/clients/run.sh" --install-only nats-py
python="$repo/tests/clients/.cache/nats-py/bin/python"
quiet "$python" "$here/checks_test.py"

builds=$(target_dir "$repo")/forgetfs
manifest=$here/forgetfs/Cargo.toml
quiet persistently cargo_fetch "$manifest"
quiet env CARGO_TARGET_DIR="$builds" cargo test --locked --manifest-path "$manifest"
quiet env CARGO_TARGET_DIR="$builds" cargo build --locked --manifest-path "$manifest"
clocks=$builds/ring3-clocks.so
if [ ! "$clocks" -nt "$here/clocks/clocks.rs" ]; then
  quiet rustc --edition 2024 -O -C panic=abort --crate-type cdylib -o "$clocks" "$here/clocks/clocks.rs"
fi

options=(--dir "$(target_dir "$repo")" --clocks "$clocks")
if ! unshare --net --mount --pid --fork true 2>/dev/null; then
  echo "run.sh: no namespaces here (root is needed): links and power are not cut"
  options+=(--loopback)
elif ! quiet "$here/forgetfs/check.sh" "$builds/debug/forgetfs"; then
  echo "run.sh: no FUSE here: power is not cut"
else
  options+=(--forgetfs "$builds/debug/forgetfs")
fi
# Lossy links and the proxy, where more is played than the fixed seed.
if [ $# -gt 0 ] && [ "$(id -u)" = 0 ]; then
  "$repo/tests/nft.sh" >/dev/null 2>&1 || echo "run.sh: nft is not installed, and could not be unpacked (tests/nft.sh)"
  export PATH="$PATH:$repo/target/peers/nft"
fi
if [ $# -eq 0 ]; then
  set -- --quiet --seed 1247 --faults 12 --pace 1 --kinds kill,term,pause,isolated,mute,power,power-wipe,wipe-behind,delay,cuts,clock,rot
fi
exec "$python" "$here/ring3.py" "${options[@]}" "$@"

#!/usr/bin/env bash
# Tests of clusters on disks that take long for a sync (DELAY_MS, 60): everything must come about, only later. Without
# arguments the founding and fail-over of the built-in catalog (about a minute and a half); else the names of test programs
# of the crate `nuthatch`, as `cluster_members quorum`. Linux; needs a C compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/binary.sh

if [ "$(uname -s)" != Linux ]; then
    echo "slow disks: left out, the library that delays syncs is for Linux"
    exit 0
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -shared -fPIC -O2 -Wall -Werror -o "$dir/delay.so" tests/slow-disks/delay.c -ldl

programs=("${@:-quorum_built_in}")
tests=()
for program in "${programs[@]}"; do tests+=(--test "$program"); done
cat >"$dir/slowly" <<RUNNER
#!/bin/sh
LD_PRELOAD=$dir/delay.so DELAY_MS=${DELAY_MS:-60} exec "\$@"
RUNNER
chmod +x "$dir/slowly"
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
# As all tests are built, so that nothing is built anew.
export "CARGO_TARGET_${host}_RUNNER=$dir/slowly" CARGO_INCREMENTAL=0
cargo test --profile "$NUTHATCH_PROFILE" --features nuthatch/otlp,nuthatch/etcd --locked --workspace "${tests[@]}"

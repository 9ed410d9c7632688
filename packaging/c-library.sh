#!/usr/bin/env bash
# Builds the C libraries and installs them below a directory, with header and pkg-config file:
#
#   packaging/c-library.sh PREFIX
#
# NUTHATCH_PROFILE is the profile of Cargo that is built (release by default). With NUTHATCH_LIBRARIES nothing is built: the
# libraries are those of that directory.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 PREFIX" >&2; exit 2; }
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mkdir -p "$1/lib/pkgconfig" "$1/include"
prefix=$(cd "$1" && pwd)
profile=${NUTHATCH_PROFILE:-release}
built=${NUTHATCH_LIBRARIES:-${CARGO_TARGET_DIR:-$repo/target}/$profile}
if [ -z "${NUTHATCH_LIBRARIES-}" ]; then
    cargo build --manifest-path "$repo/Cargo.toml" --profile "$profile" --locked -p nuthatch-c
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$repo/Cargo.toml" | head -1)
# What a program needs beside the static library, as `rustc --print native-static-libs` says for Linux.
static_libs="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

install -m 644 "$built/libnuthatch.a" "$prefix/lib/libnuthatch.a"
install -m 755 "$built/libnuthatch.so" "$prefix/lib/libnuthatch.so.1"
ln -sf libnuthatch.so.1 "$prefix/lib/libnuthatch.so"
install -m 644 "$repo/crates/nuthatch-c/include/nuthatch.h" "$prefix/include/nuthatch.h"
sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@STATIC_LIBS@|$static_libs|" \
    "$repo/crates/nuthatch-c/nuthatch.pc.in" >"$prefix/lib/pkgconfig/nuthatch.pc"

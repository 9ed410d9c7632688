#!/usr/bin/env bash
# Unpacks Debian's nft into target/peers/nft, once, for the lossy links and the proxy of ring 3, unless there is one. Nothing is
# installed; apt-get update, as root or with sudo, only where there are no package lists.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
place="$PWD/target/peers/nft"
if command -v nft >/dev/null || { [ -x "$place/nft" ] && "$place/nft" --version >/dev/null; }; then
  exit 0
fi
command -v apt-get >/dev/null || { echo "nft.sh: install nftables" >&2; exit 1; }
packages=(nftables libnftables1 libnftnl11 libmnl0 libjansson4 libedit2 libbsd0 libmd0 libxtables12)
unpacked="$place/package"
rm -rf "$place"
unpack_debian "$unpacked" "${packages[@]}"
libraries=$(dirname "$(find "$unpacked" -name 'libnftables.so.1' | head -1)")
program=$(find "$unpacked" -path '*sbin/nft' | head -1)
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$program" >"$place/nft"
chmod +x "$place/nft"
"$place/nft" --version

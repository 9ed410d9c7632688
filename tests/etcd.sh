#!/usr/bin/env bash
# Unpacks Debian's etcd into target/peers, once, for the tests of catalogs in etcd. Nothing is installed; apt-get update, as
# root or with sudo, only where there are no package lists.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
peers="$PWD/target/peers"
if [ -x "$peers/etcd" ] && "$peers/etcd" --version >/dev/null; then
  exit 0
fi
command -v apt-get >/dev/null || { echo "etcd.sh: put an etcd 3.4 or later at $peers/etcd" >&2; exit 1; }
unpacked="$peers/etcd-package"
unpack_debian "$unpacked" etcd-server
mv "$unpacked/usr/bin/etcd" "$peers/etcd"
rm -rf "$unpacked"
"$peers/etcd" --version

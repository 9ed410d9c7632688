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
rm -rf "$unpacked"
mkdir -p "$unpacked"
fetch_package() { (cd "$unpacked" && apt-get -q download etcd-server >/dev/null); }
if ! fetch_package 2>/dev/null; then
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo -n)
  persistently "${root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null
  persistently fetch_package
fi
dpkg-deb -x "$unpacked"/etcd-server_*.deb "$unpacked"
mv "$unpacked/usr/bin/etcd" "$peers/etcd"
rm -rf "$unpacked"
"$peers/etcd" --version

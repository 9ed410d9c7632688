#!/usr/bin/env bash
# What a newcomer does with the tarball, in a root that has nothing but a C library: install, start, publish, consume, look at
# the console. Prints how long that took. Needs root (namespaces of its own) and python3 for the look at the console.
#
#   newcomer.sh TARBALL
set -euo pipefail
. "$(dirname "$0")/../patience.sh"
tarball=$(readlink -f "$1")
work=$(mktemp -d)
server= inside=
clean_up() {
    # The first process of the namespace takes no signal that it does not handle; the server does.
    [ -z "$inside" ] || kill "$inside" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" || true
    rm -rf "$work"
}
trap clean_up EXIT
fail() {
    echo "newcomer: $*" >&2
    cat "$work/server.log" >&2 || true
    exit 1
}

# The root: no shell, no compiler; the C library where the binary wants one.
root=$work/root
mkdir -p "$root/tmp"
began=$(date +%s%N)
tar -xzf "$tarball" -C "$root" --strip-components 1
binary=$root/usr/bin/nuthatch
if readelf --program-headers --wide "$binary" | grep -q interpreter; then
    ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
fi

# As the README says it, in a network of its own.
unshare --net --mount --pid --fork --kill-child sh -c \
    'ip link set lo up && exec chroot "$0" /usr/bin/nuthatch serve -sd /data' "$root" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do grep -q 'Server is ready' "$work/server.log" && break; sleep 0.1; done
grep -q 'Server is ready' "$work/server.log" || { kill -9 "$server"; fail "the server does not start"; }
inside=$(pgrep -n -f '^/usr/bin/nuthatch serve -sd /data')
nuthatch() { nsenter --target "$inside" --net -- chroot "$root" /usr/bin/nuthatch "$@"; }
nuthatch stream add ORDERS --subjects 'orders.>' --defaults >/dev/null
nuthatch pub orders.new 'first order' -J >/dev/null
nuthatch consumer add ORDERS billing --pull --defaults >/dev/null
nuthatch consumer next ORDERS billing --count 1 | grep -q 'first order' || fail "the message was not consumed"
nsenter --target "$inside" --net -- python3 - <<'PY' || fail "the console does not show it"
import http.cookiejar, json, urllib.request
console = "http://127.0.0.1:8280"
opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
page = opener.open(console + "/").read().decode()
assert "<html" in page, page
opener.open(urllib.request.Request(console + "/api/login", b"{}", {"Content-Type": "application/json", "Origin": console}))
messages = json.load(opener.open(console + "/api/streams/ORDERS/messages"))
assert "first order" in json.dumps(messages) or "Zmlyc3Qgb3JkZXI" in json.dumps(messages), messages
PY
took=$((($(date +%s%N) - began) / 1000000))
echo "ok   newcomer: installed, started, published, consumed, seen in the console: $took ms"

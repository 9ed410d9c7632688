#!/usr/bin/env bash
# The release artefacts: made twice with the same bytes, and used as their receivers would.
# Takes the binary of NUTHATCH_BINARY or of the newest build. The image is made and run only from a static binary
# (`just artefacts`, then NUTHATCH_BINARY=…-musl/release/nuthatch tests/packaging/run.sh); says so if it is not.
# Needs dpkg-deb; rpmbuild (Debian: rpm), go for helm, root for the image: what is missing is installed where apt can, else named.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/patience.sh
. tests/binary.sh
work=$(mktemp -d)
pids=()
clean_up() {
    local pid
    for pid in "${pids[@]-}"; do [ -z "$pid" ] || end_process "$pid"; done
    mountpoint -q "$work/image/proc" && umount "$work/image/proc"
    rm -rf "$work"
}
trap clean_up EXIT
fail() { echo "packaging: $*" >&2; exit 1; }

if ! command -v rpmbuild >/dev/null; then persistently apt-get install -y rpm >/dev/null; fi
binary=$work/nuthatch
strip -o "$binary" "$(nuthatch_binary "$PWD")"
kinds=(--only tar --only deb --only rpm)
static=true
if readelf --program-headers --wide "$binary" | grep -q interpreter; then
    static=false
    echo "skip the image: $binary is not static"
else
    kinds+=(--only oci)
fi

for time in first second; do
    packaging/artefacts.py --binary "$binary" --out "$work/$time" "${kinds[@]}" >"$work/$time.txt"
done
cmp "$work/first/SHA256SUMS" "$work/second/SHA256SUMS" || fail "the same binary gave other bytes"
(cd "$work/first" && sha256sum --quiet --check SHA256SUMS)
cat "$work/first.txt"

# A tarball, a deb and an rpm hold the same files, and these work.
mkdir "$work/tar" "$work/deb"
tar -xzf "$work"/first/*.tar.gz -C "$work/tar" --strip-components 1
dpkg-deb -x "$work"/first/*.deb "$work/deb"
diff <(cd "$work/tar" && find . -type f | sort) <(cd "$work/deb" && find . -type f | sort) || fail "tarball and deb differ"
diff <(cd "$work/deb" && find . -type f | sed 's#^\.##; s#vendor-completions#site-functions#' | sort) \
    <(rpm -qpl "$work"/first/*.rpm | grep -v -x -e /usr/share/doc/nuthatch | sort) || fail "deb and rpm differ"
[ "$(dpkg-deb -f "$work"/first/*.deb Package)" = nuthatch ]
for unpacked in tar deb; do
    root=$work/$unpacked
    [ "$(stat -c %a "$root/usr/bin/nuthatch")" = 755 ] || fail "$unpacked: the binary is not executable"
    # The directory of the store is the unit's to make.
    "$root/usr/bin/nuthatch" serve -t -c "$root/etc/nuthatch/server.conf" -sd "$work/store" >/dev/null || fail "$unpacked: its configuration is refused"
    zcat "$root/usr/share/man/man1/nuthatch-serve.1.gz" | grep -q '^\.TH' || fail "$unpacked: no man page of serve"
done
echo "ok   tarball, deb, rpm"

if [ "$(id -u)" = 0 ]; then
    tests/packaging/newcomer.sh "$work"/first/*.tar.gz
else
    echo "skip the newcomer: not root"
fi

# Its unit, as far as a machine without it can say; what it starts is not installed here.
if command -v systemd-analyze >/dev/null; then
    said=$(systemd-analyze verify --man=no --recursive-errors=no "$work/deb/usr/lib/systemd/system/nuthatch.service" 2>&1 |
        grep -F nuthatch.service | grep -v -e 'Command /usr/bin/nuthatch is not executable' -e 'Unit configuration has fatal error' || true)
    [ -z "$said" ] || fail "unit: $said"
    echo "ok   unit"
else
    echo "skip the unit: no systemd-analyze"
fi

# What a node of the example of three is told, with the files that it says to make.
mkdir "$work/three"
head -c 32 /dev/urandom | base64 >"$work/three/key"
head -c 24 /dev/urandom | base64 | tr -d '+/=' >"$work/three/token"
chmod 400 "$work/three/key" "$work/three/token"
sed -e "s|/run/nuthatch|$work/three|" -e "s|/data|$work/three/data|" packaging/cluster.conf >"$work/three.conf"
"$binary" serve -t -c "$work/three.conf" --node-name n1 >/dev/null || fail "the configuration of three nodes is refused"
echo "ok   three nodes"

# The chart: linted, rendered with and without what is optional, what it says of the configuration accepted by the server.
if command -v go >/dev/null; then
    [ -x target/tools/helm ] || GOBIN="$PWD/target/tools" persistently go install helm.sh/helm/v3/cmd/helm@v3.22.0
    chart=packaging/helm/nuthatch
    target/tools/helm lint --strict --quiet "$chart"
    target/tools/helm template release "$chart" >"$work/default.yaml"
    target/tools/helm template release "$chart" --set metrics.annotations=false --set persistence.storageClass=fast \
        --set resources.limits.memory=1Gi --set nodeSelector.disk=nvme --set image.tag=other >"$work/other.yaml"
    target/tools/helm template release "$chart" --set cluster.nodes=3 --set cluster.secret=s >"$work/cluster.yaml"
    for wrong in cluster.nodes=0 cluster.nodes=2 cluster.nodes=3; do
        if target/tools/helm template release "$chart" --set "$wrong" >/dev/null 2>&1; then fail "chart: $wrong is rendered"; fi
    done
    python3 - "$work" <<'PY'
import pathlib, re, sys
work = pathlib.Path(sys.argv[1])
cluster = (work / "cluster.yaml").read_text()
for word in (
    "replicas: 3",
    "podManagementPolicy: Parallel",
    "kind: PodDisruptionBudget",
    "--routes=" + ",".join(f"release-nuthatch-{at}.release-nuthatch-headless:6222" for at in range(3)),
    "--node-name=$(NODE)",
    "publishNotReadyAddresses: true",
    "podAntiAffinity",
):
    assert word in cluster, word
default, other = ((work / name).read_text() for name in ("default.yaml", "other.yaml"))
for kind, count in (("StatefulSet", 1), ("Service", 2), ("ConfigMap", 1)):
    assert len(re.findall(rf"^kind: {kind}$", default, re.M)) == count, kind
assert "name: node" not in default and "replicas: 1" in default and "prometheus.io/scrape" in default
for word in ("nuthatch:other", "storageClassName: fast", "memory: 1Gi", "disk: nvme"):
    assert word in other and word not in default, word
assert "prometheus.io" not in other
config = re.search(r'^  nuthatch.conf: "(.*)"$', default, re.M).group(1)
(work / "chart.conf").write_text(config.encode().decode("unicode_escape").replace("/data", str(work / "data")))
PY
    mkdir "$work/data"
    TOKEN_FILE="$work/data/token" "$binary" serve -t -c "$work/chart.conf" >/dev/null || fail "the chart's configuration is refused"
    echo "ok   chart"
else
    echo "skip the chart: no go"
fi

$static || exit 0

# The image from nothing: its layer is the whole file system, its user nobody else's, its network its own.
mkdir "$work/oci" "$work/image"
tar -xf "$work"/first/*.oci.tar -C "$work/oci"
python3 - "$work/oci" >"$work/layer" <<'PY'
import gzip, hashlib, json, pathlib, sys
oci = pathlib.Path(sys.argv[1])
def blob(entry):
    data = (oci / "blobs/sha256" / entry["digest"].removeprefix("sha256:")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == entry["digest"].removeprefix("sha256:") and len(data) == entry["size"]
    return data
manifest = json.loads(blob(json.loads((oci / "index.json").read_text())["manifests"][0]))
config = json.loads(blob(manifest["config"]))
layer = blob(manifest["layers"][0])
assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(gzip.decompress(layer)).hexdigest()]
assert config["config"]["Entrypoint"] + config["config"]["Cmd"] == ["/usr/bin/nuthatch", "serve", "-c", "/etc/nuthatch.conf"]
print("blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:"))
PY
tar --same-owner -xzf "$work/oci/$(cat "$work/layer")" -C "$work/image"
inside=(unshare --net --mount --pid --fork --kill-child sh -c 'ip link set lo up; exec chroot --userspec=65532:65532 "$0" "$@"' "$work/image")
in_net() { nsenter --target "$server" --net -- "$@"; }
"${inside[@]}" /usr/bin/nuthatch serve -c /etc/nuthatch.conf >"$work/image.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do grep -q 'Server is ready' "$work/image.log" && break; sleep 0.1; done
grep -q 'Server is ready' "$work/image.log" || fail "the image does not start: $(cat "$work/image.log")"
server=$(pgrep -n -f "^/usr/bin/nuthatch serve -c /etc/nuthatch.conf")
token=$(sed -n 's/.*No token of clients was there: made \([A-Z0-9]*\),.*/\1/p' "$work/image.log")
[ -n "$token" ] || fail "the image made no token"
client() { in_net "$binary" "$@" --server "nats://$token@127.0.0.1:4222"; }
client stream add S --subjects 's.>' --defaults >/dev/null
client pub s.a 'from the image' -J >/dev/null
client stream get S 1 | grep -q 'from the image' || fail "the message is not there"
in_net "$binary" server report health --monitor http://127.0.0.1:8222 >/dev/null || fail "not healthy"
if in_net "$binary" pub s.b 'without a token' -J --server nats://127.0.0.1:4222 >/dev/null 2>&1; then fail "it let somebody in"; fi
echo "ok   image"

#!/usr/bin/env python3
"""Makes release artefacts of one binary: `packaging/artefacts.py --binary target/release/nuthatch`.

Below the output directory (target/dist): a tarball, a deb, an rpm and an OCI image of the same files, and SHA256SUMS.
Without --binary it builds one first: static, against musl, where rustup has its standard library, else against the
C library of this machine, and says which. Needs tar and gzip of Python; dpkg-deb for the deb; rpmbuild for the rpm. What is missing
is named, and is an error unless --only leaves it out. The same binary gives the same bytes (SOURCE_DATE_EPOCH, else the time of the commit).
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent
HERE = REPO / "packaging"
MUSL = "x86_64-unknown-linux-musl"
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
# The user of the image: nobody's number but its own, without a name in the host.
IMAGE_USER = 65532
KINDS = ("tar", "deb", "rpm", "oci")
SUMMARY = "A durable log broker that speaks NATS and JetStream"
DESCRIPTION = "Streams of messages, acknowledged when they are on the disk; every NATS client works unchanged."


class Wrong(Exception):
    """Something that the user can put right."""


def main():
    options = arguments()
    try:
        binary = options.binary or build()
        make(binary.resolve(), options.out.resolve(), options.only or KINDS)
    except Wrong as wrong:
        sys.exit(f"artefacts: {wrong}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, help="the nuthatch to pack; built when absent")
    parser.add_argument("--out", type=pathlib.Path, default=REPO / "target/dist")
    parser.add_argument("--only", action="append", choices=KINDS, help="may be repeated; all when absent")
    return parser.parse_args()


def run(words, **more):
    """The output of a command; its words of failure are an error of ours."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def build():
    """A release binary: static where that is possible."""
    target = []
    if shutil.which("musl-gcc") and MUSL in run(["rustup", "target", "list", "--installed"], cwd=REPO):
        target = ["--target", MUSL]
    else:
        print("artefacts: no musl (rustup target add " + MUSL + "; apt-get install musl-tools): linked against the C library of this machine")
    subprocess.run(["cargo", "build", "--release", "--locked", "--package", "nuthatch", "--features", "otlp,etcd", *target], cwd=REPO, check=True)
    base = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target"))
    return base / (MUSL if target else "") / "release/nuthatch"


def is_static(binary):
    """True if the binary names no interpreter, so needs nothing of the system it runs on."""
    return "interpreter" not in run(["readelf", "--program-headers", "--wide", binary])


def version_of(binary):
    return run([binary, "--version"]).split()[1]


def epoch():
    """Seconds that every file of the artefacts is dated with."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    return int(said or run(["git", "log", "-1", "--format=%ct"], cwd=REPO))


def make(binary, out, kinds):
    out.mkdir(parents=True, exist_ok=True)
    version, date = version_of(binary), epoch()
    static = is_static(binary)
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / "root"
        lay_out(binary, root, date)
        for kind in kinds:
            pack = {"tar": tarball, "deb": deb, "rpm": rpm, "oci": image}[kind]
            made.append(pack(root, out, version, date, static))
    sums = "".join(f"{digest(path.read_bytes())}  {path.name}\n" for path in sorted(made))
    (out / "SHA256SUMS").write_text(sums)
    for path in made:
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")


def lay_out(binary, root, date):
    """The files as a system has them, made once for all kinds."""
    def put(source, target, mode=0o644):
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            path.write_bytes(source)
        else:
            shutil.copyfile(source, path)
        path.chmod(mode)

    put(binary, "usr/bin/nuthatch", 0o755)
    put(HERE / "nuthatch.service", "usr/lib/systemd/system/nuthatch.service")
    put(HERE / "server.conf", "etc/nuthatch/server.conf")
    put(REPO / "LICENSE", "usr/share/doc/nuthatch/LICENSE")
    for page in ("README.md", "CHANGELOG.md", "SECURITY.md", "docs/operations.md", "docs/configuration.md"):
        put(REPO / page, f"usr/share/doc/nuthatch/{pathlib.Path(page).name}")
    completions = {"bash": "usr/share/bash-completion/completions/nuthatch",
                   "zsh": "usr/share/zsh/vendor-completions/_nuthatch",
                   "fish": "usr/share/fish/vendor_completions.d/nuthatch.fish"}
    for shell, target in completions.items():
        put(run([binary, "completions", shell]).encode(), target)
    with tempfile.TemporaryDirectory() as pages:
        run([binary, "man", pages])
        for page in sorted(pathlib.Path(pages).iterdir()):
            put(gzip.compress(page.read_bytes(), mtime=0), f"usr/share/man/man1/{page.name}.gz")
    for path in (root, *root.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (date, date))


def plain(info, date):
    """A tar entry without anything of the machine it was made on."""
    info.uid = info.gid = 0
    # Numbers alone: names would be looked up where it is unpacked.
    info.uname = info.gname = ""
    info.mtime = date
    return info


def add_tree(tar, root, prefix, date):
    for path in sorted(root.rglob("*")):
        name = f"{prefix}{path.relative_to(root)}"
        tar.add(path, arcname=name, recursive=False, filter=lambda info: plain(info, date))


def tarball(root, out, version, date, static):
    """bin, man pages, completions, unit and documents below one directory."""
    libc = "musl" if static else "gnu"
    name = f"nuthatch-{version}-x86_64-linux-{libc}"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        add_tree(tar, root, f"{name}/", date)
    path = out / f"{name}.tar.gz"
    path.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return path


def needs(program, package):
    if not shutil.which(program):
        raise Wrong(f"{program} is missing: apt-get install {package}, or leave it out with --only")


def deb(root, out, version, date, static):
    needs("dpkg-deb", "dpkg")
    depends = "" if static else "Depends: libc6 (>= 2.36), libgcc-s1\n"
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch) / "deb"
        shutil.copytree(root, tree)
        control = tree / "DEBIAN"
        control.mkdir()
        kib = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        (control / "control").write_text(
            f"Package: nuthatch\nVersion: {version}\nArchitecture: amd64\nMaintainer: Nuthatch maintainers <maintainers@nuthatch.invalid>\n"
            f"Section: net\nPriority: optional\nInstalled-Size: {kib}\n{depends}Description: {SUMMARY}\n {DESCRIPTION}\n")
        (control / "conffiles").write_text("/etc/nuthatch/server.conf\n")
        for script in ("postinst", "prerm", "postrm"):
            shutil.copyfile(HERE / "deb" / script, control / script)
            (control / script).chmod(0o755)
        path = out / f"nuthatch_{version}_amd64.deb"
        run(["dpkg-deb", "--root-owner-group", "--build", tree, path], env={**os.environ, "SOURCE_DATE_EPOCH": str(date)})
        return path


def rpm(root, out, version, date, static):
    needs("rpmbuild", "rpm")
    with tempfile.TemporaryDirectory() as scratch:
        top = pathlib.Path(scratch)
        run(["rpmbuild", "-bb", "--target", "x86_64", "--buildroot", top / "buildroot",
             "--define", f"_topdir {top}", "--define", f"_rpmdir {top}/made", "--define", f"nuthatch_version {version}",
             "--define", f"nuthatch_root {root}", "--define", f"nuthatch_summary {SUMMARY}",
             "--define", f"nuthatch_description {DESCRIPTION}", "--define", f"nuthatch_requires {'%{nil}' if static else 'glibc >= 2.36'}",
             "--define", "use_source_date_epoch_as_buildtime 1", "--define", "clamp_mtime_to_source_date_epoch 1",
             "--define", "_buildhost nuthatch", HERE / "rpm/nuthatch.spec"], env={**os.environ, "SOURCE_DATE_EPOCH": str(date)})
        made = next((top / "made").rglob("*.rpm"))
        return pathlib.Path(shutil.copyfile(made, out / made.name))


def digest(data):
    return hashlib.sha256(data).hexdigest()


def image(root, out, version, date, static):
    """An OCI image with nothing in it but the binary, its configuration and certificates, made without a daemon."""
    if not static:
        raise Wrong("an image from nothing needs a static binary (musl); packaging/Dockerfile makes one with a C library, or leave it out with --only")
    layer = gzip.compress(image_layer(root, date), mtime=0)
    blobs = {}

    def blob(data, kind):
        blobs[digest(data)] = data
        return {"mediaType": kind, "digest": f"sha256:{digest(data)}", "size": len(data)}

    def text(value):
        return json.dumps(value, sort_keys=True).encode()

    layer_blob = blob(layer, "application/vnd.oci.image.layer.v1.tar+gzip")
    config = blob(text(image_config(version, digest(gzip.decompress(layer)))), "application/vnd.oci.image.config.v1+json")
    manifest = blob(text({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                          "layers": [layer_blob]}), "application/vnd.oci.image.manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"nuthatch:{version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]}
    files = {"oci-layout": text({"imageLayoutVersion": "1.0.0"}), "index.json": text(index)}
    files |= {f"blobs/sha256/{name}": data for name, data in blobs.items()}
    path = out / f"nuthatch-{version}-x86_64.oci.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            add_bytes(tar, name, data, 0o644, date)
    return path


def add_bytes(tar, name, data, mode, date, owner=0):
    info = plain(tarfile.TarInfo(name), date)
    info.size, info.mode, info.uid, info.gid = len(data), mode, owner, owner
    tar.addfile(info, io.BytesIO(data))


def image_layer(root, date):
    if not CERTIFICATES.exists():
        raise Wrong(f"{CERTIFICATES} is missing: apt-get install ca-certificates")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, mode, owner in (("etc", 0o755, 0), ("etc/ssl", 0o755, 0), ("etc/ssl/certs", 0o755, 0), ("data", 0o700, IMAGE_USER), ("tmp", 0o1777, 0), ("usr", 0o755, 0), ("usr/bin", 0o755, 0)):
            info = plain(tarfile.TarInfo(name), date)
            info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
            tar.addfile(info)
        add_bytes(tar, "usr/bin/nuthatch", (root / "usr/bin/nuthatch").read_bytes(), 0o755, date)
        link = plain(tarfile.TarInfo("usr/bin/nats-server"), date)
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, "nuthatch", 0o777
        tar.addfile(link)
        add_bytes(tar, "etc/nuthatch.conf", (HERE / "image.conf").read_bytes(), 0o644, date)
        add_bytes(tar, "etc/ssl/certs/ca-certificates.crt", CERTIFICATES.read_bytes(), 0o644, date)
        add_bytes(tar, "etc/passwd", f"nuthatch:x:{IMAGE_USER}:{IMAGE_USER}::/data:/none\n".encode(), 0o644, date)
    return raw.getvalue()


def image_config(version, diff_id):
    health = ["CMD", "/usr/bin/nuthatch", "server", "report", "health", "--monitor", "http://127.0.0.1:8222"]
    second = 1_000_000_000
    return {
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]},
        "config": {
            "User": f"{IMAGE_USER}:{IMAGE_USER}", "Entrypoint": ["/usr/bin/nuthatch"], "Cmd": ["serve", "-c", "/etc/nuthatch.conf"],
            "ExposedPorts": {"4222/tcp": {}}, "Volumes": {"/data": {}}, "WorkingDir": "/data", "StopSignal": "SIGUSR2",
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Healthcheck": {"Test": health, "Interval": 10 * second, "Timeout": 5 * second, "StartPeriod": 60 * second, "Retries": 3},
            "Labels": {"org.opencontainers.image.title": "nuthatch", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "history": [{"created_by": "packaging/artefacts.py"}],
    }


if __name__ == "__main__":
    main()

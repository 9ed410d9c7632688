"""Woodpecker's service, three nodes with one etcd and one MinIO, beside the systems of replicated.py."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

NAME = "woodpecker-service"
TICKS = os.sysconf("SC_CLK_TCK")
PROGRAMS = ("woodpecker", "woodpecker-node", "minio")
BUILT = pathlib.Path(os.environ.get("NUTHATCH_PEERS") or pathlib.Path.home() / ".cache/nuthatch-peers")
END_S = 60
# Messages of each load, fewer than the others get: it is slower.
MESSAGES = {
    "async 128 B, window 500": 5_000,
    "async 128 B, window 4000": 10_000,
    "sync 128 B": 300,
    "async 1 KiB, window 500": 5_000,
    "async 64 KiB, window 64": 1_000,
    "async 1 MiB, window 8": 100,
}


def size_of(text):
    return int(text[:-3]) << 10 if text.endswith("KiB") else int(text)


def seconds_of(pid):
    """CPU seconds of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Service:
    """The program of bench/peers/woodpecker, which starts all of it and writes to it, and what the processes use."""

    def __init__(self, options):
        programs = options.peers
        missing = [name for name in PROGRAMS if not (programs / name).exists()]
        if missing:
            raise SystemExit(f"{NAME}: {programs} has no {', '.join(missing)}; bench/peers/build.sh woodpecker minio builds them")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"{NAME}-", dir=options.dir))
        self.log = self.dir / "client.log"
        command = [programs / "woodpecker", "-service", self.dir, "-node", programs / "woodpecker-node", "-minio", programs / "minio"]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def create_stream(self):
        """Waits until all processes run; each load has a log of its own."""
        ready = self.answer()
        print(f"{NAME}: {ready['version']}", flush=True)
        self.nodes, self.others = ready["nodes"], {"etcd": ready["etcd"], "store": ready["store"]}

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"{NAME} has ended: {self.log.read_text(errors='replace')[-2000:]}")
        return json.loads(line)

    def run(self, title, arguments):
        """One load, given as to the load generator of the product. CPU is that of the three nodes; of the others it is told apart."""
        options = dict(zip(arguments, arguments[1:]))
        count = MESSAGES[title]
        asked = {"messages": count, "size": size_of(options["--size"]), "window": int(options.get("--batch", 1))}
        before = self.cpu_s()
        try:
            print(json.dumps(asked), file=self.child.stdin, flush=True)
        except BrokenPipeError:
            pass  # It has ended, and has no answer.
        found = self.answer()
        used = {what: round((now - before[what]) * 1e6 / count, 2) for what, now in self.cpu_s().items()}
        return {
            "msgs_per_s": round(found["msgs_per_s"]),
            "p50_us": round(found["p50_us"]),
            "p99_us": round(found["p99_us"]),
            "cpu_us_per_msg": used["nodes"],
            "etcd_cpu_us_per_msg": used["etcd"],
            "store_cpu_us_per_msg": used["store"],
            "peak_mib": max(self.mib("VmHWM")),
            "messages": count,
            "read_back": self.answer()["read_back"],
        }

    def cpu_s(self):
        """CPU seconds so far, of the nodes together and of each other process."""
        return {"nodes": sum(map(seconds_of, self.nodes)), **{what: seconds_of(pid) for what, pid in self.others.items()}}

    def mib(self, what):
        """Memory of each node: VmRSS now, VmHWM at most."""
        def of(pid):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            return round(int(status.split(f"{what}:")[1].split()[0]) / 1024)
        return list(map(of, self.nodes))

    def stop(self):
        """The program ends its processes when nothing more is asked, and they end with it in any case."""
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.child.wait(END_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

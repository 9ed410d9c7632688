#!/usr/bin/env python3
"""Three nodes on one machine: Nuthatch's quorum log beside nats-server R3, and how long a takeover takes.

    bench/replicated.py load  [--rounds 3] [--only nuthatch-r3,nats-r3] [--json FILE]
    bench/replicated.py tier  [--gib 8] [--local-max 1GB]
    bench/replicated.py kills [--count 200] [--how kill|term|stop] [--only nuthatch-r3] [--patience 0.3] [--json FILE]
    bench/replicated.py keeper | resync [--rounds 3] [--json FILE]
    bench/replicated.py calm [--minutes 10]

`load` publishes to a stream of each system in turn, round after round, with the load generator of the product, on
the port of the node that leads the stream; CPU is that of all nodes. `kills` ends the leader again and again while
one client publishes synchronously and tries all nodes: the longest time without an acknowledgement, then
all acknowledged messages are looked for. `kill` is SIGKILL, `term` a clean end, `stop` a SIGSTOP of three seconds; a request
that is not answered within --patience is given up. Where a server says what the parts of a takeover took, their medians are told.
`keeper` publishes with a keeper stopped, and with one that is ten times slower, beside all of them; `resync` lets one come
back while a fifth of what the log can take is written; `calm` counts owners under full load, of which there should be one. `tier` writes to a quorum log with a bucket (a directory) behind it
while the owner is killed during an upload (a part of an object is there), another node when a segment has just left its directory,
and the bucket is away for a minute; it tells the most that a node's directory held. Everything listens on loopback and stores below a new directory of
--dir. Programs: target/release/nuthatch and target/peers/nats-server (tests/peers.sh), or --nuthatch and --nats. `load --only` takes
woodpecker-service, too: Woodpecker's service of three nodes (bench/peers/build.sh woodpecker minio) with fewer messages, a log for each load.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import keepers
import woodpecker_service

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from ports import free_ports

REPO = pathlib.Path(__file__).resolve().parent.parent
NODES = 3
START_S = 60
STOPPED_S = 3
SETTLE_S = 5
GOES_ON_S = 1
# "takeover: epoch=3 by=loss detection_ms=1.2 …" of a server that tells it.
TAKEOVER = re.compile(r"takeover: epoch=\d+ by=\w+ (.*)")
TICKS = os.sysconf("SC_CLK_TCK")
STREAM = "benchstream"
SUBJECT = "bench.js"
# Name, arguments of the load generator, messages, and how many where each message costs a fsync of its own.
LOADS = [
    ("async 128 B, window 500", ["--size", "128", "--batch", "500"], 400_000, 200_000),
    ("async 128 B, window 4000", ["--size", "128", "--batch", "4000"], 800_000, 300_000),
    ("sync 128 B", ["--size", "128", "--sync"], 10_000, 5_000),
    ("async 1 KiB, window 500", ["--size", "1KiB", "--batch", "500"], 200_000, 100_000),
    ("async 64 KiB, window 64", ["--size", "64KiB", "--batch", "64"], 6_000, 3_000),
    ("async 1 MiB, window 8", ["--size", "1040000", "--batch", "8"], 400, 200),
]


class NoResponders(OSError):
    """Nobody answers now."""


class Nats:
    """As much of a client as is needed here."""

    def __init__(self, port, timeout=2.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.inbox = f"_INBOX.{os.getpid()}.{time.monotonic_ns()}"
        if not self.file.readline().startswith(b"INFO"):
            raise OSError("no INFO")
        options = json.dumps({"verbose": False, "headers": True, "no_responders": True, "lang": "python", "version": "1"})
        self.socket.sendall(f"CONNECT {options}\r\nSUB {self.inbox}.* 1\r\nPING\r\n".encode())
        while (line := self.file.readline()) != b"PONG\r\n":
            if not line or line.startswith(b"-ERR"):
                raise OSError(f"refused: {line}")
        self.number = 0

    def request(self, subject, body=b"", headers=b""):
        self.number += 1
        reply = f"{self.inbox}.{self.number}"
        if headers:
            head = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(body)}\r\n".encode()
        else:
            head = f"PUB {subject} {reply} {len(body)}\r\n".encode()
        self.socket.sendall(head + headers + body + b"\r\n")
        while True:
            line = self.file.readline()
            if not line or line.startswith(b"-ERR"):
                raise OSError(f"the connection has ended: {line}")
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            words = line.split()
            if words and words[0] in (b"MSG", b"HMSG"):
                payload = self.file.read(int(words[-1]) + 2)[:-2]
                if words[0] == b"HMSG":
                    kind = NoResponders if payload.startswith(b"NATS/1.0 503") else OSError
                    raise kind(f"no answer: {payload[:40]}")
                if words[1].decode() == reply:
                    return json.loads(payload)

    def read(self, subject, body=b""):
        """A request that changes nothing, repeated while the log goes to another node."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                return self.request(subject, body)
            except NoResponders:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.25)

    def close(self):
        self.socket.close()


class System:
    """Some nodes of one system."""

    def __init__(self, name, base, options, count=NODES):
        self.name, self.dir = name, pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
        self.count = 1 if name == "nuthatch" else count
        self.ports, self.peers = free_ports(self.count), free_ports(self.count)
        self.options, self.children = options, [None] * self.count
        for at in range(self.count):
            self.start(at)

    def start(self, at):
        log = open(self.dir / f"n{at}.log", "ab")
        self.children[at] = subprocess.Popen(self.command(at), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def command(self, at):
        store, port = self.dir / f"n{at}", str(self.ports[at])
        if self.name.startswith("nuthatch"):
            command = [self.options.nuthatch, "serve", "-a", "127.0.0.1", "-p", port, "-sd", store]
            if self.count > 1:
                routes = ",".join(f"127.0.0.1:{peer}" for peer in self.peers)
                command += ["--node-name", f"n{at}", "--cluster-listen", f"127.0.0.1:{self.peers[at]}"]
                command += ["--routes", routes, "--catalog", f"file://{self.dir}/catalog"]
            if self.name == "nuthatch-bucket":
                command += ["--store", self.options.store or f"file://{self.dir}/bucket"]
            if self.options.what == "tier":
                tier = f'store: "file://{self.dir}/bucket", local_max: {self.options.local_max}'
                config = self.dir / "tier.conf"
                config.write_text(f"jetstream {{ tier {{ {tier} }} }}\n")
                command += ["-c", config]
            elif self.options.lease and self.count > 1:
                config = self.dir / "lease.conf"
                config.write_text(f"jetstream {{ quorum {{ lease: '{self.options.lease}ms' }} }}\n")
                command += ["-c", config]
            return list(map(str, command))
        sync = "always" if self.name.endswith("-sync") else "2m"
        routes = ", ".join(f'"nats://127.0.0.1:{peer}"' for peer in self.peers)
        config = self.dir / f"n{at}.conf"
        config.write_text(
            f'host: 127.0.0.1\nport: {port}\nserver_name: n{at}\nmax_payload: 8MB\n'
            f'jetstream {{ store_dir: "{store}", sync_interval: {sync} }}\n'
            f'cluster {{ name: C, host: 127.0.0.1, port: {self.peers[at]}, routes: [{routes}] }}\n'
        )
        return list(map(str, [self.options.nats, "-c", config]))

    def create_stream(self):
        """On all nodes. Until the system has it; nothing but its own readiness is in the way."""
        replicas = self.count
        config = {"name": STREAM, "subjects": [SUBJECT], "storage": "file", "num_replicas": replicas}
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for port in self.ports:
                try:
                    client = Nats(port)
                    answer = client.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode())
                    client.close()
                    if "error" not in answer:
                        return
                except OSError:
                    pass
            time.sleep(0.1)
        raise SystemExit(f"{self.name} is not ready, see {self.dir}")

    def leader(self):
        """Which node leads the stream."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for at, port in enumerate(self.ports):
                try:
                    client = Nats(port)
                    info = client.request(f"$JS.API.STREAM.INFO.{STREAM}")
                    client.close()
                except OSError:
                    continue
                if "error" not in info:
                    leader = info.get("cluster", {}).get("leader")
                    if self.count == 1:
                        return at
                    if leader:
                        return int(leader[1:])
            time.sleep(0.02)
        raise SystemExit(f"{self.name} has no leader, see {self.dir}")

    def cpu_s(self):
        """CPU seconds of all nodes so far."""
        def of(child):
            fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / TICKS
        return sum(of(child) for child in self.children if child)

    def mib(self, what):
        """Memory of each node: VmRSS now, VmHWM at most."""
        def of(child):
            status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
            return round(int(status.split(f"{what}:")[1].split()[0]) / 1024)
        return [of(child) for child in self.children if child]

    def end(self, at, how):
        """Ends a node, or stops it for a while; gives the time of the signal."""
        number = {"kill": signal.SIGKILL, "wipe": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}[how]
        when = time.monotonic()
        self.children[at].send_signal(number)
        return when

    def begin_again(self, at, how):
        if how == "stop":
            time.sleep(STOPPED_S)
            self.children[at].send_signal(signal.SIGCONT)
        else:
            self.children[at].wait()
            if how == "wipe":
                # All that the node has on its disk.
                shutil.rmtree(self.dir / f"n{at}")
            self.start(at)

    def stop(self):
        for child in self.children:
            if child:
                child.kill()
                child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def load(options):
    results = {}
    for number in range(options.rounds):
        for name in options.only:
            other = name == woodpecker_service.NAME
            system = woodpecker_service.Service(options) if other else System(name, options.dir, options)
            try:
                system.create_stream()
                idle = system.mib("VmRSS")
                for title, arguments, count, slow in LOADS:
                    is_slow = name.endswith("-sync")
                    result = system.run(title, arguments) if other else run_load(system, arguments, slow if is_slow else count, options)
                    results.setdefault(title, {}).setdefault(name, []).append(result)
                    print(f"round {number + 1} {name:14} {title:26} {result}", flush=True)
                print(f"round {number + 1} {name:14} MiB of the nodes: idle {idle}, at most {system.mib('VmHWM')}", flush=True)
            finally:
                system.stop()
    print(table(results, options.only))
    return results


def run_load(system, arguments, count, options):
    url = f"nats://127.0.0.1:{system.ports[system.leader()]}"
    before = system.cpu_s()
    command = [options.nuthatch, "bench", "-s", url, "--json", "js", "pub", "--no-create", "--purge", "--stream", STREAM]
    command += ["--subject", SUBJECT, "--msgs", str(count), *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{system.name}: {done.stderr}\n{done.stdout}")
    report = json.loads(done.stdout)
    runs = report["runs"] if "runs" in report else [report]
    latency = runs[0].get("latency_us") or {}
    return {
        "msgs_per_s": round(runs[0]["msgs_per_s"]),
        "p50_us": latency.get("p50"),
        "p99_us": latency.get("p99"),
        "cpu_us_per_msg": round((system.cpu_s() - before) * 1e6 / count, 2),
        "peak_mib": max(system.mib("VmHWM")),
    }


def table(results, names):
    lines = ["| load | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for title, by_name in results.items():
        cells = []
        for name in names:
            runs = by_name[name]
            median = lambda key: statistics.median(run[key] or 0 for run in runs)
            decides = f"p50 {median('p50_us'):.0f} µs, p99 {median('p99_us'):.0f}"
            if "sync 128" not in title or title.startswith("async"):
                decides = f"{median('msgs_per_s'):,.0f}/s"
            cells.append(f"{decides}, {median('cpu_us_per_msg'):.2f} µs CPU")
            if "etcd_cpu_us_per_msg" in runs[0]:
                cells[-1] += f" (etcd {median('etcd_cpu_us_per_msg'):.2f}, store {median('store_cpu_us_per_msg'):.2f})"
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Publisher(threading.Thread):
    """Publishes one message after the other, each until it is acknowledged, at whichever node takes it."""

    def __init__(self, system, bodies=lambda number: f"{number} ".encode(), patience_s=2.0):
        super().__init__(daemon=True)
        self.patience_s = patience_s
        self.bodies = bodies
        self.system, self.acks, self.ended = system, [], threading.Event()

    def run(self):
        number, at, client = 0, 0, None
        while not self.ended.is_set():
            try:
                client = client or Nats(self.system.ports[at], timeout=self.patience_s)
                headers = f"NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n".encode()
                answer = client.request(SUBJECT, self.bodies(number), headers)
                if "seq" not in answer:
                    raise OSError(str(answer))
                self.acks.append((time.monotonic(), at))
                number += 1
            except OSError:
                if client:
                    client.close()
                client, at = None, (at + 1) % self.system.count
                time.sleep(0.002)


def kills(options):
    name = options.only[0]
    system = System(name, options.dir, options)
    try:
        system.create_stream()
        backlog = Backlog(system, options.streams, options.backlog)
        publisher = Publisher(system, patience_s=options.patience)
        publisher.start()
        gaps = []
        while len(gaps) < options.count:
            time.sleep(options.pause)
            backlog.write()
            at = system.leader()
            offset = (system.dir / f"n{at}.log").stat().st_size
            when = system.end(at, options.how)
            gaps.append(gap(publisher.acks, at, when))
            system.begin_again(at, options.how)
            print(f"{options.how} {len(gaps)} of n{at}: {gaps[-1] * 1000:.0f} ms", flush=True)
            wait_whole(system, at, offset, options.how)
        publisher.ended.set()
        publisher.join()
        check(system, len(publisher.acks))
        shares = shares_of(system)
    finally:
        system.stop()
    ordered = sorted(gaps)
    place = lambda part: 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]
    print(f"{name}, {options.how}: {len(gaps)} times, p50 {place(0.5):.0f} ms, p90 {place(0.9):.0f}, p99 {place(0.99):.0f}, "
          f"longest {1000 * ordered[-1]:.0f}; {len(publisher.acks)} acknowledged, all there once")
    parts = {part: round(statistics.median(those), 1) for part, those in shares.items()}
    if parts:
        print(f"medians of the parts as the servers tell them, ms: {parts}")
    return {"system": name, "how": options.how, "gaps_ms": [round(1000 * one, 1) for one in gaps], "acknowledged": len(publisher.acks),
            "shares_ms": shares}


class Backlog:
    """What the next owner has to read: many streams, and what was just written, in the log of the measured stream."""

    def __init__(self, system, streams, mib):
        self.system, self.mib, self.body = system, mib, os.urandom(1 << 20)[:1_000_000]
        if not streams and not mib:
            return
        # Logs go to the nodes that are to own them first.
        time.sleep(SETTLE_S)
        client = Nats(system.ports[system.leader()], timeout=10)
        info = client.read(f"$JS.API.STREAM.INFO.{STREAM}")["config"]
        tags = {"placement": {"tags": ["log:" + info["metadata"].get("_nuthatch.log", "default")]}}
        names = [("bulk", "bench.bulk", {"max_bytes": 4 * max(1, mib) << 20})] + [(f"s{n}", f"s.{n}", {}) for n in range(streams)]
        for name, subject, limits in names:
            config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": NODES, **limits, **tags}
            answer = client.read(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            if "error" in answer:
                raise SystemExit(f"stream {name}: {answer['error']}")
        client.close()

    def write(self):
        if self.mib:
            client = Nats(self.system.ports[self.system.leader()], timeout=10)
            for _ in range(self.mib):
                client.request("bench.bulk", self.body)
            client.close()


def shares_of(system):
    """By part of a takeover how long it took each time, in ms, as far as the servers tell."""
    found = {}
    for file in system.dir.glob("n*.log"):
        for told in TAKEOVER.findall(file.read_text(errors="replace")):
            for part, ms in re.findall(r"(\w+)_ms=([\d.]+)", told):
                found.setdefault(part, []).append(float(ms))
    return found


def gap(acks, old, signalled):
    """The longest time without an acknowledgement behind a signal to a node, as soon as clients of others have some again: such a
    client also gets what was under way before."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        last = acks[-20_000:]
        times = [when for when, _ in last]
        if times and times[-1] > signalled + GOES_ON_S and any(at != old and when > signalled for when, at in last):
            return max(after - one for one, after in zip(times, times[1:]) if after > signalled)
        time.sleep(0.005)
    raise SystemExit("nobody took over")


def wait_whole(system, at, offset, how):
    """A node that was killed takes part again before the next one is: two of three are needed."""
    if not system.name.startswith("nuthatch"):
        return time.sleep(2)
    log, deadline = system.dir / f"n{at}.log", time.monotonic() + START_S
    while time.monotonic() < deadline:
        # One that was only stopped says nothing, and memory counts when it was taken in: who leads has to tell.
        if all_current(system) if how in ("stop", "wipe") or system.name == "nuthatch-bucket" else b"keeps the quorum log" in log.read_bytes()[offset:]:
            return time.sleep(1)
        time.sleep(0.02)
    raise SystemExit(f"n{at} does not come back, see {system.dir}")


def all_current(system):
    """True if who leads the stream says that all others have what it has."""
    try:
        client = Nats(system.ports[system.leader()])
        info = client.read(f"$JS.API.STREAM.INFO.{STREAM}")
        client.close()
    except OSError:
        return False
    replicas = info["cluster"].get("replicas") or []
    return len(replicas) == system.count - 1 and all(one["current"] and not one.get("offline") for one in replicas)


def check(system, count, looks=5000):
    """All that was acknowledged is in the stream once, in its order."""
    client = Nats(system.ports[system.leader()], timeout=10)
    state = client.read(f"$JS.API.STREAM.INFO.{STREAM}")["state"]
    if state["messages"] not in (count, count + 1):
        raise SystemExit(f"{count} acknowledged, {state['messages']} there")
    for number in range(0, count, max(1, count // looks)):
        ask = json.dumps({"seq": state["first_seq"] + number}).encode()
        deadline, answer = time.monotonic() + START_S, {}
        # A log that is being handed over says so.
        while answer.get("error", {"code": 503})["code"] == 503 and "message" not in answer and time.monotonic() < deadline:
            answer = client.read(f"$JS.API.STREAM.MSG.GET.{STREAM}", ask)
        if not (message := answer.get("message")):
            raise SystemExit(f"message {number} is not there: {answer}")
        if not base64.b64decode(message["data"]).startswith(f"{number} ".encode()):
            raise SystemExit(f"message {number} is not where it was acknowledged")


def tier(options):
    system = System("nuthatch-r3", options.dir, options)
    noise = os.urandom(2 << 20)
    publisher = Publisher(system, lambda number: f"{number} ".encode() + noise[number % 1000:][:1_040_000])
    bucket = system.dir / "bucket"
    total = options.gib << 30
    # What happens when so much of it is acknowledged.
    happens = [(0.3, "the owner is killed during an upload"), (0.45, "another node is killed during a trim"),
               (0.6, "the bucket goes away for 60 s")]
    peaks = {"before": [0] * NODES, "away": [0] * NODES}
    back = threading.Event()
    try:
        system.create_stream()
        publisher.start()
        began, phase = time.monotonic(), "before"
        while (done := len(publisher.acks) * 1_040_000) < total or not back.is_set():
            if done >= total:
                publisher.ended.set()
            if happens and done > happens[0][0] * total:
                what = happens.pop(0)[1]
                print(f"{time.monotonic() - began:.0f} s, {done >> 20} MiB acknowledged: {what}", flush=True)
                phase = phase if happens else "away"
                happen(system, what, bucket, back)
            for at in range(NODES):
                peaks[phase][at] = max(peaks[phase][at], size_of(system.dir / f"n{at}"))
            time.sleep(0.2)
        wrote = publisher.acks[-1][0] - began
        publisher.ended.set()
        publisher.join()
        sizes = lambda: [size_of(system.dir / f"n{at}") for at in range(NODES)]
        settled = settle(sizes)
        check(system, len(publisher.acks), looks=300)
        mib = lambda sizes: ", ".join(f"{size >> 20}" for size in sizes)
        print(f"{len(publisher.acks)} messages, {done >> 20} MiB in {wrote:.0f} s, all there once; MiB of each node: at most "
              f"{mib(peaks['before'])}, with the bucket away {mib(peaks['away'])}, in the end {mib(sizes())} ({settled:.0f} s "
              f"after the bucket was back); of the bucket {size_of(bucket) >> 20}")
        return {"peaks": peaks, "end": sizes(), "seconds": wrote}
    finally:
        system.stop()


def settle(sizes):
    """Waits until nothing moves for five seconds; gives how long that took before."""
    began = changed = time.monotonic()
    before = sizes()
    while time.monotonic() - changed < 5 and time.monotonic() - began < 300:
        time.sleep(0.5)
        if (now := sizes()) != before:
            before, changed = now, time.monotonic()
    return changed - began


def happen(system, what, bucket, back):
    if what.startswith("the bucket"):
        aside = bucket.with_name("bucket-away")
        bucket.rename(aside)
        bucket.write_text("no directory")

        def come_back():
            time.sleep(60)
            bucket.unlink()
            aside.rename(bucket)
            back.set()
        threading.Thread(target=come_back, daemon=True).start()
        return
    at = system.leader()
    if "upload" in what:
        wait_for(lambda: any("#" in name for _, _, names in os.walk(bucket) for name in names), "an upload")
    else:
        at = (at + 1) % NODES
        files = system.dir / f"n{at}/nuthatch/quorum/files"
        known = set(os.listdir(files))

        def one_has_left():
            nonlocal known
            before, known = known, set(os.listdir(files))
            return before - known
        wait_for(one_has_left, "a trim")
    system.end(at, "kill")
    system.begin_again(at, "kill")


def wait_for(happens, what):
    """Looks all the time: it takes some milliseconds only."""
    deadline = time.monotonic() + START_S
    while not happens():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} does not come")
        time.sleep(0.0005)


def size_of(directory):
    size = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                size += os.stat(os.path.join(root, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["load", "kills", "tier", "keeper", "resync", "calm"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--how", choices=["kill", "wipe", "term", "stop"], default="kill",
                        help="what happens to the owner; wipe: killed, and its directory deleted")
    parser.add_argument("--patience", type=float, default=0.3, help="seconds until the client gives up a request")
    parser.add_argument("--messages", type=int, default=200_000, help="of each run of `keeper` and `calm`")
    parser.add_argument("--minutes", type=float, default=10, help="of `calm`")
    parser.add_argument("--away", type=float, default=8, help="seconds that a keeper is away for `resync`")
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--local-max", default="1GB")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds of load before each kill")
    parser.add_argument("--streams", type=int, default=0, help="more streams in the log whose owner is killed (kills)")
    parser.add_argument("--backlog", type=int, default=0, help="MiB that are written to it before each kill (kills)")
    parser.add_argument("--store", help="address of the bucket of nuthatch-bucket; else a directory")
    parser.add_argument("--only", help="systems, by commas: nuthatch, nuthatch-r3, nuthatch-bucket (logs in a bucket), nats-r3, nats-r3-sync, woodpecker-service (load)")
    parser.add_argument("--lease", type=int, help="`lease` of Nuthatch's nodes in ms, for what has no tier; else their default")
    parser.add_argument("--nuthatch", default=REPO / "target/release/nuthatch")
    parser.add_argument("--nats", default=REPO / "target/peers/nats-server")
    parser.add_argument("--peers", type=pathlib.Path, default=woodpecker_service.BUILT, help="programs of bench/peers/build.sh, for woodpecker-service")
    parser.add_argument("--dir", default=REPO / "target", help="where the nodes store")
    parser.add_argument("--json", help="file for all single results")
    options = parser.parse_args()
    default = "nuthatch-r3,nats-r3,nats-r3-sync,nuthatch" if options.what == "load" else "nuthatch-r3"
    options.only = (options.only or default).split(",")
    known = ["nuthatch", "nuthatch-r3", "nuthatch-bucket", "nats-r3", "nats-r3-sync"] + [woodpecker_service.NAME] * (options.what == "load")
    if unknown := [name for name in options.only if name not in known]:
        parser.error(f"{options.what} has no {', '.join(unknown)}, only {', '.join(known)}")
    parts = {
        "load": load, "kills": kills, "tier": tier, "keeper": lambda given: keepers.slow(given, System, run_load),
        "resync": lambda given: keepers.resync(given, System, run_load, Nats, SUBJECT),
        "calm": lambda given: keepers.calm(given, System, run_load),
    }
    results = parts[options.what](options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())

"""What a keeper of the quorum log that is slow, or comes back, costs the others: for replicated.py."""

import os
import signal
import statistics
import threading
import time

CAUGHT_UP_S = 120
# A keeper that is ten times slower runs for a tenth of the time.
SLICE_S = 0.1
SLOWER = 10
BODY = os.urandom(64 << 10)
# As much as may be on its way while sizes are compared.
NEAR_BYTES = 2 << 20


class Slowed(threading.Thread):
    """Stops a process again and again, so that it runs for a tenth of the time."""

    def __init__(self, child):
        super().__init__(daemon=True)
        self.child, self.ended = child, threading.Event()

    def run(self):
        while not self.ended.is_set():
            self.child.send_signal(signal.SIGSTOP)
            time.sleep(SLICE_S * (SLOWER - 1) / SLOWER)
            self.child.send_signal(signal.SIGCONT)
            time.sleep(SLICE_S / SLOWER)

    def end(self):
        self.ended.set()
        self.join()


def kept_bytes(system, at):
    """How long the files are that a node has made of the log."""
    files = system.dir / f"n{at}/nuthatch/quorum/files"
    return sum(file.stat().st_size for file in files.rglob("*") if file.is_file()) if files.exists() else 0


def wait_caught_up(system, at, other):
    deadline = time.monotonic() + CAUGHT_UP_S
    while kept_bytes(system, at) + NEAR_BYTES < kept_bytes(system, other):
        if time.monotonic() > deadline:
            raise SystemExit(f"n{at} does not catch up, see {system.dir}")
        time.sleep(0.02)


def slow(options, System, run_load):
    """Throughput with all keepers, with one stopped and with one ten times slower, in turn on one cluster."""
    system, rates = System(options.only[0], options.dir, options), {}
    arguments = ["--size", "128", "--batch", "500"]
    try:
        system.create_stream()
        run_load(system, arguments, options.messages, options)
        for number in range(options.rounds):
            for how in ("all", "one stopped", "one ten times slower", "all"):
                owner = system.leader()
                at, other = (owner + 1) % system.count, (owner + 2) % system.count
                slowed = Slowed(system.children[at]) if how.endswith("slower") else None
                if slowed:
                    slowed.start()
                elif how == "one stopped":
                    system.children[at].send_signal(signal.SIGSTOP)
                result = run_load(system, arguments, options.messages, options)
                if system.leader() != owner:
                    raise SystemExit(f"n{owner} is not the owner any more: the figures mean nothing")
                if slowed:
                    slowed.end()
                system.children[at].send_signal(signal.SIGCONT)
                wait_caught_up(system, at, other)
                rates.setdefault(how, []).append(result["msgs_per_s"])
                print(f"round {number + 1} {how:22} {result}", flush=True)
    finally:
        system.stop()
    median = {how: statistics.median(those) for how, those in rates.items()}
    for how, rate in median.items():
        print(f"{how:22} {rate:,.0f}/s, {rate / median['all']:.2f} of all")
    return rates


def calm(options, System, run_load):
    """Full load for a while: nobody may take the log over from an owner that lives."""
    system, runs, ended = System(options.only[0], options.dir, options), 0, 0
    try:
        system.create_stream()
        ends = time.monotonic() + 60 * options.minutes
        while time.monotonic() < ends:
            try:
                run_load(system, ["--size", "128", "--batch", "4000"], options.messages, options)
                runs += 1
            except SystemExit as error:
                ended += 1
                print(error, flush=True)
        epochs = {line for at in range(system.count) for line in (system.dir / f"n{at}.log").read_text().splitlines()
                  if " is kept by the nodes " in line}
        print(f"{runs * options.messages:,} messages in {options.minutes:g} minutes, {ended} runs that ended before; "
              f"{len(epochs)} owners: 1 is the first one")
        for line in sorted(epochs):
            print(line)
    finally:
        system.stop()
    return {"messages": runs * options.messages, "owners": len(epochs)}


class Paced(threading.Thread):
    """Publishes so many bytes a second, each message until it is acknowledged."""

    def __init__(self, client, subject, bytes_per_s):
        super().__init__(daemon=True)
        self.client, self.subject, self.pause_s = client, subject, len(BODY) / bytes_per_s
        self.acks, self.ended = [], threading.Event()

    def run(self):
        due = time.monotonic()
        while not self.ended.is_set():
            time.sleep(max(0, due - time.monotonic()))
            began = time.monotonic()
            self.client.request(self.subject, BODY)
            self.acks.append((began, time.monotonic()))
            due = max(due + self.pause_s, began)

    def between(self, begin, end):
        """Bytes a second, and the 99th of 100 latencies in ms."""
        those = sorted(done - began for began, done in self.acks if begin <= began < end)
        return len(those) * len(BODY) / (end - begin), 1000 * those[int(0.99 * len(those))]


def resync(options, System, run_load, Nats, subject):
    """A keeper comes back while a fifth of what the log can take is written; how fast it gets what it lacks."""
    system, found = System(options.only[0], options.dir, options), []
    try:
        system.create_stream()
        result = run_load(system, ["--size", "64KiB", "--batch", "64"], 2000, options)
        live = result["msgs_per_s"] * len(BODY) / 5
        for number in range(options.rounds):
            owner = system.leader()
            at, other = (owner + 1) % system.count, (owner + 2) % system.count
            paced = Paced(Nats(system.ports[owner], timeout=20), subject, live)
            paced.start()
            time.sleep(3)
            away = time.monotonic()
            system.end(at, "kill")
            system.children[at].wait()
            time.sleep(options.away)
            begin, lacking = time.monotonic(), kept_bytes(system, other) - kept_bytes(system, at)
            system.start(at)
            wait_caught_up(system, at, other)
            end = time.monotonic()
            time.sleep(0.5)
            paced.ended.set()
            paced.join()
            (before, p99_before), (during, p99) = paced.between(away - 3, away), paced.between(begin, end)
            rate = (lacking + during * (end - begin)) / (end - begin)
            found.append({"lacking_mib": lacking >> 20, "seconds": round(end - begin, 2), "mib_per_s": round(rate / 2**20, 1),
                          "live_mib_per_s": round(during / 2**20, 1), "live_before": round(before / 2**20, 1),
                          "times_live": round(rate / during, 1), "p99_ms": round(p99, 1), "p99_before_ms": round(p99_before, 1)})
            print(f"round {number + 1} {found[-1]}", flush=True)
    finally:
        system.stop()
    return found

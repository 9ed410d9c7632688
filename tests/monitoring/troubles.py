"""Servers with real trouble of nearly every kind, each until its alert of packaging/prometheus/rules.yml fires.

    troubles.py NUTHATCH DIRECTORY

Starts the servers, writes DIRECTORY/targets.json for a Prometheus, waits for its address in DIRECTORY/prometheus, makes the
troubles, and ends with 0 when each alert has fired for the server that has the trouble. All servers run at the same time: what
takes long is waiting.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import resource
import signal
import sys
import threading
import time
import urllib.parse
import urllib.request

from bucket import Bucket, Trouble
from servers import Server
from ports import free_ports

PATIENCE_S = 300
KIB = 1024
# Of the file handles of a server that has few, so many are left for scrapes.
HANDLES, HANDLES_LEFT = 128, 6

binary, work = sys.argv[1], pathlib.Path(sys.argv[2])
bucket = Bucket()


class Prometheus:
    """What it has let fire so far: alert and server, or log for alerts about all servers."""

    def __init__(self):
        self.fired, self.address = set(), ""

    def find(self):
        wait_until(lambda: (work / "prometheus").exists(), "no Prometheus")
        self.address = (work / "prometheus").read_text().strip()
        threading.Thread(target=self.watch, daemon=True).start()

    def ask(self, path):
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)["data"]

    def watch(self):
        while True:
            for alert in self.ask("alerts")["alerts"]:
                if alert["state"] == "firing":
                    labels = alert["labels"]
                    self.fired.add((labels["alertname"], labels.get("instance", labels.get("log"))))
            time.sleep(0.5)

    def value(self, expression):
        result = self.ask(f"query?query={urllib.parse.quote(expression)}")["result"]
        return float(result[0]["value"][1]) if result else None


prometheus = Prometheus()


def wait_until(condition, why):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(why)
        time.sleep(0.2)


def expect(alert, where, meanwhile=None):
    """Waits until an alert has fired for a server, or a log."""
    where = getattr(where, "instance", where)

    def has_fired():
        if meanwhile:
            meanwhile()
        return (alert, where) in prometheus.fired

    wait_until(has_fired, f"{alert} does not fire for {where}")
    print(f"ok   {alert}", flush=True)


def server(name, *arguments, **options):
    return Server(binary, work, name, *arguments, **options)


def stored_in(prefix):
    return {"config": f'jetstream {{ store: "s3://shop/{prefix}" }}', "environment": bucket.environment()}


def tiered_to(prefix):
    return {"config": f'jetstream {{ tier {{ store: "s3://shop/{prefix}", local_max: 8MB }} }}', "environment": bucket.environment()}


def on_small_disk(size, files=100_000):
    """A file system of its own, in a mount namespace."""
    inside = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    return [*inside, "sh", "-c", f'mount -t tmpfs -o size={size},nr_inodes={files} store store && exec "$@"', "sh"]


def few_handles():
    resource.setrlimit(resource.RLIMIT_NOFILE, (HANDLES, HANDLES))


class Tight:
    """Everything has a small limit: bytes for a client, connections, bytes of the account and of the store, a stream."""

    expects = ["NuthatchSlowConsumers", "NuthatchStreamNearlyFull", "NuthatchAccountNearlyFull", "NuthatchStoreNearlyFull",
               "NuthatchConsumerRedelivery", "NuthatchMessageStuck", "NuthatchConnectionsNearlyAll"]

    def __init__(self):
        self.server = server("tight", """
            max_connections: 12, max_payload: 512KB, max_pending: 1MB, no_auth_user: shop
            accounts { SHOP { users: [{ user: shop, password: shop }], jetstream { max_mem: 1MB, max_file: 4MB, max_streams: 10 } } }
            jetstream { max_file: 4MB }
        """).start()

    def make(self):
        client = self.server.client()
        deaf = self.server.client()
        deaf.send("SUB flood 2\r\n")
        for _ in range(64):
            client.publish("flood", b"x" * 256 * KIB)
        client.add_stream("FULL", max_msgs=20, discard="new")
        client.add_stream("LARGE")
        client.store("full.a", "x", 20)
        client.store("large.a", b"x" * 31 * KIB, 120)
        client.call("CONSUMER.CREATE.FULL.workers", stream_name="FULL", config={
            "durable_name": "workers", "ack_policy": "explicit", "ack_wait": 1_000_000_000})
        idle = [self.server.client() for _ in range(8)]
        client.publish("$JS.API.CONSUMER.MSG.NEXT.FULL.workers", json.dumps({"batch": 1000, "expires": 3_000_000_000_000}), f"{client.inbox}.all")
        self.kept = [deaf, *idle]
        while len(self.kept) < 11:
            self.kept.append(self.server.client())
        reading = threading.Thread(target=self.read, args=[client], daemon=True)
        reading.start()
        for alert in self.expects:
            expect(alert, self.server)

    @staticmethod
    def read(client):
        """Takes what is delivered, and acknowledges nothing; until the server has ended."""
        with contextlib.suppress(AssertionError, OSError):
            while True:
                client.next()


class Handles:
    expects = ["NuthatchFilesNearlyAll"]

    def __init__(self):
        self.server = server("handles", limits=few_handles).start()

    def make(self):
        files = pathlib.Path(f"/proc/{self.server.process.pid}/fd")
        self.kept = []
        while len(list(files.iterdir())) < HANDLES - HANDLES_LEFT:
            self.kept.append(self.server.client())
        expect("NuthatchFilesNearlyAll", self.server)


class Many:
    """More streams than /metrics shows."""

    expects = ["NuthatchMetricsOmitted"]

    def __init__(self):
        self.server = server("many").start()

    def make(self):
        client = self.server.client()
        for i in range(1001):
            body = json.dumps({"name": f"S{i}", "subjects": [f"s.{i}"], "storage": "memory"})
            client.publish(f"$JS.API.STREAM.CREATE.S{i}", body, f"{client.inbox}.s")
        for _ in range(1001):
            assert b'"error"' not in client.next()[1]
        expect("NuthatchMetricsOmitted", self.server)


class Restless:
    expects = ["NuthatchRestarts"]

    def __init__(self):
        self.server = server("restless").start()

    def make(self):
        def again():
            # A few scrapes see each life.
            time.sleep(4)
            self.server.stop(kill=True)
            self.server.start()

        expect("NuthatchRestarts", self.server, meanwhile=again)


class Damaged:
    """A checkpoint rots while the server is away, and a message while it runs, so that its stream cannot move."""

    expects = ["NuthatchUnusableFiles", "NuthatchDamage", "NuthatchMoveFailing"]

    def __init__(self):
        self.server = server("damaged", "jetstream { logs { other { mode: local } } }").start()
        client = self.server.client()
        client.add_stream("ROT")
        for i in range(300):
            client.store("rot.a", f"message {i} ".encode() * KIB)
        segment = self.server.files("*.seg")[0]
        self.server.stop()
        log = self.server.dir / "store/nuthatch/default"
        self.spoil(sorted(log.glob("checkpoint-*"))[-1], 100)
        self.segment = log / segment.name
        self.server.start()

    @staticmethod
    def spoil(file, at):
        with open(file, "r+b") as opened:
            opened.seek(at)
            opened.write(b"rot" * 20)

    def make(self):
        self.spoil(self.segment, self.segment.read_bytes().index(b"message 3 "))
        client = self.server.client()
        assert "error" in json.loads(client.ask("$JS.API.STREAM.MSG.GET.ROT", '{"seq":4}'))
        client.call("STREAM.MOVE.ROT", log="other")
        for alert in self.expects:
            expect(alert, self.server)


class Slow:
    """A bucket that is fast, then slow, then slower than what is published."""

    expects = ["NuthatchSlowDisk", "NuthatchSlowPublishes", "NuthatchSlowApi", "NuthatchOverload", "NuthatchPublishesRefused"]

    def __init__(self):
        self.server = server("slow", **stored_in("slow")).start()
        self.server.client().add_stream("WORK")
        threading.Thread(target=self.work, args=["work.a", 0.05], daemon=True).start()

    def work(self, subject, pause_s):
        client = self.server.client()
        # Until the server has ended.
        with contextlib.suppress(OSError):
            while True:
                client.publish(subject, b"x" * 100)
                time.sleep(pause_s)

    def make(self):
        usual = f'count_over_time(log:nuthatch_log_sync_seconds:p99_rate5m{{instance="{self.server.instance}"}}[1m])'
        wait_until(lambda: (prometheus.value(usual) or 0) > 20, "it is not known what is usual")
        bucket.troubles["slow"] = Trouble(delay_s=3)
        client, count = self.server.client(), iter(range(1_000_000))
        for alert in self.expects[:3]:
            expect(alert, self.server, meanwhile=lambda: client.add_stream(f"NEW{next(count)}"))
        for _ in range(400):
            client.publish("work.a", b"x" * 1000 * KIB)
        for alert in self.expects[3:]:
            expect(alert, self.server)


class Failing:
    expects = ["NuthatchStoreRetries"]

    def __init__(self):
        self.server = server("failing", **stored_in("failing")).start()
        self.server.client().add_stream("COLD")

    def make(self):
        bucket.troubles["failing"] = Trouble(refuse=503)
        self.server.client().publish("cold.a", b"x")
        expect("NuthatchStoreRetries", self.server)


class Unsaved:
    """The bucket takes everything but checkpoints."""

    expects = ["NuthatchCheckpointsMissing"]

    def __init__(self):
        self.server = server("unsaved", **stored_in("unsaved")).start()
        self.server.client().add_stream("ORDERS")

    def make(self):
        bucket.troubles["unsaved"] = Trouble(delay_s=600, of="checkpoint")
        client = self.server.client()
        expect("NuthatchCheckpointsMissing", self.server, meanwhile=lambda: client.store("orders.a", b"x" * 8 * KIB, 2))


class Behind:
    """The bucket behind the log takes its time."""

    expects = ["NuthatchTierBehind"]

    def __init__(self):
        self.server = server("behind", **tiered_to("behind")).start()
        self.server.client().add_stream("ORDERS")

    def make(self):
        bucket.troubles["behind"] = Trouble(delay_s=20)
        client = self.server.client()
        expect("NuthatchTierBehind", self.server, meanwhile=lambda: client.store("orders.a", b"x" * 64 * KIB, 16))


class Unreadable:
    """What has moved to the bucket behind the log is not there when somebody reads it."""

    expects = ["NuthatchReadErrors"]

    def __init__(self):
        self.server = server("unreadable", **tiered_to("unreadable")).start()
        client = self.server.client()
        client.add_stream("ORDERS")
        client.store("orders.a", b"x" * 64 * KIB, 400)
        self.server.wait_for("nuthatch_tier_moved_segments_total", 1)
        self.server.stop()
        self.server.start()

    def make(self):
        bucket.troubles["unreadable"] = Trouble(is_lost=True)
        client = self.server.client()
        expect("NuthatchReadErrors", self.server,
               meanwhile=lambda: client.publish("$JS.API.STREAM.MSG.GET.ORDERS", '{"seq":1}', f"{client.inbox}.get"))


class Filling:
    """A disk that is half full, and gets a little fuller all the time."""

    expects = ["NuthatchDiskFullSoon"]

    def __init__(self):
        self.server = server("filling", inside=on_small_disk("128m")).start()
        client = self.server.client()
        client.add_stream("ORDERS")
        while self.server.metric("nuthatch_log_medium_free_bytes") > 0.39 * self.server.metric("nuthatch_log_medium_bytes"):
            client.store("orders.a", b"x" * 64 * KIB, 16)

    def make(self):
        client = self.server.client()
        expect("NuthatchDiskFullSoon", self.server, meanwhile=lambda: client.store("orders.a", b"x" * KIB, 16))


class Cramped:
    """No file can be made on its disk, so nothing is given back."""

    expects = ["NuthatchSpaceNotGivenBack"]

    def __init__(self):
        self.server = server("cramped", inside=on_small_disk("256m", 200)).start()
        client = self.server.client()
        client.add_stream("ORDERS")
        client.store("orders.a", b"x" * 64 * KIB, 400)

    def make(self):
        root, count = self.server.root(), 0
        try:
            while True:
                (root / f"file-{count}").touch()
                count += 1
        except OSError:
            pass
        self.server.client().call("STREAM.PURGE.ORDERS")
        expect("NuthatchSpaceNotGivenBack", self.server)


class Cluster:
    """Three nodes, two of them in one zone, one in none, one with other owner_zones; one dies, then another one."""

    expects = ["NuthatchNodeGone", "NuthatchReplicaBehind", "NuthatchQuorumLogWithoutOwner"] + [
        "NuthatchZoneRisk", "NuthatchZonesUnset", "NuthatchOwnerZones", "NuthatchNodeNotReplaced", "NuthatchCatalogAway",
    ]
    # Three on disk, and one in memory.
    logs = 4

    def __init__(self):
        ports = free_ports(3)
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
        config = 'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}]{zone} }}\njetstream {{ quorum {{ replace_after: "10s"{owners} }} }}'
        zones, owners = [", zone: a", ", zone: a", ""], [", owner_zones: [z]", "", ""]
        configs = [config.format(port=port, routes=routes, zone=zones[i], owners=owners[i]) for i, port in enumerate(ports)]
        self.nodes = [server(f"node{i + 1}", config) for i, config in enumerate(configs)]
        self.server = self.nodes[0]
        self.works = True
        with concurrent.futures.ThreadPoolExecutor() as starting:
            list(starting.map(Server.start, self.nodes))
        wait_until(lambda: sum(node.metric("nuthatch_quorum_log_owned") for node in self.nodes) >= self.logs, "not all logs have an owner")
        self.server.client().add_stream("WORK")
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        client = self.server.client()
        while self.works:
            # Nobody answers while the log goes to another node.
            client.publish("work.a", b"x" * 100)
            time.sleep(0.1)

    def make(self):
        one, two, three = self.nodes
        # About the cluster, or a node of it: no server tells them.
        for alert in ("NuthatchZoneRisk", "NuthatchZonesUnset", "NuthatchOwnerZones"):
            expect(alert, None)
        three.stop(kill=True)
        expect("NuthatchNodeGone", one)
        expect("NuthatchReplicaBehind", one)
        # There is no spare.
        expect("NuthatchNodeNotReplaced", None)
        self.works = False
        two.stop(kill=True)
        expect("NuthatchQuorumLogWithoutOwner", "default")
        expect("NuthatchCatalogAway", one)


KINDS = [Tight, Handles, Many, Restless, Damaged, Slow, Failing, Unsaved, Behind, Unreadable, Filling, Cramped, Cluster]


def main():
    chosen = [kind for kind in KINDS if len(sys.argv) < 4 or kind.__name__ in sys.argv[3:]]
    troubles = []
    try:
        for kind in chosen:
            troubles.append(kind())
        servers = Server.all
        targets = [{"targets": [one.instance for one in servers]}]
        nodes = [trouble.server for trouble in troubles if isinstance(trouble, Cluster)]
        (work / "node").write_text("".join(node.instance for node in nodes))
        (work / "targets.new").write_text(json.dumps(targets))
        (work / "targets.new").rename(work / "targets.json")
        prometheus.find()
        # Counters that grow must have been seen before.
        seen = lambda: all((prometheus.value(f'count_over_time(up{{instance="{one.instance}"}}[1m])') or 0) > 3 for one in servers)
        wait_until(seen, "not all servers are scraped")
        with concurrent.futures.ThreadPoolExecutor(len(troubles)) as making:
            results = [(trouble, making.submit(trouble.make)) for trouble in troubles]
        failed = [(trouble, result.exception()) for trouble, result in results if result.exception()]
        for trouble, error in failed:
            print(f"FAILED {type(trouble).__name__}: {error!r}\n{trouble.server.log()}", file=sys.stderr)
        print(f"{'ok  ' if not failed else 'of  '} {sum(len(trouble.expects) for trouble in troubles)} alerts about real trouble", flush=True)
        return 1 if failed else 0
    finally:
        for one in Server.all:
            one.stop(kill=True)


def end(*_):
    """Told to end: no server is left, and threads that wait are not waited for."""
    for one in Server.all:
        if one.process is not None:
            one.process.kill()
    os._exit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    # Threads that keep up a trouble end with the process.
    status = main()
    sys.stdout.flush()
    os._exit(status)

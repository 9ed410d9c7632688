#!/usr/bin/env python3
"""A vector database on its log: rows are inserted and deleted through the log into an index that is searched at the same time.

    bench/ingest_search.py [--engines nuthatch,nats,…] [--rows 100000] [--rounds 2] [--json FILE] [--svg FILE] [--into PAGE]

One process is the database: it appends records of 100 vectors (128 dimensions of float32) to its log, four records a call, each
call awaited; applies what it reads of the log to an HNSW index (usearch); and answers searches (10 nearest) and queries (rows of
10 keys) of one searcher, who asks as fast as answers come. Every tenth record deletes. At most 16 records are in the log and not yet
in the index. Told are rows/s, searches/s, queries/s, latencies, and how long after its append a row is found.

Then a tenth more rows are inserted, and the server is killed (SIGKILL) in the midst and started again: how long nothing was
acknowledged. Then the database is killed: how long another one takes to build the index from the log, and whether everything is
there that was acknowledged. At last the log alone: the same appends for some seconds, without a reader.

Engines: nuthatch-embedded (in the database's process, Python's package), nuthatch, nats (default: synced every two minutes),
nats-sync (`sync_interval: always`), rocksmq, woodpecker (bench/peers/build.sh builds their programs). Unless some are named all six are
measured, but for those whose program is not there, which is said. Each starts on an empty directory;
within a round they take turns, and another one begins each time. Needs numpy and usearch. Everything listens on loopback.

With --into the table and the machine replace what stands in that page between <!-- ingest --> and <!-- /ingest -->.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import bars
import into_page

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from ports import free_port

REPO = pathlib.Path(__file__).resolve().parent.parent
READY_S = 60
TICKS = os.sysconf("SC_CLK_TCK")
# Of a record's rows, a tenth of all records deletes.
ROWS_OF_TEN_RECORDS = 900
FSYNC = {
    "nuthatch-embedded": "before the answer", "nuthatch": "before the answer", "nats": "every 2 min", "nats-sync": "before the answer",
    "rocksmq": "no", "woodpecker": "before the answer, every 10 ms",
}


class Engine:
    """What keeps the log, in a process of its own unless it is embedded."""

    def __init__(self, name, directory, options):
        self.name, self.dir, self.options, self.process = name, directory, options, None
        self.port, self.socket = free_port(), f"{directory}/socket"

    def describe(self):
        """What the node is told."""
        if self.name == "nuthatch-embedded":
            return {"kind": "embedded", "dir": f"{self.dir}/store"}
        if self.name in ("rocksmq", "woodpecker"):
            return {"kind": "program", "socket": self.socket}
        return {"kind": "server", "port": self.port}

    def command(self):
        options, store = self.options, f"{self.dir}/store"
        if self.name == "nuthatch":
            return [options.nuthatch, "serve", "-js", "-a", "127.0.0.1", "-p", self.port, "-sd", store, "--console", "off"]
        if self.name.startswith("nats"):
            sync = "always" if self.name == "nats-sync" else "2m"
            config = self.dir / "nats.conf"
            config.write_text(f'host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: "{store}", sync_interval: {sync} }}\n')
            return [options.nats, "-c", config]
        return [options.rocksmq if self.name == "rocksmq" else options.woodpecker, "--socket", self.socket, "--dir", self.dir]

    def start(self):
        if self.name == "nuthatch-embedded":
            return
        pathlib.Path(self.socket).unlink(missing_ok=True)
        log = open(self.dir / "server.log", "ab")
        command = [str(word) for word in self.command()]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"{self.name} does not start: {(self.dir / 'server.log').read_text()[-2000:]}")
            time.sleep(0.01)

    def answers(self):
        try:
            if self.describe()["kind"] == "program":
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(self.socket)
            else:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def usage(self):
        return usage(self.process) if self.process else {"cpu_s": 0.0, "peak_mib": 0}


def usage(process):
    """CPU seconds of a process so far, and the most memory that it had."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / TICKS, "peak_mib": peak}


class Node:
    """The database: bench/ingest_node.py."""

    # All of them, so that none outlives a run that fails.
    begun = []

    def __init__(self, engine, options):
        told = engine.describe() | {"limit_s": options.limit_s}
        paths = [str(REPO / "bindings/python/src"), os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"NUTHATCH_LIBRARY": str(options.library), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        # One thread computes: the cores are few, and the log needs one, too.
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, REPO / "bench/ingest_node.py", json.dumps(told)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.begun.append(self)
        self.acked, self.acks = 0, []
        self.answer()

    def tell(self, what, **arguments):
        self.process.stdin.write(json.dumps({"do": what} | arguments) + "\n")
        self.process.stdin.flush()

    def answer(self, until_acked=None):
        """The answer to the last command, or None when so many records are acknowledged."""
        for line in self.process.stdout:
            told = json.loads(line)
            if "acked" not in told:
                return told
            self.acked = told["acked"]
            self.acks.append(time.monotonic())
            if until_acked and self.acked >= until_acked:
                return None
        raise SystemExit("the node has ended, see above")

    def call(self, what, **arguments):
        self.tell(what, **arguments)
        return self.answer()

    def kill(self):
        self.process.kill()
        self.process.wait()


def run(name, options):
    """All that is measured of one engine, once."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.dir))
    engine = None
    try:
        engine = Engine(name, directory, options)
        engine.start()
        node = Node(engine, options)
        node.call("create")
        records = max(10, options.rows * 10 // ROWS_OF_TEN_RECORDS)
        before = os.getloadavg()[0]
        result = {"engine": name, "fsync": FSYNC[name], "load_average": before, "load": node.call("load", **{"from": 0, "to": records})}
        result |= {"server": engine.usage(), "node": usage(node.process)}
        more = records + max(10, records // 10)
        node, result["server_killed"] = kill_server(engine, node, options, records, more)
        node, result["node_killed"] = kill_node(engine, node, options)
        if result["node_killed"]["recall"] < 0.5:
            raise SystemExit(f"{name}: searches find {result['node_killed']['recall']:.0%} of the nearest rows")
        result["alone"] = node.call("alone", seconds=options.alone_s)
        return result
    finally:
        for one in Node.begun:
            one.kill()
        Node.begun.clear()
        if engine:
            engine.kill()
        shutil.rmtree(directory, ignore_errors=True)


def kill_server(engine, node, options, begin, end):
    """Kills the server while records are appended; gives the node that goes on."""
    node.tell("load", **{"from": begin, "to": end})
    node.answer(until_acked=(begin + end) // 2)
    killed, acks = time.monotonic(), node.acks
    if engine.process:
        engine.kill()
        engine.start()
        load = node.answer()
    else:
        acked = node.acked
        node.kill()
        node = Node(engine, options)
        load = node.call("load", **{"from": acked, "to": end})
        acks += node.acks
    pauses = [after - before for before, after in zip(acks, acks[1:]) if after > killed]
    verdict = node.call("verify", acked=end)
    return node, {"pause_s": max(pauses), "searched_ms": load["searched_ms"]} | verdict


def kill_node(engine, node, options):
    """Kills the database, and gives another one with what its index needed."""
    acked = node.acked
    node.kill()
    if engine.describe()["kind"] == "program":
        # Embedded in a database, they would have gone with it.
        engine.kill()
        engine.start()
    node = Node(engine, options)
    recovered = node.call("recover", acked=acked)
    node.acked = acked
    return node, recovered | node.call("verify", acked=acked)


# What the table and the picture show: title, unit, and where it is in a result.
COLUMNS = [
    ("rows/s, searched", "rows/s", lambda r: r["load"]["rows_per_s"]),
    ("append p50", "ms", lambda r: r["load"]["appended_ms"]["p50"]),
    ("append p99", "ms", lambda r: r["load"]["appended_ms"]["p99"]),
    ("search mean", "ms", lambda r: r["load"]["searched_ms"]["mean"]),
    ("search p50", "ms", lambda r: r["load"]["searched_ms"]["p50"]),
    ("search p99", "ms", lambda r: r["load"]["searched_ms"]["p99"]),
    ("query p50", "ms", lambda r: r["load"]["queried_ms"]["p50"]),
    ("query p99", "ms", lambda r: r["load"]["queried_ms"]["p99"]),
    ("searches/s", "1/s", lambda r: r["load"]["searches_per_s"]),
    ("queries/s", "1/s", lambda r: r["load"]["queries_per_s"]),
    ("found after, p50", "ms", lambda r: r["load"]["visible_ms"]["p50"]),
    ("server's CPU", "s", lambda r: r["server"]["cpu_s"]),
    ("database's CPU", "s", lambda r: r["node"]["cpu_s"]),
    ("server killed: pause", "s", lambda r: r["server_killed"]["pause_s"]),
    ("database killed: index again after", "s", lambda r: r["node_killed"]["seconds"]),
    ("of that waiting for the log", "s", lambda r: r["node_killed"]["waited_s"]),
    ("acknowledged and lost", "records", lambda r: r["node_killed"]["lost"]),
    ("log alone, rows/s", "rows/s", lambda r: r["alone"]["rows_per_s"]),
]
PANELS = ["rows/s, searched", "append p50", "search p50", "search p99", "database killed: index again after", "log alone, rows/s"]


def number(value):
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def label_of(title, unit):
    return title if "/s" in title else f"{title}, {unit}"


def cell(title, values, name):
    """The median; where there are several rounds, also the least and the most."""
    if title == "server's CPU" and name == "nuthatch-embedded":
        return "–"
    middle, low, high = (number(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def table(results, names):
    lines = ["| | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    lines.append("| fsync | " + " | ".join(FSYNC[name] for name in names) + " |")
    for title, unit, find in [*COLUMNS, ("load average before", "", lambda r: r["load_average"])]:
        of = {name: [find(result) for result in results if result["engine"] == name] for name in names}
        label = label_of(title, unit).rstrip(", ")
        lines.append(f"| {label} | " + " | ".join(cell(title, of[name], name) for name in names) + " |")
    return "\n".join(lines)


def picture(results, names, title):
    """Medians, and as thin lines the least and the most of all rounds."""
    panels = []
    for panel, unit, find in COLUMNS:
        if panel in PANELS:
            panels.append((label_of(panel, unit), [sorted(find(r) for r in results if r["engine"] == name) for name in names]))
    return bars.draw(title, names, panels)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", help=f"of {','.join(FSYNC)}; all whose program is there unless some are named")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--alone-s", type=float, default=5, help="seconds of the log alone")
    parser.add_argument("--limit-s", type=float, default=900, help="of each step of an engine; longer is an error")
    parser.add_argument("--check", action="store_true", help="fail where a log that is not ours loses something, too")
    parser.add_argument("--nuthatch", default=REPO / "target/release/nuthatch")
    parser.add_argument("--library", default=REPO / "target/release/libnuthatch.so", help="for nuthatch-embedded")
    parser.add_argument("--nats", default=REPO / "target/peers/nats-server", help="tests/peers.sh builds it")
    cache = pathlib.Path(os.environ.get("NUTHATCH_PEERS") or pathlib.Path.home() / ".cache/nuthatch-peers")
    parser.add_argument("--rocksmq", default=cache / "rocksmq")
    parser.add_argument("--woodpecker", default=cache / "woodpecker")
    parser.add_argument("--dir", default=REPO / "target", help="where the logs are")
    parser.add_argument("--json", help="file for all single results")
    parser.add_argument("--show", help="measure nothing: table and picture of such a file")
    parser.add_argument("--svg", help="file for a picture")
    parser.add_argument("--into", help="page into which the table goes")
    return parser.parse_args()


def chosen(options):
    """The engines to measure."""
    if options.engines:
        names = options.engines.split(",")
        unknown = [name for name in names if name not in FSYNC]
        if unknown:
            raise SystemExit(f"no engine {unknown[0]}; there are {', '.join(FSYNC)}")
        return names
    programs = {"nuthatch-embedded": options.library, "nuthatch": options.nuthatch, "nats": options.nats, "nats-sync": options.nats,
                "rocksmq": options.rocksmq, "woodpecker": options.woodpecker}
    for name, program in programs.items():
        if not pathlib.Path(program).exists():
            print(f"{name} is left out: there is no {program}", file=sys.stderr)
    return [name for name, program in programs.items() if pathlib.Path(program).exists()]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse()
    names, results = chosen(options), []
    if options.show:
        kept = json.loads(pathlib.Path(options.show).read_text())
        options.rows, results, options.rounds = kept["rows"], kept["results"], 0
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            result = run(name, options)
            results.append(result)
            shown = {title: number(find(result)) for title, _, find in COLUMNS}
            print(f"{name}: round {turn + 1}, load {result['load_average']:.1f}: {shown}", flush=True)
            judge(result, options)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps({"rows": options.rows, "results": results}, indent=1))
    there = [name for name in FSYNC if any(result["engine"] == name for result in results)]
    print(table(results, there))
    if options.into:
        page, words = pathlib.Path(options.into), f"bench/ingest_search.py --rows {options.rows} --rounds {len(results) // len(there)}"
        told = f"{options.rows:,} rows.\n\n{table(results, there)}\n\nMeasured {into_page.machine()}. `{words}`."
        page.write_text(into_page.replaced(page.read_text(), "ingest", told))
    if options.svg:
        title = f"{options.rows:,} rows of 128 float32 through a log into an index that is searched meanwhile"
        pathlib.Path(options.svg).write_text(picture(results, there, title))


def judge(result, options):
    """An index is what its log makes it; and our log, or any with --check, loses nothing that it has acknowledged."""
    for part in ("server_killed", "node_killed"):
        verdict = result[part]
        if verdict["wrong"]:
            raise SystemExit(f"{result['engine']}, {part}: {verdict['wrong']} rows are wrong")
        if verdict["lost"] and (options.check or result["engine"].startswith("nuthatch")):
            raise SystemExit(f"{result['engine']}, {part}: {verdict['lost']} acknowledged records are lost")


if __name__ == "__main__":
    main()

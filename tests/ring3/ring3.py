#!/usr/bin/env python3
"""Real processes keep one quorum log under faults, and what clients did and saw is checked.

    ring3.py [--seed 1] [--seconds 60 | --faults 10] [--nodes 3|5] [--kinds kill,pause,...] [--loopback]

The same seed gives the same faults. As root each node has a network namespace of its own; otherwise, or with
--loopback, nodes listen on 127.0.0.1 and links cannot be cut. With --forgetfs each node's disk is a file system that
forgets what was not synced when its power is cut. Exits with 1 after a finding, and keeps the logs.
"""

import argparse
import asyncio
import collections
import faulthandler
import json
import logging
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from checks import check
from clocks import Clocks
from history import History
from nemesis import WEIGHTS, Nemesis, lacking, possible, schedule, wanted
from net import Loopback, Namespaces
from nodes import Cluster, Etcd, Stuck
from workload import BUCKET, STREAM, UNREACHED, Workload, connect, left, persistently, read_all

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
INSIDE = "NUTHATCH_RING3_INSIDE"
# How long writes may wait after the last fault (Q14), with room for a busy machine.
HEALED_S = 60
SHOWN = 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=[3, 5], default=3)
    parser.add_argument("--seconds", type=float, default=60, help="no fault begins later")
    parser.add_argument("--faults", type=int, help="so many faults, however long they take")
    parser.add_argument("--kinds", help="only these faults, by commas")
    parser.add_argument("--pace", type=float, default=3, help="seconds from one fault to the next, at most")
    parser.add_argument("--rate", type=int, default=400, help="operations per second of all clients, at most 2,000")
    parser.add_argument("--loopback", action="store_true", help="no namespaces")
    parser.add_argument("--binary", default=os.environ.get("NUTHATCH_BINARY"), help="the server")
    parser.add_argument("--forgetfs", help="the program of tests/ring3/forgetfs: power can be cut")
    parser.add_argument("--clocks", help="the library of tests/ring3/clocks: clocks can be wrong")
    parser.add_argument("--catalog", help="`built-in`, the address of a bucket, or `etcd`: one that is started beside the nodes; else a directory beside the disks")
    parser.add_argument("--etcd", default=os.environ.get("ETCD", REPO / "target/peers/etcd"), help="the etcd for that; tests/etcd.sh fetches one")
    parser.add_argument("--spares", type=int, choices=[0, 2], help="nodes that are started where three are to become five; where three keep the logs 2 unless told otherwise")
    parser.add_argument("--zones", help="where the nodes are, by commas and repeated, such as a,a,b; else three zones in turn")
    parser.add_argument("--in-bucket", action="store_true", help="the logs are in a directory used as a bucket; faults: those that nodes without disks know")
    parser.add_argument("--rule-off", help="rules of the protocol to do without, in a build with the feature `mutations`")
    parser.add_argument("--nats", help="a nats-server instead, as it comes, with R3 streams; kinds of faults: those without `wipe` and `restore`")
    parser.add_argument("--dir", default=REPO / "target", help="below it the nodes store")
    parser.add_argument("--plan", action="store_true", help="only print the faults")
    parser.add_argument("--quiet", action="store_true", help="one line")
    parser.add_argument("--json", help="file for the summary")
    options = parser.parse_args()
    if not options.plan and not options.nats and not (options.binary and os.access(options.binary, os.X_OK)):
        parser.error("no server: build nuthatch first, and give --binary or NUTHATCH_BINARY")
    unknown = set(kinds_of(options) or []) - set(WEIGHTS)
    if unknown:
        parser.error(f"no such faults: {', '.join(sorted(unknown))}; there are {', '.join(WEIGHTS)}")
    if options.catalog == "etcd" and not options.plan and not os.access(options.etcd, os.X_OK):
        parser.error(f"no etcd at {options.etcd}: run tests/etcd.sh once, or give --etcd or ETCD")
    options.rate = min(options.rate, 2000)
    if options.spares is None:
        # They take no part in anything else.
        options.spares = 2 if options.nodes == 3 and not options.nats and "resize" in wanted(kinds_of(options)) else 0
    return options


def enter(options):
    """Goes on in namespaces of its own, which end with it and everything in them."""
    if os.geteuid() != 0:
        print("ring3: namespaces need root: links are not cut, power neither (--loopback says the same)", file=sys.stderr)
        options.loopback, options.forgetfs = True, None
    if options.loopback and not options.forgetfs or INSIDE in os.environ:
        return
    words = ["unshare", "--net"] if not options.loopback else ["unshare"]
    words += ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    os.execvpe(words[0], words, {**os.environ, INSIDE: "1"})


async def play(cluster, options, history, played):
    """Faults under load, then none; `played` gets the faults, `history` what clients saw and what is there in the end."""
    if cluster.net.has_links:
        await asyncio.to_thread(cluster.net.prove)
    if cluster.etcd:
        await asyncio.to_thread(cluster.etcd.start)
    cluster.start()
    workload = Workload(cluster.urls(), history, options.seed, options.rate, cluster.replicas)
    nemesis = Nemesis(cluster, lambda: owner_of(cluster, workload), played, history)
    history.effects = nemesis.effects
    try:
        await begun(cluster, workload)
        try:
            await faults_of(cluster, options, history, nemesis)
        except Stuck as stuck:
            # What is there in the end says more.
            history.findings.append(str(stuck))
            for node in cluster.nodes:
                if node.has_ended():
                    node.start()
        cluster.is_wrong = lambda: False
        await healed(history, played[-1][0] if played else "the start")
        await workload.stop()
        await history_of_the_end(cluster, workload, history)
        await disks_of_the_end(cluster, options, history)
    finally:
        await workload.close()


async def begun(cluster, workload):
    """Clients find the nodes, which all live."""
    starts = asyncio.create_task(workload.start())
    while not (await asyncio.wait([starts], timeout=1))[0]:
        if ended := [node.name for node in cluster.nodes if node.has_ended()]:
            starts.cancel()
            raise Stuck(f"{', '.join(ended)} ended at the start")
    await starts
    cluster.is_founded = True


async def disks_of_the_end(cluster, options, history):
    """Nodes end, and what they leave is whole: nothing rotten that nobody noticed, nothing lacking for good."""
    if options.nats:
        return
    for node in cluster.nodes:
        if not cluster.store:
            await asyncio.to_thread(cluster.wait_healed, node)
        if not await asyncio.to_thread(node.end):
            history.findings.append(f"{node.name} did not end within its limit after SIGTERM")
        if not cluster.store and not await asyncio.to_thread(cluster.is_whole, node):
            history.findings.append(f"{node.name} has left a damaged disk: {await asyncio.to_thread(cluster.doctor, node)}")
        if len(cluster.nodes) // 2 >= sum(one.has_ended() for one in cluster.nodes):
            continue
        # The others need a majority to heal what they lack.
        for one in cluster.nodes:
            if one.has_ended():
                one.start()


async def faults_of(cluster, options, history, nemesis):
    """One after another, until their time is over or something is found."""
    ends = time.monotonic() + options.seconds
    kinds = possible(cluster, kinds_of(options))
    history.left_out = lacking(cluster, kinds_of(options))
    for why, without in history.left_out.items():
        # Told in any case: what is not played shows nothing.
        print(f"   left out: {', '.join(without)} ({why})", flush=True)
    if not kinds:
        raise SystemExit("ring3: nothing of --kinds can be played on this machine")
    faults = schedule(options.seed, options.nodes, kinds, options.pace)
    played = nemesis.played
    while len(played) < options.faults if options.faults is not None else time.monotonic() < ends:
        fault = next(faults)
        await nemesis.play(fault)
        ended = [node.name for node in cluster.nodes if node.has_ended()]
        if ended:
            raise Stuck(f"{', '.join(ended)} ended by itself during {fault}")
        if history.findings:
            return
        # Every second fault comes on what the last one has left, be it a takeover; before the others writes are taken.
        if fault.seed % 2:
            await healed(history, fault)
        say(options, f"   {played[-1][3] - played[0][2]:6.1f} s  {fault}: {', '.join(played[-1][1])}")


def say(options, text):
    if not options.quiet:
        print(text, flush=True)


def kinds_of(options):
    return options.kinds.split(",") if options.kinds else None


def owner_of(cluster, workload):
    return number_of(cluster, workload.owner())


def number_of(cluster, name):
    return next((node.at for node in cluster.all if node.name == name), None)


async def healed(history, fault):
    """When a fault has ended, writes are taken again."""
    began, deadline = time.monotonic(), time.monotonic() + HEALED_S
    while not history.acked_at or history.acked_at[-1] < began:
        if time.monotonic() > deadline:
            raise Stuck(f"nothing was acknowledged for {HEALED_S} s after {fault}")
        await asyncio.sleep(0.1)


async def history_of_the_end(cluster, workload, history):
    """Reads everything at one owner after another, and checks what the first one had; the others must have the same. Those
    that had the log stay away as long as a majority is there, so that it goes on to another one."""
    first, readers, away = None, set(), []
    for _ in range(3 * len(cluster.nodes)):
        client, owner = await connect(cluster.urls()), 0
        try:
            info = await persistently(lambda: client.jetstream(timeout=10).stream_info(STREAM))
            owner = number_of(cluster, info.cluster.leader)
            messages = await read_all(client, STREAM, "ring.*")
            stream = [(seq, headers.get("Nats-Msg-Id"), content) for seq, _, headers, content, _ in messages]
            stamps = [stamp for *_, stamp in messages]
            keys = [(seq, subject.removeprefix(f"$KV.{BUCKET}."), content)
                    for seq, subject, _, content, _ in await read_all(client, f"KV_{BUCKET}", f"$KV.{BUCKET}.>")]
        except UNREACHED as error:
            raise Stuck(f"{cluster.all[owner].name} does not answer the final read: {error}") from error
        finally:
            await left(client)
        name = cluster.all[owner].name
        if first is None:
            first, history.end, history.stamps = name, (stream, keys), stamps
        elif (stream, keys) != history.end:
            history.findings.append(f"{name} has another log than {first} had: {difference(history.end, (stream, keys))}")
        elif stamps != history.stamps:
            history.findings.append(f"{name} has other times of messages than {first} had")
        readers.add(name)
        if len(readers) == len(cluster.nodes):
            break
        away.append(cluster.all[owner])
        await asyncio.to_thread(away[-1].end)
        if len(away) > len(cluster.nodes) // 2:
            away.pop(0).start()
    for node in away:
        node.start()
    history.read_at = sorted(readers)
    if len(readers) == 1:
        history.findings.append(f"{first} owned the log each time: nothing was compared")


def difference(one, other):
    for what, those, these in zip(("stream", "bucket"), one, other):
        for entry in sorted(set(those) ^ set(these)):
            return f"{what} {str(entry)[:100]}, {len(those)} and {len(these)} in all"
    return "another order"


def silences(played, acked_at):
    """For each kind of fault the longest time without an acknowledgement while it was there and until the next one."""
    found = collections.defaultdict(list)
    for at, (fault, _, began, _) in enumerate(played):
        until = played[at + 1][2] if at + 1 < len(played) else (acked_at[-1] if acked_at else began)
        times = [began, *(when for when in acked_at if began < when < until), until]
        found[fault.kind].append(max(later - earlier for earlier, later in zip(times, times[1:])))
    return found


def summary(options, history, played, findings):
    outcomes = collections.Counter("acked" if publish.ended else "unknown" for publish in history.publishes)
    return {
        "seed": options.seed, "nodes": options.nodes, "faults": [str(fault) for fault, *_ in played],
        "acknowledged": outcomes["acked"], "unknown": outcomes["unknown"],
        "writes": sum(write.revision is not None for write in history.writes),
        "refused": sum(write.refused for write in history.writes),
        "writes_unknown": sum(write.ended is None for write in history.writes),
        "jobs": len(history.jobs), "deliveries": len(history.deliveries),
        "redelivered": sum(one.attempt > 1 for one in history.deliveries),
        "confirmed": sum(one.ended is not None for one in history.settled), "effects": dict(history.effects), "left_out": history.left_out,
        "reads": len(history.reads) + len(history.looks), "read_at": getattr(history, "read_at", []),
        "silent_s": {kind: [round(one, 2) for one in those] for kind, those in silences(played, history.acked_at).items()},
        "lost": sum(" was acknowledged " in finding and " in the end" in finding for finding in findings), "findings": findings,
    }


def tell(options, told):
    for kind, those in sorted(told["silent_s"].items()):
        say(options, f"   {kind:12} {len(those):3} times, without an acknowledgement at most {max(those):.2f} s, median {sorted(those)[len(those) // 2]:.2f}")
    if told["effects"]:
        say(options, "   " + ", ".join(f"{count:,} {what}" for what, count in told["effects"].items()))
    print(f"ring 3: seed {told['seed']}, {told['nodes']} nodes, {len(told['faults'])} faults; {told['acknowledged']} acknowledged, "
          f"{told['unknown']} unknown; keys: {told['writes']} written, {told['refused']} refused, {told['writes_unknown']} unknown; "
          f"{told['jobs']} jobs; {told['deliveries']} deliveries, {told['redelivered']} of them again, {told['confirmed']} acknowledgements confirmed; "
          f"{told['reads']} reads; {told['from_standbys']} logs taken over from a standby; read in the end at {', '.join(told['read_at']) or 'no node'}; {len(told['findings'])} findings"
          + (f", {told['lost']} times what was acknowledged is not there or elsewhere" if told["lost"] else ""), flush=True)
    for finding in told["findings"][:SHOWN]:
        print(f"   FOUND: {finding}", flush=True)


def keep(cluster, directory, history, told):
    """What it takes to understand a finding: logs, disks, history."""
    kept = pathlib.Path(tempfile.mkdtemp(prefix="ring3-finding-", dir=directory.parent))
    cluster.keep(kept)
    for file in [*cluster.dir.glob("*.log"), *cluster.dir.glob("catalog"), *cluster.dir.glob("etcd")]:
        (shutil.copytree if file.is_dir() else shutil.copy)(file, kept / file.name)
    those = [vars(one) for one in (*history.publishes, *history.jobs, *history.writes, *history.reads, *history.looks,
                                   *history.deliveries, *history.settled, *history.floors)]
    (kept / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in those))
    (kept / "summary.json").write_text(json.dumps(told, indent=1))
    print(f"   kept in {kept}", flush=True)


def main():
    options = arguments()
    if options.plan:
        return plan(options)
    enter(options)
    faulthandler.register(signal.SIGUSR1)
    # A client that is left while it reconnects leaves tasks behind.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ring3-", dir=pathlib.Path(options.dir).resolve()))
    count = options.nodes + options.spares
    net = (Loopback if options.loopback else Namespaces)(count)
    cluster = Cluster(options.nats or options.binary, directory, net, options.nodes, options.forgetfs, options.rule_off, bool(options.nats), options.spares)
    cluster.etcd = Etcd(options.etcd, directory, net) if options.catalog == "etcd" else None
    cluster.catalog = cluster.etcd.catalog if cluster.etcd else options.catalog or cluster.catalog
    cluster.zones = options.zones.split(",") if options.zones else cluster.zones
    cluster.store = f"file://{directory}/bucket" if options.in_bucket else None
    if options.clocks:
        cluster.clocks = Clocks(directory, count, options.clocks, options.seed, not options.loopback)
    end_on_signals(cluster, directory)
    history, played, findings = History(), [], []
    cluster.is_wrong = lambda: bool(history.findings)
    try:
        asyncio.run(play(cluster, options, history, played))
        findings = check(history, *history.end)
    except Stuck as stuck:
        findings = [*history.findings, str(stuck)]
    finally:
        told = summary(options, history, played, findings)
        told["from_standbys"] = sum(node.takeovers_from_standbys() for node in cluster.all)
        tell(options, told)
        if findings or sys.exc_info()[0]:
            keep(cluster, directory, history, told)
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(told, indent=1))
    return 1 if findings else 0


def end_on_signals(cluster, directory):
    """The first process of its namespace: with it everything ends, and its directory goes."""
    def end(*_):
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(130)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


def plan(options):
    """The faults of this seed, whatever machine it is: with everything that can be had."""
    everything = wanted(kinds_of(options))
    for _, fault in zip(range(options.faults or 20), schedule(options.seed, options.nodes, everything, options.pace)):
        print(f"after {fault.pause_s:.1f} s {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

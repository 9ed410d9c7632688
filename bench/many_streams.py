#!/usr/bin/env python3
"""Three nodes with many streams and consumers on few quorum logs: what they cost.

    bench/many_streams.py [--streams 100000] [--messages 0] [--rounds 3] [--kills 5] [--rest 2] [--json FILE]

Measures publishes to one stream, then makes as many R3 streams, each with a durable consumer, and measures again: the same
publishes, the CPU and the bytes between the nodes of an idle cluster, memory, and the longest time without an acknowledgement
when an owner is killed, of clients at all nodes that publish every 10 ms without waiting. With --messages so many of 128 B are in the first stream meanwhile, and
publishes are not measured again, since that purges it. Everything listens on loopback and stores below a new directory of --dir.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

from pulses import Pulses, add_options
from replicated import NODES, Nats, System, gap, run_load, shares_of, wait_whole

# Requests under way at once while streams are made.
WINDOW = 256
IDLE_S = 20
LOADS = {"async 128 B, window 500": (["--size", "128", "--batch", "500"], 200_000), "sync 128 B": (["--size", "128", "--sync"], 5_000)}


def make(client, subjects_and_bodies):
    """Sends requests with a window, and repeats those that no owner took; the first refusal ends it."""
    waiting, repeated, source, ended = {}, [], iter(subjects_and_bodies), False
    while True:
        while len(waiting) < WINDOW and not ended:
            ask = repeated.pop() if repeated else next(source, None)
            if ask is None:
                ended = True
                break
            client.number += 1
            reply = f"{client.inbox}.{client.number}".encode()
            waiting[reply] = ask
            client.socket.sendall(b"PUB %s %s %d\r\n%s\r\n" % (ask[0].encode(), reply, len(ask[1]), ask[1]))
        if not waiting:
            return
        line = client.file.readline()
        words = line.split()
        if line.startswith(b"PING"):
            client.socket.sendall(b"PONG\r\n")
        if not line or line.startswith(b"-ERR"):
            raise SystemExit(f"the connection has ended: {line}")
        if not words or words[0] not in (b"MSG", b"HMSG"):
            continue
        payload = client.file.read(int(words[-1]) + 2)[:-2]
        ask = waiting.pop(words[1])
        answer = {} if words[0] == b"HMSG" else json.loads(payload)
        # Nobody has the log at this moment, or its owner has just lost it: creating again does no harm.
        if words[0] == b"HMSG" or answer.get("error", {}).get("code") == 503:
            repeated.append(ask)
            ended = False
            time.sleep(0.05)
        elif "error" in answer:
            raise SystemExit(f"{ask[0]}: {answer['error']}")


def fill(system, count):
    stream = lambda at: {"name": f"S{at}", "subjects": [f"many.{at}"], "storage": "file", "num_replicas": NODES}
    consumer = lambda at: {"stream_name": f"S{at}", "config": {"durable_name": "D", "ack_policy": "explicit"}}
    took = {}
    for what, subject, body in (
        ("streams", "$JS.API.STREAM.CREATE.S{}", stream),
        ("consumers", "$JS.API.CONSUMER.DURABLE.CREATE.S{}.D", consumer),
    ):
        client, began = Nats(system.ports[0], timeout=60), time.monotonic()
        make(client, ((subject.format(at), json.dumps(body(at)).encode()) for at in range(count)))
        client.close()
        took[what] = round(time.monotonic() - began, 1)
        print(f"{count} {what} in {took[what]} s", flush=True)
    return took


def loopback_bytes():
    line = next(line for line in open("/proc/net/dev") if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def idle(system):
    """CPU of each node in percent of a core, and bytes a second on the loopback interface, while nobody asks for anything."""
    time.sleep(IDLE_S / 2)
    cpu, sent, began = system.cpu_s(), loopback_bytes(), time.monotonic()
    time.sleep(IDLE_S)
    seconds = time.monotonic() - began
    share = 100 * (system.cpu_s() - cpu) / seconds / NODES
    return {"cpu_percent_of_a_core_per_node": round(share, 2), "loopback_bytes_per_s": round((loopback_bytes() - sent) / seconds)}


def loads(system, rounds, options):
    results = {}
    for _ in range(rounds):
        for title, (arguments, count) in LOADS.items():
            results.setdefault(title, []).append(run_load(system, arguments, count, options))
    median = lambda runs, key: statistics.median(run[key] or 0 for run in runs)
    keys = ("msgs_per_s", "p50_us", "cpu_us_per_msg")
    return {title: {key: median(runs, key) for key in keys} for title, runs in results.items()}


def kills(system, count, rest_s):
    pulses, gaps = Pulses(system), []
    for _ in range(count):
        time.sleep(rest_s)
        at = system.leader()
        offset = (system.dir / f"n{at}.log").stat().st_size
        when = system.end(at, "kill")
        gaps.append(round(1000 * gap(pulses.acks, at, when)))
        system.begin_again(at, "kill")
        began = time.monotonic()
        wait_whole(system, at, offset, "kill")
        print(f"n{at} killed: {gaps[-1]} ms; it is back after {time.monotonic() - began:.1f} s", flush=True)
    pulses.end()
    return {"gaps_ms": gaps, "parts_ms": {part: statistics.median(all) for part, all in shares_of(system).items()}}


def measure(system, options):
    found = {"idle": idle(system), "rss_mib": system.mib("VmRSS")}
    if not options.messages:
        found["loads"] = loads(system, options.rounds, options)
    print(json.dumps(found), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rest", type=float, default=2, help="seconds between a node's return and the next kill; its standbys need some")
    add_options(parser)
    options = parser.parse_args()
    options.what = "many"
    system = System("nuthatch-r3", options.dir, options)
    results = {}
    try:
        system.create_stream()
        results["before"] = measure(system, options)
        results["made"] = fill(system, options.streams)
        if options.messages:
            results["filled"] = run_load(system, ["--size", "128", "--batch", "4000"], options.messages, options)
        results["with"] = measure(system, options)
        results["kills"] = kills(system, options.kills, options.rest)
        print(json.dumps(results["kills"]), flush=True)
    finally:
        system.stop()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())

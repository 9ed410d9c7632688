#!/usr/bin/env python3
"""Five nodes in three zones, of which one with two nodes is lost: how long nothing is acknowledged, and what becomes of what clients
of the other zones had under way.

    bench/zone_lost.py [--kills 5] [--lease 100] [--nuthatch target/release/nuthatch] [--json FILE]

A publish counts as not acknowledged, too, if it is answered that nobody is there. Each time both nodes of the zone in which the log is owned are killed at once, and started again when that was measured. A client of
each node publishes every 10 ms without waiting. Everything listens on loopback and stores below a new directory of --dir.
"""

import argparse
import json
import pathlib
import sys
import time

from pulses import Pulses, add_options
from replicated import System, all_current, gap

ZONES = "aabbc"
IN_FLIGHT_S = 1
CURRENT_S = 60


class Zones(System):
    """Nodes in zones."""

    def __init__(self, options):
        self.built_in = options.catalog == "built-in"
        super().__init__("nuthatch-r3", options.dir, options, count=len(ZONES))

    def command(self, at):
        command = super().command(at) + ["--zone", ZONES[at]]
        if self.built_in:
            command[command.index("--catalog") + 1] = "built-in"
        return command


def loses(system, pulses, lost):
    """Kills the nodes; gives the gap, how many publishes of the others had no acknowledgement, and between which times they were sent."""
    whens = [system.end(at, "kill") for at in lost]
    others = [at for at in range(len(ZONES)) if at not in lost]
    took = gap(pulses.acks, lost[0], whens[0])
    time.sleep(2 * IN_FLIGHT_S)
    gone = pulses.lost(others, whens[0] - IN_FLIGHT_S, time.monotonic() - IN_FLIGHT_S)
    span = gone[-1] - gone[0] if gone else 0
    return {"gap_ms": round(1000 * took), "unanswered": len(gone), "span_ms": round(1000 * span)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rest", type=float, default=15, help="seconds between the nodes' return and the next loss")
    add_options(parser)
    parser.add_argument("--catalog", choices=["built-in", "directory"], default="built-in")
    options = parser.parse_args()
    options.what = "zones"
    system, found = Zones(options), []
    try:
        system.create_stream()
        pulses = Pulses(system)
        for _ in range(options.kills):
            time.sleep(options.rest)
            owner = system.leader()
            lost = [at for at in range(len(ZONES)) if ZONES[at] == ZONES[owner]]
            found.append(loses(system, pulses, lost))
            print(f"zone {ZONES[owner]} with {len(lost)} nodes: {found[-1]}", flush=True)
            for at in lost:
                system.begin_again(at, "kill")
            deadline = time.monotonic() + CURRENT_S
            while not all_current(system) and time.monotonic() < deadline:
                time.sleep(0.1)
        pulses.end()
    finally:
        system.stop()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())

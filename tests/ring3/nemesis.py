"""Faults, drawn from a seed, one after another; each is over before the next one comes."""

import asyncio
import dataclasses
import random
import signal
import time

# What a kind needs beside processes: links, loss, or disks that forget.
NEEDS = {
    "isolated": "links", "mute": "links", "deaf": "links", "parted": "links", "links": "links", "loss": "loss",
    "power": "power", "power-wipe": "power", "full": "power", "slow": "power", "eio": "power",
}
WEIGHTS = {
    "kill": 4, "kill-many": 1, "term": 2, "pause": 4, "pause-many": 1, "wipe": 1, "restore": 1, "wipe-behind": 1, "restore-behind": 1, "isolated": 3, "mute": 2,
    "deaf": 2, "parted": 2, "links": 2, "loss": 2, "power": 6, "power-wipe": 2, "full": 2, "slow": 2, "eio": 2,
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault. `who` are ranks: 0 is the node that owns the log when it comes, the others follow it in a ring."""

    kind: str
    who: tuple
    hold_s: float
    pause_s: float
    seed: int

    def __str__(self):
        return f"{self.kind} of {','.join(map(str, self.who))} for {self.hold_s:.1f} s"


def schedule(seed, count, kinds, pace_s):
    """Endless, and the same for the same arguments."""
    draw = random.Random(f"{seed} faults")
    weights = [WEIGHTS[kind] for kind in kinds]
    while True:
        kind = draw.choices(kinds, weights)[0]
        many = draw.randint(2, count)
        first = 0 if draw.random() < 0.6 else draw.randrange(1, count)
        ranks = [(first + step) % count for step in range(count)]
        power = draw.choice([1, 1, 2, count, count])
        of_kind = {"kill-many": many, "pause-many": many, "power": power}
        how_many = of_kind.get(kind, count if "-" in kind else 1)
        hold_s = 0.1 * 300 ** draw.random() if kind.startswith("pause") else draw.uniform(0.2, 6)
        yield Fault(kind, tuple(ranks[:how_many]), min(hold_s, 30), draw.uniform(0.3, 1) * pace_s, draw.randrange(1 << 32))


def possible(cluster, only=None):
    """The kinds of faults that this machine can play, in a fixed order."""
    has = {"links": cluster.net.has_links, "loss": cluster.net.has_loss, "power": cluster.has_forgetful_disks}
    kinds = [kind for kind in WEIGHTS if has.get(NEEDS.get(kind), True)]
    return [kind for kind in kinds if not only or kind in only]


class Nemesis:
    """Plays faults on a cluster; `owner` tells the number of the node that owns the log."""

    def __init__(self, cluster, owner, played):
        self.cluster, self.owner, self.played = cluster, owner, played

    async def play(self, fault):
        await asyncio.sleep(fault.pause_s)
        count = len(self.cluster.nodes)
        owner = self.owner() or 0
        victims = [self.cluster.nodes[(owner + rank) % count] for rank in fault.who]
        began = time.monotonic()
        action = getattr(self, fault.kind.replace("-", "_"))
        await action(fault, victims)
        self.played.append((fault, [node.name for node in victims], began, time.monotonic()))

    async def wait(self, action, *arguments):
        return await asyncio.to_thread(action, *arguments)

    async def kill(self, fault, victims):
        for node in victims:
            node.kill()
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.start()

    kill_many = kill

    async def term(self, fault, victims):
        for node in victims:
            if not await self.wait(node.end):
                raise AssertionError(f"{node.name} did not end within its limit after SIGTERM")
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.start()

    async def pause(self, fault, victims):
        for node in victims:
            node.signal(signal.SIGSTOP)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.signal(signal.SIGCONT)

    pause_many = pause

    async def wipe(self, fault, victims):
        """One disk is empty. No other disk is harmed before the set is whole again."""
        await self.replace(fault, victims, lambda node: node.disk.wipe())

    async def restore(self, fault, victims):
        """A disk is as it was a start ago."""
        for node in victims:
            node.kill()
            await self.wait(node.disk.take_image)
            node.start()
        await asyncio.sleep(2 + fault.hold_s)
        for node in victims:
            await self.wait(self.cluster.wait_begun, node)
        await self.replace(fault, victims, lambda node: node.disk.restore_image())

    async def wipe_behind(self, fault, victims):
        """A disk is empty while those that can answer are behind: what is acknowledged is on disks that are away."""
        await self.replace_behind(fault, victims, lambda node: node.disk.wipe())

    async def restore_behind(self, fault, victims):
        """The same with a disk as it was a start ago."""
        harmed = victims[-1]
        harmed.kill()
        await self.wait(harmed.disk.take_image)
        harmed.start()
        await self.wait(self.cluster.wait_begun, harmed)
        await asyncio.sleep(2)
        await self.replace_behind(fault, victims, lambda node: node.disk.restore_image())

    async def replace_behind(self, fault, victims, harm):
        before, minority = self.cluster.set(), len(victims) // 2
        behind, others, harmed = victims[1:1 + minority], [victims[0], *victims[1 + minority:]], victims[-1]
        for node in behind:
            node.signal(signal.SIGSTOP)
        await asyncio.sleep(2)
        for node in others:
            node.kill()
        await self.wait(harm, harmed)
        for node in behind:
            node.signal(signal.SIGCONT)
        harmed.start()
        await asyncio.sleep(fault.hold_s)
        for node in others[:-1]:
            node.start()
        await self.wait(self.cluster.wait_replaced, before)

    async def replace(self, fault, victims, harm):
        before = self.cluster.set()
        for node in victims:
            node.kill()
            await self.wait(harm, node)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.start()
        await self.wait(self.cluster.wait_replaced, before)

    async def links(self, fault, _victims):
        """Any of the patterns of directed links."""
        draw = random.Random(fault.seed)
        nodes = range(len(self.cluster.nodes))
        await self.hold_cut(fault, [(a, b) for a in nodes for b in nodes if a != b and draw.random() < 0.4])

    async def hold_cut(self, fault, links):
        await self.wait(self.cluster.net.cut, links)
        await asyncio.sleep(fault.hold_s)
        await self.wait(self.cluster.net.heal)

    def others(self, node):
        return [other.at for other in self.cluster.nodes if other is not node]

    async def isolated(self, fault, victims):
        """A node alone, in every second case for clients, too."""
        node, clients = victims[0], [-1] if fault.seed % 2 else []
        links = [(node.at, other) for other in self.others(node) + clients]
        await self.hold_cut(fault, links + [(other, node.at) for other in self.others(node)])

    async def mute(self, fault, victims):
        await self.hold_cut(fault, [(victims[0].at, other) for other in self.others(victims[0])])

    async def deaf(self, fault, victims):
        await self.hold_cut(fault, [(other, victims[0].at) for other in self.others(victims[0])])

    async def parted(self, fault, victims):
        """Two nodes do not hear each other, and all others hear both."""
        node = victims[0].at
        other = random.Random(fault.seed).choice(self.others(victims[0]))
        await self.hold_cut(fault, [(node, other), (other, node)])

    async def loss(self, fault, victims):
        draw = random.Random(fault.seed)
        percent, lossy = draw.choice([2, 10, 30]), self.cluster.nodes if draw.random() < 0.5 else victims
        for node in lossy:
            await self.wait(self.cluster.net.lose, node.at, percent)
        await asyncio.sleep(fault.hold_s)
        await self.wait(self.cluster.net.heal)

    async def power(self, fault, victims):
        await self.cut_power(fault, victims)
        for node in victims:
            node.start()

    async def power_wipe(self, fault, victims):
        """Power goes everywhere, and one of the disks is empty afterwards."""
        before = self.cluster.set()
        await self.cut_power(fault, victims)
        await self.wait(victims[0].disk.wipe)
        for node in victims:
            node.start()
        await self.wait(self.cluster.wait_replaced, before)

    async def cut_power(self, fault, victims):
        """Power goes on some nodes or all: of what was not synced any part is there, or nothing. In half of the cases
        the syncs of these disks are slow before, so that much is not synced, and in half of the cases the operating system
        has written back everything a second before."""
        draw = random.Random(fault.seed)
        keep, slow_ms, settles = draw.choice([0, 0, 50, 90]), draw.choice([0, 0, 20, 300]), draw.random() < 0.5
        if settles:
            for node in victims:
                node.disk.settle()
        if slow_ms or settles:
            await self.hold_slow(victims, slow_ms, 1)
        for node in victims:
            node.signal(signal.SIGKILL)
        for node in victims:
            node.disk.die()
        for node in victims:
            node.kill()
            node.disk.restore_power(fault.seed, keep)
            node.disk.slow(0)
        await asyncio.sleep(fault.hold_s / 4)

    async def full(self, fault, victims):
        """A node that cannot start without room ends; somebody starts it again when there is some."""
        for node in victims:
            node.disk.fill(True)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.disk.fill(False)
            if node.has_ended():
                node.start()

    async def slow(self, fault, victims):
        ms = random.Random(fault.seed).choice([50, 500, 5000])
        await self.hold_slow(victims, ms, fault.hold_s)
        for node in victims:
            node.disk.slow(0)

    async def hold_slow(self, victims, ms, hold_s):
        for node in victims:
            node.disk.slow(ms)
        await asyncio.sleep(hold_s)

    async def eio(self, fault, victims):
        for node in victims:
            node.disk.fail_syncs(1)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.disk.fail_syncs(0)

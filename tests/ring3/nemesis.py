"""Faults, drawn from a seed, one after another; each is over before the next one comes."""

import asyncio
import collections
import dataclasses
import random
import signal
import time

from nodes import LIMIT_S, Stuck

# What a kind needs beside processes: links, loss, a proxy, clocks, or disks that forget.
NEEDS = {
    "isolated": "links", "mute": "links", "deaf": "links", "parted": "links", "links": "links", "loss": "loss",
    "delay": "proxy", "trickle": "proxy", "cuts": "proxy", "clock": "clocks", "clock-alone": "clocks",
    "power": "power", "power-wipe": "power", "full": "power", "slow": "power", "eio": "power", "members": "members",
}
WEIGHTS = {
    "kill": 4, "kill-many": 1, "term": 2, "pause": 4, "pause-many": 1, "wipe": 1, "restore": 1, "wipe-behind": 1, "restore-behind": 1, "isolated": 3, "mute": 2,
    "deaf": 2, "parted": 2, "links": 2, "loss": 2, "power": 6, "power-wipe": 2, "full": 2, "slow": 2, "eio": 2,
    "delay": 3, "trickle": 1, "cuts": 2, "clock": 3, "clock-alone": 1, "rot": 3, "rot-files": 1, "rot-small": 2, "members": 3,
}
# Played only when they are named: what the product does not survive yet (docs/ring3.md).
NAMED_ONLY = {"rot-files", "members"}
# What is not played where the logs are in a bucket: nodes have next to nothing on their disks there.
ON_DISKS = {"restore", "restore-behind", "wipe-behind", "rot", "rot-files", "rot-small", "power-wipe", "full", "slow", "eio"}
# How far a wall clock is ahead. Two hours are more than messages may become old.
AHEAD_S = [-7200, -300, -3, 3, 300, 7200]
# What nodes know of clocks that they heard is of no use to them any more.
CLOCKS_FORGOTTEN_S = 3
# What a node says that has just become the owner of a log, before it opens it.
OWNS = " owns the quorum log"
# What a node says that has joined.
SPARE = "this node is a spare of the cluster"
STOPPED_S = 5


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
        how_many = of_kind.get(kind, count if "-" in kind and not kind.startswith("rot") else 1)
        hold_s = 0.1 * 300 ** draw.random() if kind.startswith("pause") else draw.uniform(0.2, 6)
        yield Fault(kind, tuple(ranks[:how_many]), min(hold_s, 30), draw.uniform(0.3, 1) * pace_s, draw.randrange(1 << 32))


def possible(cluster, only=None):
    """The kinds of faults that this machine can play, in a fixed order."""
    net = cluster.net
    has = {"links": net.has_links, "loss": net.has_loss, "proxy": net.has_proxy, "clocks": cluster.clocks.has_clocks,
           "power": cluster.has_forgetful_disks, "members": not cluster.is_nats}
    kinds = [kind for kind in WEIGHTS if has.get(NEEDS.get(kind), True) and not (cluster.store and kind in ON_DISKS)]
    return [kind for kind in kinds if (kind in only if only else kind not in NAMED_ONLY)]


class Nemesis:
    """Plays faults on a cluster; `owner` tells the number of the node that owns the log."""

    def __init__(self, cluster, owner, played):
        self.cluster, self.owner, self.played = cluster, owner, played
        # What faults have done, by kind: a fault that does nothing tests nothing.
        self.effects = collections.Counter()

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
        await self.stopped(victims)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.signal(signal.SIGCONT)

    pause_many = pause

    async def stopped(self, nodes):
        """Until these processes stand still."""
        deadline = time.monotonic() + STOPPED_S
        while not all(node.is_stopped() for node in nodes):
            if time.monotonic() > deadline:
                raise AssertionError("a process runs on after SIGSTOP")
            await asyncio.sleep(0.001)

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
        await self.stopped(behind)
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

    async def members(self, fault, victims):
        """A node is gone for good: one with another name and an empty disk joins, and takes its place, while another node stands
        still, links are cut, the new node dies, or people change their minds. None of the others dies: with two memories lost,
        of which one never comes back, the log in memory waits for ever (docs/cluster.md), and the replacement with it."""
        draw, node = random.Random(fault.seed), victims[0]
        others = self.others(node)
        # Whoever stops nodes one after the other waits for that (docs/cluster.md): a memory that is new does not count yet.
        may_stop = lambda: '"may_stop":true' in self.cluster.command(draw.choice(others), "status", "--json")[1].replace(" ", "")
        await self.wait(self.cluster.wait, "no node may be stopped", may_stop, LIMIT_S, 0.5)
        before = self.cluster.set()
        node.kill()
        former, said = await self.wait(node.become_another), node.said().count(SPARE)
        node.start()
        await self.wait(self.cluster.wait, f"{node.name} does not join", lambda: node.said().count(SPARE) > said)
        words = ["replace", former, node.name, "--force", "--no-wait"]
        await self.change(draw, others, words)
        beside = draw.choice(["nothing", "pause", "links", "itself", "keep", "pause", "links"])
        self.effects[f"members replaced beside {beside}"] += 1
        if beside == "itself":
            await asyncio.sleep(draw.uniform(0, 2))
            node.kill()
            await asyncio.sleep(fault.hold_s / 2)
            node.start()
        elif beside == "pause":
            await asyncio.sleep(draw.uniform(0, 2))
            await self.pause(fault, [self.cluster.nodes[draw.choice(others)]])
        elif beside == "links" and self.cluster.net.has_links:
            await self.links(fault, victims)
        elif beside == "keep":
            await asyncio.sleep(draw.uniform(0, 1))
            # It may be over.
            await self.wait(self.cluster.command, draw.choice(others), "keep", former)
            await self.change(draw, others, words)
        await self.wait(self.cluster.wait_replaced, before)
        gone = lambda: f'"name":"{former}"' in self.cluster.command(others[0], "status", "--json")[1].replace(" ", "").partition('"removed"')[2]
        await self.wait(self.cluster.wait, f"{former} is not removed", gone)

    async def change(self, draw, others, words):
        """Has one of these nodes change the nodes, again until that went well: it may be looking for its owners."""
        said = []

        def is_done():
            done, text = self.cluster.command(draw.choice(others), *words)
            said.append(text)
            return done

        try:
            await self.wait(self.cluster.wait, " ".join(words), is_done, LIMIT_S, 0.5)
        except Stuck as stuck:
            raise Stuck(f"{stuck}: {said[-1] if said else 'nothing was said'}") from stuck

    async def links(self, fault, _victims):
        """Any of the patterns of directed links."""
        draw = random.Random(fault.seed)
        nodes = range(len(self.cluster.nodes))
        await self.hold_cut(fault, [(a, b) for a in nodes for b in nodes if a != b and draw.random() < 0.4])

    async def hold_cut(self, fault, links):
        await self.wait(self.cluster.net.cut, links)
        await asyncio.sleep(fault.hold_s)
        await self.heal()

    async def heal(self):
        did = await self.wait(self.cluster.net.heal)
        self.effects.update({
            "packets lost": did.get("lost", 0), "connections through the proxy": did.get("connections", 0),
            "bytes through the proxy": did.get("bytes", 0), "connections cut": did.get("cut", 0)})
        return did

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
        await self.heal()

    async def delay(self, fault, victims):
        """What a node sends, or all nodes, comes late: of each connection by another time, and of each part."""
        draw = random.Random(fault.seed)
        delay_ms = draw.choice([5, 50, 150, 400, 1500])
        options = {"delay_ms": delay_ms, "apart_ms": draw.choice([0, delay_ms, 300]), "jitter_ms": draw.choice([0, delay_ms])}
        await self.hold_detour(fault, victims, options, draw)

    async def trickle(self, fault, victims):
        """What a node sends goes in small pieces at a low rate."""
        draw = random.Random(fault.seed)
        await self.hold_detour(fault, victims, {"bytes_per_s": draw.choice([500, 5000, 50_000])}, draw)

    async def cuts(self, fault, victims):
        """Connections end again and again somewhere in what they carry."""
        draw = random.Random(fault.seed)
        await self.hold_detour(fault, victims, {"cut_after_s": draw.choice([0.1, 0.5, 2]), "jitter_ms": draw.choice([0, 20])}, draw)

    async def hold_detour(self, fault, victims, options, draw):
        """One way only, which is where messages go: in half of the cases the answers of TCP's other direction too."""
        none = {"delay_ms": 0, "apart_ms": 0, "jitter_ms": 0, "bytes_per_s": 0, "cut_after_s": 0}
        nodes = self.cluster.nodes if draw.random() < 0.4 else victims
        for node in nodes:
            setting = {**none, **options, "both": draw.random() < 0.5, "seed": draw.randrange(1 << 32)}
            await self.wait(self.cluster.net.detour, node.at, setting)
        # Connections that were there are reset when they are used next, and made anew.
        await asyncio.sleep(0.5 + fault.hold_s)
        if not (await self.heal()).get("connections"):
            raise AssertionError(f"nothing has gone through the proxy during {fault}")

    async def clock(self, fault, victims):
        """A node's wall clock jumps, or is wrong from its start on; in half of the cases another node dies meanwhile."""
        draw, node, clocks = random.Random(fault.seed), victims[0], self.cluster.clocks
        ahead_s, from_start, dies = draw.choice(AHEAD_S), draw.random() < 0.5, draw.random() < 0.5
        said = node.said().count("WrongClock")
        if from_start:
            node.kill()
        clocks.set_wall(node.at, ahead_s)
        if from_start:
            node.start()
        await asyncio.sleep(fault.hold_s)
        if not clocks.is_wrong_in(node.process):
            raise AssertionError(f"{node.name} goes by the machine's clocks")
        if dies:
            other = self.cluster.nodes[draw.choice(self.others(node))]
            other.kill()
            await asyncio.sleep(draw.uniform(0.5, 3))
            other.start()
        clocks.set_wall(node.at, 0)
        self.effects["wrong clocks that were told"] += node.said().count("WrongClock") - said

    async def clock_alone(self, fault, victims):
        """One node's wall clock is two hours ahead from its start on, and no majority is left that could tell it; in the end it
        may own the log, and nobody knows which clock is right. In half of the cases it is set right as soon as it owns a log,
        while it waits for what the others say of its clock."""
        away = len(victims) // 2
        node, others, dead = victims[0], victims[1:-away], victims[-away:]
        for one in (*dead, node):
            one.kill()
        self.cluster.clocks.set_wall(node.at, AHEAD_S[-1])
        node.start()
        await asyncio.sleep(CLOCKS_FORGOTTEN_S)
        for one in others:
            one.kill()
        await asyncio.sleep(1)
        owned = node.said().count(OWNS)
        for one in others:
            one.start()
        late = time.monotonic() + 2 + fault.hold_s
        while time.monotonic() < late:
            await asyncio.sleep(0.02)
            if fault.seed % 2 and node.said().count(OWNS) > owned:
                await asyncio.sleep(random.Random(fault.seed).uniform(0, 0.5))
                break
        self.effects["owners with a wrong clock"] += self.owner() == node.at
        for one in dead:
            one.start()
        self.cluster.clocks.set_wall(node.at, 0)

    async def rot(self, fault, victims):
        """Bits of one node's journal flip, while it runs or while it is away; it is healed by the others before a disk
        of another one is harmed."""
        node, runs = victims[0], fault.seed % 2
        if not runs:
            node.kill()
        places = await self.wait(node.disk.rot, fault.seed)
        if runs:
            await asyncio.sleep(fault.hold_s)
            # A start reads all of it; the scrub would come to it later.
            node.kill()
        damaged = "damaged or missing:" in await self.wait(self.cluster.doctor, node)
        self.effects.update({"bits flipped": len(places), "journals damaged by them": damaged})
        node.start()
        await self.wait(self.cluster.wait_healed, node)

    async def rot_files(self, fault, victims):
        """Bits flip in the files that a node has made of its journal."""
        node = victims[0]
        node.kill()
        self.effects["bits flipped in files"] += len(await self.wait(node.disk.rot, fault.seed, "files/**/*"))
        node.start()
        await asyncio.sleep(fault.hold_s)

    async def rot_small(self, fault, victims):
        """Bits flip in one of the small files that say who a disk is, what it has promised, and what it has seen. A node that
        does not start with that gets an empty disk, as its pages tell people."""
        node, before = victims[0], self.cluster.set()
        node.kill()
        what = random.Random(fault.seed).choice(["promise", "identity", "catalog-seen", "format", "state"])
        self.effects[f"bits flipped in {what}"] += len(await self.wait(node.disk.rot, fault.seed, what))
        node.start()
        await asyncio.sleep(2 + fault.hold_s)
        if node.has_ended():
            self.effects["disks that a start refused"] += 1
            await self.wait(node.disk.wipe)
            node.start()
            await self.wait(self.cluster.wait_replaced, before)
        await self.wait(self.cluster.wait_healed, node)

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
            self.effects["sectors and names lost with the power"] += node.disk.restore_power(fault.seed, keep)
            node.disk.slow(0)
        await asyncio.sleep(fault.hold_s / 4)

    async def full(self, fault, victims):
        """A node that cannot start without room ends; somebody starts it again when there is some."""
        for node in victims:
            node.disk.disturbed()
            node.disk.fill(True)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.disk.fill(False)
            self.effects["refused for want of room"] += node.disk.disturbed()
            if node.has_ended():
                node.start()

    async def slow(self, fault, victims):
        ms = random.Random(fault.seed).choice([50, 500, 5000])
        await self.hold_slow(victims, ms, fault.hold_s)
        for node in victims:
            node.disk.slow(0)
            self.effects["slow syncs"] += node.disk.disturbed()

    async def hold_slow(self, victims, ms, hold_s):
        for node in victims:
            node.disk.disturbed()
            node.disk.slow(ms)
        await asyncio.sleep(hold_s)

    async def eio(self, fault, victims):
        """A sync fails. A node that needed it to start ends; somebody starts it again."""
        for node in victims:
            node.disk.disturbed()
            node.disk.fail_syncs(1)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.disk.fail_syncs(0)
            self.effects["failed syncs"] += node.disk.disturbed()
            if node.has_ended():
                self.effects["starts that a failed sync ended"] += 1
                node.start()

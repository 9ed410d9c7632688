"""Faults, drawn from a seed, one after another; each is over before the next one comes."""

import asyncio
import collections
import dataclasses
import random
import signal
import time

from net import CLIENTS, ETCD
from nodes import LIMIT_S, Stuck

# What a kind needs beside processes.
NEEDS = {
    "isolated": "links", "mute": "links", "deaf": "links", "parted": "links", "links": "links", "loss": "loss",
    "delay": "proxy", "trickle": "proxy", "cuts": "proxy", "clock": "clocks", "clock-alone": "clocks",
    "power": "power", "power-wipe": "power", "full": "power", "slow": "power", "eio": "power", "members": "members",
    "resize": "spares", "drain": "members", "move": "members", "zone": "zones", "catalog": "etcd",
}
# Why it is not there, where it is not.
LACKS = {
    "links": "links cannot be cut: that takes namespaces, and root",
    "loss": "packets are not lost: that takes namespaces, root and nft",
    "proxy": "there is no proxy: that takes namespaces, root and nft",
    "clocks": "clocks are right: --clocks names the library that makes them wrong",
    "power": "disks forget nothing: --forgetfs names the program that does",
    "members": "the nodes are no nuthatch",
    "spares": "there are no spares for three nodes to become five: --spares 2",
    "zones": "each node is in a zone of its own, whose loss is `kill`: --zones a,a,b",
    "etcd": "the catalog is in no etcd: --catalog etcd",
    "disks": "the logs are in a bucket, and next to nothing is on the nodes' disks",
}
WEIGHTS = {
    "kill": 4, "kill-many": 1, "term": 2, "pause": 4, "pause-many": 1, "wipe": 1, "restore": 1, "wipe-behind": 1, "restore-behind": 1, "isolated": 3, "mute": 2,
    "deaf": 2, "parted": 2, "links": 2, "loss": 2, "power": 6, "power-wipe": 2, "full": 2, "slow": 2, "eio": 2,
    "delay": 3, "trickle": 1, "cuts": 2, "clock": 3, "clock-alone": 1, "rot": 3, "rot-files": 1, "rot-small": 2, "members": 3,
    "resize": 2, "drain": 3, "move": 3, "zone": 2, "catalog": 4,
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
# What a node says whose part of the built-in catalog was set back.
SET_BACK = "takes no part in the catalog: the disk was set back"
STOPPED_S = 5
# Between looks at what a command of the cluster shows.
LOOK_S = 0.5
# After so long a log goes to the node that people named minutes later, as to any place (docs/cluster.md): they name it anew.
MOVED_S = 15
# Logs that have had the same owners for so long are on their way to nobody.
SETTLED_S = 5
# Without the catalog what is owned goes on within that, on a machine that is busy with other things.
GOES_ON_S = 30


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


def wanted(only=None):
    """The kinds of faults that are named, or those that are played when none is, in a fixed order."""
    return [kind for kind in WEIGHTS if (kind in only if only else kind not in NAMED_ONLY)]


def lacking(cluster, only=None):
    """Why kinds of faults that are wanted are not played, by what is not there."""
    net, is_ours = cluster.net, not cluster.is_nats
    has = {"links": net.has_links, "loss": net.has_loss, "proxy": net.has_proxy, "clocks": cluster.clocks.has_clocks,
           "power": cluster.has_forgetful_disks, "members": is_ours, "etcd": is_ours and cluster.etcd is not None,
           "spares": is_ours and (len(cluster.nodes) > 3 or len(cluster.spares) > 1),
           "zones": is_ours and any(len(cluster.nodes_of(node.zone())) > 1 for node in cluster.nodes)}
    found = collections.defaultdict(list)
    for kind in wanted(only):
        if not has.get(NEEDS.get(kind), True):
            found[LACKS[NEEDS[kind]]].append(kind)
        elif cluster.store and kind in ON_DISKS:
            found[LACKS["disks"]].append(kind)
    return dict(found)


def possible(cluster, only=None):
    """The kinds of faults that can be played here, in a fixed order."""
    without = {kind for kinds in lacking(cluster, only).values() for kind in kinds}
    return [kind for kind in wanted(only) if kind not in without]


class Nemesis:
    """Plays faults on a cluster; `owner` tells the number of the node that owns the log, `history` what clients were told."""

    def __init__(self, cluster, owner, played, history):
        self.cluster, self.owner, self.played, self.history = cluster, owner, played, history
        # Which node is asked is in no seed: how often they are asked is not either.
        self.whom = random.Random()
        # What faults have done, by kind: a fault that does nothing tests nothing.
        self.effects = collections.Counter()

    async def play(self, fault):
        await asyncio.sleep(fault.pause_s)
        nodes, owner = self.cluster.nodes, self.owner()
        first = next((place for place, node in enumerate(nodes) if node.at == owner), 0)
        victims = [nodes[(first + rank) % len(nodes)] for rank in fault.who]
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
        await self.replace(fault, victims, lambda node: node.disk.restore_image(), is_set_back=True)

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
        await self.replace_behind(fault, victims, lambda node: node.disk.restore_image(), is_set_back=True)

    async def replace_behind(self, fault, victims, harm, is_set_back=False):
        said = victims[-1].said().count(SET_BACK)
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
        if is_set_back:
            await self.mend_set_back(harmed, said)
        await self.wait(self.cluster.wait_replaced, before)

    async def mend_set_back(self, node, said):
        """The nodes that keep the catalog themselves tell one of them that its disk was set back; it takes no part until people
        do what it says, which is done here."""
        if self.cluster.catalog != "built-in":
            return
        await self.until(f"{node.name} was set back, and is not told so", lambda: node.said().count(SET_BACK) > said)
        self.effects["disks that were told that they were set back"] += 1
        node.kill()
        await self.wait(node.disk.forget_catalog)
        node.start()

    async def replace(self, fault, victims, harm, is_set_back=False):
        before, said = self.cluster.set(), [node.said().count(SET_BACK) for node in victims]
        for node in victims:
            node.kill()
            await self.wait(harm, node)
        await asyncio.sleep(fault.hold_s)
        for node in victims:
            node.start()
        if is_set_back:
            for node, times in zip(victims, said):
                await self.mend_set_back(node, times)
        await self.wait(self.cluster.wait_replaced, before)

    async def members(self, fault, victims):
        """A node is gone for good: one with another name and an empty disk joins, and takes its place, while another node stands
        still, links are cut, the new node dies, or people change their minds. None of the others dies: with two memories lost,
        of which one never comes back, the log in memory waits for ever (docs/cluster.md), and the replacement with it."""
        draw, node = random.Random(fault.seed), victims[0]
        others = self.others(node)
        # Whoever stops nodes one after the other waits for that (docs/cluster.md): a memory that is new does not count yet.
        await self.until("no node may be stopped", lambda: self.status(others).get("may_stop"))
        before = self.cluster.set()
        node.kill()
        former, said = await self.wait(node.become_another), node.said().count(SPARE)
        node.start()
        await self.wait(self.cluster.wait, f"{node.name} does not join", lambda: node.said().count(SPARE) > said)
        words = ["replace", former, node.name, "--force", "--no-wait"]
        await self.change(others, words)
        beside = draw.choice(["nothing", "pause", "links", "itself", "keep", "pause", "links"])
        self.effects[f"members replaced beside {beside}"] += 1
        if beside == "itself":
            await asyncio.sleep(draw.uniform(0, 2))
            node.kill()
            await asyncio.sleep(fault.hold_s / 2)
            node.start()
        elif beside == "pause":
            await asyncio.sleep(draw.uniform(0, 2))
            await self.pause(fault, [self.cluster.all[draw.choice(others)]])
        elif beside == "links" and self.cluster.net.has_links:
            await self.links(fault, victims)
        elif beside == "keep":
            await asyncio.sleep(draw.uniform(0, 1))
            # It may be over.
            await self.wait(self.cluster.command, draw.choice(others), "keep", former)
            await self.change(others, words)
        await self.wait(self.cluster.wait_replaced, before)
        is_gone = lambda: any(one["name"] == former for one in self.status(others).get("removed", []))
        await self.until(f"{former} is not removed", is_gone)

    async def change(self, ats, words, is_so=lambda: False):
        """Has one of these nodes change the cluster, again until that went well, or it is so: it may be looking for its owners,
        and whoever did it may not have been able to say so."""
        said = []

        def is_done():
            done, text = self.cluster.command(self.whom.choice(ats), *words)
            said.append(text)
            return done or is_so()

        try:
            await self.until(" ".join(words), is_done)
        except Stuck as stuck:
            raise Stuck(f"{stuck}: {said[-1] if said else 'nothing was said'}") from stuck

    async def until(self, what, is_so):
        await self.wait(self.cluster.wait, what, is_so, LIMIT_S, LOOK_S)

    def status(self, ats):
        """What one of these nodes says of all; nothing, if it does not answer."""
        return self.cluster.asked(self.whom.choice(ats), "status")

    def logs(self, ats):
        """What one of these nodes says of the logs, by their names; nothing, if it does not answer."""
        return {log["name"]: log for log in self.cluster.asked(self.whom.choice(ats), "logs").get("logs", [])}

    async def beside(self, draw, fault, what, kinds, among):
        """Something else happens while the nodes change, to one of those that are given. Tells what; what it does not know does
        whoever asked."""
        beside = draw.choice([kind for kind in kinds if kind != "links" or self.cluster.net.has_links])
        self.effects[f"{what} beside {beside}"] += 1
        node = draw.choice(among)
        await asyncio.sleep(draw.uniform(0, 2))
        if beside in ("kill", "pause", "links"):
            await getattr(self, beside)(fault, [node])
        return beside

    async def resize(self, fault, _victims):
        """Three nodes that keep the logs become five, and three again, which ones is drawn; five become three, and five again. A spare
        that kept logs before has what it had then. When it is said to be done, those that went are ended, and are needed no more."""
        draw = random.Random(fault.seed)
        if len(self.cluster.nodes) > 3:
            pair = draw.sample(self.cluster.nodes, 2)
            await self.resize_to(draw, fault, "shrink", pair)
            await self.resize_to(draw, fault, "grow", pair)
            return
        pair = list(self.cluster.spares)
        for node in pair:
            node.start()
        names, ats = [node.name for node in pair], [node.at for node in self.cluster.nodes]
        are_there = lambda: sum(one["name"] in names and one["spare"] and one["connected"] is not False for one in self.status(ats).get("nodes", [])) == len(pair)
        await self.until(f"{' and '.join(names)} are no spares", are_there)
        await self.resize_to(draw, fault, "grow", pair)
        pair = draw.sample(self.cluster.nodes, 2)
        await self.resize_to(draw, fault, "shrink", pair)
        for node in pair:
            if node.has_ended():
                raise AssertionError(f"{node.name} ended by itself as a spare")
            if draw.random() < 0.5:
                node.kill()
            elif not await self.wait(node.end):
                raise AssertionError(f"{node.name} did not end within its limit after SIGTERM")

    async def resize_to(self, draw, fault, word, pair):
        """These nodes come to those that keep the logs, or go from them, while something else happens, or people change their minds."""
        cluster, keep, names = self.cluster, word == "grow", [node.name for node in pair]
        there = sorted({*cluster.nodes, *pair}, key=lambda node: node.at)
        ats, back = [node.at for node in there], "shrink" if keep else "grow"
        words = lambda word: [word, *names, "--force", "--no-wait"]

        def is_so(keep, is_over):
            said = self.status(ats)
            if said.get("resizing"):
                return not is_over and said["resizing"]["keep"] == keep
            return sum(one["name"] in names and one["spare"] != keep for one in said.get("nodes", [])) == len(names)

        await self.change(ats, words(word), lambda: is_so(keep, False))
        beside = await self.beside(draw, fault, f"{word}s", ["nothing", "kill", "kill", "pause", "links", "taken back"], there)
        if beside == "taken back":
            await self.change(ats, words(back), lambda: is_so(not keep, False))
            await self.until(f"{word} of {', '.join(names)} is not taken back", lambda: is_so(not keep, True))
            await self.change(ats, words(word), lambda: is_so(keep, False))
        await self.until(f"{word} of {', '.join(names)} is not done", lambda: is_so(keep, True))
        cluster.nodes = [node for node in there if keep or node not in pair]
        cluster.spares = [node for node in cluster.all if node not in cluster.nodes]
        are_all = lambda: len(cluster.set()) == len({log for log, _ in cluster.set()}) * len(cluster.nodes)
        await self.until(f"{word} of {', '.join(names)} is said to be done, and the logs are kept by others: {cluster.set()}", are_all)

    async def drain(self, fault, victims):
        """A node is drained, stopped once that may be, starts again, drained still, and may own logs again; something else happens
        while it is being drained, or while it is away, or people change their minds."""
        draw, node, others = random.Random(fault.seed), victims[0], self.others(victims[0])
        early = draw.random() < 0.6
        mine = lambda said: next((one for one in said.get("nodes", []) if one["name"] == node.name), {})
        drain, undrain = ["drain", node.name, "--force", "--no-wait"], ["undrain", node.name]
        rest = [self.cluster.all[at] for at in others]
        await self.change(others, drain, lambda: mine(self.status(others)).get("drain"))
        if early:
            beside = await self.beside(draw, fault, "drains", ["nothing", "kill", "pause", "links", "itself", "taken back"], rest)
            if beside == "itself":
                await self.kill(fault, [node])
            elif beside == "taken back":
                await self.change(others, undrain)
                await self.change(others, drain)
        said = {}

        def may_stop():
            said.update(self.status(others))
            return said.get("may_stop") and mine(said).get("drain") == "drained"

        try:
            await self.until(f"{node.name} is not drained, or no node may be stopped", may_stop)
        except Stuck as stuck:
            raise Stuck(f"{stuck}: {mine(said)}, {said.get('why_not')}") from stuck
        owners = lambda: {name: (log["owner"], log["epoch"]) for name, log in self.logs(others).items()}
        before = await self.wait(owners)
        if not await self.wait(node.end):
            raise AssertionError(f"{node.name} did not end within its limit after SIGTERM")
        await asyncio.sleep(fault.hold_s)
        if early:
            now = await self.wait(owners)
            moved = [name for name in before if now and now.get(name) != before[name]]
            self.effects.update({"drained nodes that were stopped": 1, "logs that moved meanwhile": len(moved)})
            if any(before[name][0] == node.name for name in moved):
                self.history.findings.append(f"{node.name} was said to be drained, and owned {moved}: {before}, then {now}")
        else:
            await self.beside(draw, fault, "stops of drained nodes", ["nothing", "kill", "pause", "links"], rest)
        node.start()
        await self.until(f"{node.name} is not there again", lambda: mine(self.status(others)).get("connected"))
        is_drained = lambda: mine(self.status(others)).get("drain") in ("drained", "draining")
        await self.until(f"{node.name} is drained no more after a start", is_drained)
        await self.change(others, undrain)
        await self.until(f"{node.name} is drained still", lambda: mine(self.status(others)).get("drain", "unknown") is None)

    async def move(self, fault, victims):
        """A log is to be owned by a node from now on; something else happens on its way, or people name another node. When it is
        there that is taken back; in every fourth case that is done at once."""
        draw, nodes = random.Random(fault.seed), self.cluster.nodes
        ats, to, another, at_once = [node.at for node in nodes], draw.choice(nodes), draw.choice(nodes), draw.random() < 0.25
        names = []
        await self.until("no node says which logs there are", lambda: names.extend(self.logs(ats)) or names)
        log = draw.choice(sorted(names))
        row = lambda: self.logs(ats).get(log, {})
        name = lambda to: ["move-log", log, to.name, "--force", "--no-wait"]
        anywhere = ["move-log", log, "--anywhere", "--force"]
        await self.change(ats, name(to))
        beside = await self.beside(draw, fault, "moves", ["nothing", "kill", "itself", "pause", "links", "another"], nodes)
        if beside == "itself":
            await self.kill(fault, [to])
        elif beside == "another":
            to = another
            await self.change(ats, name(to))
        late = time.monotonic() + LIMIT_S
        while not at_once and not await self.comes(lambda: row().get("owner") == to.name):
            if time.monotonic() > late:
                raise Stuck(f"{LIMIT_S} s later: {log} does not come to {to.name}: {await self.wait(row)}")
            self.effects["moves that were said again"] += 1
            await self.change(ats, anywhere)
            await self.until("it is not taken back", lambda: row().get("moved_to", "unknown") is None)
            await asyncio.sleep(LOOK_S)
            await self.change(ats, name(to))
        await self.change(ats, anywhere)
        await self.until(f"{log} is to be owned by {to.name} still", lambda: row().get("moved_to", "unknown") is None)

    async def comes(self, is_so):
        """True if it is so within the time in which a log goes where people want it."""
        late = time.monotonic() + MOVED_S
        while time.monotonic() < late:
            if await self.wait(is_so):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def zone(self, fault, victims):
        """All nodes of a zone are lost at once, and come back: they die, their power goes, or nobody outside hears them. Where they are
        the majority nothing is acknowledged meanwhile, and before that the nodes have said that it would be so."""
        draw, cluster, zone = random.Random(fault.seed), self.cluster, victims[0].zone()
        lost, ats = cluster.nodes_of(zone), [node.at for node in cluster.nodes]
        ways = ["die", "power", "links"] if cluster.has_forgetful_disks else ["die", "links"]
        how = draw.choice([way for way in ways if way != "links" or cluster.net.has_links])
        is_risk = not cluster.outlives(len(lost))
        self.effects[f"zones lost with{'out' if is_risk else ''} a majority left ({how})"] += 1
        if is_risk:
            await self.until(f"the risk of {zone} is not told", lambda: self.status(ats).get("zone_risk"))
        if how == "links":
            inside = [node.at for node in lost]
            outside = [node.at for node in cluster.all if node not in lost] + ([CLIENTS] if draw.random() < 0.5 else [])
            await self.hold_cut(fault, [link for a in inside for b in outside for link in ([(a, b), (b, a)] if b >= 0 else [(a, b)])])
            return
        if how == "power":
            await self.cut_power(fault, lost)
        else:
            for node in lost:
                node.signal(signal.SIGKILL)
            for node in lost:
                node.kill()
        gone = time.monotonic()
        await asyncio.sleep(fault.hold_s)
        back = time.monotonic()
        for node in lost:
            node.start()
        # In a bucket an owner that lives on needs no other node for that.
        if is_risk and not cluster.store:
            for one in self.acknowledged(gone, back):
                self.history.findings.append(f"{one.key} was begun and acknowledged at {one.seq} while {zone}, the majority, was away")

    def acknowledged(self, since, until=float("inf")):
        """What was begun and acknowledged in between."""
        recent = [*self.history.publishes[-5000:], *self.history.jobs[-5000:]]
        return [one for one in recent if since < one.invoked and one.ended is not None and one.ended < until]

    async def catalog(self, fault, victims):
        """etcd dies, ends, stands still, or some nodes or all do not reach it, and it comes back; in every second case another node
        is harmed meanwhile, whose logs nobody takes over before. Otherwise what is owned goes on."""
        draw, cluster, etcd = random.Random(fault.seed), self.cluster, self.cluster.etcd
        ats = [node.at for node in cluster.nodes]
        how = draw.choice(["dies", "ends", "stands still", *(["is not reached"] if cluster.net.has_links else [])])
        apart = ats if draw.random() < 0.5 else draw.sample(ats, draw.randint(1, len(ats)))
        alone = draw.random() < 0.5
        if alone:
            await self.settle(ats)
        if how == "dies":
            await self.wait(etcd.kill)
        elif how == "ends":
            await self.wait(etcd.end)
        elif how == "stands still":
            etcd.process.send_signal(signal.SIGSTOP)
        else:
            await self.wait(cluster.net.cut, [(at, ETCD) for at in apart])
        gone = time.monotonic()
        try:
            if alone:
                self.effects[f"etcd {how} beside nothing"] += 1
                await asyncio.sleep(2 + fault.hold_s)
                while not self.acknowledged(gone + 1):
                    if time.monotonic() > gone + GOES_ON_S:
                        self.history.findings.append(f"nothing was acknowledged for {GOES_ON_S} s while etcd {how}, although no log was on its way")
                        break
                    await asyncio.sleep(0.1)
            else:
                # Links would be healed with those to etcd.
                kinds = ["kill", "pause"] if how == "is not reached" else ["kill", "pause", "links"]
                await self.beside(draw, fault, f"etcd {how}", kinds, victims)
        finally:
            if how == "is not reached":
                await self.heal()
            elif how == "stands still":
                etcd.process.send_signal(signal.SIGCONT)
            else:
                await self.wait(etcd.start)

    async def settle(self, ats):
        """Until no log has changed hands for a while: a handover that is under way waits for the catalog, and so do its clients."""
        known, since = {}, time.monotonic()

        def is_settled():
            nonlocal known, since
            now = {name: (log["owner"], log["epoch"]) for name, log in self.logs(ats).items()}
            if now != known or not now or None in [owner for owner, _ in now.values()]:
                known, since = now, time.monotonic()
            return time.monotonic() > since + SETTLED_S

        await self.until("logs go on changing hands", is_settled)

    async def links(self, fault, _victims):
        """Any of the patterns of directed links."""
        draw = random.Random(fault.seed)
        nodes = range(len(self.cluster.all))
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
        """Where the others are that keep the logs."""
        return [other.at for other in self.cluster.nodes if other is not node]

    def elsewhere(self, node):
        """The same with the spares."""
        return [other.at for other in self.cluster.all if other is not node]

    async def isolated(self, fault, victims):
        """A node alone, in every second case for clients, too."""
        node, clients = victims[0], [CLIENTS] if fault.seed % 2 else []
        links = [(node.at, other) for other in self.elsewhere(node) + clients]
        await self.hold_cut(fault, links + [(other, node.at) for other in self.elsewhere(node)])

    async def mute(self, fault, victims):
        await self.hold_cut(fault, [(victims[0].at, other) for other in self.elsewhere(victims[0])])

    async def deaf(self, fault, victims):
        await self.hold_cut(fault, [(other, victims[0].at) for other in self.elsewhere(victims[0])])

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
            other = self.cluster.all[draw.choice(self.others(node))]
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

"""Three servers keep one quorum log. A client that knows all three publishes at any of them, the one that owns it is killed
with SIGKILL, and the client reads at another one everything that was acknowledged. Then the killed one comes back; another
one is killed and its disk wiped; the owner is stopped with SIGSTOP, and wakes when it has been replaced; the owner is told
to end while a client of another node publishes, which sees no error; and the owner is killed while many publish.

Usage: failover.py BINARY
"""

import asyncio
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import nats
from nats.errors import Error
from nats.js.errors import NoStreamResponseError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from ports import free_ports

# Only what hangs needs a limit.
LIMIT_S = 120
MESSAGES = 500
PUBLISHERS = 16
LOADED = 300


class Node:
    def __init__(self, binary, root, name, port, node_port, routes):
        self.name, self.port = name, port
        self.log = os.path.join(root, name + ".log")
        self.store = os.path.join(root, name)
        self.command = [
            binary, "serve", "-a", "127.0.0.1", "-p", str(port), "-sd", self.store,
            "--cluster-listen", f"127.0.0.1:{node_port}", "--routes", routes,
            "--catalog", f"file://{root}/catalog", "--node-name", name,
        ]
        self.process = None

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


async def publish(js, first, count):
    """Publishes until each message was acknowledged; a retry of one with an unknown fate is told by its id."""
    for number in range(first, first + count):
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                await js.publish("orders.new", b"%d" % number, timeout=0.5, headers={"Nats-Msg-Id": str(number)})
                break
            except (Error, OSError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


async def persistently(action):
    """Tries until it is answered: while no node owns the log nobody does."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return await action()
        except (Error, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


async def expect(js, count):
    sub = await persistently(lambda: js.subscribe("orders.new", ordered_consumer=True))
    found = [int((await sub.next_msg(timeout=LIMIT_S)).data) for _ in range(count)]
    await sub.unsubscribe()
    assert found == list(range(count)), f"{len(found)} messages, not those that were acknowledged"


async def ignore(_):
    """That nodes are gone, or do not own the log, is what this is about."""


async def connect(urls):
    """A connection to any of the nodes."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return await nats.connect(
                urls, connect_timeout=2, max_reconnect_attempts=-1, reconnect_time_wait=0.05, dont_randomize=True,
                error_cb=ignore, ping_interval=1, max_outstanding_pings=1,
            )
        except (Error, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


class Run:
    """The cluster and the client that knows all of its nodes."""

    def __init__(self, nodes):
        self.nodes, self.acked = nodes, 0
        self.client = self.js = None

    async def start(self):
        for node in self.nodes:
            node.start()
        self.client = await connect([f"nats://127.0.0.1:{node.port}" for node in self.nodes])
        self.js = self.client.jetstream(timeout=10)
        await persistently(lambda: self.js.add_stream(name="ORDERS", subjects=["orders.>"]))

    async def owner(self):
        """The node that owns the log, as whoever answers says, which is that one."""
        leader = (await persistently(lambda: self.js.stream_info("ORDERS"))).cluster.leader
        return next(node for node in self.nodes if node.name == leader)

    async def publish(self, count):
        await publish(self.js, self.acked, count)
        self.acked += count

    async def replaced(self, before, what):
        """One more acknowledgement, by another owner, which has everything."""
        began = time.monotonic()
        await self.publish(1)
        waited = 1000 * (time.monotonic() - began)
        after = await self.owner()
        await expect(self.js, self.acked)
        print(f"{before.name} {what}: {after.name} acknowledges {waited:.0f} ms later and has all {self.acked} messages")
        return after


async def killed(run):
    await run.publish(MESSAGES)
    before = await run.owner()
    before.kill()
    assert await run.replaced(before, "killed") is not before
    before.start()
    await run.publish(100)
    before = await run.owner()
    before.kill()
    assert await run.replaced(before, "killed, after the first had come back") is not before
    return before


async def wiped(run, dead):
    """A disk that is empty again does not count before it was brought the log; then it does."""
    before = {disk for those in disks(run.nodes) for disk in those}
    shutil.rmtree(dead.store)
    dead.start()
    await run.publish(50)
    deadline = time.monotonic() + LIMIT_S
    while len(set(disks(run.nodes)[-1]) - before) != 1:
        assert time.monotonic() < deadline, "the new disk was not taken into the set"
        await asyncio.sleep(0.1)
    await run.publish(50)
    # With the third one gone nothing is acknowledged without the new disk.
    owner = await run.owner()
    third = next(node for node in run.nodes if node not in (dead, owner))
    third.kill()
    await run.publish(50)
    third.start()
    await run.publish(50)
    before = await run.owner()
    before.kill()
    await run.replaced(before, "killed, after a disk was wiped and brought the log")
    before.start()


def disks(nodes):
    """The disks that owners have said to keep the first log, in which the stream is, those that were named last in the end."""
    said = []
    for node in nodes:
        with open(node.log) as log:
            said += [line for line in log if " log 0: " in line and " is kept by the nodes " in line]
    # A line begins with the number of the process and the time.
    said.sort(key=lambda line: line.split("]", 1)[1][:28])
    return [re.findall(r"disk ([0-9a-f]{32})", line) for line in said]


async def stopped(run):
    await run.publish(100)
    owner = await run.owner()
    owner.process.send_signal(signal.SIGSTOP)
    await run.replaced(owner, "stopped")
    owner.process.send_signal(signal.SIGCONT)
    # It wakes as an owner that has been replaced, finds that out, and is a keeper from then on.
    await run.publish(100)
    assert await run.owner() is not owner
    await expect(run.js, run.acked)


async def told_to_end(run):
    """The owner is told to end while a client of another node publishes: it sees no error, but for being told that nobody
    responds, which clients repeat twice by themselves."""
    owner = await run.owner()
    other = next(node for node in run.nodes if node is not owner)
    client = await connect([f"nats://127.0.0.1:{other.port}"])
    js = client.jetstream(timeout=5)
    repeated = after = 0
    stopping = None
    while stopping is None or not stopping.done() or after < 100:
        key, began = str(run.acked), time.monotonic()
        for attempt in range(3):
            try:
                await js.publish("orders.new", key.encode(), headers={"Nats-Msg-Id": key})
                break
            except NoStreamResponseError:
                repeated += 1
                assert attempt < 2, f"nobody responds for {time.monotonic() - began:.2f} s"
                await asyncio.sleep(0.25)
        run.acked += 1
        after += stopping is not None
        if stopping is None and run.acked % 50 == 0:
            owner.process.send_signal(signal.SIGTERM)
            stopping = asyncio.create_task(asyncio.to_thread(owner.process.wait))
    assert await stopping == 0
    await client.close()
    await expect(run.js, run.acked)
    assert await run.owner() is not owner
    print(f"{owner.name} told to end: a client of {other.name} saw no error ({repeated} repeated), has all {run.acked}")
    owner.start()


async def under_load(run):
    """Publishers that wait for nobody but themselves; each message is there once, in the order of its publisher."""
    await run.js.add_stream(name="LOAD", subjects=["load.>"])

    done = 0

    async def publisher(number):
        nonlocal done
        for at in range(LOADED):
            deadline = time.monotonic() + LIMIT_S
            while True:
                try:
                    key = f"{number}-{at}"
                    await run.js.publish(f"load.{number}", b"%d" % at, timeout=0.5, headers={"Nats-Msg-Id": key})
                    done += 1
                    break
                except (Error, OSError):
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(publisher(number)) for number in range(PUBLISHERS)]
    while done < PUBLISHERS * LOADED // 4:
        await asyncio.sleep(0.01)
    before = await run.owner()
    before.kill()
    await asyncio.gather(*tasks)
    after = await run.owner()
    assert after is not before
    sub = await persistently(lambda: run.js.subscribe("load.*", ordered_consumer=True))
    found = {number: [] for number in range(PUBLISHERS)}
    for _ in range(PUBLISHERS * LOADED):
        message = await sub.next_msg(timeout=LIMIT_S)
        found[int(message.subject.split(".")[1])].append(int(message.data))
    assert all(those == list(range(LOADED)) for those in found.values()), "not what was acknowledged, once, in order"
    info = await persistently(lambda: run.js.stream_info("LOAD"))
    assert info.state.messages == PUBLISHERS * LOADED
    print(f"{before.name} killed under load: {after.name} has {PUBLISHERS * LOADED} messages of {PUBLISHERS} publishers, each once")
    before.start()


async def scenario(nodes):
    run = Run(nodes)
    await run.start()
    dead = await killed(run)
    await wiped(run, dead)
    await stopped(run)
    await told_to_end(run)
    await under_load(run)
    await run.client.close()


def main():
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="nuthatch-quorum-") as root:
        ports = free_ports(6)
        routes = ",".join(f"127.0.0.1:{port}" for port in ports[3:])
        nodes = [Node(binary, root, f"n{i + 1}", ports[i], ports[3 + i], routes) for i in range(3)]
        try:
            asyncio.run(asyncio.wait_for(scenario(nodes), 3 * LIMIT_S))
        except BaseException:
            for node in nodes:
                with open(node.log) as log:
                    print(f"-- {node.name}\n" + "".join(log.readlines()[-40:]), file=sys.stderr)
            raise
        finally:
            for node in nodes:
                if node.process:
                    node.kill()


main()

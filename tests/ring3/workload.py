"""Clients that publish with ids, compare and set keys, work off a queue, and read, all the time, at whichever node answers."""

import asyncio
import json
import random
import time

import nats
import workers
from history import Look, Publish, Read, Write, content_of
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, KeyNotFoundError, KeyWrongLastSequenceError

STREAM, SUBJECTS = "RING", "ring.*"
BUCKET = "RING"
# For a request of a client, in which a takeover has room; what is not answered then has an unknown fate.
ANSWER_S = 1.0
LIMIT_S = 180
# Until consumers have brought everything when nothing is published any more.
DRAIN_S = 120
CLOSE_S = 10
# Longer than anybody repeats a message, and than a run: nothing may expire, whatever a clock shows.
DUPLICATES_S = AGE_S = 3600
# Writes of one key, which the bucket remembers all.
KEY_WRITES = 40
HISTORY = 64
UNREACHED = (Error, OSError, asyncio.TimeoutError, ConnectionError)


async def ignore(_):
    """That nodes are gone, or that none owns the log, is what this is about."""


async def connect(urls, limit_s=LIMIT_S):
    """A connection to any of the nodes."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return await nats.connect(
                urls, connect_timeout=1, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=ignore,
                ping_interval=0.5, max_outstanding_pings=1,
            )
        except UNREACHED:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def persistently(action, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return await action()
        except UNREACHED:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def left(client):
    """Closes a connection, whose node may be gone or stopped."""
    closing = asyncio.create_task(client.close())
    await asyncio.wait([closing], timeout=CLOSE_S)
    if closing.done() and not closing.cancelled():
        # Whatever it is, it was looked at.
        closing.exception()


class Workload:
    """The clients of a run. Each pauses a little after each operation, so that the machine is not the fault."""

    def __init__(self, urls, history, seed, rate, replicas=1):
        self.replicas, self.rate = replicas, rate
        self.urls, self.history, self.random = urls, history, random.Random(f"{seed} workload")
        self.is_over, self.tasks, self.clients = asyncio.Event(), [], []
        # Those that go on until all is brought that was published.
        self.is_drained, self.worker_tasks = asyncio.Event(), []
        self.generation = {}
        # Who said last that it owns the log.
        self.leader = None

    async def start(self):
        client = await self.client()
        js = client.jetstream(timeout=10)
        replicas = self.replicas
        await persistently(lambda: js.add_stream(
            name=STREAM, subjects=[SUBJECTS], duplicate_window=DUPLICATES_S, max_age=AGE_S, num_replicas=replicas))
        await persistently(lambda: js.create_key_value(bucket=BUCKET, history=HISTORY, replicas=replicas, direct=True))
        await workers.create(js, persistently, replicas, DUPLICATES_S)
        self.admin = client
        loops = [(self.publish, 4), (self.employ, 2), (self.write, 3), (self.look, 1), (self.spot, 1), (self.follow, 1), (self.watch, 1)]
        self.pause_s = sum(count for _, count in loops) / self.rate
        for loop, count in loops:
            client = await self.client()
            self.tasks += [asyncio.create_task(loop(client, at)) for at in range(count)]
        for consumer in workers.CONSUMERS:
            self.worker_tasks += [asyncio.create_task(self.work(await self.client(), consumer)) for _ in range(2)]

    async def client(self):
        self.clients.append(await connect(self.urls))
        return self.clients[-1]

    def owner(self):
        """The name of the node that said last that it owns the log, or none."""
        return self.leader

    async def stop(self):
        self.is_over.set()
        done, _ = await asyncio.wait(self.tasks, timeout=LIMIT_S)
        for task in done:
            task.result()
        if len(done) != len(self.tasks):
            raise AssertionError("a client hangs")
        await self.drain()
        self.is_drained.set()
        done, _ = await asyncio.wait(self.worker_tasks, timeout=LIMIT_S)
        for task in done:
            task.result()
        if len(done) != len(self.worker_tasks):
            raise AssertionError("a worker hangs")

    async def drain(self):
        """Until consumers have brought everything and have the acknowledgements, and the queue is empty."""
        js, deadline = self.admin.jetstream(timeout=10), time.monotonic() + DRAIN_S
        left = {f"messages of the consumer {consumer}": None for consumer in workers.CONSUMERS}
        while any(count != 0 for count in left.values()) and time.monotonic() < deadline:
            try:
                for consumer in workers.CONSUMERS:
                    count = await workers.look_at_floor(js, consumer, self.history)
                    left[f"messages of the consumer {consumer}"] = count
                    if not count:
                        self.history.drained.add(consumer)
                left["messages of the work queue"] = (await js.stream_info(workers.JOBS)).state.messages
            except UNREACHED:
                pass
            await asyncio.sleep(0.2)
        self.history.left = {what: "unknown" if count is None else count for what, count in left.items()}

    async def close(self):
        # A client library may take a cancellation for an error of its own: then the loops see that it is over.
        self.is_over.set()
        self.is_drained.set()
        tasks = [*self.tasks, *self.worker_tasks]
        for task in tasks:
            task.cancel()
        closing = [asyncio.create_task(left(client)) for client in self.clients]
        await asyncio.wait([*tasks, *closing], timeout=CLOSE_S)

    async def paused(self):
        await asyncio.sleep(self.pause_s * self.random.uniform(0.5, 1.5))

    async def publish(self, client, at):
        await self.publish_to(client, f"ring.{at}", f"p{at}", self.history.publishes)

    async def employ(self, client, at):
        await self.publish_to(client, f"job.{at}", f"j{at}", self.history.jobs)

    async def publish_to(self, client, subject, name, publishes):
        """Two thirds are repeated under their id until they are acknowledged, the others left as they are."""
        js = client.jetstream(timeout=ANSWER_S)
        number = 0
        while not self.is_over.is_set():
            key = f"{name}-{number}"
            number += 1
            repeats = self.random.random() < 2 / 3
            publish = Publish(key, time.monotonic())
            publishes.append(publish)
            while True:
                try:
                    body = content_of(key).encode()
                    ack = await js.publish(subject, body, timeout=ANSWER_S, headers={"Nats-Msg-Id": key})
                    self.history.ack(publish, ack.seq)
                    break
                except UNREACHED:
                    await asyncio.sleep(0.02)
                if not repeats or self.is_over.is_set():
                    break
            await self.paused()

    def some_key(self):
        """A key that was not written as often as the bucket remembers."""
        slot = self.random.randrange(4)
        count = self.generation.get(slot, 0)
        return slot, f"k{slot}-{count // KEY_WRITES}"

    async def write(self, client, at):
        js = client.jetstream(timeout=ANSWER_S)
        kv = await persistently(lambda: js.key_value(BUCKET))
        known, number = {}, 0
        while not self.is_over.is_set():
            slot, key = self.some_key()
            what = self.random.choices(["get", "cas", "put", "delete"], [4, 4, 2, 1])[0]
            try:
                if what == "get":
                    known[key] = await self.read_key(kv, key)
                else:
                    self.generation[slot] = self.generation.get(slot, 0) + 1
                    number += 1
                    write = Write(key, f"w{at}-{number}", time.monotonic())
                    write.expected = known.get(key, 0) if what == "cas" else None
                    self.history.writes.append(write)
                    known[key] = await self.write_key(js, kv, write, what)
            except UNREACHED:
                await asyncio.sleep(0.02)
            await self.paused()

    async def read_key(self, kv, key):
        invoked = time.monotonic()
        try:
            entry = await kv.get(key)
            revision, value = entry.revision, entry.value.decode()
        except KeyNotFoundError as missing:
            # With the entry of its delete, where there is one.
            entry = missing.entry
            revision, value = (entry.revision, entry.value.decode()) if entry else (0, None)
        self.history.reads.append(Read(key, invoked, time.monotonic(), revision, value))
        return revision

    async def write_key(self, js, kv, write, what):
        try:
            if what == "cas":
                revision = await kv.update(write.key, write.value.encode(), last=write.expected)
            elif what == "put":
                revision = await kv.put(write.key, write.value.encode())
            else:
                # As a client's delete, with a value to know it by.
                headers = {"KV-Operation": "DEL"}
                revision = (await js.publish(f"$KV.{BUCKET}.{write.key}", write.value.encode(), headers=headers)).seq
        except KeyWrongLastSequenceError:
            write.refused, write.ended = True, time.monotonic()
            return (await self.read_key(kv, write.key))
        write.revision, write.ended = revision, time.monotonic()
        return revision

    async def look(self, client, _at):
        """Asks for the log's end: all that was acknowledged before is below it. It comes anew again and again, so that
        it finds another owner before the others have left a former one."""
        js = client.jetstream(timeout=ANSWER_S)
        while not self.is_over.is_set():
            if self.random.random() < 0.05:
                client = await self.anew(client)
                js = client.jetstream(timeout=ANSWER_S)
            invoked = time.monotonic()
            try:
                info = await js.stream_info(STREAM)
                self.leader = info.cluster.leader if info.cluster else None
                self.history.looks.append(Look(invoked, time.monotonic(), info.state.last_seq))
            except APIError as error:
                self.gone(error)
            except UNREACHED:
                await asyncio.sleep(0.02)
            await self.paused()

    async def anew(self, client):
        self.clients.remove(client)
        await left(client)
        return await self.client()

    def gone(self, error):
        """The stream, or a message of it, was acknowledged: nobody may say that it is not there."""
        if error.code == 404:
            self.history.findings.append(f"an owner said: {error.description} ({error.err_code})")

    async def watch(self, client, at):
        """Asks consumers how far all was acknowledged, which never falls."""
        js = client.jetstream(timeout=ANSWER_S)
        while not self.is_over.is_set():
            try:
                await workers.look_at_floor(js, self.random.choice(list(workers.CONSUMERS)), self.history)
            except APIError as error:
                self.gone(error)
            except UNREACHED:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)

    async def work(self, client, consumer):
        worker = workers.Worker(client, consumer, self.history, self.random, ANSWER_S, UNREACHED)
        while not self.is_drained.is_set():
            try:
                await worker.step()
            except UNREACHED:
                await asyncio.sleep(0.05)

    async def spot(self, client, _at):
        """Reads one message that was acknowledged a short time ago."""
        js = client.jetstream(timeout=ANSWER_S)
        while not self.is_over.is_set():
            await self.paused()
            recent = [publish for publish in self.history.publishes[-300:] if publish.ended is not None]
            if not recent:
                continue
            publish = self.random.choice(recent)
            try:
                message = await js.get_msg(STREAM, seq=publish.seq)
                self.history.see(publish.seq, message.data.decode(), "a get")
            except APIError as error:
                self.gone(error)
            except UNREACHED:
                await asyncio.sleep(0.02)

    async def follow(self, client, _at):
        """A consumer that is brought every message, and made anew where it left off when nothing more comes."""
        js = client.jetstream(timeout=ANSWER_S)
        following = 1
        while not self.is_over.is_set():
            try:
                before, sent = client.stats["reconnects"], 0
                sub, led_by = await self.consumer(js, following), await self.led_by(client)
                while not self.is_over.is_set():
                    message = await sub.next_msg(timeout=2 * ANSWER_S)
                    seq = message.metadata.sequence.stream
                    self.history.see(seq, message.data.decode(), "a consumer")
                    # What was on the way when a connection ended is not brought again without acknowledgements: the client's, or
                    # that of its node to the owner, of which the number of the delivery tells.
                    number = message.metadata.sequence.consumer
                    if seq > following:
                        is_sent = number > sent + 1 and await self.led_by(client) != led_by
                        if client.is_connected and client.stats["reconnects"] == before and not is_sent:
                            self.history.findings.append(f"a consumer brought {seq} after {following - 1} over one connection, by delivery {number} after {sent}, led by {led_by}")
                        break
                    following, sent = max(following, seq + 1), number
            except UNREACHED:
                await asyncio.sleep(0.05)

    async def led_by(self, client):
        """Who leads the stream, and since when: the same node may lead it again after another one did."""
        info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=ANSWER_S)).data)
        if "error" in info:
            raise APIError.from_error(info["error"])
        cluster = info.get("cluster") or {}
        return cluster.get("leader"), cluster.get("leader_since")

    async def consumer(self, js, first):
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first, ack_policy=AckPolicy.NONE,
            inactive_threshold=30)
        return await js.subscribe(SUBJECTS, stream=STREAM, config=config)


async def read_all(client, stream, subjects):
    """[(seq, subject, headers, content, time)] of a stream, up to the end that it has now."""
    js = client.jetstream(timeout=10)

    async def attempt():
        last = (await js.stream_info(stream)).state.last_seq
        found = []
        if not last:
            return found
        sub = await js.subscribe(subjects, stream=stream, ordered_consumer=True)
        while not found or found[-1][0] < last:
            message = await sub.next_msg(timeout=10)
            seq = message.metadata.sequence.stream
            found.append((seq, message.subject, message.headers or {}, message.data.decode(), message.metadata.timestamp.timestamp()))
        await sub.unsubscribe()
        return found

    return await persistently(attempt)

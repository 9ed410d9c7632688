"""D01..D07: push consumers, flow control, heartbeats, ordered consumers."""

import asyncio

from harness import TIMEOUT_S, Skip, api, check, equal, flush, scenario, until


async def publish_async(ctx, subject, bodies):
    """Publishes in the client's own window; all acks must be good."""
    acks = [await ctx.js.publish_async(subject, body) for body in bodies]
    await ctx.js.publish_async_completed()
    for ack in acks:
        ack.result()


@scenario("D01")
async def durable(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("d01.a", 100)
    got = []

    async def on_msg(msg):
        got.append(int(msg.data))
        await msg.ack()

    await ctx.js.subscribe("d01.a", durable="c", stream=stream, cb=on_msg, manual_ack=True)

    async def settled():
        info = await ctx.js.consumer_info(stream, "c")
        return len(got) >= 100 and info.num_ack_pending == 0

    await until(settled, "100 messages acked")
    equal(got, list(range(100)), "messages")
    info = await ctx.js.consumer_info(stream, "c")
    equal((info.ack_floor.stream_seq, info.push_bound), (100, True), "info")


@scenario("D02")
async def deliver_group(ctx):
    stream = await ctx.stream()
    members = [[], [], []]
    for got in members:
        nc = await ctx.connect()

        async def on_msg(msg, got=got):
            got.append(int(msg.data))

        await nc.jetstream().subscribe("d02.a", queue="workers", stream=stream, cb=on_msg)
        await flush(nc)
    await ctx.publish_many("d02.a", 300)

    async def all_in():
        return sum(map(len, members)) >= 300

    await until(all_in, "300 messages")
    await asyncio.sleep(0.2)
    equal(sorted(n for got in members for n in got), list(range(300)), "messages")
    check(all(members), f"a member got nothing: {[len(m) for m in members]}")


@scenario("D03", 360)
async def flow_control(ctx):
    count = 40_000
    stream = await ctx.stream()
    await publish_async(ctx, "d03.a", (b"%0512d" % i for i in range(count)))
    config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE)
    sub = await ctx.js.subscribe(
        "d03.a", stream=stream, config=config, flow_control=True, idle_heartbeat=1
    )
    for i in range(count):
        msg = await sub.next_msg(timeout=TIMEOUT_S)
        if int(msg.data) != i:
            equal(int(msg.data), i, "message")


@scenario("D04")
async def heartbeats(ctx):
    stream = await ctx.stream()
    inbox = ctx.nc.new_inbox()
    got = []

    async def on_msg(msg):
        got.append(msg.headers)

    await ctx.nc.subscribe(inbox, cb=on_msg)
    await ctx.js.add_consumer(stream, durable_name="c", deliver_subject=inbox, idle_heartbeat=0.2)

    async def three():
        return len(got) >= 3

    await until(three, "3 heartbeats")
    for hdr in got:
        equal(hdr["Status"], "100", "status")
        equal((hdr["Nats-Last-Consumer"], hdr["Nats-Last-Stream"]), ("0", "0"), "headers")


@scenario("D05", 360)
async def ordered(ctx):
    count = 200_000
    stream = await ctx.stream()
    await publish_async(ctx, "d05.a", (b"%064d" % i for i in range(count)))
    sub = await ctx.js.subscribe("d05.a", stream=stream, ordered_consumer=True)
    for i in range(count):
        msg = await sub.next_msg(timeout=TIMEOUT_S)
        seq = msg.metadata.sequence.stream
        if seq != i + 1 or int(msg.data) != i:
            equal((seq, int(msg.data)), (i + 1, i), "sequence and payload")
    await sub.unsubscribe()


@scenario("D06", 360)
async def five_megabytes(ctx):
    size, count = 5_000_000, 100
    if ctx.nc.max_payload < size:
        raise Skip(f"the server's max_payload is {ctx.nc.max_payload}")
    stream = await ctx.stream()
    filler = bytes(size - 16)
    for i in range(count):
        mark = b"%08d" % i
        ack = await ctx.js.publish("d06.a", mark + filler + mark, timeout=TIMEOUT_S)
        equal(ack.seq, i + 1, "sequence")
    # The client buffers at most this many bytes; flow control keeps the server below it.
    sub = await ctx.js.subscribe(
        "d06.a", stream=stream, ordered_consumer=True, pending_bytes_limit=1 << 30
    )
    for i in range(count):
        msg = await sub.next_msg(timeout=TIMEOUT_S)
        mark = b"%08d" % i
        equal((len(msg.data), msg.data[:8], msg.data[-8:]), (size, mark, mark), "message")
    check(ctx.nc.is_connected, "disconnected")


@scenario("D07")
async def ordered_filtered(ctx):
    stream = await ctx.stream()
    for i in range(20):
        await ctx.js.publish(f"d07.{i % 2}", str(i).encode())
    config = api.ConsumerConfig(
        deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=11
    )
    sub = await ctx.js.subscribe("d07.0", stream=stream, ordered_consumer=True, config=config)
    got = [int((await sub.next_msg(timeout=TIMEOUT_S)).data) for _ in range(5)]
    equal(got, [10, 12, 14, 16, 18], "stored messages")
    await ctx.js.publish("d07.1", b"20")
    await ctx.js.publish("d07.0", b"21")
    equal(int((await sub.next_msg(timeout=TIMEOUT_S)).data), 21, "new message")

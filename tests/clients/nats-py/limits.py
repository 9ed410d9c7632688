"""S12..S18: stream limits, discard and retention policies, rollups, deny flags."""

import asyncio

from harness import TIMEOUT_S, api, check, equal, expect_code, scenario, until


async def kept(ctx, stream):
    """Payload numbers that are still in the stream, in order."""
    state = await ctx.state(stream)
    deleted = set(state.deleted or [])
    seqs = [s for s in range(state.first_seq, state.last_seq + 1) if s not in deleted]
    numbers = []
    for seq in seqs[: state.messages + 5]:
        try:
            numbers.append(int((await ctx.js.get_msg(stream, seq)).data))
        except Exception:
            continue
    return numbers


@scenario("S12")
async def discard_old(ctx):
    by_msgs = await ctx.stream("A", max_msgs=5)
    await ctx.publish_many("s12a.x", 10)
    equal(await kept(ctx, by_msgs), [5, 6, 7, 8, 9], "max_msgs")

    by_bytes = await ctx.stream("B", max_bytes=2000)
    await ctx.publish_many("s12b.x", 10, lambda i: b"%0500d" % i)
    state = await ctx.state(by_bytes)
    check(state.bytes <= 2000, f"bytes {state.bytes}")
    left = await kept(ctx, by_bytes)
    check(0 < len(left) <= 4, f"kept {left}")
    equal(left, list(range(10 - len(left), 10)), "max_bytes keeps the newest")

    by_subject = await ctx.stream("C", max_msgs_per_subject=2)
    for i in range(10):
        await ctx.js.publish(f"s12c.{i % 2}", str(i).encode())
    equal(await kept(ctx, by_subject), [6, 7, 8, 9], "max_msgs_per_subject")


@scenario("S13")
async def max_age(ctx):
    stream = await ctx.stream(max_age=4, duplicate_window=1)
    await ctx.publish_many("s13.a", 3)
    equal((await ctx.state(stream)).messages, 3, "messages at first")

    async def gone():
        return (await ctx.state(stream)).messages == 0

    await until(gone, "messages expire")
    equal((await ctx.state(stream)).last_seq, 3, "last_seq")


@scenario("S14")
async def refusals(ctx):
    js, new = ctx.js, api.DiscardPolicy.NEW
    await ctx.stream("A", max_msg_size=100)
    await expect_code(js.publish("s14a.x", bytes(101)), 10054)
    equal((await js.publish("s14a.x", bytes(100))).seq, 1, "at the limit")

    await ctx.stream("B", max_msgs=2, discard=new)
    await ctx.publish_many("s14b.x", 2)
    await expect_code(js.publish("s14b.x", b"x"), 10077)
    equal(await kept(ctx, "S14B"), [0, 1], "max_msgs keeps the oldest")

    await ctx.stream("C", max_bytes=500, discard=new)
    await js.publish("s14c.x", bytes(200))
    await expect_code(js.publish("s14c.x", bytes(400)), 10077)
    equal((await ctx.state("S14C")).messages, 1, "max_bytes")

    await ctx.stream("D", max_msgs_per_subject=1, discard=new, discard_new_per_subject=True)
    await js.publish("s14d.x", b"0")
    await expect_code(js.publish("s14d.x", b"1"), 10077)
    equal((await js.publish("s14d.y", b"2")).seq, 2, "another subject")


@scenario("S15")
async def interest(ctx):
    js = ctx.js
    stream = await ctx.stream(retention=api.RetentionPolicy.INTEREST)
    equal((await js.publish("s15.a", b"nobody")).seq, 1, "sequence without interest")
    equal((await ctx.state(stream)).messages, 0, "stored without interest")
    one = await ctx.consumer(stream, "one")
    two = await ctx.consumer(stream, "two")
    await js.publish("s15.a", b"x")
    await (await one.fetch(1, timeout=TIMEOUT_S))[0].ack_sync()
    equal((await ctx.state(stream)).messages, 1, "after the first ack")
    await (await two.fetch(1, timeout=TIMEOUT_S))[0].ack_sync()

    async def gone():
        return (await ctx.state(stream)).messages == 0

    await until(gone, "gone after the second ack")


@scenario("S16")
async def work_queue(ctx):
    js = ctx.js
    stream = await ctx.stream(retention=api.RetentionPolicy.WORK_QUEUE)
    a = await ctx.consumer(stream, "a", filter_subject="s16.a.*")
    await ctx.consumer(stream, "b", filter_subject="s16.b")
    await expect_code(js.add_consumer(stream, durable_name="all"), 10099)
    await expect_code(js.add_consumer(stream, durable_name="o", filter_subject="s16.a.1"), 10100)
    await js.publish("s16.a.1", b"x")
    await js.publish("s16.b", b"y")
    await (await a.fetch(1, timeout=TIMEOUT_S))[0].ack_sync()

    async def one_left():
        return (await ctx.state(stream)).messages == 1

    await until(one_left, "acked message is gone")
    equal((await js.get_last_msg(stream, "s16.b")).data, b"y", "the other one stays")


@scenario("S17")
async def rollup(ctx):
    js = ctx.js
    stream = await ctx.stream(allow_rollup_hdrs=True)
    for i in range(6):
        await js.publish(f"s17.{i % 2}", str(i).encode())
    await js.publish("s17.0", b"6", headers={"Nats-Rollup": "sub"})
    equal(await kept(ctx, stream), [1, 3, 5, 6], "rollup sub")
    await js.publish("s17.1", b"7", headers={"Nats-Rollup": "all"})
    equal(await kept(ctx, stream), [7], "rollup all")
    await ctx.stream("X")
    await expect_code(js.publish("s17x.a", b"x", headers={"Nats-Rollup": "sub"}), 10111)


@scenario("S18")
async def deny_and_seal(ctx):
    js = ctx.js
    deny = await ctx.stream("A", deny_delete=True, deny_purge=True)
    await js.publish("s18a.x", b"x")
    await expect_code(js.delete_msg(deny, 1), 10057)
    await expect_code(js.purge_stream(deny), 10110)
    sealed = await ctx.stream("B")
    await js.publish("s18b.x", b"x")
    config = (await js.stream_info(sealed)).config
    config.sealed = True
    info = await js.update_stream(config)
    check(info.config.sealed, "sealed")
    await expect_code(js.publish("s18b.x", b"y"), 10109)
    equal((await ctx.state(sealed)).messages, 1, "messages")

"""P01..P04, P12..P23: pull consumers apart from redelivery."""

import asyncio
import datetime
import time

from harness import TIMEOUT_S, Skip, api, check, equal, expect_code, nothing_more, scenario, until


def numbers(msgs):
    return [int(m.data) for m in msgs]


async def pending(ctx, stream, name="c"):
    return (await ctx.js.consumer_info(stream, name)).num_pending


@scenario("P01")
async def explicit_ack(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("p01.a", 10)
    sub = await ctx.consumer(stream)
    for batch, first in ((4, 0), (6, 4)):
        msgs = await sub.fetch(batch, timeout=TIMEOUT_S)
        equal(numbers(msgs), list(range(first, first + batch)), "messages")
        for msg in msgs:
            meta = msg.metadata
            seq = int(msg.data) + 1
            equal((meta.stream, meta.consumer), (stream, "c"), "names")
            equal((meta.sequence.stream, meta.sequence.consumer), (seq, seq), "sequences")
            equal((meta.num_delivered, meta.num_pending), (1, 10 - seq), "delivered, pending")
            await msg.ack()
        await acked_up_to(ctx, stream, first + batch, 10 - first - batch)


async def acked_up_to(ctx, stream, floor, num_pending, name="c"):
    """Waits until the (asynchronous) acks are counted, then compares exactly."""

    async def settled():
        info = await ctx.js.consumer_info(stream, name)
        return info.ack_floor.stream_seq == floor and info.num_ack_pending == 0

    await until(settled, f"ack floor {floor}")
    equal(await pending(ctx, stream, name), num_pending, "num_pending")


@scenario("P02")
async def no_wait(ctx):
    raise Skip("nats-py's fetch has no no_wait option")


@scenario("P03")
async def expires(ctx):
    # nats-py's fetch returns what its first no-wait request found, so there is no lower bound.
    stream = await ctx.stream()
    await ctx.publish_many("p03.a", 3)
    sub = await ctx.consumer(stream)
    began = time.monotonic()
    equal(numbers(await sub.fetch(10, timeout=3)), [0, 1, 2], "messages")
    check(time.monotonic() - began < TIMEOUT_S / 2, "took far longer than the expiry")
    await nothing_more(sub, 0.5)


@scenario("P04")
async def max_bytes(ctx):
    raise Skip("nats-py's fetch has no max_bytes option")


@scenario("P12")
async def double_ack(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("p12.a", 1)
    sub = await ctx.consumer(stream)
    msg = (await sub.fetch(1, timeout=TIMEOUT_S))[0]
    await msg.ack_sync(timeout=TIMEOUT_S)
    info = await ctx.js.consumer_info(stream, "c")
    equal((info.ack_floor.stream_seq, info.num_ack_pending), (1, 0), "info after the double ack")


@scenario("P13")
async def max_ack_pending(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("p13.a", 10)
    sub = await ctx.consumer(stream, max_ack_pending=5)
    first = await sub.fetch(10, timeout=3)
    equal(numbers(first), [0, 1, 2, 3, 4], "first")
    for msg in first:
        await msg.ack_sync(timeout=TIMEOUT_S)
    equal(numbers(await sub.fetch(5, timeout=TIMEOUT_S)), [5, 6, 7, 8, 9], "second")


@scenario("P14")
async def filters(ctx):
    stream = await ctx.stream()
    for i in range(12):
        await ctx.js.publish(f"p14.{'abc'[i % 3]}", str(i).encode())
    one = await ctx.consumer(stream, "one", filter_subject="p14.b")
    equal(await pending(ctx, stream, "one"), 4, "num_pending of one")
    equal(numbers(await one.fetch(4, timeout=TIMEOUT_S)), [1, 4, 7, 10], "one filter")
    two = await ctx.consumer(stream, "two", filter_subjects=["p14.a", "p14.c"])
    equal(await pending(ctx, stream, "two"), 8, "num_pending of two")
    equal(numbers(await two.fetch(8, timeout=TIMEOUT_S)), [0, 2, 3, 5, 6, 8, 9, 11], "two filters")
    overlap = ctx.js.add_consumer(stream, durable_name="x", filter_subjects=["p14.a", "p14.>"])
    await expect_code(overlap, 10138)


@scenario("P15")
async def headers_only(ctx):
    stream = await ctx.stream()
    await ctx.js.publish("p15.a", bytes(123), headers={"Kept": "yes"})
    sub = await ctx.consumer(stream, headers_only=True)
    msg = (await sub.fetch(1, timeout=TIMEOUT_S))[0]
    equal(msg.data, b"", "payload")
    equal((msg.headers["Nats-Msg-Size"], msg.headers["Kept"]), ("123", "yes"), "headers")


@scenario("P16")
async def deliver_policies(ctx):
    stream = await ctx.stream()
    subjects = ["a", "b", "c", "a", "b", "a"]
    for i in range(4):
        await ctx.js.publish(f"p16.{subjects[i]}", b"x")
    await asyncio.sleep(0.1)
    middle = datetime.datetime.now(datetime.timezone.utc)
    await asyncio.sleep(0.1)
    for i in range(4, 6):
        await ctx.js.publish(f"p16.{subjects[i]}", b"x")
    policy = api.DeliverPolicy
    cases = {
        "all": (dict(deliver_policy=policy.ALL), [1, 2, 3, 4, 5, 6]),
        "last": (dict(deliver_policy=policy.LAST), [6]),
        "seq": (dict(deliver_policy=policy.BY_START_SEQUENCE, opt_start_seq=4), [4, 5, 6]),
        "time": (dict(deliver_policy=policy.BY_START_TIME, opt_start_time=middle), [5, 6]),
        "per": (
            dict(deliver_policy=policy.LAST_PER_SUBJECT, filter_subject="p16.*"),
            [3, 5, 6],
        ),
    }
    for name, (config, want) in cases.items():
        sub = await ctx.consumer(stream, name, **config)
        equal(await pending(ctx, stream, name), len(want), f"num_pending of {name}")
        msgs = await sub.fetch(len(want), timeout=TIMEOUT_S)
        equal([m.metadata.sequence.stream for m in msgs], want, name)
    sub = await ctx.consumer(stream, "new", deliver_policy=policy.NEW)
    await nothing_more(sub, 0.3)
    await ctx.js.publish("p16.z", b"x")
    equal((await sub.fetch(1, timeout=TIMEOUT_S))[0].metadata.sequence.stream, 7, "new")


@scenario("P17")
async def ack_all_and_none(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("p17.a", 10)
    every = await ctx.consumer(stream, "all", ack_policy=api.AckPolicy.ALL)
    msgs = await every.fetch(10, timeout=TIMEOUT_S)
    await msgs[4].ack_sync(timeout=TIMEOUT_S)
    info = await ctx.js.consumer_info(stream, "all")
    equal((info.ack_floor.stream_seq, info.num_ack_pending), (5, 5), "ack all")
    none = await ctx.consumer(stream, "none", ack_policy=api.AckPolicy.NONE)
    equal(len(await none.fetch(10, timeout=TIMEOUT_S)), 10, "ack none")
    info = await ctx.js.consumer_info(stream, "none")
    equal((info.num_ack_pending, info.num_pending), (0, 0), "ack none")


@scenario("P18")
async def ephemeral(ctx):
    stream = await ctx.stream()
    info = await ctx.js.add_consumer(stream, name="eph", inactive_threshold=1)
    equal(info.config.durable_name, None, "durable_name")

    async def gone():
        names = [c.name for c in await ctx.js.consumers_info(stream)]
        return "eph" not in names

    await until(gone, "ephemeral consumer removed")
    await expect_code(ctx.js.consumer_info(stream, "eph"), 10014)


@scenario("P19")
async def life_cycle(ctx):
    # Create-only and update-only (10148, 10149) are left out: nats-py sends no action field.
    js = ctx.js
    stream = await ctx.stream()
    made = await js.add_consumer(stream, durable_name="c", description="first", ack_wait=3)
    equal((made.name, made.config.description, made.config.ack_wait), ("c", "first", 3), "made")
    equal((await js.consumer_info(stream, "c")).config.ack_policy, "explicit", "ack policy")
    await js.add_consumer(stream, durable_name="d")
    equal(sorted(c.name for c in await js.consumers_info(stream)), ["c", "d"], "list")
    config = (await js.consumer_info(stream, "c")).config
    config.description, config.max_ack_pending = "second", 7
    await js.add_consumer(stream, config=config)
    config = (await js.consumer_info(stream, "c")).config
    equal((config.description, config.max_ack_pending), ("second", 7), "after the update")
    config.deliver_policy = api.DeliverPolicy.NEW
    await expect_code(js.add_consumer(stream, config=config), 10012)
    check(await js.delete_consumer(stream, "c"), "delete")
    await expect_code(js.consumer_info(stream, "c"), 10014)
    await expect_code(js.delete_consumer(stream, "c"), 10014)


@scenario("P20")
async def exact_pending(ctx):
    js = ctx.js
    stream = await ctx.stream()
    for i in range(100):
        await js.publish(f"p20.{i % 2}", str(i).encode())
    made = await js.add_consumer(stream, durable_name="c", filter_subject="p20.1")
    equal(made.num_pending, 50, "at creation")
    for seq in range(52, 72, 2):
        await js.delete_msg(stream, seq)
    equal(await pending(ctx, stream), 40, "after the deletes")
    sub = await ctx.bind(stream)
    msgs = await sub.fetch(10, timeout=TIMEOUT_S)
    equal([m.metadata.num_pending for m in msgs], list(range(39, 29, -1)), "in the metadata")
    equal(await pending(ctx, stream), 30, "after the partial read")
    await js.purge_stream(stream, seq=80, subject="p20.1")
    equal(await pending(ctx, stream), 11, "after the purge below sequence 80")
    await js.purge_stream(stream, subject="p20.1")
    equal(await pending(ctx, stream), 0, "after the purge")


@scenario("P21")
async def continuous(ctx):
    raise Skip("nats-py has no continuous pull call")


@scenario("P22")
async def deleted_while_waiting(ctx):
    raise Skip("nats-py's fetch takes every 409 for temporary and waits on")


@scenario("P23")
async def two_fetchers(ctx):
    stream = await ctx.stream()
    await ctx.publish_many("p23.a", 500)
    await ctx.consumer(stream)
    got = []

    async def loop():
        sub = await ctx.bind(stream)
        while True:
            try:
                msgs = await sub.fetch(20, timeout=3)
            except asyncio.TimeoutError:
                return
            for msg in msgs:
                got.append(int(msg.data))
                await msg.ack()

    await asyncio.gather(loop(), loop())
    equal(sorted(got), list(range(500)), "messages")

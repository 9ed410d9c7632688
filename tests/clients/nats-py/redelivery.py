"""P05..P11: nak, term, in-progress, ack wait, max_deliver, backoff."""

import asyncio
import json
import time

from harness import TIMEOUT_S, check, equal, nothing_more, scenario, until


async def one_message(ctx, **config):
    """A stream with one message, its consumer, and the first delivery."""
    stream = await ctx.stream()
    await ctx.js.publish(ctx.sub("a"), b"x")
    sub = await ctx.consumer(stream, **config)
    msg = (await sub.fetch(1, timeout=TIMEOUT_S))[0]
    equal(msg.metadata.num_delivered, 1, "first delivery")
    return stream, sub, msg


async def again(sub, count):
    """The next delivery, which must have this count."""
    msg = (await sub.fetch(1, timeout=TIMEOUT_S))[0]
    equal(msg.metadata.num_delivered, count, "delivered")
    return msg


@scenario("P05")
async def nak(ctx):
    _, sub, msg = await one_message(ctx)
    began = time.monotonic()
    await msg.nak()
    await again(sub, 2)
    check(time.monotonic() - began < TIMEOUT_S / 3, "redelivered late")


@scenario("P06")
async def nak_delay(ctx):
    _, sub, msg = await one_message(ctx)
    began = time.monotonic()
    await msg.nak(delay=0.7)
    await again(sub, 2)
    took = time.monotonic() - began
    check(0.6 <= took <= TIMEOUT_S / 3, f"took {took:.2f} s")


@scenario("P07")
async def term(ctx):
    stream, sub, msg = await one_message(ctx, ack_wait=0.5)
    await msg.term()
    await nothing_more(sub, 1.5)
    info = await ctx.js.consumer_info(stream, "c")
    equal((info.num_ack_pending, info.ack_floor.stream_seq), (0, 1), "info")


@scenario("P08")
async def in_progress(ctx):
    stream, sub, msg = await one_message(ctx, ack_wait=5)
    for _ in range(2):
        await asyncio.sleep(3)
        await msg.in_progress()
    await nothing_more(sub, 2)
    await msg.ack_sync(timeout=TIMEOUT_S)
    equal((await ctx.js.consumer_info(stream, "c")).num_ack_pending, 0, "num_ack_pending")


@scenario("P09")
async def ack_wait(ctx):
    stream, sub, _ = await one_message(ctx, ack_wait=0.5)
    msg = await again(sub, 2)
    equal((await ctx.js.consumer_info(stream, "c")).num_redelivered, 1, "num_redelivered")
    await msg.ack_sync(timeout=TIMEOUT_S)
    equal((await ctx.js.consumer_info(stream, "c")).num_redelivered, 0, "after the ack")


@scenario("P10")
async def max_deliver(ctx):
    advisories = []

    async def on_advisory(msg):
        advisories.append(json.loads(msg.data))

    subject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.P10.c"
    await ctx.nc.subscribe(subject, cb=on_advisory)
    stream, sub, _ = await one_message(ctx, ack_wait=0.5, max_deliver=2)
    await again(sub, 2)
    await nothing_more(sub, 1.5)

    async def told():
        return bool(advisories)

    await until(told, "the advisory")
    equal(len(advisories), 1, "advisories")
    told = advisories[0]
    want = (stream, "c", 1, 2)
    equal(tuple(told[k] for k in ("stream", "consumer", "stream_seq", "deliveries")), want, "it")


@scenario("P11")
async def backoff(ctx):
    began = time.monotonic()
    _, sub, _ = await one_message(ctx, backoff=[0.3, 1.0], max_deliver=3)
    for count, least in ((2, 0.25), (3, 1.25)):
        await again(sub, count)
        took = time.monotonic() - began
        check(took >= least, f"delivery {count} after {took:.2f} s")
    await nothing_more(sub, 1.5)

"""C01..C10: core publish/subscribe, request/reply, headers, drain, limits."""

import asyncio
import hashlib
import random
import time

import nats.errors

from harness import TIMEOUT_S, check, equal, expect_raises, flush, scenario, until


async def collector(nc, subject, queue=""):
    """Subscribes and returns the list that fills up."""
    got = []

    async def on_msg(msg):
        got.append(msg)

    await nc.subscribe(subject, queue=queue, cb=on_msg)
    return got


@scenario("C01")
async def wildcards(ctx):
    star = await collector(ctx.nc, "c01.*")
    mid = await collector(ctx.nc, "c01.*.x")
    rest = await collector(ctx.nc, "c01.>")
    await flush(ctx.nc)
    for subject in ("c01", "c01.a", "c01.b", "c01.a.x", "c01.a.y"):
        await ctx.nc.publish(subject, b"x")
    await flush(ctx.nc)
    await asyncio.sleep(0.2)
    equal([m.subject for m in star], ["c01.a", "c01.b"], "c01.*")
    equal([m.subject for m in mid], ["c01.a.x"], "c01.*.x")
    equal([m.subject for m in rest], ["c01.a", "c01.b", "c01.a.x", "c01.a.y"], "c01.>")


@scenario("C02")
async def queue_groups(ctx):
    members = []
    for _ in range(3):
        members.append(await collector(await ctx.connect(), "c02.q", queue="workers"))
    plain = await collector(ctx.nc, "c02.q")
    for nc in ctx._conns:
        await flush(nc)
    for i in range(300):
        await ctx.nc.publish("c02.q", str(i).encode())
    await flush(ctx.nc)

    async def all_in():
        return sum(map(len, members)) >= 300 and len(plain) >= 300

    await until(all_in, "300 messages at the group")
    await asyncio.sleep(0.1)
    equal(sorted(int(m.data) for got in members for m in got), list(range(300)), "group")
    equal([int(m.data) for m in plain], list(range(300)), "plain subscriber")
    check(all(members), f"a member got nothing: {[len(m) for m in members]}")


@scenario("C03")
async def request_reply(ctx):
    responder = await ctx.connect()

    async def answer(msg):
        await msg.respond(b"re:" + msg.data)

    await responder.subscribe("c03.*", cb=answer)
    await flush(responder)
    for i in range(200):
        reply = await ctx.nc.request(f"c03.{i}", str(i).encode(), timeout=TIMEOUT_S)
        equal(reply.data, f"re:{i}".encode(), "reply")


@scenario("C04")
async def no_responders(ctx):
    began = time.monotonic()
    await expect_raises(ctx.nc.request("c04.nobody", b"?", timeout=TIMEOUT_S), nats.errors.NoRespondersError)
    check(time.monotonic() - began < TIMEOUT_S / 2, "took as long as a request may")


@scenario("C05")
async def headers(ctx):
    # nats-py keeps one value for each name, so the two-value part is left out.
    sent = {"X-Mixed-Case": "a b: c;d", "lower": "1", "X-Utf": "grüße"}
    got = await collector(ctx.nc, "c05.h")
    payload = b"line\r\nline\x00end"
    await ctx.nc.publish("c05.h", payload, headers=sent)
    await ctx.nc.publish("c05.h", b"", headers=sent)
    await flush(ctx.nc)

    async def both():
        return len(got) == 2

    await until(both, "two messages")
    for msg, data in zip(got, (payload, b"")):
        equal(msg.data, data, "payload")
        equal(dict(msg.headers), sent, "headers")

    async def answer(msg):
        await ctx.nc.publish(msg.reply, b"ok", headers={"Echo": msg.headers["Ask"]})

    await ctx.nc.subscribe("c05.r", cb=answer)
    reply = await ctx.nc.request("c05.r", b"", timeout=TIMEOUT_S, headers={"Ask": "v 1"})
    equal(reply.headers["Echo"], "v 1", "reply header")


@scenario("C06")
async def drain(ctx):
    receiver = await ctx.connect()
    got = []

    async def slow(msg):
        await asyncio.sleep(0.002)
        got.append(msg.data)

    sub = await receiver.subscribe("c06.d", cb=slow)
    await flush(receiver)
    for i in range(100):
        await ctx.nc.publish("c06.d", str(i).encode())
    await flush(ctx.nc)
    await flush(receiver)
    await sub.drain()
    for _ in range(10):
        await ctx.nc.publish("c06.d", b"late")
    await flush(ctx.nc)
    await receiver.drain()
    equal(got, [str(i).encode() for i in range(100)], "drained messages")
    check(receiver.is_closed, "connection is not closed after drain")


@scenario("C07")
async def unsubscribe_after(ctx):
    got = []

    async def on_msg(msg):
        got.append(msg.data)

    sub = await ctx.nc.subscribe("c07.u", cb=on_msg)
    await sub.unsubscribe(limit=5)
    for i in range(10):
        await ctx.nc.publish("c07.u", str(i).encode())
    await flush(ctx.nc)
    await asyncio.sleep(0.3)
    equal(got, [str(i).encode() for i in range(5)], "messages")


@scenario("C08")
async def max_payload(ctx):
    limit = ctx.nc.max_payload
    got = await collector(ctx.nc, "c08.p")
    await expect_raises(
        ctx.nc.publish("c08.p", bytes(limit + 1)), nats.errors.MaxPayloadError
    )
    body = b"\xab" * limit
    await ctx.nc.publish("c08.p", body)
    await flush(ctx.nc)

    async def arrived():
        return len(got) == 1

    await until(arrived, "the message of max_payload bytes")
    check(got[0].data == body, "payload differs")


@scenario("C09")
async def large_messages(ctx):
    responder = await ctx.connect()

    async def echo(msg):
        await responder.publish(msg.reply, msg.data)

    await responder.subscribe("c09.echo", cb=echo)
    await flush(responder)
    size = min(1_000_000, ctx.nc.max_payload)
    source = random.Random(9)
    for _ in range(20):
        body = source.randbytes(size)
        reply = await ctx.nc.request("c09.echo", body, timeout=TIMEOUT_S)
        equal(
            hashlib.sha256(reply.data).hexdigest(), hashlib.sha256(body).hexdigest(), "SHA-256"
        )


@scenario("C10")
async def order(ctx):
    count = 20_000
    receiver = await ctx.connect()
    got = []

    async def on_msg(msg):
        got.append(int(msg.data))

    await receiver.subscribe("c10.o", cb=on_msg)
    await flush(receiver)
    for i in range(count):
        await ctx.nc.publish("c10.o", str(i).encode())
    await flush(ctx.nc)

    async def all_in():
        return len(got) >= count

    await until(all_in, f"{count} messages")
    equal(got, list(range(count)), "order")
    info = ctx.nc._server_info
    check(info.get("headers") is True, "INFO.headers")
    check(info.get("jetstream") is True, "INFO.jetstream")
    check(ctx.nc.max_payload > 0, "INFO.max_payload")

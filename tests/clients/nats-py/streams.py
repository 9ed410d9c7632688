"""S01..S11, S19, S20: stream life cycle, publishing, reading single messages, purge."""

import asyncio

import nats.js.errors

from harness import TIMEOUT_S, api, check, equal, expect_code, expect_raises, scenario
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError


@scenario("S01")
async def account_info(ctx):
    before = await ctx.js.account_info()
    stream = await ctx.stream()
    await ctx.publish_many("s01.a", 3, lambda i: bytes(100))
    await ctx.consumer(stream)
    after = await ctx.js.account_info()
    equal(after.streams, before.streams + 1, "streams")
    equal(after.consumers, before.consumers + 1, "consumers")
    check(after.storage >= before.storage + 300, f"storage {before.storage} -> {after.storage}")
    check(after.limits.max_streams is not None, "limits.max_streams")
    check(after.api.total >= before.api.total, "api.total")


@scenario("S02")
async def life_cycle(ctx):
    js = ctx.js
    ctx.owns("S02")
    made = await js.add_stream(name="S02", subjects=["s02.a", "s02.b"], description="first")
    equal(made.config.description, "first", "description")
    equal(made.config.subjects, ["s02.a", "s02.b"], "subjects")
    info = await js.stream_info("S02")
    equal((info.state.messages, info.state.last_seq), (0, 0), "empty state")
    equal(info.config.retention, api.RetentionPolicy.LIMITS.value, "retention")
    config = info.config
    config.description, config.subjects = "second", ["s02.a", "s02.b", "s02.c"]
    updated = await js.update_stream(config)
    equal(updated.config.description, "second", "description after update")
    equal((await js.publish("s02.c", b"x")).seq, 1, "sequence on the new subject")
    equal(await js.find_stream_name_by_subject("s02.c"), "S02", "name by subject")
    check("S02" in [s.config.name for s in await js.streams_info()], "not in the list")
    check(await js.delete_stream("S02"), "delete")
    await expect_code(js.stream_info("S02"), 10059)
    await expect_code(js.delete_stream("S02"), 10059)


@scenario("S03")
async def create_errors(ctx):
    js = ctx.js
    await ctx.stream(max_msgs=10)
    await js.add_stream(name="S03", subjects=["s03.>"], max_msgs=10)
    await expect_code(js.add_stream(name="S03", subjects=["s03.>"], max_msgs=11), 10058)
    ctx.owns("S03X")
    await expect_code(js.add_stream(name="S03X", subjects=["s03.a"]), 10065)
    bad = js.add_stream(name="S03X", subjects=["s03x"], max_age=1, duplicate_window=2)
    await expect_code(bad, 10052)


@scenario("S04")
async def update_errors(ctx):
    js = ctx.js
    await ctx.stream()
    await ctx.stream("X")
    missing = js.update_stream(name="S04MISSING", subjects=["s04m"])
    await expect_code(missing, 10059)
    memory = js.update_stream(name="S04", subjects=["s04.>"], storage=api.StorageType.MEMORY)
    await expect_code(memory, 10052)
    await expect_code(js.update_stream(name="S04", subjects=["s04.>", "s04x.a"]), 10065)


@scenario("S05")
async def publish_sync(ctx):
    stream = await ctx.stream()
    for i in range(1, 21):
        ack = await ctx.js.publish("s05.a", str(i).encode())
        equal((ack.stream, ack.seq, bool(ack.duplicate)), (stream, i, False), "ack")
    state = await ctx.state(stream)
    equal((state.messages, state.first_seq, state.last_seq), (20, 1, 20), "state")
    await expect_raises(ctx.js.publish("s05none", b"x"), NoStreamResponseError)


@scenario("S06")
async def publish_async(ctx):
    count = 10_000
    stream = await ctx.stream()
    acks = [await ctx.js.publish_async("s06.a", str(i).encode()) for i in range(count)]
    await asyncio.wait_for(ctx.js.publish_async_completed(), TIMEOUT_S)
    seqs = [(await ack).seq for ack in acks]
    equal(seqs, list(range(1, count + 1)), "sequences")
    equal((await ctx.state(stream)).messages, count, "messages")


@scenario("S07")
async def dedup(ctx):
    stream = await ctx.stream(duplicate_window=5)
    hdr = {"Nats-Msg-Id": "one"}
    first = await ctx.js.publish("s07.a", b"1", headers=dict(hdr))
    second = await ctx.js.publish("s07.a", b"2", headers=dict(hdr))
    equal((first.seq, bool(first.duplicate)), (1, False), "first")
    equal((second.seq, second.duplicate), (1, True), "second")
    await asyncio.sleep(5.5)
    third = await ctx.js.publish("s07.a", b"3", headers=dict(hdr))
    equal((third.seq, bool(third.duplicate)), (2, False), "after the window")
    equal((await ctx.state(stream)).messages, 2, "messages")


@scenario("S08")
async def expected(ctx):
    js = ctx.js
    stream = await ctx.stream()
    await js.publish("s08.a", b"1", headers={"Nats-Msg-Id": "m1"})
    await js.publish("s08.b", b"2", headers={"Nats-Msg-Id": "m2"})

    def put(name, value):
        return js.publish("s08.a", b"x", headers={name: value})

    await expect_code(put("Nats-Expected-Stream", "OTHER"), 10060)
    await expect_code(put("Nats-Expected-Last-Sequence", "1"), 10071)
    await expect_code(put("Nats-Expected-Last-Msg-Id", "m1"), 10070)
    await expect_code(put("Nats-Expected-Last-Subject-Sequence", "2"), 10071)
    equal((await ctx.state(stream)).messages, 2, "messages after the refusals")
    equal((await put("Nats-Expected-Stream", stream)).seq, 3, "stream")
    equal((await put("Nats-Expected-Last-Sequence", "3")).seq, 4, "last sequence")
    equal((await put("Nats-Expected-Last-Subject-Sequence", "4")).seq, 5, "subject sequence")
    await js.publish("s08.a", b"6", headers={"Nats-Msg-Id": "m6"})
    equal((await put("Nats-Expected-Last-Msg-Id", "m6")).seq, 7, "last msg id")


@scenario("S09")
async def get_and_delete(ctx):
    js = ctx.js
    stream = await ctx.stream()
    for i in range(1, 4):
        await js.publish(f"s09.{i % 2}", b"body %d" % i, headers={"N": str(i)})
    msg = await js.get_msg(stream, 2)
    equal((msg.seq, msg.subject, msg.data), (2, "s09.0", b"body 2"), "by sequence")
    equal(msg.headers, {"N": "2"}, "headers")
    check(msg.time is not None, "time")
    last = await js.get_last_msg(stream, "s09.1")
    equal((last.seq, last.data), (3, b"body 3"), "last by subject")
    check(await js.delete_msg(stream, 2), "delete")
    await expect_code(js.get_msg(stream, 2), 10037)
    await expect_code(js.delete_msg(stream, 2), 10043)
    await expect_code(js.get_msg(stream, 99), 10037)
    state = await ctx.state(stream)
    equal((state.messages, state.num_deleted), (2, 1), "state")


@scenario("S10")
async def direct_get(ctx):
    js = ctx.js
    stream = await ctx.stream(allow_direct=True)
    for i in range(1, 5):
        await js.publish(f"s10.{i % 2}", b"body %d" % i)
    one = await js.get_msg(stream, 2, direct=True)
    equal((one.seq, one.subject, one.data), (2, "s10.0", b"body 2"), "by sequence")
    last = await js.get_msg(stream, subject="s10.1", direct=True)
    equal((last.seq, last.data), (3, b"body 3"), "last by subject")
    following = await js.get_msg(stream, seq=3, subject="s10.0", direct=True, next=True)
    equal((following.seq, following.data), (4, b"body 4"), "next by subject")
    await expect_raises(js.get_msg(stream, 99, direct=True), NotFoundError)
    await expect_raises(js.get_msg(stream, subject="s10.none", direct=True), NotFoundError)


@scenario("S11")
async def purge(ctx):
    js = ctx.js
    stream = await ctx.stream()
    for i in range(1, 11):
        await js.publish("s11.even" if i % 2 == 0 else "s11.odd", str(i).encode())

    async def state():
        s = await ctx.state(stream)
        return s.messages, s.first_seq, s.last_seq

    await js.purge_stream(stream, subject="s11.even")
    equal(await state(), (5, 1, 10), "after the filter")
    await js.purge_stream(stream, seq=4)
    equal(await state(), (3, 5, 10), "after the sequence")
    await js.purge_stream(stream, keep=2)
    equal(await state(), (2, 7, 10), "after keep")
    await js.purge_stream(stream)
    equal(await state(), (0, 11, 10), "after all")


@scenario("S19")
async def subjects_in_state(ctx):
    stream = await ctx.stream()
    for subject in ("s19.a.1", "s19.a.2", "s19.b"):
        await ctx.js.publish(subject, b"x")
    info = await ctx.js.stream_info(stream, subjects_filter="s19.a.*")
    equal(info.state.subjects, {"s19.a.1": 1, "s19.a.2": 1}, "subjects")
    # nats-py hands out no num_subjects.


@scenario("S20")
async def memory_storage(ctx):
    stream = await ctx.stream(storage=api.StorageType.MEMORY)
    await ctx.publish_many("s20.a", 100)
    sub = await ctx.consumer(stream)
    got = await sub.fetch(100, timeout=TIMEOUT_S)
    equal([int(m.data) for m in got], list(range(100)), "messages")
    info = await ctx.js.stream_info(stream)
    equal(info.config.storage, api.StorageType.MEMORY.value, "storage")

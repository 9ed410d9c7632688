"""K01..K07: the key-value store."""

from harness import TIMEOUT_S, check, equal, expect_raises, scenario, until
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError


async def bucket(ctx, **config):
    ctx.owns(f"KV_{ctx.sid}")
    return await ctx.js.create_key_value(bucket=ctx.sid, **config)


async def next_updates(watcher, count):
    """(key, value, operation) of the next updates; None is the end-of-initial mark."""
    got = []
    for _ in range(count):
        entry = await watcher.updates(timeout=TIMEOUT_S)
        got.append(entry and (entry.key, entry.value, entry.operation))
    return got


@scenario("K01")
async def put_get(ctx):
    kv = await bucket(ctx, history=3)
    equal(await kv.put("a.b", b"one"), 1, "revision")
    equal(await kv.put("a.b", b"two"), 2, "revision")
    entry = await kv.get("a.b")
    equal((entry.key, entry.value, entry.revision), ("a.b", b"two", 2), "entry")
    equal((await kv.get("a.b", revision=1)).value, b"one", "old revision")
    await expect_raises(kv.get("none"), KeyNotFoundError)


@scenario("K02")
async def create_update(ctx):
    kv = await bucket(ctx)
    equal(await kv.create("k", b"1"), 1, "create")
    await expect_raises(kv.create("k", b"2"), KeyWrongLastSequenceError)
    await expect_raises(kv.update("k", b"2", last=9), KeyWrongLastSequenceError)
    equal(await kv.update("k", b"2", last=1), 2, "update")
    await kv.delete("k")
    await expect_raises(kv.get("k"), KeyNotFoundError)
    equal(await kv.create("k", b"3"), 4, "create after the delete")
    equal((await kv.get("k")).value, b"3", "value")


@scenario("K03")
async def watch(ctx):
    kv = await bucket(ctx)
    for key in ("a.1", "a.2", "b"):
        await kv.put(key, key.encode())
    watcher = await kv.watchall()
    initial = await next_updates(watcher, 4)
    want = [(k, k.encode(), None) for k in ("a.1", "a.2", "b")] + [None]
    equal(initial, want, "initial values")
    await kv.put("c", b"new")
    await kv.delete("b")
    equal(await next_updates(watcher, 2), [("c", b"new", None), ("b", b"", "DEL")], "updates")
    await watcher.stop()
    some = await kv.watch("a.*")
    equal(await next_updates(some, 3), [want[0], want[1], None], "wildcard")
    await some.stop()


@scenario("K04")
async def history(ctx):
    kv = await bucket(ctx, history=5)
    for i in range(7):
        await kv.put("k", str(i).encode())
    await kv.delete("k")
    got = [(e.value, e.operation) for e in await kv.history("k")]
    equal(got, [(b"3", None), (b"4", None), (b"5", None), (b"6", None), (b"", "DEL")], "history")


@scenario("K05")
async def keys_and_purge(ctx):
    kv = await bucket(ctx, history=5)
    for key in ("a", "b", "c", "a"):
        await kv.put(key, b"x")
    equal(sorted(await kv.keys()), ["a", "b", "c"], "keys")
    await kv.delete("b")
    await kv.purge("a")
    equal(await kv.keys(), ["c"], "keys after delete and purge")
    equal([e.operation for e in await kv.history("a")], ["PURGE"], "history of the purged key")
    await expect_raises(kv.get("a"), KeyNotFoundError)


@scenario("K06")
async def ttl(ctx):
    kv = await bucket(ctx, ttl=3)
    await kv.put("k", b"x")
    equal((await kv.get("k")).value, b"x", "value")

    async def gone():
        try:
            await kv.get("k")
            return False
        except KeyNotFoundError:
            return True

    await until(gone, "the value expires")


@scenario("K07")
async def status(ctx):
    # nats-py has no call that lists bucket names.
    kv = await bucket(ctx, history=4)
    for i in range(3):
        await kv.put(f"k{i}", b"x")
    found = await kv.status()
    equal((found.bucket, found.values, found.history), (ctx.sid, 3, 4), "status")
    equal((await ctx.js.key_value(ctx.sid)).__class__, kv.__class__, "open")
    check(await ctx.js.delete_key_value(ctx.sid), "delete")
    await expect_raises(ctx.js.key_value(ctx.sid), BucketNotFoundError)

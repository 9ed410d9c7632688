"""O01..O05: the object store."""

import base64
import hashlib
import random

from harness import TIMEOUT_S, check, equal, expect_raises, scenario, until
from nats.js.errors import BucketNotFoundError, ObjectNotFoundError


async def store(ctx):
    ctx.owns(f"OBJ_{ctx.sid}")
    return await ctx.js.create_object_store(ctx.sid)


def digest(data):
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


@scenario("O01")
async def put_get(ctx):
    obj = await store(ctx)
    data = random.Random(1).randbytes(300_000)
    put = await obj.put("an object", data)
    equal((put.name, put.size, put.chunks), ("an object", 300_000, 3), "put")
    info = await obj.get_info("an object")
    equal((info.size, info.chunks, info.digest), (300_000, 3, digest(data)), "info")
    check((await obj.get("an object")).data == data, "content differs")
    equal([i.name for i in await obj.list()], ["an object"], "list")
    await obj.delete("an object")
    await expect_raises(obj.get("an object"), ObjectNotFoundError)


@scenario("O02", 360)
async def fifty_megabytes(ctx):
    obj = await store(ctx)
    data = random.Random(2).randbytes(50 * 1024 * 1024)
    put = await obj.put("big", data)
    equal((put.size, put.digest), (len(data), digest(data)), "put")

    class Sink:
        """Hashes what get() writes, so that nothing is gathered in memory."""

        sha, size = hashlib.sha256(), 0

        def write(self, part):
            self.sha.update(part)
            self.size += len(part)

    sink = Sink()
    await obj.get("big", writeinto=sink)
    equal(sink.size, len(data), "size")
    equal(sink.sha.hexdigest(), hashlib.sha256(data).hexdigest(), "SHA-256")


@scenario("O03")
async def overwrite(ctx):
    obj = await store(ctx)
    await obj.put("o", bytes(500_000))
    await obj.put("o", b"second")
    equal((await obj.get("o")).data, b"second", "content")

    async def two_left():
        return (await ctx.state(f"OBJ_{ctx.sid}")).messages == 2

    await until(two_left, "chunks of the first object are purged")


@scenario("O04")
async def watch(ctx):
    obj = await store(ctx)
    watcher = await obj.watch()
    equal(await watcher.updates(timeout=TIMEOUT_S), None, "end of initial values")
    await obj.put("one", b"1")
    await obj.put("two", b"2")
    await obj.delete("one")
    got = []
    for _ in range(3):
        info = await watcher.updates(timeout=TIMEOUT_S)
        got.append((info.name, bool(info.deleted)))
    equal(got, [("one", False), ("two", False), ("one", True)], "events")
    await watcher.stop()


@scenario("O05")
async def status(ctx):
    obj = await store(ctx)
    await obj.put("o", bytes(1000))
    found = await obj.status()
    equal(found.bucket, ctx.sid, "bucket")
    check(found.size > 1000, f"size {found.size}")
    check(await ctx.js.delete_object_store(ctx.sid), "delete")
    await expect_raises(ctx.js.object_store(ctx.sid), BucketNotFoundError)

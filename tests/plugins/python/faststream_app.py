"""FastStream: request and reply, a durable pull subscriber of a stream, a watch of a key-value bucket."""

import asyncio
import sys

from faststream.nats import JStream, NatsBroker, PullSub

seen: dict[str, asyncio.Queue] = {}


def queue(name):
    return seen.setdefault(name, asyncio.Queue())


async def main(url):
    broker = NatsBroker(url)
    stream = JStream("PLUG", subjects=["plug.>"])

    @broker.subscriber("core.greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    @broker.subscriber("plug.jobs", stream=stream, durable="workers", pull_sub=PullSub(batch_size=5))
    async def job(number: int):
        await queue("jobs").put(number)

    @broker.subscriber("settings", kv_watch="bucket")
    async def setting(value: str):
        await queue("settings").put(value)

    async with broker:
        await broker.start()
        reply = await broker.request("world", "core.greet", timeout=30)
        assert await reply.decode() == "hello world", reply
        for number in range(50):
            await broker.publish(number, "plug.jobs", stream="PLUG")
        got = sorted([await asyncio.wait_for(queue("jobs").get(), 60) for _ in range(50)])
        assert got == list(range(50)), got
        bucket = await broker.key_value("bucket")
        await bucket.put("settings", b"dark")
        assert await asyncio.wait_for(queue("settings").get(), 60) == "dark"
    print("faststream: core, requests, a stream, key-value")


asyncio.run(main(sys.argv[1]))

"""Publishes until it is killed, and prints each sequence that was acknowledged."""

import asyncio
import sys

import nats
from nuthatch_embed import Broker


async def main(directory):
    broker = Broker(store_dir=directory, port=-1)
    client = await nats.connect(broker.url, connect_timeout=60)
    js = client.jetstream(timeout=60)
    await js.add_stream(name="LOG", subjects=["log.>"])
    for seq in range(1, 1_000_000):
        ack = await js.publish("log.x", b"body %d" % seq)
        print(ack.seq, flush=True)


asyncio.run(main(sys.argv[1]))

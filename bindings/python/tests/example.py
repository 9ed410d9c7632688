"""A broker in this process: a log is written, closed, opened again and read."""

import asyncio
import sys

import nats
from nuthatch_embed import Broker


async def main(directory):
    with Broker(store_dir=directory, port=-1) as broker:
        client = await nats.connect(broker.url)
        js = client.jetstream()
        await js.add_stream(name="LOG", subjects=["log.>"])
        ack = await js.publish("log.first", b"hello")
        await client.close()
    with Broker(store_dir=directory, port=-1) as broker:
        client = await nats.connect(broker.url)
        stored = await client.jetstream().get_msg("LOG", ack.seq)
        print(f"{stored.subject} {stored.seq}: {stored.data.decode()}")
        await client.close()


asyncio.run(main(sys.argv[1]))

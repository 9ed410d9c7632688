"""Clients of consumers with acknowledgements: the workers of a work queue, and those who are brought everything of the stream."""

import asyncio
import json
import time

from history import Delivery, Floor, Settled
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy

JOBS, JOB_SUBJECTS = "JOBS", "job.*"
# Consumers, and the streams that they are of.
CONSUMERS = {"workers": JOBS, "audit": "RING"}
ACK_WAIT_S = 3
FETCH_S = 0.8
BATCH = {"workers": 5, "audit": 20}
# What a worker does with what it was brought: asks whether its acknowledgement has arrived, does not ask, gives the message back, dies.
WAYS = {"double": 75, "ack": 10, "nak": 5, "none": 10}


async def create(js, persistently, replicas, duplicates_s):
    await persistently(lambda: js.add_stream(
        name=JOBS, subjects=[JOB_SUBJECTS], retention=RetentionPolicy.WORK_QUEUE, duplicate_window=duplicates_s, num_replicas=replicas))
    for name, stream in CONSUMERS.items():
        config = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S)
        await persistently(lambda: js.add_consumer(stream, config))


class Worker:
    """Works for one consumer over one connection."""

    def __init__(self, client, consumer, history, random, answer_s, unreached):
        self.client, self.consumer, self.stream = client, consumer, CONSUMERS[consumer]
        self.history, self.random, self.answer_s, self.unreached = history, random, answer_s, unreached

    async def step(self):
        """One fetch, and what becomes of its messages. Gives how many it brought."""
        came = await self.fetch()
        await asyncio.gather(*(self.settle(message, seq) for message, seq in came))
        return len(came)

    async def fetch(self):
        """Each fetch has an inbox of its own: what comes there was asked for by this one."""
        inbox = self.client.new_inbox()
        sub = await self.client.subscribe(inbox)
        invoked, came = time.monotonic(), []
        ask = {"batch": BATCH[self.consumer], "expires": int(FETCH_S * 1e9)}
        try:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"
            await self.client.publish(subject, json.dumps(ask).encode(), reply=inbox)
            while len(came) < ask["batch"]:
                left_s = invoked + FETCH_S + 0.2 - time.monotonic()
                message = await sub.next_msg(timeout=max(0.01, left_s))
                if message.headers and "Status" in message.headers:
                    break
                came.append((message, self.note(message, invoked)))
        except NothingCame:
            pass
        finally:
            await sub.unsubscribe()
        return came

    def note(self, message, invoked):
        at = message.metadata
        seq = at.sequence.stream
        self.history.deliveries.append(Delivery(self.consumer, seq, at.num_delivered, invoked, time.monotonic()))
        self.history.see(seq, message.data.decode(), f"the consumer {self.consumer}", self.stream)
        return seq

    async def settle(self, message, seq):
        way = self.random.choices(list(WAYS), WAYS.values())[0]
        if way == "none":
            return
        try:
            if way == "nak":
                await self.client.publish(message.reply, b"-NAK")
                return
            settled = Settled(self.consumer, seq, time.monotonic())
            self.history.settled.append(settled)
            if way == "ack":
                await self.client.publish(message.reply, b"+ACK")
                return
            answer = await self.client.request(message.reply, b"+ACK", timeout=self.answer_s)
            if not answer.data.startswith(b"-ERR"):
                settled.ended = time.monotonic()
        except self.unreached:
            await asyncio.sleep(0.02)


async def look_at_floor(js, consumer, history):
    """Asks how far all is acknowledged. Gives how much the consumer still has to bring or to have acknowledged."""
    invoked = time.monotonic()
    info = await js.consumer_info(CONSUMERS[consumer], consumer)
    history.floors.append(Floor(consumer, invoked, time.monotonic(), info.ack_floor.stream_seq))
    return info.num_pending + info.num_ack_pending

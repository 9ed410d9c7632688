"""taskiq: tasks over core messages and over JetStream (push and pull), with results in an object store."""

import asyncio
import sys

from taskiq.receiver import Receiver
from taskiq_nats import NatsBroker, NATSObjectStoreResultBackend, PullBasedJetStreamBroker, PushBasedJetStreamBroker


async def run(name, broker, url):
    broker = broker.with_result_backend(NATSObjectStoreResultBackend(servers=url, bucket_name=f"results-{name}"))

    @broker.task
    async def add(a: int, b: int) -> int:
        return a + b

    broker.is_worker_process = True
    await broker.startup()
    receiver = Receiver(broker, run_startup=False)
    ended = asyncio.Event()
    worker = asyncio.create_task(receiver.listen(ended))
    await asyncio.sleep(1)
    tasks = [await add.kiq(n, 1) for n in range(20)]
    results = [await task.wait_result(timeout=60) for task in tasks]
    assert [r.return_value for r in results] == [n + 1 for n in range(20)], results
    ended.set()
    await asyncio.wait_for(worker, 30)
    await broker.shutdown()
    print(f"taskiq: {name}")


async def main(url):
    await run("core", NatsBroker([url], subject="tasks-core"), url)
    await run("push", PushBasedJetStreamBroker([url], subject="tasks-push", stream_name="PUSH", durable="d1"), url)
    await run("pull", PullBasedJetStreamBroker([url], subject="tasks-pull", stream_name="PULL", durable="d2"), url)


asyncio.run(main(sys.argv[1]))

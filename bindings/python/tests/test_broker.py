"""The Python package, with nats-py and with bytes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import nats
from nats.js.errors import ServerError, ServiceUnavailableError
from nuthatch_embed import Broker, BrokerError, Code, Retention, configuration, version

HERE = Path(__file__).parent


def read_until(stream, end):
    text = b""
    while not text.endswith(end):
        more = stream.recv(4096)
        if not more:
            break
        text += more
    return text


class BrokerTest(unittest.TestCase):
    def setUp(self):
        # A server that was not ready in time ends a moment after that was said, and writes until then.
        self.directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(self.directory.cleanup)
        self.dir = Path(self.directory.name)

    def refused(self, code, **settings):
        with self.assertRaises(BrokerError) as caught:
            Broker(**settings)
        self.assertEqual(caught.exception.code, code)
        return str(caught.exception)

    def test_the_example(self):
        program = [sys.executable, HERE / "example.py", self.dir]
        self.assertEqual(subprocess.check_output(program, text=True), "log.first 1: hello\n")

    def test_settings(self):
        log_file = self.dir / 'broker "one".log'
        settings = {
            "port": -1, "store_dir": self.dir / "store", "max_file_store": 20_000_000, "max_payload": 8 << 20,
            "max_pending": 64 << 20, "initialize_timeout_s": 60, "log_file": log_file, "log_size_limit": 1 << 29,
            "log_time": False, "debug": True, "trace": True,
        }

        async def use(url):
            client = await nats.connect(url, connect_timeout=60)
            self.assertEqual(client.max_payload, 8 << 20)
            js = client.jetstream(timeout=60)
            kept = Retention(max_age_s=72 * 3600, max_msgs=2)
            info = await js.add_stream(name="P", subjects=["p.>"], **kept.stream_config())
            self.assertEqual((info.config.max_age, info.config.max_bytes), (72 * 3600, -1))
            for _ in range(3):
                await js.publish("p.x", b"x")
            self.assertEqual((await js.stream_info("P")).state.messages, 2)
            large = b"x" * 8_000_000
            await js.publish("p.x", large, timeout=60)
            await js.publish("p.x", large, timeout=60)
            with self.assertRaises((ServerError, ServiceUnavailableError)) as caught:
                await js.publish("p.x", large, timeout=60)
            self.assertEqual(caught.exception.err_code, 10023)
            await client.close()

        with Broker(**settings) as broker:
            self.assertNotIn(":4222", broker.url)
            asyncio.run(use(broker.url))
        lines = log_file.read_text().splitlines()
        self.assertTrue(all(line.startswith("[") and "] 20" not in line[:12] for line in lines), lines[:3])
        for kind in ("[INF]", "[DBG]", "[TRC]"):
            self.assertTrue(any(kind in line for line in lines), kind)

    def test_three_brokers_are_a_cluster(self):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)

        def opened(number):
            cluster = f"cluster {{ name: c, host: 127.0.0.1, port: {ports[number]}, routes: [{routes}] }}"
            extra = f"server_name: n{number}, {cluster}"
            return Broker(port=-1, store_dir=self.dir / f"n{number}", extra=extra)

        async def until(call):
            # JetStream answers when a majority is there.
            for left in range(600, -1, -1):
                try:
                    return await call()
                except nats.errors.Error:
                    if left == 0:
                        raise
                    await asyncio.sleep(0.1)

        async def publish(broker, text, creates=False):
            client = await nats.connect(broker.url, connect_timeout=60)
            js = client.jetstream(timeout=2)
            if creates:
                await until(lambda: js.add_stream(name="S", subjects=["s.>"], num_replicas=3))
            await until(lambda: js.publish("s.x", text, headers={"Nats-Msg-Id": text.decode()}))
            count = (await until(lambda: js.stream_info("S"))).state.messages
            await client.close()
            return count

        brokers = [opened(number) for number in range(3)]
        self.assertEqual(asyncio.run(publish(brokers[0], b"1", creates=True)), 1)
        brokers[0].close()
        self.assertEqual(asyncio.run(publish(brokers[1], b"2")), 2)
        brokers[0] = opened(0)
        self.assertEqual(asyncio.run(publish(brokers[0], b"3")), 3)
        for broker in brokers:
            broker.check()
            broker.close()

    def test_three_brokers_without_a_port(self):
        brokers = [Broker(store_dir=self.dir / name) for name in "abc"]
        for broker in brokers:
            self.assertIsNone(broker.url)
            with broker.connect() as stream:
                stream.sendall(b"CONNECT {}\r\nSUB x 1\r\nPUB x 5\r\nhello\r\nPING\r\n")
                self.assertIn(b"MSG x 1 5\r\nhello\r\n", read_until(stream, b"PONG\r\n"))
        closing = [threading.Thread(target=broker.close) for broker in brokers]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        for broker in brokers:
            broker.close()
            with self.assertRaises(BrokerError) as caught:
                broker.connect()
            self.assertEqual(caught.exception.code, Code.CLOSED)

    def test_errors(self):
        self.assertIn("prot", self.refused(Code.CONFIG, extra="prot: 1"))
        self.refused(Code.OPEN, store_dir="/dev/null/store")
        self.refused(Code.NOT_READY, store_dir=self.dir / "late", initialize_timeout_s=0.000001)
        self.refused(Code.CONFIG, extra="a\0b")
        with Broker(store_dir=self.dir / "store"):
            self.refused(Code.OPEN, store_dir=self.dir / "store")
        self.assertTrue(version())
        self.assertIn('store_dir: "a\\"b\\\\c"', configuration(store_dir='a"b\\c'))

    def test_a_fork_gets_an_error(self):
        with Broker(store_dir=self.dir / "store") as broker:
            child = os.fork()
            if child == 0:
                try:
                    broker.check()
                except BrokerError as error:
                    os._exit(int(error.code))
                os._exit(100)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), Code.FORKED)
            broker.check()

    def test_a_killed_host_loses_nothing_that_was_acknowledged(self):
        program = [sys.executable, HERE / "publisher.py", self.dir]
        host = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        acknowledged = [int(host.stdout.readline()) for _ in range(200)]
        host.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in host.stdout if line.endswith("\n")]
        host.stdout.close()
        host.wait()

        async def read(url):
            client = await nats.connect(url, connect_timeout=60)
            state = (await client.jetstream(timeout=60).stream_info("LOG")).state
            bodies = [(await client.jetstream(timeout=60).get_msg("LOG", seq)).data for seq in acknowledged]
            await client.close()
            return state, bodies

        with Broker(store_dir=self.dir, port=-1) as broker:
            state, bodies = asyncio.run(read(broker.url))
        self.assertGreaterEqual(state.last_seq, acknowledged[-1])
        self.assertEqual(bodies, [b"body %d" % seq for seq in acknowledged])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""A TCP proxy in a node's network namespace that is hard on connections: proxy.py '{"port": 7000, "mark": 77, ...}'.

What the node connects to is redirected here (nft), and goes on to where it was meant for. Bytes stay in order within a
connection, as TCP has them; each connection has a delay of its own, so that what is sent on one overtakes what is sent on another.
Keys: `delay_ms` of all, `apart_ms` more for each connection at most, `jitter_ms` more for each part, `bytes_per_s` (0: all),
`cut_after_s` (0: never; ends a connection somewhere in what it is sending), `seed`. At SIGTERM it says what it did, and all
connections end in what they are sending.
"""

import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import time

ORIGINAL_DST = 80
CONNECT_S = 2
PART_BYTES = 16 << 10
# Parts that wait for their time, for each direction of a connection.
PARTS = 64


class Proxy:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options["seed"])
        self.did = {"connections": 0, "bytes": 0, "cut": 0, "held_s": 0.0}
        self.tasks = set()

    async def accepted(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            await self.carry(reader, writer)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            # A reset, as a network does it.
            writer.transport.abort()
            self.tasks.discard(asyncio.current_task())

    async def carry(self, reader, writer):
        packed = writer.get_extra_info("socket").getsockopt(socket.SOL_IP, ORIGINAL_DST, 16)
        port, address = struct.unpack_from("!2xH4s", packed)
        onward = socket.socket()
        onward.setblocking(False)
        onward.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, self.options["mark"])
        loop = asyncio.get_running_loop()
        try:
            await asyncio.wait_for(loop.sock_connect(onward, (socket.inet_ntoa(address), port)), CONNECT_S)
        except BaseException:
            onward.close()
            raise
        far_reader, far_writer = await asyncio.open_connection(sock=onward)
        self.did["connections"] += 1
        own_s = (self.options["delay_ms"] + self.random.uniform(0, self.options["apart_ms"])) / 1000
        ways = [asyncio.create_task(way) for way in (
            self.one_way(reader, far_writer, own_s), self.one_way(far_reader, writer, own_s if self.options["both"] else 0))]
        life_s = self.options["cut_after_s"] and self.random.uniform(0.1, 1) * self.options["cut_after_s"]
        try:
            done, _ = await asyncio.wait(ways, timeout=life_s or None, return_when=asyncio.FIRST_COMPLETED)
            self.did["cut"] += not done
        finally:
            for way in ways:
                way.cancel()
            far_writer.transport.abort()

    async def one_way(self, reader, writer, delay_s):
        parts = asyncio.Queue(PARTS)
        sends = asyncio.create_task(self.send(parts, writer))
        try:
            while part := await reader.read(self.random.randint(1, PART_BYTES)):
                now = time.monotonic()
                await parts.put((now, now + delay_s + self.random.uniform(0, self.options["jitter_ms"]) / 1000, part))
            await parts.put((0, 0, b""))
            await sends
        finally:
            sends.cancel()

    async def send(self, parts, writer):
        rate = self.options["bytes_per_s"]
        while True:
            came, due, part = await parts.get()
            if not part:
                return
            await asyncio.sleep(max(0, due - time.monotonic()))
            for at in range(0, len(part), 1 + rate // 20 if rate else len(part)):
                piece = part[at:at + 1 + rate // 20] if rate else part
                writer.write(piece)
                await writer.drain()
                if rate:
                    await asyncio.sleep(len(piece) / rate)
            self.did["bytes"] += len(part)
            self.did["held_s"] = max(self.did["held_s"], time.monotonic() - came)


async def main():
    proxy = Proxy(json.loads(sys.argv[1]))
    # The redirect of a node's own namespace leads to the loopback.
    server = await asyncio.start_server(proxy.accepted, "127.0.0.1", proxy.options["port"])
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print("ready", flush=True)
    await over.wait()
    server.close()
    print(json.dumps(proxy.did), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())

#!/usr/bin/env python3
"""Two busy logs whose place is one node: three nodes with two logs each, and how long it takes until one of the two goes to
another node, with what clients hear of it.

    bench/balance.py [--binary target/release/nuthatch] [--seconds 400]

Prints who owns which log whenever that changes, with the publishes that were acknowledged and the errors that clients heard by
then, and in the end why logs moved, as the nodes say. Needs Python's own library only. Balance moves nothing in the
first five minutes of a node (docs/cluster.md, "Which node owns a log").
"""

import argparse
import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

CONFIG = """
server_name: n{at}
port: {client}
host: 127.0.0.1
jetstream {{ store_dir: "{directory}/n{at}", quorum {{ logs_per_node: 2 }} }}
cluster {{ listen: "127.0.0.1:{node}", routes: [ {routes} ] }}
accounts {{
  SYS {{ users: [ {{ user: sys, password: sys }} ] }}
  A {{ jetstream: enabled, users: [ {{ user: a, password: a }} ] }}
}}
system_account: SYS
no_auth_user: a
"""
# Stream, the log that it is in, the node of its client, publishes a second, bytes of each. Two of the logs have one place.
STREAMS = [("A", "default", 1, 100, 900), ("B", "default-1", 0, 10, 50_000), ("C", "default-4", 2, 10, 50_000)]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Client:
    """Asks for one answer after the other."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.file, self.asked = self.socket.makefile("rb"), 0
        self.file.readline()
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _I.* 1\r\nPING\r\n')
        while not self.file.readline().startswith(b"PONG"):
            pass

    def ask(self, subject, body):
        self.asked += 1
        inbox = b"_I.%d" % self.asked
        self.socket.sendall(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox, len(body), body))
        while line := self.file.readline():
            words = line.split()
            if words[0] == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                answer = self.file.read(int(words[-1]) + 2)[:-2]
                if words[1] == inbox:
                    return answer
        raise EOFError


def create(port, name, log):
    config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "max_bytes": 200_000_000,
              "placement": {"tags": [f"log:{log}"]}}
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = Client(port).ask(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
            if b'"error"' not in answer and b"503" not in answer:
                return
        except OSError as error:
            answer = error
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} is not created: {answer}")
        time.sleep(0.5)


def publish(port, name, rate, size, told):
    client, body, began, done = None, b"x" * size, time.monotonic(), 0
    while not told["ends"]:
        try:
            client = client or Client(port)
            answer = client.ask(f"{name}.x", body)
            if b'"seq"' in answer:
                told[name] += 1
            else:
                told["errors"].append((name, answer[:80]))
        except (OSError, EOFError) as error:
            told["errors"].append((name, repr(error)))
            client = None
        done += 1
        time.sleep(max(0, began + done / rate - time.monotonic()))


def owners(binary, port):
    command = [binary, "cluster", "logs", "-s", f"nats://sys:sys@127.0.0.1:{port}", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return {log["name"]: log["owner"] for log in json.loads(done.stdout)["logs"]} if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/nuthatch")
    parser.add_argument("--seconds", type=float, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="balance-") as directory:
        ports = free_ports(6)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[3:])
        nodes = []
        for at in range(3):
            file = pathlib.Path(directory) / f"n{at}.conf"
            file.write_text(CONFIG.format(at=at, client=ports[at], node=ports[3 + at], directory=directory, routes=routes))
            log = open(file.with_suffix(".log"), "wb")
            nodes.append(subprocess.Popen([options.binary, "serve", "-c", file], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        try:
            run(options, ports)
        finally:
            for node in nodes:
                node.terminate()
            for node in nodes:
                node.wait()
        for file in sorted(pathlib.Path(directory).glob("*.log")):
            print(*[line for line in file.read_text().splitlines() if "goes to node" in line], sep="\n")


def run(options, ports):
    for name, log, *_ in STREAMS:
        create(ports[0], name, log)
    told = {"ends": False, "errors": [], **{name: 0 for name, *_ in STREAMS}}
    threads = [threading.Thread(target=publish, args=(ports[at], name, rate, size, told)) for name, _, at, rate, size in STREAMS]
    for thread in threads:
        thread.start()
    began, known = time.monotonic(), None
    while time.monotonic() < began + options.seconds:
        now = owners(options.binary, ports[0])
        if now != known and now:
            known = now
            acked = {name: told[name] for name, *_ in STREAMS}
            print(f"{time.monotonic() - began:6.0f} s  {now}, acknowledged {acked}, {len(told['errors'])} errors", flush=True)
        time.sleep(1)
    told["ends"] = True
    for thread in threads:
        thread.join()
    print(f"{ {name: told[name] for name, *_ in STREAMS} } acknowledged, {len(told['errors'])} errors {told['errors'][:5]}")


if __name__ == "__main__":
    main()

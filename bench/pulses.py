"""Clients of all nodes of a system that publish again and again, and what becomes of each publish."""

import threading
import time

from replicated import REPO, START_S, SUBJECT, Nats

PULSE_S = 0.01


def add_options(parser):
    """The options of programs that start nodes and measure with pulses."""
    parser.add_argument("--lease", type=int, help="`lease` of the nodes in ms; else their default")
    parser.add_argument("--nuthatch", default=REPO / "target/release/nuthatch")
    parser.add_argument("--dir", default=REPO / "target", help="where the nodes store")
    parser.add_argument("--json", help="file for the results")


class Pulses:
    """A client of each node, which connects again when its connection ends, publishes every 10 ms and waits for nothing."""

    def __init__(self, system):
        # When an acknowledgement came, and to a client of which node.
        self.acks, self.ended = [], threading.Event()
        # By node: when a publish was sent that has no acknowledgement yet, or never.
        self.waiting = [{} for _ in system.ports]
        for at, port in enumerate(system.ports):
            threading.Thread(target=self.publish, args=(at, port), daemon=True).start()

    def publish(self, at, port):
        number = 0
        while not self.ended.wait(0.002):
            try:
                client = Nats(port, timeout=START_S)
            except OSError:
                continue
            threading.Thread(target=self.hear, args=(at, client), daemon=True).start()
            try:
                while not self.ended.wait(PULSE_S):
                    number += 1
                    reply = f"{client.inbox}.{number}".encode()
                    self.waiting[at][reply] = time.monotonic()
                    client.socket.sendall(b"PUB %s %s 1\r\n1\r\n" % (SUBJECT.encode(), reply))
            except OSError:
                client.close()

    def hear(self, at, client):
        try:
            while line := client.file.readline():
                words = line.split()
                if words[0] == b"PING":
                    client.socket.sendall(b"PONG\r\n")
                if words[0] in (b"MSG", b"HMSG") and b'"seq":' in client.file.read(int(words[-1]) + 2):
                    self.acks.append((time.monotonic(), at))
                    self.waiting[at].pop(words[1], None)
        except (OSError, ValueError):
            pass

    def end(self):
        """Ends all, and waits until what is under way has come."""
        self.ended.set()
        time.sleep(2)

    def lost(self, nodes, since, until):
        """When publishes were sent at these nodes between two moments that got no acknowledgement, in order."""
        sent = [when for at in nodes for when in list(self.waiting[at].values())]
        return sorted(when for when in sent if since < when < until)

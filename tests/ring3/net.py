"""Where the nodes live: a network namespace each, at one bridge, or the loopback.

In namespaces every directed link between two nodes can be cut, with nothing said to either side: the neighbour's
address on the link is replaced by one that nobody has. Loss is a rule of nft, where that is installed. All of it
belongs to the harness's own namespace and is gone when the harness is, however it ends.
"""

import os
import shutil
import socket
import subprocess

# Of the private network that the harness makes for itself; nothing outside of it can see these.
SUBNET = "10.77.0"
NOBODY = "02:00:00:00:00:fe"
CLIENT_PORT, NODE_PORT = 4222, 6222


def run(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.returncode == 0


def free_ports(count):
    bound = [socket.socket() for _ in range(count)]
    for one in bound:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in bound]
    for one in bound:
        one.close()
    return ports


class Loopback:
    """Without root: nodes can be ended and stopped, links cannot be cut."""

    has_links = has_loss = False

    def __init__(self, count):
        ports = free_ports(2 * count)
        self.client = [("127.0.0.1", port) for port in ports[:count]]
        self.node = [("127.0.0.1", port) for port in ports[count:]]

    def inside(self, _at):
        return []

    def heal(self):
        pass


class Namespaces:
    """A namespace for each node; the harness, its clients among it, sits at the bridge."""

    has_links = True

    def __init__(self, count):
        self.count, self.cut_links, self.lossy = count, set(), set()
        self.has_loss = shutil.which("nft") is not None
        address = lambda at: f"{SUBNET}.{at + 11}"
        self.client = [(address(at), CLIENT_PORT) for at in range(count)]
        self.node = [(address(at), NODE_PORT) for at in range(count)]
        os.makedirs("/run/netns", exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "ring", "type", "bridge")
        run("ip", "address", "add", f"{SUBNET}.1/24", "dev", "ring")
        run("ip", "link", "set", "ring", "up")
        for at in range(count):
            run("ip", "netns", "add", f"n{at}")
            run("ip", "link", "add", f"v{at}", "type", "veth", "peer", "name", "eth0", "netns", f"n{at}")
            run("ip", "link", "set", f"v{at}", "master", "ring", "up")
            run("ip", "-n", f"n{at}", "link", "set", "lo", "up")
            run("ip", "-n", f"n{at}", "address", "add", f"{address(at)}/24", "dev", "eth0")
            run("ip", "-n", f"n{at}", "link", "set", "eth0", "up")

    def inside(self, at):
        return ["nsenter", f"--net=/run/netns/n{at}"]

    def cut(self, links):
        """Nothing that a node sends reaches the other one, for each (sender, receiver); receiver -1: the clients."""
        for sender, receiver in links:
            to = f"{SUBNET}.1" if receiver < 0 else self.node[receiver][0]
            run("ip", "-n", f"n{sender}", "neigh", "replace", to, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
            self.cut_links.add((sender, to))

    def lose(self, at, percent):
        """A node loses so much of what it sends."""
        name = f"n{at}"
        inside = self.inside(at)
        run(*inside, "nft", "add", "table", "ip", "ring")
        run(*inside, "nft", "add", "chain", "ip", "ring", "out", "{ type filter hook output priority 0; }")
        run(*inside, "nft", "add", "rule", "ip", "ring", "out", "oifname", "eth0",
            "numgen", "random", "mod", "100", "<", str(percent), "drop")
        self.lossy.add(name)

    def heal(self):
        for sender, to in self.cut_links:
            run("ip", "-n", f"n{sender}", "neigh", "del", to, "dev", "eth0", check=False)
        for name in self.lossy:
            run("nsenter", f"--net=/run/netns/{name}", "nft", "delete", "table", "ip", "ring")
        self.cut_links, self.lossy = set(), set()

"""Where the nodes live: a network namespace each, at one bridge, or the loopback.

In namespaces every directed link between two nodes can be cut, with nothing said to either side: the neighbour's
address on the link is replaced by one that nobody has. Where nft is installed, a rule loses packets, and another one leads
what a node sends to the others through a proxy (proxy.py). All of it belongs to the harness's own namespace and is gone when
the harness is, however it ends.
"""

import ctypes
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_ports

# Of the private network that the harness makes for itself; nothing outside of it can see these.
SUBNET = "10.77.0"
NOBODY = "02:00:00:00:00:fe"
CLIENT_PORT, NODE_PORT, PROXY_PORT, ETCD_PORT = 4222, 6222, 7000, 2379
# Who is no node, as the end of a link.
CLIENTS, ETCD = -1, -2
# Of what the proxy sends itself.
PROXY_MARK = 77
PROXY = pathlib.Path(__file__).with_name("proxy.py")
PROBES = 200
PROBE_S = 0.2
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def run(*command, check=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.returncode == 0


class Loopback:
    """Without root: nodes can be ended and stopped, links cannot be cut."""

    has_links = has_loss = has_proxy = False

    def __init__(self, count):
        *ports, etcd, etcd_peers = free_ports(2 * count + 2)
        self.client = [("127.0.0.1", port) for port in ports[:count]]
        self.node = [("127.0.0.1", port) for port in ports[count:]]
        # Where an etcd listens for its clients, and for others of its kind.
        self.etcd = [("127.0.0.1", etcd), ("127.0.0.1", etcd_peers)]

    def inside(self, _at):
        return []

    def heal(self):
        return {}


class Namespaces:
    """A namespace for each node; the harness, its clients among it, sits at the bridge."""

    has_links = True

    def __init__(self, count):
        self.count, self.cut_links, self.lossy, self.proxies = count, set(), set(), {}
        self.has_loss = self.has_proxy = shutil.which("nft") is not None
        address = lambda at: f"{SUBNET}.{at + 11}"
        self.client = [(address(at), CLIENT_PORT) for at in range(count)]
        self.node = [(address(at), NODE_PORT) for at in range(count)]
        self.etcd = [(f"{SUBNET}.2", ETCD_PORT), (f"{SUBNET}.2", ETCD_PORT + 1)]
        os.makedirs("/run/netns", exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "ring", "type", "bridge")
        run("ip", "address", "add", f"{SUBNET}.1/24", "dev", "ring")
        run("ip", "address", "add", f"{SUBNET}.2/24", "dev", "ring")
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
        """Nothing that a node sends reaches the other one, for each (sender, receiver)."""
        for sender, receiver in links:
            to = self.host(receiver)
            run("ip", "-n", f"n{sender}", "neigh", "replace", to, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")
            self.cut_links.add((sender, to))

    def host(self, at):
        return {CLIENTS: f"{SUBNET}.1", ETCD: self.etcd[0][0]}[at] if at < 0 else self.node[at][0]

    def lose(self, at, percent):
        """A node loses so much of what it sends."""
        rule = f"oifname eth0 numgen random mod 100 < {percent} counter drop"
        self.nft(at, f"table ip ring {{ chain out {{ type filter hook output priority 0; {rule}; }}; }}")
        self.lossy.add(at)

    def nft(self, at, rules):
        run(*self.inside(at), "nft", rules)

    def detour(self, at, options):
        """What a node sends to the others goes through a proxy; connections that it has are reset, so that it connects anew."""
        options = json.dumps({"port": PROXY_PORT, "mark": PROXY_MARK, **options})
        proxy = subprocess.Popen([*self.inside(at), sys.executable, str(PROXY), options], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True)
        if proxy.stdout.readline() != "ready\n":
            raise SystemExit("the proxy does not begin")
        self.proxies[at] = proxy
        to_nodes = f"meta mark != {PROXY_MARK} ip daddr {SUBNET}.0/24 tcp dport {NODE_PORT}"
        self.nft(at, f"""table ip detour {{
            chain redirected {{ type nat hook output priority -100; {to_nodes} redirect to :{PROXY_PORT}; }}
            chain cut {{ type filter hook output priority 0; oifname eth0 {to_nodes} reject with tcp reset; }}
        }}""")

    def heal(self):
        """All links are as they were. Gives how many packets were lost, and what the proxies did."""
        for sender, to in self.cut_links:
            run("ip", "-n", f"n{sender}", "neigh", "del", to, "dev", "eth0", check=False)
        did = {"lost": sum(self.find(at) for at in self.lossy)}
        for at, proxy in self.proxies.items():
            run(*self.inside(at), "nft", "delete", "table", "ip", "detour", check=False)
            proxy.terminate()
            said = proxy.communicate()[0]
            for key, value in json.loads(said).items():
                did[key] = max(did.get(key, 0), value) if key == "held_s" else did.get(key, 0) + value
        self.cut_links, self.lossy, self.proxies = set(), set(), {}
        return did

    def find(self, at):
        """Ends the loss of a node; gives how many packets it was."""
        command = [*self.inside(at), "nft", "list", "table", "ip", "ring"]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        run(*self.inside(at), "nft", "delete", "table", "ip", "ring")
        return int(re.search(r"counter packets (\d+)", said).group(1))

    def prove(self):
        """Faults of links are there when they are said to be, and only then: each directed link, and loss where it can be had."""
        for sender in range(self.count):
            for receiver in [CLIENTS, ETCD, *(at for at in range(self.count) if at != sender)]:
                before, _ = self.arrive(sender, receiver), self.cut([(sender, receiver)])
                cut, _ = self.arrive(sender, receiver), self.heal()
                if before != PROBES or cut or self.arrive(sender, receiver) != PROBES:
                    raise SystemExit(f"the link from n{sender + 1} to {receiver} cannot be cut")
        if self.has_loss:
            self.lose(0, 30)
            arrived, lost = self.arrive(0, 1), self.heal()["lost"]
            if not PROBES * 0.4 < arrived < PROBES or lost < PROBES - arrived:
                raise SystemExit(f"of {PROBES} packets {arrived} arrived with a loss of 30 %, {lost} were lost")

    def arrive(self, sender, receiver):
        """How many of some datagrams arrive."""
        def socket_in(at):
            made = []

            def make():
                # A thread may go to another network; what it makes stays there.
                if at >= 0:
                    with open(f"/run/netns/n{at}") as namespace:
                        if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
                            raise OSError(ctypes.get_errno(), "setns")
                made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            thread = threading.Thread(target=make)
            thread.start()
            thread.join()
            return made[0]
        with socket_in(sender) as out, socket_in(receiver) as to:
            to.bind((self.host(receiver), 0))
            to.settimeout(PROBE_S)
            for _ in range(PROBES):
                try:
                    out.sendto(b"probe", to.getsockname())
                except PermissionError:
                    # The rule that loses it says so.
                    pass
            arrived = 0
            try:
                while arrived < PROBES:
                    to.recv(100)
                    arrived += 1
            except TimeoutError:
                pass
            return arrived

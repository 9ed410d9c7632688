"""The servers under test: three or five processes of one program that keep a quorum log."""

import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import time

from clocks import RightClocks
from disks import ForgetfulDisk, PlainDisk

# Only what hangs needs a limit.
LIMIT_S = 180
# Between looks at a disk of a node that runs.
LOOK_S = 1
# How long a command may take that only asks or begins something: a node that stands still answers nothing.
COMMAND_S = 30
# What the etcd says that takes requests.
ETCD_READY = "ready to serve client requests"
DISK = re.compile(r"(\d+) \(disk ([0-9a-f]{32})\)")


class Process:
    """A process that comes and goes."""

    process = None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Node(Process):
    def __init__(self, cluster, at, disk):
        self.cluster, self.at, self.name, self.disk = cluster, at, f"n{at + 1}", disk
        self.log = cluster.dir / f"{self.name}.log"
        self.process, self.lives = None, 1

    def command(self):
        net, (host, port) = self.cluster.net, self.cluster.net.client[self.at]
        listen = "%s:%d" % net.node[self.at]
        # Who founds the cluster is in the first list; later ones name all, since any of them may be a spare, and away.
        routes = ",".join("%s:%d" % address for address in net.node[:None if self.cluster.is_founded else self.cluster.founders])
        return [
            str(self.cluster.binary), "serve", "-a", host, "-p", str(port), "-sd", str(self.disk.store),
            "--node-name", self.name, "--cluster-listen", listen, "--routes", routes,
            # Direct gets are answered in the zone of the client, as far as the log's owner says that nothing has changed.
            "--zone", self.zone(),
            "--catalog", self.cluster.catalog, "--cluster-key", str(self.cluster.key),
            "-c", str(self.cluster.config),
            *(["--store", self.cluster.store] if self.cluster.store else []),
        ]

    def zone(self):
        return self.cluster.zones[self.at % len(self.cluster.zones)]

    def become_another(self):
        """From its next start on it is a node with a name that none has had, and nothing on its disk; gives its former name."""
        former, self.lives = self.name, self.lives + 1
        self.name = f"n{self.at + 1}-{self.lives}"
        self.disk.wipe()
        return former

    def takeovers_from_standbys(self):
        """How often it has opened a log from where it had followed it to."""
        return self.log.read_text(errors="replace").count("(followed to position ") if self.log.exists() else 0

    def start(self):
        clocks = self.cluster.clocks
        env = {**os.environ, **self.cluster.env, **clocks.env(self.at)}
        words = [*self.cluster.net.inside(self.at), *clocks.begin(self.at), *self.command()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def signal(self, number):
        self.process.send_signal(number)

    def is_stopped(self):
        """True if a SIGSTOP has arrived at all threads."""
        states = []
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            # One that has ended meanwhile stands still, too.
            with contextlib.suppress(OSError):
                states.append(thread.read_text().rpartition(")")[2].split()[0])
        return bool(states) and set(states) == {"T"}

    def end(self):
        """A clean end; a node that does not come to it is killed."""
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def has_ended(self):
        """True if it should run and does not: it ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def said(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class NatsNode(Node):
    """A nats-server as it comes, one of a cluster: what it does is reported beside ours."""

    def command(self):
        net, (host, port) = self.cluster.net, self.cluster.net.client[self.at]
        routes = ", ".join('"nats://%s:%d"' % address for address in net.node)
        config = self.cluster.dir / f"{self.name}.conf"
        config.write_text(
            f'host: "{host}"\nport: {port}\nserver_name: {self.name}\njetstream {{ store_dir: "{self.disk.store}" }}\n'
            f'cluster {{ name: RING, host: "{net.node[self.at][0]}", port: {net.node[self.at][1]}, routes: [{routes}] }}\n')
        return [str(self.cluster.binary), "-c", str(config)]


class Cluster:
    """The nodes, their disks, their network, and what they say of themselves."""

    def __init__(self, binary, directory, net, count, forgetfs=None, rule_off=None, is_nats=False, spares=0):
        self.binary, self.dir, self.net = binary, pathlib.Path(directory), net
        self.env = {"NUTHATCH_RULE_OFF": rule_off} if rule_off else {}
        self.key = self.dir / "key"
        self.key.write_text(secrets.token_hex(32))
        self.key.chmod(0o600)
        disk = lambda at: (ForgetfulDisk(self.dir, at, forgetfs) if forgetfs else PlainDisk(self.dir, at))
        self.has_forgetful_disks = forgetfs is not None
        # However small a log is here: every takeover goes on from a standby, unless there was no time for one.
        self.config = self.dir / "nodes.conf"
        # Clients say no name; who changes the nodes is a user of the system account.
        self.config.write_text("""
            jetstream { quorum { standby_above: "0s" } }
            accounts {
              SYS { users: [ { user: sys, password: sys } ] }
              CLIENTS { jetstream: enabled, users: [ { user: clients, password: clients } ] }
            }
            system_account: SYS
            no_auth_user: clients
            """)
        self.is_nats = is_nats
        # How many replicas a stream is created with.
        self.replicas = count
        # Each at its place in the network, which its number `at` says. Those that keep the logs are `nodes`; the others run
        # only while they are needed.
        self.all = [(NatsNode if is_nats else Node)(self, at, disk(at)) for at in range(count + spares)]
        self.nodes, self.spares, self.founders = self.all[:count], self.all[count:], count
        self.is_founded = False
        self.zones = ["zone-0", "zone-1", "zone-2"]
        self.etcd = None
        self.clocks = RightClocks()
        self.catalog = f"file://{self.dir}/catalog"
        # The bucket that the logs are in; none: they are on the nodes' disks.
        self.store = None
        # Nobody waits for a cluster that was found wrong.
        self.is_wrong = lambda: False

    def urls(self):
        return ["nats://%s:%d" % address for address in self.net.client]

    def start(self):
        for node in self.nodes:
            node.start()

    def stop(self):
        self.net.heal()
        for node in self.all:
            node.kill()
            node.disk.close()
        if self.etcd:
            self.etcd.kill()

    def keep(self, to):
        """Copies what the nodes said and have on their disks, after they have ended."""
        for node in self.all:
            node.kill()
            if node.disk.store.exists():
                shutil.copytree(node.disk.store, pathlib.Path(to) / f"{node.name}-disk", dirs_exist_ok=True)

    def doctor(self, node):
        """What the doctor says of a copy of a node's directory, but for the files that the journal made."""
        copy = self.dir / f"{node.name}-looked-at"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(node.disk.store, copy, ignore=shutil.ignore_patterns("files", "torn", "incoming"), ignore_dangling_symlinks=True)
        done = subprocess.run([str(self.binary), "doctor", str(copy)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        shutil.rmtree(copy, ignore_errors=True)
        return done.stdout

    def is_whole(self, node):
        try:
            return "\n  healthy" in self.doctor(node)
        except (OSError, shutil.Error):
            # It was written while it was copied.
            return False

    def wait_healed(self, node):
        """Until nothing is damaged or lacking in what a node has in its journal."""
        # Each look reads all of the journal beside the node, which has to read it, too.
        time.sleep(LOOK_S)
        self.wait(f"{node.name} is not healed", lambda: self.is_whole(node), pause_s=LOOK_S)

    def command(self, at, *words):
        """What `nuthatch cluster` says at a node, and whether it went well."""
        url = "nats://sys:sys@%s:%d" % self.net.client[at]
        try:
            done = subprocess.run([str(self.binary), "cluster", *words, "-s", url], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            return False, f"nothing was said for {COMMAND_S} s"
        return done.returncode == 0, done.stdout.strip()

    def nodes_of(self, zone):
        return [node for node in self.nodes if node.zone() == zone]

    def outlives(self, lost):
        """True if a majority is left without so many nodes."""
        return len(self.nodes) - lost > len(self.nodes) // 2

    def asked(self, at, *words):
        """What `nuthatch cluster` says at a node as JSON; nothing, if it says none."""
        is_said, text = self.command(at, *words, "--json")
        try:
            return json.loads(text) if is_said else {}
        except json.JSONDecodeError:
            return {}

    def set(self):
        """The disks that the last owner of each log said keep it, by the numbers of the log and of the node. The log in
        memory is none of them: what a process that ends had of it is another one's with every start."""
        said = [line for node in self.all for line in node.said().splitlines()]
        lines = [line for line in said if " is kept by the nodes " in line and " log memory-" not in line]
        epoch = lambda line: int(re.search(r"epoch (\d+) of", line).group(1))
        # A line begins with the number of the process and the time.
        lines.sort(key=lambda line: (epoch(line), line.split("]", 1)[1][:28]))
        log = lambda line: (re.search(r" log (\d+): epoch", line) or [None, "0"])[1]
        last = {log(line): line for line in lines}
        return {(log, node): disk for log, line in last.items() for node, disk in DISK.findall(line)}

    def wait(self, what, is_so, limit_s=LIMIT_S, pause_s=0.1):
        deadline = time.monotonic() + limit_s
        while not is_so():
            if self.is_wrong():
                raise Stuck("found while a fault was there")
            if time.monotonic() > deadline:
                raise Stuck(f"{limit_s} s later: {what}")
            time.sleep(pause_s)

    def wait_begun(self, node):
        """Until a node has begun on its disk after an image of that was taken: it has raised its boot counter."""
        at = pathlib.Path("nuthatch/quorum/identity")
        image = (node.disk.image / at).read_bytes()
        self.wait(f"{node.name} does not begin", lambda: (node.disk.store / at).read_bytes() != image)
        # The counter is in the catalog next.
        time.sleep(1)

    def wait_replaced(self, before):
        """Until one disk of this set is another one for each log, and all nodes have one in the set of each again."""
        logs = {log for log, _ in before}

        def is_replaced():
            now = self.set()
            new = [log for log, node in now if now[log, node] != before.get((log, node))]
            # Where the logs are in a bucket all may be new: what says who owns them begins anew.
            return len(now) == len(logs) * len(self.nodes) and (set(new) == logs if self.store else sorted(new) == sorted(logs))

        try:
            self.wait(f"the new disk is not taken into the set {before}", is_replaced)
        except Stuck as stuck:
            raise Stuck(f"{stuck}, it is {self.set()}") from stuck


class Etcd(Process):
    """One etcd, which has the catalog: on an ordinary disk, at an address of its own."""

    def __init__(self, program, directory, net):
        self.program, self.directory, self.addresses = program, pathlib.Path(directory), ["http://%s:%d" % address for address in net.etcd]
        self.log, self.process = self.directory / "etcd.log", None
        self.catalog = "etcd://%s:%d/nuthatch/ring" % net.etcd[0]

    def start(self):
        """Until it takes requests."""
        at, peers = self.addresses
        ready = lambda: self.log.read_text(errors="replace").count(ETCD_READY) if self.log.exists() else 0
        before, deadline = ready(), time.monotonic() + LIMIT_S
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([
                str(self.program), "--data-dir", str(self.directory / "etcd"), "--name", "e", "--listen-client-urls", at, "--advertise-client-urls", at,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"e={peers}",
            ], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while ready() == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Stuck(f"etcd does not start: {self.log.read_text(errors='replace')[-400:]}")
            time.sleep(0.02)

    def end(self):
        self.process.terminate()
        self.process.wait(LIMIT_S)


class Stuck(Exception):
    """What had to come after the faults did not."""

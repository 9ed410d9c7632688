#!/usr/bin/env python3
"""A cluster in the place of one server, for `run.sh --server-cmd`: three nodes that keep the logs, and a fourth one without
JetStream, which is the one that clients are given. The first argument is the program, the others are a server's.

Ends with SIGTERM, and when one of the nodes has ended."""

import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import ports  # noqa: E402

KEEPERS = 3
READY_WITHIN_S = 90
ENDS_WITHIN_S = 30


def value(args, flag):
    """What follows a flag."""
    return args[args.index(flag) + 1]


def node(program, args, store, name, listen, routes, extra):
    """Starts a node; its log is what this program says."""
    own = ["--node-name", name, "--cluster-listen", listen, "--routes", routes, "--console", "off"]
    command = [program, "serve", *args, *own, *extra]
    log = (store / f"{name}.log").open("w")
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def has_jetstream(program, port):
    """Whether clients can create streams there."""
    server = f"nats://store:store@127.0.0.1:{port}"
    asked = [program, "-s", server, "stream", "add", "READY", "--subjects", "READY", "--replicas", str(KEEPERS)]
    made = subprocess.run(asked, capture_output=True, timeout=READY_WITHIN_S).returncode == 0
    if made:
        removed = [program, "-s", server, "stream", "rm", "READY", "--force"]
        subprocess.run(removed, capture_output=True, timeout=READY_WITHIN_S, check=True)
    return made


def wait_ready(program, port, nodes):
    late = time.monotonic() + READY_WITHIN_S
    while not has_jetstream(program, port):
        if time.monotonic() > late or any(one.poll() is not None for one in nodes):
            raise SystemExit("the cluster was not ready in time")
        time.sleep(0.2)


def main():
    program, args = sys.argv[1], sys.argv[2:]
    store, ports_dir = (pathlib.Path(value(args, flag)) for flag in ["-sd", "--ports_file_dir"])
    config = ["-c", value(args, "-c"), "-a", "127.0.0.1"]
    free = ports.free_ports(2 * (KEEPERS + 1))
    peers, clients = free[: KEEPERS + 1], free[KEEPERS + 1 :]
    listens = [f"127.0.0.1:{port}" for port in peers]
    routes = ",".join(listens)
    nodes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for at in range(KEEPERS):
            name, port = f"n{at + 1}", str(clients[at])
            extra = ["-js", "-sd", str(store / name), "-p", port]
            nodes.append(node(program, config, store, name, listens[at], routes, extra))
        own_ports = store / "edge-ports"
        own_ports.mkdir()
        extra = ["-js=false", "-p", str(clients[KEEPERS]), "--ports_file_dir", str(own_ports)]
        nodes.append(node(program, config, store, "edge", listens[KEEPERS], routes, extra))
        wait_ready(program, clients[KEEPERS], nodes)
        for file in own_ports.iterdir():
            shutil.copy(file, ports_dir)
        while all(one.poll() is None for one in nodes):
            time.sleep(0.2)
        raise SystemExit("a node has ended")
    finally:
        for one in nodes:
            one.terminate()
        for one in nodes:
            try:
                one.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                one.kill()


if __name__ == "__main__":
    main()

"""Ports of the loopback interface for servers that tests and benchmarks start: what `crates/nuthatch-ports` does, and why
it does so, with the same locks. As a program it prints as many ports as it is told;
whoever asks then is not given others only because the blocks begin elsewhere for each process."""

import fcntl
import os
import pathlib
import socket
import sys
import tempfile

FIRST, END, LEAST, BLOCK = 12_000, 32_768, 2_048, 32
BLOCKS = []


def end():
    """The end of the ports that are given on this machine."""
    try:
        system = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return END
    return min(END, system) if system >= FIRST + LEAST else END


def take_block():
    """The ports of a block that no process holds. Its lock is held for as long as this process lives."""
    directory = pathlib.Path(tempfile.gettempdir()) / f"nuthatch-ports-{os.geteuid()}"
    directory.mkdir(exist_ok=True)
    count = (end() - FIRST) // BLOCK
    for step in range(count):
        number = (step + os.getpid()) % count
        lock = os.open(directory / str(number), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        first = FIRST + number * BLOCK
        return iter(range(first, first + BLOCK))
    raise SystemExit(f"no block of ports from {FIRST} on is free: see {directory}")


def free_port():
    while True:
        for port in BLOCKS[-1] if BLOCKS else ():
            with socket.socket() as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    found.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
        BLOCKS.append(take_block())


def free_ports(count):
    return [free_port() for _ in range(count)]


if __name__ == "__main__":
    print(*free_ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1))

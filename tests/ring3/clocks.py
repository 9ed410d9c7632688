"""Wrong clocks: boot clocks that begin elsewhere (time namespaces) and run at other rates, wall clocks that are ahead or behind.

A time namespace sets the boot clock when a process begins. The rest is done by a library that is preloaded (clocks/clocks.rs), which
looks into a file of two numbers for each node.
"""

import os
import pathlib
import random
import struct
import subprocess
import sys
import time

# Of the boot clock: the lease allows for a difference of a tenth between two nodes.
FASTER_PPM_MAX = 40_000
# Where the boot clocks of time namespaces begin, in seconds from that of the machine.
BOOTS_S = [3600, 40 * 86400, 7, 1_000_000]
BOOTTIME = 7
PROOF = f"import time; print(time.time(), time.clock_gettime({BOOTTIME})); time.sleep(0.5); print(time.time(), time.clock_gettime({BOOTTIME}))"


class RightClocks:
    """All nodes have the machine's."""

    has_clocks = False

    def env(self, _at):
        return {}

    def begin(self, _at):
        return []


class Clocks:
    has_clocks = True

    def __init__(self, directory, count, library, seed, has_namespaces):
        self.random = random.Random(f"{seed} clocks")
        self.library, self.wall_s, self.ppm = pathlib.Path(library).resolve(), [0.0] * count, [0] * count
        self.files = [pathlib.Path(directory) / f"clock{at + 1}" for at in range(count)]
        for at in range(count):
            self.write(at)
        self.boots = [self.time_namespace(number) for number in range(len(BOOTS_S))] if has_namespaces else []
        self.prove()

    def time_namespace(self, number):
        file = pathlib.Path(f"/run/netns/time{number}")
        file.touch()
        offset = str(BOOTS_S[number])
        words = ["unshare", f"--time={file}", "--boottime", offset, "--monotonic", offset, "--fork", "true"]
        subprocess.run(words, check=True)
        return file

    def write(self, at):
        # In place: servers have it mapped.
        mode = "r+b" if self.files[at].exists() else "wb"
        with open(self.files[at], mode) as file:
            file.write(struct.pack("=qq", round(self.wall_s[at] * 1e9), self.ppm[at]))

    def env(self, at):
        return {"LD_PRELOAD": str(self.library), "RING3_CLOCK": str(self.files[at])}

    def begin(self, at):
        """A process begins: its boot clock runs at another rate than before. Gives words to put before its command."""
        self.ppm[at] = self.random.randint(-FASTER_PPM_MAX, FASTER_PPM_MAX)
        self.write(at)
        return ["nsenter", f"--time={self.random.choice(self.boots)}"] if self.boots else []

    def set_wall(self, at, ahead_s):
        """The wall clock jumps, also that of a process that runs."""
        self.wall_s[at] = ahead_s
        self.write(at)

    def prove(self):
        """Clocks are as wrong as they are said to be; what does not show here would not show in a server either."""
        self.wall_s[0], self.ppm[0] = 1e6, 100_000
        self.write(0)
        for boot, offset in zip(self.boots or [None], BOOTS_S):
            words = [] if boot is None else ["nsenter", f"--time={boot}"]
            words += [sys.executable, "-c", PROOF]
            offset = 0 if boot is None else offset
            said = subprocess.run(words, env={**os.environ, **self.env(0)}, check=True, stdout=subprocess.PIPE, text=True).stdout
            (wall, begin), (_, end) = (map(float, line.split()) for line in said.splitlines())
            is_so = [abs(wall - time.time() - 1e6) < 60, abs(begin - time.clock_gettime(BOOTTIME) - offset) < 60, 0.53 < end - begin]
            if not all(is_so):
                raise SystemExit(f"clocks cannot be made wrong here: {said}")
        self.wall_s[0], self.ppm[0] = 0.0, 0
        self.write(0)

    def is_wrong_in(self, process):
        """True if a server has the library: it would go by right clocks otherwise."""
        return str(self.library) in pathlib.Path(f"/proc/{process.pid}/maps").read_text()

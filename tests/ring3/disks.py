"""The disks of the nodes: directories, or file systems that forget what was not synced (forgetfs)."""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import time

MOUNT_S = 20
FLIPS_MAX = 3
# Around a place that is not padding.
NEAR = 16


def flip(files, seed):
    """Bits of what is written in files flip, one at each of up to three places. Gives the places."""
    draw, places = random.Random(seed), []
    contents = {file: file.read_bytes() for file in files}
    ends = {file: len(content.rstrip(b"\0")) for file, content in contents.items()}
    files = sorted(file for file in contents if ends[file] > NEAR)
    while files and len(places) < 1 + seed % FLIPS_MAX:
        file = draw.choices(files, [ends[one] for one in files])[0]
        at = draw.randrange(ends[file])
        if not contents[file][max(0, at - NEAR):at + NEAR].strip(b"\0"):
            continue
        # Without truncating or creating anything: the server may have it open.
        with open(file, "r+b", buffering=0) as opened:
            byte = os.pread(opened.fileno(), 1, at)[0]
            os.pwrite(opened.fileno(), bytes([byte ^ 1 << draw.randrange(8)]), at)
        places.append(f"{file.name}:{at}")
    return places


class PlainDisk:
    """A directory. What a process wrote stays when it is killed."""

    def __init__(self, directory, at):
        self.root = pathlib.Path(directory) / f"disk{at + 1}"
        self.root.mkdir()
        self.store, self.image = self.root / "store", pathlib.Path(directory) / f"image{at + 1}"

    def wipe(self):
        shutil.rmtree(self.store)
        self.settle()

    def take_image(self):
        shutil.rmtree(self.image, ignore_errors=True)
        shutil.copytree(self.store, self.image)

    def restore_image(self):
        shutil.rmtree(self.store)
        shutil.copytree(self.image, self.store)
        self.settle()

    def forget_catalog(self):
        """The node's part of a catalog that the nodes keep is moved away."""
        shutil.move(self.store / "nuthatch/quorum/catalog", self.root / "catalog-away")
        shutil.rmtree(self.root / "catalog-away")
        self.settle()

    def rot(self, seed, what="ops/*"):
        """Bits of the node's journal flip, or of other files, on the medium too. Gives the places."""
        places = flip([file for file in (self.store / "nuthatch/quorum").glob(what) if file.is_file()], seed)
        self.settle()
        return places

    def settle(self):
        """What somebody else than the node has done is durable."""

    def close(self):
        pass


class ForgetfulDisk(PlainDisk):
    """A file system of its own, in the memory of a process; commands go through a socket."""

    def __init__(self, directory, at, program):
        super().__init__(directory, at)
        control = pathlib.Path(directory) / f"disk{at + 1}.control"
        self.process = subprocess.Popen(
            [program, str(self.root), str(control)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + MOUNT_S
        self.control = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.control.connect(str(control))
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("forgetfs does not mount") from None
                time.sleep(0.02)
        self.answers = self.control.makefile("r")

    def tell(self, command):
        self.control.sendall(command.encode() + b"\n")
        answer = self.answers.readline().strip()
        if not answer.startswith("ok"):
            raise SystemExit(f"forgetfs: {command}: {answer}")
        return answer

    def die(self):
        """The power goes: nothing is durable that is not now."""
        self.tell("die")

    def restore_power(self, seed, keep_percent):
        """After the node has ended: what was not synced is gone, but for a part of it. Gives how many sectors and names are."""
        return int(self.tell(f"cut {seed} {keep_percent}").split()[1])

    def disturbed(self):
        """How many syncs were slow or failed, and calls were refused, since this was asked last."""
        return int(self.tell("count").split()[1])

    def slow(self, ms):
        self.tell(f"slow {ms}")

    def fail_syncs(self, count):
        self.tell(f"fail {count}")

    def fill(self, is_full):
        self.tell(f"full {int(is_full)}")

    def settle(self):
        self.tell("settle")

    def close(self):
        self.control.close()
        subprocess.run(["umount", "-l", str(self.root)], check=False, stderr=subprocess.DEVNULL)
        self.process.kill()
        self.process.wait()

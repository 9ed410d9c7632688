#!/usr/bin/env bash
# Mounts a forgetfs, and cuts its power: check.sh PROGRAM. Needs root and /dev/fuse; all of it in a namespace of its own.
set -euo pipefail
if [ -z "${FORGETFS_CHECK-}" ]; then
  FORGETFS_CHECK=1 exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
dir=$(mktemp -d)
trap 'umount -l "$dir/disk" 2>/dev/null || true; rm -rf "$dir"' EXIT
mkdir "$dir/disk"
"$1" "$dir/disk" "$dir/control" &
python3 - "$dir" <<'PYTHON'
import os, socket, sys, time
root, control = sys.argv[1] + "/disk", socket.socket(socket.AF_UNIX)
deadline = time.monotonic() + 60
while control.connect_ex(sys.argv[1] + "/control"):
    assert time.monotonic() < deadline, "it does not mount"
    time.sleep(0.02)
answers = control.makefile("r")


def tell(*commands):
    for command in commands:
        control.sendall(command.encode() + b"\n")
        answer = answers.readline()
        assert answer.startswith("ok"), (command, answer)
    return answer


def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def content(name):
    try:
        with open(f"{root}/{name}") as file:
            return file.read()
    except FileNotFoundError:
        return None


for name in ("synced", "renamed", "named"):
    with open(f"{root}/{name}", "w") as file:
        file.write("old")
        file.flush()
        if name != "named":
            os.fsync(file.fileno())
sync(root)
with open(f"{root}/synced", "a") as file:
    file.write(" and more")
os.mkdir(f"{root}/directory")
os.rename(f"{root}/renamed", f"{root}/new name")
assert content("synced") == "old and more" and content("new name") == "old"
assert tell("die", "cut 1 0") != "ok 0\n"
assert sorted(os.listdir(root)) == ["named", "renamed", "synced"], os.listdir(root)
assert (content("synced"), content("renamed"), content("named")) == ("old", "old", "")
tell("fail 1")
try:
    sync(f"{root}/synced")
    raise AssertionError("a sync that fails")
except OSError:
    pass
tell("full 1")
try:
    open(f"{root}/other", "w")
    raise AssertionError("there is no room")
except OSError:
    pass
tell("full 0")
assert tell("count") == "ok 2\n"
# While the power is away nothing becomes durable.
with open(f"{root}/synced", "a") as file:
    file.write(" and more")
    file.flush()
    tell("die")
    try:
        os.fsync(file.fileno())
        raise AssertionError("a sync without power")
    except OSError:
        pass
tell("cut 1 0")
assert content("synced") == "old"
PYTHON

#!/usr/bin/env python3
"""Puts a measured table into a page: `… | bench/into_page.py PAGE NAME [WORDS]`

What stands in the page between `<!-- NAME -->` and `<!-- /NAME -->` is replaced by the standard input and a line that says when,
on what machine and with what it was measured.
"""

import datetime
import os
import pathlib
import platform
import subprocess
import sys


def machine():
    """Day, cores, memory and the commit: what figures are read with."""
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    root = pathlib.Path(__file__).resolve().parent.parent
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    day = datetime.date.today().isoformat()
    return f"{day}, {os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, Linux {platform.release()}, Nuthatch {commit or 'of no commit'}"


def replaced(page, name, text):
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise SystemExit(f"the page has not one {begin.strip()} and one {end.strip()} behind it")
    head, rest = page.split(begin)
    return head + begin + "\n" + text.strip() + "\n\n" + end + rest.split(end)[1]


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    path, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    words = f" `{sys.argv[3]}`." if len(sys.argv) == 4 else ""
    text = sys.stdin.read().strip()
    if not text:
        raise SystemExit("there is no table to put into the page")
    path.write_text(replaced(path.read_text(), name, f"{text}\n\nMeasured {machine()}.{words}"))


if __name__ == "__main__":
    main()

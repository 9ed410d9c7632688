#!/usr/bin/env python3
"""Look-ups in JSON by a text, where a type could be: `tests/lookups.py [--files] [DIRECTORY]`

Counts `value["name"]`, `.get("name")` and `.pointer("…")` in `crates/*/src` without tests, in files that name
`serde_json`. Not every one has a type to use: docs/client.md says which do not, and why.
"""

import collections
import pathlib
import re
import sys

from shape import sources, without_tests

LOOKUP = re.compile(r'(?<=[\w)\]?])\["[^"\]]*"\]|\.(?:get|get_mut|pointer|remove)\("')
# What has types in `nuthatch-protocol::js`, by the folders of the command line.
GROUPS = [
    ("the client", r"nuthatch-client/"),
    ("command line: streams, consumers, buckets, objects, imports, accounts",
     r"nuthatch/src/(stream|consumer|kv|object|follow|session|account|message|core|input)[./]"),
    ("command line: what monitoring tells (varz, connz, jsz, …)", r"nuthatch/src/(server|top|log|events|doctor)[./]"),
    ("command line: the rest", r"nuthatch/src/"),
    ("workbench", r"nuthatch-bench/"),
    ("console", r"nuthatch-console/"),
    ("server and JetStream service", r"nuthatch-(server|jetstream)/"),
    ("elsewhere", r""),
]


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--files"]
    root = pathlib.Path(args[0]) if args else pathlib.Path(__file__).resolve().parent.parent
    groups, files = collections.Counter(), collections.Counter()
    for path in sources(root):
        text = path.read_text()
        # Options of a configuration file have trees of their own kind.
        if "serde_json" not in text or "/options/" in str(path):
            continue
        count = sum(len(LOOKUP.findall(line)) for line in without_tests(text.splitlines())
                    if not line.strip().startswith("//"))
        name = str(path.relative_to(root / "crates"))
        groups[next(title for title, pattern in GROUPS if re.match(pattern, name))] += count
        files[name] = count
    if "--files" in sys.argv:
        for name, count in files.most_common():
            if count:
                print(f"{count:5} {name}")
    for title, _ in GROUPS:
        print(f"{groups[title]:5} {title}")
    print(f"{sum(groups.values()):5} in all")


if __name__ == "__main__":
    main()

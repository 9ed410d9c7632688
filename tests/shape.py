#!/usr/bin/env python3
"""The shape of the source in numbers: the table of CONTRIBUTING.md. `tests/shape.py [DIRECTORY]`

Counts `crates/*/src` without tests and `nuthatch-sim`. Braces are counted, nothing is parsed: a brace in a text makes
a function look longer than it is (`--long` names those above 70 lines; clippy's `too_many_lines` is what holds).
"""

import pathlib
import re
import sys

FUNCTION = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?(?:extern\s+\"[^\"]*\"\s+)?fn\s+(\w+)")
IMPL = re.compile(r"^impl(?:<[^>]*>)?\s+(?:\w+::)*(\w+)")
TYPES = ["Engine", "Stream", "JetStream", "Consumer"]
LONG = 70


def end_of(lines, start):
    """The line where the braces that open at or behind `start` are closed; None: a declaration without a body."""
    depth, opened = 0, False
    for at in range(start, len(lines)):
        line = lines[at]
        if not opened and line.rstrip().endswith(";") and "{" not in line:
            return None
        depth += line.count("{") - line.count("}")
        opened = opened or "{" in line
        if opened and depth <= 0:
            return at
    return None


def without_tests(lines):
    kept, at = [], 0
    while at < len(lines):
        if lines[at].strip().startswith(("#[cfg(test)]", "#[cfg(all(test")):
            at += 1
            while lines[at].strip().startswith("#["):
                at += 1
            end = end_of(lines, at)
            at = (at if end is None else end) + 1
            continue
        kept.append(lines[at])
        at += 1
    return kept


def sources(root):
    for path in sorted(root.glob("crates/*/src/**/*.rs")):
        name = str(path.relative_to(root))
        is_test = "/tests/" in name or name.endswith("/tests.rs") or path.name.startswith("test_")
        if not is_test and "nuthatch-sim" not in name:
            yield path


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--long"]
    root = pathlib.Path(args[0]) if args else pathlib.Path(__file__).resolve().parent.parent
    lengths, methods, files, longest = [], {}, 0, 0
    for path in sources(root):
        lines = path.read_text().splitlines()
        files, longest = files + 1, max(longest, len(lines))
        lines, of = without_tests(lines), None
        for at, line in enumerate(lines):
            found = IMPL.match(line)
            if found:
                of = None if " for " in line else found.group(1)
            elif line.startswith("}"):
                of = None
            found = FUNCTION.match(line)
            end = end_of(lines, at) if found else None
            if end is None:
                continue
            lengths.append(end - at + 1)
            # The client library has a `JetStream` of its own.
            if of in TYPES and "nuthatch-client" not in path.parts:
                methods.setdefault(of, []).append(path)
            if "--long" in sys.argv and lengths[-1] > LONG:
                print(lengths[-1], path.relative_to(root), found.group(1))
    lengths.sort()
    part = lambda share: lengths[int(len(lengths) * share)]
    print(f"functions: {len(lengths)}; lines p50 / p90 / p99: {part(.5)} / {part(.9)} / {part(.99)}")
    print(f"files: {files}; lines of the longest: {longest}")
    for name in TYPES:
        where = methods.get(name, [])
        print(f"methods of {name}: {len(where)} in {len(set(where))} files")


if __name__ == "__main__":
    main()

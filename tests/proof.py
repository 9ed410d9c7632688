#!/usr/bin/env python3
"""Long campaigns behind one command, each on fresh seeds: `just proof --minutes N`.

The parts share the time. A round of a part is a run of its suites with seeds that no line of
docs/proof-ledger.md names yet; a line for each part is appended there. A seed that fails is written to
tests/kept-seeds, which the ordinary tests replay. Exits with 1 when anything failed.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent
LEDGER = REPO / "docs/proof-ledger.md"
KEPT = REPO / "tests/kept-seeds"
PROFILE = os.environ.get("NUTHATCH_PROFILE", "ci")
# What a round's seeds are moved by: more than any suite has seeds, and more than its highest own seed.
STRIDE = 10_000
FIRST = 1_000_000
# A round that takes longer than its part's share and this hangs.
HANG_S = 1800


# What release artefacts have, and CI builds its tests with.
RELEASED = "nuthatch/otlp,nuthatch/etcd"
# The last commit that speaks protocol 5 of the nodes: the older program of rolling upgrades.
OLD_COMMIT = "2fbae7167831"


class Part:
    def __init__(self, name, suites, tests=(), env=None, features=None, command=None, ignored=False):
        self.name, self.suites, self.tests, self.features = name, suites, list(tests), features
        # True: tests run that the ordinary command ignores, too, but for measurements.
        self.ignored = ignored
        # What is run instead of suites, given the seed of a round and the seconds of its part.
        self.command = command
        # Variables of a round, given its first seed and the seconds of its part.
        self.env = env or (lambda seed, seconds: {})


def kill(rounds, beside=None):
    def env(_seed, _seconds):
        beside_env = {"NUTHATCH_KILL_BESIDE": beside} if beside else {}
        return {"NUTHATCH_KILL_ROUNDS": rounds, **beside_env}
    return env


def differential(seed, _seconds):
    return {"NUTHATCH_DIFF_SEEDS": ",".join(str(seed + n) for n in range(8))}


def ring3(seed, seconds):
    """Ten minutes of faults at most; in every third round five nodes."""
    nodes = 5 if seed // STRIDE % 3 == 2 else 3
    return ["tests/ring3/run.sh", "--seed", seed, "--seconds", int(max(30, min(seconds, 600))), "--nodes", nodes]


def upgrade(_seed, _seconds):
    return {"NUTHATCH_OLD_BINARY": old_program()}


KILL9 = [("nuthatch", "kill9")]
CLUSTER_SUITES = [("nuthatch", suite) for suite in (
    "cluster_members", "cluster_upgrade", "cluster_zones", "quorum_etcd", "quorum_handover", "quorum_replace")]
MOVES = ["acknowledged_messages_survive_kill_9_in_the_middle_of_moves"]
PARTS = [
    Part("kill", KILL9, ["acknowledged_messages_survive_kill_9"], kill(10)),
    Part("kill-bucket", KILL9, ["acknowledged_messages_in_a_bucket_survive_kill_9_and_the_machine"], kill(10)),
    Part("kill-moves", KILL9, MOVES, kill(10, "moves")),
    Part("kill-tier-moves", KILL9, MOVES, kill(10, "tier-moves")),
    Part("kill-apart", [("nuthatch", "cluster_grown")],
         ["a_stream_that_moves_while_nodes_are_killed_is_in_one_log_with_everything"], kill(10)),
    Part("log", [("nuthatch-log", suite) for suite in ("power_cut", "places", "faults")]),
    Part("object", [("nuthatch-object", suite) for suite in ("store_faults", "tier_faults", "two_owners", "ahead")]),
    Part("streams", [("nuthatch-streams", suite) for suite in ("power_cut", "histories", "moving")]),
    Part("quorum", [("nuthatch-sim", suite) for suite in ("schedules", "mistakes")],
         env=lambda *_: {"NUTHATCH_SIM_SCHEDULES": STRIDE}),
    Part("node", [("nuthatch-sim", "nodes")], env=lambda *_: {"NUTHATCH_SIM_NODES": 300}),
    Part("control", [("nuthatch-sim", "control")], env=lambda *_: {"NUTHATCH_SIM_SCHEDULES": STRIDE}),
    Part("group", [("nuthatch-sim", "group")], env=lambda *_: {"NUTHATCH_SIM_SCHEDULES": STRIDE // 10}),
    Part("keeper", [("nuthatch-sim", "keeper")], env=lambda *_: {"NUTHATCH_SIM_SCHEDULES": STRIDE // 20}),
    Part("cluster-suites", CLUSTER_SUITES, features=RELEASED, ignored=True),
    Part("upgrade", [("nuthatch", "cluster_upgrade")], env=upgrade, features=RELEASED, ignored=True),
    Part("ring3", [], command=ring3),
    Part("milvus", [], command=lambda *_: ["tests/milvus/run.sh"]),
    Part("peers", [], command=lambda *_: ["bench/peers/build.sh"]),
    Part("clients-cluster", [], command=lambda *_: ["tests/clients/cluster/run.sh"]),
    Part("plugins", [], command=lambda *_: ["tests/plugins/run.sh"]),
    Part("doctor", [("nuthatch-streams", "doctor")]),
    Part("proxy", [("nuthatch-object", "proxy")]),
    Part("fuzz", [("nuthatch", "fuzz_corpus")],
         env=lambda seed, _: {"NUTHATCH_FUZZ_SEED": seed, "NUTHATCH_FUZZ_SECONDS": 2}),
    Part("differential", [("nuthatch", "differential")], env=differential),
    Part("hostile", [("nuthatch", "hostile")]),
    Part("soak", [("nuthatch", "soak")], env=lambda _, seconds: {"NUTHATCH_SOAK_SECONDS": int(max(20, seconds))}),
    *(Part(f"mutations-{crate}", [(f"nuthatch-{crate}", "mutations")], ["every_rule_is_found"], features="mutations")
      for crate in ("log", "object", "streams")),
    *(Part(f"mutations-{name}", [("nuthatch-sim", suite)], tests, features="mutations")
      for name, suite, tests in (("quorum", "mutations", ["every_rule_is_found"]), ("mistakes", "mistakes", []),
                                 ("group", "group_mutations", ["every_rule_is_found"]), ("planted", "planted", []))),
]


def main():
    options = arguments()
    parts = [part for part in PARTS if not options.part or part.name in options.part]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if any(part.name == "differential" for part in parts):
        subprocess.run(["./tests/peers.sh"], cwd=REPO, check=True)
    if any(part.features == RELEASED for part in parts):
        subprocess.run(["./tests/etcd.sh"], cwd=REPO, check=True)
    if any(part.name == "upgrade" for part in parts) and not build_old():
        parts = [part for part in parts if part.name != "upgrade"]
    programs = build(parts)
    failed = False
    began = time.monotonic()
    for index, part in enumerate(parts):
        left = options.minutes * 60 - (time.monotonic() - began)
        failed |= play(part, programs, max(0, left) / (len(parts) - index))
    return 1 if failed else 0


def arguments():
    parser = argparse.ArgumentParser(prog="just proof", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="all parts together, after the build (default 60)")
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="may be repeated")
    return parser.parse_args()


def stop(_number, _frame):
    raise SystemExit(130)


def build(parts):
    """Paths of the test programs, by features, package and suite. What CI builds is not built again."""
    found = {}
    plain = sorted({suite for part in parts if part.features is None for _, suite in part.suites})
    if plain:
        # Of the whole workspace, so that dependencies have the features that CI builds them with.
        found.update(build_with(None, ["--workspace", *(word for suite in plain for word in ("--test", suite))]))
    if any(part.command for part in parts):
        # The server itself.
        subprocess.run(["cargo", "build", "--locked", "--profile", PROFILE, "--workspace"], cwd=REPO, check=True)
    # Of one package at a time, with all its suites: what it depends on is built once.
    for features, package in sorted({(part.features, part.suites[0][0]) for part in parts if part.features}):
        suites = sorted({suite for part in parts if part.features == features
                         for crate, suite in part.suites if crate == package})
        of = ["--workspace"] if features == RELEASED else ["-p", package]
        words = [*of, "--features", features, *(word for suite in suites for word in ("--test", suite))]
        found.update(build_with(features, words))
    return found


def old_program():
    return REPO / "target/proof" / OLD_COMMIT / "target" / PROFILE / "nuthatch"


def build_old():
    """Builds the program of an older commit, unless it is there; false: this clone does not have the commit."""
    known = ["git", "cat-file", "-e", f"{OLD_COMMIT}^{{commit}}"]
    if subprocess.run(known, cwd=REPO, stderr=subprocess.DEVNULL).returncode:
        print(f"== upgrade: SKIPPED: this clone has no commit {OLD_COMMIT} to build the older program of; "
              "`git fetch --unshallow` brings it", flush=True)
        return False
    if old_program().exists():
        return True
    source = REPO / "target/proof" / OLD_COMMIT / "source"
    source.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(["git", "archive", OLD_COMMIT], cwd=REPO, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    env = {**os.environ, "CARGO_TARGET_DIR": str(source.parent / "target")}
    command = ["cargo", "build", "--locked", "--profile", PROFILE, "-p", "nuthatch", "--features", "otlp,etcd"]
    subprocess.run(command, cwd=source, env=env, check=True)
    return True


def build_with(features, words):
    command = ["cargo", "test", "--locked", "--no-run", "--profile", PROFILE, "--message-format=json", *words]
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("the tests cannot be built")
    found = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and "test" in message["target"]["kind"]:
            manifest = pathlib.Path(message["manifest_path"])
            found[features, manifest.parent.name, message["target"]["name"]] = message["executable"]
    return found


def play(part, programs, seconds):
    """Rounds of one part until its time is over, one at least; writes the ledger's line."""
    first = seed = next_seed(part)
    rounds, findings = 0, []
    began, cpu = time.monotonic(), cpu_seconds()
    print(f"== {part.name}: {seconds:.0f} s from seed {seed}", flush=True)
    while rounds == 0 or (time.monotonic() - began < seconds and not findings):
        for package, suite in part.suites:
            findings += run(part, programs[part.features, package, suite], package, suite, seed, seconds)
        if part.command:
            findings += run_command(part, seed, seconds)
        rounds += 1
        seed += STRIDE
    for finding in findings:
        keep(*finding)
    note(part, first, seed, rounds, (cpu_seconds() - cpu) / 3600, findings)
    return bool(findings)


def run(part, program, package, suite, seed, seconds):
    """Runs one suite; returns what failed: package, suite, test, seed or None."""
    env = {**os.environ, "NUTHATCH_SEEDS_FROM": seed, **part.env(seed, seconds)}
    env = {name: str(value) for name, value in env.items()}
    # Output is shown by test, so that a seed has the name of its test.
    command = [program, "--show-output", "--test-threads", "2"]
    command += ["--include-ignored", "--skip", "how_long_"] if part.ignored else []
    command += ["--exact", *part.tests] if part.tests else []
    child = subprocess.Popen(command, cwd=REPO / "crates" / package, env=env, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        text, _ = child.communicate(timeout=seconds + HANG_S)
    except subprocess.TimeoutExpired:
        return [(package, suite, "hangs", None)]
    finally:
        end_session(child)
    for line in text.splitlines():
        if re.search(r"rounds, \d+ acknowledged|^killed with|NOT FOUND", line):
            print(f"   {line}", flush=True)
    if child.returncode == 0:
        return []
    print(text, flush=True)
    found = [(test, None) for test in not_found(text)] if part.features == "mutations" else failures(text)
    return [(package, suite, test, seed) for test, seed in found] or [(package, suite, "ended", None)]


def run_command(part, seed, seconds):
    """Runs what is no suite; a finding has the seed of the round."""
    command = [str(word) for word in part.command(seed, seconds)]
    child = subprocess.Popen(command, cwd=REPO, start_new_session=True)
    try:
        failed = child.wait(seconds + HANG_S) != 0
    except subprocess.TimeoutExpired:
        failed = True
    finally:
        end_session(child)
    return [(part.name, part.name, "faults", seed)] if failed else []


def end_session(child):
    """Servers that a failed test has left go too."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def failures(text):
    """Each failed test, and the first seed that it names."""
    seeds = ((test, re.search(r"\bseed (\d+)", block)) for test, block in blocks_of_failed(text))
    return [(test, int(seed.group(1)) if seed else None) for test, seed in seeds]


def blocks_of_failed(text):
    """Each failed test, and what it printed."""
    blocks = re.split(r"^---- (\S+) stdout ----$", text, flags=re.M)
    failed = set(re.findall(r"^test (\S+) \.\.\. FAILED$", text, flags=re.M))
    printed = {}
    for name, block in zip(blocks[1::2], blocks[2::2]):
        printed.setdefault(name, block)
    return [(name.rsplit("::", 1)[-1], printed.get(name, "")) for name in sorted(failed)]


def not_found(text):
    """Each failed test of rules that were turned off, and those that it did not find."""
    told = []
    for test, block in blocks_of_failed(text):
        rules = re.search(r"not found: \[(.*?)\]", block)
        told.append(f"{test} without {rules.group(1).replace(chr(34), '')}" if rules else test)
    return told


def keep(package, suite, test, seed):
    """A line for the ordinary tests to replay; rules that are off, real processes and suites without seeds have none."""
    print(f"FOUND: {package} {suite} {test} seed {seed}", flush=True)
    if seed is None or suite in ("ring3", "milvus", "plugins", "clients-cluster"):
        return
    with open(KEPT / f"{package}-{suite}.txt", "a", encoding="utf-8") as file:
        file.write(f"{test} {seed} # {today()}, {commit()}\n")


def next_seed(part):
    """The end of the highest range that the ledger has for this part."""
    lines = LEDGER.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    ends = [int(row[4].split("..")[1]) for row in cells if len(row) > 4 and row[3] == part.name]
    return max(ends, default=FIRST)


def note(part, first, end, rounds, cpu_hours, findings):
    told = "; ".join(f"{suite} {test}" + (f" seed {seed}" if seed else "") for _, suite, test, seed in findings)
    line = f"| {today()} | {commit()} | {part.name} | {first}..{end} | {rounds} | {cpu_hours:.3f} | {told or 'none'} |"
    with open(LEDGER, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def commit():
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=REPO, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() or "unknown"


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())

"""The parts of run.sh that look at what a Prometheus, a server and the files say: check.py REPOSITORY STAGE ARGUMENTS…"""

import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

TIMEOUT_S = 90
# What Grafana would fill in; the server's address comes with the call.
VARIABLES = {"__rate_interval": "10s", "account": ".*", "stream": ".*", "consumer": ".*", "log": ".*"}

# Alerts about the servers of run.sh; troubles.py has the others.
TROUBLES = [
    ("NuthatchDown", "nobody"),
    ("NuthatchLogStopped", "troubled"),
    ("NuthatchDurabilityLowered", "troubled"),
    ("NuthatchTierFailing", "troubled"),
    ("NuthatchConsumerLag", "troubled"),
    ("NuthatchConsumerStopped", "troubled"),
    ("NuthatchDiskFull", "full"),
]

# What only a mistake of the server's own could cause: a log that does not give what its stream holds, and is not damaged.
NOT_MADE = {"NuthatchMissingMessages"}

# What takes changes of the nodes, days, broken disks or copies. Unit tests of the rules fire all of them, and nodes that are
# drained, changed or lost, and a catalog that is away, have their numbers in crates/nuthatch/tests/cluster_metrics.rs.
NOT_MADE |= {
    "NuthatchCatalogWentBack",
    "NuthatchChangeStandsStill",
    "NuthatchClockDiffers",
    "NuthatchDrainStandsStill",
    "NuthatchLogElsewhere",
    "NuthatchLogUnopened",
    "NuthatchMemoryLogLost",
    "NuthatchNodeDrained",
    "NuthatchNodeTurnedAway",
    "NuthatchNotFinalized",
    "NuthatchReplicaDisk",
    "NuthatchReplicaNotCounted",
    "NuthatchReplicaUnusable",
    "NuthatchStandbyDropped",
    "NuthatchTakeovers",
}

repo = pathlib.Path(sys.argv[1])


def fail(what):
    sys.exit(f"check.py: {what}")


def get(url, accept="*/*", encoding="identity"):
    headers = {"Accept": accept, "Accept-Encoding": encoding}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        body = answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            assert encoding == "gzip", "compressed, and nobody asked"
            body = gzip.decompress(body)
        else:
            assert encoding == "identity", "not compressed"
        return answer.headers["Content-Type"], body.decode()


def api(prometheus, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    try:
        _, text = get(f"http://{prometheus}/api/v1/{path}?{query}")
    except urllib.error.HTTPError as error:
        fail(f"{path} {parameters}: {error.read().decode()}")
    return json.loads(text)["data"]


def values(prometheus, expression):
    """Values of an instant query that are numbers; it must parse."""
    result = api(prometheus, "query", query=expression)
    samples = [result["result"]] if result["resultType"] == "scalar" else [s["value"] for s in result["result"]]
    return [value for value in (float(text) for _, text in samples) if math.isfinite(value)]


def wait_until_empty(missing, what):
    """Calls until there is nothing missing."""
    deadline = time.monotonic() + TIMEOUT_S
    while left := missing():
        if time.monotonic() > deadline:
            fail(f"{what}:\n  " + "\n  ".join(map(str, left)))
        time.sleep(0.5)


def dashboards():
    found = sorted((repo / "packaging/grafana").glob("*.json"))
    return [(path.name, json.loads(path.read_text())) for path in found]


def expressions(board, instance):
    """Title and expression of each target of each panel, variables filled in."""
    known = VARIABLES | {"instance": re.escape(instance)}

    def fill(match):
        return known.get(match[1]) or fail(f"unknown variable {match[0]}")

    for panel in board["panels"]:
        for target in panel.get("targets", []):
            # A backslash within a string of an expression is written twice.
            yield panel["title"], re.sub(r"\$(\w+)", lambda m: fill(m).replace("\\", "\\\\"), target["expr"])


def check_board(name, board):
    """What Grafana needs, and the habits of these files."""
    for key in ("uid", "title", "schemaVersion", "panels"):
        assert board.get(key), f"{name} has no {key}"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus", name
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    identities = [panel["id"] for panel in board["panels"]]
    assert len(identities) == len(set(identities)), f"{name}: two panels have one id"
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in board["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, f"{name}: panels overlap"
    for panel in panels:
        assert panel["targets"], f"{name}, {panel['title']}: shows nothing"
        for place in (panel, *panel["targets"]):
            assert place["datasource"] == source, f"{name}, {panel['title']}: another data source"
    used = {used for panel in panels for target in panel["targets"] for used in re.findall(r"\$(\w+)", target["expr"])}
    assert used <= variables.keys() | {"__rate_interval"}, f"{name} uses {used - variables.keys()}"


def check_files():
    """Dashboards, and that documents, rules, their unit tests and the troubles name the same alerts."""
    boards = dashboards()
    assert len({board["uid"] for _, board in boards}) == len(boards) >= 3
    for name, board in boards:
        check_board(name, board)
    rules = (repo / "packaging/prometheus/rules.yml").read_text()
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    assert len(alerts) > 10, alerts
    tests = (repo / "tests/monitoring/rules.test.yml").read_text()
    cases = re.findall(r"alertname: (\w+)\n +exp_alerts:( \[\])?", tests)
    assert len(cases) == tests.count("alertname:"), "each case says exp_alerts in the next line"
    for outcome, fires in ((" []", "stay silent"), ("", "fire")):
        lacking = alerts - {name for name, found in cases if found == outcome}
        assert not lacking, f"no unit test lets {lacking} {fires}"
    troubles = (repo / "tests/monitoring/troubles.py").read_text()
    fired = set(re.findall(r'"(Nuthatch\w+)"', troubles)) | {name for name, _ in TROUBLES}
    assert fired == alerts - NOT_MADE, f"no trouble lets {alerts - NOT_MADE - fired} fire, or there is no {fired - alerts}"
    metrics = (repo / "docs/metrics.md").read_text()
    documented = set(re.findall(r"^\| `(Nuthatch\w+)` \|", metrics, re.M))
    assert documented == alerts, f"docs/metrics.md and rules.yml differ: {documented ^ alerts}"
    for page, heading in re.findall(r"runbook: '(\S+)#(\S+)'", rules):
        headings = re.findall(r"^#+ (.*)", (repo / page).read_text(), re.M)
        assert heading in {h.lower().replace(" ", "-") for h in headings}, f"{page} has no heading {heading}"
    print(f"ok {len(boards)} dashboards, {len(alerts)} alerts, {len(cases)} cases")


def check_scraped(prometheus, *servers):
    for server in servers:
        # Rates need a few.
        enough = f'count_over_time(up{{instance="{server}"}}[1m]) > 5 and up{{instance="{server}"}} == 1'
        wait_until_empty(lambda: [] if values(prometheus, enough) else [server], "not scraped")


def check_page(server):
    """Each client gets the form that it asks for; `promtool check metrics`, which reads the classic one, has no complaint."""
    kind, page = get(f"http://{server}/metrics", "text/plain; version=0.0.4")
    assert kind.startswith("text/plain; version=0.0.4"), kind
    lint = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    complaints = [line for line in (lint.stdout + lint.stderr).splitlines() if line]
    if lint.returncode != 0 or complaints:
        fail("promtool check metrics:\n  " + "\n  ".join(complaints))
    names = lambda text: set(re.findall(r"^(\w+)[{ ]", text, re.M))
    for accept in ("*/*", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"):
        open_kind, open_page = get(f"http://{server}/metrics", accept, "gzip")
        assert open_kind.startswith("application/openmetrics-text; version=1.0.0"), open_kind
        assert open_page.endswith("# EOF\n") and names(open_page) == names(page), names(open_page) ^ names(page)
    _, chosen = get(f"http://{server}/metrics?stream=ORD*", encoding="gzip")
    assert 'stream="ORDERS"' in chosen and 'stream="COLD"' not in chosen
    _, largest = get(f"http://{server}/metrics?streams=1", encoding="gzip")
    assert 'stream="ORDERS"' in largest and 'stream="COLD"' not in largest, "not the largest one"
    print(f"ok /metrics as {kind} and {open_kind}")


def check_collected(directory):
    """The collector has what the servers sent."""

    def missing():
        wanted = {"v1-metrics": b"nuthatch_stream_messages", "v1-traces": b"jetstream stream_create"}
        files = {name: pathlib.Path(directory) / name for name in wanted}
        return [name for name, word in wanted.items() if not files[name].exists() or word not in files[name].read_bytes()]

    wait_until_empty(missing, "not sent by OTLP")
    print("ok metrics and spans by OTLP")


def check_dashboards(prometheus, single, node):
    count = 0
    for name, board in dashboards():
        server = node if board["uid"] == "nuthatch-cluster" else single
        wanted = set(expressions(board, server))
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
                target = {"title": f"variable {variable['name']}", "targets": [{"expr": f"group by ({label}) ({metric})"}]}
                wanted |= set(expressions({"panels": [target]}, server))
        count += len(wanted)
        # One that has had a value need not have it at the same time as all others.
        left = set(wanted)

        def missing():
            left.difference_update({(t, e) for t, e in left if values(prometheus, e)})
            return left

        wait_until_empty(missing, f"{name}: no value of")
    print(f"ok {count} expressions of dashboards")


def check_rules(prometheus, server):
    """Each rule is evaluated, and each metric in it is one that the server has."""
    groups = api(prometheus, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    text = (repo / "packaging/prometheus/rules.yml").read_text()
    assert len(rules) == len(re.findall(r"- (?:alert|record): ", text)), "all rules are loaded"
    wait_until_empty(
        lambda: [r for g in api(prometheus, "rules")["groups"] for r in g["rules"] if r["health"] != "ok"],
        "not evaluated",
    )
    names = {name for rule in rules for name in re.findall(r"\b(?:log:)?nuthatch_[\w:]+", rule["query"])}
    # What only a cluster has, its nodes have.
    of_cluster = re.compile("nuthatch_(cluster|quorum)_")
    where = lambda name: "" if of_cluster.match(name) else f',instance="{server}"'
    # The servers of troubles.py may have ended by now.
    there = lambda name: values(prometheus, f'count(count_over_time({{__name__="{name}"{where(name)}}}[15m]))')
    wait_until_empty(lambda: [name for name in names if not there(name)], "there are no such metrics")
    print(f"ok {len(rules)} rules of {len(names)} metrics")


def check_alerts(prometheus, sound, troubled, full):
    check_rules(prometheus, sound)
    names = {"nobody": "127.0.0.1:1", "troubled": troubled, "full": full}
    expected = {(alert, names[name], "firing") for alert, name in TROUBLES}

    def seen():
        alerts = api(prometheus, "alerts")["alerts"]
        return {(a["labels"]["alertname"], a["labels"].get("instance"), a["state"]) for a in alerts}

    wait_until_empty(lambda: expected - seen(), "no such alerts")
    # On a busy machine a scrape may fail now and then, which is gone with the next.
    # How fast the machine is, and how full others make its disk, is not part of the test.
    machine = {"NuthatchDiskFullSoon", "NuthatchSlowPublishes", "NuthatchSlowApi", "NuthatchSlowDisk"}
    ours = lambda: {alert for alert in seen() if alert[1] == sound and alert[0] not in machine}
    wait_until_empty(ours, "alerts about a server without trouble")
    print(f"ok {len(expected)} alerts")


stages = {
    "files": check_files,
    "scraped": check_scraped,
    "page": check_page,
    "collected": check_collected,
    "dashboards": check_dashboards,
    "alerts": check_alerts,
}
stages[sys.argv[2]](*sys.argv[3:])

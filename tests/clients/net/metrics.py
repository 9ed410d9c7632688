"""Reads /metrics with Prometheus's own parsers, and finds what docs/metrics.md promises."""

import pathlib
import re
import sys
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

url, document = sys.argv[1:]
with urllib.request.urlopen(url, timeout=60) as answer:
    kind = answer.headers["Content-Type"]
    text = answer.read().decode()
assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
families = {family.name: family for family in openmetrics(text)}
assert list(classic(text)), "the classic parser reads it too"
promised = re.findall(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) ", pathlib.Path(document).read_text(), re.M)
assert len(promised) > 50, promised
for name, kind in promised:
    family = families.pop(name.removesuffix("_total"), None)
    assert family is not None, f"{name} is not there"
    assert family.type == kind, f"{name} is a {family.type}"
    assert family.documentation, f"{name} says nothing"
assert not families, f"not in the document: {list(families)}"
print(f"ok {len(promised)} metrics")

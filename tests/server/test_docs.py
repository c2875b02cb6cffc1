"""What docs/monitoring.md says of /metrics is there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from millstream.testing import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
NAMES = re.compile(r"millstream_[a-z_]+")


def families(served):
    """By name of a sample: its labels."""
    served.db.execute("CREATE SOURCE s (n BIGINT)")
    served.db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n > 0")
    served.db.execute(
        "CREATE SOURCE g (n BIGINT) "
        "WITH (connector = 'generator', rows = 1000000, rows_per_second = 10)"
    )
    wait_until(lambda: served.db.metrics()["connectors"]["g"]["lag"], "the generator runs")
    with (
        served.db.subscribe("SELECT * FROM v", name="durable"),
        served.client.stream("GET", "/v1/subscribe", params={"sql": "SELECT * FROM s"}) as stream,
    ):
        lines = stream.iter_lines()
        assert any(line == "event: ready" for line in lines)
        served.db.insert("s", [(1,)])
        assert any(line == "event: changes" for line in lines)
        text = served.client.get("/metrics").text
    found = {}
    for family in text_string_to_metric_families(text):
        found[family.name] = found[f"{family.name}_total"] = set()
        for sample in family.samples:
            found[sample.name] = set(sample.labels)
    return found


def test_the_metrics_of_the_page_are_those_of_the_server(served):
    text = PAGE.read_text()
    there = families(served)
    mentioned = set(NAMES.findall(text))
    assert mentioned <= set(there)
    for row in re.findall(r"^\| (`millstream.*?) \| (.*?) \|", text, re.MULTILINE):
        labels = set(re.findall(r"`([a-z]+)`", row[1]))
        for name in NAMES.findall(row[0]):
            assert there[name] == labels, name
    present = {name for name, labels in there.items() if labels or not name.endswith("_total")}
    bases = {name.removesuffix("_total") for name in mentioned}
    assert {name.removesuffix("_total") for name in present} == bases


def test_the_alerts_can_be_loaded_and_use_labels_that_exist(served):
    [rules] = re.findall(
        r'```yaml title="millstream.rules.yml"\n(.*?)```', PAGE.read_text(), re.DOTALL
    )
    there = families(served)
    for rule in yaml.safe_load(rules)["groups"][0]["rules"]:
        names = NAMES.findall(rule["expr"])
        for name, selector in re.findall(r"(millstream_[a-z_]+)\{(.*?)\}", rule["expr"]):
            assert set(re.findall(r"([a-z]+)(?:=|!=|=~)", selector)) <= there[name]
        shown = re.findall(r"\$labels\.([a-z]+)", str(rule.get("annotations", "")))
        assert all(set(shown) <= there[name] for name in names)

"""The harness runs sample connectors through everything: delivery, failures, restarts, kills."""

import json
import sqlite3

import pytest

from millstream.testing.connectors import (
    SinkScenario,
    SourceScenario,
    check_sink,
    check_source,
)

from . import samples

pytestmark = pytest.mark.crash


def lines(path, text):
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("kind", ["SOURCE", "TABLE"])
def test_source_exactly_once(tmp_path, kind):
    outside = tmp_path / "lines"
    outside.touch()
    columns = "(id BIGINT PRIMARY KEY, v VARCHAR)" if kind == "TABLE" else "(id BIGINT, v VARCHAR)"
    scenario = SourceScenario(
        create=f"CREATE {kind} k {columns} WITH (connector = 'test-lines', path = '{outside}', "
        "retry_delay = '1 ms')",
        name="k",
        produce=lambda numbers: lines(outside, "".join(f'[{n}, "v{n}"]\n' for n in numbers)),
        row=lambda n: (n, f"v{n}"),
        poison=lambda: lines(outside, "{poison\n"),
        imports=(samples.__name__,),
    )
    check_source(scenario, tmp_path / "db")
    assert int((tmp_path / "lines.committed").read_text()) == outside.stat().st_size


@pytest.mark.parametrize("held", ["false", "true"])
def test_sink_exactly_once(tmp_path, held):
    outside = tmp_path / "sqlite"

    def stored():
        with sqlite3.connect(outside) as db:
            try:
                return db.execute("SELECT id, v FROM stored").fetchall()
            except sqlite3.OperationalError:
                return []

    scenario = SinkScenario(
        create=f"CREATE SINK s FROM items WITH (connector = 'test-sqlite', path = '{outside}', "
        f"held = {held}, retry_delay = '1 ms')",
        name="s",
        stored=stored,
        imports=(samples.__name__,),
    )
    check_sink(scenario, tmp_path / "db")


def test_sink_at_least_once(tmp_path):
    outside = tmp_path / "appended"
    outside.touch()
    scenario = SinkScenario(
        create=f"CREATE SINK s FROM items WITH (connector = 'test-append', path = '{outside}', "
        "retry_delay = '1 ms')",
        name="s",
        stored=lambda: [tuple(json.loads(line)) for line in outside.read_text().splitlines()],
        appends=True,
        exactly_once=False,
        imports=(samples.__name__,),
    )
    check_sink(scenario, tmp_path / "db", kills=1)

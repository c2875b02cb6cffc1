"""Iceberg: tables that are written and followed, whatever is killed; the catalog is in SQLite."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import ConnectorFailedError, InvalidOptionError
from millstream.testing import wait_until
from millstream.testing.connectors import (
    ITEMS,
    TABLE,
    SinkScenario,
    SourceScenario,
    check_sink,
    check_source,
)

catalogs = pytest.importorskip("pyiceberg.catalog")

ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def catalog(tmp_path):
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    made = catalogs.load_catalog("test", **properties, warehouse=f"file://{tmp_path}/lake")
    made.create_namespace("ns")
    yield made
    made.close()


@pytest.fixture
def options(catalog, tmp_path):
    return (
        "connector = 'iceberg', table = 'ns.t', catalog = 'test', catalog.type = 'sql', "
        f"catalog.uri = 'sqlite:///{tmp_path}/catalog.db', "
        f"catalog.warehouse = 'file://{tmp_path}/lake'"
    )


QUICK = "commit_interval = '20 milliseconds'"


def rows(catalog):
    if not catalog.table_exists("ns.t"):
        return []
    found = catalog.load_table("ns.t").scan().to_polars()
    return found.select("id", "v").rows()


def state(db, name):
    return {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}[name]


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_table_is_written(catalog, options, tmp_path, mode):
    check_sink(
        SinkScenario(
            create=f"CREATE SINK k FROM items WITH ({options}, mode = '{mode}', {QUICK})",
            name="k",
            stored=lambda: rows(catalog),
            appends=mode == "append",
            input=ITEMS if mode == "append" else TABLE,
        ),
        tmp_path / "db",
    )
    properties = catalog.load_table("ns.t").properties
    assert [name for name in properties if name.startswith("millstream.token.")]


def test_keys_of_several_columns(catalog, options):
    with ms.open() as db:
        db.execute(
            "CREATE TABLE t (a VARCHAR, at TIMESTAMP, x DOUBLE, small TINYINT, PRIMARY KEY (a, at))"
        )
        db.execute(f"CREATE SINK k FROM t WITH ({options}, {QUICK})")
        times = [datetime(2026, 1, day, 12, 30, 0, 5, tzinfo=UTC) for day in (1, 2, 3)]
        db.insert("t", [("p", at, 0.5, 1) for at in times])
        db.execute("UPDATE t SET x = 1.5 WHERE at = TIMESTAMP '2026-01-02 12:30:00.000005'")
        db.execute("DELETE FROM t WHERE at = TIMESTAMP '2026-01-03 12:30:00.000005'")
        expected = [("p", times[0], 0.5, 1), ("p", times[1], 1.5, 1)]

        def found():
            if not catalog.table_exists("ns.t"):
                return []
            listed = catalog.load_table("ns.t").scan().to_arrow().to_pylist()
            return sorted(tuple(each.values()) for each in listed)

        wait_until(lambda: found() == expected, lambda: f"{found()}, {state(db, 'k')}", timeout=30)


def test_what_is_refused(catalog, options):
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute("CREATE SOURCE i (span INTERVAL)")
        for sql, error, match in [
            ("CREATE SINK k FROM t WITH ({}, mode = 'append')", InvalidOptionError, "disappear"),
            ("CREATE SINK k FROM i WITH ({})", ConnectorFailedError, "INTERVAL"),
            ("CREATE SOURCE s WITH ({})", ConnectorFailedError, "no table ns.t"),
        ]:
            with pytest.raises(error, match=match):
                db.execute(sql.format(options))
        catalog.create_table("ns.t", schema=ROWS).append(pa.table({"id": [1], "v": ["mine"]}))
        with pytest.raises(ConnectorFailedError, match="has rows that this sink") as caught:
            db.execute(f"CREATE SINK k FROM t WITH ({options}, {QUICK})")
        assert "overwrite = true" in caught.value.hint
        assert rows(catalog) == [(1, "mine")]
        with pytest.raises(ConnectorFailedError, match="'id': int64 does not fit VARCHAR"):
            db.execute(f"CREATE SOURCE s (id VARCHAR) WITH ({options})")


@pytest.mark.crash
def test_a_table_is_followed(catalog, options, tmp_path):
    table = catalog.create_table("ns.t", schema=ROWS)

    def produce(numbers):
        for start in range(numbers.start, numbers.stop, 25):
            part = range(start, min(start + 25, numbers.stop))
            table.append(pa.table({"id": part, "v": [f"v{n}" for n in part]}))

    produce(range(10))
    check_source(
        SourceScenario(
            create=f"CREATE SOURCE s WITH ({options}, poll_interval = '50 milliseconds')",
            name="s",
            produce=lambda numbers: produce(range(max(numbers.start, 10), numbers.stop)),
            row=lambda number: (number, f"v{number}"),
        ),
        tmp_path / "db",
    )


def test_a_snapshot_that_deletes(catalog, options):
    table = catalog.create_table("ns.t", schema=ROWS)
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    with ms.open() as db:
        db.execute(f"CREATE SOURCE s WITH ({options}, poll_interval = '20 milliseconds')")
        wait_until(lambda: len(db.query("SELECT * FROM s")) == 2, "the rows")
        table.delete("id = 1")
        wait_until(lambda: state(db, "s")["state"] == "failed", "it has failed")
        assert "only appends can be followed" in state(db, "s")["error"]

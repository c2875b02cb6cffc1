"""Delta Lake: tables that are written and followed, whatever is killed; read back by others."""

from __future__ import annotations

import json

import duckdb
import polars
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import ConnectorFailedError, InvalidOptionError
from millstream.testing import wait_until
from millstream.testing.connectors import (
    SinkScenario,
    check_sink,
)

deltalake = pytest.importorskip("deltalake")

SINK = "CREATE SINK k FROM {} WITH (connector = 'delta', path = '{}', {})"
QUICK = "commit_interval = '20 milliseconds'"


def table(path):
    return deltalake.DeltaTable(str(path))


def count(path):
    """How many rows a table has."""
    try:
        return table(path).count()
    except deltalake.exceptions.TableNotFoundError:
        return 0


def rows(path):
    """The rows of a table, read by polars."""
    if not count(path):
        return []
    return polars.from_arrow(table(path).to_pyarrow_table()).select("id", "v").rows()


def state(db, name="k"):
    return {each["name"]: each for each in db.query("SHOW CONNECTORS").to_pylist()}[name]


# ---- the sink


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["upsert", "changelog"])
def test_a_table_is_written(tmp_path, mode):
    path = tmp_path / "table"
    check_sink(
        SinkScenario(
            create=SINK.format("items", path, f"mode = '{mode}', optimize_every = 10, {QUICK}"),
            name="k",
            stored=lambda: rows(path),
            appends=mode == "changelog",
        ),
        tmp_path / "db",
        kills=3 if mode == "upsert" else 2,
    )


def test_all_types_are_appended_and_read_by_others(tmp_path):
    columns = (
        'id BIGINT NOT NULL, "A b" VARCHAR, ok BOOLEAN, small TINYINT, x DOUBLE, f REAL, '
        "price DECIMAL(10, 2), raw BINARY, day DATE, at TIMESTAMP, tags ARRAY<VARCHAR>, "
        "s STRUCT<a BIGINT, b VARCHAR>, m MAP<VARCHAR, BIGINT>"
    )
    row = {
        "id": 1, "A b": "x", "ok": True, "small": 3, "x": 0.5, "f": 0.25, "price": "1.50",
        "raw": "AAE=", "day": "2026-01-31", "at": "2026-01-31T12:00:00Z", "tags": ["p", None],
        "s": {"a": 1, "b": None}, "m": {"k": 2},
    }
    path = tmp_path / "table"
    with ms.open() as db:
        db.execute(f"CREATE SOURCE s ({columns})")
        db.execute(SINK.format("s", path, f"partition_by = 'ok', {QUICK}"))
        db.insert_json("s", json.dumps([row, {"id": 2}]))
        wait_until(lambda: count(path) == 2, "two rows")
        expected = db.query("SELECT * FROM s").to_arrow()
        found = table(path).to_pyarrow_table().select(expected.column_names).sort_by("id")
        assert found.to_pylist() == expected.to_pylist()
        files = table(path).file_uris()
        assert duckdb.sql(f"SELECT sum(id) FROM read_parquet({files!r})").fetchall() == [(3,)]
        [last] = table(path).history(1)
        assert last["millstream.token"].startswith("ms1")
        db.execute("ALTER SOURCE s ADD COLUMN late BIGINT")
        db.insert("s", [{"id": 3, "late": 7}])
        wait_until(lambda: count(path) == 3, "the row with a new column")
        assert 7 in table(path).to_pyarrow_table()["late"].to_pylist()


def test_what_is_refused(tmp_path):
    path = tmp_path / "table"
    deltalake.write_deltalake(path, pa.table({"id": [1], "v": ["mine"], "w": ["more"]}))
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute("CREATE SOURCE i (id BIGINT, span INTERVAL)")
        for relation, options, error, match in [
            ("t", "mode = 'append'", InvalidOptionError, "change or disappear"),
            ("i", "mode = 'upsert'", InvalidOptionError, "has no key"),
            ("i", "mode = 'append'", ConnectorFailedError, "INTERVAL"),
            ("t", "mode = 'upsert'", ConnectorFailedError, "has the column 'w'"),
            ("t", "partition_by = 'no'", InvalidOptionError, "no column 'no'"),
        ]:
            with pytest.raises(error, match=match):
                db.execute(SINK.format(relation, path, options))
        deltalake.write_deltalake(
            path, pa.table({"id": [1], "v": ["mine"]}), mode="overwrite", schema_mode="overwrite"
        )
        db.execute(SINK.format("t", path, f"mode = 'upsert', {QUICK}"))
        wait_until(lambda: state(db)["state"] == "failed", "it has failed")
        assert "overwrite = true" in state(db)["error"]
        assert rows(path) == [(1, "mine")]
        db.execute("DROP SINK k")
        db.execute(SINK.format("t", path, f"overwrite = true, {QUICK}"))
        wait_until(lambda: rows(path) == [], "it is replaced")
        before = deltalake.DeltaTable(str(path), version=1)  # time travel
        assert before.to_pyarrow_table().to_pylist() == [{"id": 1, "v": "mine"}]

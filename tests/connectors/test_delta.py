"""Delta Lake: tables that are written and followed, whatever is killed; read back by others."""

from __future__ import annotations

import json

import duckdb
import polars
import pyarrow as pa
import pytest

import millstream as ms
from millstream.connectors import Schema, Settings, Target
from millstream.connectors.sources.delta import DeltaSource
from millstream.errors import ConnectorFailedError, InvalidOptionError
from millstream.testing import wait_until
from millstream.testing.connectors import (
    ITEMS,
    TABLE,
    SinkScenario,
    SourceScenario,
    check_sink,
    check_source,
    replayed,
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
@pytest.mark.parametrize("mode", ["upsert", "append", "changelog"])
def test_a_table_is_written(tmp_path, mode):
    path = tmp_path / "table"

    def stored():
        if mode != "changelog":
            return rows(path)
        return replayed(table(path).to_pyarrow_table()) if count(path) else []

    check_sink(
        SinkScenario(
            create=SINK.format("items", path, f"mode = '{mode}', optimize_every = 10, {QUICK}"),
            name="k",
            stored=stored,
            appends=mode == "append",
            input=ITEMS if mode == "append" else TABLE,
        ),
        tmp_path / "db",
    )


def test_all_types_are_appended_and_read_by_others(tmp_path):
    columns = (
        'id BIGINT NOT NULL, "A b" VARCHAR, ok BOOLEAN, small TINYINT, x DOUBLE, f REAL, '
        "price DECIMAL(10, 2), raw BINARY, day DATE, at TIMESTAMP, tags ARRAY<VARCHAR>, "
        "s STRUCT<a BIGINT, b VARCHAR>, m MAP<VARCHAR, BIGINT>"
    )
    row = {
        "id": 1,
        "A b": "x",
        "ok": True,
        "small": 3,
        "x": 0.5,
        "f": 0.25,
        "price": "1.50",
        "raw": "AAE=",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00Z",
        "tags": ["p", None],
        "s": {"a": 1, "b": None},
        "m": {"k": 2},
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
        with pytest.raises(ConnectorFailedError, match="has rows that this sink") as caught:
            db.execute(SINK.format("t", path, f"mode = 'upsert', {QUICK}"))
        assert "overwrite = true" in caught.value.hint
        assert rows(path) == [(1, "mine")]
        with pytest.raises(ConnectorFailedError, match="'id': int64 does not fit VARCHAR"):
            db.execute(f"CREATE SOURCE r (id VARCHAR) WITH (connector = 'delta', path = '{path}')")
        db.execute(SINK.format("t", path, f"overwrite = true, {QUICK}"))
        wait_until(lambda: rows(path) == [], "it is replaced")
        before = deltalake.DeltaTable(str(path), version=1)  # time travel
        assert before.to_pyarrow_table().to_pylist() == [{"id": 1, "v": "mine"}]


# ---- the source


@pytest.mark.crash
def test_a_table_is_followed(tmp_path):
    path = tmp_path / "table"

    def produce(numbers):
        for start in range(numbers.start, numbers.stop, 10):
            part = range(start, min(start + 10, numbers.stop))
            made = pa.table({"id": part, "v": [f"v{n}" for n in part], "p": [n % 2 for n in part]})
            deltalake.write_deltalake(path, made, mode="append", partition_by=["p"])
        table(path).optimize.compact()

    produce(range(10))
    check_source(
        SourceScenario(
            create="CREATE SOURCE s (id BIGINT, v VARCHAR) WITH (connector = 'delta', "
            f"path = '{path}', poll_interval = '50 milliseconds')",
            name="s",
            produce=lambda numbers: produce(range(max(numbers.start, 10), numbers.stop)),
            row=lambda number: (number, f"v{number}"),
        ),
        tmp_path / "db",
    )


def follow(path, kind="source", columns="(id BIGINT, v VARCHAR)"):
    return (
        f"CREATE {kind.upper()} s {columns} WITH (connector = 'delta', path = '{path}', "
        "poll_interval = '20 milliseconds')"
    )


def test_a_large_version_in_pieces(tmp_path):
    path = tmp_path / "table"
    rows = 150_000
    deltalake.write_deltalake(path, pa.table({"id": range(rows), "v": ["x"] * rows}))
    given = {each.name: each.default for each in DeltaSource.options if each.name[-1] != "*"}
    settings = Settings({**given, "path": str(path), "poll_interval": 0.0})
    target = Target("s", "source", Schema.of(id="BIGINT", v="VARCHAR"))
    position, found = None, []
    for step in range(5):
        delivery = DeltaSource(settings, target).open(json.loads(json.dumps(position))).read(0.0)
        if step == 0:
            deltalake.write_deltalake(
                path,
                pa.table({"id": [rows], "v": ["y"], "w": [7]}),
                mode="append",
                schema_mode="merge",
            )
        if delivery is None:
            break
        position = delivery.position
        found += delivery.rows["id"].to_pylist() if delivery.rows else []
        new = [each.name for each in delivery.new_columns]
    assert found == list(range(rows + 1))
    assert (position, new) == ({"version": 1}, ["w"])


def test_changes_by_the_change_data_feed(tmp_path):
    path = tmp_path / "table"
    deltalake.DeltaTable.create(
        str(path),
        pa.schema([("id", pa.int64()), ("v", pa.string())]),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute(SINK.format("t", path, f"mode = 'upsert', {QUICK}"))
        db.execute(follow(path, "table", "(id BIGINT PRIMARY KEY, v VARCHAR)"))
        for sql in (
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "UPDATE t SET v = 'B' WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
        ):
            db.execute(sql)
            expected = db.query("SELECT * FROM t ORDER BY id").fetchall()
            query = "SELECT * FROM s ORDER BY id"
            wait_until(
                lambda: db.query(query).fetchall() == expected,
                lambda: f"{expected}: {db.query(query).fetchall()}, {state(db, 's')}, {state(db)}",
                timeout=20,
            )


@pytest.mark.parametrize("kind", ["source", "table"])
def test_deletes_without_a_feed(tmp_path, kind):
    path = tmp_path / "table"
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    columns = "(id BIGINT PRIMARY KEY, v VARCHAR)" if kind == "table" else ""
    with ms.open() as db:
        with pytest.raises(ConnectorFailedError, match="no table of Delta Lake"):
            db.execute(follow(tmp_path / "none", kind, columns))
        with pytest.raises(ConnectorFailedError, match="no column 'w'"):
            db.execute(
                follow(path, kind, "(id BIGINT PRIMARY KEY, w INT)" if columns else "(w INT)")
            )
        db.execute(follow(path, kind, columns))
        wait_until(lambda: len(db.query("SELECT * FROM s")) == 2, "the rows")
        table(path).delete("id = 1")
        wait_until(lambda: state(db, "s")["state"] == "failed", "it has failed")
        assert "deletes or updates rows" in state(db, "s")["error"]
        hint = "enableChangeDataFeed" if kind == "table" else "PRIMARY KEY"
        assert hint in state(db, "s")["error"]
        assert len(db.query("SELECT * FROM s")) == 2

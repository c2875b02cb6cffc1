"""Rows that were saved, found before Python has them all."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import ClosedError
from millstream.tables import table_rows
from millstream.tables.table_rows import SavedBase, TableRows
from millstream.testing import engine_of

SCHEMA = ms.Schema.of(a="BIGINT NOT NULL", b="VARCHAR NOT NULL", v="BIGINT", key=["a", "b"])


@pytest.fixture
def held(monkeypatch):
    """All saved rows wait, until this is set, before they are made Python rows."""
    held = threading.Event()
    pieces = SavedBase.pieces

    def waiting(self):
        held.wait(60)
        yield from pieces(self)

    monkeypatch.setattr(table_rows, "FEW", 0)
    monkeypatch.setattr(SavedBase, "pieces", waiting)
    yield held
    held.set()


keys = st.tuples(st.integers(0, 5), st.sampled_from("xy"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.sets(keys, min_size=1), st.lists(st.tuples(keys, st.booleans())), st.integers(0, 20))
def test_are_as_a_dict_before_and_after(held, saved, changes, when):
    held.clear()
    known = {key: (*key, n) for n, key in enumerate(sorted(saved))}
    rows = TableRows(threading.Lock(), lambda row: row[:2])
    table = pa.Table.from_batches([SCHEMA.rows_to_arrow([row]) for row in known.values()])
    rows.start_with(SavedBase(table, SCHEMA, (0, 1), ()))
    for n, (key, is_put) in enumerate(changes):
        if n == when:
            held.set()
        with rows._lock:
            if is_put:
                rows.put(key, (*key, -n))
                known[key] = (*key, -n)
            elif rows.get(key) is not None:
                rows.drop(key)
                del known[key]
        assert len(rows) == len(known)
        assert rows.get(key) == known.get(key)
        assert (key in rows) == (key in known)
    for key in [(a, b) for a in range(6) for b in "xy"]:
        assert rows.get(key) == known.get(key)
    held.set()
    assert rows.all() == known
    assert rows.base is None


def test_a_table_answers_and_changes_before_its_rows_are_there(tmp_path, held):
    held.set()
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR)")
        db.insert("t", [(n, f"v{n}") for n in range(1000)])
        engine_of(db).saver.save(0, 0)
        db.execute("UPDATE t SET v = 'after' WHERE k = 7")
    held.clear()
    with ms.open(tmp_path) as db:
        table = engine_of(db).tables.get("t")
        assert db.query("SELECT COUNT(*) FROM t").fetchall() == [(1000,)]
        for key, found in ((3, [("v3",)]), (7, [("after",)]), (5000, [])):
            for _ in range(2):  # parsed, and then remembered
                assert db.query("SELECT v FROM t WHERE k = ?", [key]).fetchall() == found
        db.execute("UPDATE t SET v = 'new' WHERE k = 4")
        db.execute("DELETE FROM t WHERE k = 5")
        db.execute("INSERT INTO t VALUES (5000, 'more')")
        with pytest.raises(ms.errors.DuplicateKeyError):
            db.execute("INSERT INTO t VALUES (6, 'twice')")
        assert db.query("SELECT v FROM t WHERE k = 4").fetchall() == [("new",)]
        assert not table.rows._is_complete
        held.set()
        wanted = {n: f"v{n}" for n in range(1000)} | {7: "after", 4: "new", 5000: "more"}
        del wanted[5]
        assert dict(db.query("SELECT k, v FROM t").fetchall()) == wanted
        assert table.rows._is_complete
    with ms.open(tmp_path) as db:
        assert dict(db.query("SELECT k, v FROM t").fetchall()) == wanted


def test_columns_are_read_as_they_were_saved(tmp_path, held):
    held.set()
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR)")
        db.insert("t", [(n, f"v{n}") for n in range(1000)])
        engine_of(db).saver.save(0, 0)
    held.clear()
    with ms.open(tmp_path) as db:
        found = engine_of(db).tables.get("t").columns(["v"])
        assert found[1] == 1000
        assert found[0]["v"].to_pylist() == [f"v{n}" for n in range(1000)]
        held.set()
        db.execute("ALTER TABLE t ADD COLUMN x BIGINT")
        assert db.query("SELECT COUNT(x) AS n, COUNT(v) AS m FROM t").fetchall() == [(0, 1000)]


def test_closed_while_they_are_read(tmp_path, held):
    held.set()
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        db.insert("t", [(n,) for n in range(10)])
        engine_of(db).saver.save(0, 0)
    held.clear()
    with ms.open(tmp_path) as db:
        rows = engine_of(db).tables.get("t").rows
    with pytest.raises(ClosedError):
        rows.all()


@pytest.mark.parametrize("type_", ["TINYINT", "INTEGER", "BIGINT"])
@given(st.lists(st.integers(-128, 127), unique=True, min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_sorted_keys_are_found_as_by_a_scan(type_, values):
    schema = ms.Schema.of(k=f"{type_} NOT NULL", v="VARCHAR", key=["k"])
    pieces = [schema.rows_to_arrow([(each, str(each))]) for each in values]
    scanned, found = (SavedBase(pa.Table.from_batches(pieces), schema, (0,), ()) for _ in range(2))
    found.sort()
    assert found._sorted is not None
    for key in range(-130, 130):
        wanted = (key, str(key)) if key in values else None
        assert found.find((key,)) == wanted
        if -128 <= key < 128:
            assert scanned.find((key,)) == wanted
    for key in (1.0, None):
        assert found.find((key,)) == scanned.find((key,))
    for key in (1 << 63, -(1 << 63) - 1, True, "1"):
        with pytest.raises((pa.ArrowException, OverflowError)):
            found.find((key,))


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("BIGINT", [1, -5, 2**62]),
        ("DOUBLE", [0.5, -0.0, 1e300]),
        ("DECIMAL(10, 2)", [Decimal("1.20"), Decimal("-3.00")]),
        ("VARCHAR", ["", "a", "\u00e4\u4e2d"]),
        ("BINARY", [b"", b"\x00x"]),
        ("TIMESTAMP", [datetime(2024, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)]),
        ("DATE", [datetime(2024, 1, 1, tzinfo=UTC).date()]),
        ("BOOLEAN", [True, False]),
    ],
)
def test_keys_of_all_types_are_found(held, type_, values):
    schema = ms.Schema.of(k=f"{type_} NOT NULL", key=["k"])
    table = pa.Table.from_batches([schema.rows_to_arrow([(each,) for each in values])])
    rows = TableRows(threading.Lock(), lambda row: row[:1])
    rows.start_with(SavedBase(table, schema, (0,), ()))
    expected = {(value,): (value,) for value in values}
    for key, row in expected.items():
        assert rows.get(key) == row
    assert rows.base is not None
    held.set()  # a value of another type is compared as Python does
    for key in [(1.0,), (Decimal(1),), ("nothing",), (None,), (True,)]:
        assert rows.get(key) == expected.get(key)

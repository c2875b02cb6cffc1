"""Values that Python cannot hold: refused at the door, and no reader loses good rows over one."""

from __future__ import annotations

import json
import math
import threading
from datetime import date
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.model.strategies import small_types
from tests.model.wild import wild_arrays

import millstream as ms
from millstream import errors
from millstream.model.schema import Column
from millstream.model.types import BIGINT
from millstream.testing import engine_of, wait_until

FAR = 2**63 - 1
BAD = {
    "TIMESTAMP": pa.array([FAR], pa.timestamp("us")),
    "DATE": pa.array([2**31 - 1], pa.date32()),
    "VARCHAR": pa.array([b"\xff\xfe"], pa.binary()).view(pa.string()),
    "MAP<VARCHAR, INT>": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32())),
    "INTERVAL": pa.array([FAR], pa.duration("us")),
    "ARRAY<TIMESTAMP>": pa.array([[0, FAR]], pa.list_(pa.timestamp("us"))),
    "STRUCT<d DATE>": pa.StructArray.from_arrays([pa.array([2**31 - 1], pa.date32())], ["d"]),
}


def ways_in(db):
    """What can be called with Arrow data."""
    schema = db.source("s").schema

    def columns(data):
        return dict(zip(data.column_names, data, strict=True))

    def batch(data):
        return ms.ChangeBatch.from_arrow(schema, one_batch(data))

    return {
        "push_arrow of a table": db.source("s").push_arrow,
        "push_arrow of a batch": lambda data: db.source("s").push_arrow(one_batch(data)),
        "insert into a source": lambda data: db.insert("s", data),
        "insert into a table": lambda data: db.insert("t", data),
        "insert columns": lambda data: db.insert(
            "s", dict(zip(data.column_names, data, strict=True))
        ),
        "insert a batch": lambda data: db.insert(
            "s", ms.ChangeBatch.from_arrow(schema, one_batch(data))
        ),
    }


def one_batch(table):
    return table.combine_chunks().to_batches()[0]


@pytest.mark.parametrize("sql", BAD)
def test_every_door_refuses_it_with_all_that_came_with_it(db, sql):
    db.execute(
        f"CREATE SOURCE s (id BIGINT, x {sql}); CREATE TABLE t (id BIGINT PRIMARY KEY, x {sql})"
    )
    bad = BAD[sql]
    chunks = [pa.nulls(2, bad.type), pa.nulls(1, bad.type), bad, pa.nulls(1, bad.type)]
    data = pa.table({"id": [1, 2, 3, 4, 5], "x": pa.chunked_array(chunks)})
    for name, push in ways_in(db).items():
        with pytest.raises(errors.RowError) as caught:
            push(data)
        assert (caught.value.row, caught.value.column) == (3, "x"), name
        assert "Nothing was taken" in caught.value.hint
    db.flush()
    assert len(db.query("SELECT * FROM s")) == len(db.query("SELECT * FROM t")) == 0
    for name, push in ways_in(db).items():
        if "table" not in name:
            assert push(data.slice(0, 3)) == 3, name


def let_in(db, name, data):
    """What a version without the check would have taken: past the door, into the log."""
    definition = engine_of(db).catalog[name]
    batches = [
        ms.ChangeBatch(definition.schema, None, definition.schema.conform(each), None)
        for each in data.to_batches()
    ]
    engine_of(db).inlets[definition].enter(batches)


@pytest.fixture
def poisoned(tmp_path):
    """A path to a database with ten rows, of which the fourth cannot be read as Python."""
    path = tmp_path / "old"
    with ms.open(path) as db:
        db.execute("CREATE SOURCE s (id BIGINT, ts TIMESTAMP, x VARCHAR, m MAP<VARCHAR, INT>)")
        let_in(db, "s", ten())
    return path


def ten():
    times = [0] * 3 + [FAR] + [0] * 6
    words = [b"a"] * 3 + [b"\xff"] + [b"a"] * 6
    maps = [[("k", 1)]] * 3 + [[("k", 1), ("k", 2)]] + [[("k", 1)]] * 6
    return pa.table(
        {
            "id": list(range(10)),
            "ts": pa.array(times, pa.timestamp("us")),
            "x": pa.array(words, pa.binary()).view(pa.string()),
            "m": pa.array(maps, pa.map_(pa.string(), pa.int32())),
        }
    )


def check_ten(rows):
    assert [row[0] for row in rows] == list(range(10))
    for place, row in enumerate(rows):
        kinds = {isinstance(value, ms.Unreadable) for value in row[1:]}
        assert kinds == {place == 3}, row


def test_subscribers_get_all_ten(poisoned, rows_of, take):
    got, failed = [], []
    with ms.open(poisoned) as db:
        live = db.subscribe("SELECT * FROM s")
        small = db.subscribe("SELECT * FROM s", max_rows=3)
        some = db.subscribe("SELECT * FROM s WHERE id > 1")
        db.subscribe_callback(
            "SELECT * FROM s", lambda b: got.extend(b.rows), on_error=failed.append
        )
        check_ten(rows_of(db.subscribe("SELECT * FROM s", start="earliest"), 10))
        let_in(db, "s", ten())
        check_ten(rows_of(live, 10))
        check_ten(rows_of(small, 10))
        assert [change.row[0] for batch in take(some, 8) for change in batch] == list(range(2, 10))
        wait_until(lambda: len(got) == 10)
        check_ten(got)
        assert failed == []


def test_the_bus_and_show_changes_give_all_ten(poisoned):
    with ms.open(poisoned) as db:
        bus = db.changes("s", include="after", start="earliest")
        events = [bus.recv(60) for _ in range(10)]
        check_ten([tuple(event.after.values()) for event in events])
        shown = db.query("SHOW CHANGES").to_pylist()
        assert len(shown) == 10
        assert '"ts": "<unreadable TIMESTAMP: ' in shown[3]["after"]
        assert "unreadable" not in shown[4]["after"]


def test_queries_give_all_ten_as_arrow_and_name_the_row(poisoned):
    with ms.open(poisoned) as db:
        assert db.query("SELECT * FROM s").to_arrow().num_rows == 10
        assert db.query("SELECT COUNT(*) FROM s").fetchall() == [(10,)]
        assert len(db.query("SELECT id FROM s").fetchall()) == 10
        assert len(db.query("SELECT * FROM s WHERE id <> 3").fetchall()) == 9
        with pytest.raises(errors.RowError) as caught:
            db.query("SELECT * FROM s").fetchall()
        assert caught.value.row == 3
        assert "Arrow" in caught.value.hint
        assert "10 rows" in repr(db.query("SELECT * FROM s"))


def test_such_a_row_does_not_come_in_again(poisoned):
    with ms.open(poisoned) as db:
        db.execute("CREATE SOURCE other (id BIGINT, ts TIMESTAMP, x VARCHAR, m MAP<VARCHAR, INT>)")
        batch = db.subscribe("SELECT * FROM s", start="earliest").recv(60)
        for again in (batch, db.query("SELECT * FROM s")):
            with pytest.raises(errors.RowError) as caught:
                db.insert("other", again)
            assert caught.value.row == 3


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"]), pl.String])
def test_polars_text_of_every_kind(db, kind):
    db.execute("CREATE SOURCE s (x VARCHAR, a ARRAY<VARCHAR>)")
    words = pl.Series(["b", None, "a"], dtype=kind)
    db.insert("s", pl.DataFrame({"x": words, "a": words.reshape((3, 1)).cast(pl.List(kind))}))
    db.insert("s", {"x": words})
    found = [row[0] for row in db.query("SELECT * FROM s").fetchall()]
    assert found == ["b", None, "a"] * 2


# ---- whatever push_arrow takes, every reader can read


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            same(a, b) and same(x, y)
            for (a, x), (b, y) in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal):
        return isinstance(other, Decimal) and one == other
    return one == other


@st.composite
def wild_batches(draw):
    """A schema, and a batch of it with whatever bits its types can have."""
    types = draw(st.lists(small_types, min_size=1, max_size=2))
    size = draw(st.integers(1, 4))
    arrays = [pa.array(range(size), pa.int64()), *(draw(wild_arrays(t, size)) for t in types)]
    columns = [Column("id", BIGINT)]
    columns += [Column(f"c{place}", of) for place, of in enumerate(types)]
    schema = ms.Schema(tuple(columns))
    return schema, pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


@pytest.mark.slow
@settings(deadline=None, max_examples=6, phases=[Phase.generate])
@given(st.lists(wild_batches(), min_size=8, max_size=12))
def test_what_is_taken_can_be_read_everywhere(tmp_path_factory, given_batches):
    path = tmp_path_factory.mktemp("any") / "db"
    expected = {}
    with ms.open(path) as db:
        for place, (schema, batch) in enumerate(given_batches):
            name = f"s{place}"
            db.execute(f"CREATE SOURCE {name} ({schema.ddl})")
            readers = Readers(db, name)
            try:
                assert db.source(name).push_arrow(batch) == batch.num_rows
            except errors.RowError as refused:
                assert 0 <= refused.row < batch.num_rows
                assert len(db.query(f"SELECT * FROM {name}")) == 0
                continue
            expected[name] = schema.arrow_to_rows(batch)
            check_all(readers.live(batch.num_rows), expected[name], schema)
            check_all(stored(db, name), expected[name], schema)
    with ms.open(path) as db:
        for name, rows in expected.items():
            check_all(stored(db, name), rows, db.source(name).schema)


def check_all(readings, expected, schema):
    for rows in readings:
        assert same(rows, expected), schema.ddl


class Readers:
    """Subscribers that are there when rows are pushed."""

    def __init__(self, db, name):
        self.subscription = db.subscribe(f"SELECT * FROM {name}")
        self.called, self.done = [], threading.Event()
        self.callback = db.subscribe_callback(f"SELECT * FROM {name}", self.call)
        self.bus = db.changes(name, include="after")

    def call(self, batch):
        self.called.extend(batch.rows)
        self.done.set()

    def live(self, size):
        yield self.subscription.recv(60).rows
        assert self.done.wait(60)
        yield self.called
        yield [tuple(self.bus.recv(60).after.values()) for _ in range(size)]
        for each in (self.subscription, self.callback, self.bus):
            each.cancel()


def stored(db, name):
    """Every way to read what is there."""
    with db.subscribe(f"SELECT * FROM {name}", start="earliest") as subscription:
        batch = subscription.recv(60)
    yield batch.rows
    yield [change.row for change in batch]
    yield db.query(f"SELECT * FROM {name}").fetchall()  # in process
    result = db.query(f"SELECT * FROM {name} ORDER BY id")  # by DuckDB
    yield result.fetchall()
    parts = result.to_arrow().to_batches()
    yield [row for part in parts for row in result.schema.arrow_to_rows(part)]
    assert len(db.query(f"SHOW CHANGES FOR {name}").fetchall()) == len(batch)


def test_show_changes_of_maps_with_keys_of_any_type(db):
    db.execute("CREATE SOURCE s (a MAP<DATE, INT>, b ARRAY<MAP<BINARY, INT>>, c MAP<INT, INT>)")
    db.insert("s", [({date(2024, 5, 31): 1}, [{b"k": 2}], {3: 4})])
    (after,) = [row["after"] for row in db.query("SHOW CHANGES").to_pylist()]
    assert json.loads(after) == {"a": {"2024-05-31": 1}, "b": [{"b'k'": 2}], "c": {"3": 4}}


@pytest.mark.parametrize("value", ["UPPER(x)", "CAST(ts AS VARCHAR)"])
def test_an_expression_over_such_a_value_has_none(poisoned, value):
    with ms.open(poisoned) as db:
        with pytest.raises(errors.ExpressionError, match="Python cannot hold this"):
            db.query(f"SELECT {value} AS v FROM s")
        assert len(db.query(f"SELECT {value} AS v FROM s WHERE id <> 3").fetchall()) == 9
        failing = db.subscribe(f"SELECT {value} AS v FROM s")
        good = db.subscribe("SELECT id FROM s")
        let_in(db, "s", ten())
        with pytest.raises(errors.ExpressionError):
            failing.recv(60)
        assert len(good.recv(60)) == 10

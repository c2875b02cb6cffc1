"""Rows in, in every shape: what fits is there, what does not is refused as a whole."""

from __future__ import annotations

import io
import threading
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from millstream import errors

TS = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ROWS = [("a", 1.5, 10, TS), ("b", None, None, None), ("ä€😀", -0.0, -(2**62), TS)]
NAMES = ("symbol", "price", "qty", "ts")


@pytest.fixture(params=["source", "table"])
def target(db, request):
    if request.param == "source":
        db.execute(
            "CREATE SOURCE t (symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP)"
        )
    else:
        db.execute(
            "CREATE TABLE t (symbol VARCHAR PRIMARY KEY, price DOUBLE, qty BIGINT, ts TIMESTAMP)"
        )
    return db


def columns():
    return {name: [row[n] for row in ROWS] for n, name in enumerate(NAMES)}


def dicts():
    return [dict(zip(NAMES, row, strict=True)) for row in ROWS]


def table():
    types = [pa.string(), pa.float64(), pa.int64(), pa.timestamp("us", tz="UTC")]
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(columns().values(), types, strict=True)],
        names=list(NAMES),
    )


@dataclass
class Trade:
    symbol: str
    price: float | None
    qty: int | None
    ts: datetime | None


Named = namedtuple("Named", NAMES)  # noqa: PYI024

SHAPES = {
    "tuples": lambda: ROWS,
    "lists": lambda: [list(row) for row in ROWS],
    "a generator": lambda: (row for row in ROWS),
    "dicts": dicts,
    "dicts in another order": lambda: [dict(reversed(each.items())) for each in dicts()],
    "columns": columns,
    "dataclasses": lambda: [Trade(*row) for row in ROWS],
    "named tuples": lambda: [Named(*row) for row in ROWS],  # type: ignore[call-arg]
    "an Arrow table": table,
    "a record batch": lambda: table().to_batches()[0],
    "a reader": lambda: table().to_reader(max_chunksize=1),
    "an Arrow table in another order": lambda: table().select(list(reversed(NAMES))),
    "large strings": lambda: table().cast(
        pa.schema([table().schema.field(n) for n in NAMES]).set(
            0, pa.field("symbol", pa.large_string())
        )
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(target, shape):
    assert target.insert("t", SHAPES[shape]()) == 3
    assert sorted(target.query("SELECT * FROM t")) == sorted(ROWS)


def test_pandas(target):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns())
    frame["qty"] = frame["qty"].astype("Int64")
    assert target.insert("t", frame) == 3
    assert sorted(target.query("SELECT * FROM t")) == sorted(ROWS)
    back = target.query("SELECT * FROM t").to_pandas()
    assert len(back) == 3


def test_polars(target):
    polars = pytest.importorskip("polars")
    assert target.insert("t", polars.DataFrame(columns())) == 3
    assert sorted(target.query("SELECT * FROM t")) == sorted(ROWS)
    back = target.query("SELECT symbol, qty FROM t").to_polars()
    assert sorted(back.rows()) == sorted((row[0], row[2]) for row in ROWS)


def test_our_own_results_and_batches_go_in_again(target):
    target.insert("t", ROWS)
    result = target.query("SELECT * FROM t")
    target.execute("CREATE SOURCE other (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP)")
    assert target.insert("other", result) == 3
    assert sorted(target.query("SELECT * FROM other")) == sorted(ROWS)


def test_nothing_is_nothing(target):
    for empty in ([], {}, columns() and {name: [] for name in NAMES}, table().slice(0, 0)):
        assert target.insert("t", empty) == 0
    assert not target.query("SELECT * FROM t")


def test_json(target):
    first = '{"symbol": "a", "price": 1.5, "qty": 10, "ts": "2026-01-02T03:04:05.678901Z"}'
    text = f'[{first}, {{"symbol": "b"}}]'
    assert target.insert_json("t", text) == 2
    assert target.insert_json("t", '{"symbol": "c"}\n{"symbol": "d", "qty": 4}\n') == 2
    assert target.insert_json("t", b'{"symbol": "e"}') == 1
    rows = {row[0]: row for row in target.query("SELECT * FROM t")}
    assert rows["a"] == ("a", 1.5, 10, TS)
    assert rows["d"] == ("d", None, 4, None)
    assert len(rows) == 5


def test_csv(target, tmp_path):
    text = "symbol,price,qty,ts\na,1.5,10,2026-01-02 03:04:05.678901\nb,,,\n"
    assert target.insert_csv("t", text) == 2
    assert target.insert_csv("t", "c;1;2;\n", header=False, delimiter=";") == 1
    path = tmp_path / "rows.csv"
    path.write_text("qty,symbol\n7,d\n")
    assert target.insert_csv("t", path) == 1
    assert target.insert_csv("t", io.BytesIO(b"symbol\ne\n")) == 1
    rows = {row[0]: row for row in target.query("SELECT * FROM t")}
    assert rows["a"] == ("a", 1.5, 10, TS)
    assert rows["b"] == ("b", None, None, None)
    assert rows["d"] == ("d", None, 7, None)
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("data", "row", "column"),
    [
        ([("a", 1.0, 1, TS), ("b", "x", 1, TS)], 1, "price"),
        ([("a", 1.0, 1, TS), (None, 1.0, 1, TS)], 1, "symbol"),
        ([("a", 1.0, 1, TS), ("b", 1.0, 2**63, TS)], 1, "qty"),
        ([("a", 1.0, 1, TS), ("b", 1.0, 1.5, TS)], 1, "qty"),
        ([("a", 1.0, 1, TS), ("b", 1.0, True, TS)], 1, "qty"),
        ([("a", 1.0, 1, TS), ("b", 1.0, 1, "soon")], 1, "ts"),
        ([{"symbol": "a"}, {"symbol": "b", "price": "x"}], 1, "price"),
        ([{"symbol": "a"}, {"price": 1.0}], 1, "symbol"),
        ([("a", 1.0, 1, TS), ("b", 1.0, 1)], 1, None),
        ([("a", 1.0, 1, TS), 7], 1, None),
        ({"symbol": ["a", "b"], "price": [1.0, "x"], "qty": [1, 2], "ts": [TS, TS]}, 1, "price"),
    ],
)
def test_a_bad_row_is_refused_with_all_of_its_batch(target, data, row, column):
    with pytest.raises(errors.RowError) as caught:
        target.insert("t", data)
    assert (caught.value.row, caught.value.column) == (row, column)
    assert caught.value.code == "BAD_ROW"
    assert not target.query("SELECT * FROM t")


def test_json_from_a_file(target, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('{"symbol": "a"}\n{"symbol": "b", "qty": 2}\n')
    assert target.insert_json("t", path) == 2
    path.write_text('{"symbol": "c"}\n{"symbol": "d", "qty": 2}\n')
    with path.open("rb") as file:
        file.readline()  # read from where it stands
        assert target.insert_json("t", file) == 1
    for data in (5, None):
        for insert in (target.insert_json, target.insert_csv):
            with pytest.raises(errors.SchemaMismatchError, match="expected text, bytes, a path"):
                insert("t", data)
    assert sorted(row[0] for row in target.query("SELECT * FROM t")) == ["a", "b", "d"]


def test_what_is_no_name_is_refused(target):
    calls = (target.insert_csv, target.insert_json, target.insert)
    for call in (*calls, lambda name, _: target.source(name), lambda name, _: target.changes(name)):
        for name in (5, b"t", ["t"]):
            with pytest.raises(errors.InvalidOptionError, match="expected a name"):
                call(name, "")


def test_bad_json_and_csv_are_refused_entirely(target):
    for text in ('[{"symbol": "a"}, {"symbol": 1}]', '[{"symbol": "a"}, {"nope": 1}]', "[{", "7"):
        with pytest.raises(errors.Error) as caught:
            target.insert_json("t", text)
        assert caught.value.code != "ERROR"
    with pytest.raises(errors.SchemaMismatchError):
        target.insert_csv("t", "symbol,price\na,1\nb,many\n")
    with pytest.raises(errors.SchemaMismatchError):
        target.insert_csv("t", "symbol,nope\na,1\n")
    assert not target.query("SELECT * FROM t")


def test_bad_arrow_is_refused(target):
    bad = pa.table({"symbol": ["a", None], "price": [1.0, 2.0], "qty": [1, 2], "ts": [TS, TS]})
    with pytest.raises(errors.SchemaMismatchError):
        target.insert("t", bad)
    with pytest.raises(errors.SchemaMismatchError):
        target.insert("t", table().rename_columns(["symbol", "price", "qty", "when"]))
    with pytest.raises(errors.SchemaMismatchError):
        target.insert("t", pa.table({"symbol": ["a"], "qty": [1.5]}))
    assert not target.query("SELECT * FROM t")


def test_a_row_pushed_badly_leaves_no_trace(db):
    db.execute("CREATE SOURCE s (n BIGINT NOT NULL, t VARCHAR)")
    source = db.source("s")
    source.push((1, "a"))
    for bad in ((None, "a"), ("x", "a"), (1, 2), (1,), {"n": None}, {"nope": 1}, 7, (2**63, "a")):
        with pytest.raises(errors.SchemaMismatchError):
            source.push(bad)
        with pytest.raises(errors.SchemaMismatchError):
            source.try_push(bad)
        with pytest.raises(errors.SchemaMismatchError):
            source.push_batch([(5, "x"), bad])
    source.push({"t": "b", "n": 2})
    assert db.query("SELECT * FROM s").fetchall() == [(1, "a"), (2, "b")]


def test_a_dataclass_of_ones_own(db):
    db.execute("CREATE SOURCE t (symbol VARCHAR, price DOUBLE, qty BIGINT, ts TIMESTAMP)")
    source = db.source("t", Trade)
    source.push(Trade("a", 1.0, 2, TS))
    assert db.query("SELECT symbol, qty FROM t").fetchall() == [("a", 2)]

    @dataclass
    class Other:
        nope: int

    with pytest.raises(errors.SchemaMismatchError):
        db.source("t", Other)


def test_writer(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    with db.writer("s", batch_rows=10) as writer:
        for n in range(25):
            writer.write((n,))
        assert writer.pending == 5
        writer.insert([(25,), {"n": 26}])
        writer.flush()
        assert writer.pending == 0
        writer.write((27,))
    assert [n for (n,) in db.query("SELECT n FROM s")] == list(range(28))
    with pytest.raises(errors.RowError) as caught, db.writer("s") as writer:
        writer.write((28,))
        writer.write(("x",))
    assert caught.value.row == 1
    assert len(db.query("SELECT n FROM s")) == 28
    with pytest.raises(errors.InvalidOptionError):
        db.writer("s", batch_rows=0)


def test_replace_in_a_table(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    db.insert("t", [(1, 1), (2, 2)])
    with pytest.raises(errors.DuplicateKeyError) as caught:
        db.insert("t", [(3, 3), (1, 10)])
    assert caught.value.key == (1,)
    assert len(db.query("SELECT * FROM t")) == 2
    assert db.insert("t", [(3, 3), (1, 10)], replace=True) == 2
    assert dict(db.query("SELECT * FROM t")) == {1: 10, 2: 2, 3: 3}


def test_tables_have_no_source_handle(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    for get in (db.source, db.writer):
        with pytest.raises(errors.WrongObjectError) as caught:
            get("t")
        assert "INSERT" in caught.value.hint
    with pytest.raises(errors.ObjectNotFoundError):
        db.source("nothing")


def test_watermarks(db):
    db.execute(
        "CREATE SOURCE s (n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '10 seconds')"
    )
    source = db.source("s")
    assert source.current_watermark is None
    source.push((1, TS))
    db.flush()
    assert source.current_watermark == TS - timedelta(seconds=10)
    subscription = db.subscribe("SELECT n FROM s")
    source.watermark(TS)
    batch = subscription.recv(60)
    assert batch.watermark == int(TS.timestamp() * 1_000_000)
    source.watermark(TS - timedelta(hours=1))
    assert source.current_watermark == TS


# ---- buffers


def test_pushes_of_one_thread_keep_their_order(db):
    """Rows, batches and Arrow of one producer come in the order of its calls."""
    db.execute("CREATE SOURCE s (n BIGINT)")
    source = db.source("s")
    n = 0
    for _ in range(200):
        source.push((n,))
        source.push_batch([(n + 1,), (n + 2,)])
        source.push_arrow(pa.table({"n": pa.array([n + 3, n + 4], pa.int64())}))
        source.push({"n": n + 5})
        n += 6
    assert [value for (value,) in db.query("SELECT n FROM s")] == list(range(n))


def test_a_cut_never_parts_cause_and_effect(db):
    """What one thread pushed to two sources gets its LSNs in that order."""
    db.execute("CREATE SOURCE a (n BIGINT); CREATE SOURCE b (n BIGINT)")
    a, b = db.source("a"), db.source("b")
    bus = db.changes(include="after")
    for n in range(3000):
        a.push((n,))
        b.push((n,))
    seen = {"a": -1, "b": -1}
    for _ in range(6000):
        event = bus.recv(60)
        seen[event.collection] = event.after["n"]
        assert seen["b"] <= seen["a"]


@pytest.mark.parametrize("threads", [4])
def test_many_producers_lose_nothing(db, threads):
    db.execute("CREATE SOURCE s (thread BIGINT, n BIGINT) WITH (buffer_size = 100)")

    def work(thread):
        with db.source("s") as source:
            for n in range(2000):
                source.push((thread, n))

    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    found = {thread: [] for thread in range(threads)}
    for thread, n in db.query("SELECT * FROM s"):
        found[thread].append(n)
    assert found == {thread: list(range(2000)) for thread in range(threads)}


def test_reject_and_drop_oldest(db):
    db.execute("CREATE SOURCE r (n BIGINT) WITH (buffer_size = 10, backpressure = 'reject')")
    db.execute("CREATE SOURCE d (n BIGINT) WITH (buffer_size = 10, backpressure = 'drop_oldest')")
    rejecting, dropping = db.source("r"), db.source("d")
    taken = []
    for n in range(20_000):
        try:
            rejecting.push((n,))
        except errors.SourceFullError as error:
            assert error.hint
        else:
            taken.append(n)
        dropping.push((n,))
    assert [n for (n,) in db.query("SELECT n FROM r")] == taken
    kept = [n for (n,) in db.query("SELECT n FROM d")]
    assert len(kept) + dropping.dropped == 20_000
    assert kept == sorted(kept)
    assert kept[-1] == 19_999
    counted = db.metrics()["sources"]["d"]
    assert (counted["pushed"], counted["dropped"]) == (len(kept), dropping.dropped)


@pytest.mark.slow
def test_alter_while_batches_are_pushed(db):
    """A column comes while producers are at it: nothing is lost, nothing breaks."""
    db.execute("CREATE SOURCE s (n BIGINT)")
    stop = threading.Event()
    counts, failures = [], []

    def work(way):
        n = 0
        try:
            with db.source("s") as source:
                while not stop.is_set():
                    if way == 0:
                        source.push({"n": n})
                    elif way == 1:
                        source.push_batch([{"n": n}])
                    else:
                        db.insert("s", [{"n": n}])
                    n += 1
        except Exception as error:
            failures.append(error)
        counts.append(n)

    workers = [threading.Thread(target=work, args=(way,)) for way in range(3)]
    for worker in workers:
        worker.start()
    for column in range(5):
        db.execute(f"ALTER SOURCE s ADD COLUMN c{column} VARCHAR")
    stop.set()
    for worker in workers:
        worker.join(60)
    assert not failures
    assert len(db.query("SELECT n FROM s")) == sum(counts)

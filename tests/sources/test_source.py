"""A producer's handle, with a database behind it."""

from __future__ import annotations

import gc
import inspect
import pydoc
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    ObjectNotFoundError,
    RowError,
    SchemaMismatchError,
    SourceFullError,
    WrongObjectError,
)
from millstream.testing import TIMEOUT, Background, engine_of, inlet_of, paused, wait_until


@dataclass
class Trade:
    symbol: str
    price: float | None


Named = namedtuple("Named", ["price", "symbol"])  # noqa: PYI024 - users have such


@pytest.fixture
def trades(db):
    db.execute("CREATE SOURCE trades (symbol VARCHAR NOT NULL, price DOUBLE)")
    return db.source("trades")


def numbers(db, **options):
    """A source of numbers with some options."""
    given = ", ".join(f"{k} = {v!r}" for k, v in options.items())
    db.execute(f"CREATE SOURCE numbers (n BIGINT){f' WITH ({given})' if given else ''}")
    return db.source("numbers")


class TestPush:
    def test_takes_rows_of_every_shape(self, trades, rows):
        trades.push(("A", 1.5))
        trades.push(["B", 2])
        trades.push({"price": 3, "symbol": "C"})
        trades.push({"symbol": "D"})
        trades.push(Trade("E", 5.0))
        trades.push(Named(6.0, "F"))
        assert rows("trades") == [
            *[("A", 1.5), ("B", 2.0), ("C", 3.0), ("D", None), ("E", 5.0), ("F", 6.0)]
        ]

    @pytest.mark.parametrize(
        ("row", "column"),
        [
            ((None, 1.0), "symbol"),
            ((1, 1.0), "symbol"),
            (("A", "x"), "price"),
            ({"price": 1.0}, "symbol"),
            ({"symbol": "A", "prize": 1.0}, "prize"),
            (Trade("A", b"x"), "price"),
            (Named("x", "A"), "price"),
        ],
    )
    def test_a_value_that_does_not_fit_names_its_column(self, trades, rows, row, column):
        for push in (trades.push, trades.try_push, lambda row: trades.push_batch([("Z", 0), row])):
            with pytest.raises(RowError) as caught:
                push(row)
            assert caught.value.column == column
        assert rows("trades") == []
        assert trades.pending == 0

    def test_the_order_of_one_thread_is_kept(self, trades, rows):
        for n in range(50):
            trades.push((f"a{n}", None))
            trades.push_batch([(f"b{n}", None), (f"c{n}", None)])
            trades.push({"symbol": f"d{n}"})
        assert [row[0] for row in rows("trades")] == [
            f"{kind}{n}" for n in range(50) for kind in "abcd"
        ]

    def test_a_record_class_is_checked_at_once(self, db, trades, rows):
        handle = db.source("trades", Trade)
        handle.push(Trade("A", None))
        assert rows("trades") == [("A", None)]

        @dataclass
        class Wrong:
            symbol: int

        with pytest.raises(SchemaMismatchError, match="symbol"):
            db.source("trades", Wrong)
        assert trades.producer_count == 2

    def test_many_threads_lose_nothing(self, db, rows):
        source = numbers(db, buffer_size=16)

        def push(first):
            with source.clone() as mine:
                for n in range(first, first + 300):
                    mine.push((n,))

        pushing = [Background(push, first) for first in (0, 300, 600)]
        for each in pushing:
            each.result()
        got = [n for (n,) in rows("numbers")]
        assert sorted(got) == list(range(900))
        for first in (0, 300, 600):
            mine = [n for n in got if first <= n < first + 300]
            assert mine == sorted(mine)

    def test_there_must_be_such_a_source(self, db):
        db.execute("CREATE TABLE users (id BIGINT PRIMARY KEY)")
        with pytest.raises(ObjectNotFoundError, match="tradez"):
            db.source("tradez")
        with pytest.raises(WrongObjectError, match="table"):
            db.source("users")


class TestBatches:
    def test_are_one_commit(self, db, trades):
        subscription = db.subscribe("SELECT * FROM trades")
        assert trades.push_batch([("A", 1), {"symbol": "B"}, Trade("C", 2.0)]) == 3
        batch = subscription.recv(TIMEOUT)
        assert batch.rows == [("A", 1.0), ("B", None), ("C", 2.0)]

    def test_are_taken_whole_or_not_at_all(self, trades, rows):
        with pytest.raises(RowError) as caught:
            trades.push_batch([("A", 1.0), ("B", 1.0), ("C", "x"), (1, 1)])
        assert (caught.value.row, caught.value.column) == (2, "price")
        assert rows("trades") == []

    def test_may_come_from_a_generator_and_may_be_empty(self, trades, rows):
        assert trades.push_batch((f"s{n}", n) for n in range(10)) == 10
        assert trades.push_batch([]) == 0
        assert len(rows("trades")) == 10

    @pytest.mark.parametrize("data", [5, "ab", {"symbol": "A"}, None])
    def test_are_no_single_thing(self, trades, data):
        with pytest.raises(SchemaMismatchError):
            trades.push_batch(data)

    def test_the_list_stays_the_callers(self, db, trades, rows):
        given = [("A", 1.0)] * 10
        with paused(engine_of(db).dispatcher):
            trades.push_batch(given)
            given.clear()
        assert len(rows("trades")) == 10


class TestArrow:
    @pytest.mark.parametrize(
        "make",
        [
            pa.RecordBatch.from_pydict,
            pa.Table.from_pydict,
            lambda data: pa.Table.from_pydict(data).to_reader(),
            pd.DataFrame,
            pl.DataFrame,
            lambda data: pl.DataFrame(data).lazy().collect(),
        ],
        ids=["batch", "table", "reader", "pandas", "polars", "lazy"],
    )
    def test_every_shape_is_taken(self, trades, rows, make):
        assert trades.push_arrow(make({"price": [1.0, None], "symbol": ["A", "B"]})) == 2
        assert rows("trades") == [("A", 1.0), ("B", None)]

    def test_reaches_an_arrow_consumer_without_a_row(self, db, trades):
        subscription = db.subscribe("SELECT * FROM trades WHERE price > 0")
        trades.push_arrow(pa.table({"symbol": ["A", "B"], "price": [1.0, -1.0]}))
        batch = subscription.recv(TIMEOUT)
        assert batch.is_arrow
        assert batch._rows is None
        assert batch.arrow.to_pylist() == [{"symbol": "A", "price": 1.0}]

    def test_what_has_no_rows_is_nothing(self, db, trades):
        empty = pa.table({"symbol": pa.array([], pa.string()), "price": pa.array([], pa.float64())})
        assert trades.push_arrow(empty) == 0
        assert trades.push_arrow(empty.to_batches()[0] if empty.to_batches() else empty) == 0
        assert db.flush() == db.lsn

    @pytest.mark.parametrize(
        "data",
        [
            {"symbol": ["A"], "prize": [1.0]},
            {"symbol": ["A"], "price": ["x"]},
            {"price": [1.0]},
            {"symbol": ["A", None], "price": [1.0, 1.0]},
        ],
    )
    def test_what_does_not_fit_is_refused_whole(self, trades, rows, data):
        for make in (pa.RecordBatch.from_pydict, pa.Table.from_pydict):
            with pytest.raises(SchemaMismatchError):
                trades.push_arrow(make(data))
        assert rows("trades") == []

    def test_a_table_of_many_chunks_is_refused_for_its_last(self, trades, rows):
        good = pa.table({"symbol": ["A"], "price": [1.0]})
        bad = pa.table({"symbol": pa.array([None], pa.string()), "price": [1.0]})
        with pytest.raises(RowError) as caught:
            trades.push_arrow(pa.concat_tables([good, good, bad]))
        assert (caught.value.row, caught.value.column) == (2, "symbol")
        assert rows("trades") == []


class TestWatermark:
    NOW = datetime(2024, 5, 1, tzinfo=UTC)

    @pytest.fixture
    def source(self, db):
        db.execute(
            "CREATE SOURCE events (ts TIMESTAMP, n BIGINT, "
            "WATERMARK FOR ts AS ts - INTERVAL '1 second')"
        )
        return db.source("events")

    def test_follows_the_rows(self, db, source):
        assert source.current_watermark is None
        source.push((self.NOW, 1))
        source.flush()
        assert source.current_watermark == self.NOW - timedelta(seconds=1)
        source.push((self.NOW - timedelta(days=1), 2))
        source.flush()
        assert source.current_watermark == self.NOW - timedelta(seconds=1)

    def test_a_promise_is_seen_at_once_by_every_handle(self, db, source):
        other = source.clone()
        with paused(engine_of(db).dispatcher):
            source.watermark(self.NOW)
            assert source.current_watermark == other.current_watermark == self.NOW

    def test_a_promise_comes_after_the_rows_before_it(self, db, source):
        subscription = db.subscribe("SELECT n FROM events")
        with paused(engine_of(db).dispatcher):
            source.push((None, 1))
            source.watermark(self.NOW)
            source.push((None, 2))
        seen = []
        while sum(len(batch) for batch in seen) < 2:
            seen.append(subscription.recv(TIMEOUT))
        first = [row for batch in seen for row in batch.rows]
        assert first == [(1,), (2,)]
        marks = [batch.watermark for batch in seen if batch.watermark is not None]
        assert marks == [int(self.NOW.timestamp() * 1e6)]

    def test_an_older_one_has_no_effect(self, db, source):
        source.watermark(self.NOW)
        lsn = source.flush()
        source.watermark(self.NOW)
        source.watermark(self.NOW - timedelta(days=1))
        assert source.flush() == lsn
        assert source.current_watermark == self.NOW

    def test_may_be_microseconds(self, source):
        source.watermark(1_000_000)
        assert source.current_watermark == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)

    @pytest.mark.parametrize("bad", [None, "now", 1.5, True, 2**63, -(2**63), -(2**63) - 1])
    def test_must_be_a_time(self, db, source, bad):
        with pytest.raises(InvalidOptionError):
            source.watermark(bad)
        assert source.current_watermark is None
        source.push((self.NOW, 1))
        assert len(db.query("SELECT * FROM events")) == 1

    @pytest.mark.parametrize("good", [2**63 - 1, -(2**63) + 1])
    def test_may_be_as_far_as_64_bits_go(self, db, source, good):
        source.watermark(good)
        source.push((None, 1))
        assert len(db.query("SELECT * FROM events")) == 1

    def test_outlives_the_database(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE s (ts TIMESTAMP, WATERMARK FOR ts AS ts)")
            db.source("s").push((self.NOW,))
        with ms.open(tmp_path) as db:
            assert db.source("s").current_watermark == self.NOW

    def test_a_source_without_event_time_takes_promises(self, db):
        source = numbers(db)
        source.push((1,))
        source.flush()
        assert source.current_watermark is None
        source.watermark(self.NOW)
        assert source.current_watermark == self.NOW


class TestFull:
    """The dispatcher is held up, so that the buffer fills."""

    def test_block_waits_and_loses_nothing(self, db, dispatcher, rows):
        source = numbers(db, buffer_size=3)
        with paused(dispatcher):
            for n in range(3):
                source.push((n,))
            assert not source.has_capacity()
            assert source.pending == 3
            assert source.try_push((99,)) is False
            pushing = [Background(source.push, (3,)), Background(source.push_batch, [(4,), (5,)])]
            wait_until(lambda: len(inlet_of(source).waiters.asleep) == 2)
            assert source.pending == 3
        for each in pushing:
            each.result()
        assert sorted(rows("numbers")) == [(n,) for n in range(6)]
        assert source.has_capacity()

    def test_reject_raises_and_takes_nothing(self, db, dispatcher, rows):
        source = numbers(db, buffer_size=2, backpressure="reject")
        with paused(dispatcher):
            source.push((1,))
            source.push_batch([(2,), (3,)])
            for push in (
                lambda: source.push((9,)),
                lambda: source.push({"n": 9}),
                lambda: source.push_batch([(9,)]),
                lambda: source.push_arrow(pa.table({"n": [9]})),
            ):
                with pytest.raises(SourceFullError):
                    push()
            assert source.try_push((9,)) is False
        assert rows("numbers") == [(1,), (2,), (3,)]
        source.push((4,))
        assert rows("numbers")[-1] == (4,)

    def test_drop_oldest_keeps_the_newest_and_counts_the_others(self, db, dispatcher, rows):
        source = numbers(db, buffer_size=4, backpressure="drop_oldest")
        with paused(dispatcher):
            for n in range(20):
                source.push((n,))
        assert rows("numbers") == [(16,), (17,), (18,), (19,)]
        assert source.dropped == 16
        assert db.metrics()["sources"]["numbers"]["dropped"] == 16
        assert db.metrics()["sources"]["numbers"]["pushed"] == 4

    def test_drop_oldest_drops_batches_whole(self, db, dispatcher, rows):
        source = numbers(db, buffer_size=4, backpressure="drop_oldest")
        with paused(dispatcher):
            for n in range(0, 20, 2):
                source.push_batch([(n,), (n + 1,)])
        got = [n for (n,) in rows("numbers")]
        assert got == list(range(20))[-len(got) :]
        assert len(got) + source.dropped == 20
        assert len(got) % 2 == 0

    def test_a_kept_push_obeys_too(self, db, dispatcher, rows):
        source = numbers(db, buffer_size=2, backpressure="reject")
        push = source.push
        with paused(dispatcher):
            push((1,))
            push((2,))
            with pytest.raises(SourceFullError):
                push((3,))
        assert rows("numbers") == [(1,), (2,)]


class TestSync:
    def test_a_push_is_durable_when_it_returns(self, db):
        source = numbers(db, wal_mode="sync")
        log = engine_of(db).log
        for push in (
            lambda: source.push((1,)),
            lambda: source.push({"n": 2}),
            lambda: source.try_push((3,)),
            lambda: source.push_batch([(4,), (5,)]),
            lambda: source.push_arrow(pa.table({"n": [6]})),
            lambda: db.insert("numbers", [(7,)]),
        ):
            before = log.durable_lsn
            push()
            assert log.durable_lsn > before
            assert log.durable_lsn >= db.lsn
        assert [n for (n,) in db.query("SELECT * FROM numbers").fetchall()] == [1, 2, 3, 4, 5, 6, 7]

    def test_waits_for_the_dispatcher(self, db, dispatcher):
        source = numbers(db, wal_mode="sync")
        with paused(dispatcher):
            pushing = Background(source.push, (1,))
            wait_until(lambda: source.pending == 1)
            assert not pushing.is_done
        pushing.result()

    def test_a_bad_row_raises_at_once(self, db):
        source = numbers(db, wal_mode="sync")
        with pytest.raises(RowError):
            source.push(("x",))

    def test_a_wait_ends_when_the_source_is_dropped(self, db, dispatcher):
        """Pushed after the last look at the buffer and before the DROP: it is in no commit."""
        source = numbers(db, wal_mode="sync")
        pushing = []

        def push():
            pushing.append(Background(source.push, (1,)))
            wait_until(lambda: source.pending == 1)

        with paused(dispatcher):
            before = Background(dispatcher.call, push)
            wait_until(lambda: len(dispatcher.tasks) == 1)
            dropping = Background(db.execute, "DROP SOURCE numbers")
            wait_until(lambda: len(dispatcher.tasks) == 2)
        before.result()
        dropping.result()
        with pytest.raises(ClosedError):
            pushing[0].result()

    def test_many_wait_for_one_sync(self, db, rows):
        source = numbers(db, wal_mode="sync")
        pushing = [Background(source.push, (n,)) for n in range(20)]
        for each in pushing:
            each.result()
        assert sorted(rows("numbers")) == [(n,) for n in range(20)]


class TestHandles:
    def test_are_counted(self, db, trades):
        assert (trades.producer_count, trades.is_mpsc) == (1, False)
        other = trades.clone()
        assert (trades.producer_count, trades.is_mpsc) == (2, True)
        third = db.source("trades")
        assert third.producer_count == 3
        other.close()
        other.close()
        third.close()
        assert (trades.producer_count, trades.is_mpsc) == (1, False)

    def test_a_forgotten_one_is_counted_no_more(self, trades):
        other = trades.clone()
        assert trades.producer_count == 2
        del other
        gc.collect()
        assert trades.producer_count == 1

    def test_a_kept_push_keeps_its_handle(self, db, rows):
        db.execute("CREATE SOURCE s (n BIGINT)")
        push = db.source("s").push
        gc.collect()
        push((1,))
        push({"n": 2})
        assert rows("s") == [(1,), (2,)]

    def test_closing_one_leaves_the_others(self, trades, rows):
        other = trades.clone()
        push = trades.push
        trades.close()
        for use in (
            lambda: trades.push(("A", 1.0)),
            lambda: push(("A", 1.0)),
            lambda: push({"symbol": "A"}),
            lambda: trades.try_push(("A", 1.0)),
            lambda: trades.push_batch([("A", 1.0)]),
            lambda: trades.push_arrow(pa.table({"symbol": ["A"], "price": [1.0]})),
            lambda: trades.watermark(5),
            trades.clone,
        ):
            with pytest.raises(ClosedError):
                use()
        other.push(("B", 1.0))
        assert rows("trades") == [("B", 1.0)]

    def test_a_context_manager_closes_it(self, trades):
        with trades.clone() as other:
            other.push(("A", 1.0))
        with pytest.raises(ClosedError):
            other.push(("A", 1.0))
        assert trades.producer_count == 1

    def test_all_end_with_the_database(self):
        with ms.open() as db:
            source = numbers(db)
            push = source.push
        for each in (push, source.push, source.try_push):
            with pytest.raises(ClosedError):
                each((1,))
        with pytest.raises(ClosedError):
            source.flush()

    def test_all_end_when_the_source_is_dropped(self, db):
        source = numbers(db)
        push = source.push
        db.execute("DROP SOURCE numbers")
        for each in (push, source.push):
            with pytest.raises(ClosedError):
                each((1,))
        db.execute("CREATE SOURCE numbers (s VARCHAR)")
        db.source("numbers").push(("new",))
        assert db.query("SELECT * FROM numbers").fetchall() == [("new",)]

    def test_says_what_it_is(self, trades):
        assert trades.name == "trades"
        assert trades.schema.names == ("symbol", "price")
        assert "trades" in repr(trades)


class TestAlter:
    def test_open_handles_follow(self, db, trades, rows):
        trades.push(("A", 1.0))
        db.execute("ALTER SOURCE trades ADD COLUMN qty BIGINT")
        assert trades.schema.names == ("symbol", "price", "qty")
        trades.push(("B", 1.0, 5))
        trades.push({"symbol": "C"})
        with pytest.raises(RowError):
            trades.push(("D", 1.0))
        with pytest.raises(RowError) as caught:
            trades.push(("D", 1.0, "x"))
        assert caught.value.column == "qty"
        assert rows("trades") == [("A", 1.0, None), ("B", 1.0, 5), ("C", None, None)]

    @pytest.mark.parametrize("mode", ["async", "sync"])
    def test_a_kept_push_takes_old_and_new(self, db, rows, mode):
        source = numbers(db, wal_mode=mode)
        push = source.push
        db.execute("ALTER SOURCE numbers ADD COLUMN s VARCHAR")
        push((2, "b"))
        push({"n": 3, "s": "c"})
        if mode == "async":  # its own columns are checked by the push that was made for them
            push((1,))
            assert rows("numbers") == [(2, "b"), (3, "c"), (1, None)]
        else:
            assert rows("numbers") == [(2, "b"), (3, "c")]

    def test_a_kept_push_and_an_inline_callback(self, db):
        """A callback made after the ALTER gets all columns of a row pushed before it."""
        source, seen, errors = numbers(db), [], []
        push = source.push
        db.execute("ALTER SOURCE numbers ADD COLUMN s VARCHAR")
        db.subscribe_callback(
            "SELECT s, n FROM numbers",
            lambda b: seen.extend(b.rows),
            on_error=errors.append,
            inline=True,
        )
        push((1,))
        assert (seen, errors) == ([(None, 1)], [])

    @pytest.mark.parametrize("style", ["rows", "arrow"])
    def test_what_was_pushed_just_before_fits_the_queries_of_after(self, db, dispatcher, style):
        """A batch with the old columns, pushed between the last cut and the ALTER."""
        source = numbers(db)
        subscriptions = []

        def push():
            if style == "rows":
                source.push((1,))
                source.push_batch([(2,), (3,)])
            else:
                source.push_arrow(pa.table({"n": [1, 2, 3]}))

        def subscribe():
            subscriptions.append(db.subscribe("SELECT s, n FROM numbers WHERE s IS NULL"))

        with paused(dispatcher):
            doing = [Background(dispatcher.call, push)]
            wait_until(lambda: len(dispatcher.tasks) == 1)
            doing.append(Background(db.execute, "ALTER SOURCE numbers ADD COLUMN s VARCHAR"))
            wait_until(lambda: len(dispatcher.tasks) == 2)
            doing.append(Background(dispatcher.call, subscribe))
            wait_until(lambda: len(dispatcher.tasks) == 3)
        for each in doing:
            each.result()
        got = []
        while len(got) < 3:
            got += subscriptions[0].recv(TIMEOUT).rows
        assert got == [(None, 1), (None, 2), (None, 3)]
        assert db.query("SELECT s, n FROM numbers").fetchall() == got


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", ["waits for room", "flush() waits"]),
        ("backpressure = 'drop_oldest'", ["oldest rows in it are dropped"]),
        ("backpressure = 'reject', wal_mode = 'sync'", ["raises SourceFullError", "on the disk"]),
    ],
)
def test_help_says_what_a_push_takes_and_does(options, said):
    with ms.open() as db:
        options = f" WITH ({options})" if options else ""
        db.execute(f"CREATE SOURCE s (n BIGINT NOT NULL, x VARCHAR){options}")
        source = db.source("s")
        text = pydoc.plain(pydoc.render_doc(source.push))
        assert "push(row" in text
        for each in ["tuple (n, x)", "n BIGINT NOT NULL", "x VARCHAR", "RowError", *said]:
            assert each in text
        db.execute("ALTER SOURCE s ADD COLUMN more DOUBLE")
        assert "more DOUBLE" in source.push.__doc__
        assert inspect.signature(source.push).parameters.keys() == {"row"}


def test_push_of_many_rows_names_the_method_for_them():
    with ms.open() as db:
        db.execute("CREATE SOURCE s (n BIGINT, name VARCHAR)")
        push = db.source("s").push
        for rows in ([(1, "a"), (2, "b")], [(1, "a"), (2, "b"), (3, "c")], [{"n": 1}]):
            with pytest.raises(RowError) as caught:
                push(rows)
            assert "push_batch(rows)" in caught.value.hint

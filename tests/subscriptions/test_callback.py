"""Callbacks: on a thread of their own, or within the push."""

from __future__ import annotations

import logging
import threading

import pytest

import millstream as ms
from millstream.errors import (
    ExpressionError,
    InvalidOptionError,
    SubscriptionEndedError,
    WrongObjectError,
)
from millstream.model import ChangeBatch
from millstream.testing import TIMEOUT, Background, paused, wait_until


class Log:
    """Notes what it was called with, and by which threads."""

    def __init__(self, fail_on=()):
        self.rows, self.errors, self.completed = [], [], 0
        self.threads, self.fail_on = set(), set(fail_on)

    def on_change(self, batch):
        self.threads.add(threading.current_thread())
        self.rows += batch.rows
        for row in batch.rows:
            if row[0] in self.fail_on:
                raise ValueError(f"no {row[0]}")

    def on_error(self, error):
        self.errors.append(error)

    def on_complete(self):
        self.completed += 1

    def subscribe(self, db, sql, **options):
        return db.subscribe_callback(
            sql, self.on_change, on_error=self.on_error, on_complete=self.on_complete, **options
        )


class TestThread:
    def test_is_called_with_every_batch_in_order(self, db, source):
        log = Log()
        subscription = log.subscribe(db, "SELECT n FROM s WHERE n >= 0")
        for n in range(500):
            source.push((n, None))
        wait_until(lambda: len(log.rows) == 500)
        assert log.rows == [(n,) for n in range(500)]
        (thread,) = log.threads
        assert thread.name == f"millstream-callback-{subscription.id}"
        assert subscription.is_here() is False
        assert subscription.metrics.delivered == 500

    def test_no_thread_until_there_is_something(self, db, source):
        subscription = Log().subscribe(db, "SELECT n FROM s")
        assert subscription._thread is None
        source.push((1, None))
        wait_until(lambda: subscription._thread is not None)

    def test_begins_with_the_state_of_a_table(self, db, table):
        db.insert(table, [(1, "a")])
        log = Log()
        log.subscribe(db, "SELECT id FROM t")
        wait_until(lambda: log.rows == [(1,)])

    def test_need_not_be_kept(self, db, source):
        log = Log()
        log.subscribe(db, "SELECT n FROM s")
        source.push((1, None))
        wait_until(lambda: log.rows)

    def test_what_it_raises_is_passed_to_on_error_and_it_goes_on(self, db, source):
        log = Log(fail_on=[2])
        subscription = log.subscribe(db, "SELECT n FROM s", max_rows=1)
        source.push_batch([(1, None), (2, None), (3, None)])
        wait_until(lambda: len(log.rows) == 3)
        assert [str(error) for error in log.errors] == ["no 2"]
        assert subscription.metrics.errors == 1
        assert subscription.state == "active"

    def test_without_on_error_it_is_logged(self, db, source, caplog):
        done = threading.Event()

        def bad(batch):
            done.set()
            raise ValueError("oops")

        with caplog.at_level(logging.ERROR, "millstream.subscriptions"):
            subscription = db.subscribe_callback("SELECT n FROM s", bad)
            source.push((1, None))
            assert done.wait(TIMEOUT)
            wait_until(lambda: "SELECT n FROM s" in caplog.text)
        subscription.cancel()

    def test_an_on_error_that_raises_is_logged_too(self, db, source, caplog):
        calls = []

        def worse(error):
            calls.append(error)
            raise ValueError("worse")

        log = Log(fail_on=[1])
        with caplog.at_level(logging.ERROR, "millstream.subscriptions"):
            db.subscribe_callback("SELECT n FROM s", log.on_change, on_error=worse)
            source.push((1, None))
            source.push((2, None))
            wait_until(lambda: len(log.rows) == 2)
            wait_until(lambda: caplog.records)
        assert len(calls) == 1

    def test_a_slow_callback_does_not_delay_others(self, db, source):
        go, slow, quick = threading.Event(), [], Log()

        def wait(batch):
            go.wait(TIMEOUT)
            slow.extend(batch.rows)

        db.subscribe_callback("SELECT n FROM s", wait, buffer_rows=2)
        quick.subscribe(db, "SELECT n, t FROM s")
        for n in range(100):
            source.push((n, None))
        wait_until(lambda: len(quick.rows) == 100)
        assert slow == []
        go.set()
        wait_until(lambda: len(slow) == 100)
        assert slow == [(n,) for n in range(100)]

    def test_may_use_the_database(self, db, source):
        db.execute("CREATE SOURCE copy (n BIGINT)")
        db.subscribe_callback("SELECT n FROM s", lambda b: db.insert("copy", b.rows))
        source.push_batch([(1, None), (2, None)])
        wait_until(lambda: len(db.query("SELECT * FROM copy")) == 2)

    def test_pause_and_resume(self, db, source):
        log = Log()
        subscription = log.subscribe(db, "SELECT n FROM s")
        source.push((0, None))
        wait_until(lambda: log.rows == [(0,)])
        subscription.pause()
        source.push((1, None))
        db.flush()
        assert log.rows in ([(0,)], [(0,), (1,)])  # one that it was waiting for may still come
        seen = list(log.rows)
        source.push((2, None))
        db.flush()
        assert log.rows == seen
        subscription.resume()
        wait_until(lambda: log.rows == [(0,), (1,), (2,)])


class TestEnd:
    def test_complete_when_the_database_closes(self):
        log = Log()
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            log.subscribe(db, "SELECT * FROM s")
            idle = Log()
            idle.subscribe(db, "SELECT n FROM s WHERE n > 100")
            db.insert("s", [(n,) for n in range(10)])
        assert log.rows == [(n,) for n in range(10)]
        assert (log.completed, log.errors) == (1, [])
        assert (idle.rows, idle.completed) == ([], 1)

    def test_cancel_calls_neither_on_error_nor_on_complete(self, db, source):
        log = Log()
        subscription = log.subscribe(db, "SELECT n FROM s")
        source.push((1, None))
        wait_until(lambda: log.rows)
        subscription.cancel()
        assert subscription.join(TIMEOUT)
        source.push((2, None))
        db.flush()
        assert (log.rows, log.completed, log.errors) == ([(1,)], 0, [])

    def test_cancel_within_the_callback(self, db, source):
        seen = []

        def once(batch):
            seen.extend(batch.rows)
            subscription.cancel()

        subscription = db.subscribe_callback("SELECT n FROM s", once, max_rows=1)
        source.push_batch([(1, None), (2, None)])
        wait_until(lambda: subscription.state == "cancelled")
        assert subscription.join(TIMEOUT)
        assert seen == [(1,)]

    def test_an_error_that_ends_it_is_passed_to_on_error(self, db, source):
        log, other = Log(), Log()
        log.subscribe(db, "SELECT 1 / n AS q FROM s")
        other.subscribe(db, "SELECT n FROM s")
        source.push((0, None))
        wait_until(lambda: log.errors)
        assert isinstance(log.errors[0], ExpressionError)
        assert log.completed == 0
        db.execute("DROP SOURCE s")
        wait_until(lambda: other.errors)
        assert isinstance(other.errors[0], SubscriptionEndedError)
        assert other.rows == [(0,)]

    def test_what_on_complete_raises_is_passed_to_on_error(self):
        log = Log()

        def bad():
            raise ValueError("at the end")

        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            db.subscribe_callback(
                "SELECT * FROM s", log.on_change, on_error=log.on_error, on_complete=bad
            )
        assert [str(error) for error in log.errors] == ["at the end"]

    def test_closing_within_a_callback_does_not_wait_for_itself(self):
        db = ms.open()
        db.execute("CREATE SOURCE s (n BIGINT)")
        closed = threading.Event()

        def close(batch):
            db.close()
            closed.set()

        db.subscribe_callback("SELECT * FROM s", close)
        db.insert("s", [(1,)])
        assert closed.wait(TIMEOUT)


class TestInline:
    def test_is_called_within_the_push(self, db, source, dispatcher):
        log = Log()
        subscription = log.subscribe(db, "SELECT n * 2 AS m FROM s WHERE n > 1", inline=True)
        with paused(dispatcher):  # no other thread can have called it
            source.push((1, "a"))
            source.push((2, "b"))
            source.push({"n": 3})
            source.push_batch([(1, None), (4, None), (5, None)])
            assert log.rows == [(4,), (6,), (8,), (10,)]
        assert log.threads == {threading.current_thread()}
        assert (subscription.delivered, subscription.errors) == (4, 0)
        assert len(db.query("SELECT * FROM s")) == 6

    def test_batches_have_no_lsn_yet(self, db, source):
        seen = []
        db.subscribe_callback("SELECT * FROM s", seen.append, inline=True)
        source.push((1, "a"))
        source.push_batch([(2, "b"), (3, "c")])
        assert [(b.lsn, b.token) for b in seen] == [(0, "")] * len(seen)
        assert [b.rows for b in seen] == [[(1, "a")], [(2, "b"), (3, "c")]]
        db.flush()
        rows = [row for b in seen for row in b.rows]
        assert rows == [(1, "a"), (2, "b"), (3, "c")]
        # A batch is never changed after it was made, although the row has a place by now.
        assert [(b.lsn, b.token) for b in seen] == [(0, "")] * len(seen)

    def test_a_kept_push_calls_it_too(self, db, source):
        push, log = source.push, Log()
        push((0, None))
        subscription = log.subscribe(db, "SELECT n FROM s", inline=True)
        push((1, None))
        subscription.cancel()
        push((2, None))
        source.push((3, None))
        assert log.rows == [(1,)]
        assert db.query("SELECT n FROM s").fetchall() == [(0,), (1,), (2,), (3,)]

    def test_an_error_does_not_reach_the_pusher(self, db, source):
        log = Log(fail_on=[1])
        subscription = log.subscribe(db, "SELECT n FROM s", inline=True)
        quotient = Log()
        quotient.subscribe(db, "SELECT 1 / n AS q FROM s", inline=True)
        source.push((1, None))
        source.push((0, None))
        source.push_batch([(0, None)])
        assert [str(error) for error in log.errors] == ["no 1"]
        assert subscription.errors == 1
        assert [type(error) for error in quotient.errors] == [ExpressionError] * 2
        assert len(db.query("SELECT * FROM s")) == 3

    def test_it_is_not_called_with_a_row_that_the_buffer_dropped(self, db, dispatcher):
        db.execute("CREATE SOURCE r (n BIGINT) WITH (buffer_size = 1, backpressure = 'reject')")
        source, log = db.source("r"), Log()
        log.subscribe(db, "SELECT n FROM r", inline=True)
        with paused(dispatcher):
            source.push((1,))
            with pytest.raises(ms.errors.SourceFullError):
                source.push((2,))
            with pytest.raises(ms.errors.RowError):
                source.push(("x",))
        assert log.rows == [(1,)]

    def test_is_for_sources_and_has_no_options(self, db, source, table):
        with pytest.raises(WrongObjectError):
            db.subscribe_callback("SELECT * FROM t", print, inline=True)
        with pytest.raises(InvalidOptionError, match="buffer_rows"):
            db.subscribe_callback("SELECT * FROM s", print, inline=True, buffer_rows=5)

    def test_ends_with_the_database_and_is_listed(self):
        log, cancelled = Log(), Log()
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = log.subscribe(db, "SELECT n FROM s", inline=True)
            cancelled.subscribe(db, "SELECT n FROM s", inline=True).cancel()
            (row,) = db.query("SHOW SUBSCRIPTIONS").to_pylist()
            assert (row["style"], row["state"]) == ("inline", "active")
        assert subscription.state == "cancelled"
        assert (log.completed, cancelled.completed) == (1, 0)

    def test_several_pushers_call_it_at_once(self, db, source):
        """No lock is held: two pushers are in the callback at the same time."""
        meeting = threading.Barrier(2, timeout=TIMEOUT)
        db.subscribe_callback("SELECT n FROM s", lambda batch: meeting.wait(), inline=True)
        pushing = [Background(source.push, (n, None)) for n in range(2)]
        for each in pushing:
            each.result()
        assert not meeting.broken

    def test_others_see_a_batch_of_the_users_own_unchanged(self, db, source):
        batch = ChangeBatch.from_rows(source.schema, [(1, "a")])
        log = Log()
        log.subscribe(db, "SELECT * FROM s", inline=True)
        db.insert("s", batch)
        assert log.rows == [(1, "a")]
        assert batch.lsn == 0

"""What ``millstream.testing`` gives to tests: above all, that it fails when it should."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

import millstream as ms
from millstream.errors import ClosedError
from millstream.model import ChangeBatch, Schema
from millstream.model.change import Gap
from millstream.testing import (
    TIMEOUT,
    Background,
    ManualClock,
    Mirror,
    database,
    engine_of,
    paused,
    wait_until,
)

SCHEMA = Schema.of(key=("id",), id="BIGINT", v="VARCHAR")
TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)"
SOURCE = "CREATE SOURCE s (n BIGINT)"


def batch(lsn, rows, weights=None):
    """Changes as a subscriber gets them, the first with this LSN."""
    made = ChangeBatch.from_rows(SCHEMA, rows, weights=weights)
    return made.placed("t", lsn, committed_at=0, origin=(UUID(int=1), 1))


class TestMirror:
    def test_adds_up_inserts_updates_and_deletes(self):
        mirror = Mirror()
        mirror.apply(batch(1, [(1, "a"), (2, "b"), (2, "b")]))
        mirror.apply(batch(4, [(1, "a"), (1, "c"), (2, "b")], [-1, 1, -1]))
        assert sorted(mirror.fetchall()) == [(1, "c"), (2, "b")]
        assert mirror.changes == 5

    def test_fails_on_a_delete_of_a_row_that_is_not_there(self):
        mirror = Mirror()
        mirror.apply(batch(1, [(1, "a")]))
        with pytest.raises(AssertionError, match=r"a delete of a row that is not there: \(2"):
            mirror.apply(batch(2, [(2, "b")], [-1]))

    def test_fails_on_a_second_delete_of_the_same_row(self):
        mirror = Mirror()
        mirror.apply(batch(1, [(1, "a"), (1, "a")], [1, -1]))
        with pytest.raises(AssertionError, match="not there"):
            mirror.apply(batch(3, [(1, "a")], [-1]))

    def test_fails_on_an_update_that_changes_nothing(self):
        mirror = Mirror()
        mirror.apply(batch(1, [(1, "a")]))
        with pytest.raises(AssertionError, match="changes nothing"):
            mirror.apply(batch(2, [(1, "a"), (1, "a")], [-1, 1]))

    def test_fails_on_a_commit_that_is_delivered_twice(self):
        mirror, once = Mirror(), batch(1, [(1, "a"), (2, "b")])
        mirror.apply(once)
        with pytest.raises(AssertionError, match="LSN 1 comes twice"):
            mirror.apply(once)
        with pytest.raises(AssertionError, match="LSN 2 comes twice"):
            mirror.apply(batch(2, [(3, "c")]))

    def test_fails_on_a_gap(self):
        with pytest.raises(AssertionError, match="rows were dropped"):
            Mirror().apply(batch(5, [(1, "a")]).copy(gap=Gap(1, 4, 4)))

    def test_fails_on_two_rows_of_one_key(self):
        with database(SOURCE) as db:
            mirror = Mirror(db.subscribe("SELECT n, n % 2 AS odd FROM s"), key_columns=1)
            db.insert("s", [(1,), (2,)])
            assert mirror.catch_up(db).fetchall() == [(1, 1), (2, 0)]
            db.insert("s", [(2,)])
            with pytest.raises(AssertionError, match=r"\(2,\)"):
                mirror.catch_up(db)

    def test_resumes_at_its_token(self):
        with database(TABLE) as db:
            mirror = Mirror(db.subscribe("SELECT * FROM t"), key_columns=1)
            db.insert("t", [(1, "a"), (2, "b")])
            mirror.catch_up(db)
            db.execute("DELETE FROM t WHERE id = 1")
            resumed = db.subscribe("SELECT * FROM t", start=mirror.token)
            assert mirror.follow(resumed).catch_up(db).fetchall() == [(2, "b")]

    def test_without_a_subscription_it_cannot_catch_up(self):
        with database() as db, pytest.raises(ValueError, match="apply"):
            Mirror().catch_up(db)


class TestWaitUntil:
    def test_returns_the_first_true_value(self):
        values = iter([0, "", None, [3]])
        assert wait_until(lambda: next(values)) == [3]

    def test_fails_with_what_was_awaited(self):
        with pytest.raises(AssertionError, match=r"^rain did not come true within 0\.01 seconds$"):
            wait_until(lambda: False, "rain", timeout=0.01)

    def test_the_text_is_made_when_the_time_is_up(self):
        seen = []

        def condition():
            seen.append(1)
            return False

        with pytest.raises(AssertionError) as caught:
            wait_until(condition, lambda: f"after {len(seen)} looks it", timeout=0)
        assert str(caught.value).startswith(f"after {len(seen)} looks it did not")

    def test_an_error_of_the_condition_is_raised(self):
        with pytest.raises(ZeroDivisionError):
            wait_until(lambda: 1 // 0)


class TestBackground:
    def test_gives_what_the_function_returns(self):
        call = Background(lambda *args, **options: (args, options), 1, two=2)
        assert call.result() == ((1,), {"two": 2})
        assert call.is_done

    def test_raises_what_the_function_raises(self):
        call = Background(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            call.result()
        assert isinstance(call.error, ZeroDivisionError)

    def test_fails_when_the_function_does_not_end(self):
        go = threading.Event()
        call = Background(go.wait)
        with pytest.raises(AssertionError, match=r"still runs after 0\.01 seconds"):
            call.result(timeout=0.01)
        assert not call.is_done
        go.set()
        assert call.result()


class TestDatabase:
    def test_is_closed_and_gone_afterwards(self):
        with database(SOURCE, "INSERT INTO s VALUES (1)") as db:
            path = db.path
            assert path.exists()
            assert db.query("SELECT * FROM s").fetchall() == [(1,)]
        with pytest.raises(ClosedError):
            db.query("SELECT * FROM s")
        assert not path.exists()

    def test_is_closed_when_the_test_fails(self):
        opened = []

        def fail():
            with database() as db:
                opened.append(db)
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        with pytest.raises(ClosedError):
            opened[0].query("SHOW SOURCES")

    def test_with_a_path_it_stays(self, tmp_path):
        with database(SOURCE, path=tmp_path / "db") as db:
            db.insert("s", [(1,)])
        with ms.open(tmp_path / "db") as again:
            assert again.query("SELECT * FROM s").fetchall() == [(1,)]


class TestPaused:
    def test_nothing_is_committed_within(self):
        with database(SOURCE) as db:
            subscription, source = db.subscribe("SELECT * FROM s"), db.source("s")
            with paused(engine_of(db).dispatcher):
                before = db.lsn
                source.push((1,))
                flushing = Background(db.flush)
                wait_until(lambda: engine_of(db).dispatcher.tasks)
                assert not flushing.is_done
                assert (db.lsn, source.pending) == (before, 1)
                assert subscription.try_recv() is None
            assert flushing.result() > before
            assert subscription.recv(60).rows == [(1,)]

    def test_it_ends_when_the_block_raises(self):
        def fail():
            with paused(engine_of(db).dispatcher):
                raise KeyError

        with database(SOURCE) as db:
            with pytest.raises(KeyError):
                fail()
            assert db.insert("s", [(1,)]) == 1


def test_commits_have_the_time_of_the_clock():
    clock = ManualClock(5_000_000)
    with database(SOURCE, clock=clock) as db:
        subscription = db.subscribe("SELECT n FROM s")
        db.insert("s", [(1,)])
        assert subscription.recv(timeout=TIMEOUT).committed_at == 5_000_000
        clock.advance(2_000_000)
        db.insert("s", [(2,)])
        assert subscription.metrics.lag_seconds == 0.0
        assert subscription.recv(timeout=TIMEOUT).committed_at == 7_000_000
        clock.advance(60_000_000)
        assert len(db.query("SHOW CHANGES FOR s SINCE INTERVAL '61 seconds'").fetchall()) == 1

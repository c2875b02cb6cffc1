"""Reading a view that does not count yet what was committed before the read."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT, Background, engine_of, wait_until


@pytest.fixture
def db():
    with ms.open() as opened:
        opened.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES (1, 10);"
            "CREATE SOURCE s (n BIGINT);"
            "CREATE MATERIALIZED VIEW v AS SELECT id, n FROM t WHERE n > 0"
        )
        opened.wait_for("v", timeout=TIMEOUT)
        yield opened


@contextmanager
def held(db, name="v"):
    """A view that takes nothing in."""
    with engine_of(db).views[name].view._working:
        yield


@pytest.fixture
def late(db):
    """A view that is late by one row, as long as the test runs, or until ``release`` is called."""
    working = engine_of(db).views["v"].view._working
    working.acquire()
    db.execute("INSERT INTO t VALUES (2, 20)")

    def release():
        if working.locked():
            working.release()

    yield release
    release()


def waits(db):
    return bool(engine_of(db).relations.readiness._waiting)


QUERIES = [
    "SELECT id FROM v ORDER BY id",
    "SELECT id FROM v",
    "SELECT t.id FROM t JOIN v ON v.id = t.id ORDER BY t.id",
]


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("method", ["query", "execute"])
def test_a_read_waits(db, late, sql, method):
    read = Background(getattr(db, method), sql)
    wait_until(lambda: waits(db))
    late()
    result = read.result()
    assert (result.fetchall(), result.catching_up) == ([(1,), (2,)], ())
    assert not waits(db)


@pytest.mark.parametrize("sql", QUERIES)
def test_the_time_is_up(db, late, sql):
    with pytest.raises(errors.ViewNotReadyError, match="v has not processed") as caught:
        db.query(sql, timeout=0.01)
    assert "stale_ok=True" in caught.value.hint
    stale = db.query(sql, stale_ok=True)
    assert (stale.fetchall(), stale.catching_up) == ([(1,)], ("v",))
    with pytest.raises(errors.InvalidOptionError):
        db.query(sql, timeout=-1)
    assert db.query("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_commit_that_is_not_of_its_inputs_is_not_waited_for(db):
    with held(db):
        db.insert("s", [(1,)])
        db.execute("CREATE TABLE other (id BIGINT PRIMARY KEY); INSERT INTO other VALUES (1)")
        assert db.query("SELECT id FROM v", timeout=0.0).fetchall() == [(1,)]


def test_through_views(db, late):
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT n FROM v WHERE id > 1")
    with pytest.raises(errors.ViewNotReadyError, match="v, which it reads, is late"):
        db.query("SELECT * FROM w", timeout=0.01)
    read = Background(db.query, "SELECT * FROM w")
    begun = db.subscribe("SELECT * FROM w")
    wait_until(lambda: waits(db))
    late()
    assert read.result().fetchall() == [(20,)]
    assert begun.recv(TIMEOUT).rows == [(20,)]


def test_as_of_does_not_wait(db, late):
    assert db.query(f"SELECT id FROM v AS OF {db.lsn - 1}").fetchall() == [(1,)]


def test_a_tenant_waits(db):
    db.execute(
        "CREATE TABLE mine (id BIGINT, org VARCHAR, PRIMARY KEY (org, id)) WITH (tenant = 'org');"
        "CREATE MATERIALIZED VIEW own AS SELECT id, org FROM mine WHERE id > 0 "
        "WITH (tenant = 'org')"
    )
    with held(db, "own"):
        db.execute("INSERT INTO mine VALUES (1, 'a')")
        with db.session(tenant="a") as a, pytest.raises(errors.ViewNotReadyError):
            a.query("SELECT id FROM own", timeout=0.01)


class TestTheEndOfAWait:
    def test_interrupted(self, db, late):
        read = Background(db.query, QUERIES[0])
        wait_until(lambda: waits(db))
        relations = engine_of(db).relations
        for thread in list(relations.readiness._waiting):
            relations.interrupt(thread)
        with pytest.raises(errors.QueryTimeoutError):
            read.result()

    def test_the_view_is_dropped(self, db, late):
        read = Background(db.query, QUERIES[0])
        wait_until(lambda: waits(db))
        dropping = Background(db.execute, "DROP VIEW v")
        wait_until(lambda: engine_of(db).views["v"].view._is_stopping)
        late()
        dropping.result()
        try:
            assert read.result().fetchall() == [(1,), (2,)]  # it was ready just before
        except errors.ObjectNotFoundError as error:
            assert "v" in str(error)

    def test_the_view_is_replaced(self, db, late):
        read = Background(db.query, QUERIES[0])
        wait_until(lambda: waits(db))
        replacing = Background(
            db.execute, "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, n FROM t WHERE n > 15"
        )
        wait_until(lambda: engine_of(db).views["v"].view._is_stopping)
        late()
        replacing.result()
        assert read.result().fetchall() in ([(2,)], [(1,), (2,)])  # of the new one, or the old one

    def test_the_view_fails(self, db, late):
        read = Background(db.query, QUERIES[0])
        wait_until(lambda: waits(db))
        error = errors.ViewFailedError("it is broken", view="v")
        engine_of(db).views["v"].view.progress.failed(error, hopeless=True)
        with pytest.raises(errors.ViewFailedError, match="it is broken"):
            read.result()

    def test_the_database_closes(self, db, late):
        read = Background(db.query, QUERIES[0])
        wait_until(lambda: waits(db))
        closing = Background(db.close)
        with pytest.raises(errors.ClosedError):
            read.result()
        late()
        closing.result()


class TestSubscriptions:
    def test_the_snapshot_comes_when_the_view_is_there(self, db, late):
        subscription = db.subscribe("SELECT id FROM v")
        assert subscription.try_recv() is None
        with pytest.raises(TimeoutError):
            subscription.recv(timeout=0.01)
        late()
        batch = subscription.recv(TIMEOUT)
        assert (batch.kind, sorted(batch.rows)) == ("snapshot", [(1,), (2,)])
        db.execute("INSERT INTO t VALUES (3, 30)")
        assert subscription.recv(TIMEOUT).rows == [(3,)]

    def test_now_does_not_wait(self, db, late):
        subscription = db.subscribe("SELECT id FROM v", start="now")
        late()
        batch = subscription.recv(TIMEOUT)
        assert (batch.kind, batch.rows) == ("changes", [(2,)])

    def test_what_is_committed_meanwhile_comes_once(self, db, late):
        seen = []
        callback = db.subscribe_callback("SELECT id FROM v", lambda batch: seen.extend(batch.rows))
        channel = db.subscribe("SELECT id FROM v", max_rows=1, max_delay=0.001)
        late()
        db.insert("t", [(n, n) for n in range(3, 50)])
        wait_until(lambda: len(seen) >= 49)
        assert sorted(seen) == [(n,) for n in range(1, 50)]
        assert sorted(row for _ in range(49) for row in channel.recv(TIMEOUT).rows) == sorted(seen)
        callback.cancel()

    def test_a_stream_does_not_block_the_loop(self, db, late):
        async def main():
            subscription = db.subscribe_stream("SELECT id FROM v")
            first = asyncio.ensure_future(subscription.recv(TIMEOUT))
            await asyncio.sleep(0)
            assert not first.done()
            late()
            return (await first).rows

        assert sorted(asyncio.run(main())) == [(1,), (2,)]

    def test_cancelled_before_its_snapshot(self, db, late):
        subscription = db.subscribe("SELECT id FROM v")
        subscription.cancel()
        late()
        db.wait_for("v", timeout=TIMEOUT)
        with pytest.raises(errors.ClosedError):
            subscription.recv(TIMEOUT)

    def test_the_view_is_dropped(self, db, late):
        subscription = db.subscribe("SELECT id FROM v")
        late()
        db.execute("DROP VIEW v")
        with pytest.raises(errors.SubscriptionEndedError):
            while True:
                subscription.recv(TIMEOUT)

    def test_a_durable_one(self, db, late):
        subscription = db.subscribe("SELECT id FROM v", name="n")
        subscription.cancel()
        late()
        with db.subscribe("SELECT id FROM v", name="n") as again:
            assert sorted(again.recv(TIMEOUT).rows) == [(1,), (2,)]

"""DDL beside DDL: one order for all of it, and errors of ours for who comes too late."""

from __future__ import annotations

import itertools
import shutil
import threading

import pytest

import millstream as ms
from millstream.engine.consistency import inconsistencies
from millstream.log import Log
from millstream.subscriptions.position_rows import DurablePosition
from millstream.testing import TIMEOUT, Background, database, engine_of, wait_until
from millstream.views.snapshot_rows import rows_at

ROUNDS = 30


@pytest.fixture
def db(tmp_path):
    with database("CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT)", path=tmp_path / "db") as made:
        yield made


def at_once(*calls):
    """What some calls return, or raise as an error of ours, that begin at the same time."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait()
        try:
            return call()
        except ms.Error as error:
            return error

    return [each.result() for each in [Background(run, call) for call in calls]]


def held_until(db, name, monkeypatch, statement):
    """Run a statement that has planned a view when something else is done, and creates it then."""
    planned, go = threading.Event(), threading.Event()
    plan = engine_of(db).views.plan

    def slow(*args):
        found = plan(*args)
        if not planned.is_set():
            planned.set()
            assert go.wait(TIMEOUT)
        return found

    monkeypatch.setattr(engine_of(db).views, "plan", slow)
    creating = Background(db.execute, statement)
    assert planned.wait(TIMEOUT), name
    return creating, go


def names(db):
    return {name for (name, *_) in db.query("SHOW VIEWS").fetchall()}


# ---- who comes too late


def test_a_view_is_never_created_over_one_that_is_dropped(db):
    """Whichever is first: w and v exist, or the one that came second is refused."""
    for _ in range(ROUNDS):
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
        created, dropped = at_once(
            lambda: db.execute("CREATE MATERIALIZED VIEW w AS SELECT id, y FROM v WHERE y > 3"),
            lambda: db.execute("DROP VIEW v"),
        )
        if isinstance(dropped, ms.Error):
            assert isinstance(dropped, ms.errors.InUseError)
            assert names(db) == {"v", "w"}
            db.execute("DROP VIEW v CASCADE")
        else:
            assert isinstance(created, ms.errors.ObjectNotFoundError)
        assert names(db) == set()
        assert not inconsistencies(engine_of(db))


def test_a_view_that_was_planned_over_a_dropped_one_is_not_created(db, monkeypatch):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
    creating, go = held_until(db, "w", monkeypatch, "CREATE MATERIALIZED VIEW w AS SELECT y FROM v")
    db.execute("DROP VIEW v")
    go.set()
    with pytest.raises(ms.errors.ObjectNotFoundError, match="'v'"):
        creating.result()
    assert names(db) == set()


def test_a_view_is_planned_again_over_what_was_replaced_or_altered(db, monkeypatch):
    db.execute("INSERT INTO t VALUES (1, 10)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
    creating, go = held_until(db, "w", monkeypatch, "CREATE MATERIALIZED VIEW w AS SELECT * FROM v")
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id, x + 1 AS z, 'new' AS n FROM t")
    go.set()
    creating.result()
    monkeypatch.undo()
    db.wait_for("w", timeout=TIMEOUT)
    assert db.query("SELECT * FROM w").to_pylist() == [{"id": 1, "z": 11, "n": "new"}]
    creating, go = held_until(db, "a", monkeypatch, "CREATE MATERIALIZED VIEW a AS SELECT * FROM t")
    db.execute("ALTER TABLE t ADD COLUMN more BIGINT")
    go.set()
    creating.result()
    db.wait_for("a", timeout=TIMEOUT)
    assert db.query("SELECT * FROM a").to_pylist() == [{"id": 1, "x": 10, "more": None}]


def test_a_replaced_view_that_is_dropped_meanwhile_is_created(db, monkeypatch):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    replace = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT x FROM t"
    creating, go = held_until(db, "v", monkeypatch, replace)
    db.execute("DROP VIEW v")
    go.set()
    creating.result()
    assert db.schema("v").names == ("x",)


def test_a_replaced_view_whose_input_is_dropped_is_not_replaced(db, monkeypatch):
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
    replace = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id FROM u"
    creating, go = held_until(db, "v", monkeypatch, replace)
    db.execute("DROP TABLE u")
    go.set()
    with pytest.raises(ms.errors.ObjectNotFoundError, match="'u'"):
        creating.result()
    assert names(db) == {"v"}
    assert not inconsistencies(engine_of(db))


@pytest.mark.parametrize("kind", ["MATERIALIZED VIEW", "STREAM"])
def test_a_view_replaced_by_several_at_once_is_that_of_the_last(db, kind):
    db.execute("INSERT INTO t VALUES (1, 10)")
    create = f"CREATE OR REPLACE {kind} v AS SELECT x + {{}} AS y FROM t"
    for n in range(ROUNDS // 3):
        made = [create.format(10 * n + i) for i in range(3)]
        found = at_once(*(lambda sql=sql: db.execute(sql) for sql in made))
        assert not [each for each in found if isinstance(each, ms.Error)]
        db.wait_for("v", timeout=TIMEOUT)
        ((y,),) = db.query("SELECT y FROM v").fetchall()
        assert y - 10 in range(10 * n, 10 * n + 3)
        assert not inconsistencies(engine_of(db))


def test_drop_if_exists_by_several_at_once(db):
    for _ in range(ROUNDS):
        db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM t")
        found = at_once(
            *[lambda: db.execute("DROP TABLE IF EXISTS u")] * 3,
            *[lambda: db.execute("DROP VIEW IF EXISTS v")] * 3,
        )
        assert not [each for each in found if isinstance(each, ms.Error)]


def test_create_if_not_exists_by_several_at_once(db):
    create = "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT id FROM t"
    for _ in range(ROUNDS):
        found = at_once(*[lambda: db.execute(create)] * 3)
        assert not [each for each in found if isinstance(each, ms.Error)]
        db.execute("DROP VIEW v")


def test_readers_beside_drop_get_errors_of_ours(db):
    """They are served, are ended, or do not find it; nothing else, and nothing is left over."""

    def subscribe():
        with db.subscribe("SELECT * FROM v") as subscription:
            while True:
                subscription.recv(timeout=TIMEOUT)

    ended = (ms.errors.SubscriptionEndedError, ms.errors.ObjectNotFoundError)
    for _ in range(ROUNDS):
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
        reading, asking, waiting, showing, dropped = at_once(
            subscribe,
            lambda: db.query("SELECT * FROM v").fetchall(),
            lambda: db.wait_for("v", timeout=TIMEOUT),
            lambda: db.query("SHOW VIEWS").fetchall(),
            lambda: db.execute("DROP VIEW v"),
        )
        assert isinstance(reading, ended)
        missing = (ms.errors.ObjectNotFoundError, ms.errors.TopicNotFoundError)
        assert asking == [] or isinstance(asking, missing)
        assert isinstance(waiting, int | ms.errors.ObjectNotFoundError)
        assert isinstance(showing, list)
        assert not isinstance(dropped, ms.Error)


@pytest.mark.parametrize("are_held", [True, False])
def test_a_view_that_begins_beside_alter_reads_the_columns_that_it_knows(db, monkeypatch, are_held):
    """Its first rows are of the columns that the table had when it began to read them."""
    storage, before = engine_of(db).views.storage, db.schema("t")
    db.execute("INSERT INTO t VALUES (1, 10)")
    db.execute("ALTER TABLE t ADD COLUMN more BIGINT")
    db.execute("INSERT INTO t VALUES (2, 20, 30)")
    monkeypatch.setattr(storage, "schema_of", lambda _: before)
    if not are_held:
        monkeypatch.setattr(storage, "table_rows", lambda _: None)
    found = list(rows_at(storage, "t", db.flush(), lambda: None))
    assert sorted(row for batch in found for row in batch.rows) == [(1, 10), (2, 20)]


def test_a_view_that_begins_reads_the_columns_that_it_needs(db):
    """All of them where rows are told apart by them, since the table has changed meanwhile."""
    storage = engine_of(db).views.storage
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, a BIGINT, b VARCHAR)")
    db.execute("INSERT INTO u VALUES (1, 10, 'x'), (2, 20, 'y')")
    then = db.flush()
    (batch,) = rows_at(storage, "u", then, lambda: None, ["a"])
    assert (batch.schema.names, batch.rows) == (("a",), [(10,), (20,)])
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT id, a, b FROM u WHERE id > 0")
    db.wait_for("w")
    (batch,) = rows_at(storage, "w", db.flush(), lambda: None, ["b"])
    assert (batch.schema.names, sorted(batch.rows)) == (("b",), [("x",), ("y",)])
    db.execute("DELETE FROM u WHERE id = 1")
    db.flush()
    rows = [row for batch in rows_at(storage, "u", then, lambda: None, ["a"]) for row in batch.rows]
    assert sorted(rows) == [(1, 10, "x"), (2, 20, "y")]


def test_a_durable_subscription_to_what_was_dropped_leaves_nothing(db):
    positions = engine_of(db).positions
    with pytest.raises(ms.errors.TopicNotFoundError):
        positions.open(DurablePosition("d", "SELECT * FROM gone", "gone", None, 0))
    assert not positions.all()
    db.execute("DROP SUBSCRIPTION IF EXISTS d")


# ---- waiting


def test_a_statement_says_for_whom_it_waits(tmp_path):
    with ms.open(tmp_path / "db", ddl_timeout=0.01) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with engine_of(db).catalog.ddl.held("CREATE MATERIALIZED VIEW w"):
            waiting = Background(db.execute, "DROP TABLE t")
            with pytest.raises(ms.errors.DdlTimeoutError) as caught:
                waiting.result()
        assert caught.value.code == "DDL_TIMEOUT"
        assert "DROP TABLE t waits for CREATE MATERIALIZED VIEW w, running for" in str(caught.value)
        db.execute("DROP TABLE t")


def test_a_timeout_that_is_none_is_refused(tmp_path):
    with pytest.raises(ms.errors.InvalidOptionError, match="ddl_timeout"):
        ms.open(tmp_path / "db", ddl_timeout=-1)


# ---- the log


@pytest.mark.parametrize("kind", ["MATERIALIZED VIEW", "STREAM"])
def test_a_view_that_is_replaced_is_there_after_a_crash_at_any_step(tmp_path, monkeypatch, kind):
    """The directory as it is before and after each step, as a kill would leave it."""
    copies, numbers, path = [], itertools.count(), tmp_path / "db"

    def copy():
        copies.append(tmp_path / f"copy-{next(numbers)}")
        shutil.copytree(path, copies[-1])

    def around(method):
        def call(self, *args, **options):
            copy()
            try:
                return method(self, *args, **options)
            finally:
                copy()

        return call

    with ms.open(path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT)")
        db.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
        db.execute(f"CREATE {kind} v AS SELECT id, x AS y FROM t")
        db.wait_for("v", timeout=TIMEOUT)
        db.flush()
        copy()
        with monkeypatch.context() as patch:
            for name in ("create_topic", "drop_topic"):
                patch.setattr(Log, name, around(getattr(Log, name)))
            db.execute(f"CREATE OR REPLACE {kind} v AS SELECT id, x + 1 AS y FROM t")
        copy()
    seen = []
    for each in copies:
        with ms.open(each) as db:
            assert not inconsistencies(engine_of(db))
            db.wait_for("v", timeout=TIMEOUT)
            rows = sorted(y for (y,) in db.query("SELECT y FROM v").fetchall())
            assert rows in ([10, 20], [11, 21])
            seen.append(rows[0] - 10)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}


def test_durable_subscriptions_to_a_replaced_stream_begin_anew(db):
    db.execute("CREATE STREAM v AS SELECT id FROM t")
    with db.subscribe("SELECT * FROM v", name="durable") as durable:
        db.execute("INSERT INTO t VALUES (1, 10)")
        durable.ack(durable.recv(timeout=TIMEOUT))
        db.execute("CREATE OR REPLACE STREAM v AS SELECT x FROM t")
        with pytest.raises(ms.errors.SubscriptionEndedError, match="v was replaced"):
            durable.recv(timeout=TIMEOUT)
    wait_until(lambda: not engine_of(db).registry.all())
    with db.subscribe("SELECT * FROM v", name="durable") as durable:
        assert durable.recv(timeout=TIMEOUT).gap is not None

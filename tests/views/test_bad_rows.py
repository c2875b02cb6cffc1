"""A row without a value fails a view in this process, until the row is corrected or deleted."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import ExpressionError, ViewFailedError
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Schema
from millstream.sql import parse, plan_select
from millstream.testing import TIMEOUT, Mirror, engine_of
from millstream.views.failures import BadRows

from ..seed import SEED  # noqa: TID252

MAKE = """
    CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT);
    CREATE MATERIALIZED VIEW v AS SELECT id, 100 / x AS y FROM t"""


@pytest.fixture
def db(tmp_path):
    with ms.open(tmp_path / "db") as opened:
        yield opened


def failed(db, view="v"):
    with pytest.raises(ViewFailedError) as caught:
        db.wait_for(view, timeout=TIMEOUT)
    return caught.value


def rows(db, view="v"):
    """The rows of a view that has taken in all that was committed."""
    db.wait_for(view, timeout=TIMEOUT)
    return Counter(db.query(f"SELECT * FROM {view}").fetchall())


def shown(db, view="v"):
    return next(each for each in db.query("SHOW VIEWS").to_pylist() if each["name"] == view)


@pytest.mark.parametrize(
    ("correction", "after"),
    [
        ("UPDATE t SET x = 4 WHERE id = 2", [(1, 20.0), (2, 25.0)]),
        ("DELETE FROM t WHERE id = 2", [(1, 20.0)]),
        ("INSERT OR REPLACE INTO t VALUES (2, 4)", [(1, 20.0), (2, 25.0)]),
    ],
)
def test_a_correction_of_the_row_corrects_the_view(db, correction, after):
    db.execute(MAKE)
    db.insert("t", [(1, 5)])
    assert rows(db) == Counter([(1, 20.0)])
    db.insert("t", [(2, 0)])
    error = failed(db)
    assert (error.view, error.topic, error.key) == ("v", "t", (2,))
    db.flush()
    [bad] = [each for batch in engine_of(db).log.read("t") for each in batch if each.row[1] == 0]
    assert error.lsn == bad.lsn
    assert "id=2 of t" in error.message
    assert "UPDATE or DELETE" in error.hint
    assert (shown(db)["state"], shown(db)["restarts"]) == ("failed", 0)
    with pytest.raises(ViewFailedError):
        db.query("SELECT * FROM v")
    db.execute(correction)
    assert Counter(db.query("SELECT * FROM v").fetchall()) == Counter(after)  # at once
    assert rows(db) == Counter(after)
    assert (shown(db)["state"], shown(db)["restarts"]) == ("live", 1)
    assert shown(db)["error"] is None
    db.insert("t", [(3, 1)])
    assert rows(db) == Counter([*after, (3, 100.0)])


def test_subscriptions_end_with_the_row_and_new_ones_begin_when_it_is_corrected(db):
    db.execute(MAKE)
    db.insert("t", [(1, 5)])
    rows(db)
    before = db.subscribe("SELECT * FROM v")
    assert before.recv(timeout=TIMEOUT).rows == [(1, 20.0)]
    db.insert("t", [(2, 0)])
    with pytest.raises(ViewFailedError) as ended:
        before.recv(timeout=TIMEOUT)
    assert ended.value.key == (2,)
    with pytest.raises(ViewFailedError):
        db.subscribe("SELECT * FROM v")
    db.execute("UPDATE t SET x = 50 WHERE id = 2")
    mirror = Mirror(db.subscribe("SELECT * FROM v"))
    db.execute("DELETE FROM t WHERE id = 1")
    rows(db)
    assert mirror.catch_up(db).rows == Counter([(2, 2.0)])


def test_all_bad_rows_have_to_go_and_readers_get_the_one_that_is_left(db):
    db.execute(MAKE)
    db.insert("t", [(1, 0), (2, 5), (3, 0)])
    assert failed(db).key == (1,)
    db.execute("UPDATE t SET x = 1 WHERE id = 1")
    assert failed(db).key == (3,)
    db.insert("t", [(4, 0)])
    assert failed(db).key == (3,)
    db.execute("DELETE FROM t WHERE x = 0")
    assert rows(db) == Counter([(1, 100.0), (2, 20.0)])


def test_commits_elsewhere_leave_the_error_as_it_is(db):
    db.execute(MAKE + "; CREATE TABLE other (id BIGINT PRIMARY KEY)")
    db.insert("t", [(1, 0)])
    failed(db)
    db.insert("other", [(1,)])
    assert failed(db).key == (1,)


def test_what_was_committed_meanwhile_is_one_change(db):
    db.execute(MAKE)
    db.insert("t", [(1, 5)])
    rows(db)
    db.insert("t", [(2, 0)])
    failed(db)
    for n in range(3, 30):
        db.insert("t", [(n, 1)])
        db.execute(f"UPDATE t SET x = 2 WHERE id = {n}")
    db.execute("DELETE FROM t WHERE id IN (1, 2)")
    assert rows(db) == Counter([(n, 50.0) for n in range(3, 30)])
    db.flush()
    last = list(engine_of(db).log.read("v"))[1:]
    assert len(last) == 1
    assert Counter(last[0].weights) == Counter({1: 27, -1: 1})


def test_a_view_over_rows_that_are_there_begins_when_they_have_values(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT)")
    db.insert("t", [(1, 0), (2, 5)])
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, 100 / x AS y FROM t")
    assert failed(db).key == (1,)
    db.execute("UPDATE t SET x = 10 WHERE id = 1")
    assert rows(db) == Counter([(1, 10.0), (2, 20.0)])


def test_views_over_it_go_on_with_it(db):
    db.execute(MAKE)
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT id, y * 2 AS z FROM v WHERE y > 0")
    db.execute("CREATE STREAM s AS SELECT id, 100 / x AS y FROM t")
    db.insert("t", [(1, 5)])
    assert rows(db, "w") == Counter([(1, 40.0)])
    changes = db.subscribe("SELECT * FROM w")
    assert changes.recv(timeout=TIMEOUT).rows == [(1, 40.0)]
    db.insert("t", [(2, 0)])
    assert failed(db, "w").view == "v"
    assert failed(db, "s").view == "s"
    with pytest.raises(ViewFailedError, match="the view v failed"):
        db.query("SELECT * FROM w")
    assert db.query("SELECT * FROM w", stale_ok=True).fetchall() == [(1, 40.0)]
    db.execute("UPDATE t SET x = 50 WHERE id = 2")
    assert rows(db, "w") == Counter([(1, 40.0), (2, 4.0)])
    assert changes.recv(timeout=TIMEOUT).rows == [(2, 4.0)]  # it has stayed open
    db.wait_for("s", timeout=TIMEOUT)
    assert shown(db, "w")["state"] == "live"


@pytest.mark.parametrize("when", ["before it is closed", "after it was opened"])
@pytest.mark.parametrize(
    "correction", ["UPDATE t SET x = 4 WHERE id = 2", "DELETE FROM t WHERE id = 2"]
)
def test_opened_again(tmp_path, when, correction):
    with ms.open(tmp_path / "db") as db:
        db.execute(MAKE)
        db.insert("t", [(1, 5)])
        rows(db)
        db.insert("t", [(2, 0)])
        failed(db)
        if when == "before it is closed":
            db.execute(correction)
    with ms.open(tmp_path / "db") as db:
        if when == "after it was opened":
            assert failed(db).key == (2,)
            db.execute(correction)
        assert rows(db) == Counter(db.query("SELECT id, 100 / x AS y FROM t").fetchall())
    with ms.open(tmp_path / "db") as db:
        assert rows(db) == Counter(db.query("SELECT id, 100 / x AS y FROM t").fetchall())
        assert shown(db)["state"] == "live"


def test_a_row_of_a_source_stays(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (id BIGINT, x BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, 100 / x AS y FROM s")
        db.insert("s", [(1, 5), (2, 0)])
        error = failed(db)
        assert (error.topic, error.key) == ("s", None)
        assert "id=2, x=0 of s" in error.message
        assert "A row of a source stays" in error.hint
    with ms.open(tmp_path / "db") as db:
        db.insert("s", [(3, 1)])
        assert failed(db).lsn == error.lsn
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT id FROM s WHERE x > 0")
        assert rows(db) == Counter([(1,), (3,)])


def test_a_tenant_fails_a_shared_view_until_its_row_is_gone(db):
    db.execute(
        """CREATE TABLE t (tenant VARCHAR NOT NULL, id BIGINT, x BIGINT, PRIMARY KEY (tenant, id))
        WITH (tenant = 'tenant');
        CREATE MATERIALIZED VIEW v WITH (tenant = 'tenant') AS
        SELECT tenant, id, 100 / x AS y FROM t"""
    )
    acme, evil = db.session(tenant="acme"), db.session(tenant="evil")
    acme.execute("INSERT INTO t VALUES ('acme', 1, 10)")
    evil.execute("INSERT INTO t VALUES ('evil', 7777, 0)")
    assert failed(db).key == ("evil", 7777)
    with pytest.raises(ViewFailedError) as caught:
        acme.query("SELECT * FROM v")
    assert (caught.value.topic, caught.value.lsn, caught.value.key) == (None, None, None)
    assert "7777" not in str(caught.value)
    evil.execute("DELETE FROM t WHERE id = 7777")
    assert acme.query("SELECT * FROM v").fetchall() == [("acme", 1, 10.0)]


def test_at_random_it_is_what_the_query_gives(tmp_path):
    """Statements that bring bad rows and take them away, and now and then the database closes."""
    draw = random.Random(SEED)
    query = "SELECT id, 100 / x AS y FROM t WHERE id % 5 <> 4"
    db = ms.open(tmp_path / "db")
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for _ in range(150):
        key = draw.randrange(8)
        db.execute(
            draw.choice(
                [
                    f"INSERT OR REPLACE INTO t VALUES ({key}, {draw.randrange(3)})",
                    f"UPDATE t SET x = {draw.randrange(3)} WHERE id >= {key}",
                    f"DELETE FROM t WHERE id = {key}",
                    "UPDATE t SET x = 2 WHERE x = 0",
                ]
            )
        )
        try:
            expected = Counter(db.query(query).fetchall())
        except ExpressionError:
            if draw.random() < 0.5:
                assert failed(db).topic == "t"
        else:
            assert rows(db) == expected
        if draw.random() < 0.1:
            db.close()
            db = ms.open(tmp_path / "db")
    db.close()


def test_rows_with_a_value_that_python_cannot_hold_are_split_as_others():
    schema = Schema.of(d="DATE", x="BIGINT")
    query = "SELECT d, 100 / x AS y FROM t WHERE d > DATE '2020-01-01'"
    bad = BadRows(plan_select(parse(query)[0], schema))
    days, divisors = pa.array([4_000_000, 0, 4_000_000, 30_000], pa.date32()), [5, 0, 0, 4]
    data = pa.RecordBatch.from_arrays([days, pa.array(divisors)], schema=schema.arrow)
    batch = ChangeBatch(schema, None, data, None)
    good, others = bad.split(batch.placed("t", 10, committed_at=1, origin=None))
    assert good.arrow.column("y").to_pylist() == [20.0, 25.0]
    assert good.arrow.column("d").equals(days.take(pa.array([0, 3])))
    assert others.arrow.equals(data.slice(2, 1))
    bad.add(others)
    assert bad.first()[0].lsn == 12


def test_rows_are_split_wherever_the_bad_ones_are():
    schema = Schema.of(id="BIGINT", x="BIGINT")
    bad = BadRows(plan_select(parse("SELECT id, 100 / x AS y FROM t")[0], schema))
    draw = random.Random(SEED)
    found = [(n, draw.choice([0, 1, 2])) for n in range(200)]
    batch = ChangeBatch.from_rows(schema, found).placed("t", 10, committed_at=1, origin=None)
    good, others = bad.split(batch)
    assert good.rows == [(n, 100 / x) for n, x in found if x]
    assert others.rows == [(n, x) for n, x in found if not x]
    assert list(others.lsns) == [10 + n for n, x in found if not x]
    bad.add(others)
    gone = [row for row in others.rows if row[0] != others.rows[3][0]]
    bad.add(ChangeBatch.from_rows(schema, gone, weights=[-1] * len(gone)))
    assert len(bad) == 1
    row, error = bad.first()
    assert row.lsn == others.lsns[3]
    assert error.message == "division by zero"

"""``change.cause`` and ``db.cause``: what led to a change of a view, without Spark."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.errors import (
    InvalidOptionError,
    LsnNotKeptError,
    ObjectNotFoundError,
    TenantError,
    WrongObjectError,
)
from millstream.testing import TIMEOUT, database, engine_of, wait_until

SETUP = (
    "CREATE SOURCE s (n BIGINT)",
    "CREATE TABLE t (k INT PRIMARY KEY, n BIGINT)",
    "CREATE MATERIALIZED VIEW large AS SELECT n * 2 AS m FROM s WHERE n > 5",
    "CREATE MATERIALIZED VIEW larger AS SELECT m FROM large WHERE m > 50",
    "CREATE MATERIALIZED VIEW of_t AS SELECT n FROM t",
)


@pytest.fixture
def db():
    with database(*SETUP) as made:
        yield made


def recv(subscription):
    return list(subscription.recv(timeout=TIMEOUT))


def rows(cause):
    return {name: [change.row for change in changes] for name, changes in cause.items()}


def test_the_rows_of_the_commit_and_no_others(db):
    large = db.subscribe("SELECT * FROM large", start="now")
    for values in ([(1,), (7,)], [(2,)], [(8,), (9,)]):
        db.insert("s", values)
        db.wait_for("large", timeout=TIMEOUT)
        for change in recv(large) if values != [(2,)] else ():
            assert rows(db.cause(change)) == {"s": values}
            assert db.cause(change)["s"][-1].lsn == change.cause


def test_through_views_over_views(db):
    larger = db.subscribe("SELECT * FROM larger", start="now")
    db.insert("s", [(1,), (7,), (30,)])
    [change] = recv(larger)
    assert rows(db.cause(change)) == {"s": [(1,), (7,), (30,)]}
    assert change.cause > max(each.lsn for each in db.cause(change)["s"])  # of the view in between


def test_of_tables_with_their_ops(db):
    of_t = db.subscribe("SELECT * FROM of_t", start="now")
    db.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    recv(of_t)
    db.execute("UPDATE t SET n = 21 WHERE k = 2")
    change = recv(of_t)[-1]
    [update] = db.cause(change)["t"]
    assert (update.op, update.before, update.row) == ("update", (2, 20), (2, 21))
    assert db.cause(update) == {"t": [update]}  # it has no other cause
    assert db.cause(update.lsn) == {"t": [update]}


def test_on_the_change_bus_and_by_lsn(db):
    bus = db.changes("large")
    db.insert("s", [(1,), (7,)])
    event = bus.recv(timeout=TIMEOUT)
    assert event.cause == db.cause(event)["s"][-1].lsn
    assert db.cause(event) == db.cause(event.lsn)
    assert rows(db.cause(event)) == {"s": [(1,), (7,)]}


def test_in_batches_that_were_merged_each_change_has_its_own(db):
    slow = db.subscribe("SELECT * FROM large", start="now")
    for n in range(10, 20):
        db.insert("s", [(n,)])
        db.flush()
        db.wait_for("large", timeout=TIMEOUT)
    changes = recv(slow)
    assert len(changes) == 10
    for change in changes:
        assert rows(db.cause(change)) == {"s": [(change.row[0] // 2,)]}
        assert change.cause == db.cause(change)["s"][0].lsn


def test_read_from_the_log_and_after_a_restart(tmp_path):
    with database(*SETUP, path=tmp_path / "db") as db:
        for values in ([(1,), (7,)], [(8,)], [(2,), (9,)]):
            db.insert("s", values)
            db.flush()
            db.wait_for("large", timeout=TIMEOUT)
    with ms.open(tmp_path / "db") as db:
        earliest = db.subscribe("SELECT * FROM large", start="earliest")
        changes = []
        while len(changes) < 3:
            changes += recv(earliest)
        assert [rows(db.cause(each))["s"] for each in changes] == [
            [(1,), (7,)],
            [(8,)],
            [(2,), (9,)],
        ]
        assert [each.cause for each in changes] == sorted({each.cause for each in changes})


def test_conflated_changes_have_the_cause_of_the_last(db):
    conflated = db.subscribe("SELECT * FROM t", start="now", backpressure="conflate")
    db.execute("INSERT INTO t VALUES (1, 10)")
    db.execute("UPDATE t SET n = 11")
    [change] = recv(conflated)
    assert change.cause == 0
    assert [each.row for each in db.cause(change)["t"]] == [(1, 11)]


def test_a_row_of_a_snapshot_has_no_cause(db):
    db.insert("s", [(7,)])
    db.wait_for("large", timeout=TIMEOUT)
    [row] = recv(db.subscribe("SELECT * FROM large"))
    assert row.cause == 0
    with pytest.raises(WrongObjectError, match="a snapshot of large"):
        db.cause(row)


def test_what_retention_has_removed(db):
    large = db.subscribe("SELECT * FROM large", start="now")
    db.insert("s", [(7,)])
    [change] = recv(large)
    assert rows(db.cause(change)) == {"s": [(7,)]}
    db.insert("s", [(8,)])
    [later] = recv(large)
    db.flush()
    db.wait_for("large", timeout=TIMEOUT)
    log = engine_of(db).log
    log.trim("s", later.cause)
    wait_until(lambda: log.topic("s").low_lsn > change.cause, "the trim")
    with pytest.raises(LsnNotKeptError, match="rows of s that led to the change") as raised:
        db.cause(change)
    assert "retention of s" in raised.value.hint
    assert rows(db.cause(later)) == {"s": [(8,)]}


def test_where_the_change_before_it_is_not_kept(db):
    of_t = db.subscribe("SELECT * FROM of_t", start="now")
    changes = []
    for n in range(3):
        db.execute(f"INSERT INTO t VALUES ({n}, {n})")
        changes += recv(of_t)
    db.wait_for("of_t", timeout=TIMEOUT)
    log = engine_of(db).log
    engine_of(db).views["of_t"].view.recent.clear()  # as after a restart
    assert rows(db.cause(changes[1])) == {"t": [(1, 1)]}
    log.trim("of_t", changes[1].lsn)
    wait_until(lambda: log.topic("of_t").low_lsn == changes[1].lsn, "the trim")
    with pytest.raises(LsnNotKeptError, match="rows of of_t"):
        db.cause(changes[1])  # where it begins is not known: it is not all of t
    assert rows(db.cause(changes[2])) == {"t": [(2, 2)]}


def test_what_is_no_change_is_refused(db):
    for wrong in (0, -1, "large", None, 1.5, True):
        with pytest.raises(InvalidOptionError, match="expected a change with an LSN"):
            db.cause(wrong)
    with pytest.raises(ObjectNotFoundError, match="no LSN 1,000 yet"):
        db.cause(1000)
    with db.session(tenant="acme") as session, pytest.raises(TenantError):
        session.cause(1)

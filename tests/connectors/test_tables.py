"""Changes of rows by key, as another system reports them: what a table and its readers see."""

import time
from typing import ClassVar

import pytest

from millstream.connectors import (
    TRUNCATE,
    UNCHANGED,
    Delivery,
    SourceConnector,
    SourceReader,
    delete,
    register,
    unregister,
    upsert,
)
from millstream.model import Column, parse_type
from millstream.testing import Mirror, database, wait_until


class Given(SourceConnector):
    """Delivers what a test gives."""

    name = "test-given"
    kinds = ("source", "table")
    deliveries: ClassVar[list] = []

    def open(self, position):
        return GivenReader(position or 0)


class GivenReader(SourceReader):
    def __init__(self, place):
        self._place = place

    def read(self, timeout):
        if self._place < len(Given.deliveries):
            self._place += 1
            return Given.deliveries[self._place - 1](self._place)
        time.sleep(min(timeout, 0.002))
        return None


@pytest.fixture
def db():
    Given.deliveries = []
    register(Given)
    with database(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR, big VARCHAR) "
        "WITH (connector = 'test-given')"
    ) as db:
        yield db
    unregister(Given)


def deliver(db, *changes, rows=(), **more):
    """Deliver, and wait until it is there."""
    Given.deliveries.append(
        lambda place: Delivery(rows=rows, changes=changes, position=place, **more)
    )
    count = len(Given.deliveries)

    def shown():
        return db.query("SHOW CONNECTORS").to_pylist()[0]

    wait_until(
        lambda: shown()["batches"] == count or shown()["state"] == "failed",
        lambda: f"delivery {count}: {shown()}",
    )
    return shown()


def rows(db):
    return sorted(db.query("SELECT * FROM t").fetchall())


def test_changes_by_key(db):
    mirror = Mirror(db.subscribe("SELECT * FROM t"), key_columns=1)
    deliver(db, upsert((1, "a", "x")), upsert((2, "b", "y")), upsert((3, "c", "z")))
    deliver(db, upsert((1, "A", UNCHANGED)), delete((2,)), delete((99,)))
    assert rows(db) == [(1, "A", "x"), (3, "c", "z")]
    deliver(db, upsert((4, "moved", UNCHANGED), (1,)), upsert((4, "moved on", UNCHANGED)))
    assert rows(db) == [(3, "c", "z"), (4, "moved on", "x")]
    assert sorted(mirror.catch_up(db).fetchall()) == rows(db)


def test_a_transaction_is_one_commit_of_net_changes(db):
    deliver(db, upsert((1, "a", "x")), upsert((2, "b", "y")))
    subscription = db.subscribe("SELECT * FROM t", start="now")
    deliver(
        db,
        upsert((1, "b", "x")),
        upsert((1, "c", "x")),
        upsert((5, "e", None)),
        delete((5,)),
        upsert((2, "b", "y")),
    )
    (change,) = subscription.recv(10)
    assert (change.op, change.before, change.row) == ("update", (1, "a", "x"), (1, "c", "x"))
    assert subscription.try_recv() is None


def test_truncate_and_a_new_snapshot_are_one_step(db):
    deliver(db, upsert((1, "a", "x")), upsert((2, "b", "y")))
    subscription = db.subscribe("SELECT * FROM t", start="now")
    deliver(db, TRUNCATE, upsert((2, "b", "y")), upsert((3, "c", "z")))
    changes = {(change.op, change.row) for change in subscription.recv(10)}
    assert changes == {("delete", (1, "a", "x")), ("insert", (3, "c", "z"))}
    deliver(db, TRUNCATE)
    assert rows(db) == []


def test_a_value_that_nobody_has_fails_it(db):
    shown = deliver(db, upsert((1, "a", UNCHANGED)))
    assert shown["state"] == "failed"
    assert "was not sent" in shown["error"]
    assert rows(db) == []


def test_a_row_that_does_not_fit_fails_it(db):
    deliver(db, upsert((1, "a", "x")))
    shown = deliver(db, upsert(("one", "a", "x")))
    assert shown["state"] == "failed"
    assert "'id'" in shown["error"]
    assert rows(db) == [(1, "a", "x")]


def test_columns_that_the_outside_has_got(db):
    deliver(db, upsert((1, "a", "x")))
    column = Column("more", parse_type("INTEGER"))
    deliver(db, upsert((2, "b", "y", 7)), upsert((1, "a", "x")), new_columns=[column])
    assert rows(db) == [(1, "a", "x", None), (2, "b", "y", 7)]
    deliver(db, upsert((3, "c", "z", 8)), new_columns=[column])
    assert len(rows(db)) == 3


def test_rows_of_a_snapshot_are_upserts(db):
    schema_rows = [(n, f"v{n}", None) for n in range(1000)]
    deliver(db, rows=schema_rows)
    deliver(db, rows=schema_rows[:10])
    assert rows(db) == schema_rows


def test_changes_of_a_source_are_refused(db):
    db.execute("CREATE SOURCE s (id BIGINT) WITH (connector = 'test-given')")
    Given.deliveries.append(lambda place: Delivery(changes=[delete((1,))], position=place))
    states = {"s": None}

    def state():
        states.update((each["name"], each) for each in db.query("SHOW CONNECTORS").to_pylist())
        return states["s"]["state"]

    wait_until(lambda: state() == "failed", "it fails")
    assert "a source has no keys" in states["s"]["error"]

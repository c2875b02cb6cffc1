"""Subscriptions whose queries need a hidden view, beside the DROP of what they read."""

from __future__ import annotations

import threading

import pytest

import millstream as ms
from millstream.engine.consistency import inconsistencies
from millstream.testing import TIMEOUT, Background, database, engine_of, wait_until

pytestmark = pytest.mark.slow

ROUNDS = 4
COUNTS = "SELECT y % 2 AS k, COUNT(*) AS n FROM v GROUP BY y % 2"
ENDED = (ms.errors.SubscriptionEndedError, ms.errors.ObjectNotFoundError)


@pytest.fixture
def db(tmp_path, spark):
    table = "CREATE TABLE t (id BIGINT PRIMARY KEY, x BIGINT); INSERT INTO t VALUES (1, 10)"
    with database(table, path=tmp_path / "db", spark=spark) as made:
        yield made


def follow(db, subscribed):
    """Read until the subscription ends; returns the error."""
    try:
        with db.subscribe(COUNTS) as subscription:
            subscribed.set()
            while True:
                subscription.recv(timeout=TIMEOUT)
    except ms.Error as error:
        return error
    finally:
        subscribed.set()


def check_nothing_left(db):
    """No hidden view, no topic of one, nothing that does not fit."""
    wait_until(lambda: not list(engine_of(db).views))
    assert not inconsistencies(engine_of(db))


@pytest.mark.parametrize("after", ["at once", "subscribed"])
def test_a_subscription_beside_drop_ends(db, after):
    for _ in range(ROUNDS):
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
        subscribed = threading.Event()
        following = [Background(follow, db, subscribed) for _ in range(3)]
        if after == "subscribed":
            assert subscribed.wait(TIMEOUT)
        db.execute("DROP VIEW v CASCADE")
        for each in following:
            error = each.result()
            assert isinstance(error, ENDED), error
        check_nothing_left(db)


def test_a_subscription_that_was_planned_over_a_dropped_view_is_refused(db, monkeypatch):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
    planned, go, views = threading.Event(), threading.Event(), engine_of(db).views
    plan = views.plan

    def slow(*args):
        found = plan(*args)
        planned.set()
        assert go.wait(TIMEOUT)
        return found

    monkeypatch.setattr(views, "plan", slow)
    following = Background(follow, db, threading.Event())
    assert planned.wait(TIMEOUT)
    db.execute("DROP VIEW v")
    go.set()
    assert isinstance(following.result(), ms.errors.ObjectNotFoundError)
    check_nothing_left(db)


def test_identical_queries_that_come_at_once_share_a_hidden_view(db):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x AS y FROM t")
    opened = [each.result() for each in [Background(db.subscribe, COUNTS) for _ in range(5)]]
    [hidden] = [each for each in engine_of(db).views if each.view.name != "v"]
    assert hidden.users == 5
    with pytest.raises(ms.errors.InUseError, match="a query that is subscribed to"):
        db.execute("DROP VIEW v")
    for each in opened:
        each.cancel()
    wait_until(lambda: len(list(engine_of(db).views)) == 1)
    db.execute("DROP VIEW v")
    check_nothing_left(db)


def test_what_a_view_being_built_reads_is_in_use(db):
    """DROP names CREATE OR REPLACE; with CASCADE it ends it."""
    db.execute(
        "CREATE TABLE u (id BIGINT PRIMARY KEY); CREATE MATERIALIZED VIEW w AS SELECT id FROM t"
    )
    replace = "CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT COUNT(*) AS n FROM u"
    replacing = Background(db.execute, replace)
    wait_until(lambda: any(each.planned.inputs == ("u",) for each in engine_of(db).views))
    with pytest.raises(ms.errors.InUseError, match="w"):
        db.execute("DROP TABLE u")
    db.execute("DROP TABLE u CASCADE")
    try:
        replacing.result()
    except ms.errors.ObjectNotFoundError:  # the old one is as it was
        assert db.schema("w").names == ("id",)
    else:  # it was done just before
        assert "w" not in engine_of(db).catalog
    assert not inconsistencies(engine_of(db))

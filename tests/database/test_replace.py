"""CREATE OR REPLACE MATERIALIZED VIEW, without Spark: the old one serves until the new one can."""

from __future__ import annotations

from collections import Counter

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Mirror, database, engine_of

SETUP = (
    "CREATE SOURCE s (k INT, n BIGINT)",
    "CREATE TABLE t (k INT PRIMARY KEY, n BIGINT)",
    "CREATE MATERIALIZED VIEW v AS SELECT n FROM s WHERE n > 5",
)


@pytest.fixture
def db(tmp_path):
    with database(*SETUP, path=tmp_path / "db") as made:
        yield made


def rows(db, name="v"):
    db.wait_for(name, timeout=TIMEOUT)
    return sorted(db.query(f"SELECT * FROM {name}").fetchall())


def test_the_new_one_has_all_rows_when_the_statement_returns(db):
    db.insert("s", [(1, 5), (2, 50)])
    assert rows(db) == [(50,)]
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, n * 2 AS m FROM s WHERE n < 10")
    assert db.query("SELECT * FROM v").fetchall() == [(1, 10)]
    db.insert("s", [(3, 7), (4, 70)])
    assert rows(db) == [(1, 10), (3, 14)]
    assert not [each for each in engine_of(db).log.topics if each.startswith("__query_")]
    with db.subscribe("SELECT * FROM v", start="earliest") as subscription:
        assert Mirror(subscription).catch_up(db).rows == Counter([(1, 10), (3, 14)])


def test_it_is_there_after_a_restart(tmp_path):
    with database(*SETUP, path=tmp_path / "db") as db:
        db.execute("INSERT INTO t VALUES (1, 1), (2, 2); DELETE FROM t WHERE k = 1")
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t")
        assert db.query("SELECT * FROM v").fetchall() == [(2,)]
    with ms.open(tmp_path / "db") as db:
        assert rows(db) == [(2,)]
        db.execute("DELETE FROM t")
        assert rows(db) == []


def test_its_rows_come_in_one_commit(db):
    db.insert("s", [(n, n) for n in range(10)])
    assert len(rows(db)) == 4
    bus = db.changes("v")
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n + 100 AS n FROM s")
    with pytest.raises(ms.errors.SubscriptionEndedError, match="v was replaced"):
        bus.recv(timeout=TIMEOUT)
    with db.subscribe("SELECT * FROM v", start="earliest") as subscription:
        batch = subscription.recv(timeout=TIMEOUT)
    assert sorted(batch.rows) == [(n + 100,) for n in range(10)]


def test_durable_subscriptions_begin_anew(db):
    durable = db.subscribe("SELECT * FROM v", name="billing")
    db.insert("s", [(1, 10), (2, 20)])
    assert durable.recv(timeout=TIMEOUT).rows == []  # the snapshot
    durable.ack(durable.recv(timeout=TIMEOUT))
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n + 1 AS n FROM s")
    with pytest.raises(ms.errors.SubscriptionEndedError, match="v was replaced"):
        durable.recv(timeout=TIMEOUT)
    again = db.subscribe("SELECT * FROM v", name="billing")
    batch = again.recv(timeout=TIMEOUT)
    assert (batch.kind, sorted(batch.rows)) == ("snapshot", [(11,), (21,)])
    assert batch.gap is not None
    again.ack(batch)
    db.insert("s", [(3, 30)])
    assert again.recv(timeout=TIMEOUT).rows == [(31,)]
    again.cancel()
    db.execute("DROP VIEW v")
    assert not db.query("SHOW SUBSCRIPTIONS").fetchall()


def test_one_that_others_read_is_not_replaced(db):
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT n FROM v")
    for kind in ("MATERIALIZED VIEW", "STREAM"):
        with pytest.raises(ms.errors.InUseError, match="v is read by w") as caught:
            db.execute(f"CREATE OR REPLACE {kind} v AS SELECT k FROM s")
        assert caught.value.hint == "DROP VIEW w first"  # CASCADE would be a syntax error
    db.insert("s", [(1, 10)])
    assert rows(db) == [(10,)]


def test_a_stream_and_a_view_replace_each_other(db):
    db.insert("s", [(1, 10)])
    db.execute("CREATE OR REPLACE STREAM v AS SELECT k FROM s")
    assert rows(db) == [(1,)]
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n FROM s")
    assert rows(db) == [(10,)]

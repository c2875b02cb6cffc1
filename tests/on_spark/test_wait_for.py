"""wait_for: the view's query runs, and has taken in everything."""

from __future__ import annotations

import threading

import pytest

import millstream as ms
from millstream.testing import TIMEOUT
from millstream.views.run.query import SparkQuery

from .observing import runner_of


def test_a_view_that_begins_now_without_newer_rows(db):
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
    db.insert("s", [("old", 1)])
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k WITH (start = 'now')"
    )
    db.wait_for("v", timeout=TIMEOUT)
    assert runner_of(db, "v").state == "live"
    assert db.query("SELECT * FROM v").fetchall() == []
    db.insert("s", [("new", 2)])
    db.wait_for("v", timeout=TIMEOUT)
    assert db.query("SELECT * FROM v").fetchall() == [("new", 2)]


def test_a_view_that_has_not_started_is_waited_for(tmp_path, spark):
    """After opening again its rows are all there; its query is not, for a while."""
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
        db.insert("s", [("a", 1)])
        db.wait_for("v", timeout=TIMEOUT)
    with ms.open(path, spark=spark) as db:
        db.wait_for("v", timeout=TIMEOUT)
        assert runner_of(db, "v").state == "live"
        with pytest.raises(ms.errors.ViewNotReadyError):
            db.wait_for("v", lsn=10**9, timeout=0.01)


def test_a_view_over_one_that_has_no_rows_yet(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE SOURCE s (id INT);"
        "CREATE MATERIALIZED VIEW joined AS SELECT t.v FROM t RIGHT JOIN s ON t.id < s.id;"
        "CREATE MATERIALIZED VIEW different AS SELECT DISTINCT v FROM joined"
    )
    db.wait_for("different", timeout=TIMEOUT)
    db.insert("s", [(1,)])
    db.wait_for("different", timeout=TIMEOUT)
    assert db.query("SELECT * FROM different").fetchall() == [(None,)]


def test_reads_right_after_create(db):
    """A query, and a snapshot, count what was committed before, though no view has started yet."""
    db.execute("CREATE SOURCE o (cust VARCHAR)")
    db.insert("o", [("a",), ("b",), ("a",)])
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT cust, COUNT(*) AS n FROM o GROUP BY cust;"
        "CREATE MATERIALIZED VIEW w AS SELECT MAX(n) AS m FROM v"
    )
    subscription = db.subscribe("SELECT * FROM w")
    assert db.query("SELECT * FROM v ORDER BY cust", timeout=TIMEOUT).fetchall() == [
        ("a", 2),
        ("b", 1),
    ]
    assert db.query("SELECT m FROM w", timeout=TIMEOUT).fetchall() == [(2,)]
    assert subscription.recv(TIMEOUT).rows == [(2,)]
    db.insert("o", [("a",)])
    assert db.query("SELECT m FROM w", timeout=TIMEOUT).fetchall() == [(3,)]


def test_saved_rows_are_readable_at_once(tmp_path, spark, monkeypatch):
    path = tmp_path / "db"
    with ms.open(path, spark=spark) as db:
        db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS t FROM s GROUP BY k")
        db.insert("s", [("a", 1)])
        db.wait_for("v", timeout=TIMEOUT)
    go, start = threading.Event(), SparkQuery.start
    monkeypatch.setattr(
        SparkQuery, "start", lambda query, *how: go.wait(TIMEOUT) and start(query, *how)
    )
    with ms.open(path, spark=spark) as db:
        first = db.query("SELECT * FROM v", timeout=0.0)
        assert (first.fetchall(), first.catching_up) == ([("a", 1)], ("v",))
        assert db.subscribe("SELECT * FROM v").try_recv().rows == [("a", 1)]
        go.set()
        db.wait_for("v", timeout=TIMEOUT)
        db.insert("s", [("a", 2)])
        again = db.query("SELECT * FROM v", timeout=TIMEOUT)
        assert (again.fetchall(), again.catching_up) == ([("a", 3)], ())

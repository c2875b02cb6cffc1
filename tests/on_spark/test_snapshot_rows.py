"""A view over a table begins with the table's rows, and not with those that are gone."""

from __future__ import annotations

import shutil
from collections import Counter
from hashlib import md5

import millstream as ms
from millstream.testing import Mirror, engine_of

from .observing import rows_of, runner_of, settle, until_started

JOIN = "SELECT s.n, t.k, 8 / t.w AS r FROM s JOIN t ON s.k = t.k"
SUMS = "SELECT t.k, SUM(8 / t.w) AS r, COUNT(s.n) AS n FROM t LEFT JOIN s ON s.k = t.k GROUP BY t.k"
VIEWS = {
    "selected": "SELECT id, 8 / w AS r FROM t",
    "hashed": "SELECT id, md5(CAST(8 DIV w AS STRING)) AS r FROM t",
    "total": "SELECT SUM(8 / w) AS r, COUNT(*) AS n FROM t",
    "ticking": "SELECT k, SUM(8 / w) AS r FROM t GROUP BY k EMIT EVERY INTERVAL '1 millisecond'",
    "joined": JOIN,
    "sums": SUMS,
    "newest": "SELECT k, MAX_BY(8 / w, id) AS r FROM t GROUP BY k",
    "over": "SELECT n, COUNT(*) AS m FROM counts GROUP BY n",
    "both": "SELECT t.id, 8 / counts.n AS r FROM t JOIN counts ON t.k = counts.k",
}


def with_history(db):
    """A table, a source and a view, with rows for which the views would fail, which are gone."""
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, w INT); CREATE SOURCE s (k INT, n INT);"
        "CREATE MATERIALIZED VIEW counts AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"
    )
    db.source("s").push_batch([(n % 3, n) for n in range(9)])
    for n in range(50):
        db.insert("t", [(n % 5, n % 3, 0)], replace=True)
    db.execute("UPDATE t SET w = 1; UPDATE t SET w = 4 WHERE id > 1; DELETE FROM t WHERE id = 4")
    settle(db, "counts")


def expected(db, views):
    """What the queries give, by DuckDB."""
    plain = {name: VIEWS[name].split(" EMIT")[0] for name in views if name != "hashed"}
    found = {name: Counter(db.query(sql).fetchall()) for name, sql in plain.items()}
    if "hashed" in views:
        rows = db.query("SELECT id, w FROM t").fetchall()
        found["hashed"] = Counter((id_, md5(str(8 // w).encode()).hexdigest()) for id_, w in rows)
    return found


def commits(db, view):
    """How many commits the log of a view has."""
    return len(list(engine_of(db).log.read(view)))


def test_rows_that_are_gone_are_not_read(db):
    with_history(db)
    for name, sql in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    settle(db, *VIEWS)
    assert {name: commits(db, name) for name in VIEWS} == dict.fromkeys(VIEWS, 1)
    assert {name: rows_of(db, name) for name in VIEWS} == expected(db, VIEWS)
    db.execute("UPDATE t SET k = 1 - k, w = w * 2 WHERE id > 1; DELETE FROM t WHERE id = 0")
    db.source("s").push((7, 7))
    db.insert("t", [(9, 7, 16)])
    settle(db, "counts", *VIEWS)
    assert {name: rows_of(db, name) for name in VIEWS} == expected(db, VIEWS)


def test_a_view_that_is_rebuilt_shows_nothing_again(tmp_path, spark):
    """As after a crash before its first checkpoint."""
    names = ("selected", "hashed", "total", "joined", "sums", "both")
    mirrors = {}
    with ms.open(tmp_path / "db", spark=spark) as db:
        with_history(db)
        for name in names:
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        settle(db, *names)
        for name in names:
            subscription = db.subscribe(f"SELECT * FROM {name}", name=name)
            mirrors[name] = Mirror(subscription).catch_up(db)
            subscription.ack()
        db.execute("UPDATE t SET w = w * 2")
        settle(db, *names)
        before = {name: commits(db, name) for name in names}
    shutil.rmtree(tmp_path / "db" / "views")
    with ms.open(tmp_path / "db", spark=spark) as db:
        settle(db, *names)
        assert {name: commits(db, name) for name in names} == before
        db.execute("UPDATE t SET w = w * 2 WHERE id = 2; DELETE FROM t WHERE id = 1")
        db.source("s").push((2, 100))
        settle(db, *names)
        wanted = expected(db, names)
        assert {name: rows_of(db, name) for name in names} == wanted
        for name, mirror in mirrors.items():
            mirror.follow(db.subscribe(f"SELECT * FROM {name}", name=name))
            assert mirror.catch_up(db).rows == wanted[name]


def test_more_rows_than_a_frame_has_are_one_commit(db):
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, k INT, w INT); CREATE SOURCE s (k INT, n INT)")
    db.insert("t", [(n, n % 70_000, 1) for n in range(140_000)])
    db.source("s").push_batch([(n, n) for n in range(30_000)])
    db.execute(f"CREATE MATERIALIZED VIEW joined AS {JOIN}")
    settle(db, "joined")
    assert commits(db, "joined") == 1
    assert rows_of(db, "joined") == expected(db, ["joined"])["joined"]


def test_stopped_before_it_shows_anything(tmp_path, spark, monkeypatch):
    with ms.open(tmp_path / "db", spark=spark) as db:
        with_history(db)
        live = type(runner_of(db, "counts")._feed.live)
        monkeypatch.setattr(live, "_check_open", _closed)
        db.execute(f"CREATE MATERIALIZED VIEW sums AS {SUMS}")
        until_started(runner_of(db, "sums"))
    monkeypatch.undo()
    with ms.open(tmp_path / "db", spark=spark) as db:
        settle(db, "sums")
        assert commits(db, "sums") == 1
        assert rows_of(db, "sums") == expected(db, ["sums"])["sums"]


def _closed(_):
    raise ms.errors.ClosedError("the view is being stopped")

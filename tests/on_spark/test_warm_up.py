"""Warm-ups: a query of a view's own plan over made-up rows, of which the view sees nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from millstream.testing import TIMEOUT, Mirror, engine_of, wait_until
from millstream.views.run.warm_up import made_up

WINDOWS = """SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, SUM(n) AS total FROM s
    GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')"""
JOIN = "SELECT t.name, SUM(s.n) AS total FROM s JOIN t ON s.k = t.k GROUP BY t.name"
FAILS = "SELECT CAST(k AS DATE) AS day, SUM(n) AS total FROM s GROUP BY CAST(k AS DATE)"


@pytest.fixture
def cold(db, monkeypatch):
    """A database whose Spark has run nothing, as far as it knows, and is its own."""
    db.execute("""
        CREATE SOURCE s (k VARCHAR, n BIGINT, ts TIMESTAMP,
            WATERMARK FOR ts AS ts - INTERVAL '1 second');
        CREATE TABLE t (k VARCHAR PRIMARY KEY, name VARCHAR)""")
    monkeypatch.setattr(engine_of(db).views.spark_views.spark, "is_cold", lambda: True)
    return db


def warm_up_of(db):
    views = engine_of(db).views.spark_views
    wait_until(lambda: views._warm_ups)
    return views._warm_ups[-1]


@pytest.mark.parametrize("query", [WINDOWS, JOIN], ids=["groups", "line"])
def test_the_view_beside_it_sees_its_own_rows_only(cold, query):
    cold.execute("INSERT INTO t VALUES ('2026-01-01', 'one'), ('2026-01-02', 'two')")
    cold.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    cold.wait_for("v", timeout=TIMEOUT)
    warm_up, mirror = warm_up_of(cold), Mirror(cold.subscribe("SELECT * FROM v"))
    source, pushed = cold.source("s"), 0
    while warm_up._thread.is_alive():
        source.push((f"2026-01-0{1 + pushed % 2}", 1, datetime(2026, 1, 1, tzinfo=UTC)))
        pushed += 1
        cold.wait_for("v", timeout=TIMEOUT)
    assert warm_up.is_complete
    assert warm_up.rows > 100
    assert warm_up.results > warm_up.rows // 4
    assert sum(row[-1] for row in mirror.catch_up(cold).fetchall()) == pushed
    assert not Path(warm_up._folder).exists()


def test_one_that_fails_costs_the_view_nothing(cold):
    cold.execute(f"CREATE MATERIALIZED VIEW v AS {FAILS}")
    cold.wait_for("v", timeout=TIMEOUT)
    warm_up = warm_up_of(cold)
    warm_up._thread.join(TIMEOUT)
    assert not warm_up.is_complete
    cold.insert("s", [("2026-01-01", 2, None), ("2026-01-01", 3, None)])
    cold.wait_for("v", timeout=TIMEOUT)
    assert [row[1] for row in cold.query("SELECT * FROM v").fetchall()] == [5]


def test_closing_the_database_ends_it(cold):
    cold.execute(f"CREATE MATERIALIZED VIEW v AS {WINDOWS}")
    cold.wait_for("v", timeout=TIMEOUT)
    warm_up = warm_up_of(cold)
    cold.close()
    assert not warm_up._thread.is_alive()
    assert not Path(warm_up._folder).exists()


def test_a_users_session_is_left_alone(db):
    db.execute("CREATE SOURCE s (k VARCHAR, n BIGINT, ts TIMESTAMP)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS total FROM s GROUP BY k")
    db.wait_for("v", timeout=TIMEOUT)
    assert not engine_of(db).views.spark_views._warm_ups


def test_made_up_rows_fit_their_columns(db):
    db.execute("""CREATE SOURCE s (a BOOLEAN NOT NULL, b TINYINT, c SMALLINT, d INTEGER, e BIGINT,
        f REAL, g DOUBLE, h DECIMAL(3, 2), i VARCHAR, j BINARY, k DATE, l TIMESTAMP, m INTERVAL)""")
    source = db.source("s")
    for number in (0, 1, 7, 2999):
        source.push(made_up(source.schema, number))
    rows = db.query("SELECT * FROM s").fetchall()
    assert len(rows) == 4
    assert not [row for row in rows if None in row]

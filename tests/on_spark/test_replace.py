"""CREATE OR REPLACE of views on Spark: built beside the old one, exact from the first moment."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, Background, Mirror, engine_of, wait_until
from millstream.views import replacement
from millstream.views.run.checkpoint import offset_in

from .observing import rows_of, runner_of, settle

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SETUP = """
    CREATE SOURCE s (k INT, n BIGINT);
    CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS x FROM s GROUP BY k
"""
SUMS = "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, SUM(n) AS x FROM s GROUP BY k"


def sums(rows):
    found = Counter()
    for k, n in rows:
        found[k] += n
    return Counter(found.items())


def test_the_new_one_goes_on_where_it_was_built(tmp_path, spark, monkeypatch):
    """Also where nothing is fast: the patience of other stops is at its end at once."""
    pushed = [(n % 7, n) for n in range(1000)]
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        db.insert("s", pushed)
        settle(db, "v")
        runs = sys.modules[type(runner_of(db, "v")).__module__]
        monkeypatch.setattr(runs, "_PARK_SECONDS", 0.0)
        replacing = Background(db.execute, SUMS)
        while not replacing.is_done:  # the old one, or the new one: nothing in between
            db.insert("s", [(1, 1)])
            pushed.append((1, 1))
            assert len(rows_of(db, "v")) == 7
        replacing.result()
        running = engine_of(db).views["v"]
        place = offset_in(engine_of(db).views.storage.checkpoint_of(running.planned.definition))
        assert place is not None  # it was not rebuilt
        assert place.lsn >= 1000
        db.insert("s", [(2, 5), (8, 8)])
        pushed += [(2, 5), (8, 8)]
        settle(db, "v")
        assert rows_of(db, "v") == sums(pushed)
        with db.subscribe("SELECT * FROM v", start="earliest") as subscription:
            assert Mirror(subscription, key_columns=1).catch_up(db).rows == sums(pushed)
        topics, folder = engine_of(db).log.topics, engine_of(db).views.storage.checkpoints
        assert not [each for each in topics if "__query_" in each]
        assert len(list(folder.iterdir())) == 1
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.insert("s", [(2, 5)])
        settle(db, "v")
        assert rows_of(db, "v") == sums([*pushed, (2, 5)])


def test_one_that_fails_leaves_the_old_one(tmp_path, spark):
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        db.insert("s", [(1, 0), (2, 1)])
        settle(db, "v")
        reader = Mirror(db.subscribe("SELECT * FROM v"))
        with pytest.raises(ms.errors.ViewFailedError):
            db.execute(
                "CREATE OR REPLACE MATERIALIZED VIEW v AS "
                "SELECT k, SUM(1 / n) AS x FROM s GROUP BY k"
            )
        db.insert("s", [(1, 0)])
        settle(db, "v")
        assert rows_of(db, "v") == Counter([(1, 2), (2, 1)])
        assert reader.catch_up(db).rows == Counter([(1, 2), (2, 1)])
        wait_until(lambda: len(list(engine_of(db).views)) == 1, "the new one is dropped")
        assert not [each for each in engine_of(db).log.topics if "__query_" in each]


def test_a_join_and_pending_windows(tmp_path, spark):
    """A dataflow; and windows that are open when the new one takes over."""
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute("""
            CREATE SOURCE s (k INT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
            CREATE TABLE t (k INT PRIMARY KEY, name VARCHAR);
            CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS x FROM s GROUP BY k;
        """)
        db.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        db.insert("s", [(1, 10, NOON), (2, 20, NOON + timedelta(seconds=30))])
        settle(db, "v")
        db.execute(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT t.name, s.n "
            "FROM s LEFT JOIN t ON s.k = t.k"
        )
        assert rows_of(db, "v") == Counter([("one", 10), ("two", 20)])
        db.execute("UPDATE t SET name = 'zwei' WHERE k = 2")
        settle(db, "v")
        assert rows_of(db, "v") == Counter([("one", 10), ("zwei", 20)])
        db.execute(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT SUM(n) AS x FROM s "
            "GROUP BY TUMBLE(ts, INTERVAL '1 minute') EMIT ON WINDOW CLOSE"
        )
        assert rows_of(db, "v") == Counter()
        db.insert("s", [(1, 5, NOON + timedelta(seconds=40)), (1, 7, NOON + timedelta(minutes=2))])
        settle(db, "v")
        assert rows_of(db, "v") == Counter([(35,)])
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.insert("s", [(1, 1, NOON + timedelta(minutes=5))])
        settle(db, "v")
        assert rows_of(db, "v") == Counter([(35,), (7,)])


def test_what_was_dropped_meanwhile_is_created(tmp_path, spark, monkeypatch):
    """As if it had been dropped before the statement; nothing is left of what was built."""
    check, built, go = replacement.check_built, threading.Event(), threading.Event()

    def held(views, running):
        check(views, running)
        built.set()
        assert go.wait(TIMEOUT)

    monkeypatch.setattr(replacement, "check_built", held)
    pushed = [(n % 7, n) for n in range(1000)]
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        db.insert("s", pushed)
        replacing = Background(db.execute, SUMS)
        assert built.wait(TIMEOUT)
        db.execute("DROP VIEW v")
        go.set()
        replacing.result()
        settle(db, "v")
        assert rows_of(db, "v") == sums(pushed)
        assert not [each for each in engine_of(db).log.topics if "__query_" in each]

"""Event time of views: WATERMARK of their own, late by their log, closed windows over them."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SqlColumnError, SqlTypeError, SqlUnsupportedError
from millstream.testing import engine_of

from .observing import EPOCH, MINUTE, batches_of, in_time, rows_of, settle, window_of

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATENESS = 5 * SECOND


def push_randomly(db, source, chance, at, count):
    """Push rows around moments that go on, some of them far behind; the last moment."""
    handle = db.source(source)
    for _ in range(count):
        rows = []
        for _ in range(chance.choice([1, 1, 3, 20])):
            at += timedelta(milliseconds=chance.randint(0, 4000))
            back = chance.choice([200, 70, 30, 5, 0, 0, 0, 0])
            rows.append((chance.randint(0, 3), chance.randint(0, 99), at - back * SECOND))
        handle.push_batch(rows)
        if chance.random() < 0.3:
            db.flush()
    return at


SETUP = """
    CREATE SOURCE s (k BIGINT, n BIGINT, ts TIMESTAMP);
    CREATE TABLE names (k BIGINT PRIMARY KEY, name VARCHAR);
    INSERT INTO names VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd');
    CREATE STREAM some AS SELECT n, ts, k FROM s WHERE n > 10
        WATERMARK FOR ts AS ts - INTERVAL '2 seconds';
    CREATE MATERIALIZED VIEW named AS
        SELECT names.name, s.ts AS moment FROM s JOIN names FOR SYSTEM_TIME AS OF s.ts AS names
        ON s.k = names.k WATERMARK FOR moment AS moment - INTERVAL '1 second';
"""
MINUTES = """
    CREATE MATERIALIZED VIEW {name} AS
    SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS c, SUM(n) AS total
    FROM some GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')
    EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '5 seconds' LATE DATA TO late_{name};
    CREATE MATERIALIZED VIEW {name}_named AS
    SELECT name, COUNT(*) AS c, TUMBLE_END(moment, INTERVAL '1 minute') AS ends
    FROM named GROUP BY name, TUMBLE(moment, INTERVAL '1 minute') EMIT FINAL;
"""


def expected(db):
    """What the logs of the views say that their windows come to, and what is late."""
    taken, late, mark = in_time(batches_of(db, "some"), 1, MINUTE, LATENESS)
    windows = {}
    for n, moment, k in taken:
        windows.setdefault((k, window_of(moment)), []).append(n)
    passed = EPOCH + timedelta(microseconds=mark)
    minutes = Counter(
        (*key, len(values), sum(values))
        for key, values in windows.items()
        if key[1] + MINUTE <= passed
    )
    in_named, _, mark = in_time(batches_of(db, "named"), 1)
    passed = EPOCH + timedelta(microseconds=mark)
    counts = Counter((name, window_of(moment) + MINUTE) for name, moment in in_named)
    named = Counter((name, c, end) for (name, end), c in counts.items() if end <= passed)
    return minutes, named, late


def check(db, name):
    settle(db, "some", "named", name, f"{name}_named")
    minutes, named, late = expected(db)
    assert all([minutes, named, late])
    assert rows_of(db, name) == minutes
    assert rows_of(db, f"{name}_named") == named
    assert db.query(f"SELECT * FROM late_{name}").fetchall() == late
    assert engine_of(db).views[name].late_rows == len(late)


def test_windows_over_views_close(tmp_path, spark):
    chance, at = random.Random(3), NOON
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        db.execute(MINUTES.format(name="live"))
        at = push_randomly(db, "s", chance, at, 60)
        check(db, "live")
    with ms.open(tmp_path / "db", spark=spark) as db:  # the watermark is that of the log
        at = push_randomly(db, "s", chance, at - 100 * SECOND, 60)
        check(db, "live")
        db.execute(MINUTES.format(name="replayed"))  # a replay decides the same
        check(db, "replayed")
        db.execute(
            "CREATE MATERIALIZED VIEW whole AS SELECT n, ts FROM s WATERMARK FOR ts;"
            "CREATE OR REPLACE MATERIALIZED VIEW whole AS"
            "    SELECT n, ts FROM s WHERE n < 50 WATERMARK FOR ts"
        )
        mark = max(batch.watermark for batch in engine_of(db).log.read("whole"))
        db.source("s").push((1, 1, NOON))
        settle(db, "whole")
        assert mark == max(row[1] for row in rows_of(db, "whole")).timestamp() * 10**6
        assert [batch.watermark for batch in engine_of(db).log.read("whole")] == [mark, None]


def test_of_joins_and_groups(db):
    db.execute(
        "CREATE SOURCE a (k INT, ts TIMESTAMP, WATERMARK FOR ts);"
        "CREATE SOURCE b (k INT, ts TIMESTAMP, WATERMARK FOR ts);"
        "CREATE MATERIALIZED VIEW pairs AS"
        "    SELECT a.k, a.ts FROM a JOIN b ON a.k = b.k WATERMARK FOR ts;"
        "CREATE MATERIALIZED VIEW counted AS"
        "    SELECT TUMBLE_START(ts, INTERVAL '1 minute') AS minute, COUNT(*) AS c FROM pairs"
        "    GROUP BY TUMBLE(ts, INTERVAL '1 minute') EMIT FINAL WATERMARK FOR minute;"
        "CREATE MATERIALIZED VIEW hourly AS"
        "    SELECT TUMBLE_END(minute, INTERVAL '1 hour') AS ends, SUM(c) AS c FROM counted"
        "    GROUP BY TUMBLE(minute, INTERVAL '1 hour') EMIT ON WINDOW CLOSE"
    )
    a, b = db.source("a"), db.source("b")
    for place in range(130):
        a.push((place, NOON + place * MINUTE))
        b.push((place, NOON))
        settle(db, "pairs")
    settle(db, "pairs", "counted", "hourly")
    assert rows_of(db, "counted") == Counter((NOON + n * MINUTE, 1) for n in range(129))
    hour = timedelta(hours=1)
    assert rows_of(db, "hourly") == Counter([(NOON + hour, 60), (NOON + 2 * hour, 60)])


@pytest.mark.parametrize(
    ("query", "error", "problem"),
    [
        ("SELECT k FROM s WATERMARK FOR ts", SqlColumnError, "the view has no column ts"),
        ("SELECT k FROM s WATERMARK FOR k", SqlTypeError, "follows a TIMESTAMP, and k is"),
        ("SELECT ts FROM t WATERMARK FOR ts", SqlUnsupportedError, "never change"),
        ("SELECT MAX(ts) AS ts FROM s WATERMARK FOR ts", SqlUnsupportedError, "never change"),
        (
            "SELECT s.ts FROM s LEFT JOIN s AS t ON s.k = t.k WATERMARK FOR ts",
            SqlUnsupportedError,
            "never change",
        ),
    ],
)
def test_refused(db, query, error, problem):
    db.execute(
        "CREATE SOURCE s (k BIGINT, ts TIMESTAMP);"
        "CREATE TABLE t (k BIGINT PRIMARY KEY, ts TIMESTAMP)"
    )
    with pytest.raises(error, match=problem):
        db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")

"""EMIT of dataflows: windows over joins and unions that close, and groups at ticks.

What a view shows is what Spark answers over the rows that were in time, for the windows that have
closed. Which rows those are is told here from the log alone.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SqlUnsupportedError
from millstream.testing import engine_of, wait_until

from .conftest import batch_answer
from .observing import EPOCH, MINUTE, rows_of, settle, window_of

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SETUP = """
    CREATE SOURCE a (k BIGINT, n BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '2 seconds');
    CREATE SOURCE b (k BIGINT, n BIGINT, ts TIMESTAMP,
        WATERMARK FOR ts AS ts - INTERVAL '5 seconds');
    CREATE TABLE t (k BIGINT PRIMARY KEY, name VARCHAR);
"""
WINDOWS = {
    # name: EMIT, the lateness, the logs whose rows may be late, the query
    "equal": (
        "EMIT FINAL",
        0,
        "ab",
        """SELECT {end(a.ts)} AS ends, a.k, COUNT(*) AS c, SUM(b.n) AS n FROM a JOIN b
        ON a.k = b.k AND {key(a.ts)} = {key(b.ts)} GROUP BY a.k, {key(a.ts)}""",
    ),
    "bounded": (
        "EMIT FINAL ALLOW LATENESS INTERVAL '30 seconds'",
        30,
        "ab",
        """SELECT {end(b.ts)} AS ends, SUM(a.n) AS n, MAX(b.n) AS m FROM a JOIN b
        ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '90' SECOND GROUP BY {key(b.ts)}""",
    ),
    "outer_join": (
        "EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '10 seconds'",
        10,
        "ab",
        """SELECT {end(a.ts)} AS ends, COUNT(*) AS c, COUNT(b.k) AS d, COUNT(DISTINCT b.n) AS e
        FROM a LEFT JOIN b ON a.k = b.k AND {start(a.ts)} = {start(b.ts)} AND a.n < b.n
        GROUP BY {key(a.ts)}""",
    ),
    "corrected": (
        "EMIT ON WINDOW CLOSE",
        0,
        "a",
        """SELECT {end(a.ts)} AS ends, t.name, COUNT(*) AS c, MIN(b.n) AS m FROM a
        JOIN b ON a.k = b.k AND a.n > b.n LEFT JOIN t ON b.k = t.k GROUP BY t.name, {key(a.ts)}""",
    ),
    "mixed": (
        "EMIT AFTER WATERMARK",
        0,
        "b",
        """SELECT {end(ts)} AS ends, COUNT(*) AS c FROM (SELECT DISTINCT k, ts FROM a
        UNION ALL SELECT k, ts FROM b WHERE n IN (SELECT n FROM a)) GROUP BY {key(ts)}""",
    ),
    "chained": (
        "EMIT FINAL",
        0,
        "ab",
        """SELECT {end(a.ts)} AS ends, COUNT(*) AS c FROM a
        JOIN b ON a.k = b.k AND {key(a.ts)} = {key(b.ts)}
        JOIN a AS x ON x.k = b.k AND x.ts <= b.ts AND x.ts > b.ts - INTERVAL '30' SECOND
        GROUP BY {key(a.ts)}""",
    ),
    "pairs": (
        "EMIT FINAL",
        0,
        "ab",
        """SELECT {end(late)} AS ends, COUNT(*) AS c
        FROM (SELECT DISTINCT a.ts AS early, b.ts AS late
        FROM a JOIN b ON a.k = b.k AND a.ts <= b.ts AND a.ts > b.ts - INTERVAL '5' MINUTE)
        GROUP BY {key(late)}""",
    ),
    "above": (
        "EMIT FINAL",
        0,
        "ab",
        """SELECT {end(ts)} AS ends, COUNT(*) AS c, SUM(most) AS s
        FROM (SELECT a.ts, MAX(b.n) AS most FROM a JOIN b ON a.ts = b.ts GROUP BY a.ts)
        GROUP BY {key(ts)} HAVING COUNT(*) > 1""",
    ),
}


def written(query, name):
    """A query as it is written for a view."""
    arguments = "({}, INTERVAL '1 minute')"
    names = {"end": "TUMBLE_END", "start": "TUMBLE_START", "key": "TUMBLE"}
    text = re.sub(r"{(\w+)\((.*?)\)}", lambda m: names[m[1]] + arguments.format(m[2]), query)
    return f"CREATE MATERIALIZED VIEW {name} AS {text} {WINDOWS[name.removeprefix('re_')][0]}"


def plain(query):
    """A query as plain Spark knows it."""
    ends = {"end": " + INTERVAL '1' MINUTE"}
    return re.sub(
        r"{(\w+)\((.*?)\)}", lambda m: f"date_trunc('minute', {m[2]}){ends.get(m[1], '')}", query
    )


def in_time(db, timed, lateness, last=lambda moment: window_of(moment) + MINUTE):
    """The rows of the sources that were in time for a view, how many were late, its watermark.

    ``last`` gives the end of the last window that a moment is in.
    """
    kept, late, marks = {"a": [], "b": []}, 0, {"a": None, "b": None}
    for batch in engine_of(db).log.read("a", "b"):
        before = None if None in marks.values() else min(marks.values())
        for row in batch.rows:
            end = last(row[2]) + lateness * SECOND
            passed = before is not None and end <= EPOCH + timedelta(microseconds=before)
            is_late = passed and batch.topic in timed
            late += is_late
            if not is_late:
                kept[batch.topic].append(row)
        if batch.watermark is not None:
            marks[batch.topic] = max(marks[batch.topic] or 0, batch.watermark)
    return kept, late, EPOCH + timedelta(microseconds=min(marks.values()))


def check(db, spark, prefix=""):
    settle(db, *(prefix + name for name in WINDOWS))
    schemas = {each: engine_of(db).catalog[each].schema for each in "abt"}
    table = db.query("SELECT * FROM t").fetchall()
    for name, (emit, lateness, timed, query) in WINDOWS.items():
        kept, late, passed = in_time(db, timed, lateness)
        passed -= (lateness if "FINAL" in emit else 0) * SECOND
        tables = {"t": (schemas["t"], table)} | {k: (schemas[k], kept[k]) for k in kept}
        found = batch_answer(spark, plain(query), **tables)
        closed = [(_utc(row[0]), *row[1:]) for row in found if _utc(row[0]) <= passed]
        assert rows_of(db, prefix + name) == Counter(closed), name
        assert closed
        assert engine_of(db).views[prefix + name].late_rows == late > 0, name


def _utc(moment):
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def push_randomly(db, chance, at, count):
    """Push rows to both sources, some far behind, and change the table; the last moment."""
    for _ in range(count):
        for source in chance.sample("ab", 2):
            rows = []
            for _ in range(chance.choice([1, 1, 2, 6])):
                at += timedelta(milliseconds=500 * chance.randint(0, 6))
                back = chance.choice([200, 95, 40, 3, 0, 0, 0, 0])
                rows.append((chance.randint(0, 4), chance.randint(0, 30), at - back * SECOND))
            db.source(source).push_batch(rows)
        if chance.random() < 0.3:
            db.flush()
        if chance.random() < 0.1:
            db.execute(f"INSERT OR REPLACE INTO t VALUES ({chance.randint(0, 4)}, 'n{count}')")
        if chance.random() < 0.05:
            db.execute(f"DELETE FROM t WHERE k = {chance.randint(0, 4)}")
    return at


def test_windows_that_close(tmp_path, spark, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    chance = random.Random(5)
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        for name, (_, _, _, query) in WINDOWS.items():
            db.execute(written(query, name))
        at = push_randomly(db, chance, NOON, 60)
        check(db, spark)
    with ms.open(tmp_path / "db", spark=spark) as db:
        at = push_randomly(db, chance, at, 60)
        check(db, spark)
        for name, (_, _, _, query) in WINDOWS.items():
            db.execute(written(query, f"re_{name}"))
        check(db, spark, "re_")  # a replay decides the same
        at = push_randomly(db, chance, at, 20)
        check(db, spark)
        check(db, spark, "re_")


HOPS = {
    "hop": """SELECT a.k, HOP_END(a.ts) AS ends, COUNT(*) AS c, SUM(b.n) AS n FROM a LEFT JOIN b
        ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '30' SECOND AND a.ts
        GROUP BY a.k, HOP(a.ts, INTERVAL '20' SECOND, INTERVAL '1' MINUTE)""",
    "cumulate": """SELECT WINDOW_END AS ends, COUNT(*) AS c, COUNT(DISTINCT b.n) AS d FROM a JOIN b
        ON a.k = b.k AND b.ts <= a.ts GROUP BY CUMULATE(a.ts, INTERVAL '20' SECOND,
        INTERVAL '1' MINUTE)""",
}
PLAIN = {
    "hop": """SELECT a.k, e AS ends, COUNT(*), SUM(b.n) FROM (SELECT *, EXPLODE(SEQUENCE(
        TIMESTAMP_SECONDS((UNIX_SECONDS(ts) DIV 20 + 1) * 20),
        TIMESTAMP_SECONDS((UNIX_SECONDS(ts) DIV 20 + 3) * 20), INTERVAL '20' SECOND)) AS e FROM a) a
        LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '30' SECOND AND a.ts
        GROUP BY a.k, e""",
    "cumulate": """SELECT e AS ends, COUNT(*), COUNT(DISTINCT b.n) FROM (SELECT *, EXPLODE(SEQUENCE(
        TIMESTAMP_SECONDS((UNIX_SECONDS(ts) DIV 20 + 1) * 20),
        TIMESTAMP_SECONDS((UNIX_SECONDS(ts) DIV 60 + 1) * 60), INTERVAL '20' SECOND)) AS e FROM a) a
        JOIN b ON a.k = b.k AND b.ts <= a.ts GROUP BY e""",
}


def last_end(name, moment):
    """The end of the last window that a moment is in."""
    return window_of(moment, timedelta(seconds=20) if name == "hop" else MINUTE) + MINUTE


def check_hops(db, spark):
    settle(db, *HOPS)
    schemas = {each: engine_of(db).catalog[each].schema for each in "ab"}
    for name, query in PLAIN.items():
        kept, late, passed = in_time(db, "ab", 0, lambda moment: last_end(name, moment))
        tables = {each: (schemas[each], rows) for each, rows in kept.items()}
        place = 1 if name == "hop" else 0  # of the end
        found = batch_answer(spark, query, **tables)
        rows = [(*row[:place], _utc(row[place]), *row[place + 1 :]) for row in found]
        closed = [row for row in rows if row[place] <= passed]
        assert rows_of(db, name) == Counter(closed), name
        assert closed
        assert engine_of(db).views[name].late_rows == late > 0, name


def test_windows_of_which_a_row_is_in_several(tmp_path, spark, monkeypatch):
    """A row counts in all of its windows unless it is late for the last of them."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    chance, at = random.Random(7), NOON
    with ms.open(tmp_path / "db", spark=spark) as db:
        db.execute(SETUP)
        for name, query in HOPS.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query} EMIT ON WINDOW CLOSE")
        for _ in range(4):
            at = push_randomly(db, chance, at, 15)
            check_hops(db, spark)
    with ms.open(tmp_path / "db", spark=spark) as db:
        for _ in range(3):
            at = push_randomly(db, chance, at, 15)
            check_hops(db, spark)


def test_final_never_changes(db):
    db.execute(SETUP)
    db.execute(written(WINDOWS["equal"][3], "equal"))
    chance, at = random.Random(6), NOON
    for _ in range(4):
        at = push_randomly(db, chance, at, 25)
        settle(db, "equal")
    batches = list(engine_of(db).log.read("equal"))
    assert len(batches) > 1
    assert all(batch.is_insert_only for batch in batches)


def test_ticks(db):
    db.execute(SETUP)
    db.execute(
        """
        CREATE MATERIALIZED VIEW counts AS SELECT COUNT(*) AS c FROM a JOIN b ON a.k = b.k
            GROUP BY a.k, a.n EMIT EVERY 1 SECOND;
        CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS c FROM a JOIN b ON a.k = b.k
            EMIT EVERY 1 SECOND;
        CREATE MATERIALIZED VIEW seldom AS SELECT COUNT(*) AS c FROM a JOIN b ON a.k = b.k
            GROUP BY a.k, a.n EMIT EVERY INTERVAL '36500 days'
        """
    )
    for n in range(5):
        db.source("a").push((n % 2, 0, NOON))
        db.source("b").push((n % 2, 0, NOON))
    settle(db, "seldom")
    wait_until(lambda: rows_of(db, "total") == Counter([(13,)]), "the tick")
    wait_until(lambda: rows_of(db, "counts") == Counter([(9,), (4,)]), "the tick")
    assert not rows_of(db, "seldom")


def test_late_rows_of_a_view_that_emits_each_change(db):
    db.execute(SETUP)
    db.execute(
        """
        CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS c FROM a LEFT JOIN b ON a.ts = b.ts
        GROUP BY a.k, TUMBLE(a.ts, INTERVAL '1 minute') ALLOW LATENESS INTERVAL '1 minute'
        """
    )
    for seconds in (0, 10, 100, 30, 300, 59, 301):
        for source in "ab":
            db.source(source).push((1, 1, NOON + seconds * SECOND))
            db.flush()
    settle(db, "v")
    lsn = db.flush()
    assert rows_of(db, "v") == Counter([(3,), (1,), (2,)])  # that of 59 is late
    assert engine_of(db).views["v"].late_rows == 2
    assert Counter(db.query(f"SELECT * FROM v AS OF {lsn}").fetchall()) == rows_of(db, "v")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("a JOIN b ON a.k = b.k GROUP BY {key(a.ts)} EMIT FINAL", "a row of b could change"),
        ("a FULL JOIN t ON a.k = t.k GROUP BY {key(a.ts)} EMIT FINAL", "a row of t could change"),
        (
            """a JOIN b ON a.k = b.k AND a.ts >= b.ts - INTERVAL '1' SECOND GROUP BY {key(a.ts)}
            EMIT FINAL""",
            "a row of b could change",
        ),
        (
            "a JOIN b ON a.k = b.k GROUP BY {key(date_trunc('day', a.ts))} EMIT ON WINDOW CLOSE",
            "over the event time of a log",
        ),
        (
            """a JOIN b USING (k) GROUP BY HOP(a.ts, INTERVAL '1' SECOND, INTERVAL '1' MINUTE)
            EMIT FINAL""",
            "of a HOP is not supported",
        ),
        (
            "a JOIN b USING (k) GROUP BY ROLLUP(a.n), {key(a.ts)} EMIT ON WINDOW CLOSE",
            "several groupings",
        ),
        (
            "a JOIN b USING (k) GROUP BY {key(a.ts)} ORDER BY c LIMIT 1 EMIT ON WINDOW CLOSE",
            "over the event time of a log",
        ),
    ],
)
def test_refused(db, query, message):
    db.execute(SETUP)
    text = re.sub(r"{key\((.*)\)}", r"TUMBLE(\1, INTERVAL '1 minute')", query)
    with pytest.raises(SqlUnsupportedError, match=message):
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS c FROM {text}")

"""Windows of every kind, late rows, and every EMIT, as plain Spark."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

from millstream.testing import TIMEOUT, engine_of, wait_until

from .exact import Twin, bag

TICKS = "k VARCHAR, v BIGINT, p DECIMAL(9, 3), ts TIMESTAMP"


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


EDGES = [
    at("1969-12-31 23:59:59.999999"),  # before 1970
    at("1970-01-01 00:00:00"),
    at("1899-12-31 23:59:30"),
    at("1601-03-01 00:00:00.000001"),
    at("2023-12-31 23:59:45"),  # a year's end
    at("2024-02-29 23:59:15"),  # a leap day's
    at("2026-03-29 01:59:50"),  # where clocks in Europe jump
    at("2026-04-30 23:59:59.5"),  # a month's
    at("2399-12-31 23:58:58"),
]


def scattered(count, seed):
    """Rows around the edges of days, months, years and 1970, in no order."""
    dice = random.Random(seed)
    return [
        (
            dice.choice(["a", "b", None]),
            dice.choice([None, 1, 2, 3, -4]),
            None,
            None
            if dice.random() < 0.05
            else dice.choice(EDGES) + timedelta(seconds=dice.randint(-100, 100)),
        )
        for _ in range(count)
    ]


WINDOWS = {
    "minutes": (
        """SELECT k, TUMBLE_START(ts, INTERVAL '1 minute') AS s, TUMBLE_END(ts, INTERVAL '1
            minute') AS e, COUNT(*) AS n, SUM(v) AS q, FIRST(v) AS f, LAST(v) AS l FROM ticks
            GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')""",
        """SELECT k, window.start AS s, window.end AS e, count(*) AS n, sum(v) AS q, min_by(v,
            struct(ts, _n)) AS f, max_by(v, struct(ts, _n)) AS l FROM ticks GROUP BY k,
            window(ts, '1 minute')""",
    ),
    "days": (
        """SELECT WINDOW_START AS s, MAX(v) AS m, COUNT(DISTINCT k) AS d FROM ticks GROUP BY
            TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '-5' HOURS) HAVING COUNT(*) > 2""",
        """SELECT window.start AS s, max(v) AS m, count(DISTINCT k) AS d FROM ticks GROUP BY
            window(ts, '1 day', '1 day', '19 hours') HAVING count(*) > 2""",
    ),
    "unseen": (
        "SELECT COUNT(*) AS n FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR)",
        "SELECT count(*) AS n FROM ticks GROUP BY k, window(ts, '1 hour')",
    ),
    "hops": (
        """SELECT k, HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '150' SECONDS) AS s,
            HOP_END(ts, INTERVAL '1' MINUTE, INTERVAL '150' SECONDS) AS e, COUNT(*) AS n,
            AVG(v) AS a FROM ticks GROUP BY k, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '150'
            SECONDS)""",
        """SELECT k, window.start AS s, window.end AS e, count(*) AS n, avg(v) AS a FROM ticks
            GROUP BY k, window(ts, '150 seconds', '1 minute')""",
    ),
    "hops_off": (
        """SELECT WINDOW_START AS s, SUM(v) AS q FROM ticks GROUP BY HOP(ts, INTERVAL '1' HOUR,
            INTERVAL '3' HOURS, INTERVAL '20' MINUTES)""",
        """SELECT window.start AS s, sum(v) AS q FROM ticks GROUP BY window(ts, '3 hours', '1
            hour', '20 minutes')""",
    ),
    "cumulates": (
        """SELECT k, CUMULATE_START(ts) AS s, CUMULATE_END(ts) AS e, SUM(v) AS q, COUNT(*) AS n
            FROM ticks GROUP BY k, CUMULATE(ts, INTERVAL '1 minute', INTERVAL '3 minutes',
            INTERVAL '30 seconds')""",
        """SELECT k, w.start AS s, e, sum(v) AS q, count(*) AS n FROM (SELECT *,
            explode(sequence(w.start + INTERVAL '1 minute', w.end, INTERVAL '1 minute')) AS e
            FROM (SELECT *, window(ts, '3 minutes', '3 minutes', '30 seconds') AS w FROM
            ticks)) WHERE ts < e GROUP BY k, w.start, e""",
    ),
    "sessions": (
        """SELECT k, SESSION_START(ts) AS s, SESSION_END(ts, INTERVAL '20 seconds') AS e,
            COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS q, AVG(v) AS a, MIN(v) AS lo, MAX(v) AS hi,
            SUM(v) FILTER (WHERE v > 1) AS f, COUNT_IF(v > 1) AS i, FIRST(v) AS x, LAST(v) AS y
            FROM ticks GROUP BY k, SESSION(ts, INTERVAL '20 seconds')""",
        """SELECT k, session_window.start AS s, session_window.end AS e, count(*) AS n,
            count(v) AS c, sum(v) AS q, avg(v) AS a, min(v) AS lo, max(v) AS hi, sum(v) FILTER
            (WHERE v > 1) AS f, count_if(v > 1) AS i, min_by(v, struct(ts, _n)) AS x, max_by(v,
            struct(ts, _n)) AS y FROM ticks GROUP BY k, session_window(ts, '20 seconds')""",
    ),
}


def test_windows_of_every_kind_anywhere_in_time(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", timedelta(days=300_000))  # so that no row is late
    twin.push("ticks", scattered(80, 1), "arrow")
    twin.push("ticks", scattered(40, 2))
    twin.views(**WINDOWS)
    twin.check()
    twin.await_live()

    twin.push("ticks", scattered(30, 3), "single")
    twin.push("ticks", scattered(50, 4), "arrow")
    twin.check()
    assert {each.state for each in twin.runners.values()} == {"live"}


def test_sessions_that_do_not_show_their_start(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS)
    twin.view(
        "ends",
        """SELECT SESSION_END(ts) AS e, COUNT(*) + 1 AS n FROM ticks GROUP BY SESSION(ts,
            INTERVAL '1 minute') HAVING COUNT(*) > 3""",
        """SELECT session_window.end AS e, count(*) + 1 AS n FROM ticks GROUP BY
            session_window(ts, '1 minute') HAVING count(*) > 3""",
    )
    twin.view(
        "counts",
        "SELECT COUNT(*) AS n FROM ticks GROUP BY k, SESSION(ts, INTERVAL '1 minute')",
        "SELECT count(*) AS n FROM ticks GROUP BY k, session_window(ts, '1 minute')",
    )
    twin.push("ticks", scattered(50, 4), "arrow")
    twin.push("ticks", scattered(10, 5), "single")
    twin.check()


def straggling(count, seed, begin):
    """Pushes of a few rows each: time goes on, and some rows are late for it."""
    dice = random.Random(seed)
    now = begin
    for _ in range(count):
        now += timedelta(seconds=dice.randint(0, 12))
        yield [
            (
                dice.choice(["a", "b", None]),
                dice.choice([None, 1, 2, 3]),
                None,
                now - timedelta(seconds=dice.choice([0, 0, 1, 3, 6, 20, 45, 80])),
            )
            for _ in range(dice.randint(1, 4))
        ]


def tumbled(seconds, late=0):
    """Rows with their window, without those that came too late for it."""
    return f"""(SELECT *, window(ts, '{seconds} seconds') AS w FROM ticks) WHERE (_wm IS NULL OR
            w.end > _wm - INTERVAL '{late}' SECOND)"""


def passed(moment, late=0):
    """Whether the watermark has passed a moment."""
    return f"{moment} <= (SELECT at FROM ticks_mark) - INTERVAL '{late}' SECOND"


ROW = "k, WINDOW_START AS s, COUNT(*) AS n, SUM(v) AS q"
WANTED = "SELECT k, w.start AS s, count(*) AS n, sum(v) AS q FROM"
LATE = {
    "tumbled": (
        f"SELECT {ROW} FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')",
        f"{WANTED} {tumbled(60, 20)} GROUP BY k, w",
        "ALLOW LATENESS INTERVAL '20 seconds' LATE DATA TO stragglers",
    ),
    "hopped": (
        f"SELECT {ROW} FROM ticks GROUP BY k, HOP(ts, INTERVAL '20' SECOND, INTERVAL '1' MINUTE)",
        f"""{WANTED} (SELECT *, window(ts, '60 seconds', '20 seconds') AS w FROM ticks) WHERE
            _wm IS NULL OR w.end > _wm GROUP BY k, w""",
        "",
    ),
    "cumulated": (
        """SELECT WINDOW_START AS s, WINDOW_END AS e, COUNT(*) AS n FROM ticks GROUP BY
            CUMULATE(ts, INTERVAL '20' SECOND, INTERVAL '1' MINUTE)""",
        """SELECT w.start AS s, e, count(*) AS n FROM (SELECT *, explode(sequence(w.start +
            INTERVAL '20' SECOND, w.end, INTERVAL '20' SECOND)) AS e FROM (SELECT *, window(ts,
            '1 minute') AS w FROM ticks)) WHERE ts < e AND (_wm IS NULL OR e > _wm - INTERVAL
            '10' SECOND) GROUP BY w.start, e""",
        "ALLOW LATENESS INTERVAL '10 seconds'",
    ),
    "in_sessions": (
        f"SELECT {ROW} FROM ticks GROUP BY k, SESSION(ts, INTERVAL '4 seconds')",
        """SELECT k, session_window.start AS s, count(*) AS n, sum(v) AS q FROM ticks WHERE _wm
            IS NULL OR ts + INTERVAL '4' SECOND > _wm GROUP BY k, session_window(ts, '4
            seconds')""",
        "",
    ),
    "closed": (
        f"SELECT {ROW} FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '30 seconds')",
        f"{WANTED} {tumbled(30)} AND {passed('w.end')} GROUP BY k, w",
        "EMIT ON WINDOW CLOSE",
    ),
    "revised": (
        """SELECT k, COUNT(*) AS n FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '30 seconds')
            HAVING COUNT(*) > 1""",
        f"""SELECT k, count(*) AS n FROM {tumbled(30, 40)} AND {passed("w.end")} GROUP BY k, w
            HAVING count(*) > 1""",
        "EMIT AFTER WATERMARK ALLOW LATENESS INTERVAL '40 seconds'",
    ),
    "final": (
        f"SELECT {ROW} FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '30 seconds')",
        f"{WANTED} {tumbled(30, 20)} AND {passed('w.end', 20)} GROUP BY k, w",
        "EMIT FINAL ALLOW LATENESS INTERVAL '20 seconds'",
    ),
    "final_sessions": (
        f"SELECT {ROW} FROM ticks GROUP BY k, SESSION(ts, INTERVAL '4 seconds')",
        # Not by session_window.end: Spark filters rows by it, before it makes sessions of them.
        """SELECT k, s, n, q FROM (SELECT k, session_window.start AS s, max(ts) AS last,
            count(*) AS n, sum(v) AS q FROM ticks WHERE _wm IS NULL OR ts + INTERVAL '4' SECOND >
            _wm GROUP BY k, session_window(ts, '4 seconds')) WHERE last + INTERVAL '8' SECOND <
            (SELECT at FROM ticks_mark)""",
        "EMIT FINAL",
    ),
}
STRAGGLERS = """SELECT k, v, p, ts FROM (SELECT *, window(ts, '1 minute') AS w FROM ticks)
    WHERE w.end <= _wm - INTERVAL '20' SECOND"""


def test_late_rows_and_every_emit(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", timedelta(seconds=5))
    begin = at("2025-12-31 23:58:00")
    for rows in straggling(30, 1, begin):
        twin.push("ticks", rows)
    for name, (ours, wanted, tail) in LATE.items():
        twin.view(name, ours, wanted, tail=tail)
    twin.check()
    check_late(twin)
    twin.await_live()

    for number, rows in enumerate(straggling(30, 2, begin + timedelta(minutes=4))):
        twin.push("ticks", rows, ["single", "batch", "arrow"][number % 3])
    twin.check()
    check_late(twin)

    # The watermark passes the end of every window: all close, and every row before it is late.
    twin.promise("ticks", at("2026-01-01 01:00:00"))
    twin.check()
    twin.push("ticks", [("a", 1, None, at("2025-12-31 23:59:00"))])
    twin.check()
    check_late(twin)
    for name in ("closed", "final", "final_sessions"):
        assert set(twin.copies[name].ops) == {"insert"}, f"{name} has taken something back"
    assert len(twin.copies["revised"].ops) > 1
    assert {each.state for each in twin.runners.values()} == {"live"}


def check_late(twin):
    """The rows that came too late are in their own log, and are counted."""
    wanted = bag(twin.spark.answer(STRAGGLERS))
    assert bag(twin.db.query("SELECT * FROM stragglers").to_arrow()) == wanted
    assert wanted
    assert engine_of(twin.db).views["tumbled"].late_rows == wanted.total()


def test_emit_every_shows_nothing_between_ticks(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS)
    counts = "SELECT k, COUNT(*) AS n FROM ticks GROUP BY k"
    twin.view("often", counts, tail="EMIT EVERY INTERVAL '50 milliseconds'")
    twin.view("seldom", counts, tail="EMIT EVERY INTERVAL '36500 days'")
    for seed in (1, 2):
        twin.push("ticks", scattered(20, seed))
        twin.settle()
        wanted = Counter(Counter(row[0] for row in twin.pushed["ticks"]).items())
        wait_until(
            lambda: bag(db.query("""SELECT * FROM often""").to_arrow()) == wanted, """a tick"""
        )
        assert twin.copies["often"].drain(twin.emitted_lsn("often")) == wanted
    assert not len(db.query("SELECT * FROM seldom"))
    assert not twin.copies["seldom"].drain(twin.emitted_lsn("seldom"))


def test_a_window_over_two_logs_closes_when_both_have_passed(db, spark):
    twin = Twin(db, spark)
    for name in ("lefts", "rights"):
        twin.source(name, TICKS, "ts", timedelta(0))
    rows = "SELECT k, v, ts FROM lefts UNION ALL SELECT k, v, ts FROM rights"
    wanted = f"""SELECT window.start AS s, sum(v) AS q FROM ({rows}) GROUP BY window(ts, '1 minute')
            HAVING window.end <= (SELECT least(l.at, r.at) FROM lefts_mark l CROSS JOIN
            rights_mark r WHERE l.at IS NOT NULL AND r.at IS NOT NULL)"""
    twin.view(
        "closed",
        f"""SELECT WINDOW_START AS s, SUM(v) AS q FROM ({rows}) GROUP BY TUMBLE(ts, INTERVAL '1
            minute')""",
        wanted,
        tail="EMIT ON WINDOW CLOSE",
    )
    begin = at("2024-02-29 23:59:00")
    for name, seconds in [("lefts", 10), ("lefts", 90), ("rights", 20), ("rights", 70)]:
        twin.push(name, [("a", seconds, None, begin + timedelta(seconds=seconds))])
        twin.check()
    twin.promise("rights", begin + timedelta(seconds=500))
    twin.check()
    twin.promise("lefts", begin + timedelta(seconds=120))
    twin.check()
    assert twin.copies["closed"].rows.total() == 2
    assert set(twin.copies["closed"].ops) == {"insert"}


def test_an_idle_source_closes_its_windows(db):
    db.execute(
        f"""CREATE SOURCE ticks ({TICKS}, WATERMARK FOR ts AS ts - INTERVAL '1 second') WITH
            (idle_timeout = '50 milliseconds')"""
    )
    db.execute(
        """CREATE MATERIALIZED VIEW closed AS SELECT k, COUNT(*) AS n FROM ticks GROUP BY k,
            TUMBLE(ts, INTERVAL '1 second') EMIT ON WINDOW CLOSE"""
    )
    subscription = db.subscribe("SELECT * FROM closed", start="earliest")
    moment = datetime.now(UTC)
    db.insert("ticks", [("a", 1, None, moment), ("a", 2, None, moment)])
    batch = subscription.recv(timeout=TIMEOUT)
    assert [(change.op, change.row) for change in batch] == [("insert", ("a", 2))]

"""State: Spark frees the groups of windows that have closed, and every result stays what it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.spark import live
from millstream.testing import engine_of, wait_until

from .exact import Twin
from .observing import batches_of, in_time, restart, rows_of, runner_of, settle, window_of
from .test_exact_windows import LATE, TICKS, at, check_late, straggling, tumbled

SECOND = timedelta(seconds=1)
EVE = at("1969-12-31 23:58:00")
KEYS = ("a", "b", None)
BATCH = 60
"""Rows of a batch, in these tests: twenty seconds of event time."""

WINDOWS = {
    "tumbled": (
        """SELECT k, WINDOW_END AS e, SUM(v) AS q FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '10
            seconds')""",
        """SELECT k, window.end AS e, sum(v) AS q FROM ticks GROUP BY k, window(ts, '10
            seconds')""",
    ),
    "hopped": (
        """SELECT k, WINDOW_END AS e, COUNT(*) AS n FROM ticks GROUP BY k, HOP(ts, INTERVAL '5
            seconds', INTERVAL '15 seconds')""",
        """SELECT k, window.end AS e, count(*) AS n FROM ticks GROUP BY k, window(ts, '15 seconds',
            '5 seconds')""",
    ),
    "cumulated": (
        """SELECT k, WINDOW_START AS s, WINDOW_END AS e, COUNT(*) AS n FROM ticks GROUP BY k,
            CUMULATE(ts, INTERVAL '5 seconds', INTERVAL '20 seconds')""",
        """SELECT k, w.start AS s, e, count(*) AS n FROM (SELECT *, explode(sequence(w.start +
            INTERVAL '5' SECOND, w.end, INTERVAL '5' SECOND)) AS e FROM (SELECT *, window(ts,
            '20 seconds') AS w FROM ticks)) WHERE ts < e GROUP BY k, w.start, e""",
    ),
}


def kept(db, view):
    """How many groups Spark has in its state, as of the last checkpoint."""
    query = runner_of(db, view)._query
    return query.session.read.format("statestore").load(str(query.checkpoint)).count()


def seconds(first, last, begin=EVE):
    """A row for each key in every second, and one without a time."""
    for second in range(first, last):
        yield [(key, second, None, begin + second * SECOND) for key in KEYS]
    yield [("a", 1, None, None)]


def open_at(db, view, moment):
    """How many of a view's groups have not ended at a moment."""
    return sum(row["e"] > moment for row in db.query(f"SELECT e FROM {view}").to_pylist())


def check_bounded(twin, now):
    """There is no more in the state than what was open when the last batch, or so, began."""
    for name in WINDOWS:
        most = open_at(twin.db, name, now - 4 * BATCH // len(KEYS) * SECOND)
        assert 0 < kept(twin.db, name) <= most
        assert len(twin.db.query(f"SELECT * FROM {name}")) > 2 * most


def test_the_catch_up_gear_frees_windows_that_have_closed(db, spark, monkeypatch):
    monkeypatch.setattr(live, "LIVE_ROWS", BATCH)
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", SECOND)
    for rows in seconds(0, 300):
        twin.push("ticks", rows)
    twin.views(**WINDOWS)
    twin.check()
    twin.await_live()
    check_bounded(twin, EVE + 300 * SECOND)


def test_the_live_gear_frees_windows_that_have_closed(db, spark, monkeypatch):
    monkeypatch.setattr(live, "LIVE_ROWS", BATCH)
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", SECOND)
    twin.views(**WINDOWS)
    twin.await_live()
    for first in range(0, 300, 20):
        for rows in seconds(first, first + 20):
            twin.push("ticks", rows)
        twin.settle()  # else a batch would go on for what has gathered
    twin.check()
    check_bounded(twin, EVE + 300 * SECOND)
    assert {each.shifts for each in twin.runners.values()} == {0}


def test_micro_batches_free_windows_that_have_closed(db, spark):
    spark.udf.register("state_twice", lambda x: 2 * x, "bigint")
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", SECOND)
    twin.view(
        "doubled",
        """SELECT k, WINDOW_END AS e, SUM(state_twice(v)) AS q FROM ticks GROUP BY k, TUMBLE(ts,
            INTERVAL '10 seconds')""",
        """SELECT k, window.end AS e, 2 * sum(v) AS q FROM ticks GROUP BY k, window(ts, '10
            seconds')""",
    )
    for first in range(0, 200, 40):
        for rows in seconds(first, first + 40):
            twin.push("ticks", rows)
        twin.settle()
    twin.check()
    assert runner_of(db, "doubled").state == "micro-batch"
    assert 0 < kept(db, "doubled") <= open_at(db, "doubled", EVE + 119 * SECOND)


# ---- whatever else there is


FREED = [name for name in LATE if "session" not in name]
OVER = f"""SELECT n, COUNT(*) AS c, SUM(q) AS t, MAX(s) AS last FROM
    (SELECT k, w.start AS s, count(*) AS n, sum(v) AS q FROM {tumbled(60, 20)} GROUP BY k, w)
    GROUP BY n"""


def test_late_rows_every_emit_and_a_view_over_a_view(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", timedelta(seconds=5))
    for name in FREED:
        ours, wanted, tail = LATE[name]
        twin.view(name, ours, wanted, tail=tail)
    # The first view takes back what it has shown; the second one never frees.
    over = "SELECT n, COUNT(*) AS c, SUM(q) AS t, MAX(s) AS last FROM tumbled GROUP BY n"
    twin.view("over", over, OVER)
    twin.await_live()
    now = EVE
    for number in range(4):
        for rows in straggling(25, number, now):
            twin.push("ticks", rows, ["single", "batch", "arrow"][number % 3])
            now = max([now, *(row[3] for row in rows)])
        twin.check()
        check_late(twin)
        restart(db, *FREED, "over")
    twin.check()
    shown = {name: len(db.query(f"SELECT * FROM {name}")) for name in FREED}
    assert all(kept(db, name) < shown[name] / 2 for name in ("tumbled", "hopped", "cumulated"))

    # Of a window that was freed, a row is late: it is counted, and brings nothing back.
    late = engine_of(db).views["tumbled"].late_rows
    twin.push("ticks", [("a", 1, None, EVE + 30 * SECOND), ("new", 1, None, EVE)])
    twin.check()
    check_late(twin)
    assert engine_of(db).views["tumbled"].late_rows == late + 2

    twin.promise("ticks", now + timedelta(days=1))
    restart(db, *FREED, "over")  # Spark learns of it with the next row
    twin.push("ticks", [("a", 1, None, now + timedelta(days=2))])
    twin.check()
    restart(db, *FREED, "over")
    twin.check()
    assert kept(db, "tumbled") == 1
    for name in ("closed", "final"):
        assert set(twin.copies[name].ops) == {"insert"}, f"{name} has taken something back"


def test_of_two_logs_the_least_watermark_counts(db, spark):
    twin = Twin(db, spark)
    for name in ("lefts", "rights"):
        twin.source(name, TICKS, "ts", timedelta(0))
    rows = "SELECT k, v, ts FROM lefts UNION ALL SELECT k, v, ts FROM rights"
    twin.view(
        "both",
        f"""SELECT WINDOW_START AS s, SUM(v) AS q FROM ({rows}) GROUP BY TUMBLE(ts, INTERVAL '1
            minute')""",
        f"SELECT window.start AS s, sum(v) AS q FROM ({rows}) GROUP BY window(ts, '1 minute')",
    )

    def push(log, first, last):
        for minute in range(first, last):
            twin.push(log, [("a", minute, None, EVE + minute * timedelta(minutes=1))])
        twin.check()
        restart(db, "both")
        return kept(db, "both")

    assert push("lefts", 0, 20) == 20
    assert push("lefts", 20, 30) == 30, "one log has no watermark yet"
    assert push("rights", 0, 11) == 30
    assert push("rights", 11, 12) == 20, "ten minutes have passed in both"
    assert push("rights", 12, 20) == 19


def test_what_may_be_corrected_is_kept(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", SECOND)
    twin.source("untimed", TICKS)
    twin.table("names", "k VARCHAR PRIMARY KEY, name VARCHAR")
    db.execute("INSERT INTO names VALUES ('a', 'A'), ('b', 'B')")
    twin.views(
        named=(
            """SELECT name, WINDOW_START AS s, SUM(v) AS q FROM ticks JOIN names ON ticks.k =
                names.k GROUP BY name, TUMBLE(ts, INTERVAL '10 seconds')""",
            """SELECT name, window.start AS s, sum(v) AS q FROM ticks JOIN names ON ticks.k =
                names.k GROUP BY name, window(ts, '10 seconds')""",
        ),
        unwatermarked=(
            """SELECT WINDOW_START AS s, SUM(v) AS q FROM untimed GROUP BY TUMBLE(ts, INTERVAL '10
                seconds')""",
            "SELECT window.start AS s, sum(v) AS q FROM untimed GROUP BY window(ts, '10 seconds')",
        ),
    )
    for first in (0, 100, 200):
        for rows in seconds(first, first + 100):
            twin.push("ticks", rows)
            twin.push("untimed", rows)
        twin.check()
        restart(db, "named", "unwatermarked")
    db.execute("UPDATE names SET name = 'other' WHERE k = 'a'")
    twin.push("untimed", [("a", 1, None, EVE)])
    twin.check()
    assert kept(db, "unwatermarked") == 30


@pytest.mark.parametrize("begin", [EVE, datetime(2026, 3, 1, 12, tzinfo=UTC)])
def test_restarts(tmp_path, spark, begin, monkeypatch):
    path = tmp_path / "db"
    minute = timedelta(minutes=1)
    rounds = 4
    for number in range(rounds):
        with ms.open(path, spark=spark) as db:
            if not number:
                db.execute(
                    f"CREATE SOURCE ticks ({TICKS}, WATERMARK FOR ts AS ts - INTERVAL '1 second')"
                )
                db.execute(
                    """CREATE MATERIALIZED VIEW minutes AS SELECT k, WINDOW_START AS s, COUNT(*) AS
                        n, SUM(v) AS q FROM ticks GROUP BY k, TUMBLE(ts, INTERVAL '1 minute')"""
                )
            wait_until(lambda: runner_of(db, "minutes").state == "live")
            source = db.source("ticks")
            for rows in straggling(40, number, begin + number * 4 * minute):
                source.push_batch(rows)
                db.flush()
            settle(db, "minutes")
            assert rows_of(db, "minutes") == expected(db)
            shown = len(db.query("SELECT * FROM minutes"))
            if number == rounds - 1:
                restart(db, "minutes")
                assert kept(db, "minutes") < shown / 2


def expected(db):
    """The rows of ``minutes``, by the source's log."""
    taken, late, _ = in_time(batches_of(db, "ticks"), 3)
    assert engine_of(db).views["minutes"].late_rows == len(late)
    groups = {}
    for k, v, _, ts in taken:
        count, total = groups.get((k, window_of(ts)), (0, None))
        total = total if v is None else v + (total or 0)
        groups[k, window_of(ts)] = (count + 1, total)
    return dict.fromkeys(((*key, *value) for key, value in groups.items()), 1)

"""State: groups of windows that have closed expire, and every result stays what it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.testing import engine_of

from .exact import Twin
from .observing import batches_of, in_time, rows_of, settle, window_of
from .test_exact_windows import LATE, TICKS, at, check_late, straggling, tumbled
from .test_operator_state import size_of

SECOND = timedelta(seconds=1)
EVE = at("1969-12-31 23:58:00")
KEYS = ("a", "b", None)

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
    """How many groups a view with a watermark has in its state: each, and a note of its end."""
    return size_of(db, view)[0] / 2


def seconds(first, last, begin=EVE):
    """A row for each key in every second, and one without a time."""
    for second in range(first, last):
        yield [(key, second, None, begin + second * SECOND) for key in KEYS]
    yield [("a", 1, None, None)]


LONGER = {"tumbled": 0, "hopped": 15, "cumulated": 20}
"""For how many seconds windows stay: of a row that is in several, until the last has closed."""


def check_bounded(twin):
    """The state has the groups of windows that are open, and no others."""
    mark = twin.watermark["ticks"]
    for name, seconds_more in LONGER.items():
        ends = [row["e"] for row in twin.db.query(f"SELECT e FROM {name}").to_pylist()]
        wanted = sum(end > mark - seconds_more * SECOND for end in ends)
        assert kept(twin.db, name) == wanted > 0, name
        assert len(ends) > 2 * kept(twin.db, name)


def test_windows_that_have_closed_are_let_go(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", SECOND)
    for rows in seconds(0, 150):
        twin.push("ticks", rows)
    twin.views(**WINDOWS)
    twin.check()
    check_bounded(twin)
    for first in range(150, 300, 25):
        for rows in seconds(first, first + 25):
            twin.push("ticks", rows)
        twin.check()
        check_bounded(twin)
    with twin.opened_again():
        for rows in seconds(300, 330):
            twin.push("ticks", rows)
        twin.check()
        check_bounded(twin)


# ---- whatever else there is


OVER = f"""SELECT n, COUNT(*) AS c, SUM(q) AS t, MAX(s) AS last FROM
    (SELECT k, w.start AS s, count(*) AS n, sum(v) AS q FROM {tumbled(60, 20)} GROUP BY k, w)
    GROUP BY n"""


def test_late_rows_every_emit_and_a_view_over_a_view(db, spark):
    twin = Twin(db, spark)
    twin.source("ticks", TICKS, "ts", timedelta(seconds=5))
    for name, (ours, wanted, tail) in LATE.items():
        twin.view(name, ours, wanted, tail=tail)
    # The first view takes back what it has shown; the second one never frees.
    over = "SELECT n, COUNT(*) AS c, SUM(q) AS t, MAX(s) AS last FROM tumbled GROUP BY n"
    twin.view("over", over, OVER)
    now = push_stragglers(twin, EVE, (0, 1))
    with twin.opened_again() as again:
        now = push_stragglers(twin, now, (2, 3))
        shown = {name: len(again.query(f"SELECT * FROM {name}")) for name in LATE}
        assert all(kept(again, name) < shown[name] / 2 for name in LATE if name != "revised")

        # Of a window that has expired, a row is late: it is counted, and brings nothing back.
        late = engine_of(again).views["tumbled"].late_rows
        twin.push("ticks", [("a", 1, None, EVE + 30 * SECOND), ("new", 1, None, EVE)])
        twin.check()
        check_late(twin)
        assert engine_of(again).views["tumbled"].late_rows == late + 2

        twin.promise("ticks", now + timedelta(days=1))
        twin.push("ticks", [("a", 1, None, now + timedelta(days=2))])
        twin.check()
        assert kept(again, "tumbled") == 1
        for name in ("closed", "final", "final_sessions"):
            assert set(twin.copies[name].ops) == {"insert"}, f"{name} has taken something back"


def push_stragglers(twin, now, seeds):
    """Rows in time and late ones, in every form; the last time."""
    for seed in seeds:
        for rows in straggling(25, seed, now):
            twin.push("ticks", rows, ["single", "batch", "arrow"][seed % 3])
            now = max([now, *(row[3] for row in rows)])
        twin.check()
        check_late(twin)
    return now


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
        return kept(db, "both")

    assert push("lefts", 0, 20) == 20
    assert push("lefts", 20, 30) == 30, "one log has no watermark yet"
    # The watermark of the newest row counts with the next one.
    assert push("rights", 0, 12) == 20, "ten minutes have passed in both"
    assert push("rights", 12, 20) == 12


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
    db.execute("UPDATE names SET name = 'other' WHERE k = 'a'")
    twin.push("untimed", [("a", 1, None, EVE)])
    twin.check()
    assert size_of(db, "unwatermarked")[0] == 30


@pytest.mark.parametrize("begin", [EVE, datetime(2026, 3, 1, 12, tzinfo=UTC)])
def test_restarts(tmp_path, spark, begin):
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
            source = db.source("ticks")
            for rows in straggling(40, number, begin + number * 4 * minute):
                source.push_batch(rows)
                db.flush()
            settle(db, "minutes")
            assert rows_of(db, "minutes") == expected(db)
            shown = len(db.query("SELECT * FROM minutes"))
            if number == rounds - 1:
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

"""Views under test: what they show, their gears, and what the rows of a market must come to."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from millstream.spark.gears import Runner
from millstream.testing import TIMEOUT, engine_of, wait_until

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rows_of(db, view):
    """What a view shows now, as a bag."""
    return Counter(db.query(f"SELECT * FROM {view}", stale_ok=True).fetchall())


def settle(db, *views):
    """Wait until views have taken in all that was pushed. Name those that others read first."""
    for view in views:
        db.wait_for(view, lsn=db.flush(), timeout=TIMEOUT)
    db.flush()


def runner_of(db, view):
    return engine_of(db).views[view].runner


def is_on_spark(runner):
    """Whether a query of Spark runs a view, not this process alone."""
    return isinstance(runner, Runner)


def running(db, view):
    return engine_of(db).views[view].view


def shift(db, gear, *views):
    """Have views change gear, and wait until all of them run live again after it."""
    runners = [each for each in (runner_of(db, view) for view in views) if isinstance(each, Runner)]
    wait_until(lambda: all(each.state == "live" for each in runners), "the live gear")
    before = [each.shifts for each in runners]
    for each in runners:
        each.shift(gear)
    # A line of operators has one gear.
    more = [2 if gear == "catch-up" and not each._query.plan.line else 0 for each in runners]

    def done():
        return all(
            r.state == "live" and r._wanted is None and r.shifts >= b + m
            for r, b, m in zip(runners, before, more, strict=True)
        )

    wait_until(
        done, lambda: f"the shift to {gear}: {[(r._name, r.state, r.shifts) for r in runners]}"
    )


def batches_of(db, source):
    """What the log has of a source: the rows of each commit, and the watermark after it."""
    log = engine_of(db).log
    return [(batch.rows, batch.watermark) for batch in log.read(source)]


def in_time(batches, column, size=MINUTE, lateness=timedelta(0)):
    """The rows of a source that its tumbling windows take, and those that are late.

    A row is late when its window had ended, lateness and all, by the watermark before its commit.
    """
    taken, late, mark = [], [], None
    for rows, watermark in batches:
        for row in rows:
            end = window_of(row[column], size) + size
            passed = mark is not None and end + lateness <= EPOCH + timedelta(microseconds=mark)
            (late if passed else taken).append(row)
        if watermark is not None:
            mark = watermark if mark is None else max(mark, watermark)
    return taken, late, mark


def window_of(moment, size=MINUTE):
    """The start of the tumbling window that a moment is in."""
    return moment - (moment - EPOCH) % size

"""Views under test: what they show, their queries, what the rows of a market must come to."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from millstream.testing import TIMEOUT, engine_of, wait_until
from millstream.views.run.runner import _PARK_SECONDS as PATIENCE
from millstream.views.run.runner import Runner

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


def until_started(runner):
    """Wait until the query of a view runs, or has failed."""
    wait_until(lambda: runner.state != "starting", "a query that has started")


def running(db, view):
    return engine_of(db).views[view].view


def restart(db, *views, gracefully=True):
    """Have the queries of views end in Spark, and wait until they run again from a checkpoint.

    Gracefully: from one that is written now. Else what came after the last one is read again.
    """
    found = (runner_of(db, view) for view in views)
    runners = [each for each in found if isinstance(each, Runner)]  # others run in this process
    wait_until(lambda: all(each.state == "live" for each in runners), "queries that run")
    ended = set()
    for each in runners:
        if gracefully:
            end_batch(each)
        for query in queries_of(each):
            ended.add(query.runId)
            query.stop()

    def run_again():
        now = [{query.runId for query in queries_of(each)} for each in runners]
        return all(now) and not ended.intersection(*now)

    wait_until(run_again, "queries that run again")


def end_batch(runner):
    """Have the batch of a query end with a checkpoint, as when it is stopped.

    As there, not for ever: one that has just begun may not end, and is read again.
    """
    runner._feed.end_batch()
    runner._feed.live.wait_parked(PATIENCE)


def queries_of(runner):
    """The queries of a view that run in Spark: one, or one for each of its partitions."""
    partitions = runner._query.partitions
    return [each for partition in partitions for each in partition.session.streams.active]


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

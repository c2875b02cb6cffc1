"""What subscribers of views are told, added up; and what the rows of a market must come to."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

from millstream.spark.gears import Runner

PATIENCE = 120
"""Seconds after which something that must come is taken for lost. No test waits for it to pass."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Ledger:
    """A subscriber's copy of a view, from the first change on or from a snapshot.

    No row goes that is not there, and no change says what is known already. With ``keyed``, no two
    rows have the same key, which is the first so many columns.
    """

    def __init__(self, keyed=0):
        self.rows = Counter()
        self.token = None
        self.changes = 0
        self._keyed = keyed
        self._lsn = 0

    def take(self, batch):
        assert batch.gap is None
        if batch.kind == "changes":
            assert batch.first_lsn > self._lsn, "told twice"
        for change in batch:
            if change.op == "update":
                assert change.before != change.row, "an update that changes nothing"
            if change.before is not None:
                self._go(change.before)
            if change.op != "delete":
                self.rows[change.row] += 1
            self.changes += 1
        self._lsn, self.token = batch.lsn, batch.token

    def _go(self, row):
        assert self.rows[row], f"{row} goes, and is not there"
        self.rows[row] -= 1
        if not self.rows[row]:
            del self.rows[row]

    def drain(self, subscription, db, view):
        """Take all that a view has told so far, with some patience, and nothing more."""
        db.flush()
        last = max((batch.lsn for batch in db._engine.log.read(view)), default=0)
        while subscription.position < last:
            self.take(subscription.recv(timeout=PATIENCE))
        while (batch := subscription.try_recv()) is not None:
            self.take(batch)
        if self._keyed:
            keys = Counter(row[: self._keyed] for row in self.rows.elements())
            assert max(keys.values(), default=1) == 1, "two rows of one key"
        return self.rows


def rows_of(db, view):
    """What a view shows now, as a bag."""
    return Counter(db.query(f"SELECT * FROM {view}").fetchall())


def settle(db, *views):
    """Wait until views have taken in all that was pushed. Name those that others read first."""
    for view in views:
        db.wait_for(view, lsn=db.flush(), timeout=PATIENCE)
    db.flush()


def runner_of(db, view):
    return db._engine.views[view].runner


def running(db, view):
    return db._engine.views[view].view


def until(condition, what="it"):
    """Look again and again until a condition holds; returns what it gave."""
    pause = threading.Event()
    for _ in range(PATIENCE * 100):
        found = condition()
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError(f"{what() if callable(what) else what} never came to be")


def shift(db, gear, *views):
    """Have views change gear, and wait until all of them run live again after it."""
    runners = [each for each in (runner_of(db, view) for view in views) if isinstance(each, Runner)]
    until(lambda: all(each.state == "live" for each in runners), "the live gear")
    before = [each.shifts for each in runners]
    for each in runners:
        each.shift(gear)
    more = 2 if gear == "catch-up" else 0

    def done():
        pairs = zip(runners, before, strict=True)
        return all(
            r.state == "live" and r._wanted is None and r.shifts >= b + more for r, b in pairs
        )

    until(done, lambda: f"the shift to {gear}: {[(r._name, r.state, r.shifts) for r in runners]}")


def batches_of(db, source):
    """What the log has of a source: the rows of each commit, and the watermark after it."""
    log = db._engine.log
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

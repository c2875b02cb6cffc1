"""A running view: the view, what keeps it up to date, and why one may not run.

A view on Spark is kept up to date by ``spark.gears.Runner``; a view that only filters and projects
one log by a ``LogFollower``, in this process; one that can never go on has failed, and is
``Stalled``.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from millstream.dispatch import make_readable, select
from millstream.errors import (
    ClosedError,
    Error,
    LogFailedError,
    ViewFailedError,
    ViewNotReadyError,
)
from millstream.log.reader import not_kept
from millstream.model.batch import ChangeBatch
from millstream.spark.failure import view_failure
from millstream.threads import thread, uninterrupted
from millstream.views.beginning import rows_at
from millstream.views.result_shapes import GroupedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.catalog import Definition
    from millstream.delivery.tail import LogTail
    from millstream.log import Log
    from millstream.log.retention import Hold
    from millstream.spark.feed import ViewFeed
    from millstream.sql import SelectPlan
    from millstream.views.definitions import Storage
    from millstream.views.planning import PlannedView
    from millstream.views.result_shapes import PlainRows
    from millstream.views.view import View

_PROBE_SECONDS: Final = 1.0


@dataclass(slots=True)
class LogHolds:
    """Keeps from retention what a view may have to read again.

    Attributes:
        holds: of all its inputs; none when it has failed for good.
    """

    holds: list[Hold]

    @staticmethod
    def of(log: Log, topics: Iterable[str], lsn: int) -> LogHolds:
        """Keep all that some topics have from an LSN on."""
        return LogHolds([log.hold(*topics, lsn=lsn, kept=True)])

    def advance(self, lsn: int) -> None:
        """Everything up to an LSN will not be read again."""
        for each in self.holds:
            each.advance(lsn + 1)

    def renew(self, others: LogHolds) -> None:
        """Keep what others keep, from now on."""
        before, self.holds = self.holds, others.holds
        for each in before:
            each.release()

    def release(self) -> None:
        """Nothing will be read again."""
        for each in self.holds:
            each.release()


class ViewRunner(Protocol):
    """What keeps a view up to date: ``spark.gears.Runner``, ``LogFollower`` or ``Stalled``.

    Attributes:
        shifts: how often it has changed gear.
        restarts: how often its query was started again after a failure.
    """

    shifts: int
    restarts: int

    @property
    def state(self) -> str:
        """What it is doing."""

    @property
    def error(self) -> ViewFailedError | None:
        """Why it failed the last time, until it has got further."""

    def start(self) -> None:
        """Start its thread."""

    def stop(self, *, gracefully: bool = True) -> None:
        """Have its thread end; gracefully: at a checkpoint."""

    def join(self) -> None:
        """Wait until its thread has ended."""

    def probe(self, lsn: int) -> None:
        """Have the view notified when everything up to an LSN has passed, of its logs or not."""


@dataclass(slots=True)
class RunningView:
    """A view and what keeps it up to date.

    Attributes:
        planned: how it was planned.
        view: its rows, and how far they count.
        runner: runs its query.
        feed: what Spark reads; None for a view without Spark.
        holds: what it may have to read again.
        users: of a hidden view, how many subscriptions share it.
        ticker: of EMIT EVERY.
        state_size: gives how many rows and bytes its query has to remember; None: not known.
    """

    planned: PlannedView
    view: View
    runner: ViewRunner
    feed: ViewFeed | None
    holds: LogHolds
    users: int = 0
    ticker: Ticker | None = None
    state_size: Callable[[], tuple[int, int] | None] = lambda: None

    @property
    def state(self) -> str:
        """What it is doing; ``waiting`` when the disk is full."""
        return self.runner.state if self.view.progress.blocked_by is None else "waiting"

    @property
    def error(self) -> Error | None:
        """Why it failed the last time, or waits."""
        return self.view.progress.blocked_by or self.runner.error

    @property
    def late_rows(self) -> int:
        """How many rows came too late for it."""
        return 0 if self.feed is None else self.feed.live.late

    def may_stop_at(self, lsn: int) -> bool:
        """Whether a cut at an LSN may still hit: it is there, or was sent nothing after it."""
        if self.view.cause > lsn or self.view.progress.reached > lsn:
            return False
        if self.feed is None or self.view.progress.reached == lsn:
            return True
        return self.runner.state == "live" and self.feed.live.sent_lsn <= lsn

    def cut_at(self, lsn: int, passed: Callable[[bool], None], *, idle: bool = False) -> None:
        """Have a function called when it includes an LSN: with True, if that and nothing later."""
        self.view.progress.cut_at(lsn, passed, idle=idle)
        if self.feed is None or self.feed.live.sent_lsn < lsn:
            self.runner.probe(lsn)

    def lag(self, lsn: int) -> int:
        """About how many rows it is behind an LSN."""
        if self.feed is not None and self.runner.state == "live":
            return self.feed.live.lag()
        return max(0, lsn - self.view.progress.reached)

    def start(self) -> None:
        """Start its threads."""
        if self.view.progress.saved_until:
            self.runner.probe(self.view.progress.saved_until)
        self.runner.start()
        every = self.planned.statement.emit.every
        if every is not None:
            self.ticker = Ticker(self.view, every.total_seconds())

    def stop(self, *, gracefully: bool) -> None:
        """Have its threads end; gracefully: at a checkpoint."""
        if self.ticker is not None:
            self.ticker.stop()
        self.view.stop()
        self.runner.stop(gracefully=gracefully)

    def wait_for(self, lsn: int, seconds: float | None) -> None:
        """Wait until it runs and includes everything up to an LSN.

        Raises:
            ViewNotReadyError: the time is up.
            ViewFailedError: its query cannot go on.
        """
        uninterrupted(self.runner.probe)(lsn)
        progress = self.view.progress
        if not progress.wait_for(lsn, seconds):
            raise ViewNotReadyError(
                f"{self.view.name} is at LSN {progress.reached:,}, not at {lsn:,}, "
                "and the time is up",
                hint=f"its query is {self.runner.state}; wait longer, or look at SHOW VIEWS",
            )


def follow(storage: Storage, planned: PlannedView, plan: SelectPlan, view: View) -> RunningView:
    """A view that needs no Spark, ready to start."""
    shape, begins = planned.shape, planned.definition.begins
    if isinstance(shape, GroupedRows):
        raise AssertionError("a view without Spark has no groups")  # noqa: TRY004 - a bug
    holds = LogHolds.of(storage.log, (plan.target,), max(view.cause + 1, begins))
    follower = LogFollower(
        view, shape, plan, storage=storage, begins=begins, on_committed=holds.advance
    )
    return RunningView(planned, view, follower, None, holds)


# ---- without Spark


class LogFollower:
    """Keeps a view that only filters and projects one log, in a thread of its own.

    Args:
        view: the view.
        shape: its rows.
        plan: what it keeps of the log.
        storage: where the log is.
        begins: the first LSN that the view reads.
        on_committed: called with the LSN up to which nothing will be read again.
    """

    def __init__(
        self,
        view: View,
        shape: PlainRows,
        plan: SelectPlan,
        *,
        storage: Storage,
        begins: int,
        on_committed: Callable[[int], None],
    ) -> None:
        self.state = "starting"
        self.shifts = 0
        self.restarts = 0
        self.error: ViewFailedError | None = None
        self._view = view
        self._shape = shape
        self._plan = plan
        self._storage = storage
        self._begins = begins
        self._on_committed = on_committed
        self._tail: LogTail | None = None
        self._probed = 0
        self._stopping = False
        self._ready = threading.Event()
        self._thread = thread(view.name, self._run, self._fail)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_ready(self, seconds: float | None = None) -> bool:
        """Wait until it follows the log, or has failed; False when the time is up."""
        return self._ready.wait(seconds)

    def probe(self, lsn: int) -> None:
        """Have the view notified soon how far the log has been read."""
        self._probed = max(self._probed, lsn)
        if self._tail is not None:
            self._tail.wake_up()

    def stop(self, *, gracefully: bool = True) -> None:
        """Have the thread end. Nothing has to be repeated either way: each batch is a commit."""
        del gracefully
        self._stopping = True
        if self._tail is not None:
            self._tail.wake_up()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            tail = self._tail = self._open_tail()
            self.state = "live"
            self._ready.set()
            self._view.progress.started()
            while not self._stopping:
                self._step(tail)
        except ClosedError:
            pass
        except Error as error:
            self._fail(error)
            return
        finally:
            if self._tail is not None:
                self._tail.close()
        self.state = "stopped"

    def _open_tail(self) -> LogTail:
        topic = self._plan.target
        if self._shape.retracts and not self._view.cause:
            return self._storage.tail(topic, self._begin())
        kept = self._storage.log.topic(topic)
        wanted = max(self._view.cause + 1, self._begins)
        if self._shape.retracts and kept.low_lsn > wanted:
            raise not_kept(kept, wanted)  # a row that is gone would stay
        return self._storage.tail(topic, max(wanted, kept.low_lsn) - 1)

    def _begin(self) -> int:
        """Show the current rows of what it reads, in one commit; returns their LSN."""
        storage = self._storage
        lsn = make_readable(storage.dispatcher, storage.log)
        rows = rows_at(storage, self._plan.target, lsn, self._check_open)
        selected = [select(batch, self._plan) for batch in rows]
        kept = [each for each in selected if each is not None and len(each)]
        if kept:
            batch = ChangeBatch.concat(kept)
            self._view.follow(lambda: self._shape.follow(batch, lsn), lsn)
            self._on_committed(lsn)
        return lsn

    def _check_open(self) -> None:
        if self._stopping:
            raise ClosedError("the view is being stopped")

    def _fail(self, error: Exception) -> None:
        """It cannot go on: the view's subscriptions end with the error."""
        self.state = "failed"
        self.error = view_failed(self._view.name, error)
        self._view.progress.failed(self.error, hopeless=True)
        self._ready.set()

    def _step(self, tail: LogTail) -> None:
        batch = tail.take()
        if batch is None:
            self._view.progress.idle(tail.settled())
            # An LSN that is awaited may be one of other logs, of which nobody is woken here.
            tail.wait(_PROBE_SECONDS if self._probed > self._view.progress.reached else None)
            return
        for cut in sorted(self._view.progress.cuts):
            if batch.first_lsn <= cut < batch.lsn:  # a frame of the log may have several commits
                self._take(batch.slice(0, cut - batch.first_lsn + 1))
                batch = batch.slice(cut - batch.first_lsn + 1)
        self._take(batch)

    def _take(self, batch: ChangeBatch) -> None:
        if self._view.progress.cuts:
            self._view.progress.idle(batch.first_lsn - 1)
        kept = select(batch, self._plan)
        if kept is not None and len(kept):
            self._view.follow(lambda: self._shape.follow(kept, batch.lsn), batch.lsn)
            self._on_committed(batch.lsn)
        else:
            self._view.progress.caught_up(batch.lsn)


class Stalled:
    """In place of the query of a view that can never go on: nothing runs.

    Args:
        view: the view.
        error: why it cannot.
    """

    def __init__(self, view: View, error: ViewFailedError) -> None:
        self.state = "failed"
        self.shifts = 0
        self.restarts = 0
        self.error = error
        self._view = view

    def start(self) -> None:
        """Have the view fail."""
        self._view.progress.failed(self.error, hopeless=True)

    def stop(self, *, gracefully: bool = True) -> None:
        """Do nothing: no thread runs."""

    def join(self) -> None:
        """Return at once: no thread runs."""

    def probe(self, lsn: int) -> None:
        """Do nothing: it will not get there."""


class Ticker:
    """Calls a view's ``tick`` at each multiple of an interval, in a thread of its own: EMIT EVERY.

    Args:
        view: the view.
        seconds: the interval.
    """

    def __init__(self, view: View, seconds: float) -> None:
        self._view = view
        self._seconds = seconds
        self._over = threading.Event()
        thread(f"tick-{view.name}", self._run, self._crashed).start()

    def stop(self) -> None:
        """Have the thread end."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds - time.time() % self._seconds):
            try:
                self._view.tick()
            except (ClosedError, LogFailedError):  # which every reader gets, too
                return

    def _crashed(self, error: Exception) -> None:
        """Without ticks the view would show nothing new: its subscriptions end with the error."""
        self._view.progress.failed(view_failed(self._view.name, error), hopeless=True)


# ---- errors


def view_failed(name: str, raised: Exception) -> ViewFailedError:
    """The error that readers of a view get for what was raised in one of its threads."""
    return view_failure(
        name,
        raised,
        f"{type(raised).__name__}: {raised}",
        "open the database again; this is a bug in Millstream, please report it",
    )


def unrepeatable(definition: Definition, state: str) -> ViewFailedError:
    """The error of a view that would have to read its inputs again, and cannot.

    Args:
        definition: the view.
        state: what its checkpoint is.
    """
    gone = "are, too" if state == "gone" else "are gone"
    return ViewFailedError(
        f"the checkpoint of {definition.name} is {state}, and rows that it has read {gone}",
        view=definition.name,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {definition.name} begins with what is kept",
    )


def unopened(definition: Definition, error: Exception) -> ViewFailedError:
    """The error of a view that could not be opened."""
    kind = definition.kind.upper()
    what = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failed = ViewFailedError(
        f"{definition.name} could not be opened: {what}",
        view=definition.name,
        hint=f"SHOW CREATE {definition.name} shows it; CREATE OR REPLACE it, or DROP {kind} it",
    )
    failed.__cause__ = error
    return failed


def half_dropped(name: str, error: Error) -> ViewFailedError:
    """The error of a view that was stopped and could not be dropped."""
    return ViewFailedError(
        f"{name} was to be dropped: {error.message}",
        view=name,
        hint="drop it again, or open the database again",
    )

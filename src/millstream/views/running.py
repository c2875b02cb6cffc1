"""A running view: the view, what keeps it up to date, and why one may not run.

A view on Spark is kept up to date by ``run.runner.Runner``; a view that only filters and projects
one log by a ``follower.LogFollower``, in this process; one that can never go on has failed, and is
``Stalled``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import (
    Error,
    ViewFailedError,
    ViewNotReadyError,
)
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.log import Log
    from millstream.log.retention import Hold
    from millstream.views.planning import PlannedView
    from millstream.views.run.feed import ViewFeed
    from millstream.views.view import View

_RETRY_SECONDS: Final = 5.0
"""A reader of a view that has failed waits so long, at most, for the view to be tried again."""

_BEHIND: Final = 50_000
"""A view that is so many rows behind, a fraction of a second, is catching up."""


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
    """What keeps a view up to date: ``views.run.runner.Runner``, ``LogFollower`` or ``Stalled``.

    Attributes:
        restarts: how often its query was started again, after a failure or after Java's death.
    """

    restarts: int

    @property
    def state(self) -> str:
        """What it is doing."""

    @property
    def error(self) -> Error | None:
        """Why it failed the last time, until it has got further; or why it restarts."""

    def start(self) -> None:
        """Start its thread."""

    def stop(self, *, gracefully: bool = True, patiently: bool = False) -> None:
        """Have its thread end; gracefully: at a checkpoint; patiently: however long that takes."""

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
        state_size: gives how many rows and bytes its query has to remember; None: not known.
    """

    planned: PlannedView
    view: View
    runner: ViewRunner
    feed: ViewFeed | None
    holds: LogHolds
    users: int = 0
    state_size: Callable[[], tuple[int, int] | None] = lambda: None

    @property
    def state(self) -> str:
        """What it is doing; ``waiting`` when the disk is full."""
        progress, state = self.view.progress, self.runner.state
        if progress.blocked_by is not None:
            return "waiting"
        if self.feed is None or state != "live":
            return state
        is_new = progress.reached < 0 or progress.shows_saved_rows
        return "catching up" if is_new or self._lag_of(self.feed) >= _BEHIND else "live"

    @property
    def error(self) -> Error | None:
        """Why it failed the last time, restarts, or waits."""
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
            return self._lag_of(self.feed)
        return max(0, lsn - self.view.progress.reached)

    def _lag_of(self, feed: ViewFeed) -> int:
        """About how many rows its query was not sent, or has not sent the results of."""
        return feed.live.lag() + max(0, feed.live.sent_lsn - self.view.progress.reached)

    def start(self) -> None:
        """Start its threads."""
        if self.view.progress.saved_until:
            self.runner.probe(self.view.progress.saved_until)
        self.runner.start()

    def stop(self, *, gracefully: bool, patiently: bool = False) -> None:
        """Have its threads end; gracefully: at a checkpoint; patiently: however long that takes."""
        self.view.stop()
        self.runner.stop(gracefully=gracefully, patiently=patiently)

    def error_at(self, lsn: int) -> ViewFailedError | None:
        """Why it has failed, if it has; a retry that a commit up to an LSN leads to is awaited."""
        progress = self.view.progress
        if progress.error is not None and not progress.counts_at(lsn):
            self.runner.probe(lsn)
            progress.wait_retried(lsn, _RETRY_SECONDS)
        return progress.error

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


class Stalled:
    """In place of the query of a view that can never go on: nothing runs.

    Args:
        view: the view.
        error: why it cannot.
    """

    def __init__(self, view: View, error: ViewFailedError) -> None:
        self.state = "failed"
        self.restarts = 0
        self.error = error
        self._view = view

    def start(self) -> None:
        """Have the view fail."""
        self._view.progress.failed(self.error, hopeless=True)

    def stop(self, *, gracefully: bool = True, patiently: bool = False) -> None:
        """Do nothing: no thread runs."""

    def join(self) -> None:
        """Return at once: no thread runs."""

    def probe(self, lsn: int) -> None:
        """Do nothing: it will not get there."""

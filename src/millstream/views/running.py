"""A running view: the view, what keeps it up to date, and why one may not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import Error, ViewFailedError
from millstream.views.follower import LogFollower, Ticker
from millstream.views.result_shapes import GroupedRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.catalog import Definition
    from millstream.log import Log
    from millstream.log.retention import Hold
    from millstream.spark.feed import ViewFeed
    from millstream.spark.gears import Runner
    from millstream.sql import SelectPlan
    from millstream.views.follower import Stalled
    from millstream.views.planning import PlannedView
    from millstream.views.storage import Storage
    from millstream.views.view import View


@dataclass(slots=True)
class LogHolds:
    """Keeps from retention what a view may have to read again.

    Attributes:
        holds: one for each of its inputs.
    """

    holds: list[Hold]

    @staticmethod
    def of(log: Log, topics: Iterable[str], lsn: int) -> LogHolds:
        """Keep all that some topics have from an LSN on."""
        return LogHolds([log.hold(each, lsn=max(lsn, log.topic(each).low_lsn)) for each in topics])

    def advance(self, lsn: int) -> None:
        """Everything up to an LSN will not be read again."""
        for each in self.holds:
            each.advance(lsn + 1)

    def release(self) -> None:
        """Nothing will be read again."""
        for each in self.holds:
            each.release()


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
    """

    planned: PlannedView
    view: View
    runner: Runner | LogFollower | Stalled
    feed: ViewFeed | None
    holds: LogHolds
    users: int = 0
    ticker: Ticker | None = None

    @property
    def state(self) -> str:
        """What it is doing; ``waiting`` when the disk is full."""
        return self.runner.state if self.view.progress.waits is None else "waiting"

    @property
    def error(self) -> Error | None:
        """Why it failed the last time, or waits."""
        return self.view.progress.waits or self.runner.error

    @property
    def late_rows(self) -> int:
        """How many rows came too late for it."""
        return 0 if self.feed is None else self.feed.live.late

    def lag(self, lsn: int) -> int:
        """About how many rows it is behind an LSN."""
        if self.feed is not None and self.runner.state == "live":
            return self.feed.live.lag()
        return max(0, lsn - self.view.progress.reached)

    def start(self) -> None:
        """Start its threads."""
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

    def probe(self, lsn: int) -> None:
        """Have the view notified when everything up to an LSN has passed, of its logs or not."""
        if self.feed is not None:
            self.feed.live.probe(lsn)
        elif isinstance(self.runner, LogFollower):
            self.runner.probe(lsn)


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


def unrepeatable(definition: Definition) -> ViewFailedError:
    """The error of a view that would have to read its inputs again, and cannot."""
    return ViewFailedError(
        f"the checkpoint of {definition.name} is gone, and rows that it has read are, too",
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

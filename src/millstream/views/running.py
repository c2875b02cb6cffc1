"""A view that runs, and what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import ViewFailedError
from millstream.views.follower import Follower

if TYPE_CHECKING:
    from millstream.catalog import Definition
    from millstream.errors import Error
    from millstream.log.retention import Hold
    from millstream.spark.feed import ViewFeed
    from millstream.spark.gears import Runner
    from millstream.views.planning import Planned
    from millstream.views.ticker import Ticker
    from millstream.views.view import View


class Stalled:
    """What stands in for the query of a view that can never go on."""

    def __init__(self, view: View, error: ViewFailedError) -> None:
        self.state = "failed"
        self.shifts = 0
        self.restarts = 0
        self.error = error
        self._view = view

    def start(self) -> None:
        """Tell."""
        self._view.failed(self.error, hopeless=True)

    def stop(self, *, gracefully: bool = True) -> None:
        """Nothing runs."""

    def join(self) -> None:
        """Nothing runs."""


def unrepeatable(definition: Definition) -> ViewFailedError:
    """The error of a view that would have to begin anew, and cannot."""
    return ViewFailedError(
        f"the checkpoint of {definition.name} is gone, and rows that it has read are, too",
        view=definition.name,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {definition.name} begins with what is kept",
    )


def unopened(definition: Definition, what: str) -> ViewFailedError:
    """The error of a view that could not be opened."""
    kind = definition.kind.upper()
    return ViewFailedError(
        f"{definition.name} could not be opened: {what}",
        view=definition.name,
        hint=f"SHOW CREATE {definition.name} shows it; CREATE OR REPLACE it, or DROP {kind} it",
    )


def half_dropped(name: str, error: Error) -> ViewFailedError:
    """The error of a view that was stopped and could not be dropped."""
    return ViewFailedError(
        f"{name} was to be dropped: {error.message}",
        view=name,
        hint="drop it again, or open the database again",
    )


@dataclass(slots=True)
class Holds:
    """Keep what a view may have to read again."""

    holds: list[Hold]

    def advance(self, lsn: int) -> None:
        """Everything up to an LSN will not be read again."""
        for each in self.holds:
            each.advance(lsn + 1)

    def release(self) -> None:
        """Nothing is needed any more."""
        for each in self.holds:
            each.release()


@dataclass(slots=True)
class Running:
    """A view and what keeps it up to date."""

    planned: Planned
    view: View
    runner: Runner | Follower | Stalled
    feed: ViewFeed | None
    holds: Holds
    users: int = 0
    late_lsn: int = 0
    ticker: Ticker | None = None

    @property
    def state(self) -> str:
        """What it is doing; ``waiting`` when the disk is full."""
        return self.runner.state if self.view.waits is None else "waiting"

    @property
    def error(self) -> Error | None:
        """Why it failed the last time, or waits."""
        return self.view.waits or self.runner.error

    @property
    def late_rows(self) -> int:
        """How many rows came too late for it."""
        return 0 if self.feed is None else self.feed.live.late

    def lag(self, lsn: int) -> int:
        """About how many rows it is behind."""
        if self.feed is not None and self.runner.state == "live":
            return self.feed.live.lag()
        return max(0, lsn - self.view.reached)

    def stop(self, *, gracefully: bool) -> None:
        """Begin its end."""
        if self.ticker is not None:
            self.ticker.stop()
        self.view.stop()
        self.runner.stop(gracefully=gracefully)

    def probe(self, lsn: int) -> None:
        """Have the view told when everything up to an LSN has passed, of its logs or not."""
        if self.feed is not None:
            self.feed.live.probe(lsn)
        elif isinstance(self.runner, Follower):
            self.runner.probe(lsn)

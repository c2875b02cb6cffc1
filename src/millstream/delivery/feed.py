"""A feed: what a reader follows: one log or several, a query for each, and their current rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.delivery.replay import Replay
from millstream.dispatch import select
from millstream.model.lsn import FIRST_LSN
from millstream.model.schema import Schema
from millstream.sql import SelectPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from millstream.dispatch import Dispatcher, Subscriber
    from millstream.errors import Error
    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap


class LogFeed:
    """One query over one log.

    Args:
        log: the log of the database.
        dispatcher: offers its changes.
        plan: the query; its target is the topic.
        snapshot: the current rows that the query gives, and the LSN at which they hold; None when
            the log has no current rows.
    """

    __slots__ = ("_snapshot", "dispatcher", "log", "plan")

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        plan: SelectPlan,
        snapshot: Callable[[], tuple[list[ChangeBatch], int]] | None = None,
    ) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.plan = plan
        self._snapshot = snapshot

    def join(self, subscriber: Subscriber) -> None:
        """Have the dispatcher offer what is committed from now on."""
        self.dispatcher.fan_out.routes(self.plan.target).add(self.plan, subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Have the dispatcher offer nothing more."""
        self.dispatcher.fan_out.routes(self.plan.target).remove(self.plan, subscriber)

    def lsn(self) -> int:
        """Every commit after this LSN will be offered to subscribers that have joined by now."""
        return self.dispatcher.lsn

    def offered_lsn(self) -> int:
        """Every commit up to this LSN was offered to subscribers that had joined."""
        return self.dispatcher.fan_out.offered_lsn

    def earliest(self) -> int:
        """The first LSN that is kept."""
        return max(self.log.topic(self.plan.target).low_lsn, FIRST_LSN)

    def kept_from(self, first: int) -> tuple[int, Gap | None]:
        """The first LSN from ``first`` on that is kept, and the gap that retention has left."""
        topic = self.log.topic(self.plan.target)
        return max(first, topic.low_lsn), self.log.lost(topic, first)

    def lsn_since(self, time: datetime) -> int:
        """The LSN from which on everything was committed at a time or later."""
        return self.log.lsn_since(time, self.plan.target)

    def token(self, lsn: int) -> str:
        """The text to resume after an LSN."""
        return self.log.token(lsn)

    def replay(self, first: int, snapshot_until: int) -> Replay:
        """The query over the log from an LSN on."""
        plan = self.plan
        self.log.check()
        return Replay(self.log, lambda: (plan.target,), lambda _: plan, first, snapshot_until)

    def snapshot(self) -> tuple[list[ChangeBatch], int] | None:
        """The current rows and their LSN; None when there is nothing but the log."""
        return None if self._snapshot is None else self._snapshot()


class MultiLogFeed(LogFeed):
    """Several logs in LSN order, those that are created later included.

    Args:
        log: the log of the database.
        dispatcher: offers their changes.
        plan_of: the query for a log; None: it is not read.
        topics: gives the names of the logs.
    """

    __slots__ = ("_filtered", "_plan_of", "_topics")

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        plan_of: Callable[[str], SelectPlan | None],
        topics: Callable[[], tuple[str, ...]],
    ) -> None:
        super().__init__(log, dispatcher, _EVERYTHING)
        self._plan_of = plan_of
        self._topics = topics
        self._filtered: dict[Subscriber, FilteredSubscriber] = {}

    def join(self, subscriber: Subscriber) -> None:
        """Have the dispatcher offer what is committed from now on."""
        filtered = self._filtered[subscriber] = FilteredSubscriber(subscriber, self._plan_of)
        self.dispatcher.fan_out.everything.add(_EVERYTHING, filtered)

    def leave(self, subscriber: Subscriber) -> None:
        """Have the dispatcher offer nothing more."""
        filtered = self._filtered.pop(subscriber, None)
        if filtered is not None:
            self.dispatcher.fan_out.everything.remove(_EVERYTHING, filtered)

    def earliest(self) -> int:
        """The first LSN of the database; each log begins with the first that is kept of it."""
        return FIRST_LSN

    def kept_from(self, first: int) -> tuple[int, Gap | None]:
        """The LSN itself, and no gap: the replay reports the gaps of each log where they are."""
        return first, None

    def lsn_since(self, time: datetime) -> int:
        """The LSN from which on everything was committed at a time or later."""
        return self.log.lsn_since(time, *self._topics())

    def replay(self, first: int, snapshot_until: int) -> Replay:
        """All logs from an LSN on, as far as they are kept."""
        self.log.check()
        return Replay(self.log, self._topics, self._plan_of, first, snapshot_until, steps_over=True)


class FilteredSubscriber:
    """Applies the query of each log to what is offered, and passes on what that keeps.

    Args:
        subscriber: gets the rest.
        plan_of: the query for a log; None: its batches are left out.
    """

    __slots__ = ("_plan_of", "_subscriber")

    def __init__(self, subscriber: Subscriber, plan_of: Callable[[str], SelectPlan | None]) -> None:
        self._subscriber = subscriber
        self._plan_of = plan_of

    def offer(self, batch: ChangeBatch) -> None:
        """Offer the rows that the query keeps."""
        plan = self._plan_of(batch.topic)
        kept = None if plan is None else select(batch, plan)
        if kept is not None:
            self._subscriber.offer(kept)

    def fail(self, error: Error) -> None:
        """Pass on an error that ends the reading."""
        self._subscriber.fail(error)


# The route filters nothing: each FilteredSubscriber does.
_EVERYTHING: Final = SelectPlan(
    target="",
    schema=Schema.of(nothing="BOOLEAN"),
    predicate=None,
    projection=None,
    limit=None,
    equality=None,
    residual=None,
    fingerprint="*",
)

"""A feed: what a subscription reads: some logs, a query for each, and their current rows."""

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
        log: where it is kept.
        dispatcher: who offers its changes.
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
        """Have it offer nothing more."""
        self.dispatcher.fan_out.routes(self.plan.target).remove(self.plan, subscriber)

    def lsn(self) -> int:
        """Every commit after this LSN will be offered to who has joined before."""
        return self.dispatcher.lsn

    def offered_lsn(self) -> int:
        """Every commit up to this LSN was offered to who had joined."""
        return self.dispatcher.fan_out.offered_lsn

    def earliest(self) -> int:
        """The first LSN that is kept."""
        return max(self.log.topic(self.plan.target).low_lsn, FIRST_LSN)

    def kept_from(self, first: int) -> tuple[int, Gap | None]:
        """From where on everything from an LSN on is kept, and what retention took before it."""
        topic = self.log.topic(self.plan.target)
        return max(first, topic.low_lsn), self.log.lost(topic, first)

    def lsn_since(self, time: datetime) -> int:
        """From where on everything is, or was, that was committed at a time or later."""
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
        """The current rows, or None when there are none but what the log has."""
        return None if self._snapshot is None else self._snapshot()


class MultiLogFeed(LogFeed):
    """Every log that there is, those that are yet to be made included.

    Args:
        log: where they are kept.
        dispatcher: who offers their changes.
        plan_of: the query for a log; None when it is not for this reader.
        topics: the logs that there are.
    """

    __slots__ = ("_gates", "_plan_of", "_topics")

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
        self._gates: dict[Subscriber, Gate] = {}

    def join(self, subscriber: Subscriber) -> None:
        """Have the dispatcher offer what is committed from now on."""
        gate = self._gates[subscriber] = Gate(subscriber, self._plan_of)
        self.dispatcher.fan_out.everything.add(_EVERYTHING, gate)

    def leave(self, subscriber: Subscriber) -> None:
        """Have it offer nothing more."""
        gate = self._gates.pop(subscriber, None)
        if gate is not None:
            self.dispatcher.fan_out.everything.remove(_EVERYTHING, gate)

    def earliest(self) -> int:
        """The first LSN of all; each log begins with what is kept of it."""
        return FIRST_LSN

    def kept_from(self, first: int) -> tuple[int, Gap | None]:
        """The LSN itself: what was taken of each log is for the replay to report, in its place."""
        return first, None

    def lsn_since(self, time: datetime) -> int:
        """From where on everything is, or was, that was committed at a time or later."""
        return self.log.lsn_since(time, *self._topics())

    def replay(self, first: int, snapshot_until: int) -> Replay:
        """All logs from an LSN on; of each what is kept of it."""
        self.log.check()
        return Replay(self.log, self._topics, self._plan_of, first, snapshot_until, steps_over=True)


class Gate:
    """Lets through what is for a reader of every log."""

    __slots__ = ("_plan_of", "_subscriber")

    def __init__(self, subscriber: Subscriber, plan_of: Callable[[str], SelectPlan | None]) -> None:
        self._subscriber = subscriber
        self._plan_of = plan_of

    def offer(self, batch: ChangeBatch) -> None:
        """Pass on what the reader may see of a batch."""
        plan = self._plan_of(batch.topic)
        kept = None if plan is None else select(batch, plan)
        if kept is not None:
            self._subscriber.offer(kept)

    def fail(self, error: Error) -> None:
        """Pass on the end."""
        self._subscriber.fail(error)


# Batches come whole; what a reader may see of them is up to its gate.
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

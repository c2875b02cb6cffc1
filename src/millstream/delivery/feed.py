"""A feed: what a reader follows: one log or several, a query for each, current rows, a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.delivery.backpressure import merge_gaps
from millstream.dispatch import select
from millstream.errors import LsnNotKeptError
from millstream.model.lsn import FIRST_LSN
from millstream.model.schema import Schema
from millstream.sql import SelectPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from millstream.dispatch import Dispatcher, Subscriber
    from millstream.errors import Error
    from millstream.log import Log
    from millstream.log.reader import Reader
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
        past: the same for an LSN of the past.
        when_ready: registers a one-shot callback for when the current rows count everything that
            was committed before; returns False, and does not call it, when they do now. None: they
            always do.
    """

    __slots__ = ("_past", "_snapshot", "_when_ready", "dispatcher", "log", "plan")

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        plan: SelectPlan,
        snapshot: Callable[[], tuple[list[ChangeBatch], int]] | None = None,
        past: Callable[[int], tuple[list[ChangeBatch], int]] | None = None,
        *,
        when_ready: Callable[[Callable[[], None]], bool] | None = None,
    ) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.plan = plan
        self._snapshot = snapshot
        self._past = past
        self._when_ready = when_ready

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

    def when_ready(self, call: Callable[[], None]) -> bool:
        """Register a one-shot callback for when the current rows count what was committed before.

        Returns:
            False, and the callback is not called, when they do now.
        """
        return self._when_ready is not None and self._when_ready(call)

    def snapshot_at(self, lsn: int) -> tuple[list[ChangeBatch], int]:
        """The rows that it had at an LSN, and that LSN; for a log that has current rows."""
        if self._past is None:
            raise AssertionError("the log has no current rows")
        return self._past(lsn)


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

    __slots__ = ("_plan_of", "_subscriber", "outlives_failures")

    def __init__(self, subscriber: Subscriber, plan_of: Callable[[str], SelectPlan | None]) -> None:
        self.outlives_failures = subscriber.outlives_failures
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


# ---- a reader's query over the log, from an LSN up to where the live changes begin


class Replay:
    """Reads what a query keeps of some topics, in LSN order.

    Args:
        log: the log.
        topics: gives the names of the topics; those that are created later are read as well.
        plan_of: the query for a topic; None: it is not read.
        start: the first LSN that is wanted.
        snapshot_until: batches up to this LSN are of the kind ``snapshot``.
        steps_over: rows that retention has removed are skipped, and reported as the gap of the
            batch after them; else ``LsnNotKeptError`` is raised.

    Attributes:
        target: the last LSN to be read; None: no end.
    """

    def __init__(
        self,
        log: Log,
        topics: Callable[[], tuple[str, ...]],
        plan_of: Callable[[str], SelectPlan | None],
        start: int,
        snapshot_until: int = 0,
        *,
        steps_over: bool = False,
    ) -> None:
        self.target: int | None = None
        self._log = log
        self._topics_of = topics
        self._topics = topics()
        self._steps_over = steps_over
        self._gaps: dict[str, Gap] = {}  # by topic, what was not reported yet
        self._reader = self._open(start)
        self._plan_of = plan_of
        self._snapshot_until = snapshot_until
        self._rest: ChangeBatch | None = None

    @property
    def position(self) -> int:
        """The LSN up to which everything was read."""
        return self._reader.position

    def _open(self, start: int) -> Reader:
        if not self._steps_over:
            return self._log.read(*self._topics, start=start)
        # A gap that reaches beyond this LSN is counted from its start again, not twice.
        open_gaps = {name: g.first_lsn for name, g in self._gaps.items() if g.last_lsn >= start}
        reader, gaps = self._log.read_kept(*self._topics, start=start, lost_since=open_gaps)
        if self._topics:  # else it reads the internal topics, which no reader is given
            for name, gap in gaps.items():
                before = None if name in open_gaps else self._gaps.get(name)
                self._gaps[name] = merge_gaps(before, gap) or gap
        return reader

    def gap_before(self, lsn: int | None = None) -> Gap | None:
        """The gaps before an LSN, or all, that were not reported yet, as one.."""
        found: Gap | None = None
        for name, gap in list(self._gaps.items()):
            if lsn is None or gap.last_lsn < lsn:
                found = merge_gaps(found, gap)
                del self._gaps[name]
        return found

    def next(self, timeout: float) -> ChangeBatch | None:
        """The next batch that the query keeps something of; None when none is there in time.

        Raises:
            LsnNotKeptError: retention has removed what comes next.
            ExpressionError: the query has no value for some row.
        """
        while not self.is_over:
            batch, self._rest = self._rest, None
            if batch is None:
                batch = self._read(0.0)
            if batch is None:
                if timeout <= 0:
                    return None
                self._log.appender.write_soon()
                batch, timeout = self._read(timeout), 0.0
                if batch is None:
                    return None
            batch = self._up_to_border(batch)
            kept = self._kept(batch)
            if kept is not None:
                return kept
        return None

    @property
    def is_over(self) -> bool:
        """Whether everything up to the target was given."""
        if self.target is None or self._rest is not None:
            return False
        if self._reader.position >= self.target:
            return True
        # LSNs that were assigned and never written, since writing failed, do not come.
        return self._log.written_lsn >= self.target and self._at_end()

    def _at_end(self) -> bool:
        self._rest = self._read(0.0)
        return self._rest is None

    def _read(self, timeout: float) -> ChangeBatch | None:
        """The next batch of any of the topics.

        A topic that was created meanwhile has rows only after what was read before. So none are
        missed if its name is looked for after reading, and the reader opened again with it.
        """
        while True:
            before = self._reader.position
            try:
                batch = self._reader.next(timeout) if timeout > 0 else self._reader.next_nowait()
            except LsnNotKeptError:
                if not self._steps_over:
                    raise
                before = self._reader.position
            else:
                topics = self._topics_of()
                if topics == self._topics:
                    return batch
                self._topics = topics
            self._reader.close()
            self._reader = self._open(before + 1)

    def _up_to_border(self, batch: ChangeBatch) -> ChangeBatch:
        """The rows up to the next border: the end of the snapshot, or of the replay."""
        for border in (self._snapshot_until, self.target):
            if border and batch.first_lsn <= border < batch.lsn:
                cut = border - batch.first_lsn + 1
                if border == self._snapshot_until:
                    self._rest = batch.slice(cut)
                return batch.slice(0, cut)
        return batch

    def _kept(self, batch: ChangeBatch) -> ChangeBatch | None:
        plan = self._plan_of(batch.topic)
        if plan is None or (self.target is not None and batch.first_lsn > self.target):
            return None
        kept = select(batch, plan)
        if kept is None and batch.gap is not None:  # a damaged part of the log
            kept = _nothing(batch, plan)
        if kept is not None and kept.lsn <= self._snapshot_until:
            kept = kept.copy(kind="snapshot")
        if kept is not None and self._gaps and (gap := self.gap_before(kept.first_lsn)):
            kept = kept.copy(gap=gap)
        return kept

    def close(self) -> None:
        """Close the files."""
        self._reader.close()


def _nothing(batch: ChangeBatch, plan: SelectPlan) -> ChangeBatch:
    """A gap, as a batch without rows of the query's columns."""
    empty = batch.copy()
    empty.schema = plan.schema
    return empty

"""Replay: a reader's query over the log, from an LSN up to where the live changes begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.delivery.backpressure import merge_gaps
from millstream.dispatch import select
from millstream.errors import LsnNotKeptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.log import Log
    from millstream.log.reader import Reader
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap
    from millstream.sql import SelectPlan


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

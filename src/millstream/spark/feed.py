"""A view's feed: the logs it reads, merged in LSN order, served to Spark's source.

In the catch-up gear the source asks for the end of the next batch, how it is split, and reads the
parts at the same time. In the live gear one reader gets every commit as it comes; the feed, not
Spark's clock, says when a batch ends. Whatever Spark's checkpoint may count on is on disk before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.dispatch import make_readable
from millstream.errors import Error
from millstream.spark.bridge.frames import END, HEADER, ROWS
from millstream.spark.checkpoint import Offset
from millstream.spark.columns import WATERMARK, FeedColumns
from millstream.spark.inputs import FeedLogs, in_time, joined_runs, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from millstream.model.batch import ChangeBatch
    from millstream.spark.bridge.connection import Connection, ReaderWire
    from millstream.spark.live import LiveGear

BATCH_ROWS: Final = 8_000_000
"""So many rows, at most, are read in one batch: what a crash can make Spark do again is bounded."""

_BURST_ROWS: Final = 50_000
_BURST_SECONDS: Final = 0.02
"""So many rows in so short a time: a catch-up waits for more of them before its next batch."""

_PART_ROWS: Final = 50_000
_NEWS_SECONDS: Final = 0.2


class ViewFeed:
    """Serves one view's source.

    Args:
        live: the live gear's side; the catch-up gear reads the same inputs from the same log.
        on_committed: called with the LSN of each checkpoint.
        on_idle: called, in micro-batches, with an LSN up to which there is nothing to read.
        max_parts: into how many parts a batch is split at most.

    Attributes:
        until: how far a catch-up goes.
        enough: gives with how many rows after that it goes on; None: it does not.
        batch_end: where the batch at hand ends; None in the live gear.
        live: the live gear's side.
        slots: how many tasks of Spark it feeds for good.
        is_ending: whether no other batch begins.
    """

    def __init__(
        self,
        live: LiveGear,
        *,
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
        max_parts: int = 4,
    ) -> None:
        self.live = live
        self.slots = 1
        self._inputs = live.inputs
        self._log = live.log
        self._logs = FeedLogs(live.inputs, live.log)
        self._on_committed = on_committed
        self._on_idle = on_idle
        self._max_parts = max_parts
        self._pieces: list[Piece] = []
        self._late: dict[int, list[ChangeBatch]] = {}
        self.until: int | None = None
        self.enough: Callable[[], int] | None = None
        self.batch_end: Offset | None = None
        self.is_ending = False

    # ---- what Spark's driver asks

    def control(
        self, wire: Connection, answering: Callable[[str, tuple[str, ...]], str] | None = None
    ) -> None:
        """Answer the driver's questions until its connection ends, by a function if it is given."""
        answer_to = answering or self._answer
        while True:
            verb, *words = wire.receive_text().split("\t")
            try:
                answer = "=" + answer_to(verb, tuple(words))
            except Error as error:
                answer = f"!{error}"
            wire.send_text(answer)

    def _answer(self, verb: str, words: Sequence[str]) -> str:
        if verb == "initial":
            return self._logs.beginning.json
        if verb == "available":
            self.until = make_readable(self.live.dispatcher, self._log)
        elif verb == "latest":
            if self.is_ending:
                return self._stay(words)
            return self._next_end(Offset.of(words[0])).json
        elif verb == "split":
            return "\n".join(self._split(Offset.of(words[0]), Offset.of(words[1])))
        elif verb == "committed":
            self._on_committed(Offset.of(words[0]).lsn)
        return ""

    def _stay(self, words: Sequence[str], part: int = 0) -> str:
        """Answer that there is no other batch; Spark asks when the one before is committed."""
        self.live.park(part)
        return words[0]

    def _next_end(self, start: Offset) -> Offset:
        """Where the next batch ends: at the end of what is readable, or after enough rows."""
        until = self.until
        if until is None:
            passed = self._log.written_lsn
            if not self._has_news(start):
                self._on_idle(passed)  # Spark asks when all results of the batch before are here
                return start
            until = make_readable(self.live.dispatcher, self._log)
        else:
            until = self._go_on(start, until)
        if self._is_beginning(start):
            return self._end_of_beginning(start, until)
        until = self._scan_to_cut(start, until)
        if not self._pieces:
            return start
        last = self._pieces[-1]
        full = sum(piece.rows for piece in self._pieces) >= BATCH_ROWS
        return Offset(last.lsn if full else max(until, last.lsn), last.after, last.late)

    def _go_on(self, start: Offset, until: int) -> int:
        """How far a catch-up goes by now: further, if enough was pushed since it began.

        Another batch takes less than another query with its first batch, and one batch less than
        two: a burst of rows is waited for to its end.
        """
        if not self._has_enough_after(max(start.lsn, until)):
            return until
        while True:
            until = self.until = make_readable(self.live.dispatcher, self._log)
            if until - start.lsn >= BATCH_ROWS or not self._comes_fast(until):
                return until

    def _has_enough_after(self, lsn: int) -> bool:
        if self.enough is None:
            return False
        enough = self.enough()
        return self.behind(Offset(lsn, ()), enough) >= enough

    def _comes_fast(self, lsn: int) -> bool:
        """Whether, after an LSN, rows come at such a rate that it is no use to begin without."""
        rows, deadline = 0, time.monotonic() + _BURST_SECONDS
        with self._log.read(*self._inputs.topics, start=lsn + 1) as reader:
            while rows < _BURST_ROWS:
                batch = reader.next(timeout=max(0.0, deadline - time.monotonic()))
                if batch is None:
                    return False
                rows += len(batch)
        return True

    def _scan_to_cut(self, start: Offset, until: int) -> int:
        """Look at what there is up to the first cut with rows before it, or up to an LSN."""
        cuts = sorted(each for each in tuple(self.live.cuts) if start.lsn < each < until)
        for cut in cuts:
            self._pieces = list(self._scan(start, cut))
            if self._pieces:
                return cut
            self._on_idle(cut)  # Spark asks when all results of the batch before are here
        self._pieces = list(self._scan(start, until))
        return until

    def _is_beginning(self, place: Offset) -> bool:
        """Whether what comes after a place is what the view begins with, and not the log."""
        return self.live.beginning is not None and place.lsn == self._logs.beginning.lsn

    def _end_of_beginning(self, start: Offset, until: int) -> Offset:
        """Where the first batch ends: it is one, since nothing may be shown before its end."""
        beginning, end = self.live.beginning, start
        if beginning is not None:
            for piece in self._scan(start, min(beginning.lsn(), until), wholly=True):
                end = Offset(piece.lsn, piece.after, piece.late)
        return end

    def _has_news(self, start: Offset) -> bool:
        """Whether there is a batch after a place; waits a while for one, so that nobody polls."""
        with self._log.read(*self._inputs.topics, start=start.lsn + 1) as reader:
            return reader.next(timeout=_NEWS_SECONDS) is not None

    def _scan(self, start: Offset, until: int, *, wholly: bool = False) -> Iterator[Piece]:
        """What there is to read, batch by batch, up to an LSN or, if not wholly, enough rows."""
        if until <= start.lsn:
            return
        tracker = self._logs.tracker_at(start)
        rows = 0
        for log, batch in self._logs.read(start.lsn + 1, until):
            before = tuple(tracker.watermarks)
            tracker.split(log, batch)
            after = tuple(tracker.watermarks)
            yield Piece(batch.first_lsn, batch.lsn, len(batch), before, after, tracker.late)
            rows += len(batch)
            if rows >= BATCH_ROWS and not wholly:
                return

    def _split(self, start: Offset, end: Offset) -> Iterator[str]:
        """The parts that are read at the same time, of about as many rows each."""
        self.batch_end = end
        self._late.clear()
        if self._is_beginning(start):
            yield f"{start.json}\t{end.lsn}"
            return
        pieces = self._pieces
        if not pieces or pieces[0].first <= start.lsn or pieces[-1].lsn > end.lsn:
            pieces = list(self._scan(start, end.lsn))
        total = sum(piece.rows for piece in pieces)
        share = max(_PART_ROWS, -(-total // self._max_parts))
        begin, marks, rows = start.lsn, start.watermarks, 0
        for piece in pieces:
            if rows >= share:
                yield f"{Offset(begin, marks).json}\t{piece.first - 1}"
                begin, marks, rows = piece.first - 1, piece.before, 0
            rows += piece.rows
        yield f"{Offset(begin, marks).json}\t{end.lsn}"

    # ---- the catch-up gear

    def send_part(self, names: str, start: str, last: str, wire: Connection) -> None:
        """Send one part of a batch: some columns of the rows after an offset, up to an LSN."""
        columns = FeedColumns(self._inputs.schemas, listed(names))
        self._send_runs(columns, int(last), self._runs(columns, start, int(last)), wire)

    def _send_runs(
        self,
        columns: FeedColumns,
        last: int,
        found: Iterable[tuple[int, pa.RecordBatch]],
        wire: Connection,
    ) -> None:
        """Send what a part of a batch has: rows, and the LSN up to which they are all."""
        wire.send(columns.schema.serialize())
        for lsn, data in found:
            wire.send(HEADER.pack(ROWS, lsn, 0), data.serialize())
        wire.send(HEADER.pack(END, last, 0))

    def _runs(
        self, columns: FeedColumns, start: str, last: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows after an offset, up to an LSN, in runs of a handy size."""
        begin, logs = Offset.of(start), self._logs
        tracker, join = logs.tracker_at(begin), logs.join_at(begin)
        late: list[ChangeBatch] = []
        if self.live.beginning is not None and self._is_beginning(begin):
            rows = self.live.beginning.rows(last, _nothing)
        else:
            rows = logs.read(begin.lsn + 1, last)
        sized = runs(in_time(tracker, rows, late))
        if join is not None:
            sized = joined_runs(join, sized, merge=WATERMARK not in columns.names)
        for log, parts in sized:
            yield parts[-1][0].lsn, columns.batches(log, parts)
        self._late[begin.lsn] = late

    def batch_read(self) -> None:
        """The batch was read to its end: hand on what came too late in it."""
        if self.batch_end is not None:
            self.live.late = self.batch_end.late
        for start in sorted(self._late):
            for batch in self._late[start]:
                self.live.on_late(batch)
        self._late.clear()

    # ---- the live gear

    def send_live(self, names: str, start: str, wire: ReaderWire) -> None:
        """Send some columns of every commit after an offset as it comes, until the batch ends."""
        self.batch_end = None
        begin = Offset.of(start)
        self._on_idle(begin.lsn)  # all before was read, or is not for this view
        tracker, join = self._logs.tracker_at(begin), self._logs.join_at(begin)
        self.live.serve(listed(names), begin, tracker, join, wire)

    # ---- steering

    def behind(self, place: Offset | None, enough: int) -> int:
        """How many rows there are after a place, counted no further than enough."""
        return self._logs.count_after(place, enough)

    def watermark_of(self, offset: Offset) -> int | None:
        """The watermark of all logs at a place."""
        return self._logs.tracker_at(offset).watermark

    def end_batch(self) -> None:
        """End the batch, and begin no other."""
        self.is_ending = True
        self.live.end_batch()

    def open_again(self) -> None:
        """Get ready for another query that reads."""
        self.until = None
        self.is_ending = False
        self.live.open_again()


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch of the log: its LSNs, its rows, the watermarks around it, how many were late by then.

    What the split of a batch into parts needs to know, without the rows themselves.
    """

    first: int
    lsn: int
    rows: int
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]
    late: int


def _nothing() -> None:
    """Do nothing: a part of a batch is read to its end."""


def listed(names: str) -> list[str]:
    """The columns that a reader wants, of the text in which it names them."""
    return names.split("\x1f")

"""A view's feed: the logs it reads, merged in LSN order, served to Spark's source.

In the catch-up gear the source asks for the end of the next batch, how it is split, and reads the
parts at the same time. In the live gear one reader gets every commit as it comes; the feed, not the
clock, says when a batch ends. Whatever Spark's checkpoint may count on is on the disk before.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import pyarrow as pa

from millstream.errors import ClosedError, Error
from millstream.pipeline.columns import Columns
from millstream.pipeline.joiner import Joiner
from millstream.pipeline.lateness import Clock
from millstream.pipeline.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema
    from millstream.pipeline.wire import Connection
    from millstream.sql.planner.plan import Lookup, Window

BATCH_ROWS: Final = 4_000_000
"""So many rows, at most, are read in one batch: what a crash can make Spark do again is bounded."""

LIVE_SECONDS: Final = 300.0
LIVE_ROWS: Final = 2_000_000
"""A live batch ends after this time, if it had rows, or after so many."""

_PART_ROWS: Final = 50_000
_FRAME_ROWS: Final = 1 << 16
_MERGED: Final = 1 << 13
_IDLE_SECONDS: Final = 1.0
_NEWS_SECONDS: Final = 0.2

_HEADER = struct.Struct(">BqI")
_ROWS, _END, _FAILED = 1, 3, 4


class Tail(Protocol):
    """The batches of some logs after an LSN, in order, and then those that are committed."""

    @property
    def position(self) -> int:
        """Everything up to this LSN was taken."""

    def take(self) -> ChangeBatch | None:
        """The next batch, if there is one now."""

    def wait(self, seconds: float) -> None:
        """Until there is one, or ``rouse``, or the time is up."""

    def rouse(self) -> None:
        """Let who waits look around."""

    def settled(self) -> int:
        """Everything up to this LSN was taken, or is none of its logs'."""

    def close(self) -> None:
        """Take no more."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a feed reads, and how it is told apart.

    Attributes:
        topics: the logs.
        schemas: their columns.
        window: the view's window, by which rows are late; None when none is.
        event_times: the place of the event-time column in each log, or None.
        lateness: for how long after its end a window still takes rows, in microseconds.
        start: the first LSN that is read.
        lookups: joins with tables.
    """

    topics: tuple[str, ...]
    schemas: tuple[Schema, ...]
    window: Window | None = None
    event_times: tuple[int | None, ...] = ()
    lateness: int = 0
    start: int = 1
    lookups: tuple[Lookup, ...] = ()


class Feed:
    """Serves one view's source.

    Args:
        reads: what it reads.
        log: where it is kept.
        open_tail: follows the logs after an LSN.
        make_durable: puts all that was pushed on the disk, and says up to which LSN.
        on_late: told rows that came too late, in order; again when they are read again.
        on_committed: told the LSN of each checkpoint.
        on_idle: told, in micro-batches, that there is nothing to read up to an LSN.

    Attributes:
        until: how far a catch-up goes.
        batch_end: where the batch at hand ends; None in the live gear.
        late: how many rows came too late.
    """

    def __init__(
        self,
        reads: Reads,
        log: Log,
        *,
        open_tail: Callable[[int], Tail],
        make_durable: Callable[[], int],
        on_late: Callable[[ChangeBatch], None],
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
        max_parts: int = 4,
    ) -> None:
        self._reads = reads
        self._log = log
        self._open_tail = open_tail
        self._make_durable = make_durable
        self._on_late = on_late
        self._on_committed = on_committed
        self._on_idle = on_idle
        self._max_parts = max_parts
        self._tail: Tail | None = None
        self._marks: deque[tuple[int, int | None]] = deque()
        self._pieces: list[Piece] = []
        self._late: dict[int, list[ChangeBatch]] = {}
        self._sent_lsn = 0
        self._probe = 0
        self._ending = False
        self._parked = threading.Event()
        self._closed = False
        self._join: Joiner | None = None
        self.until: int | None = None
        self.batch_end: Offset | None = None
        self.late = 0

    # ---- the driver's questions

    def control(self, wire: Connection) -> None:
        """Answer what Spark's driver asks."""
        while True:
            verb, *words = wire.receive_text().split("\t")
            try:
                answer = "=" + self._answer(verb, words)
            except Error as error:
                answer = f"!{error}"
            wire.send_text(answer)

    def _answer(self, verb: str, words: Sequence[str]) -> str:
        if verb == "initial":
            return self._initial().json
        if verb == "available":
            self.until = self._make_durable()
        elif verb == "latest":
            return self._next_end(Offset.of(words[0])).json
        elif verb == "split":
            return "\n".join(self._split(Offset.of(words[0]), Offset.of(words[1])))
        elif verb == "committed":
            self._on_committed(Offset.of(words[0]).lsn)
        return ""

    def _next_end(self, start: Offset) -> Offset:
        """Where the next batch ends: at the end of what is on the disk, or after enough rows."""
        until = self.until
        if until is None:
            passed = self._log.written_lsn
            if not self._has_news(start):
                self._on_idle(passed)  # Spark asks when all results of the batch before are here
                return start
            until = self._make_durable()
        self._pieces = list(self._scan(start, until))
        if not self._pieces:
            return start
        last = self._pieces[-1]
        full = sum(piece.rows for piece in self._pieces) >= BATCH_ROWS
        return Offset(last.lsn if full else max(until, last.lsn), last.after, last.late)

    def _has_news(self, start: Offset) -> bool:
        """Whether there is a batch after a place; waits a while for one, so that nobody polls."""
        with self._log.read(*self._reads.topics, start=start.lsn + 1) as reader:
            return reader.next(timeout=_NEWS_SECONDS) is not None

    def _scan(self, start: Offset, until: int) -> Iterator[Piece]:
        """What there is to read, batch by batch, up to an LSN or enough rows."""
        if until <= start.lsn:
            return
        clock = self._clock(start)
        rows = 0
        for log, batch in self._read(start.lsn + 1, until):
            before = tuple(clock.watermarks)
            clock.sift(log, batch)
            after = tuple(clock.watermarks)
            yield Piece(batch.first_lsn, batch.lsn, len(batch), before, after, clock.late)
            rows += len(batch)
            if rows >= BATCH_ROWS:
                return

    def _read(self, first: int, last: int) -> Iterator[tuple[int, ChangeBatch]]:
        places = {topic: place for place, topic in enumerate(self._reads.topics)}
        kept = max(self._log.topic(each).low_lsn for each in places)
        start: int | Literal["earliest"] = first if kept <= first else "earliest"
        with self._log.read(*places, start=start) as reader:
            for batch in reader:
                if batch.first_lsn > last:
                    return
                low, high = max(first - batch.first_lsn, 0), last - batch.first_lsn + 1
                if batch.lsn >= first:
                    whole = low == 0 and batch.lsn <= last
                    yield places[batch.topic], batch if whole else batch.slice(low, high)

    def _split(self, start: Offset, end: Offset) -> Iterator[str]:
        """The parts that are read at the same time, of about as many rows each."""
        self.batch_end = end
        self._late.clear()
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

    def _clock(self, start: Offset) -> Clock:
        reads = self._reads
        return Clock(reads.window, reads.event_times, reads.lateness, start.watermarks, start.late)

    def behind(self, place: Offset | None, enough: int) -> int:
        """How many rows there are after a place, counted no further than enough."""
        start = self._initial() if place is None else place
        rows = 0
        for _, batch in self._read(start.lsn + 1, self._log.lsn):
            rows += len(batch)
            if rows >= enough:
                break
        return rows

    def _initial(self) -> Offset:
        return Offset(self._reads.start - 1, (None,) * len(self._reads.topics))

    def _joiner(self, start: Offset) -> Joiner | None:
        """The joins of the view with its tables as they were at a place."""
        reads = self._reads
        if not reads.lookups:
            return None
        joiner = Joiner(reads.lookups, reads.schemas, self._history)
        for log, batch in self._read(reads.start, start.lsn):
            if log > 0:
                joiner.load(log, batch)
        return joiner

    def _history(self, lsn: int) -> Iterator[ChangeBatch]:
        """The rows of the first log before an LSN, without those that came too late."""
        clock = self._clock(self._initial())
        for log, batch in self._read(self._reads.start, lsn - 1):
            kept, _, _ = clock.sift(log, batch)
            if log == 0 and kept is not None:
                yield kept

    # ---- the catch-up gear

    def read(self, names: str, start: str, last: str, wire: Connection) -> None:
        """Send one part of a batch."""
        columns = Columns(self._reads.schemas, _listed(names))
        begin = Offset.of(start)
        clock, joiner = self._clock(begin), self._joiner(begin)
        late: list[ChangeBatch] = []
        wire.send(columns.schema.serialize())
        for log, batch in self._read(begin.lsn + 1, int(last)):
            kept, missed, before = clock.sift(log, batch)
            if missed is not None:
                late.append(missed)
            if kept is not None and joiner is not None:
                kept = joiner.join(log, kept)
            if kept is not None and len(kept):
                of = 0 if joiner is not None else log
                for piece in _sized(kept):
                    data = columns.batch(of, piece, before).serialize()
                    wire.send(_HEADER.pack(_ROWS, batch.lsn, 0), data)
        self._late[begin.lsn] = late
        wire.send(_HEADER.pack(_END, int(last), 0))

    def batch_read(self) -> None:
        """The batch was read to its end: what came too late in it may be told."""
        if self.batch_end is not None:
            self.late = self.batch_end.late
        for start in sorted(self._late):
            for batch in self._late[start]:
                self._on_late(batch)
        self._late.clear()

    # ---- the live gear

    def tail(self, names: str, start: str, wire: Connection) -> None:
        """Send every commit as it comes, until the batch ends."""
        if self._closed or self._ending:
            self._parked.set()
            self._wait_for_the_end(wire)
            return
        self.batch_end = None
        columns = Columns(self._reads.schemas, _listed(names))
        begin = Offset.of(start)
        tail = self._tail_at(begin.lsn)
        self._join = self._joiner(begin)
        clock = self._clock(begin)
        wire.send(columns.schema.serialize())
        try:
            self._send_live(tail, clock, columns, wire)
        except ClosedError:
            return
        except Error as error:
            text = str(error).encode()
            wire.send(_HEADER.pack(_FAILED, tail.position, len(text)) + text)
            raise

    def _tail_at(self, lsn: int) -> Tail:
        """The tail from before, if it stands just there: then nothing has to be read again."""
        tail = self._tail
        if tail is not None and tail.position <= lsn == self._sent_lsn:
            return tail
        if tail is not None:
            tail.close()
        self._tail = tail = self._open_tail(lsn)
        self._sent_lsn = lsn
        self._marks.clear()
        return tail

    def _send_live(self, tail: Tail, clock: Clock, columns: Columns, wire: Connection) -> None:
        rows, began = 0, time.monotonic()
        while True:
            sent = self._send_ready(tail, clock, columns, wire)
            rows += sent
            due = self._ending or rows >= LIVE_ROWS
            if due or (rows and time.monotonic() - began > LIVE_SECONDS):
                self._send_end(tail, clock, columns, wire)
                return
            if not sent:
                if self._probe > self._sent_lsn:
                    self._send_mark(tail, clock, columns, wire)
                tail.wait(_IDLE_SECONDS)

    def _send_ready(self, tail: Tail, clock: Clock, columns: Columns, wire: Connection) -> int:
        """One frame of what is there; returns how many rows it has."""
        ready: list[pa.RecordBatch] = []
        rows = lsn = 0
        while rows < _MERGED:
            batch = tail.take()
            if batch is None:
                break
            log = 0 if len(self._reads.topics) == 1 else self._reads.topics.index(batch.topic)
            kept, missed, before = clock.sift(log, batch)
            if missed is not None:
                self._on_late(missed)
            if kept is not None and self._join is not None:
                self._log_is_read(batch)
                kept, log = self._join.join(log, kept), 0
            ready.append(columns.none() if kept is None else columns.batch(log, kept, before))
            rows += max(1, len(batch))
            lsn = batch.lsn
        if ready:
            data = ready[0] if len(ready) == 1 else pa.concat_batches(ready)
            self._send_frame(lsn, clock, data, wire)
        return rows

    def _log_is_read(self, batch: ChangeBatch) -> None:
        """Corrections read the log up to a batch: what came before it must be written there."""
        if batch.topic != self._reads.topics[0] and self._log.written_lsn < batch.first_lsn - 1:
            self._make_durable()

    def _send_frame(self, lsn: int, clock: Clock, data: pa.RecordBatch, wire: Connection) -> None:
        self._sent_lsn = lsn
        self._marks.append((lsn, clock.watermark))
        self.late = clock.late
        offset = Offset(lsn, tuple(clock.watermarks), clock.late).json.encode()
        wire.send(_HEADER.pack(_ROWS, lsn, len(offset)), offset, data.serialize())

    def _send_mark(self, tail: Tail, clock: Clock, columns: Columns, wire: Connection) -> None:
        """A frame without rows: when it comes back, everything before it has."""
        lsn = tail.settled()
        if lsn > self._sent_lsn:
            self._send_frame(lsn, clock, columns.none(), wire)

    def _send_end(self, tail: Tail, clock: Clock, columns: Columns, wire: Connection) -> None:
        self._make_durable()
        self._send_mark(tail, clock, columns, wire)
        offset = Offset(self._sent_lsn, tuple(clock.watermarks), clock.late).json.encode()
        if self._log.durable_lsn < self._sent_lsn:
            self._make_durable()
        wire.send(_HEADER.pack(_END, self._sent_lsn, len(offset)), offset)

    def _wait_for_the_end(self, wire: Connection) -> None:
        wire.read(1)  # nothing comes on it: it ends when the task is stopped

    # ---- steering

    def watermark_at(self, lsn: int) -> int | None:
        """The watermark when the reader was sent everything up to an LSN."""
        found: int | None = None
        while self._marks and self._marks[0][0] <= lsn:
            found = self._marks.popleft()[1]
        return found

    def watermark_of(self, offset: Offset) -> int | None:
        """The watermark of all logs at a place."""
        return self._clock(offset).watermark

    def probe(self, lsn: int) -> None:
        """Have it told when everything up to an LSN has passed, related or not."""
        self._probe = max(self._probe, lsn)
        if self._tail is not None:
            self._tail.rouse()

    def lag(self) -> int:
        """About how many rows the live reader has not been sent."""
        tail = self._tail
        return 0 if tail is None else max(0, self._log.lsn - tail.settled())

    def end_batch(self) -> None:
        """End the live batch, and begin no other."""
        self._parked.clear()
        self._ending = True
        if self._tail is not None:
            self._tail.rouse()

    def wait_parked(self, seconds: float) -> bool:
        """Until the batch is over for Spark, too."""
        return self._parked.wait(seconds)

    def open_again(self) -> None:
        """Another query will read."""
        self._ending = False
        self._parked.clear()
        self.until = None

    def close(self) -> None:
        """Serve no more."""
        self._closed = True
        self.drop_tail()

    def drop_tail(self) -> None:
        """Forget the live reader's place."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.rouse()
            tail.close()


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch of the log: its LSNs, its rows, the watermarks around it, what was late by then."""

    first: int
    lsn: int
    rows: int
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]
    late: int


def _listed(names: str) -> list[str]:
    return names.split("\x1f")


def _sized(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """In pieces that Spark's memory takes easily."""
    if len(batch) <= _FRAME_ROWS:
        yield batch
        return
    for start in range(0, len(batch), _FRAME_ROWS):
        yield batch.slice(start, min(len(batch), start + _FRAME_ROWS))

"""A view's feed: the logs it reads, merged in LSN order, served to Spark's source.

In the catch-up gear the source asks for the end of the next batch, how it is split, and reads the
parts at the same time. In the live gear one reader gets every commit as it comes; the feed, not the
clock, says when a batch ends. Whatever Spark's checkpoint may count on is on the disk before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from millstream.errors import Error
from millstream.model.batch import ChangeBatch
from millstream.spark.columns import WATERMARK, Columns
from millstream.spark.joiner import Joiner
from millstream.spark.lateness import Clock
from millstream.spark.live import LiveGear
from millstream.spark.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.log import Log
    from millstream.spark.bridge.server import Connection
    from millstream.spark.columns import Part
    from millstream.spark.live import Encodings, Tail
    from millstream.spark.reads import Reads

BATCH_ROWS: Final = 8_000_000
"""So many rows, at most, are read in one batch: what a crash can make Spark do again is bounded."""

_PART_ROWS: Final = 50_000
_FRAME_ROWS: Final = 1 << 16
_FRAME_PARTS: Final = 1 << 12
_NEWS_SECONDS: Final = 0.2

_HEADER = struct.Struct(">BqI")
_ROWS, _END = 1, 3


class Feed:
    """Serves one view's source.

    Args:
        reads: what it reads.
        log: where it is kept.
        open_tail: follows the logs after an LSN.
        make_durable: puts all that was pushed on the disk, and says up to which LSN.
        make_readable: the same, but only so that it can be read.
        on_late: told rows that came too late, in order; again when they are read again.
        on_committed: told the LSN of each checkpoint.
        encodings: shared by all views of the database.
        on_idle: told, in micro-batches, that there is nothing to read up to an LSN.

    Attributes:
        until: how far a catch-up goes.
        batch_end: where the batch at hand ends; None in the live gear.
        live: the live gear's side.
    """

    def __init__(
        self,
        reads: Reads,
        log: Log,
        *,
        open_tail: Callable[[int], Tail],
        make_durable: Callable[[], int],
        make_readable: Callable[[], int],
        on_late: Callable[[ChangeBatch], None],
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
        encodings: Encodings,
        max_parts: int = 4,
    ) -> None:
        self._reads = reads
        self._log = log
        self._make_readable = make_readable
        self._on_late = on_late
        self._on_committed = on_committed
        self._on_idle = on_idle
        self._max_parts = max_parts
        self._pieces: list[Piece] = []
        self._late: dict[int, list[ChangeBatch]] = {}
        self.until: int | None = None
        self.batch_end: Offset | None = None
        self.live = LiveGear(
            reads,
            log,
            open_tail=open_tail,
            make_durable=make_durable,
            on_late=on_late,
            encodings=encodings,
        )

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
            self.until = self._make_readable()
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
            until = self._make_readable()
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
        keep = self._reads.keep
        kept = max(self._log.topic(each).low_lsn for each in places)
        start: int | Literal["earliest"] = first if kept <= first else "earliest"
        with self._log.read(*places, start=start) as reader:
            for batch in reader:
                if batch.first_lsn > last:
                    return
                if batch.gap is not None:  # damage, which somebody has said is to be skipped
                    continue
                low, high = max(first - batch.first_lsn, 0), last - batch.first_lsn + 1
                if batch.lsn >= first:
                    whole = low == 0 and batch.lsn <= last
                    wanted = batch if whole else batch.slice(low, high)
                    yield places[batch.topic], wanted if keep is None else keep(wanted)

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
        kept = self._sifted(self._clock(self._initial()), self._reads.start, lsn - 1, late=[])
        for _, parts in _sized(each for each in kept if each[0] == 0):
            yield ChangeBatch.concat([batch for batch, _ in parts])

    def _sifted(
        self, clock: Clock, first: int, last: int, late: list[ChangeBatch]
    ) -> Iterator[tuple[int, Part]]:
        """The batches between two LSNs with their logs; what came too late is put aside."""
        for log, batch in self._read(first, last):
            kept, missed, before = clock.sift(log, batch)
            if missed is not None:
                late.append(missed)
            if kept is not None and len(kept):
                yield log, (kept, before)

    # ---- the catch-up gear

    def read(self, names: str, start: str, last: str, wire: Connection) -> None:
        """Send one part of a batch."""
        columns = Columns(self._reads.schemas, _listed(names))
        begin = Offset.of(start)
        clock, joiner = self._clock(begin), self._joiner(begin)
        late: list[ChangeBatch] = []
        sized = _sized(self._sifted(clock, begin.lsn + 1, int(last), late))
        if joiner is not None:
            sized = _joined(joiner, sized, merge=WATERMARK not in columns.names)
        wire.send(columns.schema.serialize())
        for log, parts in sized:
            data = columns.batches(log, parts).serialize()
            wire.send(_HEADER.pack(_ROWS, parts[-1][0].lsn, 0), data)
        self._late[begin.lsn] = late
        wire.send(_HEADER.pack(_END, int(last), 0))

    def batch_read(self) -> None:
        """The batch was read to its end: what came too late in it may be told."""
        if self.batch_end is not None:
            self.live.late = self.batch_end.late
        for start in sorted(self._late):
            for batch in self._late[start]:
                self._on_late(batch)
        self._late.clear()

    # ---- the live gear

    def tail(self, names: str, start: str, wire: Connection) -> None:
        """Send every commit as it comes, until the batch ends."""
        self.batch_end = None
        begin = Offset.of(start)
        self._on_idle(begin.lsn)  # Spark goes on after what it is done with, or has not to read
        clock, joiner = self._clock(begin), self._joiner(begin)
        self.live.serve(_listed(names), begin, clock, joiner, wire)

    # ---- steering

    def watermark_of(self, offset: Offset) -> int | None:
        """The watermark of all logs at a place."""
        return self._clock(offset).watermark

    def open_again(self) -> None:
        """Another query will read."""
        self.until = None
        self.live.open_again()


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


def _sized(batches: Iterator[tuple[int, Part]]) -> Iterator[tuple[int, list[Part]]]:
    """Small batches of one log together, large ones in pieces: handy for both sides."""
    run: list[Part] = []
    rows = of = 0
    for log, (batch, before) in batches:
        fits = rows + len(batch) <= _FRAME_ROWS and len(run) < _FRAME_PARTS
        if run and not (fits and log == of and batch.schema is run[0][0].schema):
            yield of, run
            run, rows = [], 0
        of = log
        if len(batch) <= _FRAME_ROWS:
            run.append((batch, before))
            rows += len(batch)
            continue
        for start in range(0, len(batch), _FRAME_ROWS):
            yield log, [(batch.slice(start, min(len(batch), start + _FRAME_ROWS)), before)]
    if run:
        yield of, run


def _joined(
    joiner: Joiner, runs: Iterator[tuple[int, list[Part]]], *, merge: bool
) -> Iterator[tuple[int, list[Part]]]:
    """The same, joined with tables; many batches at once where nobody asks for their watermarks."""
    for log, run in runs:
        parts = run
        if merge and log == 0:
            parts = [(ChangeBatch.concat([batch for batch, _ in run]), None)]
        made = ((joiner.join(log, batch), before) for batch, before in parts)
        yield from _sized((0, (batch, before)) for batch, before in made if batch is not None)

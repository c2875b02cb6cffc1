"""Reading: from any LSN, one topic or several merged in LSN order, to the end or on and on.

Topics share segments, and segments are in LSN order, so a merged read is a plain one, and a read of
one topic steps over the others' frames by their headers.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError, LogCorruptError, LsnNotKeptError, TopicNotFoundError
from millstream.log.encoding import decode_rows
from millstream.log.files import missing
from millstream.log.walk import DamageError, complete, look_at, walk, walk_ranges, whole_frames
from millstream.model.batch import ChangeBatch
from millstream.model.change import Gap
from millstream.model.lsn import FIRST_LSN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from millstream.log.files import SegmentExtent, SegmentFile, SegmentFiles, Written
    from millstream.log.frame import Frame
    from millstream.log.segment import SegmentRef
    from millstream.log.topics import Topic
    from millstream.log.writer import LogWriter


class Reader:
    """A position in the log that moves forward. For one thread; make as many as you need.

    Iterating gives batches up to what is written at the moment, then stops; iterate again for what
    came since, or use ``next(timeout=...)`` or ``follow()`` to wait for it.
    """

    def __init__(
        self, writer: LogWriter, files: SegmentFiles, floors: Mapping[int, int], start: int
    ) -> None:
        self._writer = writer
        self._segments = writer.segments
        self._floors = floors  # the topics, each with the first LSN that is wanted of it
        self._cursor: _Cursor | None = _Cursor(writer, files, floors, start)
        self._last = start - 1

    @property
    def position(self) -> int:
        """The LSN up to which everything was read."""
        return self._last if self._cursor is None else self._cursor.position

    def next_nowait(self) -> ChangeBatch | None:
        """The next batch, or None when all that is written was read.

        Raises:
            LogCorruptError: a damaged place; a new reader may start at its ``next_lsn``. Where the
                damage is to be skipped, a batch without rows has it as its gap.
            LsnNotKeptError: retention has overtaken this reader.
            TopicNotFoundError: all its topics were dropped.
        """
        if self._cursor is None:
            raise ClosedError("the reader is closed")
        return self._cursor.next()

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        """The next batch; waits for one. None when the time is up or the log was closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            written = self._segments.written
            batch = self.next_nowait()
            if batch is not None:
                return batch
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._writer.is_ours:
                self._writer.check()
            if not self._segments.wait_beyond(written, left):
                return self.next_nowait()  # what came at the last moment

    def follow(self) -> Iterator[ChangeBatch]:
        """All batches, and then every new one as soon as it is written, until the log is closed."""
        while (batch := self.next()) is not None:
            yield batch

    def __iter__(self) -> Iterator[ChangeBatch]:
        while (batch := self.next_nowait()) is not None:
            yield batch

    def rest(self) -> Iterator[ChangeBatch]:
        """What is written, and then what waits to be, at this moment. The reader ends with it."""
        written, waiting = self._writer.unwritten()
        while self.position < written:
            batch = self.next_nowait()
            if batch is None or batch.first_lsn > written:  # it is one of those that waited
                break
            yield batch
        for topic, _, batch in (part for entry in waiting for part in entry.parts):
            floor = self._floors.get(topic.id)
            if floor is not None and len(batch) and batch.lsn >= floor:
                yield batch if floor <= batch.first_lsn else batch.slice(floor - batch.first_lsn)

    def close(self) -> None:
        """Release the files. Closing twice is fine."""
        self._last, self._cursor = self.position, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Cursor:
    """Goes over the frames of some topics, within a segment and from one to the next.

    Attributes:
        position: the LSN up to which everything was read.
    """

    def __init__(
        self, writer: LogWriter, files: SegmentFiles, floors: Mapping[int, int], start: int
    ) -> None:
        self.position = start - 1
        self._segments = writer.segments
        self._origin = writer.origin
        self._files = files
        self._floors = floors
        self._damage = _Damage(writer, files, floors)
        self._file: SegmentFile | None = None
        self._offset = 0
        self._end = 0
        self._end_lsn = 0
        self._steps: Iterator[tuple[int, Frame, pa.Buffer | None]] = iter(())
        self._skipped: ChangeBatch | None = None  # between two segments

    def next(self) -> ChangeBatch | None:
        """The next batch, or None when all that is written was read."""
        while True:
            try:
                batch = self._next_step()
            except DamageError as damage:
                batch = self._step_over(damage)
                if batch is None:
                    continue
            if batch is not None:
                return batch
            moved, gap = self._advance(), self._skipped
            if gap is not None:
                self._skipped = None
                return gap
            if not moved:
                return None

    # ---- within a segment

    def _next_step(self) -> ChangeBatch | None:
        for offset, frame, payload in self._steps:
            self._offset = offset + frame.size
            before, last = self.position, frame.end_lsn - 1
            if last <= before or not frame.span:
                continue
            self.position = last
            floor = self._floors.get(frame.topic)
            if floor is None or last < floor:
                continue
            topic = self._segments.written.topics.by_id.get(frame.topic)
            if topic is None or topic.dropped:
                continue
            batch = decode_rows(frame, payload, topic, self._origin)
            wanted = max(before + 1, floor)
            return batch if wanted <= frame.first_lsn else batch.slice(wanted - frame.first_lsn)
        # What is not in the ranges of the topics has nothing for this reader.
        self._offset = max(self._offset, self._end)
        self.position = max(self.position, self._end_lsn)
        return None

    def _step_over(self, damage: DamageError) -> ChangeBatch | None:
        """Go on after a damaged place, if no row was there that this reader has yet to give.

        Returns a batch without rows that reports the gap, when it is one that is to be skipped.

        Raises:
            LogCorruptError: some may have been; it says where the next ones are.
        """
        file = self._open_file()
        place = look_at(file.fd, damage.offset, self._end)
        if place.frame is not None and place.frame.span:
            first, next_lsn = max(place.frame.first_lsn, self.position + 1), place.frame.end_lsn
        elif place.topic == 0:
            first = next_lsn = self.position + 1  # a definition
        else:
            first = max(self.position + 1, file.ref.base_lsn)
            next_lsn = self._damage.next_lsn(file, place.end, self._end)
        hit = [] if next_lsn <= first else self._damage.hit(file, place.topic, next_lsn)
        error = file.corrupt("a frame's check sum does not match", damage.offset, next_lsn)
        gap = self._damage.gap(hit, first, next_lsn, error, exact=place.frame is not None)
        self.position = max(self.position, next_lsn - 1)
        self._offset = place.end
        self._steps = walk(file.fd, place.end, self._end, self._floors)
        return gap

    # ---- from segment to segment

    def _advance(self) -> bool:
        """Go on after the frames that were read: further in this segment, or in a later one."""
        if self._file is None:
            return self._seek()
        written = self._segments.written
        extent = written.extent(self._file)
        if self._extend(extent):
            return True
        following = [ref for ref in written.segments if ref > self._file.ref]
        if not following:
            self._check_not_dropped()
            return False
        self.position = max(self.position, extent.last_lsn)
        return self._enter(self._checked_next(following[0], written))

    def _extend(self, extent: SegmentExtent) -> bool:
        start, end, index = self._offset, extent.end, extent.index
        if end <= start:
            return False
        self._end, self._end_lsn = end, extent.last_lsn
        ranges = [(start, end)]
        if index is not None:
            ranges = index.ranges_of(self._floors, start, end)
        self._steps = walk_ranges(self._open_file().fd, ranges, self._floors)
        return True

    def _seek(self) -> bool:
        """Open the segment that has the next LSN, close to that LSN."""
        written = self._segments.written
        segments, first = written.segments, written.segments[0]
        if self.position + 1 < first.base_lsn and first.ordinal > written.topics.first:
            lost = missing(self._files.directory, first.ordinal - 1, first.base_lsn)
            self._pass_over(first, lost)
        place = bisect_right(segments, self.position + 1, key=lambda ref: ref.base_lsn) - 1
        return self._enter(segments[max(place, 0)])

    def _enter(self, ref: SegmentRef) -> bool:
        try:
            file = self._files.open(ref)
        except LogCorruptError:
            self._check_kept()
            if ref in self._segments.written.segments:
                raise
            return self._seek()  # retention dropped it, with nothing in it for this reader
        # Looked at after the file is open: what is dropped from now on stays in the open file.
        self._check_kept()
        self._file = file
        written = self._segments.written
        extent, start = written.extent(file), file.start
        index, end = extent.index, extent.end
        self._offset = start if index is None else index.offset_of(self.position + 1, start)
        has_all = index is not None and not index.partial
        if index is not None and has_all and self._floors.keys().isdisjoint(index.extents):
            self._offset, self.position = end, max(self.position, extent.last_lsn)
        self._end = self._offset
        return self._extend(extent) or ref != written.segments[-1]

    def _checked_next(self, ref: SegmentRef, written: Written) -> SegmentRef:
        """The next segment that there is.

        Raises:
            LogCorruptError: one before it is missing, and it was not retention that removed it.
        """
        file = self._open_file()
        if ref == written.segments[0]:
            return ref
        if ref.ordinal != file.ref.ordinal + 1:
            error = missing(file.path.parent, file.ref.ordinal + 1, ref.base_lsn)
        elif ref.base_lsn > self.position + 1:
            error = file.corrupt("rows at its end are missing", self._offset, ref.base_lsn)
        else:
            return ref
        self._pass_over(ref, error)
        return ref

    def _pass_over(self, ref: SegmentRef, error: LogCorruptError) -> None:
        """Go on with a segment before which rows of any topic may be missing.

        Raises:
            LogCorruptError: they are not to be skipped.
        """
        first, end = self.position + 1, ref.base_lsn
        hit = self._damage.hit_before(ref)
        self._skipped = self._damage.gap(hit, first, end, error, exact=False)
        self.position = end - 1

    def _check_not_dropped(self) -> None:
        """Raise rather than wait for rows that will never come."""
        known = self._segments.written.topics.by_id
        if self._floors and all(i not in known or known[i].dropped for i in self._floors):
            raise TopicNotFoundError(
                "the topics that this reader reads were dropped", hint="close the reader"
            )

    def _check_kept(self) -> None:
        """Raise if retention has dropped rows that this reader was going to give."""
        for topic_id, floor in self._floors.items():
            topic = self._segments.written.topics.by_id.get(topic_id)
            if topic is not None and topic.low_lsn > max(self.position + 1, floor):
                raise not_kept(topic, self.position + 1)

    def _open_file(self) -> SegmentFile:
        if self._file is None:
            raise AssertionError("no segment was entered yet")
        return self._file


class _Damage:
    """Decides what a damaged or missing place means for the topics of a reader."""

    def __init__(self, writer: LogWriter, files: SegmentFiles, floors: Mapping[int, int]) -> None:
        self._segments = writer.segments
        self._origin = writer.origin
        self._files = files
        self._floors = floors

    def next_lsn(self, file: SegmentFile, offset: int, end: int) -> int:
        """The first LSN after a damaged place that can be read, or could be once there is one."""
        frames = (frame for _, frame, _ in whole_frames(file.fd, offset, end) if frame.span)
        later = (ref.base_lsn for ref in self._segments.written.segments if ref > file.ref)
        found = next((frame.first_lsn for frame in frames), None) or next(later, None)
        return found or self._segments.written.lsn + 1

    def hit(self, file: SegmentFile, topic: int | None, next_lsn: int) -> list[Topic]:
        """The topics of the reader that may have had rows in a damaged place."""
        wanted = {id_ for id_, floor in self._floors.items() if floor < next_lsn}
        if topic is not None:
            wanted &= {topic}
        elif wanted:
            wanted -= complete(file, self._segments.extents_of(file), wanted)
        known = self._segments.written.topics.by_id
        return [known[id_] for id_ in sorted(wanted) if id_ in known and not known[id_].dropped]

    def hit_before(self, ref: SegmentRef) -> list[Topic]:
        """The topics of the reader that may have had rows in what is missing before a segment."""
        there = self._files.open(ref).topics()  # those that were made before it
        known = self._segments.written.topics.by_id
        return [
            known[id_]
            for id_, floor in self._floors.items()
            if id_ in known and floor <= ref.base_lsn and (there is None or id_ in there.by_id)
        ]

    def gap(
        self, hit: list[Topic], first: int, next_lsn: int, error: LogCorruptError, *, exact: bool
    ) -> ChangeBatch | None:
        """What to give in place of damaged rows of some topics; None when there are none.

        Raises:
            LogCorruptError: they are not to be skipped.
        """
        error.count = next_lsn - first if exact else None
        for topic in hit:
            if not topic.skips(first, next_lsn):
                self._files.note_damage(hit, error)
                raise error
        if not hit:
            return None
        return ChangeBatch(
            hit[0].schema,
            [],
            None,
            None,
            topic=hit[0].name,
            first_lsn=first,
            lsn=next_lsn - 1,
            gap=Gap(first, max(first, next_lsn - 1), error.count),
            origin=self._origin,
        )


def not_kept(topic: Topic, lsn: int) -> LsnNotKeptError:
    """The error for rows that retention has dropped."""
    return LsnNotKeptError(
        f"{topic.name} is kept from LSN {topic.low_lsn} on; LSN {lsn} was asked for",
        oldest=topic.low_lsn,
        hint='start at "earliest" or take a snapshot; a longer retention keeps more',
    )


def find_damage(
    open_reader: Callable[[dict[int, int], int], Reader], topic: Topic
) -> tuple[list[tuple[int, int]], list[Gap]]:
    """All that is damaged of a topic and not skipped yet: ranges of LSNs, and their gaps."""
    ranges: list[tuple[int, int]] = []
    gaps: list[Gap] = []
    start: int | None = max(topic.low_lsn, FIRST_LSN)
    while start is not None:
        with open_reader({topic.id: start}, start) as reader:
            try:
                for _ in reader:
                    pass
                start = None
            except LogCorruptError as error:
                first, start = reader.position + 1, error.next_lsn
                end = first if start is None else start
                ranges.append((first, end))
                gaps.append(Gap(first, max(first, end - 1), error.count))
    return ranges, gaps

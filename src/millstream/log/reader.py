"""Reading: from any LSN, one topic or several merged in LSN order, to the end or on and on.

Topics share segments, and segments are in LSN order, so a merged read is a plain one, and a read of
one topic steps over the others' frames by their headers.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Self

from millstream.errors import ClosedError, LogCorruptError, LsnNotKeptError, TopicNotFoundError
from millstream.log.files import missing
from millstream.log.payload import decode_commits, decode_rows
from millstream.log.segment import start_of
from millstream.log.walk import DamageError, walk, whole_frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from millstream.log.files import SegmentFiles
    from millstream.log.frame import Frame
    from millstream.log.segment import SegmentFile, SegmentRef
    from millstream.log.topics import Topic
    from millstream.log.writer import Writer
    from millstream.log.written import Written
    from millstream.model.batch import ChangeBatch


class Reader:
    """A position in the log that moves forward. For one thread; make as many as you need.

    Iterating gives batches up to what is written at the moment, then stops; iterate again for what
    came since, or use ``next(timeout=...)`` or ``follow()`` to wait for it.

    Attributes:
        position: the LSN up to which everything was read.
    """

    def __init__(
        self, writer: Writer, files: SegmentFiles, floors: Mapping[int, int], start: int
    ) -> None:
        self.position = start - 1
        self._writer = writer
        self._files = files
        self._floors = floors  # the topics, each with the first LSN that is wanted of it
        self._file: SegmentFile | None = None
        self._offset = 0
        self._end = 0
        self._steps: Iterator[tuple[int, Frame, pa.Buffer | None]] = iter(())
        self._closed = False

    def next_nowait(self) -> ChangeBatch | None:
        """The next batch, or None when all that is written was read.

        Raises:
            LogCorruptError: a damaged place; a new reader may start at its ``next_lsn``.
            LsnNotKeptError: retention has overtaken this reader.
            TopicNotFoundError: all its topics were dropped.
        """
        if self._closed:
            raise ClosedError("the reader is closed")
        while True:
            batch = self._next_in_segment()
            if batch is not None:
                return batch
            if not self._advance():
                return None

    def next(self, timeout: float | None = None) -> ChangeBatch | None:
        """The next batch; waits for one. None when the time is up or the log was closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            written = self._writer.written
            batch = self.next_nowait()
            if batch is not None:
                return batch
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._writer.wait_beyond(written, left):
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
        """Let go of the files. Closing twice is fine."""
        self._closed = True
        self._file = None
        self._steps = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- within a segment

    def _next_in_segment(self) -> ChangeBatch | None:
        while True:
            try:
                return self._next_step()
            except DamageError as damage:
                self._step_over(damage)

    def _next_step(self) -> ChangeBatch | None:
        for offset, frame, payload in self._steps:
            self._offset = offset + frame.size
            before, last = self.position, frame.end_lsn - 1
            if last <= before or not frame.span:
                continue
            self.position = last
            floor, topic = self._floors.get(frame.topic), self._topic(frame)
            if floor is None or topic is None or last < floor:
                continue
            origin = (self._writer.database, self._writer.written.epochs.current)
            batch = decode_rows(frame, payload, topic, origin)
            wanted = max(before + 1, floor)
            return batch if wanted <= frame.first_lsn else batch.slice(wanted - frame.first_lsn)
        return None

    def _topic(self, frame: Frame) -> Topic | None:
        topic = self._writer.written.topics.by_id.get(frame.topic)
        return None if topic is None or topic.dropped else topic

    def _step_over(self, damage: DamageError) -> None:
        """Go on after a damaged place, if no row was there that this reader has yet to give.

        Raises:
            LogCorruptError: some may have been; it says where the next ones are.
        """
        file = self._open_file()
        steps = whole_frames(file.fd, damage.offset + 8, self._end)
        offset, next_lsn = next(
            ((o, f.first_lsn) for o, f, _ in steps if f.span), (self._end, None)
        )
        if next_lsn is None:
            later = (ref.base_lsn for ref in self._writer.written.segments if ref > file.ref)
            next_lsn = next(later, None)
        if next_lsn is None or next_lsn > self.position + 1:
            what = "a frame's check sum does not match"
            raise file.corrupt(what, damage.offset, next_lsn) from damage
        self._offset = offset
        self._steps = walk(file.fd, offset, self._end, self._floors)

    # ---- from segment to segment

    def _advance(self) -> bool:
        """Go on where the frames at hand end: further in this segment, or in a later one."""
        if self._file is None:
            return self._seek()
        written = self._writer.written
        extent = written.extent(self._file)
        if self._extend(extent.end):
            return True
        following = [ref for ref in written.segments if ref > self._file.ref]
        if not following:
            self._check_not_dropped()
            return False
        self.position = max(self.position, extent.last_lsn)
        return self._enter(self._checked_next(following[0], written))

    def _extend(self, end: int) -> bool:
        if end <= self._offset:
            return False
        self._end = end
        self._steps = walk(self._open_file().fd, self._offset, end, self._floors)
        return True

    def _seek(self) -> bool:
        """Open the segment that has the next LSN, close to that LSN."""
        segments = self._writer.written.segments
        place = bisect_right(segments, self.position + 1, key=lambda ref: ref.base_lsn) - 1
        return self._enter(segments[max(place, 0)])

    def _enter(self, ref: SegmentRef) -> bool:
        try:
            file = self._files.open(ref)
        except LogCorruptError:
            self._check_kept()
            if ref in self._writer.written.segments:
                raise
            return self._seek()  # retention dropped it, with nothing in it for this reader
        # Looked at after the file is open: what is dropped from now on stays in the open file.
        self._check_kept()
        self._file = file
        written = self._writer.written
        extent, start = written.extent(file), start_of(file)
        index, end = extent.index, extent.end
        self._offset = start if index is None else index.offset_of(self.position + 1, start)
        if index is not None and self._floors.keys().isdisjoint(index.extents):
            self._offset, self.position = end, max(self.position, extent.last_lsn)
        return self._extend(end) or ref != written.segments[-1]

    def _checked_next(self, ref: SegmentRef, written: Written) -> SegmentRef:
        """The next segment that there is.

        Raises:
            LogCorruptError: one before it is missing, and it was not retention that removed it.
        """
        file = self._open_file()
        if ref == written.segments[0]:
            return ref
        if ref.ordinal != file.ref.ordinal + 1:
            raise missing(file.path.parent, file.ref.ordinal + 1, ref.base_lsn)
        if ref.base_lsn > self.position + 1:
            raise file.corrupt("rows at its end are missing", self._offset, ref.base_lsn)
        return ref

    def _check_not_dropped(self) -> None:
        """Raise rather than wait for rows that will never come."""
        known = self._writer.written.topics.by_id
        if self._floors and all(i not in known or known[i].dropped for i in self._floors):
            raise TopicNotFoundError(
                "the topics that this reader reads were dropped", hint="close the reader"
            )

    def _check_kept(self) -> None:
        """Raise if retention has dropped rows that this reader was going to give."""
        for topic_id, floor in self._floors.items():
            topic = self._writer.written.topics.by_id.get(topic_id)
            if topic is not None and topic.low_lsn > max(self.position + 1, floor):
                raise not_kept(topic, self.position + 1)

    def _open_file(self) -> SegmentFile:
        if self._file is None:
            raise AssertionError("no segment was entered yet")
        return self._file


def not_kept(topic: Topic, lsn: int) -> LsnNotKeptError:
    """The error for rows that retention has dropped."""
    return LsnNotKeptError(
        f"{topic.name} is kept from LSN {topic.low_lsn} on; LSN {lsn} was asked for",
        oldest=topic.low_lsn,
        hint='start at "earliest" or take a snapshot; a longer retention keeps more',
    )


def find_time(writer: Writer, files: SegmentFiles, time: int) -> int:
    """The first LSN committed at a time or later; the next LSN when there is none yet."""
    next_lsn = writer.written.lsn + 1
    for file, extent in files.open_all(writer):
        index, start = extent.index, start_of(file)
        if index is not None and index.last_time < time:
            continue
        start = start if index is None else index.offset_at(time, start)
        for offset, frame, _ in whole_frames(file.fd, start, extent.end):
            if frame.span and frame.committed_at >= time:
                return _find_commit(file.fd, offset, frame, time)
    return next_lsn


def _find_commit(fd: int, offset: int, frame: Frame, time: int) -> int:
    """The first LSN of a frame that was committed at a time or later."""
    if not frame.commits_size:
        return frame.first_lsn
    with contextlib.suppress(DamageError):  # whoever reads it is told
        for _, _, payload in walk(fd, offset, offset + frame.size):
            commits = decode_commits(frame, payload) if payload is not None else None
            if commits is not None:
                return commits.first_since(time, frame.first_lsn)
    return frame.first_lsn

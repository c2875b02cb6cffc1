"""Walking over the frames of segments: the one loop that readers, recovery and repair share.

Below it: what the loop finds in a whole log, by time, by topic, by damage.
"""

from __future__ import annotations

import contextlib
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from millstream.errors import (
    LogCorruptError,
    LogError,
)
from millstream.log.encoding import decode_commits
from millstream.log.files import missing
from millstream.log.frame import HEADER_SIZE, MARK, NO_WATERMARK, Frame, decode_header, is_whole

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from millstream.errors import LogCorruptError
    from millstream.log.files import SegmentFile, SegmentFiles
    from millstream.log.segment_writer import SegmentWriter

CHUNK: Final = 1 << 20
"""How much is read at once; about what stays in a core's own cache for the check sums."""
_PEEK: Final = 8 << 10
"""How much is read at once after a frame that is not wanted: its neighbours may not be either."""
_COPY_BELOW: Final = CHUNK // 16
"""Payloads smaller than this are copied out, so that a batch never keeps a whole chunk alive."""


class DamageError(Exception):
    """What stands at an offset is not a whole frame. Never leaves this package."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"no frame at byte {offset}")
        self.offset = offset


def walk(
    fd: int, start: int, end: int, topics: Container[int] | None = None
) -> Iterator[tuple[int, Frame, pa.Buffer | None]]:
    """The frames between two offsets, checked: offset, header, payload.

    With ``topics``, frames of other topics come without their payload, which is not read.

    Raises:
        DamageError: what follows is damaged, or not there.
    """
    offset, base, chunk, ahead = start, start, b"", CHUNK
    whole = pa.py_buffer(chunk)
    while offset < end:
        at = offset - base
        if at + HEADER_SIZE > len(chunk):
            base, at = offset, 0
            chunk = _pread(fd, min(ahead, end - offset), offset)
            whole = pa.py_buffer(chunk)
        frame = decode_header(chunk, at)
        if frame is None or offset + frame.size > end:
            raise DamageError(offset)
        payload, ahead = None, _PEEK
        if topics is None or frame.topic in topics:
            ahead = CHUNK
            if at + frame.size > len(chunk):
                # A large frame is read alone, with the header after it; small ones by the chunk.
                size = frame.size + HEADER_SIZE
                base, at = offset, 0
                chunk = _pread(fd, size if size > CHUNK // 8 else CHUNK, offset)
                whole = pa.py_buffer(chunk)
            place, size = at + HEADER_SIZE, frame.payload_size
            payload = (
                pa.py_buffer(chunk[place : place + size])
                if size < _COPY_BELOW
                else whole.slice(place, size)
            )
            if not is_whole(frame, payload):
                raise DamageError(offset)
        yield offset, frame, payload
        offset += frame.size


def walk_ranges(
    fd: int, ranges: Iterable[tuple[int, int]], topics: Container[int]
) -> Iterator[tuple[int, Frame, pa.Buffer | None]]:
    """The frames within some ranges of bytes: see ``walk``."""
    for start, end in ranges:
        yield from walk(fd, start, end, topics)


def find_frame(fd: int, start: int, end: int) -> int | None:
    """Where the next whole frame after damage begins, or None. Frames begin at multiples of 8."""
    offset = start
    while offset < end:
        data = _pread(fd, CHUNK + len(MARK), offset)
        found = data.find(MARK)
        while found >= 0:
            place = offset + found
            if place % 8 == 0 and _is_frame(fd, place, end):
                return place
            found = data.find(MARK, found + 1)
        offset += CHUNK
    return None


class Damaged(NamedTuple):
    """A place that is not a whole frame, as far as can be known.

    Attributes:
        end: where the next frame begins, or may begin.
        topic: whose rows were there, 0 for a definition; None when that is not known.
        frame: its header, when only the payload is damaged.
    """

    end: int
    topic: int | None
    frame: Frame | None


def look_at(fd: int, offset: int, end: int) -> Damaged:
    """What stands at an offset where there is no whole frame."""
    frame = decode_header(_pread(fd, HEADER_SIZE, offset))
    if frame is not None and offset + frame.size <= end:
        return Damaged(offset + frame.size, frame.topic, frame)
    following = find_frame(fd, offset + 8, end)
    if following is None:
        return Damaged(end, None, None)
    after = decode_header(_pread(fd, HEADER_SIZE, following))
    # The size shows that it was one frame, and not one of others and then this one.
    is_one = after is not None and after.previous_size == following - offset
    return Damaged(following, after.previous_topic if after is not None and is_one else None, None)


def whole_frames(
    fd: int, start: int, end: int, topics: Container[int] = ()
) -> Iterator[tuple[int, Frame, pa.Buffer | None]]:
    """The whole frames between two offsets, over all damage before and between.

    Headers only, but for those of some topics, which come with their payload.
    """
    offset = find_frame(fd, start, end)
    while offset is not None:
        try:
            yield from walk(fd, offset, end, topics)
        except DamageError as damage:
            offset = find_frame(fd, damage.offset + 8, end)
        else:
            return


def _pread(fd: int, size: int, offset: int) -> bytes:
    try:
        return os.pread(fd, size, offset)
    except OSError as error:
        raise LogError(
            f"cannot read the log: {error.strerror}", hint="see the system's log for the disk"
        ) from error


def _is_frame(fd: int, offset: int, end: int) -> bool:
    if decode_header(_pread(fd, HEADER_SIZE, offset)) is None:
        return False
    try:
        next(walk(fd, offset, end))
    except (DamageError, StopIteration):
        return False
    return True


def complete(
    file: SegmentFile, extents: Mapping[int, tuple[int, int]] | None, topics: Iterable[int]
) -> set[int]:
    """Those topics of which a segment, damaged somewhere, has every row that it should have.

    Args:
        file: the segment.
        extents: of each topic, how many rows and up to which LSN it should have; None when that is
            not known.
        topics: the numbers of the topics in question.
    """
    if extents is None:
        return set()
    counted = dict.fromkeys(topics, 0)
    for _, frame, payload in whole_frames(file.fd, file.start, file.size, set(counted)):
        if payload is not None and frame.end_lsn - 1 <= extents.get(frame.topic, (0, 0))[1]:
            counted[frame.topic] += frame.span
    return {topic for topic, rows in counted.items() if rows == extents.get(topic, (0, 0))[0]}


def verify(segments: SegmentWriter, files: SegmentFiles) -> Iterator[LogCorruptError]:
    """Read every byte of every segment.

    Returns each damaged or missing place, in order, as the error that a reader would raise there.
    """
    for before, after in pairwise(segments.written.segments):
        for ordinal in range(before.ordinal + 1, after.ordinal):
            yield missing(files.directory, ordinal, after.base_lsn)
    for file, extent in files.open_all(segments):
        if extent.index is None:
            yield file.corrupt("its seal is damaged; its rows may be whole", extent.end)
        yield from _damage(file, extent.end)


def _damage(file: SegmentFile, end: int) -> Iterator[LogCorruptError]:
    offset: int | None = file.start
    while offset is not None:
        try:
            for _ in walk(file.fd, offset, end):
                pass
        except DamageError as damage:
            place = look_at(file.fd, damage.offset, end)
            after = whole_frames(file.fd, place.end, end)
            next_lsn = next((frame.first_lsn for _, frame, _ in after if frame.span), None)
            yield file.corrupt("a frame's check sum does not match", damage.offset, next_lsn)
            offset = place.end
        else:
            return


def find_time(segments: SegmentWriter, files: SegmentFiles, time: int) -> int:
    """The first LSN committed at a time or later; the next LSN when there is none yet."""
    next_lsn = segments.written.lsn + 1
    for file, extent in files.open_all(segments):
        index, start = extent.index, file.start
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
    with contextlib.suppress(DamageError):  # its readers meet it
        for _, _, payload in walk(fd, offset, offset + frame.size):
            commits = decode_commits(frame, payload) if payload is not None else None
            if commits is not None:
                return commits.first_since(time, frame.first_lsn)
    return frame.first_lsn


def find_watermarks(segments: SegmentWriter, files: SegmentFiles) -> dict[int, int]:
    """The highest watermark of each topic, by its number; damaged rows do not matter for it."""
    found: dict[int, int] = {}
    for file, extent in files.open_all(segments):
        for _, frame, _ in whole_frames(file.fd, file.start, extent.end):
            if frame.span and frame.watermark != NO_WATERMARK:
                found[frame.topic] = max(found.get(frame.topic, NO_WATERMARK), frame.watermark)
    return found

"""Walking over the frames of a segment: the one loop that readers, recovery and repair share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from millstream.errors import LogError
from millstream.log.frame import HEADER_SIZE, MARK, Frame, decode_header, is_whole

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

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
    # The size tells that it was one frame, and not one of others and then this one.
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

"""Reading everything to see whether it is whole: every byte of every segment."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from millstream.errors import LogCorruptError
from millstream.log.walk import DamageError, find_frame, walk, whole_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.log.files import SegmentFiles
    from millstream.log.segment import SegmentFile
    from millstream.log.writer import Writer


def verify(writer: Writer, files: SegmentFiles) -> Iterator[LogCorruptError]:
    """Each damaged or missing place, in order, as the error that a reader would raise there."""
    tail, segments = writer.tail, writer.segments
    for before, after in pairwise(segments):
        if after.ordinal != before.ordinal + 1:
            yield files.open(before).corrupt("a segment after it is missing", 0, after.base_lsn)
    for ref in segments:
        try:
            file = files.open(ref)
            start = file.start
        except LogCorruptError as error:
            yield error
            continue
        if ref == tail.segment:
            end = tail.offset
        elif file.seal is not None:
            end = file.seal.end
        else:
            end = file.size
            yield file.corrupt("its seal is damaged; the rows may be whole", end, None)
        yield from _damage(file, start, end)


def _damage(file: SegmentFile, start: int, end: int) -> Iterator[LogCorruptError]:
    offset: int | None = start
    while offset is not None:
        try:
            for _ in walk(file.fd, offset, end):
                pass
        except DamageError as damage:
            after = whole_frames(file.fd, damage.offset + 8, end)
            next_lsn = next((frame.first_lsn for _, frame, _ in after if frame.span), None)
            yield file.corrupt("a frame's check sum does not match", damage.offset, next_lsn)
            offset = find_frame(file.fd, damage.offset + 8, end)
        else:
            return

"""Reading everything to see whether it is whole: every byte of every segment."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from millstream.log.files import missing
from millstream.log.walk import DamageError, look_at, walk, whole_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.errors import LogCorruptError
    from millstream.log.files import SegmentFiles
    from millstream.log.segment import SegmentFile
    from millstream.log.writer import Writer


def verify(writer: Writer, files: SegmentFiles) -> Iterator[LogCorruptError]:
    """Each damaged or missing place, in order, as the error that a reader would raise there."""
    for before, after in pairwise(writer.written.segments):
        for ordinal in range(before.ordinal + 1, after.ordinal):
            yield missing(files.directory, ordinal, after.base_lsn)
    for file, extent in files.open_all(writer):
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

"""Open segment files, one descriptor each however many read them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from millstream.errors import LogCorruptError, LogPathError
from millstream.log.segment import SegmentFile
from millstream.log.walk import whole_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from millstream.log.identity import SegmentRef
    from millstream.log.topics import Topic
    from millstream.log.writer import Writer
    from millstream.log.written import Extent


class SegmentFiles:
    """Opens segments for reading and shares them; a file is closed when its last reader lets go."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: WeakValueDictionary[SegmentRef, SegmentFile] = WeakValueDictionary()
        self._lock = threading.Lock()
        self.damage: dict[int, LogCorruptError] = {}  # the first that was met, by topic

    def note_damage(self, topics: Iterable[Topic], error: LogCorruptError) -> None:
        """Readers of some topics have met a damaged place."""
        for topic in topics:
            self.damage.setdefault(topic.id, error)

    def open(self, ref: SegmentRef) -> SegmentFile:
        """The segment's file.

        Raises:
            LogCorruptError: it is not there.
            LogPathError: it may not be read, or too many files are open.
        """
        with self._lock:
            file = self._open.get(ref)
            if file is None:
                try:
                    file = SegmentFile(self.directory, ref)
                except FileNotFoundError as error:
                    raise missing(self.directory, ref.ordinal, None) from error
                except OSError as error:
                    raise LogPathError(
                        f"cannot read {self.directory / ref.name}: {error.strerror}",
                        hint="give this user the right to read it, and to open enough files",
                    ) from error
                self._open[ref] = file
            return file

    def open_all(self, writer: Writer) -> Iterator[tuple[SegmentFile, Extent]]:
        """The segments that there are now, oldest first, each with how far it is written.

        Those that retention removes meanwhile are left out.

        Raises:
            LogCorruptError: one is missing, and it was not retention that removed it.
        """
        for ref in writer.written.segments:
            try:
                file = self.open(ref)
            except LogCorruptError:
                if ref in writer.written.segments:
                    raise
            else:
                yield file, writer.written.extent(file)

    def forget(self, ref: SegmentRef) -> None:
        """Open the file anew next time: it was replaced. Who has it open reads on in the old."""
        with self._lock:
            self._open.pop(ref, None)


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


def missing(directory: Path, ordinal: int, next_lsn: int | None) -> LogCorruptError:
    """The error for a segment that is not there."""
    name = f"{ordinal:010d}-*.seg"
    go_on = f"; rows from LSN {next_lsn} on can be read: start there" if next_lsn else ""
    return LogCorruptError(
        f"the segment {directory / name} is missing",
        segment=name,
        offset=0,
        next_lsn=next_lsn,
        hint=f"restore this file from a backup{go_on}",
    )

"""Segment files open for reading: what is in one, which there are, and how far they are written.

``Written`` is the one thing that the writer publishes and all other parts read. It is replaced as a
whole, in one assignment, so that readers need no lock and never see a new segment without its end,
or rows without their topic.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from millstream.errors import LogCorruptError, LogPathError, LogVersionError
from millstream.log.frame import HEADER_SIZE, Kind, decode_header, is_whole
from millstream.log.segment import (
    FOLLOWED,
    FORMAT_VERSION,
    PROLOGUE_SIZE,
    TRAILER_SIZE,
    Head,
    Identity,
    Seal,
    SegmentRef,
    Trailer,
    version_of,
)
from millstream.log.storage import sync_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.log.segment import SegmentIndex
    from millstream.log.segment_writer import SegmentWriter
    from millstream.log.topics import Epochs, Topic, Topics

_NAME = re.compile(r"(\d{10})-(\d{20})\.seg")


def list_segments(directory: Path) -> list[SegmentRef]:
    """The segments in a directory, in order."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))  # noqa: PTH208 - names only
    return sorted(SegmentRef(int(m[1]), int(m[2])) for m in found if m)


def mark_followed(path: Path) -> None:
    """Note at the end of a sealed segment that the one after it is on the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, FOLLOWED, os.fstat(fd).st_size - len(FOLLOWED))
        sync_data(fd)
    finally:
        os.close(fd)


class SegmentFile:
    """A segment open for reading, shared by all its readers; closed with the last of them."""

    def __init__(self, directory: Path, ref: SegmentRef) -> None:
        self.ref = ref
        self.path = directory / ref.name
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self._seal: Seal | None = None
        weakref.finalize(self, os.close, self.fd)

    @property
    def size(self) -> int:
        """The size of the file now."""
        return os.fstat(self.fd).st_size

    @cached_property
    def identity(self) -> Identity | None:
        """Which segment the file holds; None when all that says so is damaged.

        Raises:
            LogVersionError: it is of another format.
        """
        data = os.pread(self.fd, PROLOGUE_SIZE, 0)
        version = version_of(data)
        if version not in {None, FORMAT_VERSION}:
            raise LogVersionError(
                f"{self.path} has format version {version}; this Millstream reads {FORMAT_VERSION}",
                hint="it was written by another release: pip install the one that fits",
            )
        if version is not None:
            return Identity.decode(data)
        return None if self._begin is None else self._begin[0].identity

    @cached_property
    def _begin(self) -> tuple[Head, int] | None:
        """The head, and where the frames after it begin; None when it is damaged."""
        data = os.pread(self.fd, 64 << 10, 0)
        frame = decode_header(data, PROLOGUE_SIZE)
        if frame is None or frame.kind != Kind.HEAD:
            return None
        start = PROLOGUE_SIZE + HEADER_SIZE
        payload = os.pread(self.fd, frame.payload_size, start)
        if not is_whole(frame, payload):
            return None
        return Head.decode(payload), PROLOGUE_SIZE + frame.size

    @property
    def head(self) -> Head:
        """What the first frame says.

        Raises:
            LogCorruptError: it is damaged.
            LogVersionError: it is of another format.
        """
        identity = self.identity
        if self._begin is None:
            what = "its first frame is damaged" if identity else "does not begin as a segment does"
            raise self.corrupt(what, PROLOGUE_SIZE if identity else 0)
        return self._begin[0]

    def topics(self) -> Topics | None:
        """The topics at its start; None when its head is damaged."""
        return None if self._begin is None else self._begin[0].topics

    @property
    def start(self) -> int:
        """Where the frames after the head begin; 0 when it is damaged, to be stepped over."""
        return 0 if self._begin is None else self._begin[1]

    @property
    def trailer(self) -> Trailer | None:
        """What the last bytes say; None when they are damaged, or it is not sealed."""
        return Trailer.decode(os.pread(self.fd, TRAILER_SIZE, max(0, self.size - TRAILER_SIZE)))

    @property
    def seal(self) -> Seal | None:
        """What the end of the segment says; None when it is not sealed, or its seal is damaged."""
        if self._seal is None:  # a segment that is not sealed yet may be, the next time
            self._seal = self._read_seal()
        return self._seal

    def _read_seal(self) -> Seal | None:
        trailer = self.trailer
        if trailer is None:
            return None
        data = os.pread(self.fd, self.size - trailer.end, trailer.end)
        frame = decode_header(data)
        if frame is None or frame.kind != Kind.INDEX:
            return None
        payload = data[HEADER_SIZE : HEADER_SIZE + frame.payload_size]
        return Seal.decode(payload, trailer) if is_whole(frame, payload) else None

    def corrupt(self, what: str, offset: int, next_lsn: int | None = None) -> LogCorruptError:
        """The error for damage in this segment."""
        go_on = f"; rows from LSN {next_lsn} on can be read: start there" if next_lsn else ""
        return LogCorruptError(
            f"{self.path} is damaged at byte {offset}: {what}",
            segment=self.ref.name,
            offset=offset,
            next_lsn=next_lsn,
            hint=f"restore this file from a backup{go_on}",
        )


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """How far a segment can be read, and where things are in it.

    Attributes:
        index: None when the seal that had it is damaged.
        end: where its whole frames end.
        last_lsn: the last LSN in it; 0 when that is not known.
    """

    index: SegmentIndex | None
    end: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Written:
    """The log as it is written at one moment.

    Attributes:
        segments: oldest first; the last one is being written.
        offset: where the whole commits of the last segment end.
        lsn: the last LSN that is written.
        index: that of the last segment; it grows, but never shrinks.
        topics: the topics.
        epochs: the runs of the database, this one included.
    """

    segments: tuple[SegmentRef, ...]
    offset: int
    lsn: int
    index: SegmentIndex
    topics: Topics
    epochs: Epochs

    def grown(self, offset: int, lsn: int, topics: Topics) -> Written:
        """The log after another commit was written to its last segment."""
        return Written(self.segments, offset, lsn, self.index, topics, self.epochs)

    def extent(self, file: SegmentFile) -> SegmentExtent:
        """How far a segment of this moment, or of one before, can be read."""
        if file.ref == self.segments[-1]:
            return SegmentExtent(self.index, self.offset, self.lsn)
        if file.seal is None:
            return SegmentExtent(None, file.size, 0)
        return SegmentExtent(file.seal.index, file.seal.end, file.seal.index.end_lsn - 1)


class SegmentFiles:
    """Opens segments for reading and shares them; a file is closed with its last reader."""

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

    def open_all(self, segments: SegmentWriter) -> Iterator[tuple[SegmentFile, SegmentExtent]]:
        """The segments that there are now, oldest first, each with how far it is written.

        Those that retention removes meanwhile are left out.

        Raises:
            LogCorruptError: one is missing, and it was not retention that removed it.
        """
        for ref in segments.written.segments:
            try:
                file = self.open(ref)
            except LogCorruptError:
                if ref in segments.written.segments:
                    raise
            else:
                yield file, segments.written.extent(file)

    def forget(self, ref: SegmentRef) -> None:
        """Open a file anew next time: it was replaced. Open readers keep the old one."""
        with self._lock:
            self._open.pop(ref, None)


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

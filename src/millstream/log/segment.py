"""Segments: the files of a log. Each begins with all that its reader must know of those before.

A file is a prologue of 16 bytes (``MILLSTRM``, the format's version), a HEAD frame, then frames.
When it is full, or the log is closed, an INDEX frame and a trailer of 24 bytes seal it.
"""

from __future__ import annotations

import json
import os
import re
import struct
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import google_crc32c

from millstream.errors import LogCorruptError, LogVersionError
from millstream.log.epochs import Epochs
from millstream.log.frame import HEADER_SIZE, Kind, decode_header, encode, is_whole
from millstream.log.index import SegmentIndex
from millstream.log.topics import Topics, encode_json

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

FORMAT_VERSION: Final = 2

_PROLOGUE = struct.Struct("<8sII")
_MAGIC = b"MILLSTRM"
_TRAILER = struct.Struct("<8sQII")
_SEALED = b"MILLSEAL"
_NAME = re.compile(r"(\d{10})-(\d{20})\.seg")


@dataclass(frozen=True, slots=True, order=True)
class SegmentRef:
    """A segment by name: its number in the row of segments, and its first LSN."""

    ordinal: int
    base_lsn: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.ordinal:010d}-{self.base_lsn:020d}.seg"


def list_segments(directory: Path) -> list[SegmentRef]:
    """The segments in a directory, in order."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))  # noqa: PTH208 - names only
    return sorted(SegmentRef(int(m[1]), int(m[2])) for m in found if m)


@dataclass(frozen=True, slots=True)
class Head:
    """What the first frame of a segment says.

    Attributes:
        database: the identity of the database; tokens of others are refused.
        created_at: when the segment was begun.
        synced: the segments up to this ordinal were wholly on the disk by then.
        epochs: the runs of the database so far.
        topics: the topics at the begin of the segment.
    """

    database: UUID
    created_at: int
    synced: int
    epochs: Epochs
    topics: Topics

    def encode(self) -> list[bytes | pa.Buffer]:
        """The begin of a segment's file."""
        data = {
            "database": str(self.database),
            "created_at": self.created_at,
            "synced": self.synced,
            "epochs": self.epochs.to_json(),
            **self.topics.to_json(),
        }
        prologue = _PROLOGUE.pack(_MAGIC, FORMAT_VERSION, 0)
        return [prologue, *encode(Kind.HEAD, encode_json(data)).buffers]

    @classmethod
    def decode(cls, payload: bytes) -> Head:
        """The head that ``encode`` wrote."""
        data: dict[str, Any] = json.loads(payload)
        return cls(
            UUID(data["database"]),
            data["created_at"],
            data["synced"],
            Epochs.from_json(data["epochs"]),
            Topics.from_json(data),
        )


@dataclass(frozen=True)
class Seal:
    """What the end of a sealed segment says: all that opening the log after it needs.

    Attributes:
        index: where things are in the segment.
        end: the offset at which its frames end and the seal begins.
        closed: the log was closed with it; else it was sealed because it was full.
    """

    index: SegmentIndex
    end: int
    closed: bool
    _definitions: dict[str, Any]

    @classmethod
    def of(
        cls, index: SegmentIndex, end: int, epochs: Epochs, topics: Topics, *, closed: bool = False
    ) -> Seal:
        """A seal for a segment whose frames end at an offset."""
        return cls(index, end, closed, {"epochs": epochs.to_json(), **topics.to_json()})

    @cached_property
    def epochs(self) -> Epochs:
        """The runs of the database so far."""
        return Epochs.from_json(self._definitions["epochs"])

    @cached_property
    def topics(self) -> Topics:
        """The topics at the end of the segment; made when asked for, as there may be thousands."""
        return Topics.from_json(self._definitions)

    def encode(self) -> list[bytes | pa.Buffer]:
        """The end of a segment's file."""
        data = {"index": self.index.to_json(), "closed": self.closed, **self._definitions}
        place = struct.pack("<Q", self.end)
        trailer = _TRAILER.pack(_SEALED, self.end, google_crc32c.value(place), 0)
        return [*encode(Kind.INDEX, encode_json(data)).buffers, trailer]

    @classmethod
    def decode(cls, payload: bytes, end: int) -> Seal:
        """The seal that ``encode`` wrote."""
        data: dict[str, Any] = json.loads(payload)
        return cls(SegmentIndex.from_json(data.pop("index")), end, data.pop("closed"), data)


class SegmentFile:
    """A segment open for reading, shared by all who read it; closed when the last one lets go."""

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
    def _begin(self) -> tuple[Head, int]:
        """The head, and where the frames after it begin."""
        data = os.pread(self.fd, 64 << 10, 0)
        if len(data) < _PROLOGUE.size or not data.startswith(_MAGIC):
            raise self.corrupt("does not begin as a segment does", 0)
        version = _PROLOGUE.unpack_from(data)[1]
        if version != FORMAT_VERSION:
            raise LogVersionError(
                f"{self.path} has format version {version}; this Millstream reads {FORMAT_VERSION}",
                hint="it was written by another release: pip install the one that fits",
            )
        frame = decode_header(data, _PROLOGUE.size)
        if frame is None or frame.kind != Kind.HEAD:
            raise self.corrupt("its first frame is damaged", _PROLOGUE.size)
        start = _PROLOGUE.size + HEADER_SIZE
        payload = os.pread(self.fd, frame.payload_size, start)
        if not is_whole(frame, payload):
            raise self.corrupt("its first frame is damaged", _PROLOGUE.size)
        return Head.decode(payload), _PROLOGUE.size + frame.size

    @property
    def head(self) -> Head:
        """What the first frame says."""
        return self._begin[0]

    @property
    def start(self) -> int:
        """Where the frames after the head begin."""
        return self._begin[1]

    @property
    def seal(self) -> Seal | None:
        """What the end of the segment says; None when it is not sealed, or its seal is damaged."""
        if self._seal is None:  # a segment that is not sealed yet may be, the next time
            self._seal = self._read_seal()
        return self._seal

    def _read_seal(self) -> Seal | None:
        size = self.size
        trailer = os.pread(self.fd, _TRAILER.size, max(0, size - _TRAILER.size))
        if len(trailer) < _TRAILER.size:
            return None
        magic, offset, crc, _ = _TRAILER.unpack(trailer)
        if magic != _SEALED or crc != google_crc32c.value(struct.pack("<Q", offset)):
            return None
        data = os.pread(self.fd, size - offset, offset)
        frame = decode_header(data)
        if frame is None or frame.kind != Kind.INDEX:
            return None
        payload = data[HEADER_SIZE : HEADER_SIZE + frame.payload_size]
        return Seal.decode(payload, offset) if is_whole(frame, payload) else None

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


def start_of(file: SegmentFile) -> int:
    """Where its frames begin; where it begins, when its head cannot be read, to be stepped over."""
    try:
        return file.start
    except LogCorruptError:
        return 0

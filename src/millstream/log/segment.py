"""Segments: the files of a log. Each begins with all that its reader must know of those before.

A file is a prologue of 64 bytes (``MILLSTRM``, the format's version, which segment of which
database it is and which one it follows), a HEAD frame, then frames. When it is full, or the log is
closed, an INDEX frame and a trailer of 32 bytes seal it; once the segment after it is on the disk,
the trailer says that there is one.
"""

from __future__ import annotations

import json
import os
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millstream.errors import LogCorruptError, LogVersionError
from millstream.log.epochs import Epochs
from millstream.log.frame import HEADER_SIZE, Kind, decode_header, encode, is_whole
from millstream.log.identity import (
    FORMAT_VERSION,
    PROLOGUE_SIZE,
    TRAILER_SIZE,
    Identity,
    SegmentRef,
    Trailer,
    version_of,
)
from millstream.log.index import SegmentIndex
from millstream.log.topics import Topics, encode_json

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Head:
    """What the first frame of a segment says.

    Attributes:
        identity: which segment it is.
        created_at: when the segment was begun.
        synced: the segments up to this ordinal were wholly on the disk by then.
        epochs: the runs of the database so far.
        topics: the topics at the begin of the segment.
    """

    identity: Identity
    created_at: int
    synced: int
    epochs: Epochs
    topics: Topics

    def encode(self) -> list[bytes | pa.Buffer]:
        """The begin of a segment's file."""
        data = {
            "identity": self.identity.to_json(),
            "created_at": self.created_at,
            "synced": self.synced,
            "epochs": self.epochs.to_json(),
            **self.topics.to_json(),
        }
        return [self.identity.encode(), *encode(Kind.HEAD, encode_json(data)).buffers]

    @classmethod
    def decode(cls, payload: bytes) -> Head:
        """The head that ``encode`` wrote."""
        data: dict[str, Any] = json.loads(payload)
        return cls(
            Identity.from_json(data["identity"]),
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
        followed: the segment after it has been on the disk.
    """

    index: SegmentIndex
    end: int
    closed: bool
    _definitions: dict[str, Any]
    followed: bool = False

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
        trailer = Trailer(self.end, self.index.end_lsn, self.followed)
        return [*encode(Kind.INDEX, encode_json(data)).buffers, trailer.encode()]

    @classmethod
    def decode(cls, payload: bytes, trailer: Trailer) -> Seal:
        """The seal that ``encode`` wrote."""
        data: dict[str, Any] = json.loads(payload)
        index = SegmentIndex.from_json(data.pop("index"))
        return cls(index, trailer.end, data.pop("closed"), data, trailer.followed)


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
        """The topics at its begin; None when its head is damaged."""
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

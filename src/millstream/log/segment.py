"""What a segment file says of itself, at its start and at its end. Pure: values and bytes.

A file is a prologue of 64 bytes (``MILLSTRM``, the format's version, which segment of which
database it is and which one it follows), a HEAD frame, then frames. When it is full, or the log is
closed, an INDEX frame and a trailer of 32 bytes seal it; once the segment after it is on the disk,
the trailer says that there is one. The head has all that a reader must know of the segments before;
the INDEX frame has the sparse index: from an LSN or a time to an offset, and what each topic has
in the segment.
"""

from __future__ import annotations

import json
import secrets
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import google_crc32c

from millstream.log.frame import Kind, encode
from millstream.log.topics import Epochs, Topics, encode_json

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.log.frame import Frame

FORMAT_VERSION: Final = 3
_PROLOGUE = struct.Struct("<8sII16sQQQQ")
_MAGIC = b"MILLSTRM"
_TRAILER = struct.Struct("<8sQQI4s")
_SEALED = b"MILLSEAL"
FOLLOWED = b"NEXT"
PROLOGUE_SIZE: Final = _PROLOGUE.size
TRAILER_SIZE: Final = _TRAILER.size
STRIDE: Final = 256 << 10
"""One entry for about this many bytes: a seek reads at most that much more than it needs."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentRef:
    """A segment by name: its number in the row of segments, and its first LSN."""

    ordinal: int
    base_lsn: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.ordinal:010d}-{self.base_lsn:020d}.seg"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which segment a file holds, whatever its name is.

    Attributes:
        database: the identity of the database; tokens of others are refused.
        ref: the name that it was given.
        id: a random number.
        previous: the number of the segment before it; 0 for the first one, and after a lost one.
    """

    database: UUID
    ref: SegmentRef
    id: int
    previous: int

    @classmethod
    def new(cls, database: UUID, ref: SegmentRef, previous: int) -> Identity:
        """That of a segment that is about to be made."""
        return cls(database, ref, secrets.randbits(63) | 1, previous)

    def encode(self) -> bytes:
        """The first bytes of the file."""
        ref = self.ref
        numbers = (self.database.bytes, ref.ordinal, ref.base_lsn, self.id, self.previous)
        check = google_crc32c.value(_PROLOGUE.pack(_MAGIC, FORMAT_VERSION, 0, *numbers))
        return _PROLOGUE.pack(_MAGIC, FORMAT_VERSION, check, *numbers)

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """The identity that ``encode`` wrote, of bytes whose version is known to be right."""
        _, _, _, database, ordinal, base_lsn, number, previous = _PROLOGUE.unpack(data)
        return cls(UUID(bytes=database), SegmentRef(ordinal, base_lsn), number, previous)

    def to_json(self) -> list[Any]:
        """The identity as it stands in the head too, in case the first bytes are damaged."""
        ref = self.ref
        return [str(self.database), ref.ordinal, ref.base_lsn, self.id, self.previous]

    @classmethod
    def from_json(cls, data: list[Any]) -> Identity:
        """The identity that ``to_json`` described."""
        database, ordinal, base_lsn, number, previous = data
        return cls(UUID(database), SegmentRef(ordinal, base_lsn), number, previous)


@dataclass(frozen=True, slots=True)
class Trailer:
    """The last bytes of a sealed segment.

    Attributes:
        end: where its frames end and the INDEX frame begins.
        end_lsn: the first LSN after it.
        followed: the segment after it has been on the disk.
    """

    end: int
    end_lsn: int
    followed: bool

    def encode(self) -> bytes:
        """The bytes."""
        check = google_crc32c.value(struct.pack("<QQ", self.end, self.end_lsn))
        mark = FOLLOWED if self.followed else bytes(4)
        return _TRAILER.pack(_SEALED, self.end, self.end_lsn, check, mark)

    @classmethod
    def decode(cls, data: bytes) -> Trailer | None:
        """The trailer that ``encode`` wrote; None when it is something else, or damaged."""
        if len(data) < _TRAILER.size:
            return None
        magic, end, end_lsn, check, mark = _TRAILER.unpack(data)
        if magic != _SEALED or check != google_crc32c.value(struct.pack("<QQ", end, end_lsn)):
            return None
        return cls(end, end_lsn, mark == FOLLOWED)


def version_of(data: bytes) -> int | None:
    """The format's version that the first bytes of a file are of; None when they are damaged."""
    if len(data) < _PROLOGUE.size or not data.startswith(_MAGIC):
        return None
    magic, version, check, *rest = _PROLOGUE.unpack(data)
    is_old = version < FORMAT_VERSION and data[16:19] == b"MSF"  # their first frame stands there
    is_right = google_crc32c.value(_PROLOGUE.pack(magic, version, 0, *rest)) == check
    return int(version) if is_old or is_right else None


@dataclass(slots=True)
class TopicExtent:
    """What a segment holds of one topic."""

    first_lsn: int
    last_lsn: int
    rows: int
    size: int


class SegmentIndex:
    """Where things are in one segment.

    Attributes:
        extents: what there is of each topic.
        end_lsn: the first LSN after the segment.
        partial: it was made from what damage had left of the segment.
        first_time: the time of its first commit, 0 when it has none.
        last_time: the time of its last commit, 0 when it has none.
    """

    __slots__ = (
        "_lsns",
        "_offsets",
        "_times",
        "end_lsn",
        "extents",
        "first_time",
        "last_time",
        "partial",
    )

    def __init__(self, base_lsn: int) -> None:
        self._lsns: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self.extents: dict[int, TopicExtent] = {}
        self.end_lsn = base_lsn
        self.first_time = 0
        self.last_time = 0
        self.partial = False

    def add(self, frame: Frame, offset: int) -> None:
        """Take note of a frame that has rows or a watermark."""
        if not self._offsets or offset - self._offsets[-1] >= STRIDE:
            # Readers look at a growing index without a lock, and look at the LSNs first.
            self._offsets.append(offset)
            self._times.append(frame.committed_at)
            self._lsns.append(frame.first_lsn)
        extent = self.extents.get(frame.topic)
        if extent is None:
            extent = TopicExtent(frame.first_lsn, frame.first_lsn, 0, 0)
            self.extents[frame.topic] = extent
        extent.last_lsn = frame.end_lsn - 1
        extent.rows += frame.span
        extent.size += frame.size
        self.end_lsn = frame.end_lsn
        self.first_time = self.first_time or frame.committed_at
        self.last_time = frame.committed_at

    def offset_of(self, lsn: int, default: int) -> int:
        """An offset at or before the frame of an LSN, and not far before it."""
        place = bisect_right(self._lsns, lsn) - 1
        return self._offsets[place] if place >= 0 else default

    def offset_at(self, time: int, default: int) -> int:
        """An offset at or before the first frame committed at a time or later."""
        place = bisect_left(self._times, time) - 1
        return self._offsets[place] if place >= 0 else default

    def to_json(self) -> dict[str, Any]:
        """The index as it stands at the end of a sealed segment."""
        return {
            "lsns": self._lsns,
            "offsets": self._offsets,
            "times": self._times,
            "extents": {
                str(topic): [e.first_lsn, e.last_lsn, e.rows, e.size]
                for topic, e in self.extents.items()
            },
            "end_lsn": self.end_lsn,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "partial": self.partial,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SegmentIndex:
        """The index that ``to_json`` described."""
        index = cls(data["end_lsn"])
        index._lsns, index._offsets, index._times = data["lsns"], data["offsets"], data["times"]
        index.extents = {int(topic): TopicExtent(*e) for topic, e in data["extents"].items()}
        index.first_time, index.last_time = data["first_time"], data["last_time"]
        index.partial = data["partial"]
        return index


@dataclass(frozen=True, slots=True)
class Head:
    """What the first frame of a segment says.

    Attributes:
        identity: which segment it is.
        created_at: when the segment was begun.
        synced: the segments up to this ordinal were wholly on the disk by then.
        epochs: the runs of the database so far.
        topics: the topics at the start of the segment.
    """

    identity: Identity
    created_at: int
    synced: int
    epochs: Epochs
    topics: Topics

    def encode(self) -> list[bytes | pa.Buffer]:
        """The start of a segment's file."""
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

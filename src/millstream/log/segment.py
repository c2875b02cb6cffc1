"""What a segment file says of itself, at its start and at its end. Pure: values and bytes.

A file is a prologue of 64 bytes (``MILLSTRM``, the format's version, which segment of which
database it is and which one it follows), a HEAD frame, then frames. When it is full, or the log is
closed, an INDEX frame and a trailer of 32 bytes seal it; once the segment after it is on the disk,
the trailer says that there is one. The head has all that a reader must know of the segments before;
the INDEX frame has the sparse index: from an LSN or a time to an offset, what each topic has in the
segment and where, and the watermark of each topic at its end.
"""

from __future__ import annotations

import json
import secrets
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import google_crc32c

from millstream.log.frame import NO_WATERMARK, Kind, encode
from millstream.log.topics import Epochs, Topics, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
MOST_RANGES: Final = 64
"""In so many ranges of bytes, at most, the frames of a topic are listed."""
_SHORT: Final = 64 << 10
"""So few bytes are read from end to end, wherever the frames are."""
_NEAR: Final = 2 << 10
"""Frames that are no further apart are in one range: to read on is faster than to seek."""


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
    """What a segment holds of one topic, and where.

    Attributes:
        ranges: all its frames are within these ranges of bytes, in order; None: not known. Replaced
            or added to in single steps, so that readers need no lock.
    """

    first_lsn: int
    last_lsn: int
    rows: int
    size: int
    ranges: list[tuple[int, int]] | None = None

    def place(self, start: int, end: int) -> None:
        """Take note of where one more frame is."""
        ranges = self.ranges
        if ranges is None:
            return
        if ranges and start - ranges[-1][1] <= _NEAR:
            ranges[-1] = (ranges[-1][0], end)
            return
        ranges.append((start, end))
        if len(ranges) > MOST_RANGES:
            self.ranges = _coarser(ranges)

    def to_json(self) -> list[Any]:
        """The extent as it stands in the seal; ranges as distances."""
        known = [self.first_lsn, self.last_lsn, self.rows, self.size]
        if self.ranges is None:
            return known
        bounds = [bound for each in self.ranges for bound in each]
        return [*known, [after - before for before, after in pairwise([0, *bounds])]]

    @classmethod
    def from_json(cls, data: list[Any]) -> TopicExtent:
        """The extent that ``to_json`` described."""
        first, last, rows, size, *distances = data
        if not distances:
            return cls(first, last, rows, size)
        bounds = list(accumulate(distances[0]))
        ranges = list(zip(bounds[::2], bounds[1::2], strict=True))
        return cls(first, last, rows, size, ranges)


def _coarser(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half as many ranges around the same bytes: those that are nearest to each other are one."""
    gaps = sorted(after[0] - before[1] for before, after in pairwise(ranges))
    return joined(ranges, gaps[len(ranges) // 2])


def joined(ranges: Iterable[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """Ranges in order, those that are near each other or overlap as one."""
    made: list[tuple[int, int]] = []
    for start, end in ranges:
        if made and start - made[-1][1] <= near:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


class SegmentIndex:
    """Where things are in one segment.

    Attributes:
        extents: what there is of each topic.
        end_lsn: the first LSN after the segment.
        partial: it was made from what damage had left of the segment.
        first_time: the time of its first commit, 0 when it has none.
        last_time: the time of its last commit, 0 when it has none.
        watermarks: the highest watermark of each topic that has one, up to the end of the segment;
            None when it is not known: an earlier release has written it.
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
        "watermarks",
    )

    def __init__(self, base_lsn: int, watermarks: Mapping[int, int] | None) -> None:
        self._lsns: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self.extents: dict[int, TopicExtent] = {}
        self.end_lsn = base_lsn
        self.first_time = 0
        self.last_time = 0
        self.partial = False
        self.watermarks = None if watermarks is None else dict(watermarks)

    def add(self, frame: Frame, offset: int) -> None:
        """Take note of a frame that has rows or a watermark."""
        if not self._offsets or offset - self._offsets[-1] >= STRIDE:
            # Readers look at a growing index without a lock, and look at the LSNs first.
            self._offsets.append(offset)
            self._times.append(frame.committed_at)
            self._lsns.append(frame.first_lsn)
        extent = self.extents.get(frame.topic)
        if extent is None:
            extent = TopicExtent(frame.first_lsn, frame.first_lsn, 0, 0, [])
            self.extents[frame.topic] = extent
        size, end_lsn = frame.size, frame.end_lsn
        extent.last_lsn = end_lsn - 1
        extent.rows += frame.span
        extent.size += size
        extent.place(offset, offset + size)
        if frame.watermark != NO_WATERMARK and self.watermarks is not None:
            known = self.watermarks.get(frame.topic, NO_WATERMARK)
            self.watermarks[frame.topic] = max(known, frame.watermark)
        self.end_lsn = end_lsn
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

    def ranges_of(self, topics: Iterable[int], start: int, end: int) -> list[tuple[int, int]]:
        """Ranges between two offsets outside of which there is no frame of some topics."""
        if self.partial or end - start <= _SHORT:
            return [(start, end)]
        found: list[tuple[int, int]] = []
        for topic in topics:
            extent = self.extents.get(topic)
            if extent is not None:
                if extent.ranges is None:
                    return [(start, end)]
                found += extent.ranges
        inside = [(max(a, start), min(b, end)) for a, b in found if a < end and b > start]
        return joined(sorted(inside), _NEAR)

    def to_json(self) -> dict[str, Any]:
        """The index as it stands at the end of a sealed segment."""
        return {
            "lsns": self._lsns,
            "offsets": self._offsets,
            "times": self._times,
            "extents": {str(topic): each.to_json() for topic, each in self.extents.items()},
            "end_lsn": self.end_lsn,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "partial": self.partial,
            "watermarks": watermarks_to_json(self.watermarks),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SegmentIndex:
        """The index that ``to_json`` described."""
        index = cls(data["end_lsn"], watermarks_from_json(data.get("watermarks")))
        index._lsns, index._offsets, index._times = data["lsns"], data["offsets"], data["times"]
        extents = data["extents"].items()
        index.extents = {int(topic): TopicExtent.from_json(each) for topic, each in extents}
        index.first_time, index.last_time = data["first_time"], data["last_time"]
        index.partial = data["partial"]
        return index


def watermarks_to_json(watermarks: Mapping[int, int] | None) -> dict[str, int] | None:
    """Watermarks by topic, as they stand in heads and seals."""
    return None if watermarks is None else {str(topic): each for topic, each in watermarks.items()}


def watermarks_from_json(data: Mapping[str, int] | None) -> dict[int, int] | None:
    """The watermarks that ``watermarks_to_json`` described."""
    return None if data is None else {int(topic): each for topic, each in data.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """What the first frame of a segment says.

    Attributes:
        identity: which segment it is.
        created_at: when the segment was begun.
        synced: the segments up to this ordinal were wholly on the disk by then.
        epochs: the runs of the database so far.
        topics: the topics at the start of the segment.
        watermarks: those of the topics at the start; None when they are not known.
    """

    identity: Identity
    created_at: int
    synced: int
    epochs: Epochs
    topics: Topics
    watermarks: Mapping[int, int] | None

    def encode(self) -> list[bytes | pa.Buffer]:
        """The start of a segment's file."""
        data = {
            "identity": self.identity.to_json(),
            "created_at": self.created_at,
            "synced": self.synced,
            "epochs": self.epochs.to_json(),
            "watermarks": watermarks_to_json(self.watermarks),
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
            watermarks_from_json(data.get("watermarks")),
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

"""Frames: the unit that a log is written and checked in. Pure: bytes in, bytes out.

A frame is a header of 80 bytes and a payload, padded with zeros to a multiple of 8, little-endian:

====== ==== ===========================================================================
offset size field
====== ==== ===========================================================================
0      4    the mark ``MSF3``: where to look for the next frame after damage
4      4    CRC-32C of bytes 8..79
8      4    length of the payload, without padding
12     4    CRC-32C of the payload
16     1    kind
17     1    flags: 1 the last frame of its commit; 2 the payload has weights
18     2    version of the topic's schema
20     4    topic
24     8    first LSN
32     4    how many LSNs the frame takes
36     4    how many bytes at the end of the payload list the commits; 0 when it holds one
40     8    time of the commit, microseconds since 1970 UTC
48     8    watermark after this frame, microseconds since 1970 UTC; -2^63 when unknown
56     8    the LSN up to which the log was durable when the frame was written
64     8    the LSN up to which a derived log's input counts in it; 0 for others
72     4    topic of the frame before it in the log
76     4    size of the frame before it in the log, 0 when that is not known
====== ==== ===========================================================================

The header has its own check sum, so that a reader can step over the payloads of topics it does not
want without reading them. The durable LSN is evidence: a damaged frame below it was once safe on
disk and must be reported; above it, it is the torn end of a write that was not acknowledged. What
a frame says of the one before it shows whose rows a damaged frame held: rows of other topics are
not affected.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

HEADER_SIZE: Final = 80
MAX_PAYLOAD: Final = 2**30
MARK: Final = b"MSF3"
NO_WATERMARK: Final = -(2**63)

COMMIT: Final = 1
WEIGHTS: Final = 2

_SEAL = struct.Struct("<4sI")
_BODY = struct.Struct("<IIBBHIQIIqqQQII")
_PADDING = tuple(bytes(n) for n in (0, 7, 6, 5, 4, 3, 2, 1))


class Kind(IntEnum):
    """What a frame holds. Numbers are never used again for something else."""

    ROWS = 1
    """Rows of a topic: an Arrow record batch."""
    WATERMARK = 2
    """A watermark that was pushed by itself; takes one LSN, has no payload."""
    TOPIC = 3
    """A topic was created, changed, trimmed or dropped: its definition as JSON."""
    EPOCH = 4
    """A run of the database begins: its number as JSON."""
    HEAD = 5
    """The first frame of a segment: what its reader must know of the segments before."""
    INDEX = 6
    """The last frame of a sealed segment: its sparse index."""
    FIRST = 7
    """Retention removes the segments before one: its ordinal as JSON."""


class Frame(NamedTuple):
    """A header, decoded and checked; its fields stand in the order of the layout."""

    payload_size: int
    payload_crc: int
    kind: int
    flags: int
    version: int
    topic: int
    first_lsn: int
    span: int
    commits_size: int
    committed_at: int
    watermark: int
    durable_lsn: int
    cause: int
    previous_topic: int
    previous_size: int

    @property
    def size(self) -> int:
        """The whole frame in bytes: header, payload, padding."""
        return HEADER_SIZE + (self.payload_size + 7 & ~7)

    @property
    def end_lsn(self) -> int:
        """The first LSN after the frame."""
        return self.first_lsn + self.span

    @property
    def ends_commit(self) -> bool:
        """Whether its commit is whole with it."""
        return bool(self.flags & COMMIT)


class Encoded(NamedTuple):
    """A frame ready to be written, the payload not copied."""

    frame: Frame
    payload: bytes | pa.Buffer

    @property
    def buffers(self) -> tuple[bytes, bytes | pa.Buffer, bytes]:
        """What to write: header, payload, padding."""
        body = _BODY.pack(*self.frame)
        header = _SEAL.pack(MARK, google_crc32c.value(body)) + body
        return header, self.payload, _PADDING[self.frame.payload_size & 7]


Tail = tuple[int, int]
"""The topic and the size of a frame: what the one after it says of it."""

NO_TAIL: Final[Tail] = (0, 0)


def tail_of(frames: Sequence[Encoded], before: Tail) -> Tail:
    """The last one of some frames; the one before them when there are none."""
    return (frames[-1].frame.topic, frames[-1].frame.size) if frames else before


def link(frames: Sequence[Encoded], before: Tail) -> list[Encoded]:
    """Frames that follow each other, each with what it has to say of the one before it."""
    linked: list[Encoded] = []
    for frame, payload in frames:
        linked.append(Encoded(Frame._make(frame[:-2] + before), payload))
        before = (frame.topic, frame.size)
    return linked


def encode(
    kind: Kind,
    payload: bytes | pa.Buffer = b"",
    *,
    flags: int = COMMIT,
    version: int = 0,
    topic: int = 0,
    first_lsn: int = 0,
    span: int = 0,
    committed_at: int = 0,
    watermark: int = NO_WATERMARK,
    durable_lsn: int = 0,
    cause: int = 0,
    commits_size: int = 0,
) -> Encoded:
    """A frame around a payload."""
    size = len(payload)
    frame = Frame(
        size,
        google_crc32c.value(payload),
        kind,
        flags,
        version,
        topic,
        first_lsn,
        span,
        commits_size,
        committed_at,
        watermark,
        durable_lsn,
        cause,
        0,
        0,
    )
    return Encoded(frame, payload)


def decode_header(data: bytes, offset: int = 0) -> Frame | None:
    """The header at an offset, or None when it is damaged or not wholly there."""
    body = data[offset + 8 : offset + HEADER_SIZE]
    if len(body) < HEADER_SIZE - 8:
        return None
    mark, crc = _SEAL.unpack_from(data, offset)
    if mark != MARK or google_crc32c.value(body) != crc:
        return None
    return Frame._make(_BODY.unpack(body))


def is_whole(frame: Frame, payload: bytes | pa.Buffer) -> bool:
    """Whether the payload is the one that the header was written for."""
    return len(payload) == frame.payload_size and google_crc32c.value(payload) == frame.payload_crc

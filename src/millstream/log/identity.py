"""What a segment's file says of itself, whatever it is called: its first bytes and its last.

Opening reads these of every segment, and so finds files that were exchanged, left out or put back.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import google_crc32c

from millstream.log.storage import sync_data

if TYPE_CHECKING:
    from pathlib import Path

FORMAT_VERSION: Final = 3

_PROLOGUE = struct.Struct("<8sII16sQQQQ")
_MAGIC = b"MILLSTRM"
_TRAILER = struct.Struct("<8sQQI4s")
_SEALED = b"MILLSEAL"
_FOLLOWED = b"NEXT"
_NAME = re.compile(r"(\d{10})-(\d{20})\.seg")

PROLOGUE_SIZE: Final = _PROLOGUE.size
TRAILER_SIZE: Final = _TRAILER.size


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
        """The same for the head, in case the first bytes are damaged."""
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
        mark = _FOLLOWED if self.followed else bytes(4)
        return _TRAILER.pack(_SEALED, self.end, self.end_lsn, check, mark)

    @classmethod
    def decode(cls, data: bytes) -> Trailer | None:
        """The trailer that ``encode`` wrote; None when it is something else, or damaged."""
        if len(data) < _TRAILER.size:
            return None
        magic, end, end_lsn, check, mark = _TRAILER.unpack(data)
        if magic != _SEALED or check != google_crc32c.value(struct.pack("<QQ", end, end_lsn)):
            return None
        return cls(end, end_lsn, mark == _FOLLOWED)


def mark_followed(path: Path) -> None:
    """Note at the end of a sealed segment that the one after it is on the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, _FOLLOWED, os.fstat(fd).st_size - len(_FOLLOWED))
        sync_data(fd)
    finally:
        os.close(fd)


def version_of(data: bytes) -> int | None:
    """The format's version that the first bytes of a file are of; None when they are damaged."""
    if len(data) < _PROLOGUE.size or not data.startswith(_MAGIC):
        return None
    magic, version, check, *rest = _PROLOGUE.unpack(data)
    is_old = version < FORMAT_VERSION and data[16:19] == b"MSF"  # their first frame stands there
    is_right = google_crc32c.value(_PROLOGUE.pack(magic, version, 0, *rest)) == check
    return int(version) if is_old or is_right else None

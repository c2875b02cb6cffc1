"""The LSN, a row's place in the one total order of a database; the resume token, its text.

An LSN is a plain ``int``. Every row takes one, and so does every watermark that is pushed by
itself; the rows of one batch have consecutive ones. A position is the last LSN that was seen, so
"resume after position n" and "read from LSN n + 1" say the same.

A resume token is text that users carry about: ``ms1`` and then, in base64url without padding::

    version    1 byte, now 1
    database  16 bytes, the id of the database that issued the token
    epoch      unsigned LEB128
    lsn        unsigned LEB128
    checksum   4 bytes, big-endian: CRC-32C of everything before it, the database's id included

Later versions keep the first two and the last field, so that a newer token is not taken for a
damaged one. Each token has exactly one text: padding, stray bits and long-winded numbers are
refused.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import google_crc32c

from millstream.errors import ForeignTokenError, InvalidTokenError

NO_LSN: Final = 0
"""The position before the first row, and the LSN of a batch that is not in a log yet."""

FIRST_LSN: Final = 1
"""The LSN of the first row of a new database."""

PREFIX = "ms"
"""What every token begins with, of whichever version."""

_PREFIX = f"{PREFIX}1"
_VERSION = 1
_LIMIT = 1 << 63
_CHECKSUM = 4
_SHORTEST = 1 + 16 + _CHECKSUM
_TEXT = re.compile(r"ms([1-9])([A-Za-z0-9_-]{28,80})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ResumeToken:
    """Where to go on reading: after this LSN, of this epoch, of this database.

    The epoch is the run of the database that wrote the LSN: a run that crashed may have handed
    out LSNs that never reached the disk, and a later run uses them again; the epoch
    distinguishes the two.

    >>> token = ResumeToken(UUID(int=7), epoch=1, lsn=42)
    >>> str(token)
    'ms1AQAAAAAAAAAAAAAAAAAAAAcBKiCleUI'
    >>> ResumeToken.parse(str(token)) == token
    True

    Attributes:
        database: the id of the database that issued the token.
        epoch: the run of the database that wrote the LSN, from 0.
        lsn: the last LSN that the reader has seen; 0 before the first.
    """

    database: UUID
    epoch: int
    lsn: int

    def __post_init__(self) -> None:
        for name, number in (("epoch", self.epoch), ("LSN", self.lsn)):
            if not isinstance(number, int) or not 0 <= number < _LIMIT:
                raise InvalidTokenError(
                    f"the {name} of a resume token cannot be {number!r}",
                    hint="It must lie between 0 and 2**63 - 1.",
                )

    def __str__(self) -> str:
        body = (
            bytes((_VERSION,)) + self.database.bytes + _to_varint(self.epoch) + _to_varint(self.lsn)
        )
        return _PREFIX + _to_base64(body + _checksum(body))

    @classmethod
    def parse(cls, text: str, database: UUID | None = None) -> ResumeToken:
        """Read a token back from its text.

        Args:
            text: what ``str(token)`` gave.
            database: the database that must have issued it; None takes that of any.

        Raises:
            InvalidTokenError: the text is no token, is damaged, or is of a newer Millstream.
            ForeignTokenError: another database than ``database`` issued it.
        """
        body = _checked_body(text)
        issuer = UUID(bytes=body[1:17])
        epoch, place = _from_varint(body, 17)
        lsn, place = _from_varint(body, place)
        if place != len(body):
            raise _damaged()
        if database is not None and issuer != database:
            raise ForeignTokenError(
                f"the resume token belongs to database {issuer}, and this one is {database}",
                hint="Use it with the database that issued it, or start anew without a token.",
            )
        return cls(issuer, epoch, lsn)


def _checked_body(text: str) -> bytes:
    """Return what the checksum covers, once prefix, alphabet, checksum and version are right."""
    matched = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        raise InvalidTokenError(
            "this is not a resume token",
            hint="A token is the text of batch.token, beginning with 'ms1'; pass it on unchanged.",
        )
    if f"ms{matched[1]}" != _PREFIX:
        raise _newer()
    data = _from_base64(matched[2])
    body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if len(data) < _SHORTEST or checksum != _checksum(body):
        raise _damaged()
    if body[0] > _VERSION:
        raise _newer()
    if body[0] < _VERSION:
        raise _damaged()
    return body


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _from_base64(text: str) -> bytes:
    if len(text) % 4 == 1:  # six bits are no byte
        raise _damaged()
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _to_base64(data) != text:  # the last character has bits that no byte holds
        raise _damaged()
    return data


def _to_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _from_varint(data: bytes, place: int) -> tuple[int, int]:
    """Read the number at ``place``; return it and the place after it."""
    number = 0
    for shift in range(0, 63, 7):
        if place == len(data):
            break
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:  # a shorter text would mean the same
                break
            return number, place
    raise _damaged()


def _checksum(body: bytes) -> bytes:
    crc: int = google_crc32c.value(body)
    return crc.to_bytes(_CHECKSUM, "big")


def _damaged() -> InvalidTokenError:
    return InvalidTokenError(
        "the resume token is damaged",
        hint="Pass on the text of batch.token whole and unchanged, or start anew without a token.",
    )


def _newer() -> InvalidTokenError:
    return InvalidTokenError(
        "the resume token was issued by a newer version of Millstream",
        hint="Upgrade Millstream here, or start anew without a token.",
    )

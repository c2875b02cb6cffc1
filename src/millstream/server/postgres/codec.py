"""Messages of the protocol to bytes and back. No I/O: bytes come in, messages go out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from millstream.server.postgres.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PROTOCOL_3: Final = 3 << 16
CANCEL_REQUEST: Final = 80877102
SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104

MAX_STARTUP: Final = 10_000
"""Bytes that a client may send before it is known who it is; PostgreSQL has the same limit."""

_INT16: Final = struct.Struct("!h")
_INT32: Final = struct.Struct("!i")
_UINT32: Final = struct.Struct("!I")
_COLUMN: Final = struct.Struct("!IhIhih")


class Frames:
    r"""Cuts a stream of bytes into messages.

    >>> frames = Frames(max_bytes=1000)
    >>> frames.feed(b"Q" + (13).to_bytes(4, "big") + b"SELECT 1\0X\0\0")
    >>> frames.next(), frames.next()
    ((b'Q', b'SELECT 1\x00'), None)

    Args:
        max_bytes: no message may be longer.

    Attributes:
        is_startup: whether the next message is the first one, which has no type.
        max_bytes: no message may be longer.
    """

    __slots__ = ("_buffer", "_place", "is_startup", "max_bytes")

    def __init__(self, max_bytes: int, *, is_startup: bool = False) -> None:
        self._buffer = bytearray()
        self._place = 0
        self.max_bytes = max_bytes
        self.is_startup = is_startup

    def __len__(self) -> int:
        """How many bytes were not read yet."""
        return len(self._buffer) - self._place

    def feed(self, data: bytes) -> None:
        """Take what was received."""
        if self._place:
            del self._buffer[: self._place]
            self._place = 0
        self._buffer += data

    def next(self) -> tuple[bytes, bytes] | None:
        """The next message, as its type and its content; None when it is not complete yet.

        Raises:
            ProtocolError: its length cannot be.
        """
        buffer, place = self._buffer, self._place
        head = 4 if self.is_startup else 5
        if len(buffer) - place < head:
            return None
        (length,) = _INT32.unpack_from(buffer, place + head - 4)
        limit = MAX_STARTUP if self.is_startup else self.max_bytes
        if not 4 <= length <= limit:
            raise ProtocolError(
                f"a message of {length} bytes", hint=f"a message has from 4 to {limit} bytes"
            )
        end = place + head - 4 + length
        if len(buffer) < end:
            return None
        kind = b"" if self.is_startup else bytes(buffer[place : place + 1])
        content = bytes(buffer[place + head : end])
        self._place = end
        return kind, content

    def rest(self) -> bytes:
        """Bytes that were received and not read, which are then forgotten."""
        rest = bytes(self._buffer[self._place :])
        self._buffer.clear()
        self._place = 0
        return rest


class Fields:
    r"""Reads the fields of one message, none beyond its end.

    >>> fields = Fields(b"name\0\0\7")
    >>> fields.string(), fields.int16()
    ('name', 7)
    """

    __slots__ = ("_content", "_place")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def string(self) -> str:
        """A text that ends with a zero byte."""
        end = self._content.find(b"\0", self._place)
        if end < 0:
            raise _cut_short()
        try:
            text = self._content[self._place : end].decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(
                "a text that is not UTF-8", sqlstate="22021", hint="client_encoding is UTF8"
            ) from error
        self._place = end + 1
        return text

    def int16(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def take(self, count: int) -> bytes:
        """So many bytes."""
        end = self._place + count
        if count < 0 or end > len(self._content):
            raise _cut_short()
        data = self._content[self._place : end]
        self._place = end
        return data

    def value(self) -> bytes | None:
        """A value with its length before it; None for NULL."""
        length = self.int32()
        return None if length == -1 else self.take(length)

    def formats(self) -> list[int]:
        """Format codes: 0 is text, 1 binary."""
        codes = [self.int16() for _ in range(self._count())]
        if any(code not in {0, 1} for code in codes):
            raise ProtocolError("a format code that is neither 0 nor 1")
        return codes

    def values(self) -> list[bytes | None]:
        """Some values with their number before them."""
        return [self.value() for _ in range(self._count())]

    def oids(self) -> list[int]:
        """The OIDs of types, with their number before them."""
        return [self.int32() & 0xFFFFFFFF for _ in range(self._count())]

    def _count(self) -> int:
        return self.int16() & 0xFFFF

    @property
    def left(self) -> bytes:
        """All that was not read."""
        return self._content[self._place :]

    def end(self) -> None:
        """Check that all was read."""
        if self._place != len(self._content):
            raise ProtocolError("a message is longer than its fields")


def _cut_short() -> ProtocolError:
    return ProtocolError("a message is shorter than its fields")


def startup_parameters(fields: Fields) -> dict[str, str]:
    """The parameters of a start-up message, after the version."""
    made: dict[str, str] = {}
    while True:
        name = fields.string()
        if not name:
            fields.end()
            return made
        made[name] = fields.string()


# ---- what the server sends


def message(kind: bytes, content: bytes = b"") -> bytes:
    """A message of a type."""
    return kind + _INT32.pack(len(content) + 4) + content


AUTHENTICATION_OK: Final = message(b"R", _INT32.pack(0))
PARSE_COMPLETE: Final = message(b"1")
BIND_COMPLETE: Final = message(b"2")
CLOSE_COMPLETE: Final = message(b"3")
NO_DATA: Final = message(b"n")
PORTAL_SUSPENDED: Final = message(b"s")
EMPTY_QUERY: Final = message(b"I")
COPY_DONE: Final = message(b"c")


def text(value: str) -> bytes:
    """A text as a field of a message."""
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


def sasl_mechanisms(names: Iterable[str]) -> bytes:
    """AuthenticationSASL."""
    return message(b"R", _INT32.pack(10) + b"".join(map(text, names)) + b"\0")


def sasl_continue(data: str) -> bytes:
    """AuthenticationSASLContinue."""
    return message(b"R", _INT32.pack(11) + data.encode())


def sasl_final(data: str) -> bytes:
    """AuthenticationSASLFinal."""
    return message(b"R", _INT32.pack(12) + data.encode())


def parameter_status(name: str, value: str) -> bytes:
    """ParameterStatus."""
    return message(b"S", text(name) + text(value))


def backend_key(process: int, secret: int) -> bytes:
    """BackendKeyData: what a CancelRequest must name."""
    return message(b"K", _UINT32.pack(process) + _UINT32.pack(secret))


def ready(status: bytes) -> bytes:
    """ReadyForQuery: I, T or E."""
    return message(b"Z", status)


def error_or_notice(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """ErrorResponse (E) or NoticeResponse (N)."""
    body = b"".join(code.encode() + text(value) for code, value in fields.items() if value)
    return message(kind, body + b"\0")


def row_description(columns: Sequence[tuple[str, int, int, int]], formats: Sequence[int]) -> bytes:
    """RowDescription: of each column name, OID, size and modifier, and its format."""
    parts = [_INT16.pack(len(columns))]
    for (name, oid, size, typmod), code in zip(columns, formats, strict=True):
        parts += (text(name), _COLUMN.pack(0, 0, oid, size, typmod, code))
    return message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    """ParameterDescription."""
    packed = b"".join(map(_UINT32.pack, oids))
    return message(b"t", struct.pack("!H", len(oids)) + packed)


def command_complete(tag: str) -> bytes:
    """CommandComplete."""
    return message(b"C", text(tag))


def copy_response(kind: bytes, columns: int, code: int) -> bytes:
    """CopyInResponse (G) or CopyOutResponse (H)."""
    return message(kind, bytes([code]) + struct.pack(f"!h{columns}h", columns, *[code] * columns))


def notification(process: int, channel: str, payload: str) -> bytes:
    """NotificationResponse; the process is that of the sender, 0 if it is not known."""
    return message(b"A", _INT32.pack(process) + text(channel) + text(payload))


def protocol_version(refused: Sequence[str]) -> bytes:
    """NegotiateProtocolVersion: 3.0, and the options that are not known."""
    return message(
        b"v", _INT32.pack(PROTOCOL_3) + _INT32.pack(len(refused)) + b"".join(map(text, refused))
    )

"""A few rows as an Arrow IPC record batch message, written without making Arrow arrays of them.

For one row Arrow takes tens of microseconds, most of them for the array of each column; the bytes
of the message are quickly put together here. Arrow reads them like its own.

A message is a head and a body. The head says how many rows and NULLs each column has, and where its
buffers lie in the body. It has the same form for all batches of a schema, so Arrow writes the first
one, and only the numbers in it are replaced. Buffers begin at multiples of 8 bytes.

For up to four rows without NULLs, which is what one commit of a view or of a push usually has, a
function is generated: it packs all values between two texts in one call.
"""

from __future__ import annotations

import struct
from decimal import Context
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from millstream.model.clock import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date, datetime
    from decimal import Decimal

    from millstream.model.schema import Row

Compiled: TypeAlias = "Callable[[Sequence[Row], Sequence[Sequence[Any]]], bytes]"
"""Writes a message of rows, and of further columns."""

FEW_ROWS: Final = 32
"""For more rows than these Arrow is faster."""

_COMPILED_ROWS: Final = 4
_COMPILED_COLUMNS: Final = 64
"""For at most so many rows and columns a function is generated."""

_HEAD = struct.Struct("<ii")  # a mark, and the size of what follows up to the body
_OFFSET = struct.Struct("<I")
_SIGNED = struct.Struct("<i")
_SHORT = struct.Struct("<H")
_LONG = struct.Struct("<q")
_PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
_EPOCH_DAY: Final = EPOCH.toordinal()
_DIGITS: Final = Context(prec=40)

# Fields of the tables Message and RecordBatch, in Arrow's format/Message.fbs.
_HEADER, _BODY_LENGTH = 2, 3
_LENGTH, _NODES, _BUFFERS = 0, 1, 2


class MessageWriter:
    """Writes messages of one schema.

    Args:
        schema: the columns.

    Raises:
        TypeError: a column is of a type that is left to Arrow.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = [field.type for field in schema]
        self._columns = list(map(_column, self._types))
        self._compiled: dict[int, Compiled] = {}  # by the number of rows
        nulls = [pa.nulls(1, field.type) for field in schema]
        data = pa.RecordBatch.from_arrays(nulls, schema.names).serialize().to_pybytes()
        self._head = data[: _HEAD.size + _HEAD.unpack_from(data)[1]]
        message = _HEAD.size + _OFFSET.unpack_from(data, _HEAD.size)[0]
        self._body_length = _field(data, message, _BODY_LENGTH)
        place = _field(data, message, _HEADER)
        batch = place + _OFFSET.unpack_from(data, place)[0]
        self._length = _field(data, batch, _LENGTH)
        self._nodes, nodes = _vector(data, batch, _NODES)
        self._buffers, buffers = _vector(data, batch, _BUFFERS)
        self._node_numbers = struct.Struct(f"<{2 * nodes}q")
        self._buffer_numbers = struct.Struct(f"<{2 * buffers}q")

    def message(self, rows: Sequence[Row], *more: Sequence[Any]) -> bytes:
        """The message of some rows, one at least; further columns may follow, each by itself.

        Raises:
            AttributeError, OverflowError, TypeError, ValueError, struct.error: a value that is not
                in canonical form; Arrow says what is wrong with it, or takes it.
        """
        count = len(rows)
        if count <= _COMPILED_ROWS and len(self._types) <= _COMPILED_COLUMNS:
            compiled = self._compiled.get(count)
            if compiled is None:
                compiled = self._compiled[count] = self._compile(count, len(more))
            try:
                return compiled(rows, more)
            except (AttributeError, OverflowError, TypeError, ValueError, struct.error):
                pass  # a NULL, or a value that does not fit
        return self._message(rows, more)

    def _message(self, rows: Sequence[Row], more: Sequence[Sequence[Any]]) -> bytes:
        """The message of any number of rows, with NULLs."""
        count, at = len(rows), 0
        nodes: list[int] = []
        places: list[int] = []
        body: list[bytes] = []
        for values, column in zip((*zip(*rows, strict=True), *more), self._columns, strict=True):
            validity, nulls, convert = b"", 0, column.convert
            held: Sequence[Any] = values
            if None in values:
                nulls = values.count(None)
                bits = sum([1 << place for place, each in enumerate(values) if each is not None])
                validity = bits.to_bytes((count + 7) // 8, "little")
                held = [column.filler if each is None else convert(each) for each in values]
            elif convert is not _as_it_is:
                held = list(map(convert, values))
            nodes += (count, nulls)
            for buffer in (validity, *column.buffers(held)):
                size = len(buffer)
                places += (at, size)
                body += (buffer, _PADDING[size & 7])
                at += size + 7 & ~7
        head = bytearray(self._head)
        _LONG.pack_into(head, self._length, count)
        _LONG.pack_into(head, self._body_length, at)
        self._node_numbers.pack_into(head, self._nodes, *nodes)
        self._buffer_numbers.pack_into(head, self._buffers, *places)
        return b"".join((head, *body))

    def _compile(self, count: int, more: int) -> Compiled:
        """A function that writes so many rows without NULLs, of which some columns come apart."""
        head = bytearray(self._head)
        _LONG.pack_into(head, self._length, count)
        self._node_numbers.pack_into(head, self._nodes, *(count, 0) * len(self._types))
        code = _Code(count)
        for place, kind in enumerate(self._types):
            code.add(place, kind)
        code.pack()
        held, numbers = len(self._types) - more, range(count)
        rows = "".join(f"({''.join(f'v{row}_{n}, ' for n in range(held))}), " for row in numbers)
        apart = "".join(
            f"({''.join(f'v{row}_{held + n}, ' for row in numbers)}), " for n in range(more)
        )
        text = "\n    ".join(
            [
                "def write(rows, more):",
                f"{rows} = rows",
                *([f"{apart} = more"] if more else []),
                *code.lines,
                "head = bytearray(HEAD)",
                f"put_length(head, {self._body_length}, {code.end})",
                f"put_places(head, {self._buffers}, {', '.join(code.places)})",
                f'return b"".join((head, {", ".join(code.body)}))',
            ]
        )
        scope = {
            **_SCOPE,
            **{f"pack{n}": each.pack for n, each in enumerate(code.packs)},
            "HEAD": bytes(head),
            "put_places": self._buffer_numbers.pack_into,
        }
        exec(compile(text, f"<a message of {count} rows>", "exec"), scope)  # noqa: S102
        made: Compiled = scope["write"]
        return made


class _Code:
    """The generated text, column by column.

    Attributes:
        lines: statements that convert values.
        places: the place and the size of each buffer, as expressions.
        body: the buffers, as expressions.
        packs: what packs the values between two texts.
    """

    def __init__(self, count: int) -> None:
        self.lines: list[str] = []
        self.places: list[str] = []
        self.body: list[str] = []
        self.packs: list[struct.Struct] = []
        self._count = count
        self._at = 0
        self._texts = ""  # by which texts shift what follows
        self._codes = "<"
        self._values: list[str] = []

    @property
    def end(self) -> str:
        """The size of the body so far, as an expression."""
        return f"{self._at}{self._texts}"

    def add(self, place: int, kind: pa.DataType) -> None:
        """Write a column."""
        count = self._count
        names = [f"v{row}_{place}" for row in range(count)]
        self._buffer(0)  # of the NULLs
        if kind == pa.bool_():
            bits = " + ".join(f"({name} << {bit})" for bit, name in enumerate(names))
            self._fixed("B", 1, [bits])
            return
        code, form = _FORMS.get(kind) or ("16s", _DECIMAL.format(scale=kind.scale))
        if form != "{v}":
            self.lines += [f"{name} = {form.format(v=name)}" for name in names]
        if code:
            self._fixed(code * count, struct.calcsize(f"<{code * count}"), names)
            return
        ends = [f"e{row}_{place}" for row in range(count)]
        self.lines += [
            f"{end} = {' + '.join([*ends[:row][-1:], f'len({name})'])}"
            for row, (end, name) in enumerate(zip(ends, names, strict=True))
        ]
        self._fixed("i" * (count + 1), 4 * (count + 1), ["0", *ends])
        self.pack()
        self.places += (self.end, ends[-1])
        self.body += [*names, f"PADDING[{ends[-1]} & 7]"]
        # What follows begins there: an expression of its own length would grow with each text.
        self.lines.append(f"t{place} = {self.end} + ({ends[-1]} + 7 & ~7)")
        self._at, self._texts = 0, f" + t{place}"

    def _fixed(self, code: str, size: int, values: list[str]) -> None:
        self._codes += code + "x" * (-size % 8)
        self._values += values
        self._buffer(size)

    def _buffer(self, size: int) -> None:
        self.places += (self.end, str(size))
        self._at += size + 7 & ~7

    def pack(self) -> None:
        """Have the values that were added so far packed."""
        if self._values:
            self.body.append(f"pack{len(self.packs)}({', '.join(self._values)})")
            self.packs.append(struct.Struct(self._codes))
        self._codes, self._values = "<", []


# ---- columns


class _Column(NamedTuple):
    """How the values of a column are written.

    Attributes:
        convert: gives what is written of a value.
        filler: is written in place of NULL.
        buffers: gives the buffers of what is written, after that of the NULLs.
    """

    convert: Callable[[Any], Any]
    filler: Any
    buffers: Callable[[Sequence[Any]], tuple[bytes, ...]]


def _column(kind: pa.DataType) -> _Column:
    if pa.types.is_decimal128(kind):
        return _decimals(kind.scale)
    known = _COLUMNS.get(kind)
    if known is None:
        raise TypeError(kind)
    return known


def _numbers(code: str, convert: Callable[[Any], Any] | None = None) -> _Column:
    """Numbers of a fixed size, by their code in ``struct``."""

    def buffers(held: Sequence[Any]) -> tuple[bytes]:
        return (struct.pack(f"<{len(held)}{code}", *held),)

    return _Column(_as_it_is if convert is None else convert, 0, buffers)


def _decimals(scale: int) -> _Column:
    def convert(value: Decimal) -> bytes:
        return int(_DIGITS.scaleb(value, scale)).to_bytes(16, "little", signed=True)

    return _Column(convert, b"\0" * 16, lambda held: (b"".join(held),))


def _bits(held: Sequence[Any]) -> tuple[bytes]:
    bits = sum([1 << place for place, each in enumerate(held) if each])
    return (bits.to_bytes((len(held) + 7) // 8, "little"),)


def _bytes(held: Sequence[bytes]) -> tuple[bytes, bytes]:
    ends = accumulate(map(len, held))
    return struct.pack(f"<{len(held) + 1}i", 0, *ends), b"".join(held)


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 - whatever it is
    return value


def _since_epoch(when: datetime) -> int:
    return (when - EPOCH) // MICROSECOND


def _days(day: date) -> int:
    return day.toordinal() - _EPOCH_DAY


_COLUMNS: Final[dict[pa.DataType, _Column]] = {
    pa.bool_(): _Column(_as_it_is, False, _bits),
    pa.int8(): _numbers("b"),
    pa.int16(): _numbers("h"),
    pa.int32(): _numbers("i"),
    pa.int64(): _numbers("q"),
    pa.float32(): _numbers("f"),
    pa.float64(): _numbers("d"),
    pa.date32(): _numbers("i", _days),
    pa.timestamp("us", "UTC"): _numbers("q", _since_epoch),
    pa.duration("us"): _numbers("q", lambda length: length // MICROSECOND),
    pa.string(): _Column(str.encode, b"", _bytes),
    pa.binary(): _Column(_as_it_is, b"", _bytes),
}

_SINCE: Final = "({v} - EPOCH) // MICROSECOND"
_DECIMAL: Final = 'int(scaleb({{v}}, {scale})).to_bytes(16, "little", signed=True)'
_FORMS: Final = {
    pa.int8(): ("b", "{v}"),
    pa.int16(): ("h", "{v}"),
    pa.int32(): ("i", "{v}"),
    pa.int64(): ("q", "{v}"),
    pa.float32(): ("f", "{v}"),
    pa.float64(): ("d", "{v}"),
    pa.date32(): ("i", "{v}.toordinal() - EPOCH_DAY"),
    pa.timestamp("us", "UTC"): ("q", _SINCE),
    pa.duration("us"): ("q", "{v} // MICROSECOND"),
    pa.string(): ("", "{v}.encode()"),
    pa.binary(): ("", "{v}"),
}
"""Of a value in generated code: how it is packed, if it has a fixed size, and what is written."""

_SCOPE: Final[dict[str, Any]] = {
    "EPOCH": EPOCH,
    "EPOCH_DAY": _EPOCH_DAY,
    "MICROSECOND": MICROSECOND,
    "PADDING": _PADDING,
    "put_length": _LONG.pack_into,
    "scaleb": _DIGITS.scaleb,
}


# ---- the head: tables of FlatBuffers, of which only the places of some fields are needed


def _field(data: bytes, table: int, number: int) -> int:
    """The place of a field of a table; the field must be there."""
    layout = table - _SIGNED.unpack_from(data, table)[0]
    return table + int(_SHORT.unpack_from(data, layout + 4 + 2 * number)[0])


def _vector(data: bytes, table: int, number: int) -> tuple[int, int]:
    """The place of the first element of a vector, and how many there are."""
    place = _field(data, table, number)
    place += _OFFSET.unpack_from(data, place)[0]
    return place + _OFFSET.size, int(_OFFSET.unpack_from(data, place)[0])

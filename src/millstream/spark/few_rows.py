"""A few rows for Spark without Arrow, which takes tens of microseconds even for a single one.

A row is a number whose bits say which columns are NULL, the columns of a fixed size, the lengths
of the others, and then the bytes of these. ``FewRows.java`` reads it. The code that writes it is
made for the columns of a feed, once.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Context
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.batch import ChangeBatch

    Writer = Callable[[ChangeBatch, int | None], bytes]
    """Writes the rows of a batch, and the watermark before it."""

COUNT: Final = struct.Struct(">I")
_MOST_COLUMNS: Final = 63

# By Arrow type: the code of ``struct``, and what is written of a value {v}.
_FIXED: Final[dict[pa.DataType, tuple[str, str]]] = {
    pa.bool_(): ("?", "{v}"),
    pa.int8(): ("b", "{v}"),
    pa.int16(): ("h", "{v}"),
    pa.int32(): ("i", "{v}"),
    pa.int64(): ("q", "{v}"),
    pa.float32(): ("f", "{v}"),
    pa.float64(): ("d", "{v}"),
    pa.date32(): ("i", "{v}.toordinal() - EPOCH_DAY"),
    pa.timestamp("us", "UTC"): ("q", "{v} if type({v}) is int else micros({v} - EPOCH)"),
    pa.duration("us"): ("q", "micros({v})"),
}
_BYTES: Final = {pa.string(): "{v}.encode()", pa.binary(): "{v}"}
_LONG_DIGITS: Final = 18
"""So many digits of a DECIMAL fit into 64 bits; Spark keeps more as bytes."""


def _written(kind: pa.DataType) -> tuple[str, str] | None:
    """The code of ``struct``, empty for bytes, and what is written of a value; None: it is not."""
    if kind in _BYTES:
        return "", _BYTES[kind]
    if not pa.types.is_decimal128(kind):
        return _FIXED.get(kind)
    digits = f"int(scaleb({{v}}, {kind.scale}))"
    if kind.precision <= _LONG_DIGITS:
        return "q", digits
    return "", f'{digits}.to_bytes(16, "big", signed=True)'


def _micros(length: Any) -> int:  # noqa: ANN401 - a timedelta
    made: int = (length.days * 86400 + length.seconds) * 1000000 + length.microseconds
    return made


def few_rows(types: Sequence[pa.DataType], values: Sequence[str]) -> Writer | None:
    """A function that writes rows; None when a column is of a type that it cannot write.

    Args:
        types: the columns.
        values: each as a Python expression over ``row``, ``lsn``, ``weight`` and ``mark``, the
            watermark.
    """
    if len(types) > _MOST_COLUMNS:
        return None
    lines, codes, fixed, sizes, tails = [], [">Q"], ["nulls"], [], []
    for place, (kind, value) in enumerate(zip(types, values, strict=True)):
        name, bit = f"v{place}", 1 << place
        known = _written(kind)
        if known is None:
            return None
        code, form = known
        otherwise = "0" if code else 'b""'
        if code:
            codes.append(code)
            fixed.append(name)
        else:
            sizes.append(f"len({name})")
            tails.append(name)
        lines.append(f"{name} = {value}")
        lines.append(f"if {name} is None: {name} = {otherwise}; nulls |= {bit}")
        if form != "{v}":
            lines.append(f"else: {name} = {form.format(v=name)}")
    codes.append("I" * len(sizes))
    head = f"pack({', '.join([*fixed, *sizes])})"
    body = "\n        ".join(["nulls = 0", *lines, f"append({' + '.join([head, *tails])})"])
    text = (
        "def write(batch, mark):\n"
        "    held, weights = batch.held_rows, batch.weights\n"
        "    made = [count(len(held))]\n"
        "    append = made.append\n"
        "    for row, lsn, weight in zip(held, batch.lsns, weights):\n"
        f"        {body}\n"
        '    return b"".join(made)\n'
    )
    scope: dict[str, Any] = {
        "EPOCH": datetime(1970, 1, 1, tzinfo=UTC),
        "EPOCH_DAY": date(1970, 1, 1).toordinal(),
        "count": COUNT.pack,
        "micros": _micros,
        "scaleb": Context(prec=40).scaleb,
        "pack": struct.Struct("".join(codes)).pack,
    }
    exec(compile(text, f"<rows of {len(types)} columns>", "exec"), scope)  # noqa: S102
    made: Writer = scope["write"]
    return made

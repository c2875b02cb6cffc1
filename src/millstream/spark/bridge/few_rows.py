"""A few rows to Spark and back without Arrow, which takes tens of microseconds for a single one.

Their number comes first. A row is a number whose bits say which columns are NULL, the columns of a
fixed size, the lengths of the others, and then the bytes of these. ``FewRows.java`` reads it,
``FewWriter.java`` writes it. The code that does so here is made for the columns, once.
"""

from __future__ import annotations

import struct
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.model.clock import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Row

    Writer = Callable[[ChangeBatch, int | None], bytes]
    """Writes the rows of a batch, and the watermark before it."""
    Reader = Callable[[bytes], list[Row]]
    """Reads rows."""

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
    pa.timestamp("us", "UTC"): ("q", "{v} if type({v}) is int else ({v} - EPOCH) // MICROSECOND"),
    pa.duration("us"): ("q", "{v} // MICROSECOND"),
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


_SCOPE: Final[dict[str, Any]] = {
    "Decimal": Decimal,
    "EPOCH": EPOCH,
    "EPOCH_DAY": EPOCH.toordinal(),
    "MICROSECOND": MICROSECOND,
    "count": COUNT.pack,
    "fromordinal": date.fromordinal,
    "scaleb": Context(prec=40).scaleb,
    "timedelta": timedelta,
}


def few_reader(schema: pa.Schema) -> Reader | None:
    """A function that reads rows; None when a column is of a type that is not written so.

    It raises OverflowError or ValueError for a value that Python cannot hold.
    """
    lines, codes, fixed, sizes, texts = [], [">Q"], ["nulls"], [], []
    for place, field in enumerate(schema):
        name, known = f"v{place}", _written(field.type)
        if known is None:
            return None
        if known[0]:
            codes.append(known[0])
            fixed.append(name)
        else:
            sizes.append(f"n{place}")
            texts.append(f"{name} = data[at:at + n{place}]; at += n{place}")
        form = _read(field.type, name)
        if form != name:
            lines.append(f"if not nulls & {1 << place}: {name} = {form}")
    names = [f"v{place}" for place in range(len(schema))]
    nulled = [f"if nulls & {1 << place}: {name} = None" for place, name in enumerate(names)]
    codes.append("I" * len(sizes))
    layout = struct.Struct("".join(codes))
    body = [
        f"{', '.join([*fixed, *sizes])}, = unpack(data, at)",
        f"at += {layout.size}",
        *texts,
        *lines,
        "if nulls:",
        *(f"    {each}" for each in nulled),
        f"append(({', '.join(names)},))",
    ]
    text = (
        "def read(data):\n"
        "    at, made = 4, []\n"
        "    append = made.append\n"
        "    for _ in range(count(data)[0]):\n"
        + "".join(f"        {each}\n" for each in body)
        + "    return made\n"
    )
    scope = {**_SCOPE, "count": COUNT.unpack_from, "unpack": layout.unpack_from}
    exec(compile(text, f"<rows of {len(schema)} columns>", "exec"), scope)  # noqa: S102
    made: Reader = scope["read"]
    return made


def _read(kind: pa.DataType, name: str) -> str:
    """The value of a column, of what was read."""
    if pa.types.is_string(kind):
        return f"{name}.decode()"
    if pa.types.is_timestamp(kind):
        return f"EPOCH + timedelta(0, 0, {name})"
    if pa.types.is_duration(kind):
        return f"timedelta(0, 0, {name})"
    if pa.types.is_date(kind):
        return f"fromordinal({name} + EPOCH_DAY)"
    if pa.types.is_decimal128(kind):
        whole = name
        if kind.precision > _LONG_DIGITS:
            whole = f'int.from_bytes({name}, "big", signed=True)'
        return f"scaleb(Decimal({whole}), -{kind.scale})"
    return name


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
        "    made = [count(len(batch))]\n"
        "    append = made.append\n"
        "    for row, lsn, weight in batch.each():\n"
        f"        {body}\n"
        '    return b"".join(made)\n'
    )
    scope = {**_SCOPE, "pack": struct.Struct("".join(codes)).pack}
    exec(compile(text, f"<rows of {len(types)} columns>", "exec"), scope)  # noqa: S102
    made: Writer = scope["write"]
    return made


def few_arrow(schema: pa.Schema, data: bytes) -> pa.RecordBatch:
    """Rows as Arrow, which can hold what Python cannot: the year 10000, text that is not UTF-8."""
    plain = pa.schema([pa.field(each.name, _PLAIN.get(each.type, each.type)) for each in schema])
    reader = few_reader(plain)
    if reader is None:
        raise AssertionError("such rows are not written")
    columns = list(zip(*reader(data), strict=True))
    arrays = [
        pa.array(values, field.type).view(wanted.type)
        for values, field, wanted in zip(columns, plain, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_PLAIN: Final = {
    pa.string(): pa.binary(),
    pa.date32(): pa.int32(),
    pa.timestamp("us", "UTC"): pa.int64(),
    pa.duration("us"): pa.int64(),
}
"""What holds the same bits, and every value."""

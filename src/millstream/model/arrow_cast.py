"""From Arrow to Arrow: foreign columns in the types of a schema, if nothing is lost on the way."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import Error, SchemaError, SchemaMismatchError
from millstream.model.arrow_values import map_entries
from millstream.model.types import SqlType, type_from_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check_column_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Check that Arrow data has only columns that are known, each of them once."""
    allowed = set(known)
    for name in names:
        if name not in allowed:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The columns are {', '.join(known)}."
            raise SchemaMismatchError(f"there is no column {name!r}", hint=hint)
    if len(set(names)) != len(names):
        raise SchemaMismatchError(
            f"a column comes twice in ({', '.join(names)})", hint="Drop or rename one of them."
        )


def cast_column(data: pa.RecordBatch, name: str, of: SqlType, *, nullable: bool) -> pa.Array:
    """Return a column of Arrow data in exactly ``of.arrow``; NULLs if it is missing and may be.

    >>> from millstream.model.types import BIGINT
    >>> data = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int8())})
    >>> cast_column(data, "n", BIGINT, nullable=False).type
    DataType(int64)

    Raises:
        SchemaMismatchError: it cannot be cast without loss, or it is missing and may not be.
    """
    place = data.schema.get_field_index(name)
    if place >= 0:
        array = data.column(place)
        try:
            return _cast(array, of)
        except (pa.ArrowException, SchemaMismatchError, SchemaError) as error:
            reason = error.message if isinstance(error, Error) else error
            raise SchemaMismatchError(
                f"column {name!r}: {array.type} does not fit {of.sql}: {reason}",
                hint="Nothing is cast that would lose or guess; cast the column yourself first.",
            ) from error
    if nullable:
        return pa.nulls(data.num_rows, of.arrow)
    raise SchemaMismatchError(
        f"the column {name!r} is missing, and it is NOT NULL", hint="Give its values."
    )


def _cast(array: pa.Array, of: SqlType) -> pa.Array:
    """Cast where the meaning stays and nothing is lost.

    pyarrow's safe cast alone would take text for numbers, numbers for times, and cut the time off
    a timestamp that becomes a date.
    """
    if array.type == of.arrow:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), of.arrow)
    if pa.types.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), of)
    cast = _CASTS.get((_arrow_family(array.type), _FAMILIES.get(of.kind, of.kind)))
    if cast is None:
        raise SchemaMismatchError("they mean different things")
    return cast(array, of)


def _arrow_family(arrow: pa.DataType) -> str:
    """Return what the values are, whatever their width; for nested types without a look inside."""
    kinds = pa.types
    if kinds.is_integer(arrow):
        return "integer"
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return "ARRAY"
    if kinds.is_struct(arrow):
        return "STRUCT"
    if kinds.is_map(arrow):
        return "MAP"
    if kinds.is_decimal(arrow):  # of more digits than ours, even, if its values have no more
        return "DECIMAL"
    kind = type_from_arrow(arrow).kind
    return _FAMILIES.get(kind, kind)


def _cast_plainly(array: pa.Array, of: SqlType) -> pa.Array:
    return array.cast(of.arrow)


def _cast_to_floating(array: pa.Array, of: SqlType) -> pa.Array:
    """Cast and cast back: pyarrow does not tell when a float loses digits to a shorter one."""
    cast = array.cast(of.arrow, safe=False)
    widened = pa.types.is_floating(array.type) and array.type.bit_width < of.arrow.bit_width
    if not widened:
        changed = pc.not_equal(cast.cast(array.type), array)
        if pc.any(pc.and_not(changed, pc.is_nan(array))).as_py():
            raise SchemaMismatchError("digits would be lost")
    return cast


def _cast_integer_to_decimal(array: pa.Array, of: SqlType) -> pa.Array:
    # pyarrow wants room for every int64 at first, whatever the values are; 256 bits have it.
    scale = of.arrow.scale
    return array.cast(pa.decimal256(20 + scale, scale)).cast(of.arrow)


def _cast_list(array: pa.Array, of: SqlType) -> pa.Array:
    elements = _cast(array.flatten(), of.children[0])
    return pa.ListArray.from_arrays(_offsets(array), elements, type=of.arrow, mask=array.is_null())


def _cast_map(array: pa.Array, of: SqlType) -> pa.Array:
    entries = map_entries(array)
    keys, values = map(_cast, entries.flatten().flatten(), of.children)
    return pa.MapArray.from_arrays(_offsets(entries), keys, values, of.arrow, mask=array.is_null())


def _cast_struct(array: pa.Array, of: SqlType) -> pa.Array:
    names = [each.name for each in array.type]
    if len(set(names)) != len(names) or not set(names) <= set(of.names):
        raise SchemaMismatchError(f"the fields ({', '.join(names)}) are others")
    given = dict(zip(names, array.flatten(), strict=True))
    children = [
        _cast(given[name], child) if name in given else pa.nulls(len(array), child.arrow)
        for name, child in zip(of.names, of.children, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(of.arrow), mask=array.is_null())


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where each list begins in ``lists.flatten()``, which skips what NULLs hide."""
    lengths = pc.fill_null(lists.value_lengths(), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())


_FAMILIES = {
    "TINYINT": "integer",
    "SMALLINT": "integer",
    "INTEGER": "integer",
    "BIGINT": "integer",
    "REAL": "floating",
    "DOUBLE": "floating",
}

_CASTS: dict[tuple[str, str], Callable[[pa.Array, SqlType], pa.Array]] = {
    ("integer", "integer"): _cast_plainly,
    ("integer", "floating"): _cast_to_floating,
    ("integer", "DECIMAL"): _cast_integer_to_decimal,
    ("floating", "floating"): _cast_to_floating,
    ("DECIMAL", "DECIMAL"): _cast_plainly,
    ("VARCHAR", "VARCHAR"): _cast_plainly,
    ("BINARY", "BINARY"): _cast_plainly,
    ("TIMESTAMP", "TIMESTAMP"): _cast_plainly,
    ("INTERVAL", "INTERVAL"): _cast_plainly,
    ("ARRAY", "ARRAY"): _cast_list,
    ("STRUCT", "STRUCT"): _cast_struct,
    ("MAP", "MAP"): _cast_map,
}

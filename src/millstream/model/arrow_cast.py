"""From Arrow to Arrow: foreign columns in the types of a schema, if nothing is lost on the way."""

from __future__ import annotations

import operator
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import Error, SchemaError, SchemaMismatchError
from millstream.model.arrow_lists import is_list, list_offsets, map_entries
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
            f"a column appears twice in ({', '.join(names)})", hint="Drop or rename one of them."
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
                hint=_hint(name, array.type, of),
            ) from error
    if nullable:
        return pa.nulls(data.num_rows, of.arrow)
    raise SchemaMismatchError(
        f"the column {name!r} is missing, and it is NOT NULL", hint="Give its values."
    )


def _hint(name: str, given: pa.DataType, of: SqlType) -> str:
    """How a column of another type can be cast."""
    if pa.types.is_floating(given) and _FAMILIES.get(of.kind, of.kind) == "integer":
        return (
            "pandas makes integers float64 where values are missing: "
            f"frame.astype({{{name!r}: 'Int64'}})."
        )
    return "Only casts without loss are done; cast the column yourself first."


def _cast(array: pa.Array, of: SqlType) -> pa.Array:
    """Cast where the meaning stays and nothing is lost.

    pyarrow's safe cast alone would take text for numbers, numbers for times, and cut the time off
    a timestamp that becomes a date.
    """
    if array.type == of.arrow:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), of.arrow)
    plain = _decoded(array)
    if plain is not array:
        return _cast(plain, of)
    cast = _CASTS.get((_arrow_family(array.type), _FAMILIES.get(of.kind, of.kind)))
    if cast is None:
        raise SchemaMismatchError("there is no cast without loss")
    return cast(array, of)


def _decoded(array: pa.Array) -> pa.Array:
    """The same values without an encoding of the array: a dictionary or runs."""
    kinds = pa.types
    if kinds.is_dictionary(array.type):
        values = array.dictionary
        if kinds.is_string_view(values.type):  # polars' Categorical; Arrow cannot take of a view
            values = values.cast(pa.string())
        elif kinds.is_binary_view(values.type):
            values = values.cast(pa.binary())
        return values.take(array.indices)
    if kinds.is_run_end_encoded(array.type):
        return pc.run_end_decode(array)
    return array


def _arrow_family(arrow: pa.DataType) -> str:
    """Return what the values are, whatever their width; for nested types without a look inside."""
    kinds = pa.types
    if kinds.is_integer(arrow):
        return "integer"
    if is_list(arrow):
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
    """Cast and cast back: pyarrow does not report when a float loses digits to a shorter one."""
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
    return _list_array(array, _cast(array.flatten(), of.children[0]), of)


def _cast_map(array: pa.Array, of: SqlType) -> pa.Array:
    entries = map_entries(array)
    keys, values = map(_cast, entries.flatten().flatten(), of.children)
    return _map_array(entries, keys, values, of)


def _cast_struct(array: pa.Array, of: SqlType) -> pa.Array:
    names = [each.name for each in array.type]
    if len(set(names)) != len(names) or not set(names) <= set(of.names):
        raise SchemaMismatchError(
            f"expected the fields ({', '.join(of.names)}), got ({', '.join(names)})"
        )
    given = dict(zip(names, array.flatten(), strict=True))
    children = [
        _cast(given[name], child) if name in given else pa.nulls(len(array), child.arrow)
        for name, child in zip(of.names, of.children, strict=True)
    ]
    return _struct_array(array, children, of)


# --- Nested arrays, without what NULLs hide -------------------------------------------------------


def without_hidden(array: pa.Array, of: SqlType) -> pa.Array:
    """Return an array of exactly ``of.arrow`` without what its NULLs hide; itself if that is so.

    DuckDB reads the entries of a MAP that is NULL, and refuses a key that is there twice.

    >>> from millstream.model.types import parse_type
    >>> hidden = pa.ListArray.from_arrays([0, 2], pa.array([1, 2]), mask=pa.array([True]))
    >>> without_hidden(hidden, parse_type("ARRAY<BIGINT>")).values.to_pylist()
    []
    """
    rebuild = _REBUILDS.get(of.kind)
    return array if rebuild is None else rebuild(array, of)


def _rebuild_list(array: pa.Array, of: SqlType) -> pa.Array:
    held = array.flatten()
    elements = without_hidden(held, of.children[0])
    hides = array.null_count or elements is not held
    return _list_array(array, elements, of) if hides else array


def _rebuild_map(array: pa.Array, of: SqlType) -> pa.Array:
    entries = map_entries(array)
    keys, held = entries.flatten().flatten()
    values = without_hidden(held, of.children[1])
    hides = array.null_count or values is not held
    return _map_array(entries, keys, values, of) if hides else array


def _rebuild_struct(array: pa.Array, of: SqlType) -> pa.Array:
    held = array.flatten()
    children = list(map(without_hidden, held, of.children))
    hides = array.null_count or any(map(operator.is_not, children, held))
    return _struct_array(array, children, of) if hides else array


def _list_array(lists: pa.Array, elements: pa.Array, of: SqlType) -> pa.Array:
    offsets, nulls = list_offsets(lists), lists.is_null()
    return pa.ListArray.from_arrays(offsets, elements, type=of.arrow, mask=nulls)


def _map_array(entries: pa.Array, keys: pa.Array, values: pa.Array, of: SqlType) -> pa.Array:
    offsets, nulls = list_offsets(entries), entries.is_null()
    return pa.MapArray.from_arrays(offsets, keys, values, of.arrow, mask=nulls)


def _struct_array(structs: pa.Array, children: list[pa.Array], of: SqlType) -> pa.Array:
    return pa.StructArray.from_arrays(children, fields=list(of.arrow), mask=structs.is_null())


_REBUILDS: dict[str, Callable[[pa.Array, SqlType], pa.Array]] = {
    "ARRAY": _rebuild_list,
    "STRUCT": _rebuild_struct,
    "MAP": _rebuild_map,
}

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
    ("DATE", "DATE"): _cast_plainly,
    ("TIMESTAMP", "TIMESTAMP"): _cast_plainly,
    ("INTERVAL", "INTERVAL"): _cast_plainly,
    ("ARRAY", "ARRAY"): _cast_list,
    ("STRUCT", "STRUCT"): _cast_struct,
    ("MAP", "MAP"): _cast_map,
}

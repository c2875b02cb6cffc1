"""What users push, in whatever shape it comes, as rows and batches of a schema.

Shapes are brought into the order of the columns here; whether the values fit is decided by
``Schema.check_rows`` and ``Schema.conform`` alone. Either everything is taken or nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import RowError, SchemaMismatchError
from millstream.model.arrow_cast import check_column_names
from millstream.model.batch import ChangeBatch
from millstream.model.record import record_columns
from millstream.model.schema import Row, Schema

if TYPE_CHECKING:
    from millstream.model.schema import Column
    from millstream.model.types import SqlType

Taker = Callable[[Any], Row]
"""Brings values of one class into the order of the columns; a RowError of it says row 0."""

_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_WIDER = {"BIGINT": _INTEGERS, "DOUBLE": frozenset({"DOUBLE", "REAL"})}

# pandas calls an index without a name so when it exports it.
_NAMELESS_INDEX = re.compile(r"__index_level_\d+__")

# Whose buffers never change. Others, pandas and numpy first of all, lend theirs and write on.
_IMMUTABLE = frozenset({"pyarrow", "polars", "duckdb", "millstream"})


class RowShape:
    """Makes rows of one schema of tuples, lists, dicts, named tuples and dataclasses.

    >>> from millstream import Schema
    >>> shape = RowShape(Schema.of(symbol="VARCHAR", price="DOUBLE"))
    >>> shape.row({"price": 187, "symbol": "AAPL"})
    ('AAPL', 187.0)

    Attributes:
        schema: the columns.
    """

    __slots__ = ("_known", "_takers", "_with_struct", "schema")

    def __init__(self, schema: Schema, record: type | None = None) -> None:
        if record is not None:
            check_record(record, schema)
        self.schema = schema
        self._known = frozenset(schema.names)
        self._with_struct = frozenset(
            place for place, column in enumerate(schema.columns) if _has_struct(column.type)
        )
        # By class, so that the fields of a class are looked at once and not for every row.
        self._takers: dict[type, Taker] = {tuple: tuple, list: tuple, dict: self._take_mapping}

    def row(self, value: object) -> Row:
        """One row in canonical form.

        Raises:
            RowError: it is no row, has an unknown name, or a value that does not fit.
        """
        return self.schema.check_rows(self._without_records([self._ordered_row(0, value)]))[0]

    def rows(self, values: Iterable[object]) -> list[Row]:
        """Many rows in canonical form, all of them or none.

        Raises:
            RowError: the first row that does not fit; it names row and column.
        """
        return self.schema.check_rows(self._without_records(self.ordered(values)))

    def ordered(self, values: Iterable[object]) -> list[Row]:
        """Many rows in the order of the columns, their values not looked at yet."""
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise _no_rows(values)
        rows: list[Any] = values if type(values) is list else list(values)
        kinds = set(map(type, rows))
        if kinds == {tuple}:
            return rows
        if len(kinds) == 1:
            try:
                return self._take_all(kinds.pop(), rows)
            except RowError:
                pass  # row by row finds which it was
        return [self._ordered_row(number, value) for number, value in enumerate(rows)]

    def _ordered_row(self, number: int, value: object) -> Row:
        try:
            return self._taker(type(value))(value)
        except RowError as error:
            raise _renumbered(error, number) from None

    def _take_all(self, kind: type, rows: list[Any]) -> list[Row]:
        names = self.schema.names
        if kind is dict and len(names) > 1 and set(map(len, rows)) == {len(names)}:
            try:  # as many keys as columns, and every column among them: no other key
                return list(map(itemgetter(*names), rows))
            except KeyError:
                pass
        return list(map(self._taker(kind), rows))

    def _taker(self, kind: type) -> Taker:
        taker = self._takers.get(kind)
        if taker is None:
            taker = self._takers[kind] = self._new_taker(kind)
        return taker

    def _new_taker(self, kind: type) -> Taker:
        if is_dataclass(kind):
            return self._attribute_taker([each.name for each in fields(kind)])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple_taker(kind.__name__, kind._fields)
        if issubclass(kind, (tuple, list)):
            return tuple
        if issubclass(kind, Mapping):
            return self._take_mapping
        raise RowError(
            f"row 0: a {kind.__name__} is no row",
            row=0,
            column=None,
            hint=f"A row is a tuple ({', '.join(self.schema.names)}), "
            "or a dict, a named tuple or a dataclass with these names.",
        )

    def _take_mapping(self, value: Mapping[Any, Any]) -> Row:
        if not value.keys() <= self._known:
            raise self._unknown(value)
        return tuple(map(value.get, self.schema.names))

    def _attribute_taker(self, given: Sequence[str]) -> Taker:
        if not self._known.issuperset(given):
            raise self._unknown(given)
        names = [name if name in given else None for name in self.schema.names]
        if len(names) == len(given) > 1:
            return attrgetter(*self.schema.names)  # which gives a tuple only of two or more
        return lambda value: tuple(
            [None if name is None else getattr(value, name) for name in names]
        )

    def _named_tuple_taker(self, kind: str, given: Sequence[str]) -> Taker:
        """By name when all its fields are columns, by position when none names another place."""
        names = self.schema.names
        if self._known.issuperset(given):
            places = [given.index(name) if name in given else None for name in names]
            return lambda value: tuple([None if at is None else value[at] for at in places])
        for place, name in enumerate(given):
            if name in self._known and names[place : place + 1] != (name,):
                raise RowError(
                    f"row 0: {kind} has {name!r} at another place than the columns, and fields "
                    "that are no columns",
                    row=0,
                    column=name,
                    hint=f"Give a tuple ({', '.join(names)}).",
                )
        return tuple

    def _unknown(self, given: Iterable[object]) -> RowError:
        names = self.schema.names
        name = str(next(each for each in given if each not in self._known))
        near = [each for each in names if each.lower() == name.lower()]
        near = near or get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"The columns are {', '.join(names)}."
        return RowError(f"row 0: there is no column {name!r}", row=0, column=name, hint=hint)

    def _without_records(self, rows: list[Row]) -> list[Row]:
        """Dataclasses inside of rows as dicts, which is what a STRUCT takes."""
        places = self._with_struct
        if not places:
            return rows
        return [
            tuple([_plain(each) if place in places else each for place, each in enumerate(row)])
            for row in rows
        ]


def check_record(record: type, schema: Schema) -> None:
    """Check that the fields of a dataclass fit the columns of a schema.

    int fits every integer column, float DOUBLE and REAL, Decimal every DECIMAL; what may be None
    needs a column that may be NULL. A nullable column without a field is NULL.

    Raises:
        SchemaMismatchError: a field or a column that does not fit.
        SchemaError: it is no dataclass, or has a field of a type without a SQL type.
    """
    columns = {column.name: column for column in schema.columns}
    for name, of, nullable in record_columns(record):
        check_column_names([name], schema.names)
        column = columns.pop(name)
        if not _type_fits(of, column.type):
            raise SchemaMismatchError(
                f"the field {name!r} of {record.__name__} is {of.sql}, but the column is "
                f"{column.type.sql}",
                hint="Change the annotation of the field, or the type of the column.",
            )
        if nullable and not column.nullable:
            raise SchemaMismatchError(
                f"the field {name!r} of {record.__name__} may be None, but the column is NOT NULL",
                hint="Leave None out of the annotation, or NOT NULL out of the column.",
            )
    for column in columns.values():
        if not column.nullable:
            raise SchemaMismatchError(
                f"{record.__name__} has no field for the column {column.name!r}, which is NOT NULL",
                hint=f"Add a field {column.name}.",
            )


def _type_fits(given: SqlType, column: SqlType) -> bool:
    if given.kind == "STRUCT" and column.kind == "STRUCT":
        types = dict(zip(column.names, column.children, strict=True))
        pairs = zip(given.names, given.children, strict=True)
        return all(name in types and _type_fits(each, types[name]) for name, each in pairs)
    if given.children and given.kind == column.kind:
        return all(map(_type_fits, given.children, column.children))
    if given.kind == "DECIMAL":
        return column.kind == "DECIMAL"
    return given == column or column.kind in _WIDER.get(given.kind, ())


def _has_struct(of: SqlType) -> bool:
    return of.kind == "STRUCT" or any(map(_has_struct, of.children))


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


# --- Many rows, or columns ------------------------------------------------------------------------


def as_batches(data: object, schema: Schema) -> list[ChangeBatch]:
    """Whatever holds rows, or columns, as batches of a schema; none when it is empty.

    Rows come in a list or any iterable, columns in a dict of lists and arrays, a frame of pandas or
    polars, or anything else that speaks Arrow. A dict of which every value is a list is columns,
    unless one row could be just that: then it is a row.

    >>> from millstream import Schema
    >>> schema = Schema.of(symbol="VARCHAR", price="DOUBLE")
    >>> [batch.rows for batch in as_batches({"symbol": ["A", "B"], "price": [1, 2]}, schema)]
    [[('A', 1.0), ('B', 2.0)]]

    Raises:
        RowError: a value that does not fit; it names row and column.
        SchemaMismatchError: columns that do not fit, or nothing that holds rows.
    """
    if isinstance(data, ChangeBatch):
        return _checked_batch(data, schema)
    if isinstance(data, Mapping) and data and _is_columns(data, schema):
        return _from_columns(data, schema)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _from_arrow(data, schema)
    rows = RowShape(schema).rows(_listed(data))
    return [ChangeBatch(schema, rows, None, None)] if rows else []


def _listed(data: object) -> Iterable[object]:
    if isinstance(data, Mapping):
        return [data] if data else []
    if is_dataclass(data) or (isinstance(data, tuple) and hasattr(data, "_fields")):
        return [data]
    if isinstance(data, Iterable):
        return data
    raise _no_rows(data)


def _checked_batch(batch: ChangeBatch, schema: Schema) -> list[ChangeBatch]:
    if batch.schema != schema:
        raise SchemaMismatchError(
            f"a batch with ({batch.schema.ddl}) for ({schema.ddl})",
            hint="Make the batch with the schema it is for, or give batch.arrow.",
        )
    if not len(batch) and batch.watermark is None:  # without rows, a watermark may still come
        return []
    # Another one: it will get LSNs, and the user's own may be pushed again, or be a subscriber's.
    rows, arrow = (None, batch.arrow) if batch.is_arrow else (batch.rows, None)
    weights = None if batch.is_insert_only else batch.weights_arrow()
    return [ChangeBatch(schema, rows, arrow, weights, watermark=batch.watermark)]


def _from_arrow(data: Any, schema: Schema) -> list[ChangeBatch]:  # noqa: ANN401
    try:
        if hasattr(data, "__arrow_c_stream__"):
            found = list(pa.RecordBatchReader.from_stream(data))
        else:
            found = [pa.record_batch(data)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"the columns of a {type(data).__name__} cannot be had: {error}",
            hint="Give a table or a frame, each column of one type.",
        ) from error
    batches, before = [], 0
    for batch in found:
        if batch.num_rows:
            is_lent = _is_lent(data) or b"pandas" in (batch.schema.metadata or {})
            batches.append(_conformed(batch, schema, before, is_lent=is_lent))
        before += batch.num_rows
    return batches


def _conformed(batch: pa.RecordBatch, schema: Schema, before: int, *, is_lent: bool) -> ChangeBatch:
    names = batch.schema.names
    nameless = [each for each in names if _NAMELESS_INDEX.fullmatch(each)]
    batch = batch.drop_columns([each for each in nameless if each not in schema.names])
    try:
        batch = schema.conform(batch)
    except RowError as error:
        raise _renumbered(error, before + error.row) from None
    if is_lent:
        batch = batch.copy_to(pa.default_cpu_memory_manager())
    return ChangeBatch(schema, None, batch, None)


def _is_columns(data: Mapping[Any, Any], schema: Schema) -> bool:
    """Whether a dict holds columns: lists only, and not such as one row could have."""
    kinds = {column.name: column.type.kind for column in schema.columns}
    return all(map(_is_list_like, data.values())) and not all(
        (kinds.get(name) == "ARRAY" and isinstance(value, (list, tuple)))
        or (kinds.get(name) == "STRUCT" and isinstance(value, tuple))
        for name, value in data.items()
    )


def _is_list_like(value: object) -> bool:
    if isinstance(value, (list, tuple, range)):
        return True
    protocols = ("__arrow_c_array__", "__arrow_c_stream__", "__array__")
    is_array = any(hasattr(value, name) for name in protocols)
    return is_array and getattr(value, "ndim", 1) > 0  # numpy's single numbers have none


def _from_columns(data: Mapping[Any, Any], schema: Schema) -> list[ChangeBatch]:
    check_column_names(list(map(str, data)), schema.names)
    given = [column for column in schema.columns if column.name in data]
    arrays = [_column_array(column, data[column.name]) for column in given]
    names = [column.name for column in given]
    lengths = list(map(len, arrays))
    if len(set(lengths)) > 1:
        told = ", ".join(f"{name} {size}" for name, size in zip(names, lengths, strict=True))
        raise SchemaMismatchError(
            f"the columns have different lengths: {told}",
            hint="Give every column as many values as the others, None where there is none.",
        )
    if not lengths[0]:
        return []
    is_lent = any(map(_is_lent, data.values()))
    return [_conformed(pa.record_batch(arrays, names), schema, 0, is_lent=is_lent)]


def _column_array(column: Column, values: Any) -> pa.Array:  # noqa: ANN401
    # numpy's arrays of objects, and of arrays, hold what only the check of Python values knows.
    if _maker(values) == "numpy" and (values.ndim != 1 or values.dtype == object):
        values = values.tolist()
    if isinstance(values, (list, tuple, range)):
        alone = Schema((column,))
        return alone.rows_to_arrow(RowShape(alone).rows(list(zip(values, strict=True)))).column(0)
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values).combine_chunks()
        return pa.array(values)
    except (pa.ArrowException, TypeError) as error:
        raise SchemaMismatchError(
            f"column {column.name!r}: a {type(values).__name__} cannot be read: {error}",
            hint="Give a list, or an array of one dimension and one type.",
        ) from error


def _is_lent(data: object) -> bool:
    """Whether its owner may write to the memory that Arrow would see, after the push."""
    if isinstance(data, (list, tuple, range)):
        return False
    return _maker(data) not in _IMMUTABLE


def _maker(data: object) -> str:
    """The package that the class of an object comes from, without importing it."""
    return type(data).__module__.partition(".")[0]


def _no_rows(data: object) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"rows cannot be had from a {type(data).__name__}",
        hint="Give a list of rows, an Arrow table, a pandas or polars frame; one row goes into a "
        "list, and text through json_rows or csv_rows.",
    )


def _renumbered(error: RowError, row: int) -> RowError:
    """The same error for the row's place in what was given, not in a part of it."""
    message = error.message.replace(f"row {error.row}", f"row {row}", 1)
    return RowError(message, row=row, column=error.column, hint=error.hint)

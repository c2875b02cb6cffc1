"""Rows from tuples, lists, dicts, named tuples and dataclasses.

Values are brought into the order of the columns here; whether the values fit is decided by
``Schema.check_rows`` and ``Schema.conform`` alone. Either everything is taken or nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from millstream.errors import RowError, SchemaMismatchError
from millstream.model.arrow_cast import check_column_names
from millstream.model.record import record_columns
from millstream.model.schema import Row, Schema

if TYPE_CHECKING:
    from millstream.model.types import SqlType

Converter = Callable[[Any], Row]
"""Brings a row of one class into the order of the columns; its RowError names row 0."""

_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
_WIDER = {"BIGINT": _INTEGERS, "DOUBLE": frozenset({"DOUBLE", "REAL"})}


class RowShape:
    """Makes rows of one schema of tuples, lists, dicts, named tuples and dataclasses.

    >>> from millstream import Schema
    >>> shape = RowShape(Schema.of(symbol="VARCHAR", price="DOUBLE"))
    >>> shape.row({"price": 187, "symbol": "AAPL"})
    ('AAPL', 187.0)

    Attributes:
        schema: the columns.
        converters: make tuples of rows, by the classes that were seen so far.
    """

    __slots__ = ("_known", "_with_struct", "converters", "schema")

    def __init__(self, schema: Schema, record: type | None = None) -> None:
        if record is not None:
            check_record(record, schema)
        self.schema = schema
        self._known = frozenset(schema.names)
        self._with_struct = frozenset(
            place for place, column in enumerate(schema.columns) if _has_struct(column.type)
        )
        # By class, so that the fields of a class are looked at once and not for every row.
        self.converters: dict[type, Converter] = {
            tuple: tuple,
            list: tuple,
            dict: self._from_mapping,
        }

    def row(self, value: object) -> Row:
        """One row in canonical form.

        Raises:
            RowError: not a row, an unknown name, or a value that does not fit.
        """
        given = value
        try:
            given = ordered = self._ordered_row(0, value)
            return self.schema.check_rows(self._without_records([ordered]))[0]
        except RowError as error:
            error.hint = _hint_of_many(given) or error.hint
            raise

    def rows(self, values: Iterable[object]) -> list[Row]:
        """Many rows in canonical form, all of them or none.

        Raises:
            RowError: the first row that does not fit; it names row and column.
        """
        return self.schema.check_rows(self._without_records(self.ordered(values)))

    def ordered(self, values: Iterable[object]) -> list[Row]:
        """Many rows in the order of the columns, their values not looked at yet."""
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise no_rows(values)
        rows: list[Any] = values if type(values) is list else list(values)
        kinds = set(map(type, rows))
        if kinds == {tuple}:
            return rows
        if len(kinds) == 1:
            try:
                return self._converted(kinds.pop(), rows)
            except RowError:
                pass  # row by row finds which it was
        return [self._ordered_row(number, value) for number, value in enumerate(rows)]

    def _ordered_row(self, number: int, value: object) -> Row:
        try:
            return self._converter(type(value))(value)
        except RowError as error:
            raise error.at(number) from None

    def _converted(self, kind: type, rows: list[Any]) -> list[Row]:
        names = self.schema.names
        if kind is dict and len(names) > 1 and set(map(len, rows)) == {len(names)}:
            try:  # as many keys as columns, and every column among them: no other key
                return list(map(itemgetter(*names), rows))
            except KeyError:
                pass
        return list(map(self._converter(kind), rows))

    def _converter(self, kind: type) -> Converter:
        converter = self.converters.get(kind)
        if converter is None:
            converter = self.converters[kind] = self._new_converter(kind)
        return converter

    def _new_converter(self, kind: type) -> Converter:
        if is_dataclass(kind):
            return self._attribute_converter([each.name for each in fields(kind)])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple_converter(kind.__name__, kind._fields)
        if issubclass(kind, (tuple, list)):
            return tuple
        if issubclass(kind, Mapping):
            return self._from_mapping
        raise RowError(
            f"row 0: expected a tuple, dict or dataclass, got {kind.__name__}",
            row=0,
            column=None,
            hint=f"A row is a tuple ({', '.join(self.schema.names)}), "
            "or a dict, a named tuple or a dataclass with these names.",
        )

    def _from_mapping(self, value: Mapping[Any, Any]) -> Row:
        if not value.keys() <= self._known:
            raise self._unknown(value)
        return tuple(map(value.get, self.schema.names))

    def _attribute_converter(self, given: Sequence[str]) -> Converter:
        if not self._known.issuperset(given):
            raise self._unknown(given)
        names = [name if name in given else None for name in self.schema.names]
        if len(names) == len(given) > 1:
            return attrgetter(*self.schema.names)  # which gives a tuple only of two or more
        return lambda value: tuple(
            [None if name is None else getattr(value, name) for name in names]
        )

    def _named_tuple_converter(self, kind: str, given: Sequence[str]) -> Converter:
        """By name when all its fields are columns, by position when none names another place."""
        names = self.schema.names
        if self._known.issuperset(given):
            places = [given.index(name) if name in given else None for name in names]
            return lambda value: tuple([None if at is None else value[at] for at in places])
        for place, name in enumerate(given):
            if name in self._known and names[place : place + 1] != (name,):
                raise RowError(
                    f"row 0: {kind} has {name!r} at another place than the columns, and fields "
                    "that are not columns",
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
        SchemaError: not a dataclass, or a field of a type without a SQL type.
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


def _hint_of_many(value: object) -> str:
    """The method that takes many rows, if that is what was given instead of one; else nothing."""
    if hasattr(value, "__arrow_c_stream__"):
        return "One row is expected; push_arrow(data) takes a frame, a table or a record batch."
    if isinstance(value, (list, tuple)) and value and all(map(_may_be_row, value)):
        return "One row is expected; push_batch(rows) takes a list of rows."
    return ""


def _may_be_row(value: object) -> bool:
    return isinstance(value, (tuple, Mapping)) or is_dataclass(value)


def no_rows(data: object) -> SchemaMismatchError:
    """The error for data that does not hold rows."""
    return SchemaMismatchError(
        f"expected rows, got {type(data).__name__}",
        hint="Give a list of rows, an Arrow table, a pandas or polars frame; one row goes into a "
        "list, and text to insert_json or insert_csv.",
    )

"""Rows here from values of PostgreSQL: of messages one by one, of a COPY in Arrow. Pure."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import csv

from millstream.connectors._postgres_types import PgType, decoder, fits
from millstream.errors import ConnectorFailedError, SchemaMismatchError
from millstream.model.row_change import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.model.schema import Schema

Row = tuple[Any, ...]

_MISFITS: Final = (ValueError, ArithmeticError, SchemaMismatchError)
_DIRECT: Final = frozenset(
    {"BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL", "VARCHAR", "DATE"}
)
_UTC: Final = {"timestamptz"}


def check_types(schema: Schema, types: Mapping[str, PgType]) -> None:
    """Check that each column can have the values of its counterpart.

    Args:
        schema: the columns here.
        types: those of PostgreSQL, by name in small letters.

    Raises:
        ConnectorFailedError: one is missing or has a type that does not fit.
    """
    for column in schema.columns:
        of = types.get(column.name.lower())
        if of is None:
            raise ConnectorFailedError(
                f"PostgreSQL does not send a column {column.name}",
                hint=f"its columns are {', '.join(types)}; if it was dropped or renamed, "
                "DROP the table and CREATE it anew",
            )
        if not fits(of, column.type):
            raise ConnectorFailedError(
                f"the column {column.name} is {of.name} in PostgreSQL, which does not fit "
                f"{column.type.sql}",
                hint="CREATE the table without columns to have them from PostgreSQL; VARCHAR takes "
                "the text of any type",
            )


class RowMaker:
    """Makes rows of the values of PostgreSQL.

    Args:
        schema: the columns here, and the key.
        columns: those of PostgreSQL in the order of its values, with their types.
        nullify: NULL in place of a value that cannot be had here, in place of an error.
    """

    def __init__(
        self, schema: Schema, columns: Sequence[tuple[str, PgType]], *, nullify: bool
    ) -> None:
        places = {name.lower(): place for place, (name, _) in enumerate(columns)}
        check_types(schema, {name.lower(): of for name, of in columns})
        self._schema = schema
        self._nullify = nullify
        self._places = [places[column.name.lower()] for column in schema.columns]
        self._types = [columns[place][1] for place in self._places]
        pairs = zip(self._types, schema.columns, strict=True)
        self._decoders = [decoder(of, column.type) for of, column in pairs]
        self._plan = list(zip(self._places, self._decoders, strict=True))
        at = [schema.names.index(name) for name in schema.key]
        self._key_plan = [self._plan[place] for place in at]
        self._key_names = [schema.names[place] for place in at]

    def row(self, values: Sequence[Any]) -> Row:
        """A row of the values of a message; UNCHANGED stays.

        Raises:
            ConnectorFailedError: a value cannot be had here.
        """
        try:
            return tuple(
                [
                    value
                    if (value := values[place]) is None or value is UNCHANGED
                    else decode(value)
                    for place, decode in self._plan
                ]
            )
        except _MISFITS:
            pairs = zip(self._schema.names, self._plan, strict=True)
            return tuple(
                [self._value(name, decode, values[place]) for name, (place, decode) in pairs]
            )

    def key(self, values: Sequence[Any]) -> Row:
        """The key of the values of a message."""
        pairs = zip(self._key_names, self._key_plan, strict=True)
        return tuple([self._value(name, decode, values[place]) for name, (place, decode) in pairs])

    def filled(self, new: Sequence[Any], old: Sequence[Any] | None) -> Sequence[Any]:
        """New values, with those of ``old`` in place of what was not sent, where it has them."""
        if old is None or UNCHANGED not in new:
            return new
        pairs = zip(new, old, strict=True)
        return [was if value is UNCHANGED and was is not None else value for value, was in pairs]

    def _value(self, name: str, decode: Any, value: Any) -> Any:  # noqa: ANN401 - of any type
        if value is None or value is UNCHANGED:
            return value
        try:
            return decode(value)
        except _MISFITS as error:
            if self._nullify and name not in self._schema.key:
                return None
            shown = bytes(value[:60]).decode(errors="replace")
            of = self._schema.columns[self._schema.names.index(name)].type.sql
            raise ConnectorFailedError(
                f"the column {name} has the value {shown}, which {of} cannot hold",
                hint="correct it in PostgreSQL and skip it with invalid_values = 'null', or CREATE "
                "the table with the column as VARCHAR",
            ) from error

    def batch(self, data: bytes) -> pa.Table:
        """The rows of a COPY in CSV, of all columns here in their order.

        Raises:
            ConnectorFailedError: a value cannot be had here.
        """
        schema = self._schema
        if not data:
            return schema.arrow.empty_table()
        direct = {
            column.name: _csv_type(of, column.type.arrow, column.type.kind)
            for column, of in zip(schema.columns, self._types, strict=True)
        }
        try:
            read = _read(data, schema.names, direct)
        except pa.ArrowInvalid:
            direct = dict.fromkeys(direct)
            read = _read(data, schema.names, direct)
        arrays = []
        for place, column in enumerate(schema.columns):
            array = read.column(place)
            if direct[column.name] is None:
                decode = self._decoders[place]
                values = [
                    None if value is None else self._value(column.name, decode, value.encode())
                    for value in array.to_pylist()
                ]
                array = pa.chunked_array([pa.array(values, column.type.arrow)])
            arrays.append(array.cast(column.type.arrow))
        return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _csv_type(of: PgType, arrow: pa.DataType, kind: str) -> pa.DataType | None:
    """What Arrow reads of the text of a column by itself; None: it must be decoded."""
    if kind == "TIMESTAMP":
        return arrow if of.name in _UTC else pa.timestamp("us")
    return arrow if kind in _DIRECT else None


def _read(data: bytes, names: Sequence[str], types: Mapping[str, pa.DataType | None]) -> pa.Table:
    return csv.read_csv(
        io.BytesIO(data),
        csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(data) + 1),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types={name: of or pa.string() for name, of in types.items()},
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )

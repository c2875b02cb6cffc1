"""Schemas: the columns of a log, and the ways between rows of Python values and Arrow batches.

Two doors lead in: ``check_rows`` for Python rows and ``conform`` for Arrow data. Both are strict:
what comes through fits the columns exactly, or nothing of it is taken. Behind them, a row and its
Arrow form are the same thing: ``arrow_to_rows(rows_to_arrow(rows)) == rows``.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from itertools import islice
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import Error, RowError, SchemaError, SchemaMismatchError
from millstream.model.clock import EPOCH
from millstream.model.names import check_column_name, quote_name
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    Check,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    parse_type,
    struct_type,
    type_from_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = tuple[Any, ...]

_MANY_ROWS = 5  # where checking by column becomes faster than checking by row
_KEY_METADATA = b"millstream.key"
_COLUMN_TEXT = re.compile(
    r"(?P<type>.*?)(?:\s+(?P<not>NOT\s+)?NULL)?\s*", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and whether it may be NULL.

    >>> Column("price", parse_type("DOUBLE"), nullable=False).ddl
    'price DOUBLE NOT NULL'
    """

    name: str
    type: SqlType
    nullable: bool = True

    def __post_init__(self) -> None:
        check_column_name(self.name)
        if not isinstance(self.type, SqlType):
            raise SchemaError(
                f"the type of column {self.name!r} must be a SqlType, not {self.type!r}",
                hint="Make it with parse_type('DOUBLE'), or use Schema.of(price='DOUBLE').",
            )

    @classmethod
    def parse(cls, name: str, text: str) -> Column:
        """Return the column of a name and a text such as ``VARCHAR NOT NULL``."""
        matched = _COLUMN_TEXT.fullmatch(text)
        if matched is None:
            raise SchemaError(f"{text!r} is no type of a column", hint="Write 'VARCHAR NOT NULL'.")
        return cls(name, parse_type(matched["type"]), nullable=not matched["not"])

    @property
    def ddl(self) -> str:
        """The column as SQL text, its name quoted if it must be."""
        return f"{quote_name(self.name)} {self.type.sql}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a log and, if its rows have an identity, the columns that are the key.

    Names are case-sensitive, but no two may differ in case alone. A key may be nullable: the key of
    a view is what it groups by.

    >>> schema = Schema.of(key=("symbol",), symbol="VARCHAR NOT NULL", price="DOUBLE")
    >>> schema.ddl
    'symbol VARCHAR NOT NULL, price DOUBLE'

    Attributes:
        columns: the columns, in order.
        key: the names of the key's columns; empty when there is none.
        names: the names of all columns, in order.
        arrow: the same as an Arrow schema; it keeps the key in its metadata.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    arrow: pa.Schema = field(init=False, repr=False, compare=False)
    _checks: tuple[Check, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Lists and generators are taken too; a frozen dataclass is set up through object only.
        put = object.__setattr__
        put(self, "columns", tuple(self.columns))
        put(self, "names", tuple(column.name for column in self.columns))
        _check_names(self.names)
        put(self, "key", _checked_key(self.columns, self.key))
        put(self, "arrow", _arrow_schema(self.columns, self.key))
        put(self, "_checks", tuple(map(_column_check, self.columns)))

    def __reduce__(self) -> tuple[type[Schema], tuple[object, ...]]:
        return Schema, (self.columns, self.key)  # the rest follows, and closures do not pickle

    @classmethod
    def of(cls, *, key: Sequence[str] = (), **columns: str) -> Schema:
        """Make a schema of names and texts of types.

        A column that is itself called ``key`` needs ``Schema((Column(...), ...))``.

        >>> Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE").names
        ('symbol', 'price')
        """
        return cls(tuple(Column.parse(name, text) for name, text in columns.items()), tuple(key))

    @classmethod
    def from_arrow(cls, arrow: pa.Schema) -> Schema:
        """Make a schema of an Arrow schema; ``Schema.from_arrow(s.arrow) == s``.

        >>> Schema.from_arrow(pa.schema([pa.field("n", pa.uint8())])).ddl
        'n SMALLINT'

        Raises:
            SchemaError: a column has an Arrow type that no SQL type can hold.
        """
        columns = tuple(_column_from_arrow(each) for each in arrow)
        key = (arrow.metadata or {}).get(_KEY_METADATA, b"[]")
        return cls(columns, tuple(json.loads(key)))

    @classmethod
    def from_dataclass(cls, record: type, *, key: Sequence[str] = ()) -> Schema:
        """Make a schema of a dataclass: one column per field, NOT NULL unless it may be None.

        int is BIGINT, float DOUBLE, str VARCHAR, bytes BINARY, datetime TIMESTAMP, timedelta
        INTERVAL, list[T] ARRAY, dict[K, V] MAP, and a nested dataclass STRUCT. Decimal is
        DECIMAL(38, 18), as in Spark: twenty digits before the point and eighteen after.

        >>> @dataclass
        ... class Trade:
        ...     symbol: str
        ...     price: float | None
        >>> Schema.from_dataclass(Trade).ddl
        'symbol VARCHAR NOT NULL, price DOUBLE'

        Raises:
            SchemaError: it is no dataclass, or a field has another type than these.
        """
        columns = []
        for name, hint in _field_hints(record).items():
            plain, nullable = _without_none(hint)
            columns.append(Column(name, _type_of_hint(plain, name, (record,)), nullable=nullable))
        return cls(tuple(columns), tuple(key))

    @property
    def ddl(self) -> str:
        """The columns as SQL text, ready for ``CREATE SOURCE name (...)``."""
        return ", ".join(column.ddl for column in self.columns)

    def with_column(self, column: Column) -> Schema:
        """Return this schema with one more column, which must be nullable and new.

        >>> Schema.of(a="INT").with_column(Column("b", parse_type("DATE"))).ddl
        'a INTEGER, b DATE'

        Raises:
            SchemaError: the rows there are could not have such a column.
        """
        if not column.nullable:
            raise SchemaError(
                f"column {column.name!r} cannot be added as NOT NULL",
                hint="The rows there are have no value for it; leave NOT NULL out.",
            )
        return Schema((*self.columns, column), self.key)

    def is_evolution_of(self, older: Schema) -> bool:
        """Whether rows of ``older`` become rows of this schema by NULLs at their end.

        >>> old = Schema.of(a="INT")
        >>> Schema.of(a="INT", b="DATE").is_evolution_of(old)
        True
        """
        known = len(older.columns)
        return (
            self.columns[:known] == older.columns
            and all(column.nullable for column in self.columns[known:])
            and self.key == older.key
        )

    def check_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in canonical form, all of them or none.

        >>> Schema.of(symbol="VARCHAR", price="DOUBLE").check_rows([("AAPL", 187)])
        [('AAPL', 187.0)]

        Raises:
            RowError: the first row with a value that does not fit; it names row and column.
        """
        if len(rows) >= _MANY_ROWS and set(map(type, rows)) == {tuple}:
            try:
                return self._check_columns(rows)
            except (SchemaMismatchError, ValueError):
                pass  # row by row finds the first culprit, and says which it is
        return [self._check_row(number, row) for number, row in enumerate(rows)]

    def rows_to_arrow(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows, which ``check_rows`` has passed, as an Arrow batch.

        >>> Schema.of(n="INT").rows_to_arrow([(1,), (None,)]).num_rows
        2
        """
        values: Sequence[Row] = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        pairs = zip(values, self.columns, strict=True)
        arrays = [pa.array(each, column.type.arrow) for each, column in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def arrow_to_rows(self, batch: pa.RecordBatch) -> list[Row]:
        """Return the rows of an Arrow batch as tuples of canonical Python values.

        >>> schema = Schema.of(n="INT")
        >>> schema.arrow_to_rows(schema.rows_to_arrow([(1,), (None,)]))
        [(1,), (None,)]

        Raises:
            SchemaMismatchError: a value that Python cannot hold, such as the year 10000.
        """
        if not batch.schema.equals(self.arrow):
            batch = self.conform(batch)
        pairs = zip(self.columns, batch.columns, strict=True)
        return list(zip(*[_column_values(column, array) for column, array in pairs], strict=True))

    def conform(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return Arrow data in exactly this schema; the same batch if it is so already.

        Columns are found by name, missing ones filled with NULL, types cast where nothing is lost.

        >>> data = pa.RecordBatch.from_pydict({"a": [1]})
        >>> Schema.of(a="BIGINT", b="DATE").conform(data).schema.names
        ['a', 'b']

        Raises:
            SchemaMismatchError: an unknown column, or one that cannot be cast without loss.
            RowError: a NULL in a column that is NOT NULL.
        """
        if not data.schema.equals(self.arrow):
            self._check_column_names(data.schema.names)
            arrays = [_conformed(column, data) for column in self.columns]
            data = pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
        for place, column in enumerate(self.columns):
            if not column.nullable and data.column(place).null_count:
                row = pc.index(pc.is_null(data.column(place)), value=True).as_py()
                raise _row_error(row, column, _null_error(column))
        return data

    def upgrade(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of an older schema in this one, with NULLs in the columns it lacks.

        >>> old, new = Schema.of(a="INT"), Schema.of(a="INT", b="DATE")
        >>> new.upgrade(old.rows_to_arrow([(1,)])) == new.rows_to_arrow([(1, None)])
        True

        Raises:
            SchemaMismatchError: this schema is no evolution of that of the batch.
        """
        known = batch.num_columns
        added = self.columns[known:]
        if tuple(batch.schema.names) != self.names[:known] or not all(c.nullable for c in added):
            raise SchemaMismatchError(
                f"({', '.join(batch.schema.names)}) is no older form of ({', '.join(self.names)})",
                hint="A schema evolves by nullable columns at its end only.",
            )
        return self.conform(batch)

    def _check_columns(self, rows: Sequence[Row]) -> list[Row]:
        """Check column by column: several times faster than row by row, but blind to the row."""
        before = list(zip(*rows, strict=True))
        pairs = zip(self.columns, before, strict=True)
        after = [column.type.check_column(each, nullable=column.nullable) for column, each in pairs]
        if all(map(operator.is_, before, after)):
            return list(rows)
        return list(zip(*after, strict=True))

    def _check_row(self, number: int, row: Row) -> Row:
        if not isinstance(row, (tuple, list)) or len(row) != len(self.columns):
            count = f"{len(row)} values" if isinstance(row, (tuple, list)) else type(row).__name__
            raise RowError(
                f"row {number}: expected {len(self.columns)} values, got {count}",
                row=number,
                column=None,
                hint=f"A row is a tuple ({', '.join(self.names)}).",
            )
        try:
            return tuple(map(operator.call, self._checks, row))
        except SchemaMismatchError:
            pass
        # Once more, and slower, to learn which column it was.
        checked = []
        for column, check, value in zip(self.columns, self._checks, row, strict=True):
            try:
                checked.append(check(value))
            except SchemaMismatchError as error:
                raise _row_error(number, column, error) from error
        return tuple(checked)

    def _check_column_names(self, names: Sequence[str]) -> None:
        known = set(self.names)
        for name in names:
            if name not in known:
                near = get_close_matches(name, self.names, n=1) or [", ".join(self.names)]
                raise SchemaMismatchError(
                    f"there is no column {name!r}", hint=f"Did you mean {near[0]!r}?"
                )
        if len(set(names)) != len(names):
            raise SchemaMismatchError(
                f"a column comes twice in ({', '.join(names)})", hint="Drop or rename one of them."
            )


def _column_check(column: Column) -> Check:
    """Return the check of a column's values: that of its type and, if it has one, NOT NULL."""
    check = column.type.check
    if column.nullable:
        return check

    def check_present(value: object) -> object:
        if value is None:
            raise _null_error(column)
        return check(value)

    return check_present


def _null_error(column: Column) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"expected {column.type.sql} NOT NULL, got NULL",
        hint="Give a value, or declare the column without NOT NULL.",
    )


def _row_error(row: int, column: Column, error: SchemaMismatchError) -> RowError:
    message = f"row {row}, column {column.name!r}: {error.message}"
    return RowError(message, row=row, column=column.name, hint=error.hint)


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise SchemaError("a schema must have a column", hint="Try Schema.of(price='DOUBLE').")
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise SchemaError(
                f"the columns {seen[name.lower()]!r} and {name!r} cannot both be there",
                hint="Names must differ in more than case, since Spark SQL ignores case.",
            )
        seen[name.lower()] = name


def _checked_key(columns: Sequence[Column], key: Sequence[str]) -> tuple[str, ...]:
    if isinstance(key, str):
        raise SchemaError(f"the key {key!r} must be a tuple", hint=f"Write key=({key!r},).")
    types = {column.name: column.type for column in columns}
    for name in key:
        if name not in types:
            raise SchemaError(
                f"the key's {name!r} is no column", hint=f"The columns are {', '.join(types)}."
            )
        if types[name].children:
            raise SchemaError(
                f"the column {name!r} cannot be in the key, as it is {types[name].sql}",
                hint="A key is made of scalars; add a column with the part that identifies a row.",
            )
    if len(set(key)) != len(key):
        raise SchemaError(f"the key {tuple(key)} names a column twice", hint="Name each once.")
    return tuple(key)


def _arrow_schema(columns: Sequence[Column], key: Sequence[str]) -> pa.Schema:
    fields = [pa.field(each.name, each.type.arrow, nullable=each.nullable) for each in columns]
    return pa.schema(fields, metadata={_KEY_METADATA: json.dumps(key)} if key else None)


def _column_from_arrow(arrow: pa.Field) -> Column:
    try:
        return Column(arrow.name, type_from_arrow(arrow.type), nullable=arrow.nullable)
    except SchemaError as error:
        raise SchemaError(f"column {arrow.name!r}: {error.message}", hint=error.hint) from error


# --- From a dataclass -----------------------------------------------------------------------------

_BY_PYTHON: dict[object, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: VARCHAR,
    bytes: BINARY,
    date: DATE,
    datetime: TIMESTAMP,
    timedelta: INTERVAL,
    Decimal: decimal_type(38, 18),
}


def _field_hints(record: type) -> dict[str, Any]:
    if not (isinstance(record, type) and dataclasses.is_dataclass(record)):
        raise SchemaError(f"{record!r} is no dataclass", hint="Decorate the class with @dataclass.")
    try:
        hints = get_type_hints(record)
    except NameError as error:
        raise SchemaError(
            f"{record.__name__} has an annotation that cannot be resolved: {error}",
            hint="Define the classes that it names at the top of a module.",
        ) from error
    return {each.name: hints[each.name] for each in dataclasses.fields(record)}


def _without_none(hint: object) -> tuple[object, bool]:
    """Return an Optional's type and True, any other hint and False."""
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else ()
    rest = [each for each in options if each is not NoneType]
    return (rest[0], True) if len(rest) == 1 else (hint, False)


def _type_of_hint(hint: object, name: str, outer: tuple[object, ...]) -> SqlType:
    hint, _ = _without_none(hint)
    if hint in _BY_PYTHON:
        return _BY_PYTHON[hint]
    inner = get_args(hint)
    if get_origin(hint) is list and inner:
        return array_type(_type_of_hint(inner[0], name, outer))
    if get_origin(hint) is dict and inner:
        key, value = (_type_of_hint(each, name, outer) for each in inner)
        return map_type(key, value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in outer:
        hints = _field_hints(hint).items()
        return struct_type({each: _type_of_hint(h, each, (*outer, hint)) for each, h in hints})
    raise SchemaError(
        f"the field {name!r} has the type {hint!r}, for which there is no SQL type",
        hint="Use bool, int, float, str, bytes, date, datetime, timedelta, Decimal, list[T], "
        "dict[K, V], a dataclass that does not contain itself, or any of these | None.",
    )


# --- From Arrow to Python -------------------------------------------------------------------------

_DAY_ZERO = EPOCH.toordinal()


def _column_values(column: Column, array: pa.Array) -> list[Any]:
    try:
        return _values(column.type, array)
    except (OverflowError, ValueError) as error:  # ValueError: text that is not UTF-8
        raise SchemaMismatchError(
            f"column {column.name!r} has a {column.type.sql} that Python cannot hold: {error}",
            hint="Python's years are 1 to 9999; read the column as Arrow instead.",
        ) from error


def _values(of: SqlType, array: pa.Array) -> list[Any]:
    read = _READERS.get(of.kind)
    values: list[Any] = read(of, array) if read else array.to_pylist()
    return values


# pyarrow's to_pylist makes dates and times one scalar at a time, and timestamps with another UTC
# than datetime's own; made from their ints they are right at once, and about ten times as fast.


def _dates(_of: SqlType, array: pa.Array) -> list[date | None]:
    days, make = array.view(pa.int32()).to_pylist(), date.fromordinal
    return [None if day is None else make(_DAY_ZERO + day) for day in days]


def _timestamps(_of: SqlType, array: pa.Array) -> list[datetime | None]:
    micros = array.view(pa.int64()).to_pylist()
    return [None if each is None else EPOCH + timedelta(0, 0, each) for each in micros]


def _intervals(_of: SqlType, array: pa.Array) -> list[timedelta | None]:
    micros = array.view(pa.int64()).to_pylist()
    return [None if each is None else timedelta(0, 0, each) for each in micros]


def _lists(of: SqlType, array: pa.Array) -> list[list[Any] | None]:
    elements = iter(_values(of.children[0], array.flatten()))
    lengths = array.value_lengths().to_pylist()
    return [None if length is None else list(islice(elements, length)) for length in lengths]


def _structs(of: SqlType, array: pa.Array) -> list[dict[str, Any] | None]:
    children = zip(of.children, array.flatten(), strict=True)
    rows = zip(*[_values(child, values) for child, values in children], strict=True)
    there = array.is_valid().to_pylist()
    pairs = zip(rows, there, strict=True)
    return [dict(zip(of.names, row, strict=True)) if valid else None for row, valid in pairs]


def _maps(of: SqlType, array: pa.Array) -> list[dict[Any, Any] | None]:
    entries = _map_entries(array)
    keys, values = entries.flatten().flatten()
    pairs = zip(_values(of.children[0], keys), _values(of.children[1], values), strict=True)
    lengths = entries.value_lengths().to_pylist()
    maps = [None if length is None else dict(islice(pairs, length)) for length in lengths]
    if [length for length in lengths if length is not None] != [
        len(m) for m in maps if m is not None
    ]:
        raise ValueError("a MAP has a key twice")
    return maps


def _map_entries(array: pa.Array) -> pa.Array:
    """Return maps as lists of (key, value), which unlike maps can be flattened when sliced."""
    entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    return array.cast(pa.list_(entry))


_READERS: dict[str, Callable[[SqlType, pa.Array], list[Any]]] = {
    "DATE": _dates,
    "TIMESTAMP": _timestamps,
    "INTERVAL": _intervals,
    "ARRAY": _lists,
    "STRUCT": _structs,
    "MAP": _maps,
}


# --- From Arrow to Arrow --------------------------------------------------------------------------


def _conformed(column: Column, data: pa.RecordBatch) -> pa.Array:
    place = data.schema.get_field_index(column.name)
    if place >= 0:
        array = data.column(place)
        try:
            return _cast(array, column.type)
        except (pa.ArrowException, SchemaMismatchError, SchemaError) as error:
            reason = error.message if isinstance(error, Error) else error
            raise SchemaMismatchError(
                f"column {column.name!r}: {array.type} does not fit {column.type.sql}: {reason}",
                hint="Nothing is cast that would lose or guess; cast the column yourself first.",
            ) from error
    if column.nullable:
        return pa.nulls(data.num_rows, column.type.arrow)
    raise SchemaMismatchError(
        f"the column {column.name!r} is missing, and it is NOT NULL", hint="Give its values."
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
    entries = _map_entries(array)
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

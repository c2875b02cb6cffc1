"""Schemas: the columns of a log, and conversions between Python rows and Arrow batches.

``check_rows`` validates Python rows, ``admit`` validates Arrow data. Both are strict: all values
fit their columns exactly, or nothing is accepted. Afterwards, rows and Arrow data convert without
loss: ``arrow_to_rows(rows_to_arrow(rows)) == rows``.
"""

from __future__ import annotations

import json
import operator
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import RowError, SchemaError, SchemaMismatchError
from millstream.model.arrow_cast import cast_column, check_column_names, without_hidden
from millstream.model.arrow_values import Unreadable, column_values, readable_values
from millstream.model.clock import EPOCH
from millstream.model.names import check_column_name, quote_name
from millstream.model.readable import reading_check
from millstream.model.record import record_columns
from millstream.model.types import BIGINT, TIMESTAMP, SqlType, parse_column_type, type_from_arrow
from millstream.model.values import Check, length_check, not_null, null_error, too_long

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from millstream.model.readable import Check as ReadingCheck

    Wider = tuple[int, "Column", ReadingCheck]

Row = tuple[Any, ...]

_MANY_VALUES = 64  # where other ways become faster than Arrow's own
_SOME_ROWS = 256
_MANY_ROWS = 5  # where checking by column becomes faster than checking by row
_KEY_METADATA = b"millstream.key"
_LENGTH_METADATA = b"millstream.length"
_COLUMN_TEXT = re.compile(
    r"(?P<type>.*?)(?:\s+(?P<not>NOT\s+)?NULL)?\s*", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, whether it may be NULL, and how long its texts may be.

    >>> from millstream.model.types import parse_type
    >>> Column("price", parse_type("DOUBLE"), nullable=False).ddl
    'price DOUBLE NOT NULL'
    >>> Column.parse("code", "VARCHAR(3)").ddl
    'code VARCHAR(3)'

    Attributes:
        name: its name.
        type: the type of its values.
        nullable: whether these may be NULL.
        length: of a VARCHAR, how many characters it may have at most; None: any number.
    """

    name: str
    type: SqlType
    nullable: bool = True
    length: int | None = None

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
        matched = _COLUMN_TEXT.fullmatch(text) if isinstance(text, str) else None
        if matched is None:
            raise SchemaError(
                f"the type of column {name!r} must be text, not {text!r}",
                hint="Write 'VARCHAR NOT NULL'.",
            )
        of, length = parse_column_type(matched["type"])
        return cls(name, of, nullable=not matched["not"], length=length)

    @property
    def declared(self) -> str:
        """The type as it is declared, with the length."""
        return self.type.sql if self.length is None else f"{self.type.sql}({self.length})"

    @property
    def ddl(self) -> str:
        """The column as SQL text, its name quoted if it must be."""
        return f"{quote_name(self.name)} {self.declared}{'' if self.nullable else ' NOT NULL'}"

    @property
    def check(self) -> Check:
        """Return what admits a value to the column, in canonical form."""
        check = self.type.check
        if self.length is not None:
            check = length_check(check, self.length)
        return check if self.nullable else not_null(self.type.sql, check)

    def longest(self, array: pa.Array) -> tuple[int, int] | None:
        """Return the place and length of the first text that is too long; None: none is."""
        if self.length is None:
            return None
        lengths = pc.utf8_length(array)
        place = pc.index(pc.greater(lengths, self.length), value=True).as_py()
        return None if place < 0 else (place, lengths[place].as_py())


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a log, and the columns of its key if it has one.

    Names are case-sensitive, but no two names may differ in case alone. A key may be nullable: the
    key of a view consists of its grouping columns. The methods convert between Python rows and
    Arrow data.

    >>> schema = Schema.of(key=("symbol",), symbol="VARCHAR NOT NULL", price="DOUBLE")
    >>> schema.ddl
    'symbol VARCHAR NOT NULL, price DOUBLE'

    Attributes:
        columns: the columns, in order.
        key: the names of the key's columns; empty without a key.
        names: the names of all columns, in order.
        arrow: the Arrow schema, with the key in its metadata.
        is_nested: whether some values are lists or dicts, which are mutable in Python.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    arrow: pa.Schema = field(init=False, repr=False, compare=False)
    is_nested: bool = field(init=False, repr=False, compare=False)
    _checks: tuple[Check, ...] = field(init=False, repr=False, compare=False)
    _wider: tuple[Wider, ...] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Lists and generators are taken too; a frozen dataclass is set up through object only.
        put = object.__setattr__
        put(self, "columns", tuple(self.columns))
        put(self, "names", tuple(column.name for column in self.columns))
        _check_names(self.names)
        put(self, "key", _checked_key(self.columns, self.key))
        put(self, "arrow", _arrow_schema(self.columns, self.key))
        put(self, "is_nested", any(column.type.children for column in self.columns))
        put(self, "_checks", tuple(column.check for column in self.columns))
        put(self, "_wider", tuple(_wider_columns(self.columns)))
        put(self, "_hash", hash((self.columns, self.key)))

    def __hash__(self) -> int:
        return self._hash  # asked for with every frame of the log that is read

    def __reduce__(self) -> tuple[type[Schema], tuple[object, ...]]:
        return Schema, (self.columns, self.key)  # the rest follows, and closures do not pickle

    @classmethod
    def of(
        cls,
        columns: Mapping[str, str] = MappingProxyType({}),
        /,
        *,
        key: Sequence[str] = (),
        **more: str,
    ) -> Schema:
        """Make a schema of column names and SQL types.

        Pass names that are not Python identifiers, or are ``key``, in a dict.

        >>> Schema.of(symbol="VARCHAR NOT NULL", price="DOUBLE").names
        ('symbol', 'price')
        >>> Schema.of({"key": "VARCHAR", "unit price": "DOUBLE"}, key=("key",)).key
        ('key',)
        """
        pairs = {**columns, **more}.items()
        return cls(tuple(Column.parse(name, text) for name, text in pairs), _as_key(key))

    @classmethod
    def from_arrow(cls, arrow: pa.Schema) -> Schema:
        """Convert an Arrow schema; ``Schema.from_arrow(s.arrow) == s``.

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
        columns = (Column(name, of, nullable=may) for name, of, may in record_columns(record))
        return cls(tuple(columns), _as_key(key))

    @property
    def ddl(self) -> str:
        """The columns as SQL text, ready for ``CREATE SOURCE name (...)``."""
        return ", ".join(column.ddl for column in self.columns)

    @property
    def of_key(self) -> Schema:
        """The schema of the key alone, its columns in the order of the key.

        >>> Schema.of(key=("b",), a="INT", b="DATE NOT NULL").of_key.ddl
        'b DATE NOT NULL'
        """
        return Schema(tuple(self.columns[self.names.index(name)] for name in self.key))

    def select(self, names: Container[str]) -> Schema:
        """Some of the columns, in the order of this schema and without its key.

        >>> Schema.of(a="INT", b="DATE", c="INT").select({"c", "a"}).names
        ('a', 'c')
        """
        return Schema(tuple(each for each in self.columns if each.name in names))

    def with_column(self, column: Column) -> Schema:
        """Return this schema with one more column, which must be nullable and new.

        >>> from millstream.model.types import parse_type
        >>> Schema.of(a="INT").with_column(Column("b", parse_type("DATE"))).ddl
        'a INTEGER, b DATE'

        Raises:
            SchemaError: the column is NOT NULL, which existing rows could not satisfy.
        """
        if not column.nullable:
            raise SchemaError(
                f"column {column.name!r} cannot be added as NOT NULL",
                hint="The rows there are have no value for it; leave NOT NULL out.",
            )
        return Schema((*self.columns, column), self.key)

    def is_evolution_of(self, older: Schema) -> bool:
        """Return whether rows of ``older`` become rows of this schema by appending NULLs.

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
            RowError: a value does not fit its column. The error names the row and the column.
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
        values = _transposed(rows) or [()] * len(self.columns)
        pairs = zip(values, self.columns, strict=True)
        arrays = [_column_array(each, column.type.arrow) for each, column in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def column_to_arrow(self, name: str, rows: Sequence[Row]) -> pa.Array:
        """Return one column of rows, which ``check_rows`` has passed, as an Arrow array.

        >>> Schema.of(n="INT", s="VARCHAR").column_to_arrow("s", [(1, "a"), (2, None)]).to_pylist()
        ['a', None]
        """
        place = self.names.index(name)
        return _column_array([row[place] for row in rows], self.columns[place].type.arrow)

    def arrow_to_rows(self, batch: pa.RecordBatch, *, lenient: bool = False) -> list[Row]:
        """Return the rows of an Arrow batch as tuples of canonical Python values.

        >>> schema = Schema.of(n="INT")
        >>> schema.arrow_to_rows(schema.rows_to_arrow([(1,), (None,)]))
        [(1,), (None,)]

        Args:
            batch: Arrow data of this schema, or data that ``conform`` converts to it.
            lenient: return an ``Unreadable`` in place of a value that Python cannot hold.

        Raises:
            RowError: Python cannot hold a value, such as the year 10000.
        """
        if not batch.schema.equals(self.arrow):
            batch = self.conform(batch)
        pairs = zip(self.columns, batch.columns, strict=True)
        if lenient:
            return list(zip(*(readable_values(c.type, array) for c, array in pairs), strict=True))
        values = [column_values(column.name, column.type, array) for column, array in pairs]
        return list(zip(*values, strict=True))

    def conform(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return Arrow data in exactly this schema; the same batch if its schema matches already.

        Columns are matched by name, missing columns are NULL, and types are cast if no information
        is lost.

        >>> data = pa.RecordBatch.from_pydict({"a": [1]})
        >>> Schema.of(a="BIGINT", b="DATE").conform(data).schema.names
        ['a', 'b']

        Raises:
            SchemaMismatchError: an unknown column, or one that cannot be cast without loss.
            RowError: a NULL in a column that is NOT NULL, or a text that is too long.
        """
        if not data.schema.equals(self.arrow):
            check_column_names(data.schema.names, self.names)
            arrays = [
                cast_column(data, each.name, each.type, nullable=each.nullable)
                for each in self.columns
            ]
            data = pa.RecordBatch.from_arrays(arrays, schema=self.arrow)
        for place, column in enumerate(self.columns):
            if not column.nullable and data.column(place).null_count:
                row = pc.index(pc.is_null(data.column(place)), value=True).as_py()
                raise _row_error(row, column, null_error(column.type.sql))
            long = column.longest(data.column(place))
            if long is not None and column.length is not None:
                raise _row_error(long[0], column, too_long(long[1], column.length))
        return data

    def conform_known(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of Arrow data that this schema has, in exactly this schema.

        For data that may be newer than the schema: columns that were added since are left out.

        >>> data = pa.RecordBatch.from_pydict({"a": [1], "added": [2]})
        >>> Schema.of(a="BIGINT").conform_known(data).schema.names
        ['a']
        """
        if data.num_columns > len(self.columns):
            data = data.select([name for name in self.names if name in data.schema.names])
        return self.conform(data)

    def admit(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return Arrow data of a user in exactly this schema, if Python can hold all its values.

        >>> data = pa.RecordBatch.from_pydict({"d": pa.array([0], pa.date32())})
        >>> Schema.of(d="DATE", n="INT").admit(data).schema.names
        ['d', 'n']

        Raises:
            SchemaMismatchError: a column is unknown, or cannot be cast without loss.
            RowError: Python cannot hold a value, or a NOT NULL column has a NULL.
        """
        data = self.conform(data)
        for place, column, check in self._wider:
            found = check(column.type, data.column(place))
            if found is not None:
                row, reason = found
                raise RowError(
                    f"row {row}, column {column.name!r}: {reason}",
                    row=row,
                    column=column.name,
                    hint="Nothing was taken. Drop or mend the row; a value that Python cannot hold "
                    "could not be delivered to every reader.",
                )
        return self._without_hidden(data) if self.is_nested else data

    def _without_hidden(self, data: pa.RecordBatch) -> pa.RecordBatch:
        pairs = zip(data.columns, self.columns, strict=True)
        arrays = [without_hidden(array, column.type) for array, column in pairs]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

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
                f"the columns ({', '.join(batch.schema.names)}) are not an older version of "
                f"({', '.join(self.names)})",
                hint="A schema evolves by nullable columns at its end only.",
            )
        return self.conform(batch)

    def _check_columns(self, rows: Sequence[Row]) -> list[Row]:
        """Check column by column: several times faster than row by row, but blind to the row."""
        before = _transposed(rows)
        pairs = zip(self.columns, before, strict=True)
        after = [_checked_column(column, each) for column, each in pairs]
        if all(map(operator.is_, before, after)):
            return list(rows)
        return list(zip(*after, strict=True))

    def _check_row(self, number: int, row: Row) -> Row:
        if not isinstance(row, (tuple, list)) or len(row) != len(self.columns):
            count = str(len(row)) if isinstance(row, (tuple, list)) else type(row).__name__
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


def _wider_columns(columns: Sequence[Column]) -> Iterator[Wider]:
    """The columns of which Arrow can hold values that Python cannot."""
    for place, column in enumerate(columns):
        check = reading_check(column.type)
        if check is not None:
            yield place, column, check


def _transposed(rows: Sequence[Row]) -> Sequence[Sequence[Any]]:
    """The columns of rows, some rows at a time.

    ``zip`` makes an iterator for each row, and Python's collector of garbage has to look at each:
    of very many at once, that takes several times as long as all else here.
    """
    if len(rows) <= _SOME_ROWS:
        return list(zip(*rows, strict=True))
    columns: list[list[Any]] = [[] for _ in rows[0]]
    for start in range(0, len(rows), _SOME_ROWS):
        parts = zip(*rows[start : start + _SOME_ROWS], strict=True)
        for column, part in zip(columns, parts, strict=True):
            column.extend(part)
    return columns


def _column_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    try:
        if len(values) >= _MANY_VALUES:
            if arrow == TIMESTAMP.arrow:
                return _times_array(values)
            if arrow == BIGINT.arrow:
                return _integers_array(values)
        return pa.array(values, arrow)
    except (pa.ArrowException, OverflowError, TypeError):
        if Unreadable not in set(map(type, values)):
            raise
    return pa.array([v.arrow if type(v) is Unreadable else v for v in values], arrow)


def _integers_array(values: Sequence[Any]) -> pa.Array:
    """Ints of 64 bits, which numpy takes faster than Arrow does, unless there are NULLs."""
    try:
        return pa.array(np.fromiter(values, np.int64, len(values)))
    except TypeError:
        return pa.array(values, BIGINT.arrow)


def _times_array(values: Sequence[Any]) -> pa.Array:
    """Times in UTC, as what they are after 1970: Arrow asks each of a datetime for its offset."""
    try:
        since = [value - EPOCH for value in values]
    except TypeError:  # there are NULLs
        since = [None if value is None else value - EPOCH for value in values]
    made = pa.array(since, pa.duration("us"))
    return pa.Array.from_buffers(TIMESTAMP.arrow, len(made), made.buffers(), made.null_count)


def _checked_column(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    checked = column.type.check_column(values, nullable=column.nullable)
    if column.length is not None:
        longest = max((len(each) for each in checked if each is not None), default=0)
        if longest > column.length:
            raise too_long(longest, column.length)
    return checked


def _row_error(row: int, column: Column, error: SchemaMismatchError) -> RowError:
    message = f"row {row}, column {column.name!r}: {error.message}"
    return RowError(message, row=row, column=column.name, hint=error.hint)


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise SchemaError("a schema must have a column", hint="Try Schema.of(price='DOUBLE').")
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            other = seen[name.lower()]
            two = f"two columns are named {name!r}"
            raise SchemaError(
                two if name == other else f"the names {other!r} and {name!r} differ only in case",
                hint="Names must differ in more than case, since Spark SQL ignores case.",
            )
        seen[name.lower()] = name


def _as_key(key: Sequence[str]) -> tuple[str, ...]:
    if isinstance(key, str):
        raise SchemaError(f"the key {key!r} must be a tuple", hint=f"Write key=({key!r},).")
    return tuple(key)


def _checked_key(columns: Sequence[Column], key: Sequence[str]) -> tuple[str, ...]:
    key = _as_key(key)
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
    return key


def _arrow_schema(columns: Sequence[Column], key: Sequence[str]) -> pa.Schema:
    fields = [
        pa.field(
            each.name,
            each.type.arrow,
            nullable=each.nullable,
            metadata=None if each.length is None else {_LENGTH_METADATA: str(each.length)},
        )
        for each in columns
    ]
    return pa.schema(fields, metadata={_KEY_METADATA: json.dumps(key)} if key else None)


def _column_from_arrow(arrow: pa.Field) -> Column:
    try:
        of = type_from_arrow(arrow.type)
        length = (arrow.metadata or {}).get(_LENGTH_METADATA)
        most = int(length) if length is not None and of.kind == "VARCHAR" else None
        return Column(arrow.name, of, nullable=arrow.nullable, length=most)
    except SchemaError as error:
        raise SchemaError(f"column {arrow.name!r}: {error.message}", hint=error.hint) from error

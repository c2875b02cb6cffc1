"""Columns: how definitions of columns, keys and watermarks are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import TokenType

from millstream.errors import (
    Error,
    InvalidNameError,
    SchemaError,
    SqlColumnError,
    SqlError,
    SqlTypeError,
)
from millstream.model import Column, Schema, SqlType
from millstream.model.names import quote_name
from millstream.model.types import parse_column_type
from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.statement import WatermarkSpec

if TYPE_CHECKING:
    from millstream.sql.statements.reader import StatementReader

_NO_TIME = timedelta(0)
_CONSTRAINTS = {
    "DEFAULT": "Leave it out, and give a value in each row.",
    "UNIQUE": "Only the PRIMARY KEY of a table is unique.",
    "CHECK": "Check the rows before you push them.",
    "REFERENCES": "There are no foreign keys.",
    "FOREIGN": "There are no foreign keys.",
    "GENERATED": "Compute the value before you push the row, or in the SELECT that reads it.",
    "AS": "Compute the value before you push the row, or in the SELECT that reads it.",
    "COLLATE": "Strings are compared by their code points.",
    "COMMENT": "Write it as an SQL comment: -- ...",
    "AUTO_INCREMENT": "Give the values yourself.",
    "CONSTRAINT": "Write PRIMARY KEY (...) without a name for it.",
    "INDEX": "Leave it out.",
}
_TYPE_ENDS = {"NOT", "NULL", "PRIMARY", "PRIMARY KEY", "WATERMARK", *_CONSTRAINTS}
_PARTS_ENDS = {TokenType.COMMA, TokenType.R_PAREN}
_AFTER_WATERMARK = {",", ")", "", "EMIT", "ALLOW", "LATE", "WITH"}
_PLACE_IN_TYPE = re.compile(r"(?P<problem>.*) at position (?P<place>\d+) of .*", re.DOTALL)


@dataclass(slots=True)
class ColumnDefinitions:
    """What the parentheses of a CREATE held, with the places that later errors need."""

    columns: list[Column] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    key: list[tuple[str, int]] = field(default_factory=list)
    key_place: int | None = None
    watermark: tuple[str, int, timedelta] | None = None

    def schema(self, reader: StatementReader, begin: int) -> Schema:
        """Return the schema; the columns of the key are NOT NULL."""
        self._check_twice(reader)
        key = tuple(self.find(reader, name, at).name for name, at in self.key)
        columns = [replace(c, nullable=c.nullable and c.name not in key) for c in self.columns]
        try:
            return Schema(tuple(columns), key)
        except Error as error:
            at = begin if self.key_place is None else self.key_place
            raise reader.located_error(error, at) from error

    def watermark_spec(self, reader: StatementReader) -> WatermarkSpec | None:
        """Return the watermark, if there is one that the columns can have."""
        if self.watermark is None:
            return None
        name, at, delay = self.watermark
        column = self.find(reader, name, at)
        if column.type.kind != "TIMESTAMP":
            raise reader.error(
                f"a watermark follows a TIMESTAMP, and {column.name} is {column.type.sql}",
                hint="Name a column of type TIMESTAMP, or leave the watermark out.",
                at=at,
                kind=SqlTypeError,
            )
        return WatermarkSpec(column.name, delay)

    def find(self, reader: StatementReader, name: str, at: int) -> Column:
        """Return the column of a name in any case."""
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        names = [column.name for column in self.columns]
        raise reader.error(
            f"there is no column {quote_name(name)}",
            hint=did_you_mean(name, names, f"The columns are {', '.join(names)}."),
            at=at,
            kind=SqlColumnError,
        )

    def _check_twice(self, reader: StatementReader) -> None:
        seen: set[str] = set()
        for column, at in zip(self.columns, self.places, strict=True):
            if column.name.lower() in seen:
                raise reader.error(
                    f"there are two columns {quote_name(column.name)}",
                    hint="Names must differ in more than case.",
                    at=at,
                )
            seen.add(column.name.lower())


def read_definition(reader: StatementReader) -> ColumnDefinitions:
    """Read ``(column type, ..., [PRIMARY KEY (...)], [WATERMARK FOR ...])``."""
    definition = ColumnDefinitions()
    begin = reader.offset
    reader.wrapped(lambda: _read_part(reader, definition))
    if not definition.columns and (definition.watermark is None or reader.word != "WITH"):
        raise reader.error("there is no column", hint="Name one: (price DOUBLE).", at=begin)
    return definition


def read_column(reader: StatementReader) -> tuple[Column, int | None]:
    """Read ``name type [NOT NULL] [PRIMARY KEY]``; also where it was said to be the key."""
    at = reader.offset
    name = reader.identifier("column")
    type_, length = read_type(reader, name)
    nullable, key_place = True, None
    while not reader.at_end:
        place = reader.offset
        if reader.skip("NOT", "NULL"):
            nullable = False
        elif reader.skip("PRIMARY KEY"):
            key_place = place
        elif not reader.skip("NULL"):
            _refuse_constraint(reader)
            break
    try:
        return Column(name, type_, nullable=nullable, length=length), key_place
    except InvalidNameError as error:
        raise reader.located_error(error, at) from error


def read_type(reader: StatementReader, column: str) -> tuple[SqlType, int | None]:
    """Read a type, and perhaps a length, by the model's own grammar of types."""
    begin = reader.offset
    text = reader.text_until(_ends_type)
    if not text:
        raise reader.expected(f"the type of {quote_name(column)}", hint="Write: price DOUBLE.")
    try:
        return parse_column_type(text)
    except (SchemaError, InvalidNameError) as error:
        raise _type_error(reader, error, begin) from error


def _ends_type(word: str, kind: TokenType, depth: int) -> bool:
    return depth == 0 and (kind in _PARTS_ENDS or word in _TYPE_ENDS)


def _type_error(reader: StatementReader, error: Error, begin: int) -> SqlError:
    found = _PLACE_IN_TYPE.fullmatch(error.message)
    if found is None:
        return reader.located_error(error, begin, SqlTypeError)
    at = begin + int(found["place"])
    if found["problem"].startswith("unexpected"):  # a whole type, and then something else
        hint = "Between two columns there is a comma."
        return reader.error(found["problem"], hint=hint, at=at)
    return reader.error(found["problem"], hint=error.hint, at=at, kind=SqlTypeError)


def _read_part(reader: StatementReader, definition: ColumnDefinitions) -> None:
    at = reader.offset
    if reader.word == "WATERMARK" and reader.word_after == "FOR":
        _read_watermark(reader, definition)
    elif reader.skip("PRIMARY KEY"):
        _set_key(reader, definition, at)
        definition.key = reader.wrapped(lambda: (reader.offset, reader.identifier("column"))[::-1])
    elif reader.word_after == "(" or reader.word in {"FOREIGN KEY", "CONSTRAINT"}:
        _refuse_constraint(reader)
        raise reader.expected("a column", hint="Write: price DOUBLE.")
    else:
        column, key_place = read_column(reader)
        definition.columns.append(column)
        definition.places.append(at)
        if key_place is not None:
            _set_key(reader, definition, key_place)
            definition.key = [(column.name, key_place)]


def _set_key(reader: StatementReader, definition: ColumnDefinitions, at: int) -> None:
    if definition.key_place is not None:
        raise reader.error(
            "there are two primary keys",
            hint="A key of several columns is written once: PRIMARY KEY (a, b).",
            at=at,
        )
    definition.key_place = at


def _read_watermark(reader: StatementReader, definition: ColumnDefinitions) -> None:
    if definition.watermark is not None:
        raise reader.error("there are two watermarks", hint="A source has one.")
    definition.watermark = read_watermark(reader)


def read_watermark(reader: StatementReader) -> tuple[str, int, timedelta]:
    """Read ``WATERMARK FOR column AS ...``: the column, its offset in the text, the delay."""
    reader.expect("WATERMARK", "FOR")
    at, name = reader.offset, reader.identifier("column")
    return name, at, _read_delay(reader, name) if reader.skip("AS") else _NO_TIME


def _read_delay(reader: StatementReader, name: str) -> timedelta:
    shape = f"Write WATERMARK FOR {quote_name(name)} AS {quote_name(name)} - INTERVAL '1 second'."
    at = reader.offset
    if reader.identifier("column").lower() != name.lower():
        raise reader.error("a watermark follows its own column", hint=shape, at=at)
    if not reader.skip("-"):
        if reader.word not in _AFTER_WATERMARK:
            raise reader.expected("'-'", hint=shape)
        return _NO_TIME
    at = reader.offset
    delay = reader.interval()
    if delay < _NO_TIME:
        raise reader.error("a watermark cannot be ahead of its column", hint=shape, at=at)
    return delay


def _refuse_constraint(reader: StatementReader) -> None:
    word = reader.word.split(" ")[0] if reader.word else ""
    if word in _CONSTRAINTS:
        raise reader.unsupported(f"{word} is not supported here", hint=_CONSTRAINTS[word])

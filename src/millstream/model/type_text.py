"""The text of types: ``parse_type`` reads what ``SqlType.sql`` writes, and the usual aliases."""

from __future__ import annotations

import re
from functools import lru_cache

from millstream.errors import SchemaError
from millstream.model.types import (
    ALL_TYPES,
    BIGINT,
    BINARY,
    BOOLEAN,
    INTEGER,
    MAX_DEPTH,
    REAL,
    SCALARS,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    VARCHAR,
    SqlType,
    array_type,
    check_field_names,
    decimal_type,
    map_type,
    struct_type,
    too_deep,
)

_BY_WORD = {each.sql: each for each in SCALARS} | {
    "BOOL": BOOLEAN,
    "BYTE": TINYINT,
    "SHORT": SMALLINT,
    "INT": INTEGER,
    "LONG": BIGINT,
    "FLOAT": REAL,
    "STRING": VARCHAR,
    "TEXT": VARCHAR,
    "BYTEA": BINARY,
    "VARBINARY": BINARY,
    "BLOB": BINARY,
    "TIMESTAMPTZ": TIMESTAMP,
}

_TAILS = {"DOUBLE": ("PRECISION",), "INTERVAL": ("DAY", "TO", "SECOND")}
"""Words that may follow a type's first and say no more than it."""

_TOKEN = re.compile(
    r"""\s*(?P<token>[^\W\d]\w*|\d+|"(?:[^"]|"")+"|`(?:[^`]|``)+`|[<>(),:]|\S|$)""", re.VERBOSE
)


@lru_cache(maxsize=512)
def parse_type(text: str) -> SqlType:
    """Return the type that a text of SQL names, in any case, by its name or a usual alias.

    The inverse of ``SqlType.sql``: ``parse_type(t.sql) == t``.

    >>> parse_type("struct<id: int, tags: array<string>>").sql
    'STRUCT<id INTEGER, tags ARRAY<VARCHAR>>'

    Raises:
        SchemaError: the text names no type; the message has the position, from 0.
    """
    parser = _Parser(text)
    parsed = parser.type(1)
    parser.end()
    return parsed


class _Parser:
    """Recursive descent over one text: each method reads its own part and stands after it."""

    __slots__ = ("_place", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(m["token"], m.start("token")) for m in _TOKEN.finditer(text)]
        self._place = 0

    def type(self, depth: int) -> SqlType:
        if depth > MAX_DEPTH:
            raise too_deep()
        word = self._peek().upper()
        if word in {"DECIMAL", "NUMERIC"}:
            return self._decimal()
        if word in {"ARRAY", "STRUCT", "MAP"}:
            return self._nested(word, depth + 1)
        if word not in _BY_WORD:
            raise self._error("unknown type", ALL_TYPES)
        self._place += 1
        tail = _TAILS.get(word, ())
        if tuple(token.upper() for token, _ in self._rest(len(tail))) == tail:
            self._place += len(tail)
        if self._peek() == "(":
            raise self._parameter_error(word)
        return _BY_WORD[word]

    def end(self) -> None:
        if self._peek():
            raise self._error("unexpected", ALL_TYPES)

    def _decimal(self) -> SqlType:
        self._place += 1
        if not self._skip("("):
            return decimal_type()
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        self._expect(")")
        return decimal_type(precision, scale)

    def _nested(self, word: str, depth: int) -> SqlType:
        self._place += 1
        self._expect("<")
        if word == "ARRAY":
            nested = array_type(self.type(depth))
        elif word == "MAP":
            key = self.type(depth)
            self._expect(",")
            nested = map_type(key, self.type(depth))
        else:
            nested = self._struct(depth)
        self._expect(">")
        return nested

    def _struct(self, depth: int) -> SqlType:
        pairs = [self._field(depth)]
        while self._skip(","):
            pairs.append(self._field(depth))
        check_field_names([name for name, _ in pairs])
        return struct_type(dict(pairs))

    def _field(self, depth: int) -> tuple[str, SqlType]:
        token = self._peek()
        if token[:1] in {'"', "`"} and len(token) > 2:
            name = token[1:-1].replace(token[0] * 2, token[0])
        elif token.isidentifier():
            name = token
        else:
            raise self._error("expected the name of a field, got", "Write STRUCT<name TYPE, ...>.")
        self._place += 1
        self._skip(":")
        return name, self.type(depth)

    def _number(self) -> int:
        token = self._peek()
        if not (token.isascii() and token.isdecimal() and len(token) <= 4):
            raise self._error("expected a number, got", "Write DECIMAL(precision, scale).")
        self._place += 1
        return int(token)

    def _peek(self) -> str:
        return self._tokens[self._place][0]

    def _rest(self, count: int) -> list[tuple[str, int]]:
        return self._tokens[self._place : self._place + count]

    def _skip(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._place += 1
        return True

    def _expect(self, mark: str) -> None:
        if self._skip(mark):
            return
        if self._peek().upper() == "NOT":
            raise self._error(
                "NOT NULL is not allowed inside a type:", "Only columns are NOT NULL; leave it out."
            )
        raise self._error(f"expected {mark!r}, got", ALL_TYPES)

    def _parameter_error(self, word: str) -> SchemaError:
        if _BY_WORD[word] in {VARCHAR, BINARY}:
            hint = f"The length would not be enforced, so it is not taken; write {word} alone."
            return self._error(f"{word} takes no length:", hint)
        return self._error(f"{word} takes no parameter:", f"Write {word} alone.")

    def _error(self, problem: str, hint: str) -> SchemaError:
        token, position = self._tokens[self._place]
        shown = repr(token) if token else "the end"
        return SchemaError(f"{problem} {shown} at position {position} of {self._text!r}", hint=hint)

"""PREPARE and EXECUTE: prepared statements in SQL, beside those of the protocol (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.server.postgres import types as pg
from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.server.postgres.text import Text, Token

_TYPES: Final = {
    **{each.name: each for each in pg.PG_TYPES},
    "boolean": pg.BY_OID[pg.BOOL],
    "bigint": pg.BY_OID[pg.INT8],
    "int": pg.BY_OID[pg.INT4],
    "integer": pg.BY_OID[pg.INT4],
    "smallint": pg.BY_OID[pg.INT2],
    "double precision": pg.BY_OID[pg.FLOAT8],
    "float": pg.BY_OID[pg.FLOAT8],
    "real": pg.BY_OID[pg.FLOAT4],
    "decimal": pg.BY_OID[pg.NUMERIC],
    "character": pg.BY_OID[pg.BPCHAR],
    "char": pg.BY_OID[pg.BPCHAR],
    "character varying": pg.BY_OID[pg.VARCHAR],
    "timestamp without time zone": pg.BY_OID[pg.TIMESTAMP],
    "timestamp with time zone": pg.BY_OID[pg.TIMESTAMPTZ],
}
_CONSTANTS: Final = {"TRUE": b"true", "FALSE": b"false"}


def read_prepare(text: Text) -> tuple[str, list[int], Text]:
    """The name of ``PREPARE name [(type, ...)] AS statement``, its types, and the statement.

    Raises:
        PostgresError: it is written otherwise, or names a type that there is not.
    """
    name, place, parts = _named(text)
    tokens = text.tokens
    if place >= len(tokens) or tokens[place].word != "AS":
        raise _misread(text, "PREPARE name (types) AS statement is expected")
    inner = text.tail(place + 1)
    if inner.words[0] in {"PREPARE", "EXECUTE", "DEALLOCATE"}:
        raise _misread(text, f"{inner.words[0]} cannot be prepared")
    return name, [_type(text, part) for part in parts], inner


def read_execute(text: Text) -> tuple[str, list[bytes | None]]:
    """The name of ``EXECUTE name [(value, ...)]``, and its values as text; None: NULL.

    Raises:
        PostgresError: it is written otherwise, or a value is no constant.
    """
    name, place, parts = _named(text)
    if place < len(text.tokens):
        raise _misread(text, "EXECUTE name (values) is expected")
    return name, [_constant(text, part) for part in parts]


def _named(text: Text) -> tuple[str, int, list[list[Token]]]:
    """The name after the first word, the place after ``(...)``, and what commas separate there."""
    tokens = text.tokens
    name = tokens[1].identifier if len(tokens) > 1 else ""
    if not name:
        raise _misread(text, f"{text.words[0]} needs a name")
    if len(tokens) < 3 or tokens[2].text != "(":
        return name, 2, []
    parts: list[list[Token]] = [[]]
    depth = 1
    for place in range(3, len(tokens)):
        token = tokens[place]
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return name, place + 1, parts if any(parts) else []
        if token.text == "," and depth == 1:
            parts.append([])
        else:
            parts[-1].append(token)
    raise _misread(text, "a parenthesis is not closed")


def _type(text: Text, tokens: Sequence[Token]) -> int:
    words = [each.text.lower() for each in tokens]
    is_array = words[-2:] == ["[", "]"]
    words = words[:-2] if is_array else words
    name = " ".join(words[: words.index("(")] if "(" in words else words)
    found = _TYPES.get(name)
    if found is None:
        raise PostgresError(
            f'type "{name}" does not exist', sqlstate="42704", position=text.start + 1
        )
    return found.array if is_array else found.oid


def _constant(text: Text, tokens: Sequence[Token]) -> bytes | None:
    signs = [each.text for each in tokens]
    if "::" in signs:  # the parameter has a type
        tokens = tokens[: signs.index("::")]
    sign = b""
    if len(tokens) == 2 and tokens[0].text in {"-", "+"} and tokens[1].kind == "number":
        sign, tokens = tokens[0].text.encode(), tokens[1:]
    if len(tokens) == 1:
        [token] = tokens
        if token.kind in {"number", "string", "escaped", "dollar"}:
            return sign + token.value.encode()
        if token.word == "NULL":
            return None
        if token.word in _CONSTANTS:
            return _CONSTANTS[token.word]
    raise PostgresError(
        "EXECUTE takes constants only",
        sqlstate="0A000",
        hint="numbers, texts, TRUE, FALSE and NULL; or prepare it with the driver's own call",
        position=text.start + 1,
    )


def _misread(text: Text, message: str) -> PostgresError:
    return PostgresError(message, sqlstate="42601", position=text.start + 1)

"""COPY: rows of a file into a source or a table, and of a relation or a query into a file."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.statements.create import read_options
from millstream.sql.statements.query import read_body
from millstream.sql.statements.reader import StatementReader
from millstream.sql.statements.statement import CopyFrom, CopyTo, Query, Select

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import Token

    from millstream.sql.statements.statement import Option

_SHAPE = "Write COPY t FROM 'x.parquet', or COPY (SELECT ...) TO 'y.csv'."
_STREAMS = (
    "COPY FROM STDIN and TO STDOUT are of PostgreSQL's protocol; "
    "millstream push reads standard input."
)


def read_copy(reader: StatementReader) -> CopyFrom | CopyTo:
    """Read what follows COPY."""
    if reader.word == "(":
        query = _read_query(reader)
        reader.expect("TO", hint=_SHAPE)
        place, options = _read_place(reader)
        return CopyTo(query=query, place=place, options=options)
    begin = reader.offset
    name = reader.name("source, table or view")
    columns = (
        tuple(reader.wrapped(lambda: reader.identifier("column"))) if reader.word == "(" else ()
    )
    direction = reader.skip_any("FROM", "TO")
    if not direction:
        raise reader.expected("FROM or TO", hint=_SHAPE)
    place, options = _read_place(reader)
    if direction == "FROM":
        return CopyFrom(target=name, columns=columns, place=place, options=options)
    items = tuple(exp.column(exp.to_identifier(each, quoted=True)) for each in columns)
    select = Select(target=name, items=items or (exp.Star(),))
    return CopyTo(query=reader.located(select, begin), place=place, options=options)


def _read_query(reader: StatementReader) -> Select | Query:
    """Read a query in parentheses."""
    tokens = reader.tokens_left
    end = _closing(tokens)
    if end is None:
        raise reader.error("a parenthesis is not closed", hint=_SHAPE)
    inner = StatementReader(reader.sql, tokens[1:end], reader.parameters)
    query = read_body(inner)
    inner.end()
    reader.pass_over(end + 1)
    return query


def _closing(tokens: list[Token]) -> int | None:
    depth = 0
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return place
    return None


def _read_place(reader: StatementReader) -> tuple[str, Mapping[str, Option]]:
    if reader.word in {"STDIN", "STDOUT", "PROGRAM"}:
        raise reader.unsupported(f"COPY with {reader.word} is not supported here", hint=_STREAMS)
    place = reader.string("the path of a file")
    if reader.skip_any("WITH", "OPTIONS") or reader.word == "(":
        return place, read_options(reader)
    return place, MappingProxyType({})

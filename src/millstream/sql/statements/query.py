"""Queries: a plain SELECT, or any other, and the EMIT or AS OF that may follow."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp

from millstream.errors import Error, SqlUnsupportedError
from millstream.sql.refusals import CLAUSES, check_query, tables_of
from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.durations import parse_duration
from millstream.sql.statements.moments import read_as_of
from millstream.sql.statements.reader import StatementReader
from millstream.sql.statements.statement import Emit, Query, Select

if TYPE_CHECKING:
    from sqlglot import Token

    from millstream.errors import SqlError


QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "("})
"""The words that a query begins with."""

_TAILS = {
    *(("EMIT", word) for word in ("CHANGES", "ON", "AFTER", "EVERY", "FINAL")),
    ("ALLOW", "LATENESS"),
    ("LATE", "DATA"),
    ("WATERMARK", "FOR"),
    ("WITH", "("),
    ("EMIT", ""),  # and nothing else: what it says is missing
}
"""The first two words of the clauses that follow the query of a view."""

_MOMENTS = {"TIMESTAMP", "DATE", "LSN", "NOW", "CURRENT_TIMESTAMP", "INTERVAL", "-", "?", ":"}
"""What a moment after AS OF begins with, if it is no number or text."""

_ONCE = "AS OF stands once, at the end: all that the statement reads is read as it was."
_EMITS = "Write EMIT CHANGES, EMIT ON WINDOW CLOSE, EMIT EVERY INTERVAL '1 second' or EMIT FINAL."
_CLAUSES = ("WHERE", "JOIN", "GROUP", "ORDER", "HAVING", "UNION", "LIMIT")
_BEFORE_NAMES = {"SELECT", "FROM", "JOIN", "AS", ",", "."}
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING}
_VALUES = {TokenType.NUMBER, TokenType.STRING, TokenType.RAW_STRING}
_PER_TABLE = {"SYSTEM_TIME", "SYSTEM_VERSION", "TIMESTAMP", "VERSION"}
_DEEPER = {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}


def read_query(reader: StatementReader, *, live: bool = False) -> Select | Query:
    """Read a query, and its EMIT or AS OF; the next word is the query's first."""
    body = read_body(reader)
    if reader.word == "EMIT":
        body = dataclasses.replace(as_query(body), emit=read_emit(reader))
    elif reader.word == "AS":
        body = dataclasses.replace(body, as_of=read_as_of(reader))
        if not reader.at_end:
            raise reader.error(f"unexpected '{reader.word}' after AS OF", hint=_ONCE)
    return dataclasses.replace(body, live=live)


def read_live(reader: StatementReader) -> Select | Query:
    """Read what follows LIVE."""
    if reader.word not in QUERY_WORDS:
        raise reader.expected("SELECT", hint="Write LIVE SELECT ... FROM ...")
    return read_query(reader, live=True)


def read_body(reader: StatementReader) -> Select | Query:
    """Read a query up to the clauses that only a view has."""
    if reader.word not in QUERY_WORDS:
        raise reader.expected("SELECT", hint="Write AS SELECT ... FROM ...")
    begin, tokens = reader.offset, reader.tokens_left
    tokens = tokens[: _length(tokens)]
    _check_moments(reader, tokens)
    given = reader.parameters
    plain = _read_plain(StatementReader(reader.sql, tokens, given))
    body = plain or _read_any(StatementReader(reader.sql, tokens, given))
    reader.pass_over(len(tokens))
    line, column = reader.place_of(begin)
    return dataclasses.replace(
        body,
        tokens=tuple(tokens),
        parameters=given,
        sql=reader.sql,
        text=given.text(reader.sql, begin, tokens[-1].end + 1),
        line=line,
        column=column,
    )


def _check_moments(reader: StatementReader, tokens: list[Token]) -> None:
    """Refuse AS OF a moment, and not a column, within a query."""
    words = _words(tokens)
    for place in range(1, len(tokens)):
        if _is_as_of(tokens, words, place) and words[place - 1] != "SYSTEM_TIME":
            raise reader.unsupported(
                "AS OF within a query is not supported", hint=_ONCE, at=tokens[place].start
            )


def as_query(body: Select | Query) -> Query:
    """Return a SELECT as a query, for those who want a whole tree.

    >>> from millstream.sql import parse
    >>> [select] = parse("SELECT a FROM t AS u WHERE a > 1")
    >>> as_query(select).tree.sql()
    'SELECT a FROM "t" AS "u" WHERE a > 1'
    """
    if isinstance(body, Query):
        return body
    target = exp.to_identifier(body.target, quoted=True)
    alias = exp.TableAlias(this=exp.to_identifier(body.alias, quoted=True)) if body.alias else None
    tree = exp.Select(
        expressions=[item.copy() for item in body.items],
        from_=exp.From(this=exp.Table(this=target, alias=alias)),
    )
    if body.where is not None:
        tree.set("where", exp.Where(this=body.where.copy()))
    if body.limit is not None:
        tree.set("limit", exp.Limit(expression=exp.Literal.number(body.limit)))
    return Query(
        tree=tree,
        tables=(body.target,),
        live=body.live,
        as_of=body.as_of,
        tokens=body.tokens,
        parameters=body.parameters,
        sql=body.sql,
        text=body.text,
        line=body.line,
        column=body.column,
    )


def read_emit(reader: StatementReader) -> Emit:
    """Read ``EMIT ...``."""
    line, column = reader.place
    return dataclasses.replace(_read_emit(reader), line=line, column=column)


def _read_emit(reader: StatementReader) -> Emit:
    reader.expect("EMIT", hint=_EMITS)
    if reader.skip("CHANGES") or reader.skip("ON", "UPDATE"):
        return Emit("changes")
    closing = (("ON", "WINDOW", "CLOSE"), ("AFTER", "WATERMARK"), ("ON", "WATERMARK"))
    if any(reader.skip(*words) for words in closing):
        return Emit("close")
    if reader.skip("FINAL"):
        return Emit("final")
    if not reader.skip("EVERY"):
        raise reader.expected("when to emit", hint=_EMITS)
    at = reader.offset
    every = _read_rhythm(reader)
    if every <= timedelta(0):
        raise reader.error("the interval must be longer than nothing", hint=_EMITS, at=at)
    return Emit("every", every)


def _read_rhythm(reader: StatementReader) -> timedelta:
    if reader.word == "INTERVAL":
        return reader.interval()
    at = reader.offset
    number = reader.constant()
    if not isinstance(number, int | float):
        raise reader.expected("an interval", hint=_EMITS)
    try:
        return parse_duration(f"{number} {reader.identifier('unit')}")
    except Error as error:
        raise reader.located_error(error, at) from error


def _read_plain(reader: StatementReader) -> Select | None:
    """Read a SELECT of one log that only filters and projects; None if it is another query."""
    if not reader.skip("SELECT"):
        return None
    try:
        select = read_select(reader)
        reader.end()
    except SqlUnsupportedError:
        return None
    return select


def _read_any(reader: StatementReader) -> Query:
    tree = reader.query()
    if not reader.at_end:
        hint = did_you_mean(reader.word_before, _CLAUSES)
        if hint:  # a misspelt keyword was taken for an alias
            at = reader.offset_before
            raise reader.error(f"unexpected '{reader.word_before}'", hint=hint, at=at)
    reader.end()
    check_query(tree, reader.sql)
    return Query(tree=tree, tables=tables_of(tree))


def _length(tokens: list[Token]) -> int:
    """How many tokens there are before the clauses that follow a query."""
    depth = 0
    words = _words(tokens)
    for place, token in enumerate(tokens):
        depth += _DEEPER.get(token.token_type, 0)
        # A query begins with its own WITH, and a log may be called EMIT.
        if depth or not place or words[place - 1] in _BEFORE_NAMES:
            continue
        is_past = _is_as_of(tokens, words, place) and words[place - 1] not in _PER_TABLE
        if (*words[place : place + 2], "")[:2] in _TAILS or is_past:
            return place
    return len(tokens)


def _words(tokens: list[Token]) -> list[str]:
    """The words in capital letters; empty for what is quoted."""
    return ["" if each.token_type in _QUOTED else each.text.upper() for each in tokens]


def _is_as_of(tokens: list[Token], words: list[str], place: int) -> bool:
    """Whether AS OF and a moment follow: not an alias, nor FOR SYSTEM_TIME AS OF a column."""
    if words[place : place + 2] != ["AS", "OF"]:
        return False
    after = tokens[place + 2 : place + 3]
    return bool(after) and (after[0].token_type in _VALUES or words[place + 2] in _MOMENTS)


# ---- a plain SELECT: filters and projections of one source, table or view


_WITHOUT_FROM = frozenset(
    {"INTO", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET"}
    | {"UNION", "INTERSECT", "EXCEPT", "MINUS"}
)
"""What may follow what is selected, if nothing is read."""

_AFTER_FROM = ("WHERE", "LIMIT", "JOIN", "GROUP", "ORDER", "HAVING", "UNION")


def read_select(reader: StatementReader) -> Select:
    """Read what follows SELECT, if it filters and projects one log.

    Raises:
        SqlUnsupportedError: it is a query of another kind, for a larger grammar to read.
        SqlSyntaxError: it is no query at all.
    """
    if reader.word == "DISTINCT":
        raise _another(reader)
    if reader.word == "FROM" or reader.at_end:
        raise reader.expected("what to select", hint="Write SELECT * FROM ..., or name columns.")
    items = tuple(reader.listed(lambda: _read_item(reader)))
    target, alias = _read_from(reader)
    where = reader.condition() if reader.skip("WHERE") else None
    limit = reader.integer("the number of rows") if reader.skip("LIMIT") else None
    return Select(target=target, items=items, where=where, limit=limit, alias=alias)


def _another(reader: StatementReader) -> SqlError:
    return reader.unsupported("this is no plain SELECT", hint="Write SELECT a, b FROM trades.")


def _read_item(reader: StatementReader) -> exp.Expression:
    if reader.word == "FROM":  # a comma too many: the grammar would take FROM for nothing at all
        raise reader.expected("what to select", hint="Leave out the comma before FROM.")
    return reader.item()


def _read_from(reader: StatementReader) -> tuple[str, str | None]:
    if reader.at_end or reader.word.split(" ")[0] in _WITHOUT_FROM:
        raise _another(reader)
    if not reader.skip("FROM"):
        # SELECT a FORM t: the misspelt word was taken for an alias.
        hint = did_you_mean(reader.word_before, ["FROM"], "Write SELECT a, b FROM trades.")
        raise reader.expected("',' or FROM", hint=hint)
    if reader.word in {"(", "VALUES", "LATERAL", "UNNEST", "TABLE"}:
        raise _another(reader)
    target = reader.name("source or table")
    if reader.word == "(":
        raise _another(reader)
    return target, _read_alias(reader)


def _read_alias(reader: StatementReader) -> str | None:
    at = reader.offset
    if reader.skip("AS"):
        alias = reader.identifier("table")
    elif reader.may_be_alias():
        alias = reader.identifier("table")
        # A misspelt keyword is taken for an alias; what follows then has no place.
        if not reader.at_end and reader.word.split(" ")[0] not in {*CLAUSES, "WHERE", "LIMIT", ","}:
            hint = did_you_mean(alias.upper(), _AFTER_FROM)
            if hint:
                raise reader.error(f"unexpected '{alias}'", hint=hint, at=at)
    else:
        alias = None
    if reader.word == ",":
        raise _another(reader)
    return alias

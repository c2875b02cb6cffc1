"""SELECT: filters and projections of one source, table or view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.refusals import CLAUSES
from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.statement import Select

if TYPE_CHECKING:
    from sqlglot import exp

    from millstream.errors import SqlError
    from millstream.sql.statements.reader import Reader

_AFTER_FROM = ("WHERE", "LIMIT", "JOIN", "GROUP", "ORDER", "HAVING", "UNION")


def read_select(reader: Reader) -> Select:
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


def _another(reader: Reader) -> SqlError:
    return reader.unsupported("this is no plain SELECT", hint="Write SELECT a, b FROM trades.")


def _read_item(reader: Reader) -> exp.Expression:
    if reader.word == "FROM":  # a comma too many: the grammar would take FROM for nothing at all
        raise reader.expected("what to select", hint="Leave out the comma before FROM.")
    return reader.item()


def _read_from(reader: Reader) -> tuple[str, str | None]:
    if reader.at_end or reader.word == "INTO":
        raise _another(reader)
    if not reader.skip("FROM"):
        # SELECT a FORM t: the misspelt word was taken for an alias.
        hint = did_you_mean(reader.word_before, ["FROM"], "Write SELECT a, b FROM trades.")
        raise reader.expected("',' or FROM", hint=hint)
    if reader.word in {"(", "VALUES", "LATERAL", "UNNEST"}:
        raise _another(reader)
    target = reader.name("source or table")
    if reader.word == "(":
        raise _another(reader)
    return target, _read_alias(reader)


def _read_alias(reader: Reader) -> str | None:
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

"""Positions: from offsets in a text, which tokens know, to the lines and columns of errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot.dialects.dialect import DialectType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 60


def place_at(sql: str, offset: int) -> tuple[int, int]:
    r"""Return line and column, both from 1, of an offset into a text.

    Lines are those of ``str.splitlines``, with which ``SqlError`` shows them.

    >>> place_at("SELECT a\n  FROM b", 11)
    (2, 3)
    """
    lines = (sql[:offset] + "|").splitlines()
    return len(lines), len(lines[-1])


def place_of(expression: exp.Expr, sql: str) -> tuple[int, int]:
    """Return line and column of an expression's first token in the text that it was parsed from.

    sqlglot keeps the offsets of names, literals and functions; the first of those in a larger
    expression stands for it. (0, 0), which is no place, when there is none: sqlglot's own ``line``
    and ``col`` are those of the token's end, so they are of no use here.
    """
    starts = [each.meta["start"] for each in expression.walk() if "start" in each.meta]
    return place_at(sql, min(starts)) if starts else (0, 0)


def place_of_second(items: Sequence[exp.Expr], sql: str) -> tuple[int, int]:
    """Return the place of the first item of a SELECT whose name an item before it has."""
    seen: set[str] = set()
    for item in items:
        name = item.alias_or_name.lower()
        if name in seen:
            return place_of(item, sql)
        if name:
            seen.add(name)
    return (0, 0)


def words_of(expression: exp.Expr, sql: str, dialect: DialectType) -> str:
    """Return what an expression is called in a message: in SQL, never by the name of its class.

    A function has the name that was written; anything else is shown as SQL.

    >>> from sqlglot import parse_one
    >>> words_of(parse_one("b SIMILAR TO 'x'"), "", "spark")
    "b SIMILAR TO 'x'"
    """
    if isinstance(expression, exp.Func):
        written = _NAME.match(sql, expression.meta.get("start", len(sql)))
        if written:
            return written.group().upper()
    text = expression.sql(dialect=dialect)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

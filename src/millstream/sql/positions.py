"""Positions: from offsets in a text, which tokens know, to the lines and columns of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


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

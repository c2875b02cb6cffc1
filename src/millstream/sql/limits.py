"""Limits: what SQL can say and Millstream cannot answer yet, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlUnsupportedError
from millstream.sql.positions import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_JOIN = "Views on Spark are not there yet; select from each and join in your own code."
_GROUP = "Views on Spark are not there yet; select the rows and aggregate them in your callback."
_SORT = "Rows come in the order of the log; sort the result in your own code."
_UNION = "Views on Spark are not there yet; run one SELECT for each part."
_LIMIT = "Only LIMIT n is taken; leave out rows in your own code."

CLAUSES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER"), ("a join", _JOIN)),
    **dict.fromkeys(("CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "USING"), ("a join", _JOIN)),
    "LATERAL": ("LATERAL", _JOIN),
    "GROUP": ("GROUP BY", _GROUP),
    "HAVING": ("HAVING", _GROUP),
    "WINDOW": ("WINDOW", _GROUP),
    "QUALIFY": ("QUALIFY", _GROUP),
    "PIVOT": ("PIVOT", _GROUP),
    "UNPIVOT": ("UNPIVOT", _GROUP),
    "ORDER": ("ORDER BY", _SORT),
    "SORT": ("SORT BY", _SORT),
    "CLUSTER": ("CLUSTER BY", _SORT),
    "DISTRIBUTE": ("DISTRIBUTE BY", _SORT),
    "UNION": ("UNION", _UNION),
    "INTERSECT": ("INTERSECT", _UNION),
    "EXCEPT": ("EXCEPT", _UNION),
    "MINUS": ("MINUS", _UNION),
    "OFFSET": ("OFFSET", _LIMIT),
    "FETCH": ("FETCH", _LIMIT),
    "TABLESAMPLE": ("TABLESAMPLE", "Sample the rows in your own code."),
    "FOR": ("FOR", "Leave it out; a SELECT reads the newest rows, and locks nothing."),
    "EMIT": ("EMIT", "Leave it out: a subscription, or LIVE SELECT, gives every change."),
    "RETURNING": ("RETURNING", "Leave it out; the result says how many rows were changed."),
}
"""The first word of each clause that is refused: what it is called, and what to do instead."""

_NODES: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Query, "a subquery", "Run it first, and write its result into this statement."),
    (exp.Window, "a window function", _GROUP),
    (exp.WithinGroup, "an aggregate", _GROUP),
    (exp.Filter, "an aggregate", _GROUP),
    (exp.AggFunc, "an aggregate", _GROUP),
    (exp.Aliases, "a list of aliases", "Give each expression one alias: AS name."),
    (exp.Command, "a command", "Write it as a statement of its own."),
    (exp.Placeholder, "a parameter", "Write the value itself, strings in single quotes."),
    (exp.Parameter, "a parameter", "Write the value itself, strings in single quotes."),
)
_REFUSED: tuple[type[exp.Expr], ...] = (exp.Star, *(kind for kind, _, _ in _NODES))


def check_expression(expression: exp.Expr, sql: str) -> None:
    """Refuse an expression with a part that needs more than one row, or another query.

    Raises:
        SqlUnsupportedError: at the place of that part.
    """
    for node in expression.walk(bfs=False):
        if not isinstance(node, _REFUSED):
            continue
        for kind, what, hint in _NODES:
            if isinstance(node, kind):
                message = f"{what}{_named(node)} is not supported yet"
                raise _refusal(node, message, hint, sql, expression)
        if isinstance(node, exp.Star) and any(node.args.values()):
            hint = "Write * alone, or name the columns."
            message = "* with EXCEPT, REPLACE or RENAME is not supported yet"
            raise _refusal(node, message, hint, sql, expression)


def _named(node: exp.Expr) -> str:
    function = node.this if isinstance(node, exp.Window) else node
    return f", {function.sql_name()}," if isinstance(function, exp.AggFunc) else ""


def _refusal(
    node: exp.Expr, message: str, hint: str, sql: str, whole: exp.Expr
) -> SqlUnsupportedError:
    line, column = place_of(node, sql)
    if not line:
        line, column = place_of(whole, sql)
    return SqlUnsupportedError(message, sql=sql, line=line, column=column, hint=hint)

"""Refusals: what SQL can say and Millstream cannot answer yet, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlSyntaxError, SqlUnsupportedError
from millstream.sql.positions import place_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ORDER = "A SELECT goes FROM, JOIN, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, in this order."
_GROUP = "Only a SELECT has it; run one with db.query(), and use its result."

CLAUSES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER"), ("a join", _ORDER)),
    **dict.fromkeys(("CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "USING"), ("a join", _ORDER)),
    "LATERAL": ("LATERAL", _ORDER),
    "GROUP": ("GROUP BY", _ORDER),
    "HAVING": ("HAVING", _ORDER),
    "WINDOW": ("WINDOW", _ORDER),
    "QUALIFY": ("QUALIFY", _ORDER),
    "PIVOT": ("PIVOT", _ORDER),
    "UNPIVOT": ("UNPIVOT", _ORDER),
    "ORDER": ("ORDER BY", _ORDER),
    "SORT": ("SORT BY", _ORDER),
    "CLUSTER": ("CLUSTER BY", _ORDER),
    "DISTRIBUTE": ("DISTRIBUTE BY", _ORDER),
    "UNION": ("UNION", _ORDER),
    "INTERSECT": ("INTERSECT", _ORDER),
    "EXCEPT": ("EXCEPT", _ORDER),
    "MINUS": ("MINUS", _ORDER),
    "OFFSET": ("OFFSET", _ORDER),
    "FETCH": ("FETCH", _ORDER),
    "TABLESAMPLE": ("TABLESAMPLE", "Write a condition on a column, such as id % 10 = 0."),
    "FOR": ("FOR", "Leave it out; a SELECT reads the newest rows, and locks nothing."),
    "EMIT": ("EMIT", "Write EMIT CHANGES, ON WINDOW CLOSE, EVERY ... or FINAL after a SELECT."),
    "RETURNING": ("RETURNING", "Leave it out; the result says how many rows were changed."),
}
"""The first word of each clause that is refused: what it is called, and what to do instead."""

_STATEMENT = "Write it as a statement of its own."
_COLLECTION = "A parameter that is a list stands in IN (?), or is the value of an INSERT."
_NODES: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Query, "a subquery", "Run it first, and write its result into this statement."),
    (exp.Window, "a window function", _GROUP),
    (exp.WithinGroup, "an aggregate", _GROUP),
    (exp.Filter, "an aggregate", _GROUP),
    (exp.AggFunc, "an aggregate", _GROUP),
    (exp.Aliases, "a list of aliases", "Give each expression one alias: AS name."),
    (exp.Command, "a command", _STATEMENT),
    (exp.Placeholder, "a list or dict here", _COLLECTION),
)
_NEVER: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Into, "SELECT INTO", "Leave INTO out."),
    (exp.TableSample, "TABLESAMPLE", "Write a condition on a column, such as id % 10 = 0."),
    (exp.Lock, "FOR UPDATE", "Leave it out; a SELECT reads the newest rows, and locks nothing."),
    (exp.Command, "a command", _STATEMENT),
    (exp.Placeholder, "a list or dict here", _COLLECTION),
)
_REFUSED: tuple[type[exp.Expr], ...] = (exp.Star, *(kind for kind, _, _ in _NODES))
_PART_NAMES = {
    "laterals": "LATERAL VIEW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "grouping_sets": "GROUPING SETS",
    "with_": "WITH",
    "by_name": "UNION BY NAME",
    "method": "NATURAL",
    "windows": "WINDOW",
    "expressions": "an argument",
    "db": "a name of two parts",
    "kind": "SELECT AS",
    "version": "FOR SYSTEM_TIME",
}
_PART_HINTS = {
    "version": "Write AS OF at the end: all that the statement reads is read as it was.",
    "laterals": "Store one row for each element, and select from those.",
    "sort": "Write ORDER BY.",
    "cluster": "Write ORDER BY.",
    "distribute": "Leave it out.",
    "qualify": "Use a subquery, and filter around it.",
    "pivots": "Write SUM(x) FILTER (WHERE column = value) for each column.",
    "rollup": "Write one SELECT for each level, with UNION ALL between.",
    "cube": "Write one SELECT for each level, with UNION ALL between.",
    "grouping_sets": "Write one SELECT for each level, with UNION ALL between.",
    "alias": "Write the window itself after OVER.",
    "windows": "Write the window itself after OVER.",
    "method": "Write JOIN ... ON, or USING.",
    "db": "Name the source, table or view itself.",
    "recursive": "Leave RECURSIVE out, if no query in WITH reads itself.",
}


def check_expression(expression: exp.Expr, sql: str) -> None:
    """Refuse an expression with a part that needs more than one row, or another query.

    Raises:
        SqlUnsupportedError: at the place of that part.
    """
    for node in expression.walk(bfs=False):
        _check_arguments(node, sql, expression)
        if not isinstance(node, _REFUSED):
            continue
        for kind, what, hint in _NODES:
            if isinstance(node, kind):
                message = f"{what}{_named(node, sql)} is not supported yet"
                raise _refusal(node, message, hint, sql, expression)
        if isinstance(node, exp.Star) and any(node.args.values()):
            hint = "Write * alone, or name the columns."
            message = "* with EXCEPT, REPLACE or RENAME is not supported yet"
            raise _refusal(node, message, hint, sql, expression)


def check_query(tree: exp.Query, sql: str) -> None:
    """Refuse what no query may have.

    Raises:
        SqlUnsupportedError: a SELECT INTO, a function after FROM.
        SqlSyntaxError: the name of a table with a schema before it.
    """
    for node in tree.walk(bfs=False):
        _check_arguments(node, sql, tree)
        if isinstance(node, exp.Aliases) and not isinstance(node.this, exp.Func):
            hint = "Give each expression one alias: AS name."
            raise _refusal(node, "a list of aliases is not supported here", hint, sql, tree)
        for kind, what, hint in _NEVER:
            if isinstance(node, kind):
                raise _refusal(node, f"{what} is not supported yet", hint, sql, tree)
        if isinstance(node, exp.Table):
            _check_table(node, sql, tree)


def check_parts(tree: exp.Expr, known: set[str], where: str, sql: str) -> None:
    """Refuse a tree with a part that is not among those that are known.

    Args:
        tree: a clause of a query.
        known: the names of the parts that its planner reads; to pass over another would change the
            meaning.
        where: what the clause is called in the message.
        sql: the text that the tree is of.

    Raises:
        SqlUnsupportedError: at the place of that part.
    """
    for name, part in tree.args.items():
        if part and name not in known:
            first = part[0] if isinstance(part, list) else part
            word = _PART_NAMES.get(name, name.rstrip("_").replace("_", " ").upper())
            hint = _PART_HINTS.get(name, "Leave it out, or rewrite the query without.")
            at = first if isinstance(first, exp.Expr) else tree
            raise _refusal(at, f"{word} is not supported in {where}", hint, sql, at)


def _check_arguments(node: exp.Expr, sql: str, whole: exp.Expr) -> None:
    """Refuse YEAR(), which the parser reads as the year of nothing."""
    if isinstance(node, exp.Func) and any(
        needed and node.args.get(name) is None for name, needed in node.arg_types.items()
    ):
        line, column = place_of(node, sql)
        if not line:
            line, column = place_of(node.parent or whole, sql)
        raise SqlSyntaxError(
            "a function has too few arguments",
            sql=sql,
            line=line,
            column=column,
            hint="Write the ones that are missing.",
        )


def _check_table(table: exp.Table, sql: str, whole: exp.Expr) -> None:
    if not isinstance(table.this, exp.Identifier):
        hint = "Name a source, a table or a view after FROM."
        raise _refusal(table, "a function after FROM is not supported yet", hint, sql, whole)
    if table.args.get("db"):
        line, column = place_of(table, sql)
        raise SqlSyntaxError(
            "the name of a source or table has one part, with no schema before it",
            sql=sql,
            line=line,
            column=column,
            hint=f'If the point belongs to the name, write "{table.db}.{table.name}".',
        )


def tables_of(tree: exp.Query) -> tuple[str, ...]:
    """Return what a query reads, each once, as first written; common table expressions are not.

    >>> from sqlglot import parse_one
    >>> tables_of(parse_one("WITH a AS (SELECT * FROM t) SELECT * FROM a JOIN T JOIN u"))
    ('t', 'u')
    """
    names: dict[str, str] = {}
    tables = [table for table in tree.find_all(exp.Table) if common_of(table) is None]
    for table in sorted(tables, key=lambda table: table.this.meta.get("start", 0)):
        names.setdefault(table.name.lower(), table.name)
    return tuple(names.values())


def common_of(table: exp.Table) -> exp.CTE | None:
    """Return the common table expression that a name stands for; None when it is a log's."""
    inner: exp.Expr = table
    within: exp.CTE | None = None
    while inner.parent is not None:
        inner = inner.parent
        if isinstance(inner, exp.CTE):
            within = inner
        found = _common_in(inner, table.name.lower(), within)
        if found is not None:
            return found
        if isinstance(inner, exp.Query):
            within = None
    return None


def _common_in(query: exp.Expr, name: str, within: exp.CTE | None) -> exp.CTE | None:
    for common in query.ctes if isinstance(query, exp.Query) else []:
        if common is within:  # it sees those before it, not itself
            return None
        if common.alias.lower() == name:
            return common
    return None


def _named(node: exp.Expr, sql: str) -> str:
    function = node.this if isinstance(node, exp.Window) else node
    return f", {words_of(function, sql, None)}," if isinstance(function, exp.AggFunc) else ""


def _refusal(
    node: exp.Expr, message: str, hint: str, sql: str, whole: exp.Expr
) -> SqlUnsupportedError:
    line, column = place_of(node, sql)
    if not line:
        line, column = place_of(whole, sql)
    return SqlUnsupportedError(message, sql=sql, line=line, column=column, hint=hint)

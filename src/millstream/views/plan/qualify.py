"""QUALIFY over groups: what it needs of them is selected below, and a condition above.

Spark takes functions over aggregates in QUALIFY only if they are selected, too.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from millstream.views.plan.functions import has_aggregate, is_aggregate
from millstream.views.plan.trees import alias, column, nested, select

_HIDDEN: Final = "_q"
_OUTSIDE: Final = ("order", "limit", "offset", "with_")
"""The parts of a query that stay with the condition."""


def rewrite_qualify(tree: exp.Query) -> exp.Query:
    """Return a query with a subquery in place of each QUALIFY that has aggregates of its own."""
    for query in reversed(list(tree.find_all(exp.Select))):
        if not _must(query):
            continue
        condition = query.args["qualify"].this
        query.set("qualify", None)
        tree = lifted(tree, query, condition)
    return tree


def has_names(query: exp.Select) -> bool:
    """Whether another query can select the columns of this one, in its order, by their names."""
    names = [each.alias_or_name.lower() for each in query.expressions]
    order = query.args.get("order")
    sorts = [each.this for each in order.expressions] if order else []
    by_name = all(isinstance(each, exp.Column) and each.name.lower() in names for each in sorts)
    return by_name and all(names) and not any(each.is_star for each in query.expressions)


def _must(query: exp.Select) -> bool:
    """Whether a condition has aggregates that are not selected, and the columns have names."""
    qualify = query.args.get("qualify")
    if qualify is None or query.args.get("distinct") or query.args.get("windows"):
        return False
    items = [each.unalias() for each in query.expressions]
    needed = [each for each in _parts(qualify.this) if has_aggregate(each)]
    return has_names(query) and any(each not in items for each in needed)


def lifted(tree: exp.Query, query: exp.Select, condition: exp.Expr) -> exp.Query:
    """Return a tree with a condition on the groups of a query in it as one on its rows.

    Args:
        tree: the tree.
        query: the query, whose columns have names.
        condition: over its columns, aggregates and keys.
    """
    made = _above(query, condition.copy())
    if query is tree:
        return made
    query.replace(made)
    return tree


def _above(query: exp.Select, condition: exp.Expr) -> exp.Select:
    """A query over another one, whose columns it selects where a condition holds."""
    inner = query.copy()
    names = [each.alias_or_name for each in inner.expressions]
    known, hidden = {name.lower() for name in names}, list[exp.Expr]()
    for part in list(_parts(condition)):
        if isinstance(part, exp.Column) and not part.table and part.name.lower() in known:
            continue
        name = f"{_HIDDEN}{len(hidden)}"
        hidden.append(alias(part.copy(), name))
        if part is condition:
            condition = column(name)
        else:
            part.replace(column(name))
    for each in hidden:
        inner.append("expressions", each)
    outside = {name: inner.args[name] for name in _OUTSIDE if inner.args.get(name) is not None}
    for name in outside:
        inner.set(name, None)
    made = select([column(name) for name in names], nested(inner), condition)
    for name, clause in outside.items():
        made.set(name, clause)
    return made


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    """What a condition is computed from: functions over rows, aggregates, and columns."""
    found: list[exp.Expr] = []

    def is_part(each: exp.Expr) -> bool:
        taken = isinstance(each, exp.Window | exp.Column | exp.Query) or is_aggregate(each)
        if taken and not isinstance(each, exp.Query):
            found.append(each)
        return taken

    for _ in condition.walk(prune=is_part):
        pass
    return found

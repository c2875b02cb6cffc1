"""ORDER BY of a view: by which of its columns its current rows are sorted when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.plan import SortKey

if TYPE_CHECKING:
    from millstream.sql.views.errors import ErrorReporter

_NAMED = (exp.Alias, exp.Column, exp.Dot)
_HINT = "Select it, and name that column; or write ORDER BY in the query that reads the view."


def order_of(tree: exp.Query, errors: ErrorReporter) -> tuple[SortKey, ...]:
    """Return the order of a query's rows; empty when it has none.

    Args:
        tree: the query, as it was read.
        errors: raises errors.

    Raises:
        SqlUnsupportedError: the order is by what is no column of the result. With LIMIT it says
            which rows these are, and they have no order.
    """
    while isinstance(tree, exp.Subquery) and not tree.args.get("order"):
        tree = tree.this
    order = tree.args.get("order")
    if order is None:
        return ()
    keys = []
    for item in order.expressions:
        column = _column(item.this, _items(tree))
        if column is None:
            if tree.args.get("limit") is not None:
                return ()
            errors.refuse(item, "a view is ordered by its columns, and this is none of them", _HINT)
        descending = bool(item.args.get("desc"))
        nulls_first = bool(item.args.get("nulls_first"))
        keys.append(SortKey(column, descending, nulls_first))
    return tuple(keys)


def _items(tree: exp.Expr) -> list[exp.Expr]:
    """The items of the SELECT that names a query's columns."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree.expressions if isinstance(tree, exp.Select) else []


def _column(tree: exp.Expr, items: list[exp.Expr]) -> str | int | None:
    """The column that ORDER BY names, by its name or its place; None when it is no column.

    As for Spark, a name is first of all that of a column of the result.
    """
    if isinstance(tree, exp.Literal) and tree.is_int:
        return int(tree.this) - 1
    names = [_name(each) for each in items]
    if isinstance(tree, exp.Column) and not tree.table and tree.name.lower() in names:
        return tree.name
    has_star = any(each.is_star for each in items)
    for place, (item, name) in enumerate(zip(items, names, strict=True)):
        if _is_same(tree, item.unalias()) and (name or not has_star):
            return name or place
    return tree.name if has_star and isinstance(tree, exp.Column) else None


def _name(item: exp.Expr) -> str:
    """The name that the query gives a column, in small letters; empty when it gives none."""
    inner = item.unnest()
    return inner.alias_or_name.lower() if isinstance(inner, _NAMED) else ""


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two expressions are the same; a column need not name its table."""
    one, other = one.unnest(), other.unnest()
    if not (isinstance(one, exp.Column) and isinstance(other, exp.Column)):
        return bool(one == other)
    tables = {one.table.lower(), other.table.lower()} - {""}
    return one.name.lower() == other.name.lower() and len(tables) < 2

"""ORDER BY of a view: by which of its columns its current rows are sorted when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.views.plan.functions import has_aggregate
from millstream.views.plan.plan import SortKey
from millstream.views.plan.trees import alias, closed, nested, select

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter

_NAMED = (exp.Alias, exp.Column, exp.Dot)
_HIDDEN: Final = "_o"
_HINT = "Select it, and name that column; or write ORDER BY in the query that reads the view."


def order_of(
    tree: exp.Query, errors: ErrorReporter, *, hide: bool
) -> tuple[exp.Query, tuple[SortKey, ...]]:
    """Return a query and the order of its rows; empty when it has none.

    What it is ordered by is a column of the result, or becomes a hidden one.

    Args:
        tree: the query, as it was read.
        errors: raises errors.
        hide: whether there may be hidden columns; else such an order is none.

    Raises:
        SqlUnsupportedError: the order is by what the query cannot show.
    """
    query: exp.Query = tree
    while isinstance(query, exp.Subquery) and not query.args.get("order"):
        query = query.this
    order = query.args.get("order")
    if order is None:
        return tree, ()
    columns = [_column(item.this, _items(query)) for item in order.expressions]
    wanted = [item for item, name in zip(order.expressions, columns, strict=True) if name is None]
    # With LIMIT the order says which rows these are, and they have none; one row has none, either.
    if wanted and (not hide or query.args.get("limit") is not None or _is_one_row(query)):
        return tree, ()
    if wanted:
        tree = _with_hidden(query, wanted, errors)
    names = iter(range(len(wanted)))
    keys = [
        SortKey(
            f"{_HIDDEN}{next(names)}" if name is None else name,
            bool(item.args.get("desc")),
            bool(item.args.get("nulls_first")),
        )
        for item, name in zip(order.expressions, columns, strict=True)
    ]
    return tree, tuple(keys)


def hidden_of(order: tuple[SortKey, ...]) -> tuple[str, ...]:
    """The names of the hidden columns of an order."""
    names = [each.column for each in order if isinstance(each.column, str)]
    return tuple(name for name in names if name[:2] == _HIDDEN and name[2:].isdigit())


def _is_one_row(query: exp.Expr) -> bool:
    grouped = query.args.get("group") is not None
    return isinstance(query, exp.Select) and not grouped and any(map(has_aggregate, _items(query)))


def _with_hidden(query: exp.Query, wanted: list[exp.Expr], errors: ErrorReporter) -> exp.Query:
    """A query that gives, besides its columns, what it is ordered by."""
    group = query.args.get("group")
    if group is not None and group.args.get("all"):
        # What is selected would be one more key.
        errors.refuse(wanted[0], "a view is ordered by its columns, and this is none", _HINT)
    for item in _items(query):
        if item.alias_or_name.lower() in {f"{_HIDDEN}{n}" for n in range(len(wanted))}:
            what = f"the name {item.alias_or_name} is kept for Millstream's own column"
            errors.no_column(item, what, "Give it another name.")
    named = {_name(each): each.unalias() for each in _items(query) if isinstance(each, exp.Alias)}
    made = [alias(_resolved(item.this, named), f"{_HIDDEN}{n}") for n, item in enumerate(wanted)]
    if isinstance(query, exp.Select) and not query.args.get("distinct"):
        for each in made:
            query.append("expressions", each)
        return query
    # Of distinct rows and of set operations, the order is by what is over their columns.
    bare = query.copy()
    bare.set("order", None)
    plain = [alias(item.this.copy(), f"{_HIDDEN}{n}") for n, item in enumerate(wanted)]
    return select([exp.Star(), *plain], nested(bare))


def _resolved(tree: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """An expression of ORDER BY with what its names stand for: first those of the result."""

    def meaning(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and not each.table and each.name.lower() in named:
            return closed(named[each.name.lower()])
        return each

    return tree.copy().transform(meaning)


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

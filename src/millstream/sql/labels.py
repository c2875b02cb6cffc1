"""Labels: what PostgreSQL calls the columns of a query, several of which may have one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.types import parse_type
from millstream.sql.dialect import WRITTEN
from millstream.sql.statements.parameters import CALLED
from millstream.sql.statements.statement import Query, Select

if TYPE_CHECKING:
    from collections.abc import Sequence

UNNAMED: Final = "?column?"
_TYPES: Final = {
    "BOOLEAN": "bool",
    "TINYINT": "int2",
    "SMALLINT": "int2",
    "INTEGER": "int4",
    "BIGINT": "int8",
    "REAL": "float4",
    "DOUBLE": "float8",
    "DECIMAL": "numeric",
    "VARCHAR": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "INTERVAL": "interval",
}
_NAMED_INSIDE: Final = (
    *(exp.Cast, exp.Bracket, exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls),
)
_OPERATORS: Final = (exp.Binary, exp.Unary, exp.Interval, exp.Between, exp.In)


def labels_of(statement: Select | Query, names: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of the columns of a query.

    >>> from millstream.sql import parse
    >>> [query] = parse("SELECT COUNT(*), n, 1 + 1, CAST(n AS BIGINT) FROM t GROUP BY n")
    >>> labels_of(query, ["_c0", "n", "_c2", "_c3"])
    ('count', 'n', '?column?', 'n')

    Args:
        statement: the query.
        names: what we call them: by their place, if they have no name.
    """
    unnamed = [place for place, name in enumerate(names) if name == f"_c{place}"]
    if not unnamed:
        return tuple(names)
    items = _items(statement)
    made = list(names)
    for place in unnamed:
        made[place] = UNNAMED
        item = _item(items, place, len(names))
        if item is not None:
            made[place] = item.alias if isinstance(item, exp.Alias) else label(item) or UNNAMED
    return tuple(made)


def _items(statement: Select | Query) -> Sequence[exp.Expr]:
    if isinstance(statement, Select):
        return statement.items
    tree: exp.Expr = statement.tree
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree.expressions if isinstance(tree, exp.Select) else ()


def _item(items: Sequence[exp.Expr], place: int, count: int) -> exp.Expr | None:
    """The item of a column; None if stars hide which it is."""
    stars = [at for at, each in enumerate(items) if each.is_star]
    if not stars or place < stars[0]:
        return items[place] if place < len(items) else None
    from_end = place - count
    return items[from_end] if from_end > stars[-1] - len(items) else None


def label(tree: exp.Expr) -> str:
    """Return what an expression is called; empty if it has no name."""
    if tree.meta.get(CALLED):
        return str(tree.meta[CALLED])
    tree = tree.unnest()
    if isinstance(tree, exp.Column | exp.Dot):
        return tree.name
    if isinstance(tree, _NAMED_INSIDE):
        return label(tree.this) or (_type(tree) if isinstance(tree, exp.Cast) else "")
    if isinstance(tree, exp.Subquery):
        inner = tree.this.expressions
        return inner[0].alias_or_name or label(inner[0]) if inner else ""
    return _function(tree)


def _function(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous):
        return tree.name.lower()
    if isinstance(tree, exp.Func) and not isinstance(tree, _OPERATORS):
        return str(tree.meta.get(WRITTEN) or tree.sql_name()).lower()
    return ""


def _type(tree: exp.Cast) -> str:
    try:
        return _TYPES.get(parse_type(tree.to.sql(dialect="spark")).kind, "")
    except SchemaError:
        return ""

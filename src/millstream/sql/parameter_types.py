"""Which types the parameters of a statement have, as far as their places say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.types import BIGINT, VARCHAR, SqlType, parse_type
from millstream.sql.statements.statement import Delete, Insert, Query, Select, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.model.schema import Schema
    from millstream.sql.statements.statement import Statement

    SchemaOf = Callable[[str], Schema | None]

_PAIRS: Final = (exp.Predicate, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_TEXTS: Final = (exp.Like, exp.ILike, exp.RegexpLike, exp.Lower, exp.Upper, exp.Concat, exp.DPipe)


def parameter_types(statement: Statement, schema_of: SchemaOf) -> dict[int, SqlType]:
    """The types of the parameters of a statement, by their offsets; those unknown are left out.

    A value takes the type of the column that it is compared with or stored in, or of its CAST.

    Args:
        statement: parsed with any values, such as NULLs.
        schema_of: the columns of a relation; None when there is none of that name.
    """
    found: dict[int, SqlType] = {}
    columns = _columns(statement, schema_of)
    for tree, of in _stored(statement, schema_of):
        offset = _offset(tree, statement.sql)
        if offset is not None and of is not None:
            found[offset] = of
    for root in _roots(statement):
        for node in root.walk():
            offset = _offset(node, statement.sql)
            if offset is None or offset in found:
                continue
            of = _by_place(node, columns)
            if of is not None:
                found[offset] = of
    return found


def selected_parameters(statement: Statement) -> set[int]:
    """The offsets of the parameters that a query gives back as they are: in PostgreSQL, texts."""
    items = statement.items if isinstance(statement, Select) else ()
    if isinstance(statement, Query):
        selects = statement.tree.find_all(exp.Select)
        items = tuple(item for each in selects for item in each.expressions)
    found = (_offset(item.unalias(), statement.sql) for item in items)
    return {offset for offset in found if offset is not None}


def _columns(statement: Statement, schema_of: SchemaOf) -> dict[str, SqlType]:
    """The columns that a statement can name; of two with one name, the first."""
    target = getattr(statement, "target", None)
    names = statement.tables if isinstance(statement, Query) else (target,) if target else ()
    made: dict[str, SqlType] = {}
    for name in names:
        schema = schema_of(name)
        for column in schema.columns if schema else ():
            made.setdefault(column.name.lower(), column.type)
    return made


def _stored(statement: Statement, schema_of: SchemaOf) -> Iterator[tuple[exp.Expr, SqlType | None]]:
    """The values that INSERT and UPDATE store, and the types of their columns."""
    schema = schema_of(getattr(statement, "target", ""))
    if schema is None:
        return
    types = {column.name.lower(): column.type for column in schema.columns}
    if isinstance(statement, Insert):
        names = statement.columns or schema.names
        for row in statement.values:
            for name, tree in zip(names, row, strict=False):
                yield tree, types.get(name.lower())
    elif isinstance(statement, Update):
        for name, tree in statement.assignments:
            yield tree, types.get(name.lower())


def _roots(statement: Statement) -> Iterator[exp.Expr]:
    if isinstance(statement, Query):
        yield statement.tree
    if isinstance(statement, Select):
        yield from statement.items
    if isinstance(statement, Insert):
        for row in statement.values:
            yield from row
    if isinstance(statement, Update):
        for _, tree in statement.assignments:
            yield tree
    if isinstance(statement, Select | Update | Delete) and statement.where is not None:
        yield statement.where


def _offset(node: exp.Expr, sql: str) -> int | None:
    """Where a parameter, ``?`` or ``:name``, stands; None for anything else."""
    start = node.meta.get("start")
    is_mark = isinstance(start, int) and start < len(sql) and sql[start] in "?:"
    return start if is_mark else None


def _by_place(node: exp.Expr, columns: dict[str, SqlType]) -> SqlType | None:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Cast):
        return _cast_type(parent)
    if isinstance(parent, _TEXTS):
        return VARCHAR
    if isinstance(parent, exp.Limit | exp.Offset):
        return BIGINT
    if isinstance(parent, _PAIRS):
        others = [each for each in _operands(parent) if each is not node]
        known = (_type_of(each, columns) for each in others)
        return next((each for each in known if each is not None), None)
    return None


def _operands(parent: exp.Expr) -> Iterator[exp.Expr]:
    for value in parent.args.values():
        held: list[Any] = value if isinstance(value, list) else [value]
        for each in held:
            if isinstance(each, exp.Expr):
                yield each


def _type_of(tree: exp.Expr, columns: dict[str, SqlType]) -> SqlType | None:
    if isinstance(tree, exp.Paren):
        return _type_of(tree.this, columns)
    if isinstance(tree, exp.Column):
        return columns.get(tree.name.lower())
    if isinstance(tree, exp.Cast):
        return _cast_type(tree)
    if isinstance(tree, exp.Count):
        return BIGINT
    if isinstance(tree, _TEXTS) or (isinstance(tree, exp.Literal) and tree.is_string):
        return VARCHAR
    return None


def _cast_type(cast: exp.Cast) -> SqlType | None:
    try:
        return parse_type(cast.to.sql(dialect="spark"))
    except SchemaError:
        return None

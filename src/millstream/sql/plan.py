"""Plans: statements bound to a schema, with their expressions compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from millstream.errors import Error, SqlColumnError
from millstream.model.schema import Column, Schema
from millstream.model.types import BOOLEAN
from millstream.sql.dialect import Millstream
from millstream.sql.expr.bind import Binder
from millstream.sql.expr.comparisons import comparison
from millstream.sql.expr.compiled import Predicate, Projection
from millstream.sql.expr.kinds import is_float
from millstream.sql.expr.nodes import (
    Among,
    Call,
    ColumnRef,
    Literal,
    Node,
    conjunction,
    conjuncts,
)

if TYPE_CHECKING:
    from millstream.sql.statements import Insert, Select, Update

Equality = tuple[int, frozenset[Any]]


@dataclass(frozen=True, slots=True)
class SelectPlan:
    """A SELECT that is ready to run.

    Attributes:
        target: what it selects from.
        schema: the columns of the result; with the target's key if all of it is selected.
        predicate: which rows are kept; None for all.
        projection: what is made of them; None when they stay as they are.
        limit: how many rows at most; None for all.
        equality: a column of the input and the values that it must have, so that many such plans
            can be found by a lookup; None when the WHERE does not say so.
        residual: what remains of the WHERE once the equality is known to hold.
        fingerprint: equal for equal plans, and for them only.
    """

    target: str
    schema: Schema
    predicate: Predicate | None
    projection: Projection | None
    limit: int | None
    equality: Equality | None
    residual: Predicate | None
    fingerprint: str


def plan_select(
    select: Select, schema: Schema, *, extra: tuple[str, Any] | None = None
) -> SelectPlan:
    """Return the plan of a SELECT from something of the given schema.

    Args:
        select: the statement.
        schema: the columns of what it selects from.
        extra: a column and the value that it must have, besides what the WHERE says.
    """
    binder = Binder(schema, select.sql, select.alias or select.target)
    parts = [] if select.where is None else conjuncts(binder.bind_boolean(select.where))
    if extra is not None:
        parts.insert(0, _equals(schema, *extra))
    equality, rest = _split(parts)
    whole, residual = conjunction(parts), conjunction(rest)
    projection = _projection(binder, select, schema)
    text = f"SELECT {projection.sql} FROM {select.target.lower()}"
    if whole is not None:
        text += f" WHERE {whole.sql}"
    if select.limit is not None:
        text += f" LIMIT {select.limit}"
    predicate = None if whole is None else Predicate(whole)
    if residual is None:
        remaining = None
    else:
        remaining = predicate if equality is None else Predicate(residual)
    return SelectPlan(
        select.target,
        projection.schema,
        predicate,
        None if projection.is_identity else projection,
        select.limit,
        equality,
        remaining,
        text,
    )


def plan_where(
    where: exp.Expr | None, schema: Schema, sql: str = "", *, alias: str | None = None
) -> Predicate | None:
    """Return the predicate of a WHERE; None when there is none."""
    return None if where is None else Predicate(Binder(schema, sql, alias).bind_boolean(where))


def where_of(sql: str, schema: Schema) -> Predicate:
    """Return the predicate of a text.

    >>> predicate = where_of("price > 100.0 AND symbol = 'AAPL'",
    ...                      Schema.of(symbol="VARCHAR", price="DOUBLE"))
    >>> predicate.places([("AAPL", 99.0), ("AAPL", 101.0), ("MSFT", 101.0), (None, None)])
    [1]
    """
    tree = sqlglot.parse_one(sql, dialect=Millstream)
    return Predicate(Binder(schema, sql, None).bind_boolean(tree))


# --- WHERE ----------------------------------------------------------------------------------------


def _equals(schema: Schema, name: str, value: Any) -> Node:
    for place, column in enumerate(schema.columns):
        if column.name.lower() == name.lower():
            left = ColumnRef(place, column.name, column.type, column.nullable)
            right = Literal(column.type.check(value), column.type)
            op = comparison("=", column.type, number_on_the_right=True)
            return Call(op, (left, right), BOOLEAN)
    raise SqlColumnError(
        f"there is no column {name}", hint=f"The columns are {', '.join(schema.names)}."
    )


def _split(parts: list[Node]) -> tuple[Equality | None, list[Node]]:
    """Return the first equality of a conjunction and the parts that remain.

    The search ends at a part that can raise: to look up what comes after it would skip it.
    """
    for place, part in enumerate(parts):
        found = _equality(part)
        if found is not None:
            return found, parts[:place] + parts[place + 1 :]
        if part.raises:
            break
    return None, parts


def _equality(part: Node) -> Equality | None:
    match part:
        case Call(op=op, args=(ColumnRef() as column, Literal(value=value))) if (
            op.sql == "{0} = {1}" and value is not None
        ):
            values = frozenset([value])
        case Among(arg=ColumnRef() as column, values=several):
            values = frozenset(several)
        case _:
            return None
    # Floats have a zero of either sign and a NaN that no dict finds.
    return None if is_float(column.type) else (column.index, values)


# --- Projections ----------------------------------------------------------------------------------


def _projection(binder: Binder, select: Select, schema: Schema) -> Projection:
    pairs: list[tuple[str, Node]] = []
    for item in select.items:
        pairs.extend(_item(binder, item, schema))
    nodes = [node for _, node in pairs]
    columns = []
    for name, node in pairs:
        columns.append(_output(binder, select, name, node))
    places = {node.index: name for name, node in reversed(pairs) if isinstance(node, ColumnRef)}
    key = [places.get(schema.names.index(name)) for name in schema.key]
    try:
        made = Schema(tuple(columns), tuple(key) if all(key) else ())  # type: ignore[arg-type]
    except Error as error:
        raise SqlColumnError(
            error.message, sql=select.sql, hint="Give one of them another name with AS."
        ) from error
    plain = [node.index if isinstance(node, ColumnRef) else -1 for node in nodes]
    identity = plain == list(range(len(schema.columns))) and made == schema
    return Projection(nodes, made, is_identity=identity)


def _item(binder: Binder, item: exp.Expr, schema: Schema) -> list[tuple[str, Node]]:
    if item.is_star:
        return [
            (column.name, ColumnRef(place, column.name, column.type, column.nullable))
            for place, column in enumerate(schema.columns)
        ]
    if isinstance(item, exp.Alias):
        return [(item.alias, binder.bind(item.this))]
    node = binder.bind(item)
    if isinstance(node, ColumnRef):
        return [(node.name, node)]
    name = item.name if isinstance(item, (exp.Column, exp.Dot)) else ""
    if not name:
        binder.error(
            SqlColumnError, item, "this column needs a name", "Write it as: expression AS name."
        )
    return [(name, node)]


def _output(binder: Binder, select: Select, name: str, node: Node) -> Column:
    if node.type.kind == "NULL":
        binder.mismatch(select.items[0], f"{name} is NULL of no type", "Write CAST(NULL AS INT).")
    try:
        return Column(name, node.type, nullable=node.nullable)
    except Error as error:
        raise SqlColumnError(error.message, sql=select.sql, hint=error.hint) from error


def plan_insert(insert: Insert, schema: Schema) -> list[tuple[Any, ...]]:
    """Return the rows of an INSERT, in the order of the schema's columns."""
    raise NotImplementedError


def plan_update(update: Update, schema: Schema) -> tuple[Predicate | None, Projection]:
    """Return which rows an UPDATE changes, and what it makes of them."""
    raise NotImplementedError

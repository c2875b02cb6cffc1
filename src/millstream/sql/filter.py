"""Filters: SELECT, INSERT and UPDATE of one log, bound to its schema, with compiled expressions."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.errors import Error, SchemaMismatchError, SqlColumnError, SqlTypeError
from millstream.model.schema import Column, Row, Schema
from millstream.model.types import BOOLEAN
from millstream.sql.expressions.bind import Binder, columns_of, struct_star
from millstream.sql.expressions.casts import assign, present, short
from millstream.sql.expressions.compiled import Predicate, Projection
from millstream.sql.expressions.conditions import comparison
from millstream.sql.expressions.fold import evaluate
from millstream.sql.expressions.nodes import (
    And,
    Call,
    ColumnRef,
    InList,
    Literal,
    Node,
    Value,
    conjuncts,
    joined,
)
from millstream.sql.expressions.type_rules import is_float
from millstream.sql.positions import place_at, place_of, place_of_second
from millstream.sql.statements.parameters import COLLECTION
from millstream.sql.statements.parse import parse_expression
from millstream.sql.statements.statement import Select

if TYPE_CHECKING:
    from millstream.model.types import SqlType
    from millstream.sql.statements.statement import Insert, Update

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
    """Return the plan of a SELECT from a log of the given schema.

    Args:
        select: the statement.
        schema: the columns of what it selects from.
        extra: a column and the value that it must have, besides what the WHERE says.
    """
    binder = Binder(schema, select.sql, select.alias or select.target)
    parts = [] if select.where is None else conjuncts(binder.bind_boolean(select.where))
    equality, rest = _split(parts)
    if extra is not None:
        rest, (equality, added) = parts, _extra(schema, *extra)
        parts = [added, *parts]
    condition = joined(And, parts) if parts else None
    projection = _projection(binder, select, schema)
    items = "*" if projection.is_identity else projection.sql
    text = f"SELECT {items} FROM {select.target.lower()}"  # noqa: S608 - for people only
    if condition is not None:
        text += f" WHERE {condition.sql}"
    if select.limit is not None:
        text += f" LIMIT {select.limit}"
    predicate = None if condition is None else Predicate(condition)
    remaining = predicate
    if equality is not None:
        remaining = Predicate(joined(And, rest)) if rest else None
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


def plan_all(target: str, schema: Schema, extra: tuple[str, Any] | None = None) -> SelectPlan:
    """Return the plan of ``SELECT * FROM target``, or of the rows whose column has a value.

    >>> plan_all("trades", Schema.of(symbol="VARCHAR")).predicate is None
    True
    """
    return plan_select(Select(target=target, items=(exp.Star(),)), schema, extra=extra)


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
    return Predicate(Binder(schema, sql, None).bind_boolean(parse_expression(sql)))


def plan_insert(insert: Insert, schema: Schema) -> list[Row]:
    """Return the rows of an INSERT, in the order of the schema's columns and in canonical form.

    Columns that the statement does not name are NULL.

    Raises:
        SqlColumnError: a column that is not there, or twice.
        SqlTypeError: a value that its column cannot take.
        RowError: a NULL in a column that is NOT NULL.
        ExpressionError: a value that cannot be computed.
    """
    binder = Binder(None, insert.sql, None)
    names = schema.names if insert.columns is None else insert.columns
    places = [_place(schema, name, insert) for name in names]
    _check_once([schema.names[place] for place in places], insert.sql)
    rows = []
    for number, trees in enumerate(insert.values):
        if len(trees) != len(places):
            line, column = place_of(trees[0], insert.sql)
            raise SqlTypeError(
                f"row {number} has {len(trees)} values for {len(places)} columns",
                sql=insert.sql,
                line=line,
                column=column,
                hint=f"The columns are {', '.join(schema.names[place] for place in places)}.",
            )
        row: list[Any] = [None] * len(schema.columns)
        for place, tree in zip(places, trees, strict=True):
            where = f"row {number}, column {schema.names[place]}"
            row[place] = evaluate(_stored(binder, tree, schema.columns[place].type, where))
        rows.append(tuple(row))
    return schema.check_rows(rows)


def plan_update(update: Update, schema: Schema) -> tuple[Predicate | None, Projection]:
    """Return which rows an UPDATE changes, and the projection to the new rows, with all columns.

    Raises:
        SqlColumnError: a column that is not there, or is assigned twice.
        SqlTypeError: a value that its column cannot take.
    """
    binder = Binder(schema, update.sql, update.target)
    nodes: list[Node] = list(columns_of(schema))
    places = [_place(schema, name, update) for name, _ in update.assignments]
    _check_once([schema.names[place] for place in places], update.sql)
    for place, (_, tree) in zip(places, update.assignments, strict=True):
        column = schema.columns[place]
        node = _stored(binder, tree, column.type, f"column {column.name}")
        if column.length is not None:
            node = short(node, column.length)
        nodes[place] = node if column.nullable else present(binder, tree, node, column.name)
    predicate = plan_where(update.where, schema, update.sql, alias=update.target)
    return predicate, Projection(nodes, schema)


def _stored(binder: Binder, tree: exp.Expr, of: SqlType, where: str) -> Node:
    """Return the value of a column, of the column's type."""
    if not isinstance(tree, exp.Placeholder):
        return assign(binder, tree, binder.bind(tree), of, where)
    try:  # a list or a dict, given as a parameter: there are no literals of these
        return Literal(of.check(tree.meta[COLLECTION]), of)
    except SchemaMismatchError as error:
        return binder.mismatch(tree, f"{where}: {error.message}", error.hint)


def _place(schema: Schema, name: str, statement: Insert | Update | None = None) -> int:
    folded = [each.lower() for each in schema.names]
    if name.lower() in folded:
        return folded.index(name.lower())
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    known = schema.names[folded.index(near[0])] if near else ""
    hint = f"Did you mean {known}?" if near else f"Available columns: {', '.join(schema.names)}."
    if statement is None:
        raise SqlColumnError(f"there is no column {name}", hint=hint)
    line, at = _where(name, statement)
    raise SqlColumnError(
        f"there is no column {name}", sql=statement.sql, line=line, column=at, hint=hint
    )


def _where(name: str, statement: Insert | Update) -> tuple[int, int]:
    """Where a statement names a column: the first place, after its target, with that word."""
    begin = statement.sql.find(statement.text)
    target = statement.sql.lower().find(statement.target.lower(), max(begin, 0))
    found = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE).search(
        statement.sql, max(target, 0) + len(statement.target)
    )
    return place_at(statement.sql, found.start()) if found else (0, 0)


def _check_once(names: list[str], sql: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SqlColumnError(f"the column {name} appears twice", sql=sql, hint="Name it once.")


# --- WHERE ----------------------------------------------------------------------------------------


def _extra(schema: Schema, name: str, value: Value) -> tuple[Equality, Node]:
    column = columns_of(schema)[_place(schema, name)]
    if is_float(column.type) or column.type.children:
        raise SqlTypeError(
            f"column {name} is {column.type.sql}, which cannot be compared exactly",
            hint="Use a column of text, integers, times or BOOLEAN.",
        )
    right = Literal(column.type.check(value), column.type)
    op = comparison("=", column.type, number_on_the_right=True)
    values = frozenset() if right.value is None else frozenset([right.value])
    return (column.index, values), Call(op, (column, right), BOOLEAN)


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
        case InList(arg=ColumnRef() as column, values=several):
            values = frozenset(several)
        case _:
            return None
    # Floats have a zero of either sign and a NaN that no dict finds.
    return None if is_float(column.type) else (column.index, values)


# --- Projections ----------------------------------------------------------------------------------


def _projection(binder: Binder, select: Select, schema: Schema) -> Projection:
    pairs: list[tuple[str, Node]] = []
    for item in select.items:
        pairs.extend(_item(binder, item, schema, len(pairs)))
    nodes = [node for _, node in pairs]
    columns = []
    for name, node in pairs:
        columns.append(_output(binder, select, name, node))
    places = {node.index: name for name, node in reversed(pairs) if isinstance(node, ColumnRef)}
    key = [places.get(schema.names.index(name)) for name in schema.key]
    try:
        made = Schema(tuple(columns), tuple(key) if all(key) else ())  # type: ignore[arg-type]
    except Error as error:
        line, at = place_of_second(select.items, select.sql)
        raise SqlColumnError(
            error.message,
            sql=select.sql,
            line=line,
            column=at,
            hint="Give one of them another name with AS.",
        ) from error
    # A query that names all the columns is not the same: it has no more when one is added later.
    only = select.items[0] if len(select.items) == 1 else None
    identity = only is not None and only.is_star and binder.is_whole(only)
    return Projection(nodes, made, is_identity=identity)


def _item(binder: Binder, item: exp.Expr, schema: Schema, place: int) -> list[tuple[str, Node]]:
    """Return the columns of an item, by name; one without a name has that of its place."""
    if item.is_star and not binder.is_whole(item):
        return struct_star(binder, item)
    if item.is_star:
        return [(column.name, column) for column in columns_of(schema)]
    if isinstance(item, exp.Alias):
        return [(item.alias, binder.bind(item.this))]
    node = binder.bind(item)
    if isinstance(node, ColumnRef):
        return [(node.name, node)]
    name = item.name if isinstance(item, (exp.Column, exp.Dot)) else ""
    return [(name or f"_c{place}", node)]


def _output(binder: Binder, select: Select, name: str, node: Node) -> Column:
    if node.type.kind == "NULL":
        binder.mismatch(select.items[0], f"{name} is NULL of no type", "Write CAST(NULL AS INT).")
    try:
        return Column(name, node.type, nullable=node.nullable)
    except Error as error:
        raise SqlColumnError(error.message, sql=select.sql, hint=error.hint) from error

"""Statements about one row, named by its key, whose values are all parameters; and a count of all.

``UPDATE items SET price = ? WHERE id = ?`` means the same each time it is run, whatever its
parameters are: so it need not be parsed, bound and compiled again. Only where each value is of the
very class that its column holds: then no type is converted, and nothing else could be meant.
``SELECT COUNT(*) FROM items`` has no values at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlglot import exp

from millstream.errors import SchemaMismatchError
from millstream.model.schema import Column, Schema
from millstream.model.types import BIGINT
from millstream.sql.filter import plan_select
from millstream.sql.statements.statement import Delete, Insert, Query, Select, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.sql.statements.parameters import ParameterValues
    from millstream.sql.statements.statement import Conflict, Statement

Slot = int | str
"""Where the value of a parameter is: a place in the list, or a name in the dict."""

_CLASSES: Final = {
    "TINYINT": int,
    "SMALLINT": int,
    "INTEGER": int,
    "BIGINT": int,
    "VARCHAR": str,
    "BOOLEAN": bool,
    "DOUBLE": float,
}
"""The types whose values in a statement are what Python has, and the class of those."""
_NAME: Final = re.compile(r":(\w+)")


_NOTHING: Final = Schema.of(nothing="BOOLEAN")


@dataclass(frozen=True, slots=True)
class Point:
    """A statement about one row, and where its values are; or a count of all rows.

    Attributes:
        kind: what it does.
        target: the relation, as the statement names it.
        schema: the columns of the relation when this was made.
        given: the columns that get a value (INSERT, UPDATE), by their places, and their slots.
        key: the columns of the key, in its order, and their slots; empty for an INSERT.
        selected: the places of the columns that a SELECT gives.
        result: the columns that a SELECT gives.
        conflict: what an INSERT does about a key that is there.
    """

    kind: Literal["select", "insert", "update", "delete", "count"]
    target: str
    schema: Schema
    given: tuple[tuple[int, Slot], ...] = ()
    key: tuple[tuple[int, Slot], ...] = ()
    selected: tuple[int, ...] = ()
    result: Schema = _NOTHING
    conflict: Conflict = "error"

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.kind in {"select", "count"}

    def values(
        self, columns: tuple[tuple[int, Slot], ...], parameters: ParameterValues
    ) -> list[Any] | None:
        """The values of some columns; None if one is of another class than the column's."""
        held: Any = parameters
        made = []
        for place, slot in columns:
            column, value = self.schema.columns[place].type, held[slot]
            if type(value) is not _CLASSES[column.kind]:
                return None
            try:
                made.append(column.check(value))
            except SchemaMismatchError:
                return None
        return made

    def takes(self, parameters: ParameterValues) -> bool:
        """Whether there is a value for each slot, and no other."""
        slots = {slot for _, slot in (*self.given, *self.key)}
        if parameters is None:
            return not slots
        if isinstance(parameters, dict):
            return parameters.keys() == slots
        return isinstance(parameters, (list, tuple)) and slots == set(range(len(parameters)))


def point_of(statement: Statement, schema: Schema) -> Point | None:
    """Return what a statement does to one row of a relation with these columns; None: more."""
    find = None if schema.is_nested else _POINTS.get(type(statement))
    made = None if find is None else find(statement, schema)
    if made is None:
        return None
    columns = [schema.columns[place].type for place, _ in (*made.given, *made.key)]
    known = all(each.kind in _CLASSES and each.sql == each.kind for each in columns)
    slots = [slot for _, slot in (*made.given, *made.key)]
    places = [each for each in slots if isinstance(each, int)]
    if not known or (places and len(places) < len(slots)):
        return None
    # The places in the list are those in the text: so far each slot is an offset of it.
    order: dict[Slot, Slot] = {offset: place for place, offset in enumerate(sorted(places))}
    return replace(
        made,
        given=tuple([(place, order.get(slot, slot)) for place, slot in made.given]),
        key=tuple([(place, order.get(slot, slot)) for place, slot in made.key]),
    )


def _insert(statement: Insert, schema: Schema) -> Point | None:
    if len(statement.values) != 1:
        return None
    names = schema.names if statement.columns is None else statement.columns
    given = _slots(zip(names, statement.values[0], strict=True), schema, statement.sql)
    if not given:
        return None
    return Point("insert", statement.target, schema, given, conflict=statement.conflict)


def _update(statement: Update, schema: Schema) -> Point | None:
    given = _slots(statement.assignments, schema, statement.sql)
    key = _key(statement.where, schema, statement.sql, statement.target)
    if not given or not key or dict(given).keys() & dict(key).keys():
        return None
    return Point("update", statement.target, schema, given, key)


def _delete(statement: Delete, schema: Schema) -> Point | None:
    key = _key(statement.where, schema, statement.sql, statement.target)
    return Point("delete", statement.target, schema, (), key) if key else None


def _select(statement: Select, schema: Schema) -> Point | None:
    alias = statement.alias or statement.target
    key = _key(statement.where, schema, statement.sql, alias)
    selected = _selected(statement, schema, alias)
    if not key or not selected or statement.live or statement.limit is not None:
        return None
    if statement.as_of is not None:
        return None
    result = plan_select(statement, schema).schema
    return Point("select", statement.target, schema, (), key, selected, result)


def _count(statement: Query, schema: Schema) -> Point | None:
    """COUNT(*) of all rows of one relation, and nothing else."""
    if statement.live or statement.emit is not None or statement.as_of is not None:
        return None
    tree = statement.tree
    said = {name for name, part in tree.args.items() if part}
    if not isinstance(tree, exp.Select) or said != {"expressions", "from_"}:
        return None
    table, items = tree.args["from_"].this, tree.expressions
    if not isinstance(table, exp.Table) or len(items) != 1 or table.args.get("joins"):
        return None
    counted = items[0].unalias()
    if not isinstance(counted, exp.Count) or not _is_star(counted.this):
        return None
    column = Column(items[0].alias or "_c0", BIGINT, nullable=False)
    return Point("count", statement.tables[0], schema, result=Schema((column,)))


_POINTS: Final[dict[type[Statement], Callable[[Any, Schema], Point | None]]] = {
    Insert: _insert,
    Update: _update,
    Delete: _delete,
    Select: _select,
    Query: _count,
}


def _slots(
    pairs: Iterable[tuple[str, exp.Expr]], schema: Schema, sql: str
) -> tuple[tuple[int, Slot], ...] | None:
    """The columns of some pairs, and the slots of the values; None if a value is no parameter."""
    made = []
    for name, tree in pairs:
        place, slot = _place(name, schema), _slot(tree, sql)
        if place is None or slot is None:
            return None
        made.append((place, slot))
    return tuple(made)


def _slot(tree: exp.Expr, sql: str) -> Slot | None:
    """The slot of a parameter: its name, or the offset of its ``?``; None if it is none."""
    start = tree.meta.get("start")
    if not isinstance(start, int):
        return None
    if sql[start] == "?":
        return start
    named = _NAME.match(sql, start)
    return named[1] if named else None


def _place(name: str, schema: Schema) -> int | None:
    folded = [each.lower() for each in schema.names]
    return folded.index(name.lower()) if folded.count(name.lower()) == 1 else None


def _key(
    where: exp.Expr | None, schema: Schema, sql: str, alias: str
) -> tuple[tuple[int, Slot], ...]:
    """The slots of the whole key, if WHERE says what it is and nothing else; else nothing."""
    found: dict[int, Slot] = {}
    parts = (
        [] if where is None else list(where.flatten()) if isinstance(where, exp.And) else [where]
    )
    for part in parts:
        if not isinstance(part, exp.EQ):
            return ()
        place, slot = _column(part.this, schema, alias), _slot(part.expression, sql)
        if place is None or slot is None or place in found:
            return ()
        found[place] = slot
    key = [schema.names.index(name) for name in schema.key]
    if not key or found.keys() != set(key):
        return ()
    if any(schema.columns[place].type.kind == "DOUBLE" for place in key):
        return ()  # a NaN equals a NaN in SQL
    return tuple((place, found[place]) for place in key)


def _column(tree: exp.Expr, schema: Schema, alias: str) -> int | None:
    if not isinstance(tree, exp.Column) or tree.args.get("db"):
        return None
    if tree.table and tree.table.lower() != alias.lower():
        return None
    return _place(tree.name, schema)


def _selected(statement: Select, schema: Schema, alias: str) -> tuple[int, ...]:
    """The places of the columns that a SELECT gives; nothing if it gives anything else."""
    if len(statement.items) == 1 and _is_star(statement.items[0]):
        return tuple(range(len(schema.columns)))
    places = [_column(item, schema, alias) for item in statement.items]
    found = [place for place in places if place is not None]
    return tuple(found) if len(found) == len(places) == len(set(found)) else ()


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) and not any(item.args.values())

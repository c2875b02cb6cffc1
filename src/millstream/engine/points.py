"""Runs statements about one row, and counts, again without parsing them: see ``sql.points``.

The values are parameters, or literals that are lifted out of the text: see ``sql.literals``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.engine import dml
from millstream.errors import Error
from millstream.model.batch import ChangeBatch
from millstream.model.result import Result
from millstream.sql import Delete, Insert, Query, Select, Update, parse, point_of
from millstream.sql.literals import is_plain, lift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.sql import ParameterValues, Point, Statement

_KEPT: Final = 1024
_ACTIONS: Final = {
    "insert": "INSERT",
    "update": "UPDATE",
    "delete": "DELETE",
    "select": "SELECT",
    "count": "SELECT",
}
_UNNAMED: Final = ("_c0",)
_COUNT: Final = ("count",)
P = TypeVar("P")


def remember(
    context: Context, statements: Sequence[Statement], parameters: ParameterValues
) -> None:
    """Keep what a text was found to do, if it is one statement about one row, or a count."""
    if context.tenant is not None or len(statements) != 1:
        return
    [statement] = statements
    target = getattr(statement, "target", "")
    if isinstance(statement, Query) and len(statement.tables) == 1:
        [target] = statement.tables
    definition = context.engine.catalog.get(target)
    if definition is None:
        return
    point = point_of(statement, definition.schema)
    if point is not None:
        _keep(context.engine.points, statement.sql, point)
    elif parameters is None and _may_be_point(statement):
        _remember_lifted(context, statement.sql, definition)


def _may_be_point(statement: Statement) -> bool:
    """Whether a statement is short enough to be one about one row, whose values are literals."""
    if isinstance(statement, Insert):
        return len(statement.values) == 1
    return isinstance(statement, Update | Delete | Select) and statement.where is not None


def _remember_lifted(context: Context, sql: str, definition: Definition) -> None:
    """Keep what a text does without its literals; None, if it must be parsed with them."""
    found, texts = lift(sql), context.engine.lifted
    if found is None:
        return
    text, values = found
    known = texts.get(text)
    if text in texts and (known is None or known.schema is definition.schema):
        return
    point = None
    if is_plain(text):
        try:
            [statement] = parse(text, values)
            point = point_of(statement, definition.schema)
        except Error:
            point = None
    _keep(texts, text, point if point is not None and point.takes(values) else None)


def _keep(points: dict[str, P], text: str, point: P) -> None:
    if len(points) >= _KEPT:
        points.clear()
    points[text] = point


def run(
    context: Context, sql: str, parameters: ParameterValues, *, reads: bool = False
) -> Result | None:
    """Run a text that was remembered; None if it was not, or must be parsed for these parameters.

    Args:
        context: what it runs in.
        sql: the text.
        parameters: its parameters.
        reads: whether it may only read.
    """
    if context.tenant is not None or type(sql) is not str:
        return None
    point = context.engine.points.get(sql)
    if point is None and parameters is None and (found := lift(sql)) is not None:
        text, parameters = found
        point = context.engine.lifted.get(text)
    if point is None or (reads and not point.reads) or not point.takes(parameters):
        return None
    definition = context.engine.catalog.get(point.target)
    if definition is None or definition.schema is not point.schema:
        return None
    if context.role != "admin":  # which may do all of them
        context.check(_ACTIONS[point.kind])
    key, given = point.values(point.key, parameters), point.values(point.given, parameters)
    if key is None or given is None:
        return None
    if point.kind == "insert":
        return _insert(context, definition, point, given)
    return _by_key(context, definition, point, tuple(key), given)


def _insert(context: Context, definition: Definition, point: Point, given: list[Any]) -> Result:
    row: list[Any] = [None] * len(point.schema.columns)
    for (place, _), value in zip(point.given, given, strict=True):
        row[place] = value
    rows = point.schema.check_rows([tuple(row)])
    batch = ChangeBatch(point.schema, rows, None, None)
    count = dml.insert_batches(context, definition, [batch], point.conflict)
    return context.done(f"INSERT {count}", count)


def _by_key(
    context: Context, definition: Definition, point: Point, key: tuple[Any, ...], given: list[Any]
) -> Result | None:
    tables = context.engine.tables
    if point.reads:
        table = tables.get(definition.name)
        if table is None or table.born != definition.born:
            return None
        lsn = context.engine.dispatcher.lsn  # what was committed before is in the table's rows
        table.check()
        if point.kind == "count":
            counted = Result.of_rows(point.result, [(len(table),)], lsn=lsn)
            if point.result.names == _UNNAMED:
                counted.labels = _COUNT
            return counted
        row = table.rows.get(key)
        found = [] if row is None else [tuple([row[place] for place in point.selected])]
        return Result.of_rows(point.result, found, lsn=lsn)
    definition.check_writable()
    if point.kind == "delete":
        count = tables.delete_row(definition, key)
        return context.done(f"DELETE {count}", count)
    values = {place: value for (place, _), value in zip(point.given, given, strict=True)}
    count = tables.update_row(definition, key, values)
    return context.done(f"UPDATE {count}", count)

"""Ways: which part of the engine answers a query. It is decided here, and nowhere else.

The first that can, of: the row of a SELECT without FROM; a filter and projection of one relation,
compiled; DuckDB, in process; a Spark batch, which can whatever a view can. All of them give the
answer that Spark has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from millstream.errors import JavaNotFoundError, SqlColumnError, SqlError, SqlUnsupportedError
from millstream.model.result import Result
from millstream.sql import Select, as_query
from millstream.sql.adhoc import constant_row, plan_adhoc
from millstream.sql.labels import labels_of
from millstream.views.plan.planner import plan_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.model.schema import Schema
    from millstream.sql import Query, SelectPlan
    from millstream.sql.adhoc import AdhocPlan, ConstantRow
    from millstream.views.planning import PlannedView

_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Way:
    """How a query is answered.

    Attributes:
        by: what answers it.
        lines: what EXPLAIN says of it.
        schema: gives the columns of the answer; a second one of a name has a number behind it. Only
            Spark knows those of a Spark batch, and may have to be started.
        rows: gives the rows: those of now, or of an LSN.
        query: the query.
        names: what it calls its columns, if several may have one name.
    """

    by: str
    lines: tuple[str, ...]
    schema: Callable[[], Schema]
    rows: Callable[[int | None], Result]
    query: Select | Query
    names: tuple[str, ...] = ()

    def labels(self) -> tuple[str, ...]:
        """What PostgreSQL calls the columns."""
        return labels_of(self.query, self.names or self.schema().names)

    def answer(self, moment: int | None) -> Result:
        """The answer: the rows of now, or of an LSN."""
        result = self.rows(moment)
        result.labels = self.labels()
        return result


def way_of(context: Context, statement: Select | Query) -> Way:
    """Return how a query is answered; nothing is run.

    Raises:
        SqlError: no way can answer it; the error is that of the one that comes nearest.
        ObjectNotFoundError: it reads what is not there.
    """
    if not isinstance(statement, Select):
        return _of_query(context, statement)
    definition = context.find(statement.target)
    try:
        plan = context.plan(definition, statement)
    except (SqlUnsupportedError, SqlColumnError) as refused:
        try:
            return _of_query(context, as_query(statement))
        except SqlError:
            raise refused from None
    return _in_process(context, definition, plan, statement)


def _of_query(context: Context, query: Query) -> Way:
    row = constant_row(query)
    if row is not None:
        return _constant(context, row, query)
    inputs = context.inputs()
    try:
        plan = plan_adhoc(query, inputs)
    except SqlUnsupportedError as refused:
        return _on_spark(context, query, refused)
    return _in_duckdb(context, plan, inputs.read, query)


def _constant(context: Context, row: ConstantRow, query: Query) -> Way:
    def answer(_: int | None) -> Result:
        return Result.of_rows(row.schema, [row.row()], lsn=context.engine.dispatcher.lsn)

    lines = ("read nothing: one row, in process; no Spark", f"give {row.schema.ddl}")
    return Way("this process", lines, lambda: row.schema, answer, query, row.names)


def _in_process(context: Context, definition: Definition, plan: SelectPlan, select: Select) -> Way:
    relations = context.engine.relations
    lines = [f"read {definition.kind} {definition.name}: in process, by the dispatcher; no Spark"]
    if plan.equality is not None:
        column, values = plan.equality
        name = definition.schema.names[column]
        lines.append(f"index on {name}: {', '.join(map(repr, sorted(values, key=repr)))}")
    rest = plan.predicate if plan.equality is None else plan.residual
    if rest is not None:
        lines.append(f"filter {rest.sql}")
    lines.append(f"give {plan.schema.ddl}")
    if plan.limit is not None:
        lines.append(f"at most {plan.limit} rows")
    return Way(
        "this process",
        tuple(lines),
        lambda: plan.schema,
        lambda moment: relations.select(definition, plan, moment, context.reads),
        select,
    )


def _in_duckdb(
    context: Context, plan: AdhocPlan, read: tuple[Definition, ...], query: Query
) -> Way:
    relations = context.engine.relations
    what = ", ".join(plan.tables) or "nothing"
    lines = (
        f"read {what} in process, by DuckDB; no Spark",
        f"{_INDENT}SQL: {plan.sql}",
        f"{_INDENT}give {plan.schema.ddl}",
    )
    return Way(
        "DuckDB, in process",
        lines,
        lambda: plan.schema,
        lambda moment: relations.adhoc(plan, context.tenant, moment, context.reads, read),
        query,
        plan.names,
    )


def _on_spark(context: Context, query: Query, refused: SqlUnsupportedError) -> Way:
    """What a view could answer is answered by Spark, if not in this process.

    Raises:
        SqlUnsupportedError: a view could not: why it is refused here.
        SqlError: it is wrong, wherever it runs.
    """
    if query.emit is not None:
        raise refused
    try:
        plan_query(query, context.inputs())
    except SqlUnsupportedError:
        raise refused from None
    relations = context.engine.relations

    @cache
    def planned() -> PlannedView:
        try:
            return relations.plan_on_spark(query, context.tenant)
        except (SqlUnsupportedError, JavaNotFoundError):
            raise refused from None

    return Way(
        "a Spark batch",
        (f"a Spark batch: {refused.message} in process",),
        lambda: planned().definition.schema,
        lambda moment: relations.on_spark(planned(), moment, context.reads),
        query,
    )

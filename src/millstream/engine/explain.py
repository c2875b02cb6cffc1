"""EXPLAIN: where a query runs, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.engine.ddl import check_replacement
from millstream.engine.dml import as_of
from millstream.errors import SqlError, SqlUnsupportedError
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.sql import CreateView, Emit, Query, Select, duration_text
from millstream.sql.adhoc import plan_adhoc
from millstream.sql.inputs import CLOCK
from millstream.views.plan.plan import ViewPlan
from millstream.views.plan.planner import plan_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.sql import Explain, SelectPlan
    from millstream.sql.adhoc import AdhocPlan
    from millstream.views.planning import PlannedView

T = TypeVar("T")


def explain(context: Context, statement: Explain) -> Result:
    """EXPLAIN of a SELECT, or of a CREATE VIEW."""
    inner, engine = statement.statement, context.engine
    if isinstance(inner, Select | Query) and inner.as_of is not None:
        return _explain_past(context, inner)
    if isinstance(inner, CreateView):
        planned = engine.views.plan(inner)
        if inner.or_replace and inner.name in engine.catalog:
            check_replacement(engine, engine.catalog[inner.name], planned)
        return _explain_view(planned)
    if isinstance(inner, Query):
        inputs = context.inputs()
        adhoc = _or_error(lambda: plan_adhoc(inner, inputs))
        view = _or_error(lambda: plan_query(inner, inputs))
        if isinstance(adhoc, SqlError) and isinstance(view, SqlError):
            raise view
        return _explain_query(adhoc, view, inner.emit or Emit())
    definition = context.find(inner.target)
    return _explain_select(definition, context.plan(definition, inner))


def _explain_past(context: Context, query: Select | Query) -> Result:
    """EXPLAIN of a query with AS OF: of which LSN, and how what it reads is found."""
    engine = context.engine
    lines = [f"as of LSN {as_of(engine, query)}"]
    names = query.tables if isinstance(query, Query) else (query.target,)
    for name in names:
        definition = context.find(name)
        lines.append(f"{definition.name}: {engine.relations.explain_past(definition)}")
    if isinstance(query, Query):
        adhoc = _or_error(lambda: plan_adhoc(query, context.inputs()))
        by = "a Spark batch" if isinstance(adhoc, SqlError) else "DuckDB, in process"
        lines.append(f"the query over them: by {by}")
    return _lines(lines)


def _or_error(plan: Callable[[], T]) -> T | SqlError:
    try:
        return plan()
    except SqlError as error:
        return error


def _explain_select(definition: Definition, plan: SelectPlan) -> Result:
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
    return _lines(lines)


def _explain_view(planned: PlannedView) -> Result:
    if planned.plan is not None:
        lines = list(_on_spark(planned.plan, planned.statement.emit))
        lines += [f"operator {n}: {each}" for n, each in enumerate(planned.operators, 1)]
        if planned.partitioned_by:
            by = ", ".join(planned.partitioned_by)
            count = planned.definition.options.partitions
            lines.append(f"partitions: {count} queries, each with its own keys of {by}")
    elif planned.select is not None:
        lines = [f"follow {planned.select.target}: in process; no Spark"]
    else:
        raise AssertionError("one of them runs it")
    lines.append(f"give {planned.definition.schema.ddl}")
    return _lines(lines)


def _explain_query(adhoc: AdhocPlan | SqlError, view: ViewPlan | SqlError, emit: Emit) -> Result:
    """EXPLAIN of a query with joins, groups and so on, ad hoc and subscribed to."""
    if isinstance(adhoc, SqlUnsupportedError) and isinstance(view, ViewPlan):
        lines = [f"ad hoc: a Spark batch: {adhoc.message} in process"]
    elif isinstance(adhoc, SqlError):
        lines = [f"ad hoc: refused: {adhoc.message}"]
    else:
        lines = [
            f"ad hoc: read {', '.join(adhoc.tables)} in process, by DuckDB; no Spark",
            f"  SQL: {adhoc.sql}",
            f"  give {adhoc.schema.ddl}",
        ]
    if isinstance(view, SqlError):
        lines.append(f"subscribed to: refused: {view.message}")
    else:
        lines.append("subscribed to: a hidden view, shared by identical queries")
        lines += [f"  {line}" for line in _on_spark(view, emit)]
    return _lines(lines)


def _on_spark(plan: ViewPlan, emit: Emit) -> Iterator[str]:
    read = ", ".join("the clock" if each == CLOCK else each for each in plan.inputs)
    yield f"read {read}, in LSN order, as one feed"
    if plan.window is not None:
        yield f"window {plan.window.kind} over {plan.window.column}"
    yield f"Spark SQL: {plan.spark_sql}"
    yield f"emit {emit.mode if emit.every is None else 'every ' + duration_text(emit.every)}"


def _lines(lines: list[str]) -> Result:
    schema = Schema.of(plan="VARCHAR NOT NULL")
    return Result.of_rows(schema, [(line,) for line in lines], show_all=True)

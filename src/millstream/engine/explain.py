"""EXPLAIN: where a query runs, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from millstream.engine.ddl import check_replacement
from millstream.engine.dml import as_of
from millstream.engine.ways import way_of
from millstream.errors import SqlError
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.sql import CreateView, Emit, Query, Select, duration_text
from millstream.sql.inputs import CLOCK
from millstream.views.plan.planner import plan_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.engine.context import Context
    from millstream.engine.ways import Way
    from millstream.sql import Explain
    from millstream.views.plan.plan import ViewPlan
    from millstream.views.planning import PlannedView

PLAN: Final = Schema.of(plan="VARCHAR NOT NULL")
"""The columns of EXPLAIN."""

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
    way = _or_error(lambda: way_of(context, inner))
    if isinstance(inner, Select):
        if isinstance(way, SqlError):
            raise way
        return _lines(list(way.lines))
    view = _or_error(lambda: plan_query(inner, context.inputs()))
    if isinstance(way, SqlError) and isinstance(view, SqlError):
        raise view
    return _explain_query(way, view, inner.emit or Emit())


def _explain_past(context: Context, query: Select | Query) -> Result:
    """EXPLAIN of a query with AS OF: of which LSN, and how what it reads is found."""
    engine, way = context.engine, way_of(context, query)
    lines = [f"as of LSN {as_of(engine, query)}"]
    names = query.tables if isinstance(query, Query) else (query.target,)
    for name in names:
        definition = context.find(name)
        lines.append(f"{definition.name}: {engine.relations.explain_past(definition)}")
    if isinstance(query, Query):
        lines.append(f"the query over them: by {way.by}")
    return _lines(lines)


def _or_error(plan: Callable[[], T]) -> T | SqlError:
    try:
        return plan()
    except SqlError as error:
        return error


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


def _explain_query(way: Way | SqlError, view: ViewPlan | SqlError, emit: Emit) -> Result:
    """EXPLAIN of a query with joins, groups and so on, ad hoc and subscribed to."""
    if isinstance(way, SqlError):
        lines = [f"ad hoc: refused: {way.message}"]
    else:
        lines = [f"ad hoc: {way.lines[0]}", *way.lines[1:]]
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
    return Result.of_rows(PLAN, [(line,) for line in lines], show_all=True)

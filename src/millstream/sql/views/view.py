"""Views: from a query that is read to a plan that Spark can run.

Takes: a statement, and what the catalog knows of the logs that it names.
Gives: a ``ViewPlan``: Spark SQL over the one relation ``__feed``, and what its columns are.
Never knows: Spark, rows, or what exists besides.

The result has the user's columns first, then hidden ones, by shape:

- "rows": ``_lsn``, ``_weight``.
- "groups": ``_k0`` ... for keys that are no column of the user's; ``_end``, the end of the window;
  ``_shown``, when a group may be invisible; ``_hash`` of all keys.
- "sets": only hidden ones, a row for each group: ``_k0`` ..., ``_hash``, and ``_rows``, an array of
  structs that have the user's columns and ``_end``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.clock import MICROSECOND
from millstream.sql.positions import place_of
from millstream.sql.statements.statement import CreateView, Emit, Query, Select
from millstream.sql.views.checks import check_emit
from millstream.sql.views.errors import ErrorReporter
from millstream.sql.views.faithful_reader import read_tree
from millstream.sql.views.functions import check_calls
from millstream.sql.views.output import output
from millstream.sql.views.queries import Planner
from millstream.sql.views.relations import read_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.inputs import Input
    from millstream.sql.views.plan import ViewPlan


def plan_view(statement: CreateView | Query | Select, inputs: Callable[[str], Input]) -> ViewPlan:
    """Return the plan of a view, or of a query that is to be kept up to date.

    Args:
        statement: what was read.
        inputs: gives what a log is by its name, and raises when there is none.

    Raises:
        SqlUnsupportedError: it cannot be answered exactly; the hint says what to write instead.
        SqlColumnError: a column that is not there.
        SqlTypeError: types without a common one.
    """
    view = as_view(statement)
    query = view.query
    errors = ErrorReporter(query.sql, query.line, query.column)
    tree = read_tree(query)
    check_calls(tree, errors)
    logs = read_logs(tree, inputs, errors)
    flow = Planner(logs, errors, view.lateness // MICROSECOND).flow(tree)
    check_emit(view, flow, errors)
    return output(flow, logs, view, errors)


def clock_place(view: CreateView) -> tuple[int, int]:
    """Return line and column of the first text that Spark may take for the time of day.

    That of the query when there is none, such as of ``CONCAT('n', 'ow')``.
    """
    query = view.query
    texts = [each for each in read_tree(query).find_all(exp.Literal) if each.is_string]
    found = [place_of(each, query.sql) for each in texts if _CLOCK.fullmatch(each.name)]
    return min(found, default=(view.line, view.column))


def column_place(view: CreateView, name: str) -> tuple[int, int]:
    """Return line and column of the first place where a view's query names a column.

    That of the query when there is none: then a view that it reads names the column.

    Args:
        view: the statement.
        name: the column, perhaps with the name of its table before it.
    """
    query = view.query
    named = [
        each
        for each in read_tree(query).find_all(exp.Column)
        if ".".join(part.name for part in each.parts).lower() == name.lower()
    ]
    return min((place_of(each, query.sql) for each in named), default=(view.line, view.column))


def function_place(view: CreateView, name: str) -> tuple[int, int]:
    """Return line and column of the first call of a function in a view's query.

    That of the query when there is none: then a view that it reads calls the function.
    """
    query = view.query
    calls = [
        place_of(each, query.sql)
        for each in read_tree(query).find_all(exp.Func)
        if each.name.lower() == name.lower()
    ]
    return min(calls, default=(view.line, view.column))


_CLOCK = re.compile(r"\s*(now|today|yesterday|tomorrow|epoch)\b.*", re.IGNORECASE | re.DOTALL)


def as_view(statement: CreateView | Query | Select) -> CreateView:
    """Return a query as the statement that creates a view of it."""
    if isinstance(statement, CreateView):
        return statement
    emit = statement.emit if isinstance(statement, Query) else None
    return CreateView(name="", kind="view", query=statement, emit=emit or Emit(), sql=statement.sql)

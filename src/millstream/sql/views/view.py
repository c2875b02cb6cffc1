"""Places in the text of a view's query, for errors that Spark raises."""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.sql.positions import place_of
from millstream.sql.statements.statement import CreateView, Emit, Query, Select
from millstream.sql.views.faithful_reader import read_tree


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

"""The text of a view's query: its tree with every function as it was called, and places in it.

sqlglot knows many functions, and writes some of them for Spark in another way: ``log10(x)`` as
``LOG(10, x)``, which rounds otherwise, ``date_format`` with fewer digits, PERCENTILE_CONT as an
approximation. What Spark is to compute is read here by a grammar that knows no function.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from millstream.sql.positions import place_of
from millstream.sql.statements.parse import guarded
from millstream.sql.statements.query import as_query
from millstream.sql.statements.reader import StatementReader
from millstream.sql.statements.statement import CreateView, Emit, Query, Select

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CLOCK = re.compile(r"\s*(now|today|yesterday|tomorrow|epoch)\b.*", re.IGNORECASE | re.DOTALL)

_SYNTAX = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
"""Functions whose arguments have words between them."""


class FaithfulReader(StatementReader):
    """Reads calls of functions as they are: a name and its arguments."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: StatementReader.FUNCTION_PARSERS[name] for name in _SYNTAX
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: read
        for name, read in StatementReader.NO_PAREN_FUNCTION_PARSERS.items()
        if name != "ANY"
    }


def read_tree(query: Select | Query) -> exp.Query:
    """Return the tree of a query; one that was not read from a text has its own."""
    if not query.tokens:
        return as_query(query).tree
    return guarded(query.sql, list(query.tokens), query.parameters, _whole, FaithfulReader)


def _whole(reader: StatementReader) -> exp.Query:
    tree = reader.query()
    reader.end()
    return tree


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


def as_view(statement: CreateView | Query | Select) -> CreateView:
    """Return a query as the statement that creates a view of it."""
    if isinstance(statement, CreateView):
        return statement
    emit = statement.emit if isinstance(statement, Query) else None
    return CreateView(name="", kind="view", query=statement, emit=emit or Emit(), sql=statement.sql)

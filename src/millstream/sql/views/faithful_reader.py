"""The faithful reader: a query parsed once more, with every function just as it was called.

sqlglot knows many functions, and writes some of them for Spark in another way: ``log10(x)`` as
``LOG(10, x)``, which rounds otherwise, ``date_format`` with fewer digits, PERCENTILE_CONT as an
approximation. What Spark is to compute is read here by a grammar that knows no function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millstream.sql.statements.parse import guarded
from millstream.sql.statements.query import as_query
from millstream.sql.statements.reader import StatementReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sqlglot import exp

    from millstream.sql.statements.statement import Query, Select

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

"""What a client has asked for: a query, several, or the change bus, and how it is to be sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.errors import LimitError, RequestError
from millstream.server.bodies import taken

if TYPE_CHECKING:
    from millstream.server.frames import Encoding
    from millstream.sql import ParameterValues
    from millstream.subscriptions import Backpressure, Start

_NUMBER: Final = (int, float)
_BUFFER_ROWS: Final = 16_384
_MOST_QUERIES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a client has asked for; the options are those of ``subscribe``.

    Attributes:
        sql: a query; empty of what has none.
        queries: several of them, which are read together.
        collection: of the change bus, what it is about; None: everything.
    """

    sql: str = ""
    parameters: ParameterValues = None
    start: Start = None
    backpressure: Backpressure = "block"
    buffer_rows: int = 16_384
    max_rows: int | None = None
    max_delay: float | None = None
    demand: int | None = None
    name: str | None = None
    encoding: Encoding = "json"
    queries: tuple[str, ...] = ()
    collection: str | None = None

    @property
    def may_share(self) -> bool:
        """Whether others of the same query may get the same frames."""
        options = (self.max_rows, self.max_delay, self.demand, self.name)
        return self.backpressure == "block" and options == (None,) * 4


def parse_start(text: str | int | None) -> Start:
    """Where to start: a word, a token, an LSN, a time in ISO 8601.

    >>> parse_start("42"), parse_start("now"), parse_start("2026-01-31T00:00:00Z").year
    (42, 'now', 2026)
    """
    if text is None or isinstance(text, int):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


def wanted_query(found: dict[str, Any]) -> Wanted:
    """What a ``subscribe`` message asks for: a query, or several with one cut.

    Raises:
        RequestError: it is not understood.
    """
    if "queries" in found:
        return _cuts(found)
    sql, parameters, start, policy, buffer_rows, max_rows, delay, demand, name, encoding = taken(
        found,
        sql=str,
        params=(list, dict),
        start=(str, int),
        backpressure=str,
        buffer_rows=int,
        max_rows=int,
        max_delay=_NUMBER,
        demand=int,
        name=str,
        encoding=str,
    )
    if not sql:
        raise RequestError("there is no sql")
    return Wanted(
        sql=sql,
        parameters=parameters,
        start=parse_start(start),
        backpressure=_policy(policy),
        buffer_rows=_BUFFER_ROWS if buffer_rows is None else buffer_rows,
        max_rows=max_rows,
        max_delay=delay,
        demand=demand,
        name=name,
        encoding=_encoding(encoding),
    )


def _cuts(found: dict[str, Any]) -> Wanted:
    queries, start, buffer_rows, encoding = taken(
        found, queries=list, start=(str, int), buffer_rows=int, encoding=str
    )
    if not queries or not all(isinstance(each, str) for each in queries):
        raise RequestError("queries is a list of names and SELECTs")
    if len(queries) > _MOST_QUERIES:
        raise LimitError(f"a subscription has at most {_MOST_QUERIES} queries")
    return Wanted(
        queries=tuple(queries),
        start=parse_start(start),
        buffer_rows=_BUFFER_ROWS if buffer_rows is None else buffer_rows,
        encoding=_encoding(encoding),
    )


def wanted_changes(found: dict[str, Any]) -> Wanted:
    """What a ``changes`` message asks for: the change bus.

    Raises:
        RequestError: it is not understood.
    """
    collection, start, policy, buffer_rows, encoding = taken(
        found,
        collection=str,
        start=(str, int),
        backpressure=str,
        buffer_rows=int,
        encoding=str,
    )
    return Wanted(
        collection=collection,
        start="now" if start is None else parse_start(start),
        backpressure=_policy(policy),
        buffer_rows=_BUFFER_ROWS if buffer_rows is None else buffer_rows,
        encoding=_encoding(encoding),
    )


def _policy(given: str | None) -> Backpressure:
    """The policy that a client names; whether there is one of that name is checked later."""
    return cast("Backpressure", given or "block")


def _encoding(given: str | None) -> Encoding:
    if given not in {None, "json", "arrow"}:
        raise RequestError("encoding is json or arrow")
    return "arrow" if given == "arrow" else "json"

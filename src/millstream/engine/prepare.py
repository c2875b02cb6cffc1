"""Statements that are read once: what is known of one before it runs, and ways to run it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.engine import points
from millstream.engine.dml import as_of
from millstream.engine.statements import QUERIES, columns_of, run
from millstream.engine.ways import way_of
from millstream.errors import Error, ObjectChangedError, SqlTypeError, SqlUnsupportedError
from millstream.model.types import BIGINT, VARCHAR
from millstream.sql import Query, Select, Unknown, parameter_types, parse, parse_marked
from millstream.sql.parameter_types import selected_parameters
from millstream.sql.statements.parameters import takes_number
from millstream.views.readiness import READ_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.engine.context import Context
    from millstream.model.result import Result
    from millstream.model.schema import Schema
    from millstream.model.types import SqlType
    from millstream.sql import ParameterValues, Statement
    from millstream.subscriptions import Backpressure, Start, Subscription


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a statement.

    Attributes:
        name: of ``:name``; empty for ``?``.
        type: the type of its value, as far as its place in the statement says; None: any.
    """

    name: str
    type: SqlType | None


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a statement before its parameters have values.

    Attributes:
        statement: it, with NULLs for the values.
        marks: by the offsets of its parameters in the text, their names; empty for ``?``.
        types: by the same offsets, the types that are known.
    """

    statement: Statement
    marks: Mapping[int, str]
    types: Mapping[int, SqlType]


def describe(
    context: Context, sql: str, given: Mapping[int | str, SqlType] | None = None
) -> Described:
    """Read a text of one statement, and find the types of its parameters. Nothing is run.

    Args:
        context: what it would run in.
        sql: the text.
        given: types of parameters that are known, by the offsets of ``?``, or by names.

    Raises:
        SqlError: it cannot be read, whatever the values are.
    """
    functions = context.started(sql, calls=False)
    statements, marks = parse_marked(sql, Unknown(), functions)
    if len(statements) > 1:
        second = statements[1]
        raise SqlUnsupportedError(
            "one statement is prepared at a time",
            sql=sql,
            line=second.line,
            column=second.column,
            hint="prepare the others by themselves",
        )
    if not marks:
        return Described(statements[0], marks, {})

    def schema_of(name: str) -> Schema | None:
        try:
            return context.find(name).schema
        except Error:
            return None

    types = dict(parameter_types(statements[0], schema_of))
    for at, name in marks.items():
        of = None if given is None else given.get(name or at)
        if of is not None:
            types[at] = of
        elif takes_number(sql, at):
            types[at] = BIGINT
    by_name: dict[int | str, SqlType] = {}
    for at, of in sorted(types.items()):
        by_name.setdefault(marks[at] or at, of)
    for at in selected_parameters(statements[0]):
        types[at] = by_name.setdefault(marks[at] or at, VARCHAR)
    statements, marks = parse_marked(sql, Unknown(by_name), functions)
    return Described(statements[0], marks, types)


def columns_before(
    context: Context, sql: str, given: Mapping[int | str, SqlType] | None = None
) -> tuple[Schema, tuple[str, ...]] | None:
    """The columns of a text of one statement, and their labels; None if it gives none.

    Nothing is run. Parameters of which nothing else is known are texts, if that is needed.

    Args:
        context: what it would run in.
        sql: the text.
        given: as for ``describe``.

    Raises:
        SqlError: it is refused.
    """
    described = describe(context, sql, given)
    try:
        return columns_of(context, described.statement)
    except SqlTypeError:
        unknown = described.marks.keys() - described.types.keys()
        if not unknown:
            raise
        texts = dict.fromkeys(described.marks[at] or at for at in unknown)
        known = {**dict.fromkeys(texts, VARCHAR), **(given or {})}
        return columns_of(context, describe(context, sql, known).statement)


@dataclass(frozen=True, slots=True)
class Bound:
    """A query with the values of its parameters, planned and not run.

    Attributes:
        schema: its columns.
        labels: what PostgreSQL calls them.
        run: runs it.
    """

    schema: Schema
    labels: tuple[str, ...]
    run: Callable[[], Result]


def bind(context: Context, sql: str, parameters: ParameterValues) -> Bound | None:
    """Read a query and plan it; None if the text is of another statement. Nothing is run.

    Raises:
        SqlError: it is refused.
        RoleError: the role is too low for it.
    """
    statements = parse(sql, parameters, context.started(sql))
    [statement, *others] = statements
    if others or not isinstance(statement, Select | Query) or statement.live:
        return None
    context.check_statements(statements)
    way = way_of(context, statement)
    points.remember(context, statements, parameters)

    def run_it() -> Result:
        with context.filtered_errors():
            try:
                return way.answer(as_of(context.engine, statement))
            except ObjectChangedError:  # since it was planned
                return run(context, statements)

    return Bound(way.schema(), way.labels(), run_it)


class Prepared:
    """A statement that was read, and can be run with different values. See ``db.prepare``.

    What it says of itself is known without running anything.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
    ...     _ = db.execute("INSERT INTO t VALUES (7, 'seven')")
    ...     named = db.prepare("SELECT name, id * 2 AS twice FROM t WHERE id = ?")
    ...     named.kind, named.reads, [str(each.type) for each in named.parameters]
    ...     named.columns.ddl
    ...     named.query([7]).fetchall()
    ('SELECT', True, ['BIGINT'])
    'name VARCHAR, twice BIGINT NOT NULL'
    [('seven', 14)]

    Attributes:
        sql: the text.
        kind: what it does, in capitals: ``SELECT``, ``INSERT``, ``CREATE TABLE``.
        reads: whether it changes nothing.
        parameters: its parameters, in the order of the text; a ``:name`` once.
    """

    def __init__(
        self,
        context: Context,
        sql: str,
        *,
        query: Callable[..., Result],
        execute: Callable[..., Result],
        subscribe: Callable[..., Subscription],
    ) -> None:
        self._context = context
        self._runs = query, execute, subscribe
        self._described = describe(context, sql)
        self.sql: str = sql
        self.kind: str = kind_of(self._described.statement)
        self.reads: bool = isinstance(self._described.statement, QUERIES)
        self.parameters: tuple[Parameter, ...] = tuple(_parameters(self._described))

    @cached_property
    def columns(self) -> Schema | None:
        """The columns of the result; None if it gives no rows.

        The first time, only for a query that runs as a Spark batch, Spark is asked.

        Raises:
            SqlError: the query is refused.
        """
        found = columns_before(self._context, self.sql)
        return None if found is None else found[0]

    def query(
        self,
        parameters: ParameterValues = None,
        *,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
    ) -> Result:
        """Run it, if it only reads; see ``Session.query``."""
        return self._runs[0](self.sql, parameters, stale_ok=stale_ok, timeout=timeout)

    def execute(
        self,
        parameters: ParameterValues = None,
        *,
        stale_ok: bool = False,
        timeout: float | None = READ_SECONDS,
    ) -> Result:
        """Run it; see ``Session.execute``."""
        return self._runs[1](self.sql, parameters, stale_ok=stale_ok, timeout=timeout)

    def subscribe(
        self,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> Subscription:
        """Subscribe to its result; see ``Session.subscribe``."""
        return self._runs[2](
            self.sql,
            parameters,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )

    def __repr__(self) -> str:
        return f"<Prepared {self.kind}: {self.sql}>"


def _parameters(found: Described) -> list[Parameter]:
    made: dict[int | str, Parameter] = {}
    for at, name in found.marks.items():
        known = made.get(name or at)
        if known is None or known.type is None:
            made[name or at] = Parameter(name, found.types.get(at))
    return list(made.values())


def kind_of(statement: Statement) -> str:
    """What a statement does, in capitals.

    >>> from millstream.sql import parse
    >>> [kind_of(each) for each in parse("SELECT COUNT(*) FROM t; DROP TABLE t; SHOW VIEWS")]
    ['SELECT', 'DROP', 'SHOW']
    """
    if isinstance(statement, Query):
        return "SELECT"
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(statement).__name__).upper()

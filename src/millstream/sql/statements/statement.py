"""Statements: what a text of SQL asks for, checked as far as the text alone can be.

Each statement keeps the text that it came from, so that an error that is found later can still
point at its place. Two statements are equal when they ask for the same: the texts do not count.

Expressions stay as sqlglot's trees. Their tokens know their places (``positions.place_of``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from millstream.sql.statements.parameters import NO_PARAMETERS, Parameters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlglot import Token, exp

    from millstream.model import Column, Schema

OptionValue = str | int | float | bool
Conflict = Literal["error", "replace", "ignore"]
DropKind = Literal["source", "table", "subscription", "view", "stream", "sink"]
AlterKind = Literal["source", "table"]
PauseKind = Literal["source", "table", "sink"]
ShowKind = Literal[
    "sources", "tables", "subscriptions", "views", "streams", "sinks", "connectors", "channels"
]
ViewKind = Literal["view", "stream"]
EmitMode = Literal["changes", "close", "every", "final"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement and where it was written.

    Attributes:
        sql: the whole text that was given, with the other statements in it.
        text: the statement's own text, without blanks and the semicolon.
        line: the line where it begins, from 1.
        column: the column where it begins, from 1.
    """

    sql: str = field(default="", repr=False, compare=False)
    text: str = field(default="", repr=False, compare=False)
    line: int = field(default=1, repr=False, compare=False)
    column: int = field(default=1, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Option:
    """The value of an option in ``WITH (...)``, its place, and that of its name.

    >>> Option(1024, line=1, column=50) == Option(1024)
    True
    """

    value: OptionValue
    line: int = field(default=0, repr=False, compare=False)
    column: int = field(default=0, repr=False, compare=False)
    name_at: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)


def _no_options() -> Mapping[str, Option]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WatermarkSpec:
    """``WATERMARK FOR column AS column - INTERVAL '...'``: how late a row may be.

    Attributes:
        column: the TIMESTAMP column that it follows, as the schema writes it.
        delay: how far it stays behind the greatest time seen; zero or more.
        line: where the column is named in the text, from 1; 0 when that is not known.
        place: the column of the text, likewise.
    """

    column: str
    delay: timedelta
    line: int = field(default=0, compare=False, repr=False)
    place: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource(Statement):
    """``CREATE SOURCE [IF NOT EXISTS] name [(columns, [WATERMARK ...])] [WITH (...)]``.

    Attributes:
        schema: its columns; None: those that its connector finds.
    """

    name: str
    schema: Schema | None
    watermark: WatermarkSpec | None = None
    options: Mapping[str, Option] = field(default_factory=_no_options)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """``CREATE TABLE [IF NOT EXISTS] name [(columns, PRIMARY KEY (...))] [WITH (...)]``.

    Attributes:
        schema: its columns; None: those that its connector finds.
    """

    name: str
    schema: Schema | None
    options: Mapping[str, Option] = field(default_factory=_no_options)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSink(Statement):
    """``CREATE SINK [IF NOT EXISTS] name FROM relation | AS SELECT ... WITH (...)``.

    Attributes:
        relation: what it reads; None when a query is given.
        query: the SELECT whose changes it takes; None when a relation is given.
    """

    name: str
    relation: str | None = None
    query: Select | Query | None = None
    options: Mapping[str, Option] = field(default_factory=_no_options)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Statement):
    """``ALTER SOURCE | TABLE | SINK name PAUSE | RESUME``: of its connector.

    Attributes:
        paused: PAUSE; False: RESUME.
    """

    kind: PauseKind
    name: str
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFrom(Statement):
    """``COPY target [(columns)] FROM 'path or URL' [WITH (...)]``.

    Attributes:
        columns: the columns that the file has; empty: all.
        place: the path or URL of the file.
    """

    target: str
    columns: tuple[str, ...] = ()
    place: str
    options: Mapping[str, Option] = field(default_factory=_no_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTo(Statement):
    """``COPY relation [(columns)] | (query) TO 'path or URL' [WITH (...)]``."""

    query: Select | Query
    place: str
    options: Mapping[str, Option] = field(default_factory=_no_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert(Statement):
    """``INSERT [OR REPLACE | OR IGNORE] INTO target [(columns)] VALUES (...), (...)``.

    Attributes:
        target: the source or table.
        columns: the columns as written, or None for all of them in order.
        values: one tuple of expressions for each row, all of one length.
        conflict: what to do with a row whose key is there already.
    """

    target: str
    columns: tuple[str, ...] | None
    values: tuple[tuple[exp.Expression, ...], ...]
    conflict: Conflict = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Statement):
    """``UPDATE target SET column = expression, ... [WHERE ...]``."""

    target: str
    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Statement):
    """``DELETE FROM target [WHERE ...]``."""

    target: str
    where: exp.Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(Statement):
    """``DROP SOURCE | TABLE | ... [IF EXISTS] name [CASCADE]``."""

    kind: DropKind
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn(Statement):
    """``ALTER SOURCE | TABLE name ADD [COLUMN] [IF NOT EXISTS] column type``."""

    kind: AlterKind
    name: str
    added: Column
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipDamage(Statement):
    """``ALTER SOURCE | TABLE name SKIP DAMAGE``."""

    kind: AlterKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Show(Statement):
    """``SHOW SOURCES | TABLES | ... [LIKE 'pattern']``."""

    kind: ShowKind
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    """``SHOW CREATE [SOURCE | TABLE] name``."""

    name: str
    kind: DropKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """``DESCRIBE [SOURCE | TABLE] name``."""

    name: str
    kind: DropKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowChanges(Statement):
    """``SHOW CHANGES [FOR collection] [SINCE lsn | time | INTERVAL '...' AGO] [LIMIT n]``.

    Attributes:
        collection: the source, table or view; None for all of them.
        since: an LSN, a time in UTC, or a timedelta: how long ago; None for the beginning.
        limit: how many at most; None for all.
    """

    collection: str | None = None
    since: int | datetime | timedelta | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class AsOf:
    """``AS OF ...`` after a SELECT: all that it reads is read as it was.

    Attributes:
        moment: an LSN, a time in UTC, or a timedelta: how long ago.
        line: where the clause is in the text, from 1.
        column: likewise.
    """

    moment: int | datetime | timedelta
    line: int = field(default=0, compare=False, repr=False)
    column: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Statement):
    """``[LIVE] SELECT items FROM target [AS alias] [WHERE ...] [LIMIT n] [AS OF ...]``.

    Attributes:
        target: the source, table or view.
        items: columns, expressions, ``exp.Alias``; ``exp.Star`` for ``*``, and for ``t.*`` an
            ``exp.Column`` whose ``this`` is a star.
        where: the condition.
        limit: how many rows at most.
        live: whether it was written as ``LIVE SELECT``: its changes are wanted, not its rows.
        alias: the other name that the query gives to the target.
        as_of: of which LSN or time its rows are; None: of now.
        tokens: what it was read from, for those who read it by another grammar.
        parameters: the values of the parameters among the tokens.
    """

    target: str
    items: tuple[exp.Expression, ...]
    where: exp.Expression | None = None
    limit: int | None = None
    live: bool = False
    alias: str | None = None
    as_of: AsOf | None = None
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)
    parameters: Parameters = field(default=NO_PARAMETERS, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Emit:
    """When a view emits its changes.

    Attributes:
        mode: "changes": each one as it comes; "close": a window's row once the watermark has
            passed the window's end; "every": in a rhythm; "final": a window's row once, when no
            row can change it any more.
        every: the rhythm of "every".
        line: where the clause is in the text, from 1; 0 when it was not written.
        column: likewise.
    """

    mode: EmitMode = "changes"
    every: timedelta | None = None
    line: int = field(default=0, compare=False, repr=False)
    column: int = field(default=0, compare=False, repr=False)

    @property
    def closes(self) -> bool:
        """Whether rows are emitted when their window closes."""
        return self.mode in {"close", "final"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """``[LIVE] SELECT`` with more than a ``Select`` says: joins, groups, unions, subqueries.

    Attributes:
        tree: sqlglot's tree of it.
        tables: the sources, tables and views that it reads, each once, as first written.
        emit: its EMIT clause; None when it has none.
        live: whether it was written as ``LIVE SELECT``.
        as_of: of which LSN or time its rows are; None: of now.
        tokens: what it was read from, for those who read it by another grammar.
        parameters: the values of the parameters among the tokens.
    """

    tree: exp.Query
    tables: tuple[str, ...]
    emit: Emit | None = None
    live: bool = False
    as_of: AsOf | None = None
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)
    parameters: Parameters = field(default=NO_PARAMETERS, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Statement):
    """``CREATE MATERIALIZED VIEW | STREAM | CONTINUOUS QUERY name AS SELECT ...``.

    Attributes:
        kind: "view": its rows are kept; "stream": its changes only.
        query: what it shows.
        emit: when it emits its changes.
        lateness: for how long after the end of a window late rows still count.
        late_to: the name of the side output of rows that come too late even for that.
        watermark: the event time of its rows, as it was written; None when they have none.
        options: what WITH (...) says.
    """

    name: str
    kind: ViewKind
    query: Select | Query
    emit: Emit = Emit()
    lateness: timedelta = timedelta(0)
    late_to: str | None = None
    watermark: WatermarkSpec | None = None
    options: Mapping[str, Option] = field(default_factory=_no_options)
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """``EXPLAIN select`` or ``EXPLAIN CREATE MATERIALIZED VIEW ...``."""

    statement: Select | Query | CreateView


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen(Statement):
    """``LISTEN channel``."""

    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlisten(Statement):
    """``UNLISTEN channel``, or ``UNLISTEN *`` for all of them (None)."""

    channel: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify(Statement):
    """``NOTIFY channel [, 'payload']``."""

    channel: str
    payload: str = ""

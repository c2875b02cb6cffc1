"""Statements about connectors: CREATE ... WITH (connector = ...), CREATE SINK, PAUSE, RESUME."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from millstream.catalog import Connection, Definition, Options, SinkDefinition, options_of
from millstream.catalog.connection import DEAD_LETTERS as DEAD
from millstream.connectors.contract import WITHIN, SinkInput, SourceConnector, Target
from millstream.connectors.options import OF_SINKS, OF_SOURCES, resolve, settings_of
from millstream.connectors.registry import sink_connector, source_connector
from millstream.engine.connections import SINK_PREFIX
from millstream.engine.connector_options import (
    asked,
    checked,
    connector_of,
    kind_of,
    located,
    refused,
    split,
)
from millstream.engine.deliveries import DEAD_LETTERS
from millstream.engine.sink_feeds import selected
from millstream.errors import (
    FileRefusedError,
    ObjectNotFoundError,
    SqlColumnError,
    SqlUnsupportedError,
    WrongObjectError,
)
from millstream.model.clock import system_clock
from millstream.model.names import quote_name
from millstream.model.schema import Schema
from millstream.sql import Query
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.catalog.connection import OptionValue
    from millstream.connectors.contract import Option, Settings, SinkConnector
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.result import Result
    from millstream.sql import CreateSink, CreateSource, CreateTable, Pause, WatermarkSpec
    from millstream.sql import Option as GivenOption

_LETTERS_KEPT: Final = timedelta(days=30)
_NO_COLUMNS: Final = Schema.of(unknown="VARCHAR")


# ---- sources and tables


def create_fed(context: Context, statement: CreateSource | CreateTable) -> Result:
    """CREATE SOURCE or CREATE TABLE with a connector."""
    engine, kind = context.engine, kind_of(statement)
    done = f"CREATE {kind.upper()}"
    if statement.if_not_exists and statement.name in engine.catalog:
        return context.done(done)
    engine.catalog.check_new_name(statement.name, kind)
    with located(statement):
        made = source_connector(connector_of(statement))
    if kind not in made.kinds:
        raise refused(
            statement,
            "connector",
            f"the connector {made.name!r} cannot feed a {kind}",
            f"write CREATE {made.kinds[0].upper()}",
        )
    own, given = split(statement, kind)
    secrets = checked(statement, given, (*made.options, *OF_SOURCES))
    given |= _places(context, given, made.options)
    connection = Connection(
        made.name,
        MappingProxyType(given),
        secrets,
        writable=made.allows_writes,
        dead_letters=_dead_letters_name(statement, given) if made.rejects else "",
    )
    definition = _planned(engine, statement, made, connection, own)
    _create_fed(engine, definition, if_not_exists=statement.if_not_exists)
    return context.done(done)


def _places(
    context: Context, given: Mapping[str, OptionValue], known: tuple[Option, ...]
) -> dict[str, OptionValue]:
    """The paths among the options, where only some directories may be named.

    Raises:
        FileRefusedError: a path outside of them, or an option of embedded databases only.
    """
    if context.directories is None:
        return {}
    for name in given:
        if any(each.embedded and each.covers(name) for each in known):
            raise FileRefusedError(
                f"a served database takes no option {name}",
                hint="the server's operator configures it, such as a catalog in ~/.pyiceberg.yaml",
            )
    places = [each.name for each in known if each.kind == "place" and each.name in given]
    found: dict[str, OptionValue] = {
        name: context.path(str(resolve(given[name]))) for name in places
    }
    for path in list(found.values()) if any(each.name == WITHIN for each in known) else ():
        directory = context.directory_of(str(path))
        if directory is not None:  # else an object store
            found[WITHIN] = str(directory)
    return found


def _planned(
    engine: Engine,
    statement: CreateSource | CreateTable,
    made: type[SourceConnector],
    connection: Connection,
    own: Mapping[str, GivenOption],
) -> Definition:
    """What is to be created; the connector has found its columns, and has no objection."""
    kind: Any = kind_of(statement)
    settings = asked(connection, lambda: settings_of(connection.options, made.options + OF_SOURCES))
    target = Target(statement.name, kind, statement.schema or _NO_COLUMNS)
    schema = statement.schema
    if schema is None:
        found = made(settings, target)
        schema = asked(connection, found.discover)
        if kind == "source" and schema.key:
            schema = Schema(schema.columns)
        if kind == "table" and not schema.key:
            raise WrongObjectError(
                f"{statement.name} would have no primary key",
                hint="write its columns: CREATE TABLE ... (id BIGINT PRIMARY KEY, ...)",
            )
    definition = Definition(
        kind,
        statement.name,
        schema,
        options_of(own, schema, statement.sql, kind),
        _watermark(statement, schema),
        system_clock(),
        connection=connection,
    )
    connector = made(
        settings, replace(target, schema=schema, id=engine.connections.id_of(definition))
    )
    asked(connection, connector.check)
    return definition


def _watermark(statement: CreateSource | CreateTable, schema: Schema) -> WatermarkSpec | None:
    """The watermark of a source, over a column that it has.

    Raises:
        SqlColumnError: a column that the connector has not found, or no TIMESTAMP.
    """
    mark: WatermarkSpec | None = getattr(statement, "watermark", None)
    if mark is None or statement.schema is not None:
        return mark
    found = {column.name.lower(): column for column in schema.columns}.get(mark.column.lower())
    if found is None or found.type.kind != "TIMESTAMP":
        times = [column.name for column in schema.columns if column.type.kind == "TIMESTAMP"]
        raise SqlColumnError(
            f"{mark.column} is no TIMESTAMP column of what the connector has found",
            sql=statement.sql,
            line=mark.line,
            column=mark.place,
            hint=f"available: {', '.join(times) or 'none'}",
        )
    return replace(mark, column=found.name)


@uninterrupted
def _create_fed(engine: Engine, definition: Definition, *, if_not_exists: bool) -> None:
    connections = engine.connections

    def create() -> Definition:
        engine.catalog.check_new(definition)
        connection = definition.connection
        if connection is not None and connection.dead_letters:
            _create_dead_letters(engine, connection.dead_letters, definition.name)
        created = engine.catalog.create(definition)
        engine.open_relation(created)
        connections.prepare(created)
        return created

    with engine.catalog.ddl.held(f"CREATE {definition.kind.upper()} {definition.name}"):
        if not (if_not_exists and definition.name in engine.catalog):
            connections.start_source(engine.dispatcher.call(create))


def _create_dead_letters(engine: Engine, name: str, of: str) -> None:
    """Make the log of what a connector rejects; by the dispatcher's thread."""
    known = engine.catalog.get(name)
    connection = Connection(DEAD, MappingProxyType({"of": of}))
    if known is not None and known.connection == connection:
        return  # a crash came between the two steps of a CREATE, or it was kept
    options, now = Options(retention=_LETTERS_KEPT), system_clock()
    definition = Definition(
        "source", name, DEAD_LETTERS, options, created_at=now, connection=connection
    )
    engine.open_relation(engine.catalog.create(definition))


def _dead_letters_name(
    statement: CreateSource | CreateTable | CreateSink, given: Mapping[str, OptionValue]
) -> str:
    found = str(given.get("dead_letters") or f"{statement.name}_dead_letters")
    if found.lower() == statement.name.lower():
        raise refused(
            statement,
            "dead_letters",
            f"dead_letters is {found!r}, the name of what it is for",
            f"another name, such as {statement.name}_dead_letters",
        )
    return found


# ---- sinks


def create_sink(context: Context, statement: CreateSink) -> Result:
    """CREATE SINK."""
    engine = context.engine
    if statement.if_not_exists and engine.catalog.has_sink(statement.name):
        return context.done("CREATE SINK")
    engine.catalog.check_new_name(statement.name, "sink")
    query = _sink_query(statement)
    select = selected(query)
    definition = context.find(select.target)
    with located(statement):
        made = sink_connector(connector_of(statement))
    _, given = split(statement, "sink")
    secrets = checked(statement, given, (*made.options, *OF_SINKS))
    given |= _places(context, given, made.options)
    dead = _dead_letters_name(statement, given) if made.rejects else ""
    connection = Connection(made.name, MappingProxyType(given), secrets, dead_letters=dead)
    sink = SinkDefinition(
        statement.name, query, definition.name, connection, created_at=system_clock()
    )
    settings = _check_sink(engine, sink, made)
    _create_sink(engine, sink, definition, settings, if_not_exists=statement.if_not_exists)
    return context.done("CREATE SINK")


def _check_sink(engine: Engine, sink: SinkDefinition, made: type[SinkConnector]) -> Settings:
    connection = sink.connection
    schema, retracts = engine.connections.sink_side.input(sink)
    settings: Settings = asked(
        connection, lambda: settings_of(connection.options, made.options + OF_SINKS)
    )
    identity = engine.connections.id_of(sink)
    connector = made(settings, SinkInput(sink.name, sink.relation, schema, retracts, identity))
    asked(connection, connector.check)
    return settings


@uninterrupted
def _create_sink(
    engine: Engine,
    sink: SinkDefinition,
    reads: Definition,
    settings: Settings,
    *,
    if_not_exists: bool,
) -> None:
    def create() -> SinkDefinition:
        engine.catalog.check_new_name(sink.name, "sink")
        if sink.connection.dead_letters:
            _create_dead_letters(engine, sink.connection.dead_letters, sink.name)
        return engine.catalog.create_sink(sink)

    connections = engine.connections
    with engine.catalog.ddl.held(f"CREATE SINK {sink.name}"):
        if if_not_exists and engine.catalog.has_sink(sink.name):
            return
        if not engine.catalog.has(reads):
            raise ObjectNotFoundError(f"{reads.name} was dropped or replaced meanwhile")
        created = engine.dispatcher.call(create)
        if settings["start"] == "now":  # which is now, and not when its thread begins
            connections.sink_side.subscribe(created, settings, exactly=False, token=None).cancel()
        connections.start_sink(created)


def _sink_query(statement: CreateSink) -> str:
    """The SELECT of a sink, as text.

    Raises:
        SqlUnsupportedError: a query that needs a view.
    """
    if statement.relation is not None:
        return f"SELECT * FROM {quote_name(statement.relation)}"  # noqa: S608 - SQL of ours
    query = statement.query
    if query is None or isinstance(query, Query):
        raise SqlUnsupportedError(
            "a sink takes a SELECT of one relation, with WHERE and columns",
            sql=statement.sql,
            line=statement.line,
            column=statement.column,
            hint="CREATE MATERIALIZED VIEW v AS ...; then CREATE SINK ... FROM v",
        )
    return query.text


# ---- pausing and dropping


@uninterrupted
def pause(context: Context, statement: Pause) -> Result:
    """ALTER ... PAUSE, ALTER ... RESUME."""
    catalog, done = context.engine.catalog, f"ALTER {statement.kind.upper()}"
    with catalog.ddl.held(f"{done} {statement.name}"):
        if statement.kind == "sink":
            name = catalog.sink(statement.name).name
        else:
            name = catalog.of_kind(statement.kind, statement.name).name
        context.engine.connections.pause(name, paused=statement.paused)
    return context.done(done)


def drop_sink(engine: Engine, name: str) -> None:
    """DROP SINK: its thread is stopped, its position and its dead letters are gone.

    With the DDL lock held.
    """

    def forget() -> None:
        engine.catalog.drop_sink(sink.name)
        key = (None, SINK_PREFIX + sink.name)
        if key in engine.positions:
            engine.positions.drop(key)

    sink = engine.catalog.sink(name)
    running = engine.connections.stop(sink.name)
    engine.dispatcher.call(forget)
    if running is not None:
        engine.connections.clean_up(running)


def sinks_of(engine: Engine, name: str) -> list[str]:
    """The names of the sinks that read a relation."""
    return [each.name for each in engine.catalog.sinks if each.relation == name]

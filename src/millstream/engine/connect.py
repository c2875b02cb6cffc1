"""Statements about connectors: CREATE ... WITH (connector = ...), CREATE SINK, PAUSE, RESUME."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.catalog import Connection, Definition, Options, SinkDefinition, options_of
from millstream.catalog.connection import DEAD_LETTERS as DEAD
from millstream.catalog.options import names_of
from millstream.connectors.contract import Settings, SinkInput, SourceConnector, Target
from millstream.connectors.options import (
    OF_SINKS,
    OF_SOURCES,
    OptionProblemError,
    Scrubber,
    check_options,
    settings_of,
)
from millstream.connectors.registry import sink_connector, source_connector
from millstream.connectors.supervisor import describe
from millstream.engine import subscribe
from millstream.engine.connections import SINK_PREFIX
from millstream.engine.deliveries import DEAD_LETTERS, letters
from millstream.errors import (
    ConnectorError,
    Error,
    ObjectNotFoundError,
    SqlOptionError,
    SqlUnsupportedError,
    WrongObjectError,
    without_secrets,
)
from millstream.model.clock import system_clock
from millstream.model.names import quote_name
from millstream.model.schema import Schema
from millstream.sql import Query, parse
from millstream.subscriptions import SubscribeOptions, Subscription
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.catalog.connection import OptionValue
    from millstream.connectors.contract import Option, Rejected, SinkConnector
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.batch import ChangeBatch
    from millstream.model.result import Result
    from millstream.sql import CreateSink, CreateSource, CreateTable, Pause, Select
    from millstream.sql import Option as GivenOption

_NO_COLUMNS: Final = Schema.of(unknown="VARCHAR")


# ---- sources and tables


def create_fed(context: Context, statement: CreateSource | CreateTable) -> Result:
    """CREATE SOURCE or CREATE TABLE with a connector."""
    engine, kind = context.engine, _kind(statement)
    done = f"CREATE {kind.upper()}"
    if statement.if_not_exists and statement.name in engine.catalog:
        return context.done(done)
    engine.catalog.check_new_name(statement.name, kind)
    with _located(statement):
        made = source_connector(_connector_of(statement))
    if kind not in made.kinds:
        raise _refused(
            statement,
            "connector",
            f"the connector {made.name!r} cannot feed a {kind}",
            f"write CREATE {made.kinds[0].upper()}",
        )
    own, given = _split(statement, kind)
    secrets = _checked(statement, given, (*made.options, *OF_SOURCES))
    connection = Connection(
        made.name,
        MappingProxyType(given),
        secrets,
        writable=made.allows_writes,
        dead_letters=_dead_letters_name(statement.name, given) if made.rejects else "",
    )
    definition = _planned(engine, statement, made, connection, own)
    _create_fed(engine, definition)
    return context.done(done)


def _planned(
    engine: Engine,
    statement: CreateSource | CreateTable,
    made: type[SourceConnector],
    connection: Connection,
    own: Mapping[str, GivenOption],
) -> Definition:
    """What is to be created; the connector has found its columns, and has no objection."""
    kind: Any = _kind(statement)
    settings = _asked(
        connection, lambda: settings_of(connection.options, made.options + OF_SOURCES)
    )
    target = Target(statement.name, kind, statement.schema or _NO_COLUMNS)
    schema = statement.schema
    if schema is None:
        found = made(settings, target)
        schema = _asked(connection, found.discover)
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
        getattr(statement, "watermark", None),
        system_clock(),
        connection=connection,
    )
    connector = made(
        settings, replace(target, schema=schema, id=engine.connections.id_of(definition))
    )
    _asked(connection, connector.check)
    return definition


@uninterrupted
def _create_fed(engine: Engine, definition: Definition) -> None:
    connections = engine.connections

    def create() -> Definition:
        connection = definition.connection
        if connection is not None and connection.dead_letters:
            _create_dead_letters(engine, connection.dead_letters, definition.name)
        created = engine.catalog.create(definition)
        engine.open_relation(created)
        connections.prepare(created)
        return created

    connections.start_source(engine.dispatcher.call(create))


def _create_dead_letters(engine: Engine, name: str, of: str) -> None:
    """Make the log of what a connector rejects; by the dispatcher's thread."""
    known = engine.catalog.get(name)
    connection = Connection(DEAD, MappingProxyType({"of": of}))
    if known is not None and known.connection == connection:
        return  # a crash came between the two steps of a CREATE, or it was kept
    definition = Definition(
        "source", name, DEAD_LETTERS, Options(), created_at=system_clock(), connection=connection
    )
    engine.open_relation(engine.catalog.create(definition))


def _dead_letters_name(name: str, given: Mapping[str, OptionValue]) -> str:
    return str(given.get("dead_letters") or f"{name}_dead_letters")


# ---- sinks


def create_sink(context: Context, statement: CreateSink) -> Result:
    """CREATE SINK."""
    engine = context.engine
    if statement.if_not_exists and engine.catalog.has_sink(statement.name):
        return context.done("CREATE SINK")
    engine.catalog.check_new_name(statement.name, "sink")
    query = _sink_query(statement)
    select = _select(query)
    definition = context.find(select.target)
    with _located(statement):
        made = sink_connector(_connector_of(statement))
    _, given = _split(statement, "sink")
    secrets = _checked(statement, given, (*made.options, *OF_SINKS))
    dead = _dead_letters_name(statement.name, given) if made.rejects else ""
    connection = Connection(made.name, MappingProxyType(given), secrets, dead_letters=dead)
    sink = SinkDefinition(
        statement.name, query, definition.name, connection, created_at=system_clock()
    )
    _check_sink(engine, sink, made)
    _create_sink(engine, sink)
    return context.done("CREATE SINK")


def _check_sink(engine: Engine, sink: SinkDefinition, made: type[SinkConnector]) -> None:
    connection = sink.connection
    schema, retracts = engine.connections.sink_side.input(sink)
    settings = _asked(connection, lambda: settings_of(connection.options, made.options + OF_SINKS))
    identity = engine.connections.id_of(sink)
    connector = made(settings, SinkInput(sink.name, sink.relation, schema, retracts, identity))
    _asked(connection, connector.check)


@uninterrupted
def _create_sink(engine: Engine, sink: SinkDefinition) -> None:
    def create() -> SinkDefinition:
        if sink.connection.dead_letters:
            _create_dead_letters(engine, sink.connection.dead_letters, sink.name)
        return engine.catalog.create_sink(sink)

    engine.connections.start_sink(engine.dispatcher.call(create))


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


def _select(query: str) -> Select:
    return cast("Select", parse(query)[0])


class SinkFeeds:
    """Opens the feeds of sinks: durable subscriptions."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def input(self, sink: SinkDefinition) -> tuple[Schema, bool]:
        """The columns that a sink reads, and whether its rows may change."""
        definition, plan = subscribe.planned(self._context, _select(sink.query))
        retracts = self._context.engine.views.planner.input(definition.name).retracts
        return plan.schema, retracts

    def subscribe(
        self, sink: SinkDefinition, settings: Settings, *, exactly: bool, token: str | None
    ) -> SubscribedSink:
        """The feed of a sink: ``exactly`` after a token, or from the start; else after its ack."""
        engine = self._context.engine
        made = sink_connector(sink.connection.connector)
        definition = engine.catalog[sink.relation]
        has_rows = definition.kind in {"table", "view"}
        start = settings["start"] or ("snapshot" if has_rows else "earliest")
        rows, delay = settings["batch_rows"], settings["batch_delay"]
        options = SubscribeOptions(
            start=token if exactly and token is not None else start,
            name=SINK_PREFIX + sink.name,
            max_rows=made.batch_rows if rows is None else rows,
            max_delay=made.batch_delay if delay is None else delay,
            reset=exactly,
        )
        opened = subscribe.query(self._context, Subscription, _select(sink.query), options=options)
        return SubscribedSink(engine, opened, sink)


@dataclass(frozen=True, slots=True)
class SubscribedSink:
    """The feed of a sink that is open."""

    engine: Engine
    subscription: Subscription
    sink: SinkDefinition

    def recv(self, timeout: float) -> ChangeBatch:
        """The next batch; ReceiveTimeoutError when none came."""
        return self.subscription.recv(timeout)

    def ack(self, batch: ChangeBatch) -> None:
        """Everything up to a batch is stored."""
        self.subscription.ack(batch)

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Put rows into the dead letters; they are on the disk when this returns."""
        name = self.sink.connection.dead_letters
        if not name:
            raise ConnectorError(f"a row was rejected: {rejected[0].reason}")
        batch = letters(rejected, self.engine.log.clock())
        self.engine.dispatcher.commit([(name, batch)], sync=True)

    def lag_rows(self) -> int:
        """How many rows wait."""
        return self.subscription.metrics.lag_rows

    def cancel(self) -> None:
        """End it."""
        self.subscription.cancel()


# ---- pausing and dropping


def pause(context: Context, statement: Pause) -> Result:
    """ALTER ... PAUSE, ALTER ... RESUME."""
    catalog = context.engine.catalog
    if statement.kind == "sink":
        name = catalog.sink(statement.name).name
    else:
        name = catalog.of_kind(statement.kind, statement.name).name
    context.engine.connections.pause(name, paused=statement.paused)
    return context.done(f"ALTER {statement.kind.upper()}")


@uninterrupted
def drop_sink(engine: Engine, name: str) -> None:
    """DROP SINK: its thread is stopped, its position and its dead letters are gone."""
    sink = engine.catalog.sink(name)
    running = engine.connections.stop(sink.name)

    def forget() -> None:
        engine.catalog.drop_sink(sink.name)
        key = (None, SINK_PREFIX + sink.name)
        if key in engine.positions:
            engine.positions.drop(key)

    engine.dispatcher.call(forget)
    if running is not None:
        engine.connections.clean_up(running)


def sinks_of(engine: Engine, name: str) -> list[str]:
    """The names of the sinks that read a relation."""
    return [each.name for each in engine.catalog.sinks if each.relation == name]


# ---- options


def _kind(statement: CreateSource | CreateTable) -> str:
    return "source" if hasattr(statement, "watermark") else "table"


def _connector_of(statement: CreateSource | CreateTable | CreateSink) -> str:
    option = statement.options.get("connector")
    if option is None:
        raise SqlOptionError(
            "a sink needs a connector",
            sql=statement.sql,
            line=statement.line,
            column=statement.column,
            hint="write WITH (connector = '...', ...)",
        )
    return str(option.value)


def _split(
    statement: CreateSource | CreateTable | CreateSink, kind: str
) -> tuple[dict[str, GivenOption], dict[str, OptionValue]]:
    """The options of the relation itself, and the values of those of its connector."""
    known = () if kind == "sink" else names_of(kind)
    own = {name: each for name, each in statement.options.items() if name in known}
    given = {
        name: each.value
        for name, each in statement.options.items()
        if name not in known and name != "connector"
    }
    return own, given


def _checked(
    statement: CreateSource | CreateTable | CreateSink,
    given: Mapping[str, OptionValue],
    known: tuple[Option, ...],
) -> tuple[str, ...]:
    """The names of the secret options among those that were given, all checked."""
    try:
        return check_options(given, known)
    except OptionProblemError as problem:
        raise _refused(
            statement, problem.name, problem.message, problem.hint, at_name=problem.about_name
        ) from None


def _refused(
    statement: CreateSource | CreateTable | CreateSink,
    name: str,
    message: str,
    hint: str,
    *,
    at_name: bool = False,
) -> SqlOptionError:
    option = statement.options.get(name) or statement.options["connector"]
    line, column = option.name_at if at_name else (option.line, option.column)
    sql = without_secrets(statement.sql)
    return SqlOptionError(message, sql=sql, line=line, column=column, hint=hint)


class _located:  # noqa: N801 - a context manager, used as a function
    """Raises what a registry does not find as an error at its option."""

    def __init__(self, statement: CreateSource | CreateTable | CreateSink) -> None:
        self._statement = statement

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ObjectNotFoundError):
            raise _refused(self._statement, "connector", error.message, error.hint) from None


def _asked(connection: Connection, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it gives
    """What a connector answers; what it raises, without secrets, as an error of ours."""
    scrub = Scrubber(connection.options, connection.secrets)
    try:
        return ask()
    except Error as error:
        clean = error.again()
        clean.message, clean.hint = scrub(error.message), scrub(error.hint)
        clean.args = (clean.message,)
        clean.__cause__ = None
        raise clean from None
    except Exception as error:  # noqa: BLE001 - drivers raise anything
        raise ConnectorError(
            f"the connector {connection.connector!r} cannot be opened: {scrub(describe(error))}",
            hint="see that the system outside runs and can be reached, and check the options",
        ) from None

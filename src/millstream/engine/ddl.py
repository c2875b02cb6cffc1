"""Statements that change what exists: CREATE, DROP, ALTER.

What they change is changed by the dispatcher's thread, between two commits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.catalog import Definition, options_of
from millstream.engine import connect, show
from millstream.errors import (
    InUseError,
    ObjectExistsError,
    ObjectNotFoundError,
    SubscriptionEndedError,
    SubscriptionExistsError,
)
from millstream.model.clock import system_clock
from millstream.threads import uninterrupted
from millstream.views.replacement import build_beside, take_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.catalog import SinkDefinition
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.result import Result
    from millstream.model.schema import Column
    from millstream.sql import AddColumn, CreateSource, CreateTable, CreateView, Drop, SkipDamage
    from millstream.views.planning import PlannedView
    from millstream.views.running import RunningView


# ---- sources and tables


@uninterrupted
def create_source(context: Context, statement: CreateSource) -> Result:
    """CREATE SOURCE."""
    if statement.schema is None or "connector" in statement.options:
        return connect.create_fed(context, statement)
    definition = Definition(
        "source",
        statement.name,
        statement.schema,
        options_of(statement.options, statement.schema, statement.sql),
        statement.watermark,
        system_clock(),
    )
    return _create(context, definition, if_not_exists=statement.if_not_exists)


@uninterrupted
def create_table(context: Context, statement: CreateTable) -> Result:
    """CREATE TABLE."""
    if statement.schema is None or "connector" in statement.options:
        return connect.create_fed(context, statement)
    options = options_of(statement.options, statement.schema, statement.sql, "table")
    definition = Definition(
        "table", statement.name, statement.schema, options, created_at=system_clock()
    )
    return _create(context, definition, if_not_exists=statement.if_not_exists)


def _create(context: Context, definition: Definition, *, if_not_exists: bool) -> Result:
    """Create a source or a table; it is on the disk when this returns."""
    engine = context.engine

    def create() -> None:
        if not (if_not_exists and definition.name in engine.catalog):
            engine.open_relation(engine.catalog.create(definition))

    engine.dispatcher.call(create)
    return context.done(f"CREATE {definition.kind.upper()}")


@uninterrupted
def add_column(context: Context, statement: AddColumn) -> Result:
    """ALTER ... ADD COLUMN; rows from before have NULL in it."""
    engine = context.engine
    name = engine.catalog.of_kind(statement.kind, statement.name).name
    evolve(engine, name, statement.added, if_not_exists=statement.if_not_exists)
    engine.connections.evolved(name)
    return context.done(f"ALTER {statement.kind.upper()}")


def evolve(engine: Engine, name: str, column: Column, *, if_not_exists: bool = True) -> None:
    """Add a column to a source or a table; one that is there is passed over, or an error."""
    table = engine.tables.get(name)

    def add() -> None:
        known = {each.lower() for each in engine.catalog[name].schema.names}
        if if_not_exists and column.name.lower() in known:
            return
        schema = engine.catalog.add_column(name, column).schema
        engine.inlets.evolve(name, schema)
        if table is not None:
            table.evolve(schema)

    if table is None:
        engine.dispatcher.call(add)
    else:
        with table.changing:  # no statement has computed changes with the old columns
            engine.dispatcher.call(add)


def skip_damage(context: Context, statement: SkipDamage) -> Result:
    """ALTER ... SKIP DAMAGE: go on without the damaged part of a source or a table.

    Readers of a source are given gaps in its place.

    Raises:
        InUseError: views read the table, and would count its rows twice.
    """
    engine = context.engine
    definition = engine.catalog.of_kind(statement.kind, statement.name)
    definition.check_usable()
    table = engine.tables.get(definition.name)
    if table is None:
        return show.gaps(engine.log.skip_damage(definition.name))
    readers = engine.views.readers_of(definition.name)
    if readers:
        raise InUseError(
            f"{definition.name} is read by {', '.join(readers)}",
            hint="drop them, skip the damage, and create them again",
        )
    saver = engine.saver
    return show.gaps(
        engine.tables.skip_damage(
            table, saver.read(definition), lambda: saver.save_anew(definition, table)
        )
    )


# ---- views


def create_view(context: Context, statement: CreateView) -> Result:
    """CREATE MATERIALIZED VIEW, CREATE STREAM."""
    engine = context.engine
    known = engine.catalog.get(statement.name)
    if known is None:
        planned = engine.views.plan(statement)
        engine.views.create(planned, if_not_exists=statement.if_not_exists)
    elif statement.or_replace and known.query and not statement.if_not_exists:
        planned = engine.views.plan(statement)
        check_replacement(engine, known, planned)
        _replace(engine, known, planned)
    elif not statement.if_not_exists:
        raise ObjectExistsError(
            f"there is a {known.kind} {known.name} already",
            hint="use another name, or IF NOT EXISTS, or DROP it first",
        )
    stream = statement.kind == "stream"
    return context.done("CREATE STREAM" if stream else "CREATE MATERIALIZED VIEW")


def check_replacement(engine: Engine, old: Definition, planned: PlannedView) -> None:
    """Raise unless a view can be created once the one that it replaces is dropped.

    Raises:
        InUseError: it reads the one that it replaces.
        ObjectExistsError: the log for its late rows has the name of something else.
    """
    dropped = _dropped_with(engine, old)
    read = [name for name in planned.inputs if name in dropped]
    if read:
        raise InUseError(
            f"{old.name} cannot be replaced by a view that reads {read[0]}",
            hint="create it under another name, or read what the old one reads",
        )
    late = planned.statement.late_to
    if late is not None and late.lower() not in {name.lower() for name in dropped[1:]}:
        engine.catalog.check_new(replace(planned.definition, kind="stream", name=late))


def _replace(engine: Engine, old: Definition, new: PlannedView) -> None:
    """Put a view in the place of another one, which serves until then."""
    statement = new.statement
    if statement.kind == "stream" or statement.late_to is not None:  # they have a log to begin
        _replace_at_once(engine, old, new)
        return
    _check_unread(engine, old)
    built = build_beside(engine.views, statement)
    try:
        _check_unread(engine, old)
    except BaseException:
        engine.views.shared.drop(built)
        raise
    _take_over(engine, old, built)


@uninterrupted
def _replace_at_once(engine: Engine, old: Definition, new: PlannedView) -> None:
    _check_unread(engine, old)
    for name in _dropped_with(engine, old):
        if sinks := connect.sinks_of(engine, name):
            raise _in_use_by(name, sinks, or_else="")
    _drop(engine, old)
    engine.views.create(new)


@uninterrupted
def _take_over(engine: Engine, old: Definition, built: RunningView) -> None:
    late = _dropped_with(engine, old)[1:]
    fan_out = engine.dispatcher.fan_out

    def end_readers() -> None:
        ended = SubscriptionEndedError(f"{old.name} was replaced", hint="subscribe again")
        fan_out.drop_routes(old.name, ended)

    def remove() -> None:
        for name in late:
            engine.remove_relation(name, SubscriptionEndedError(f"{name} was dropped"))
        end_readers()

    def show(definition: Definition) -> None:
        engine.catalog.adopt(definition)
        end_readers()  # those that have begun with the old one since

    take_over(engine.views, built, old, late=late, remove=remove, show=show)


def _check_unread(engine: Engine, definition: Definition) -> None:
    """Raise if a view reads one that is to be replaced, or its late rows; or if that is gone."""
    if not engine.catalog.has(definition):
        raise ObjectNotFoundError(f"{definition.name} was dropped meanwhile")
    readers = [
        reader
        for name in _dropped_with(engine, definition)
        for reader in engine.views.readers_of(name)
        if reader != definition.name
    ]
    if readers:
        raise _in_use(engine, definition, readers, or_else="")


# ---- dropping


@uninterrupted
def drop(context: Context, statement: Drop) -> Result:
    """DROP."""
    if statement.kind == "subscription":
        return _drop_subscription(context, statement)
    catalog = context.engine.catalog
    if statement.kind == "sink":
        if not (statement.if_exists and not catalog.has_sink(statement.name)):
            with context.engine.connections.changing:
                sink = catalog.sink(statement.name)
                _check_letters(context.engine, sink, cascade=statement.cascade)
                connect.drop_sink(context.engine, sink.name)
                _drop_letters(context.engine, sink, cascade=statement.cascade)
    elif not (statement.if_exists and statement.name not in catalog):
        with context.engine.connections.changing:
            definition = catalog.of_kind(statement.kind, statement.name)
            _drop(context.engine, definition, cascade=statement.cascade)
    return context.done(f"DROP {statement.kind.upper()}")


def _drop_subscription(context: Context, statement: Drop) -> Result:
    engine = context.engine
    key = engine.positions.find(context.tenant, statement.name)
    if engine.registry.is_open(key):
        raise SubscriptionExistsError(
            f"the subscription {statement.name!r} is open", hint="cancel it first"
        )
    if not (statement.if_exists and key not in engine.positions):
        engine.positions.drop(key)
    return context.done("DROP SUBSCRIPTION")


def _drop(engine: Engine, definition: Definition, *, cascade: bool = False) -> None:
    """Remove a source, a table or a view, its rows, and with CASCADE the views that read it.

    Raises:
        InUseError: a view reads it, and is not to be dropped with it.
    """
    names = _dropped_with(engine, definition)
    readers = [
        reader
        for name in names
        for reader in engine.views.readers_of(name)
        if reader != definition.name
    ]
    if readers and not cascade:
        raise _in_use(engine, definition, readers)
    for reader in readers:
        if reader in engine.catalog:
            _drop(engine, engine.catalog[reader], cascade=True)
        else:
            engine.views.shared.end(
                reader, SubscriptionEndedError(f"{definition.name} was dropped")
            )

    _drop_sinks(engine, names, cascade=cascade)
    stopped = engine.connections.stop(definition.name)

    def forget() -> None:
        for name in names:
            if name in engine.catalog:  # a log of late rows may have been dropped with its view
                ended = SubscriptionEndedError(f"{name} was dropped")
                engine.dispatcher.call(partial(engine.remove_relation, name, ended))

    if definition.name in engine.views or definition.name in engine.views.failed:
        engine.views.drop(definition.name, forget)
    else:
        forget()
    if stopped is not None:
        engine.connections.clean_up(stopped)


def _drop_sinks(engine: Engine, names: list[str], *, cascade: bool) -> None:
    """Drop the sinks that read what is dropped, if they are to go with it."""
    sinks = [sink for name in names for sink in connect.sinks_of(engine, name)]
    if sinks and not cascade:
        raise _in_use_by(names[0], sinks)
    for name in sinks:
        sink = engine.catalog.sink(name)
        connect.drop_sink(engine, name)
        _drop_letters(engine, sink, cascade=True)


def _check_letters(engine: Engine, sink: SinkDefinition, *, cascade: bool) -> None:
    """Raise if the dead letters of a sink are read, and are not to be dropped with it."""
    letters = engine.catalog.get(sink.connection.dead_letters or "")
    readers = [] if letters is None else engine.views.readers_of(letters.name)
    if letters is not None and readers and not cascade:
        raise _in_use(engine, letters, list(readers))
    sinks = [] if letters is None else connect.sinks_of(engine, letters.name)
    if letters is not None and sinks and not cascade:
        raise _in_use_by(letters.name, sinks)


def _drop_letters(engine: Engine, sink: SinkDefinition, *, cascade: bool) -> None:
    letters = sink.connection.dead_letters
    if letters and letters in engine.catalog:
        _drop(engine, engine.catalog[letters], cascade=cascade)


def _dropped_with(engine: Engine, definition: Definition) -> list[str]:
    """The names that DROP removes: the object, the log of late rows or of dead letters."""
    late = engine.views.late_log(definition.name)
    if late is None and definition.connection is not None:
        late = definition.connection.dead_letters or None
    if late is None or late not in engine.catalog:
        return [definition.name]
    return [definition.name, engine.catalog[late].name]


_CASCADE: Final = ", or write CASCADE"
"""What a DROP may do instead; a statement that replaces something does not take it."""


def _in_use_by(name: str, sinks: Sequence[str], *, or_else: str = _CASCADE) -> InUseError:
    """The error of dropping or replacing what sinks read."""
    return InUseError(
        f"{name} is read by the sink {', '.join(sinks)}",
        hint=f"DROP SINK {sinks[0]} first{or_else}",
    )


def _in_use(
    engine: Engine, definition: Definition, readers: list[str], *, or_else: str = _CASCADE
) -> InUseError:
    """The error of dropping or replacing what views read."""
    named = [engine.catalog[name] for name in readers if name in engine.catalog]
    first = [f"DROP {each.kind.upper()} {each.name}" for each in named]
    shown = [each.name for each in named]
    if len(named) < len(readers):
        first.append("cancel the subscriptions whose queries read it")
        shown.append("a query that is subscribed to")
    return InUseError(
        f"{definition.name} is read by {', '.join(shown)}",
        hint=f"{'; '.join(first)} first{or_else}",
    )

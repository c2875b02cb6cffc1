"""Statements that change what exists: CREATE, DROP, ALTER.

They check and change it one after the other, with ``catalog.ddl`` held. What takes long is done
before, and checked again then. What they change is changed by the dispatcher's thread, between two
commits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.catalog import Definition, options_of
from millstream.engine import connect, show
from millstream.errors import (
    InUseError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    SubscriptionEndedError,
    SubscriptionExistsError,
)
from millstream.model.clock import system_clock
from millstream.threads import uninterrupted
from millstream.views.definitions import statement_of
from millstream.views.failures import unrepeatable
from millstream.views.replacement import begin_instead, build_beside, take_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.catalog import SinkDefinition
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.result import Result
    from millstream.model.schema import Column
    from millstream.sql import AddColumn, CreateSource, CreateTable, CreateView, Drop, SkipDamage
    from millstream.views.planning import PlannedView
    from millstream.views.running import RunningView

_CASCADE: Final = ", or write CASCADE"
"""What a DROP may do instead; a statement that replaces something does not take it."""

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
    done = f"CREATE {definition.kind.upper()}"

    def create() -> None:
        engine.open_relation(engine.catalog.create(definition))

    with engine.catalog.ddl.held(f"{done} {definition.name}"):
        if not (if_not_exists and definition.name in engine.catalog):
            engine.dispatcher.call(create)
    return context.done(done)


@uninterrupted
def add_column(context: Context, statement: AddColumn) -> Result:
    """ALTER ... ADD COLUMN; rows from before have NULL in it."""
    engine, done = context.engine, f"ALTER {statement.kind.upper()}"
    with engine.catalog.ddl.held(f"{done} {statement.name}"):
        definition = engine.catalog.of_kind(statement.kind, statement.name)
        evolve(engine, definition, statement.added, if_not_exists=statement.if_not_exists)
        engine.connections.evolved(definition.name)
    return context.done(done)


def evolve(
    engine: Engine, definition: Definition, column: Column, *, if_not_exists: bool = True
) -> None:
    """Add a column to a source or a table; one that is there is passed over, or an error.

    A connector calls it without the DDL lock, since DROP waits for the connector with that held.

    Raises:
        ObjectNotFoundError: it was dropped, and perhaps created again.
    """
    name = definition.name
    table = engine.tables.get(name)

    def add() -> None:
        if not engine.catalog.has(definition):
            raise ObjectNotFoundError(f"the {definition.kind} {name} was dropped")
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


@uninterrupted
def skip_damage(context: Context, statement: SkipDamage) -> Result:
    """ALTER ... SKIP DAMAGE: go on without the damaged part of a source or a table.

    Readers of a source are given gaps in its place.

    Raises:
        InUseError: views read the table, and would count its rows twice.
    """
    engine = context.engine
    with engine.catalog.ddl.held(f"ALTER {statement.kind.upper()} {statement.name}"):
        return _skip_damage(engine, statement)


def _skip_damage(engine: Engine, statement: SkipDamage) -> Result:
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
    while not _has_created(context.engine, statement):
        pass  # another statement has changed what it was planned over: plan again
    return context.done(_what(statement))


def _what(statement: CreateView) -> str:
    return "CREATE STREAM" if statement.kind == "stream" else "CREATE MATERIALIZED VIEW"


def _has_created(engine: Engine, statement: CreateView) -> bool:
    """Create a view, unless it exists and may; False if it must be planned again.

    Raises:
        ObjectExistsError: the name is taken.
    """
    known = engine.catalog.get(statement.name)
    try:
        if known is None:
            _create_new(engine, engine.views.plan(statement))
        elif statement.or_replace and known.query and not statement.if_not_exists:
            _replace(engine, known, statement)
        elif not statement.if_not_exists:
            raise ObjectExistsError(
                f"there is a {known.kind} {known.name} already",
                hint="use another name, or IF NOT EXISTS, or DROP it first",
            )
    except ObjectChangedError:
        return False
    return True


@uninterrupted
def _create_new(engine: Engine, planned: PlannedView) -> None:
    name = planned.definition.name
    with engine.catalog.ddl.held(f"{_what(planned.statement)} {name}"):
        if name in engine.catalog:
            raise ObjectChangedError(f"{name} was created meanwhile")
        engine.views.create(planned)


def rebuild(engine: Engine, name: str) -> None:
    """Have a view that an earlier version has stored otherwise computed anew, in its place.

    Raises:
        Error: that cannot be done; what is stored of the view stays as it is.
    """
    definition = engine.catalog[name]
    _check_repeatable(engine, definition)
    statement = statement_of(definition)
    _has_created(engine, replace(statement, or_replace=True, if_not_exists=False))


def _check_repeatable(engine: Engine, definition: Definition) -> None:
    """Raise if rows that a view has read are kept no more: what it has shown would be lost.

    Raises:
        ViewFailedError: retention has removed some.
    """
    for name, first in definition.firsts:
        read = engine.catalog.get(name)
        if read is None or read.has_base:  # the current rows are enough
            continue
        if engine.log.topic(name).low_lsn > max(first, definition.begins):
            raise unrepeatable(definition, "of an earlier version")


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


def _replace(engine: Engine, known: Definition, statement: CreateView) -> None:
    """Put a view in the place of another one, which serves until then."""
    planned = engine.views.plan(statement)
    check_replacement(engine, known, planned)
    _check_unread(engine, known)
    if statement.kind == "stream" or statement.late_to is not None:  # they have a log to begin
        _swap(engine, planned, partial(begin_instead, planned))
        return
    _swap_built(engine, build_beside(engine.views, statement))


@uninterrupted
def _swap_built(engine: Engine, built: RunningView) -> None:
    try:
        _swap(engine, built.planned, partial(take_over, built))
    except BaseException:
        engine.views.shared.drop(built)
        raise


@uninterrupted
def _swap(engine: Engine, planned: PlannedView, put: Callable[..., None]) -> None:
    """Put a planned view in the place of the one that has its name now.

    Args:
        engine: where they are.
        planned: the new one.
        put: puts it there: ``begin_instead`` or ``take_over``.

    Raises:
        ObjectChangedError: there is none any more.
        InUseError: a view reads the old one, or the new one would.
    """
    name = planned.statement.name
    with engine.catalog.ddl.held(f"CREATE OR REPLACE {name}"):
        old = engine.catalog.get(name)
        if old is None or not old.query:
            raise ObjectChangedError(f"{name} was dropped meanwhile")
        check_replacement(engine, old, planned)
        _check_unread(engine, old)
        late = _dropped_with(engine, old)[1:]
        remove, show = _handover(engine, old, late)
        put(engine.views, old, late=late, remove=remove, show=show)


def _handover(
    engine: Engine, old: Definition, late: list[str]
) -> tuple[Callable[[], None], Callable[[Definition], None]]:
    """What ends the readers of a view that is replaced, and what shows the new one to readers."""

    def end_readers() -> None:
        ended = SubscriptionEndedError(f"{old.name} was replaced", hint="subscribe again")
        engine.dispatcher.fan_out.drop_routes(old.name, ended)

    def remove() -> None:
        for name in late:
            engine.remove_relation(name, SubscriptionEndedError(f"{name} was dropped"))
        end_readers()

    def show(definition: Definition) -> None:
        engine.catalog.adopt(definition)
        end_readers()  # those that have begun with the old one since

    return remove, show


def _check_unread(engine: Engine, definition: Definition) -> None:
    """Raise if a view that is to be replaced is read by views, or its late rows by anything."""
    names = _dropped_with(engine, definition)
    outdated = engine.views.outdated  # which are computed anew, too
    readers = [each for each in _readers_of(engine, definition, names) if each not in outdated]
    if readers:
        raise _in_use(engine, definition, readers, or_else="")
    for name in names[1:]:
        _check_no_sinks(engine, name, or_else="")


# ---- dropping


@uninterrupted
def drop(context: Context, statement: Drop) -> Result:
    """DROP."""
    done = f"DROP {statement.kind.upper()}"
    with context.engine.catalog.ddl.held(f"{done} {statement.name}"):
        if statement.kind == "subscription":
            _drop_subscription(context, statement)
        elif statement.kind == "sink":
            _drop_sink(context.engine, statement)
        else:
            catalog = context.engine.catalog
            if not (statement.if_exists and statement.name not in catalog):
                definition = catalog.of_kind(statement.kind, statement.name)
                _drop(context.engine, definition, cascade=statement.cascade)
    return context.done(done)


def _drop_sink(engine: Engine, statement: Drop) -> None:
    if not (statement.if_exists and not engine.catalog.has_sink(statement.name)):
        sink = engine.catalog.sink(statement.name)
        _check_letters(engine, sink, cascade=statement.cascade)
        connect.drop_sink(engine, sink.name)
        _drop_letters(engine, sink, cascade=statement.cascade)


def _drop_subscription(context: Context, statement: Drop) -> None:
    engine = context.engine
    key = engine.positions.find(context.tenant, statement.name)
    if engine.registry.is_open(key):
        raise SubscriptionExistsError(
            f"the subscription {statement.name!r} is open", hint="cancel it first"
        )
    with engine.registry.claimed(key):
        if not (statement.if_exists and key not in engine.positions):
            engine.positions.drop(key)


def _drop(engine: Engine, definition: Definition, *, cascade: bool = False) -> None:
    """Remove a source, a table or a view, its rows, and with CASCADE the views that read it.

    Raises:
        InUseError: a view reads it, and is not to be dropped with it.
    """
    names = _dropped_with(engine, definition)
    readers = _readers_of(engine, definition, names)
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


def _readers_of(engine: Engine, definition: Definition, names: list[str]) -> list[str]:
    """The views that read what is dropped with an object."""
    return [
        reader
        for name in names
        for reader in engine.views.readers_of(name)
        if reader != definition.name
    ]


def _check_no_sinks(engine: Engine, name: str, *, or_else: str = _CASCADE) -> None:
    """Raise if sinks read a relation."""
    sinks = connect.sinks_of(engine, name)
    if sinks:
        raise InUseError(
            f"{name} is read by the sink {', '.join(sinks)}",
            hint=f"DROP SINK {sinks[0]} first{or_else}",
        )


def _drop_sinks(engine: Engine, names: list[str], *, cascade: bool) -> None:
    """Drop the sinks that read what is dropped, if they are to go with it."""
    for name in names if not cascade else ():
        _check_no_sinks(engine, name)
    for sink in engine.catalog.sinks:
        if sink.relation in names:
            connect.drop_sink(engine, sink.name)
            _drop_letters(engine, sink, cascade=True)


def _check_letters(engine: Engine, sink: SinkDefinition, *, cascade: bool) -> None:
    """Raise if the dead letters of a sink are read, and are not to be dropped with it."""
    letters = engine.catalog.get(sink.connection.dead_letters or "")
    readers = [] if letters is None else engine.views.readers_of(letters.name)
    if letters is not None and readers and not cascade:
        raise _in_use(engine, letters, list(readers))
    if letters is not None and not cascade:
        _check_no_sinks(engine, letters.name)


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


def _in_use(
    engine: Engine, definition: Definition, readers: list[str], *, or_else: str = _CASCADE
) -> InUseError:
    """The error of dropping or replacing what views read."""
    named = [engine.catalog[name] for name in readers if name in engine.catalog]
    first = [f"DROP {each.kind.upper()} {each.name}" for each in named]
    shown = [each.name for each in named]
    hidden = [engine.views.get(name) for name in readers if name not in engine.catalog]
    built = {each.planned.statement.name for each in hidden if each is not None}
    for name in sorted(built - {""}):
        first.append("wait for that")
        shown.append(f"CREATE OR REPLACE {name}, which is under way")
    if "" in built:  # the view of a query has no name
        first.append("cancel the subscriptions whose queries read it")
        shown.append("a query that is subscribed to")
    return InUseError(
        f"{definition.name} is read by {', '.join(shown)}",
        hint=f"{'; '.join(first)} first{or_else}",
    )

"""Statements and calls that change and read rows: INSERT, UPDATE, DELETE, SELECT, wait_for."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from millstream.engine.once import Insertion, RepeatedInsert
from millstream.engine.ways import way_of
from millstream.errors import (
    InvalidOptionError,
    ObjectChangedError,
    SqlError,
)
from millstream.model.batch import ChangeBatch
from millstream.model.clock import from_datetime, to_datetime
from millstream.sources import Source
from millstream.sql import plan_insert, plan_update, plan_where
from millstream.threads import deadline_of, time_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.catalog import Definition
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.engine.once import InsertKey
    from millstream.model.result import Result
    from millstream.model.weighted_rows import Row
    from millstream.sql import Delete, Insert, Query, Select, Update
    from millstream.tables import Conflict


# ---- adding rows


def insert(context: Context, statement: Insert) -> Result:
    """INSERT."""
    definition, own = context.find_own(statement.target)
    definition.check_writable()
    rows = plan_insert(statement, definition.schema)
    if own is not None:
        own.check(rows)
    if definition.kind == "source":
        if rows:
            batch = ChangeBatch(definition.schema, rows, None, None)
            context.engine.inlets[definition].enter([batch])
        count = len(rows)
    else:
        count = context.engine.tables.insert(definition, rows, statement.conflict, own)
    return context.done(f"INSERT {count}", count)


def insert_batches(
    context: Context,
    definition: Definition,
    batches: list[ChangeBatch],
    conflict: Conflict = "error",
) -> int:
    """Add checked batches to a source or a table, all or none; returns how many rows."""
    context.check("push rows")
    own = context.own_rows(definition)
    definition.check_writable()
    if own is not None:
        for batch in batches:
            own.check(batch.held_rows)
    if definition.kind == "source":
        if batches:
            context.engine.inlets[definition].enter(batches)
        return sum(map(len, batches))
    rows: list[Row] = [row for batch in batches for row in batch.held_rows]
    return context.engine.tables.insert(definition, rows, conflict, own)


def insert_once(
    context: Context,
    definition: Definition,
    batches: list[ChangeBatch],
    key: str,
    conflict: Conflict = "error",
) -> Insertion:
    """Add checked batches, unless that was done before with the same key; on the disk by then."""
    context.check("push rows")
    engine, own = context.engine, context.own_rows(definition)
    definition.check_writable()
    if own is not None:
        for batch in batches:
            own.check(batch.held_rows)
    count = sum(map(len, batches))
    stamp = engine.insert_keys.key(definition, context.tenant, key, count)
    repeated = False
    try:
        if definition.kind == "source":
            _commit_once(engine, definition, batches, stamp)
        else:
            rows = [row for batch in batches for row in batch.held_rows]
            engine.tables.insert(definition, rows, conflict, own, stamp)
    except RepeatedInsert:
        repeated = True
    engine.flush()
    return Insertion(count, repeated)


def _commit_once(
    engine: Engine, definition: Definition, batches: list[ChangeBatch], stamp: InsertKey
) -> None:
    """Commit rows of a source and their key as one, past the buffer of the source."""
    inlet = engine.inlets[definition]

    def with_key() -> list[tuple[str, ChangeBatch]]:
        stamp.check()
        engine.inlets[definition]  # raises if the source was dropped meanwhile
        for batch in batches:
            if inlet.event_time.has_column or batch.watermark is not None:
                inlet.event_time.observe(batch)
        return [*((definition.name, batch) for batch in batches), stamp.entry]

    def applied(_: list[ChangeBatch]) -> None:
        inlet.pushed += sum(map(len, batches))
        stamp.applied()

    shown = [batch.copy() for batch in batches] if inlet.inline else []
    engine.dispatcher.commit(with_key, applied, sync=inlet.sync)
    for each in inlet.inline:
        for batch in shown:
            each.batch(batch)


def source(context: Context, name: str, record: type | None) -> Source:
    """A producer's handle on a source, which refuses rows of other tenants."""
    context.check("push rows")
    engine = context.engine
    definition, own = context.find_own(name)
    definition.check_writable()
    return Source(
        engine.inlets[definition],
        engine.flush,
        record,
        check=None if own is None else own.check,
        check_watermark=lambda: context.check("set a watermark"),
    )


# ---- changing rows


def update(context: Context, statement: Update) -> Result:
    """UPDATE."""
    definition, own = context.find_own(statement.target)
    definition.check_writable()
    predicate, projection = plan_update(statement, definition.schema)
    count = context.engine.tables.update(definition, predicate, projection, own)
    return context.done(f"UPDATE {count}", count)


def delete(context: Context, statement: Delete) -> Result:
    """DELETE."""
    definition, own = context.find_own(statement.target)
    definition.check_writable()
    schema, alias = definition.schema, statement.target
    predicate = plan_where(statement.where, schema, statement.sql, alias=alias)
    count = context.engine.tables.delete(definition, predicate, own)
    return context.done(f"DELETE {count}", count)


# ---- reading rows


def query(context: Context, statement: Select | Query) -> Result:
    """SELECT."""
    return _unchanged(lambda: way_of(context, statement).answer(as_of(context.engine, statement)))


def _unchanged(answer: Callable[[], Result]) -> Result:
    """The answer of a query, planned again if what it reads was dropped or replaced meanwhile."""
    while True:
        with contextlib.suppress(ObjectChangedError):
            return answer()


def wait_for(context: Context, view: str, lsn: int | None, timeout: float | None) -> int:
    """Wait until a view runs and includes everything up to an LSN, or all pushed so far.

    Returns that LSN.
    """
    engine, deadline = context.engine, deadline_of(timeout)
    if lsn is not None and (type(lsn) is not int or lsn < 0):
        raise InvalidOptionError(f"lsn is {lsn!r}", hint="a whole number from 0 on, or None")
    if lsn is None:
        lsn = engine.dispatcher.barrier(complete=True)
    definition = context.find(view)
    engine.views.opened(definition)
    with context.filtered_errors():
        _wait_through(engine, definition.name, lsn, deadline)
    return lsn


def _wait_through(engine: Engine, name: str, lsn: int, deadline: float | None) -> int:
    """Wait until a view includes everything up to an LSN, by way of the views that it reads, too.

    Returns the LSN of its own last change; of one that was only created, which no reader sees, the
    last that readers have seen.
    """
    running = engine.views[name]
    for each in running.planned.inputs:
        if each in engine.views:
            lsn = max(lsn, _wait_through(engine, each, lsn, deadline))
    running.wait_for(lsn, time_left(deadline, None))
    return min(running.view.lsn, engine.dispatcher.lsn)


def as_of(engine: Engine, statement: Select | Query) -> int | None:
    """The LSN that AS OF stands for: of a time, the last one committed by then. None without it.

    Raises:
        SqlError: it lies in the future.
    """
    clause = statement.as_of
    if clause is None:
        return None
    engine.dispatcher.barrier()
    newest, now = engine.log.lsn, engine.log.clock()
    moment = clause.moment
    if isinstance(moment, timedelta):
        moment = to_datetime(now - moment // timedelta(microseconds=1))
    if isinstance(moment, datetime):
        time = from_datetime(moment)
        found = newest if time > now else min(newest, engine.log.lsn_at(time + 1) - 1)
        text, is_future = f"the time {moment}", time > now
    else:
        found, text, is_future = moment, f"LSN {moment:,}", moment > newest
    if is_future:
        raise SqlError(
            f"{text} lies in the future",
            sql=statement.sql,
            line=clause.line,
            column=clause.column,
            hint=f"the newest LSN is {newest:,}; without AS OF the newest rows are read",
        )
    return engine.relations.whole_change(found)

"""The engine: everything that exists at run time, and what can be done with it. Knows no SQL text.

Definitions become running things here: a source gets its inlet, a table its rows. Whatever changes
what exists runs in the dispatcher's thread, between two commits.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.catalog import Catalog, Definition
from millstream.catalog.tenants import SelectAll
from millstream.dispatch import Commit, Dispatcher, select
from millstream.dispatch.flush import make_durable
from millstream.errors import (
    BrokenDefinitionError,
    Error,
    InUseError,
    ObjectNotFoundError,
    SubscriptionEndedError,
    TenantError,
    ViewNotReadyError,
    WrongObjectError,
)
from millstream.log import Retention
from millstream.model.arguments import check_text
from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.queries.duckdb import AdhocRunner
from millstream.sources import EventTime, IdleWatch, Inlet, Source
from millstream.sql import plan_all
from millstream.sql.adhoc import plan_adhoc
from millstream.state.bag import Bag
from millstream.subscriptions import Positions
from millstream.tables.table import Table
from millstream.threads import uninterrupted
from millstream.views.views import HIDDEN, Views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.log import Log, Reader
    from millstream.model.batch import Row
    from millstream.model.change import Gap
    from millstream.model.schema import Column
    from millstream.spark.session import Spark
    from millstream.sql import Input, Predicate, Projection, Query, SelectPlan
    from millstream.tables.table import Changes
    from millstream.views.planning import Planned
    from millstream.views.running import Running

NOTIFICATIONS: Final = "__notifications"
_NOTIFICATIONS_SCHEMA: Final = Schema.of(
    channel="VARCHAR NOT NULL", payload="VARCHAR NOT NULL", tenant="VARCHAR"
)
_MICROSECOND: Final = timedelta(microseconds=1)
_LSN: Final = pa.field("_lsn", pa.int64(), nullable=False)


class Engine:
    """A database without its front door.

    Attributes:
        log: the log.
        dispatcher: Ring 1.
        catalog: what exists.
        positions: how far durable subscriptions have come.
        views: the views that run.
    """

    def __init__(self, log: Log, spark: Spark) -> None:
        self.log = log
        self.catalog = Catalog(log)
        self.dispatcher = Dispatcher(log)
        self._inlets: dict[str, Inlet] = {}
        self._tables: dict[str, Table] = {}
        self._idle: dict[str, IdleWatch] = {}
        self.select_all = SelectAll(self.definition)
        self._adhoc = AdhocRunner()
        self.positions = Positions(log, self.dispatcher, self._watermarks)
        self.views = Views(
            log,
            self.dispatcher,
            self.catalog,
            spark=spark,
        )
        for definition in self.catalog:
            if not definition.is_derived and not definition.broken:
                self._run(definition, self._last_watermark(definition))
        self.notifications = self._system_source(NOTIFICATIONS, _NOTIFICATIONS_SCHEMA)
        for definition in sorted(self.catalog, key=lambda each: each.born):
            if definition.query:  # those it reads were made before it
                self.views.load(definition)

    def start(self) -> None:
        """Let the views run."""
        for each in self.views:
            self.views.start(each)

    def _system_source(self, name: str, schema: Schema) -> Inlet:
        if name not in self.log.topics:
            self.log.create_topic(name, schema, retention=Retention(max_age=3600.0))
        inlet = Inlet(name, schema, self.dispatcher.wakeup)
        self.dispatcher.add(inlet)
        return inlet

    # ---- what exists

    def create(self, definition: Definition, *, if_not_exists: bool = False) -> None:
        """Make a source or a table; it is on the disk when this returns."""

        def create() -> None:
            if not (if_not_exists and definition.name in self.catalog):
                self._run(self.catalog.create(definition), value=None)

        self.dispatcher.call(create)

    @uninterrupted
    def create_view(self, planned: Planned, *, if_not_exists: bool = False) -> None:
        """Make a view, and let it run."""

        def create() -> bool:
            if if_not_exists and planned.definition.name in self.catalog:
                return False
            self.views.create(planned)
            return True

        if self.dispatcher.call(create):
            self.views.start(self.views.run(planned))

    def check_replacement(self, old: Definition, planned: Planned) -> None:
        """Raise unless a view can be made once the one that it replaces is dropped.

        Raises:
            InUseError: it reads the one that it replaces.
            ObjectExistsError: the log for its late rows has the name of something else.
        """
        going = self._dropped_with(old)
        read = [name for name in planned.inputs if name in going]
        if read:
            raise InUseError(
                f"{old.name} cannot be replaced by a view that reads {read[0]}",
                hint="create it under another name, or read what the old one reads",
            )
        late = planned.statement.late_to
        if late is not None and late.lower() not in {name.lower() for name in going[1:]}:
            self.catalog.check_new(replace(planned.definition, kind="stream", name=late))

    def _dropped_with(self, definition: Definition) -> list[str]:
        """What DROP removes: the object and, of a view, the log of its late rows."""
        late = self.views.late_log(definition.name)
        return [definition.name] if late is None else [definition.name, self.catalog[late].name]

    def drop(self, definition: Definition, *, cascade: bool = False) -> None:
        """Remove a source, a table or a view, its rows, and whoever reads it.

        Raises:
            InUseError: a view reads it, and is not to be dropped with it.
        """
        names = self._dropped_with(definition)
        readers = [
            reader
            for name in names
            for reader in self.views.readers_of(name)
            if reader != definition.name
        ]
        if readers and not cascade:
            raise self._in_use(definition, readers)
        for reader in readers:
            if reader in self.catalog:
                self.drop(self.catalog[reader], cascade=True)
            else:
                self.views.end_shared(
                    reader, SubscriptionEndedError(f"{definition.name} was dropped")
                )

        def forget() -> None:
            for name in names:
                if name in self.catalog:  # a log of late rows may have gone with its view
                    self.dispatcher.call(partial(self._drop, name))

        if definition.name in self.views or definition.name in self.views.failed:
            self.views.drop(definition.name, forget)
        else:
            forget()

    def _in_use(self, definition: Definition, readers: list[str]) -> InUseError:
        named = [self.catalog[name] for name in readers if name in self.catalog]
        first = [f"DROP {each.kind.upper()} {each.name}" for each in named]
        told = [each.name for each in named]
        if len(named) < len(readers):
            first.append("cancel the subscriptions whose queries read it")
            told.append("a query that is subscribed to")
        return InUseError(
            f"{definition.name} is read by {', '.join(told)}",
            hint=f"{'; '.join(first)} first, or write CASCADE",
        )

    def _drop(self, name: str) -> None:
        """Remove it; called by the dispatcher's thread."""
        definition = self.catalog.drop(name)
        self.views.saver.forget(definition)
        self._tables.pop(name, None)
        idle = self._idle.pop(name, None)
        if idle is not None:
            idle.stop()
        inlet = self._inlets.pop(name, None)
        ended = SubscriptionEndedError(f"{name} was dropped")
        if inlet is not None:
            inlet.close()
            self.dispatcher.remove(inlet)
            inlet.abandon()
            for inline in inlet.inline:
                inline.fail(ended)
        self.positions.drop_target(name)
        self.dispatcher.drop_routes(name, ended)

    def add_column(
        self, definition: Definition, column: Column, *, if_not_exists: bool = False
    ) -> None:
        """Add a column; rows from before have NULL in it."""

        def add() -> None:
            there = {name.lower() for name in self.catalog[definition.name].schema.names}
            if if_not_exists and column.name.lower() in there:
                return
            schema = self.catalog.add_column(definition.name, column).schema
            inlet = self._inlets.get(definition.name)
            if inlet is not None:
                inlet.evolve(schema)
            table = self._tables.get(definition.name)
            if table is not None:
                table.evolve(schema)

        table = self._tables.get(definition.name)
        if table is None:
            self.dispatcher.call(add)
        else:
            with table.changing:  # no statement was worked out with the old columns
                self.dispatcher.call(add)

    def skip_damage(self, definition: Definition) -> list[Gap]:
        """Go on without what is damaged of a source or a table; returns the gaps.

        Readers of a source are given the gaps in their place. The log of a table begins anew with
        the rows that can be made out, since what changed a lost row would change another one.

        Raises:
            InUseError: views read the table, and would count its rows twice.
        """
        _check_readable(definition)
        table = self._tables.get(definition.name)
        if table is None:
            return self.log.skip_damage(definition.name)
        readers = self.views.readers_of(definition.name)
        if readers:
            raise InUseError(
                f"{definition.name} is read by {', '.join(readers)}",
                hint="drop them, skip the damage, and create them again",
            )
        with table.changing:
            gaps = self.log.find_damage(definition.name)
            if gaps:
                self._rebuild(table, definition)
        return gaps

    def _rebuild(self, table: Table, definition: Definition) -> None:
        whole = Table(table.name, table.schema)
        whole.salvage(self.log)
        rows, _, schema = whole.snapshot()
        table.clear()
        first = self.log.lsn + 1
        if rows:
            batch = ChangeBatch(schema, rows, None, None)
            commit = Commit([(table.name, batch)], lambda placed: table.apply(placed[0]), sync=True)
            self.dispatcher.commit(commit)
            first = batch.first_lsn
        self.log.trim(table.name, first)
        table.error = None
        self.views.saver.forget(definition)
        self.views.saver.keep(definition, table)

    def _run(self, definition: Definition, value: int | None) -> None:
        """Bring a definition to life; ``value`` is the watermark where the log left it."""
        options = definition.options
        if definition.kind == "table":
            table = Table(definition.name, definition.schema)
            table.load(self.log, self.views.saver.read(definition))
            if table.error is None:
                self.views.saver.keep(definition, table)
            self._tables[definition.name] = table
            return
        inlet = Inlet(
            definition.name,
            definition.schema,
            self.dispatcher.wakeup,
            event_time=_event_time(definition, value),
            capacity=options.buffer_size,
            policy=options.backpressure,
            sync=options.wal_mode == "sync",
        )
        self._inlets[definition.name] = inlet
        self.dispatcher.add(inlet)
        if options.idle_timeout is not None and inlet.event_time.has_column:
            seconds = options.idle_timeout.total_seconds()
            self._idle[definition.name] = IdleWatch(inlet, seconds)

    def _last_watermark(self, definition: Definition) -> int | None:
        """The watermark where the log left it."""
        topic = self.log.topic(definition.name)
        value = self.positions.loaded_watermarks.get(definition.name)
        start = max(self.positions.loaded_lsn + 1, topic.low_lsn)
        later = self.log.watermark(definition.name, start)
        known = [each for each in (value, later) if each is not None]
        return max(known, default=None)

    def _watermarks(self) -> dict[str, int]:
        values = {name: i.event_time.logged for name, i in list(self._inlets.items())}
        return {name: value for name, value in values.items() if value is not None}

    # ---- writing

    def inlet(self, definition: Definition) -> Inlet:
        """Where the rows of a source go in.

        Raises:
            WrongObjectError: it is no source.
            ObjectNotFoundError: it was dropped, and perhaps made anew with other columns.
        """
        if definition.kind != "source":
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}, not a source",
                hint="write to it with INSERT, UPDATE, DELETE or db.insert",
            )
        _check_readable(definition)
        inlet = self._inlets.get(definition.name)
        if inlet is None or not self.is_current(definition):
            raise ObjectNotFoundError(
                f"the source {definition.name} was dropped", hint="CREATE SOURCE makes it anew"
            )
        return inlet

    def source(
        self,
        definition: Definition,
        record: type | None = None,
        check: Callable[[Sequence[Row]], None] | None = None,
    ) -> Source:
        """A producer's handle on a source; ``check`` raises on rows that it may not push."""
        return Source(self.inlet(definition), self.flush, record, check=check)

    def insert_rows(
        self,
        definition: Definition,
        rows: list[Row],
        conflict: Any,  # noqa: ANN401
        tenant: str | None = None,
    ) -> int:
        """Add checked rows to a source or a table; returns how many were taken.

        Raises:
            TenantError: a row of another tenant would be replaced.
        """
        if definition.kind == "source":
            if rows:
                batch = ChangeBatch(definition.schema, rows, None, None)
                self.inlet(definition).enter([batch])
            return len(rows)
        mine = self.tenant_column(definition, tenant)

        def insert(table: Table) -> Changes:
            changes = table.insert(rows, conflict)
            place = 0 if mine is None else table.schema.names.index(mine[0])
            if mine is not None and any(row[place] != mine[1] for row in changes.rows):
                raise TenantError(
                    "a row of another tenant has that key", hint="insert it with another key"
                )
            return changes

        return self._change(definition, insert)

    def update(
        self, definition: Definition, predicate: Predicate | None, projection: Projection
    ) -> int:
        """Change rows of a table; returns how many there were."""
        return self._change(definition, lambda table: table.update(predicate, projection))

    def delete(self, definition: Definition, predicate: Predicate | None) -> int:
        """Remove rows of a table; returns how many there were."""
        return self._change(definition, lambda table: table.delete(predicate))

    def _change(self, definition: Definition, work_out: Callable[[Table], Changes]) -> int:
        _check_readable(definition)
        table = self._tables.get(definition.name)
        if definition.kind == "table" and (table is None or not self.is_current(definition)):
            raise ObjectNotFoundError(f"the table {definition.name} was dropped")
        if table is None:
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}: its rows cannot be changed",
                hint="CREATE TABLE with a PRIMARY KEY makes a log whose rows can be",
            )
        with table.changing:
            if table.unsettled:  # a signal ended a wait: that commit may still be on its way
                self.dispatcher.barrier()
            table.unsettled = False
            table.check()
            changes = work_out(table)
            batch = changes.batch(table.schema)
            if batch is not None:
                commit = self._table_commit(table, batch, definition)
                table.unsettled = True
                try:
                    self.dispatcher.commit(commit)
                except Error:
                    table.unsettled = False  # it is known: nothing of it was committed
                    raise
                table.unsettled = False
        return changes.count

    def _table_commit(self, table: Table, batch: ChangeBatch, definition: Definition) -> Commit:
        def still_there() -> list[tuple[str, ChangeBatch]]:
            if self._tables.get(table.name) is not table:
                raise ObjectNotFoundError(f"the table {table.name} was dropped")
            return [(table.name, batch)]

        sync = definition.options.wal_mode == "sync"
        return Commit(still_there, lambda placed: table.apply(placed[0]), sync=sync)

    def is_current(self, definition: Definition) -> bool:
        """Whether a definition is still of something that exists, ALTER aside."""
        name = definition.name
        if name.startswith(HIDDEN):
            return name in self.views
        return name in self.catalog and self.catalog[name].born == definition.born

    def flush(self) -> int:
        """Wait until all pushed rows are on the disk and delivered; returns the last LSN.

        Raises:
            LogFullError: the disk is full; pushed rows are kept in memory until there is room.
        """
        return make_durable(self.dispatcher, self.log)

    # ---- reading

    def snapshot(
        self, definition: Definition, plan: SelectPlan
    ) -> Callable[[], tuple[list[ChangeBatch], int]] | None:
        """How a query's current rows are had; None for what has none but its log."""
        if definition.kind == "view":
            return self._view_snapshot(definition, plan)
        table = self._tables.get(definition.name)
        if table is None:
            return None

        def snapshot() -> tuple[list[ChangeBatch], int]:
            rows, lsn, schema = table.snapshot()
            whole = self.state(table.name, schema, rows, lsn)
            kept = select(whole, plan)
            if kept is None:  # an empty state is a state, too
                kept = self.state(table.name, plan.schema, [], lsn)
            return [kept], lsn

        return snapshot

    def _view_snapshot(
        self, definition: Definition, plan: SelectPlan
    ) -> Callable[[], tuple[list[ChangeBatch], int]]:
        view = self.views[definition.name].view

        def snapshot() -> tuple[list[ChangeBatch], int]:
            table, lsn = view.snapshot()
            states = []
            for part in table.to_batches():
                whole = self._placed(view.name, view.schema, part, lsn)
                kept = select(whole, plan)
                if kept is not None:
                    states.append(kept)
            return states or [self.state(view.name, plan.schema, [], lsn)], lsn

        return snapshot

    def _placed(self, topic: str, schema: Schema, rows: pa.RecordBatch, lsn: int) -> ChangeBatch:
        """Arrow rows as a snapshot that holds at an LSN."""
        return ChangeBatch(
            schema,
            None,
            schema.conform(rows),
            None,
            topic=topic,
            lsn=lsn,
            lsns=pa.repeat(pa.scalar(lsn, pa.int64()), rows.num_rows),
            kind="snapshot",
            origin=self.log.origin,
        )

    def state(self, topic: str, schema: Schema, rows: list[Row], lsn: int) -> ChangeBatch:
        """Rows as a snapshot that holds at an LSN."""
        return ChangeBatch(
            schema,
            rows,
            None,
            None,
            topic=topic,
            lsn=lsn,
            lsns=[lsn] * len(rows),
            kind="snapshot",
            origin=self.log.origin,
        )

    def query(self, definition: Definition, plan: SelectPlan) -> Result:
        """The rows that a query gives now, those just pushed included."""
        lsn = self.dispatcher.barrier()
        batches, left = [], plan.limit
        for batch in self._stored(definition, lsn):
            kept = select(batch, plan)
            if kept is None:
                continue
            arrow = kept.arrow if left is None else kept.arrow.slice(0, left)
            if arrow.num_columns > len(plan.schema.columns):  # some were added just now
                arrow = plan.schema.conform(arrow.select(plan.schema.names))
            batches.append(arrow)
            if left is not None:
                left -= arrow.num_rows
                if left <= 0:
                    break
        return Result(plan.schema, batches, lsn=lsn)

    def _current(self, running: Running) -> pa.Table:
        """The rows of a view; of a stream that keeps none, what its log adds up to."""
        if running.planned.keeps_rows:
            return running.view.snapshot()[0]
        rows = Bag(running.view.schema)
        for batch in self.kept((running.view.name,), self.dispatcher.lsn):
            rows.load(batch)
        return rows.snapshot()

    def row_count(self, definition: Definition) -> int:
        """How many rows a table has; 0 when that is not known."""
        return len(self._tables.get(definition.name, ()))

    def query_adhoc(self, statement: Query, tenant: str | None = None) -> Result:
        """The rows that a query with joins, groups or an order gives now."""
        plan = plan_adhoc(statement, self.inputs(tenant))
        lsn = self.dispatcher.barrier()
        relations = {
            name: self._relation(name, plan.columns[name], lsn, tenant) for name in plan.tables
        }
        table = self._adhoc.run(plan, relations)
        return Result(plan.schema, table.to_batches(), lsn=lsn)

    def _relation(
        self, name: str, columns: Sequence[str], lsn: int, tenant: str | None
    ) -> pa.Table:
        """The current rows of anything, as one Arrow table; of a source with their LSNs.

        A tenant's query is given the rows of that tenant only, so no SQL can get at others.
        """
        definition = self.find(name, tenant)
        mine = None
        if tenant is not None:
            extra = self.tenant_column(definition, tenant)
            mine = plan_all(definition.name, definition.schema, extra)
        schema = definition.schema.arrow.remove_metadata().append(_LSN)
        batches = [
            pa.RecordBatch.from_arrays(
                [*definition.schema.conform(batch.arrow).columns, batch.lsns_arrow()], schema=schema
            )
            for stored in self._stored(definition, lsn)
            for batch in [stored if mine is None else select(stored, mine)]
            if batch is not None
        ]
        # Without any column the number of rows would be lost.
        return pa.Table.from_batches(batches, schema).select(list(columns) or [_LSN.name])

    def check_view(self, definition: Definition) -> None:
        """Raise if it cannot be read: a view whose query cannot go on, a broken definition."""
        self.check_opened(definition)
        if definition.name in self.views:
            error = self.views[definition.name].view.error
            if error is not None:
                raise error.again()

    def check_opened(self, definition: Definition) -> None:
        """Raise if it could not be opened."""
        _check_readable(definition)
        if definition.name in self.views.failed:
            raise self.views.failed[definition.name].again()

    def share_view(self, query: Query, tenant: str | None = None) -> Running:
        """The hidden view of a query, shared by identical queries of one tenant, or of all."""
        return self.views.share(query, self.create_view, self.inputs(tenant), tenant)

    def wait_for(self, name: str, lsn: int, seconds: float | None) -> None:
        """Wait until a view runs and has taken in everything up to an LSN.

        Raises:
            ViewNotReadyError: the time is up.
            ViewFailedError: its query cannot go on.
        """
        running = self.views[name]
        uninterrupted(running.probe)(lsn)
        if not running.view.wait_for(lsn, seconds):
            raise ViewNotReadyError(
                f"{name} is at LSN {running.view.reached:,}, not at {lsn:,}, and the time is up",
                hint=f"its query is {running.runner.state}; wait longer, or look at SHOW VIEWS",
            )

    def _stored(self, definition: Definition, lsn: int) -> Iterator[ChangeBatch]:
        self.check_view(definition)
        if definition.name in self.views:
            running = self.views[definition.name]
            if running.planned.keeps_rows or running.planned.retracts:
                schema = definition.schema
                for part in self._current(running).to_batches():
                    yield ChangeBatch(schema, None, schema.conform(part), None)
                return
        table = self._tables.get(definition.name)
        if table is None:
            yield from self.kept((definition.name,), lsn)
            return
        rows, _, schema = table.snapshot()
        if rows:
            yield ChangeBatch(schema, rows, None, None)

    def kept(
        self, topics: tuple[str, ...], until: int, start: int = FIRST_LSN
    ) -> Iterator[ChangeBatch]:
        """What the log keeps of some topics, from an LSN on, up to another one."""
        if not topics:
            return
        hold = self.log.hold(lsn=FIRST_LSN)  # retention waits until this was read
        try:
            with self.log.read_kept(*topics, start=start)[0] as reader:
                yield from self._up_to(until, reader)
        finally:
            hold.release()

    def _up_to(self, until: int, reader: Reader) -> Iterator[ChangeBatch]:
        while reader.position < until:
            batch = reader.next_nowait()
            if batch is None:
                if self.log.written_lsn >= until:
                    return
                if self.log.is_stalled:  # the disk is full: what waits for room is in memory
                    for rest in reader.rest():
                        if rest.first_lsn <= until:
                            yield _first_rows(rest, until)
                    return
                self.log.write_soon()
                batch = reader.next(timeout=0.05)
            if batch is None:
                continue
            if batch.first_lsn > until:
                return
            yield _first_rows(batch, until)

    # ---- tenants

    def find(self, name: str, tenant: str | None = None) -> Definition:
        """The definition of a source, table or view.

        Raises:
            ObjectNotFoundError: there is none of that name.
            TenantError: it has no tenant column, so no tenant may see it.
        """
        if tenant is None:
            return self.catalog[name]
        definition = self.catalog.get(name)
        if definition is None:  # the hint of the catalog names what other tenants have, too
            names = ", ".join(self.collections(tenant))
            raise ObjectNotFoundError(
                f"there is no source, table or view {name!r}",
                hint=f"available to tenants: {names}" if names else "",
            )
        self.tenant_column(definition, tenant)
        return definition

    def inputs(self, tenant: str | None) -> Callable[[str], Input]:
        """What planners are given: the relations that a query may read, by name."""
        if tenant is None:
            return self.views.input
        return lambda name: self.views.input(self.find(name, tenant).name)

    def tenant_column(self, definition: Definition, tenant: str | None) -> tuple[str, str] | None:
        """The tenant column, and the value that it has in the rows of a tenant.

        Raises:
            TenantError: there is no tenant column, so no tenant may see the rows.
        """
        if tenant is None:
            return None
        if not isinstance(tenant, str):
            raise TenantError(
                f"expected the name of a tenant, got {type(tenant).__name__}",
                hint="tenant= takes a str",
            )
        column = definition.options.tenant
        if column is None:
            raise TenantError(
                f"the {definition.kind} {definition.name} has no tenant column",
                hint="CREATE it WITH (tenant = 'column') to let each tenant see its own rows",
            )
        return column, tenant

    def tenant_of(self, topic: str) -> str | None:
        """The tenant column of a topic, or None."""
        return self.catalog[topic].options.tenant if topic in self.catalog else None

    def collections(self, tenant: str | None = None) -> tuple[str, ...]:
        """The names of all relations; for a tenant, of those with a tenant column."""
        return tuple(
            each.name for each in self.catalog if tenant is None or each.options.tenant is not None
        )

    def definition(self, topic: str) -> Definition | None:
        """What a topic is of; None when it is the database's own."""
        if topic.startswith(HIDDEN):
            return self.views[topic].planned.definition if topic in self.views else None
        return self.catalog.get(topic)

    def notify(self, channel: str, payload: str, tenant: str | None) -> None:
        """Tell whoever listens to a channel, in the order of the pushes."""
        check_text(channel, "the channel")
        check_text(payload, "the payload", optional=True)
        rows = _NOTIFICATIONS_SCHEMA.check_rows([(channel, payload, tenant)])
        self.notifications.enter([ChangeBatch(_NOTIFICATIONS_SCHEMA, rows, None, None)])

    # ---- the end

    def close(self) -> None:
        """Commit what was pushed, and stop. The log stays open."""
        for each in self._idle.values():
            each.stop()
        self.views.close()
        self._adhoc.close()
        inlets = [*self._inlets.values(), self.notifications]
        for inlet in inlets:
            inlet.close()
        try:
            self.positions.write()
        finally:
            self.dispatcher.stop()
            for inlet in inlets:
                inlet.abandon()


def _first_rows(batch: ChangeBatch, until: int) -> ChangeBatch:
    """The rows of a batch up to an LSN."""
    return batch if batch.lsn <= until else batch.slice(0, until - batch.first_lsn + 1)


def _check_readable(definition: Definition) -> None:
    if definition.broken:
        raise BrokenDefinitionError(
            f"{definition.name} cannot be used: {definition.broken}",
            hint=f"SHOW CREATE {definition.name}; DROP {definition.kind.upper()} "
            f"{definition.name} removes it and its rows",
        )


def _event_time(definition: Definition, value: int | None) -> EventTime:
    mark = definition.watermark
    if mark is None:
        return EventTime(value=value)
    column = definition.schema.names.index(mark.column)
    return EventTime(column, mark.delay // _MICROSECOND, value)

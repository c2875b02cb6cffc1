"""The current rows of sources, tables and views, read for queries and for new subscriptions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.catalog.tenants import find
from millstream.dispatch import select
from millstream.errors import ObjectChangedError, TopicNotFoundError
from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.model.result import Result
from millstream.queries.duckdb import AdhocRunner
from millstream.sql import plan_all
from millstream.state.bags import Bag
from millstream.views.past import Past
from millstream.views.readiness import READ_OPTIONS, Readiness
from millstream.views.sorting import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.catalog import Catalog, Definition
    from millstream.catalog.tenants import OwnRows
    from millstream.dispatch import Dispatcher
    from millstream.log import Log, Reader
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sql import Predicate, Query, SelectPlan
    from millstream.sql.adhoc import AdhocPlan
    from millstream.tables import Table, Tables
    from millstream.views.planning import PlannedView
    from millstream.views.readiness import ReadOptions
    from millstream.views.running import RunningView
    from millstream.views.views import Views

Snapshot = tuple[list[ChangeBatch], int]
"""Current rows, and the LSN at which they hold."""

_LSN: Final = pa.field("_lsn", pa.int64(), nullable=False)


class Relations:
    """Reads the rows of everything that a query can name.

    Args:
        log: the rows of sources and streams.
        dispatcher: commits what was pushed before a query.
        catalog: what exists.
        tables: the rows of tables.
        views: the rows of views.

    Attributes:
        readiness: waits for views that do not count yet what was committed before a read.
    """

    def __init__(
        self, log: Log, dispatcher: Dispatcher, catalog: Catalog, tables: Tables, views: Views
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._tables = tables
        self._views = views
        self._adhoc = AdhocRunner()
        self._past = Past(views)
        self.readiness = Readiness(views, dispatcher)

    # ---- queries

    def select(
        self,
        definition: Definition,
        plan: SelectPlan,
        as_of: int | None = None,
        options: ReadOptions = READ_OPTIONS,
    ) -> Result:
        """The rows that a SELECT of one relation gives now, those just pushed included.

        Args:
            definition: the relation.
            plan: the SELECT.
            as_of: the LSN at which it has the rows that are read; None: now.
            options: whether to wait for a view that is late.
        """
        lsn, late = self._reached((definition.name,), options, as_of)
        if as_of is None:
            stored = self._stored(definition, lsn, plan.predicate)
        else:
            stored = self._past.rows(definition, lsn)
        batches, left = [], plan.limit
        for batch in stored:
            kept = select(batch, plan)
            if kept is None:
                continue
            arrow = kept.arrow if left is None else kept.arrow.slice(0, left)
            if arrow.num_columns > len(plan.schema.columns):  # some were added just now
                arrow = plan.schema.conform_known(arrow)
            batches.append(arrow)
            if left is not None:
                left -= arrow.num_rows
                if left <= 0:
                    break
        return Result(plan.schema, batches, lsn=lsn, catching_up=late)

    def adhoc(
        self,
        plan: AdhocPlan,
        tenant: str | None,
        as_of: int | None = None,
        options: ReadOptions = READ_OPTIONS,
        read: Iterable[Definition] = (),
    ) -> Result:
        """The rows that a query with joins, groups or an order gives now.

        Args:
            plan: the query.
            tenant: the relations have the rows of this tenant only, so no SQL can read others;
                None: all rows.
            as_of: the LSN at which the relations have the rows that are read; None: now.
            options: whether to wait for views that are late.
            read: the definitions over which it was planned.

        Raises:
            ObjectChangedError: one of them was dropped or replaced meanwhile.
        """
        names = (find(self._catalog, name, tenant)[0].name for name in plan.tables)
        lsn, late = self._reached(names, options, as_of)
        for each in read:
            self._check_unchanged(each)
        relations = {
            name: self._relation(name, plan.columns[name], tenant, lsn, is_past=as_of is not None)
            for name in plan.tables
        }
        table = self._adhoc.run(plan, relations)
        return Result(plan.schema, table.to_batches(), lsn=lsn, catching_up=late)

    def interrupt(self, thread: int) -> None:
        """End the query with joins, groups or an order, or the wait for views, of a thread."""
        self.readiness.interrupt(thread)
        self._adhoc.interrupt(thread)
        self._past.interrupt(thread)

    def plan_on_spark(self, query: Query, tenant: str | None) -> PlannedView:
        """A query of any kind that a view may have, as Spark answers it in batch.

        Args:
            query: the query.
            tenant: whose rows it reads; None: all rows.

        Raises:
            SqlError: a view cannot have it.
        """
        return self._past.plan(query, tenant)

    def on_spark(
        self, planned: PlannedView, as_of: int | None = None, options: ReadOptions = READ_OPTIONS
    ) -> Result:
        """The rows that such a query gives now, those just pushed included.

        Args:
            planned: the query.
            as_of: the LSN at which what it reads has the rows that are read; None: now.
            options: whether to wait for views that are late.
        """
        lsn, late = self._reached(planned.inputs, options, as_of)
        stored = partial(self._stored, lsn=lsn) if as_of is None else None
        table = self._past.answer(planned, lsn, stored)
        schema = planned.definition.schema
        return Result(schema, table.to_batches(), lsn=lsn, catching_up=late)

    def _reached(
        self, names: Iterable[str], options: ReadOptions, as_of: int | None
    ) -> tuple[int, tuple[str, ...]]:
        """The LSN to read at, once what was pushed so far is committed and counts in relations.

        And the views in which it does not, but that are to be read.
        """
        if as_of is not None:
            return as_of, ()
        lsn = self._dispatcher.barrier()
        return lsn, self.readiness.wait(names, options)

    def _relation(
        self, name: str, columns: Sequence[str], tenant: str | None, lsn: int, *, is_past: bool
    ) -> pa.Table:
        """Some columns of a relation as one Arrow table; of a source with their LSNs."""
        definition, own = find(self._catalog, name, tenant)
        table = None if is_past else self._table(definition)
        if table is not None and {*columns} <= {*table.schema.names, _LSN.name}:
            self._views.check(definition)
            return _table_columns(table, columns, own)
        plan = None
        if own is not None:
            plan = plan_all(definition.name, definition.schema, own.equality)
        schema = definition.schema.arrow.remove_metadata().append(_LSN)
        batches = [
            pa.RecordBatch.from_arrays(
                [*definition.schema.conform_known(batch.arrow).columns, batch.lsns_arrow()],
                schema=schema,
            )
            for stored in (self._past.rows if is_past else self._stored)(definition, lsn)
            for batch in [stored if plan is None else select(stored, plan)]
            if batch is not None
        ]
        # Without any column the number of rows would be lost.
        return pa.Table.from_batches(batches, schema).select(list(columns) or [_LSN.name])

    # ---- the beginning of a subscription

    def snapshot(self, definition: Definition, plan: SelectPlan) -> Callable[[], Snapshot] | None:
        """A function that returns the current rows of a query; None for a source or a stream."""
        if definition.kind == "view":
            return self._view_snapshot(definition, plan)
        table = self._tables.get(definition.name)
        return None if table is None else self._table_snapshot(table, plan)

    def _table_snapshot(self, table: Table, plan: SelectPlan) -> Callable[[], Snapshot]:
        def snapshot() -> Snapshot:
            rows, lsn, schema = table.snapshot()
            kept = select(_state(self._log, table.name, schema, rows, lsn), plan)
            if kept is None:  # an empty state is a state, too
                kept = _state(self._log, table.name, plan.schema, [], lsn)
            return [kept], lsn

        return snapshot

    def _view_snapshot(self, definition: Definition, plan: SelectPlan) -> Callable[[], Snapshot]:
        view = self._views[definition.name].view

        def snapshot() -> Snapshot:
            table, lsn = view.snapshot()
            states = []
            for part in table.combine_chunks().to_batches():  # one: a reader never sees a part
                kept = select(_arrow_state(self._log, view.name, view.schema, part, lsn), plan)
                if kept is not None:
                    states.append(kept)
            return states or [_state(self._log, view.name, plan.schema, [], lsn)], lsn

        return snapshot

    def explain_past(self, definition: Definition) -> str:
        """How the rows that a relation had are found."""
        return self._past.explained(definition)

    def past_snapshot(self, definition: Definition, plan: SelectPlan) -> Callable[[int], Snapshot]:
        """A function that returns the rows that a query gave its subscribers at an LSN.

        Of a table or a view, whose log is kept.
        """
        running = self._views.get(definition.name)

        def snapshot(lsn: int) -> Snapshot:
            lsn = self.whole_change(lsn)
            schema = definition.schema
            shown = self._past.shown(definition, lsn)
            parts = [schema.conform_known(each.arrow) for each in shown]
            rows = pa.Table.from_batches(parts, schema.arrow)
            if running is not None:
                rows = ordered(rows, running.view.order)
            states = []
            for part in rows.combine_chunks().to_batches():  # one: a reader never sees a part
                kept = select(_arrow_state(self._log, definition.name, schema, part, lsn), plan)
                if kept is not None:
                    states.append(kept)
            return states or [_state(self._log, definition.name, plan.schema, [], lsn)], lsn

        return snapshot

    def whole_change(self, lsn: int) -> int:
        """An LSN; the next one if it lies between the old and the new row of an update."""
        names = tuple(each.name for each in self._catalog if not each.broken)
        for batch in self.logged(names, min(lsn + 1, self._log.lsn), start=lsn):
            is_update = batch.first_lsn == lsn and batch.slice(0, 2).weights == [-1, 1]
            return lsn + is_update
        return lsn

    # ---- stored rows

    def _stored(
        self, definition: Definition, lsn: int, predicate: Predicate | None = None
    ) -> Iterator[ChangeBatch]:
        """The current rows that a predicate may keep; of a log, those up to an LSN."""
        self._views.check(definition)
        if definition.query:
            running = self._views[definition.name]
            if running.planned.definition.born != definition.born:
                raise _changed(definition)
            if running.planned.keeps_rows or running.planned.retracts:
                schema, name = definition.schema, definition.name
                try:
                    rows = self._view_rows(running)
                except (ValueError, pa.ArrowException):
                    if not self._views.is_current(definition):  # its log is another view's now
                        raise _changed(definition) from None
                    raise
                for part in rows.to_batches():
                    yield ChangeBatch(schema, None, schema.conform(part), None, topic=name)
                return
        table = self._table(definition)
        if table is None:
            for batch in self.logged((definition.name,), lsn):
                self._check_unchanged(definition)
                yield batch
            return
        rows, _, schema = table.snapshot(predicate)
        if rows:
            yield ChangeBatch(schema, rows, None, None, topic=definition.name)

    def _table(self, definition: Definition) -> Table | None:
        """The table of a definition, or None.

        Raises:
            ObjectChangedError: it was dropped, and another one created.
        """
        table = self._tables.get(definition.name)
        if table is not None and table.born != definition.born:
            raise _changed(definition)
        return table

    def _check_unchanged(self, definition: Definition) -> None:
        if not self._catalog.has(definition):
            raise _changed(definition)

    def _view_rows(self, running: RunningView) -> pa.Table:
        """The rows of a view; of a stream that keeps none, the sum of the changes in its log."""
        if running.planned.keeps_rows:
            return running.view.snapshot()[0]
        rows = Bag(running.view.schema)
        for batch in self.logged((running.view.name,), self._dispatcher.lsn):
            rows.load(batch)
        return rows.snapshot()

    def logged(
        self, topics: tuple[str, ...], until: int, start: int = FIRST_LSN
    ) -> Iterator[ChangeBatch]:
        """The batches that the log has of some topics, from an LSN on, up to another one."""
        if not topics:
            return
        hold = self._log.hold(lsn=FIRST_LSN)  # retention waits until this was read
        try:
            with self._log.read_kept(*topics, start=start)[0] as reader:
                yield from self._up_to(until, reader)
        except TopicNotFoundError as error:
            raise ObjectChangedError(f"{' or '.join(topics)} was dropped meanwhile") from error
        finally:
            hold.release()

    def _up_to(self, until: int, reader: Reader) -> Iterator[ChangeBatch]:
        while reader.position < until:
            batch = reader.next_nowait()
            if batch is None:
                if self._log.written_lsn >= until:
                    return
                if self._log.appender.is_stalled:  # the disk is full: rows wait in memory
                    for rest in reader.rest():
                        if rest.first_lsn <= until:
                            yield _first_rows(rest, until)
                    return
                self._log.appender.write_soon()
                batch = reader.next(timeout=0.05)
            if batch is None:
                continue
            if batch.first_lsn > until:
                return
            yield _first_rows(batch, until)

    def close(self) -> None:
        """Close DuckDB, once the queries that run are finished."""
        self._adhoc.close()


def _changed(definition: Definition) -> ObjectChangedError:
    return ObjectChangedError(
        f"{definition.name} was dropped or replaced meanwhile", hint="run the statement again"
    )


def _table_columns(table: Table, columns: Sequence[str], own: OwnRows | None) -> pa.Table:
    """Some columns of a table's rows; those of one tenant only, if it is said which they are."""
    names = [name for name in columns if name != _LSN.name]
    made, count = table.columns(names if own is None else [*names, own.equality[0]])
    if not made or _LSN.name in columns:  # without any column the number of rows would be lost
        made[_LSN.name] = pa.arange(0, count)
    rows = pa.table(made)
    if own is not None:
        rows = rows.filter(pc.equal(rows[own.equality[0]], own.equality[1]))
    return rows.select(list(columns) or rows.column_names[:1])


def _first_rows(batch: ChangeBatch, until: int) -> ChangeBatch:
    """The rows of a batch up to an LSN."""
    return batch if batch.lsn <= until else batch.slice(0, until - batch.first_lsn + 1)


def _state(log: Log, topic: str, schema: Schema, rows: list[Row], lsn: int) -> ChangeBatch:
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
        origin=log.origin,
    )


def _arrow_state(
    log: Log, topic: str, schema: Schema, rows: pa.RecordBatch, lsn: int
) -> ChangeBatch:
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
        origin=log.origin,
    )

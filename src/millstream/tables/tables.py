"""The tables of one database: from a statement's changes to their commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.dispatch import Commit
from millstream.errors import Error, ObjectNotFoundError, WrongObjectError
from millstream.model.batch import ChangeBatch
from millstream.tables import changes
from millstream.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.catalog import Catalog, Definition
    from millstream.catalog.tenants import OwnRows
    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.change import Gap
    from millstream.model.weighted_rows import Row
    from millstream.sql import Predicate, Projection
    from millstream.state.saved import SavedRows
    from millstream.tables.changes import Changes, Conflict


class Tables:
    """The tables of one database.

    Args:
        log: where their changes are.
        dispatcher: commits and applies the changes.
        catalog: what exists.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher, catalog: Catalog) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._tables: dict[str, Table] = {}

    def get(self, name: str) -> Table | None:
        """The table of that name, or None."""
        return self._tables.get(name)

    def open(self, definition: Definition, saved: SavedRows | None) -> Table:
        """Read a table's rows: those that were saved, and the changes that the log has since."""
        table = Table(definition.name, definition.schema)
        table.load(self._log, saved)
        self._tables[definition.name] = table
        return table

    def remove(self, name: str) -> None:
        """Forget a table that was dropped; statements under way are refused."""
        self._tables.pop(name, None)

    # ---- statements

    def insert(
        self,
        definition: Definition,
        rows: Iterable[Row],
        conflict: Conflict,
        own: OwnRows | None = None,
    ) -> int:
        """Add checked rows; returns how many were inserted or replaced."""
        return self._change(definition, lambda table: changes.insert(table, rows, conflict, own))

    def update(
        self,
        definition: Definition,
        predicate: Predicate | None,
        projection: Projection,
        own: OwnRows | None = None,
    ) -> int:
        """Replace the rows that a predicate selects; returns how many there were."""
        return self._change(
            definition, lambda table: changes.update(table, predicate, projection, own)
        )

    def delete(
        self, definition: Definition, predicate: Predicate | None, own: OwnRows | None = None
    ) -> int:
        """Remove the rows that a predicate selects; returns how many there were."""
        return self._change(definition, lambda table: changes.delete(table, predicate, own))

    def _change(self, definition: Definition, changes_of: Callable[[Table], Changes]) -> int:
        table = self._changeable(definition)
        with table.changing:
            if table.unsettled:  # a signal ended a wait: that commit may still be under way
                self._dispatcher.barrier()
            table.unsettled = False
            table.check()
            made = changes_of(table)
            batch = made.batch(table.schema)
            if batch is not None:
                commit = self._commit_of(table, batch, definition)
                table.unsettled = True
                try:
                    self._dispatcher.commit(commit)
                except Error:
                    table.unsettled = False  # nothing of it was committed
                    raise
                table.unsettled = False
        return made.count

    def _changeable(self, definition: Definition) -> Table:
        definition.check_usable()
        table = self._tables.get(definition.name)
        if definition.kind == "table" and (table is None or not self._catalog.has(definition)):
            raise ObjectNotFoundError(f"the table {definition.name} was dropped")
        if table is None:
            raise WrongObjectError(
                f"{definition.name} is a {definition.kind}: its rows cannot be changed",
                hint="CREATE TABLE with a PRIMARY KEY makes a log whose rows can be",
            )
        return table

    def _commit_of(self, table: Table, batch: ChangeBatch, definition: Definition) -> Commit:
        def batches() -> list[tuple[str, ChangeBatch]]:
            if self._tables.get(table.name) is not table:
                raise ObjectNotFoundError(f"the table {table.name} was dropped")
            return [(table.name, batch)]

        sync = definition.options.wal_mode == "sync"
        return Commit(batches, lambda placed: table.apply(placed[0]), sync=sync)

    # ---- damage

    def skip_damage(self, table: Table) -> list[Gap]:
        """Go on with the rows that can be read; returns the damaged places that were skipped.

        The log of the table begins again with those rows: the changes after a damaged place might
        be of rows that were lost in it.
        """
        with table.changing:
            gaps = self._log.find_damage(table.name)
            if gaps:
                self._rebuild(table)
        return gaps

    def _rebuild(self, table: Table) -> None:
        readable = Table(table.name, table.schema)
        readable.salvage(self._log)
        rows, _, schema = readable.snapshot()
        table.clear()
        first = self._log.lsn + 1
        if rows:
            batch = ChangeBatch(schema, rows, None, None)
            commit = Commit([(table.name, batch)], lambda placed: table.apply(placed[0]), sync=True)
            self._dispatcher.commit(commit)
            first = batch.first_lsn
        self._log.trim(table.name, first)
        table.error = None

"""The tables of one database: from a statement's changes to their commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import ClosedError, Error, ObjectNotFoundError, WrongObjectError
from millstream.model.batch import ChangeBatch
from millstream.model.change import Gap
from millstream.tables import changes
from millstream.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.catalog import Definition
    from millstream.catalog.tenants import OwnRows
    from millstream.dispatch import Dispatcher
    from millstream.dispatch.tasks import Batches
    from millstream.log import Log
    from millstream.model.row_change import RowChange
    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sql import Predicate, Projection
    from millstream.state.saved import SavedRows
    from millstream.tables.changes import Changes, Conflict
    from millstream.tables.table_rows import Key


class Stamp(Protocol):
    """Something that is committed together with rows, or keeps them from being committed."""

    entry: tuple[str, ChangeBatch]

    def check(self) -> None:
        """Raise if the rows must not be committed."""

    def applied(self) -> None:
        """Take note that both were."""


class Tables:
    """The tables of one database.

    Args:
        log: where their changes are.
        dispatcher: commits and applies the changes.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._tables: dict[str, Table] = {}

    def get(self, name: str) -> Table | None:
        """The table of that name, or None."""
        return self._tables.get(name)

    def rows_of(self, name: str) -> tuple[list[Row], int, Schema] | None:
        """The current rows of a table, the LSN at which they hold, and their columns.

        None when there is no table of that name, or its rows are not known.
        """
        table = self._tables.get(name)
        return None if table is None or table.error is not None else table.snapshot()

    def open(self, definition: Definition, saved: SavedRows | None) -> Table:
        """Read a table's rows: those that were saved, and the changes that the log has since."""
        table = Table(definition.name, definition.schema, definition.born)
        table.load(self._log, saved)
        self._tables[definition.name] = table
        return table

    def remove(self, name: str) -> None:
        """Forget a table that was dropped; statements under way are refused."""
        table = self._tables.pop(name, None)
        if table is not None:
            table.rows.close(ObjectNotFoundError(f"the table {name} was dropped"))

    def close(self) -> None:
        """Read no more of the saved rows of tables."""
        for each in self._tables.values():
            each.rows.close(ClosedError("the database is closed", hint="open it again"))

    # ---- statements

    def insert(
        self,
        definition: Definition,
        rows: Iterable[Row],
        conflict: Conflict,
        own: OwnRows | None = None,
        stamp: Stamp | None = None,
    ) -> int:
        """Add checked rows, with a stamp if one is given; returns how many were changed."""
        return self._change(
            definition, lambda table: changes.insert(table, rows, conflict, own), stamp
        )

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

    def update_row(self, definition: Definition, key: Key, values: Mapping[int, Any]) -> int:
        """Change the row with that key, by the places of its columns; returns how many it is."""
        return self._change(definition, lambda table: changes.update_row(table, key, values))

    def delete_row(self, definition: Definition, key: Key) -> int:
        """Remove the row with that key; returns how many it is."""
        return self._change(definition, lambda table: changes.delete_row(table, key))

    def _change(
        self,
        definition: Definition,
        changes_of: Callable[[Table], Changes],
        stamp: Stamp | None = None,
    ) -> int:
        table = self._changeable(definition)
        with table.changing:
            if table.unsettled:  # a signal ended a wait: that commit may still be under way
                self._dispatcher.barrier()
            table.unsettled = False
            table.check()
            if stamp is not None:
                stamp.check()
            made = changes_of(table)
            batch = made.batch(table.schema)
            if batch is not None:
                table.unsettled = True
                try:
                    sync = definition.options.wal_mode == "sync"
                    self._commit(table, batch, sync=sync, stamp=stamp)
                except Error:
                    table.unsettled = False  # nothing of it was committed
                    raise
                table.unsettled = False
        return made.count

    def replay(
        self,
        definition: Definition,
        made: Sequence[RowChange],
        entries: Batches,
        applied: Callable[[int], None],
        *,
        check: Callable[[], None] = lambda: None,
    ) -> int:
        """Commit a transaction of another system, together with rows of other topics.

        Args:
            definition: the table.
            made: what the transaction did.
            entries: what else is in the commit, after the changes.
            applied: called with the commit's last LSN, in the thread that commits.
            check: called by the commit; it raises if there must be none.

        Returns how many rows it touched.
        """
        table = self._changeable(definition)
        with table.changing:
            if table.unsettled:
                self._dispatcher.barrier()
            table.unsettled = False
            table.check()
            changed = changes.replay(table, made)
            batch = changed.batch(table.schema)
            own: Batches = () if batch is None else [(table.name, batch)]

            def batches() -> Batches:
                check()
                if self._tables.get(table.name) is not table:
                    raise ObjectNotFoundError(f"the table {table.name} was dropped")
                return [*own, *entries]

            def placed(all_placed: list[ChangeBatch]) -> None:
                if batch is not None:
                    table.apply(all_placed[0])
                applied(all_placed[-1].lsn)

            if own or entries:
                self._dispatcher.commit_here(batches, placed)
        return changed.count

    def _changeable(self, definition: Definition) -> Table:
        table = self._tables.get(definition.name)
        if table is not None and table.born == definition.born:
            return table
        definition.check_usable()
        if definition.kind == "table":
            raise ObjectNotFoundError(f"the table {definition.name} was dropped")
        raise WrongObjectError(
            f"{definition.name} is a {definition.kind}: its rows cannot be changed",
            hint="CREATE TABLE with a PRIMARY KEY makes a log whose rows can be",
        )

    def _commit(
        self, table: Table, batch: ChangeBatch, *, sync: bool, stamp: Stamp | None = None
    ) -> None:
        def batches() -> list[tuple[str, ChangeBatch]]:
            if self._tables.get(table.name) is not table:
                raise ObjectNotFoundError(f"the table {table.name} was dropped")
            return [(table.name, batch), *(() if stamp is None else (stamp.entry,))]

        def applied(placed: list[ChangeBatch]) -> None:
            table.apply(placed[0])
            if stamp is not None:
                stamp.applied()

        self._dispatcher.commit(batches, applied, sync=sync)

    # ---- damage

    def skip_damage(
        self, table: Table, saved: SavedRows | None, save: Callable[[], None]
    ) -> list[Gap]:
        """Go on with the rows that can be read; returns the damaged places that were skipped.

        The log of the table begins again with those rows: the changes after a damaged place might
        be of rows that were lost in it.

        Args:
            table: the table.
            saved: its saved rows, if they can be read.
            save: saves its rows as they are; a log that does not begin with the table needs it.
        """
        with table.changing:
            gaps = self._log.find_damage(table.name)
            if table.error is not None and not gaps:  # its saved rows are lost
                first = self._log.topic(table.name).low_lsn
                gaps = [Gap(table.born, max(table.born, first - 1), None)]
            if gaps:
                self._rebuild(table, saved, save)
        return gaps

    def _rebuild(self, table: Table, saved: SavedRows | None, save: Callable[[], None]) -> None:
        readable = Table(table.name, table.schema)
        readable.salvage(self._log, saved)
        rows, _, schema = readable.snapshot()
        table.clear()
        first = self._log.lsn + 1
        if rows:
            batch = ChangeBatch(schema, rows, None, None)
            self._commit(table, batch, sync=True)
            first = batch.first_lsn
        else:
            table.lsn = first - 1
        table.error = None
        save()
        self._log.trim(table.name, first)

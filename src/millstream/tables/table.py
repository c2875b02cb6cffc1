"""A table: its current rows by key, changed by the batches that were committed to its log."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from millstream.errors import LogCorruptError
from millstream.model.schema import Schema
from millstream.state.saved import NEVER, SavedRows, rows_lost
from millstream.tables.table_rows import SavedBase, TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.model.weighted_rows import Row
    from millstream.sql import Predicate
    from millstream.tables.table_rows import Key

_ROWS: Final = "rows"
_PIECE: Final = 1 << 13
_FEW_CHANGES: Final = 200
_LARGEST: Final = 1 << 30  # bytes: the offsets of Arrow's strings end at 2 GiB


class Table:
    """The rows of a table.

    Args:
        name: the table, and its topic.
        schema: its columns and its key.
        born: the LSN before which it was not there: another one of its name may have been.

    Attributes:
        rows: the current rows by key; changed by the dispatcher's thread only.
        changing: held by the thread that computes and commits a change.
        unsettled: whether the last commit may still be under way, though no thread waits for it.
        lsn: the LSN at which the rows hold.
        written: how many rows its changes had, old and new, besides what was saved.
        due: when so many were written, ``on_due`` is called, once.
        error: why its rows could not be read, or None.
        key_schema: the columns of its key.
    """

    def __init__(self, name: str, schema: Schema, born: int = 0) -> None:
        self.name = name
        self.born = born
        self.changing = threading.Lock()
        self.unsettled = False
        self.lsn = 0
        self.written = 0
        self.due = NEVER
        self.on_due: Callable[[], None] = lambda: None
        self.error: LogCorruptError | None = None
        self._lock = threading.Lock()
        self.rows = TableRows(self._lock, self.key_of)
        self._columns: dict[str, pa.Array] = {}  # of the rows as they are now, as far as asked for
        self.evolve(schema)

    def __len__(self) -> int:
        return len(self.rows)

    def evolve(self, schema: Schema) -> None:
        """Have more columns from now on."""
        rows = self.rows.all().values()
        with self._lock:
            self.schema = schema
            self._key = tuple(schema.names.index(name) for name in schema.key)
            self.key_schema = schema.of_key
            self._columns = {}
            width = len(schema.columns)
            self.rows.replace([row + (None,) * (width - len(row)) for row in rows])

    def load(self, log: Log, saved: SavedRows | None = None) -> None:
        """Read what was saved of it, and what the log has after that.

        Where the log does not go back to its beginning, its saved rows are needed: without them its
        ``error`` says so.
        """
        start = self._restore(log, saved)
        first = log.topic(self.name).low_lsn
        if start == "earliest" and first > self.born:
            self.error = rows_lost(self.name, log.path, first)
            return
        try:
            for batch in log.read(self.name, start=start):
                if self.written > _FEW_CHANGES:  # each would be looked up among the saved rows
                    self.rows.all()
                self.apply(batch)
        except LogCorruptError as error:
            self.error = error
            self.rows.replace([])

    def _restore(self, log: Log, saved: SavedRows | None) -> int | Literal["earliest"]:
        """Take in saved rows, if they fit; returns from where on the log is to be read."""
        if saved is None or saved.lsn + 1 < log.topic(self.name).low_lsn:
            return "earliest"
        table = saved.parts.get(_ROWS)
        columns = list(self.schema.arrow)
        if table is None or len(saved.parts) > 1 or table.num_columns > len(columns):
            return "earliest"
        if not table.schema.equals(pa.schema(columns[: table.num_columns])):
            return "earliest"
        added = (None,) * (len(columns) - table.num_columns)  # since they were saved
        known = Schema.from_arrow(table.schema) if added else self.schema
        self.rows.start_with(SavedBase(table, known, self._key, added))
        self.lsn = saved.lsn
        return saved.lsn + 1

    def check(self) -> None:
        """Raise if its rows are not known.

        Raises:
            LogCorruptError: a part of its log is damaged, or its saved rows are.
        """
        if self.error is not None:
            error = self.error.again()
            error.hint = (
                f"restore this file from a backup; or ALTER TABLE {self.name} SKIP DAMAGE goes on "
                f"with what can be read; or DROP TABLE {self.name}"
            )
            raise error

    def clear(self) -> None:
        """Forget all rows."""
        with self._lock:
            self.rows.replace([])
            self._columns = {}

    def salvage(self, log: Log, saved: SavedRows | None) -> None:
        """Take in saved rows and what can be read of its log, over every damaged place."""
        for batch in log.salvage(self.name, self._restore(log, saved)):
            self.apply(batch)

    def saved(self) -> SavedRows:
        """What it holds, to be written."""
        rows, lsn, schema = self.snapshot()
        pieces = [rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE)]
        batches = [schema.rows_to_arrow(piece) for piece in pieces]
        return SavedRows(lsn, 0, {_ROWS: pa.Table.from_batches(batches, schema=schema.arrow)})

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch that was committed."""
        rows = self.rows
        changed = batch.held_rows
        if self.schema.is_nested:  # lists and dicts of its own: others have those of the batch
            changed = batch.schema.arrow_to_rows(batch.arrow)
        with self._lock:
            for row, weight in zip(changed, batch.weights, strict=True):
                key = self.key_of(row)
                if weight > 0:
                    rows.put(key, row)
                elif _same(rows.get(key), row):
                    rows.drop(key)
            self._columns = {}
            self.lsn = batch.lsn
            self.written += len(batch)
        if self.written >= self.due:
            self.due = NEVER
            self.on_due()

    def candidates(self, predicate: Predicate | None) -> list[Row]:
        """The rows that a predicate may keep: one at most, if it asks for a key; else all."""
        key = self._pinned(predicate)
        return list(self.rows.all().values()) if key is None else self._found(key)

    def _pinned(self, predicate: Predicate | None) -> Key | None:
        return None if predicate is None else predicate.pinned(self._key)

    def _found(self, key: Key) -> list[Row]:
        row = self.rows.get(key)
        return [] if row is None else [row]

    def snapshot(self, predicate: Predicate | None = None) -> tuple[list[Row], int, Schema]:
        """The rows that a predicate may keep, the LSN at which they hold, and their columns."""
        self.check()
        key = self._pinned(predicate)
        if key is None:
            self.rows.all()  # not with the lock: they are complete from now on
        with self._lock:
            rows = list(self.rows.all().values()) if key is None else self._found(key)
            lsn, schema = self.lsn, self.schema
        return (copy.deepcopy(rows) if schema.is_nested else rows), lsn, schema

    def columns(self, names: Sequence[str]) -> tuple[dict[str, pa.Array], int]:
        """Some columns of the rows as Arrow, and how many rows there are.

        They are kept until the table changes, so that the queries in between share them.
        """
        self.check()
        with self._lock:
            held, schema, count, saved = self._columns, self.schema, len(self.rows), self.rows.base
            if saved is not None and saved.nbytes <= _LARGEST:  # as they were saved
                for name in {*names} - held.keys() & {*saved.schema.names}:
                    held[name] = saved.column(name).combine_chunks()
            has_all = held.keys() >= set(names)
        if not has_all:
            self.rows.all()
            with self._lock:
                held, schema, count = self._columns, self.schema, len(self.rows)
                rows = list(self.rows.all().values())
        for name in names:
            if name not in held:
                held[name] = schema.column_to_arrow(name, rows)
        return {name: held[name] for name in names}, count

    def key_of(self, row: Row) -> Key:
        """The values of a row's key columns."""
        return tuple([row[place] for place in self._key])


def _same(one: Row | None, other: Row) -> bool:
    """Whether two rows are the same; NaN, which no number equals, is the same as NaN."""
    return one == other or repr(one) == repr(other)

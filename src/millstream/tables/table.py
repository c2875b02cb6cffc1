"""A table: its current rows by key, and the changes that INSERT, UPDATE and DELETE make of them.

The changes of a statement are computed by the thread that runs it, while no other statement changes
the table, and committed and applied by the dispatcher's thread. So a statement sees all that was
committed before it, and readers see each commit entirely or not at all.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from millstream.errors import DuplicateKeyError, LogCorruptError, RowError, TenantError
from millstream.model.batch import ChangeBatch
from millstream.state.saved import NEVER, Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.catalog.tenants import OwnRows
    from millstream.log import Log
    from millstream.model.batch import Row
    from millstream.model.schema import Schema
    from millstream.sql import Predicate, Projection

Conflict = Literal["error", "replace", "ignore"]
_ROWS: Final = "rows"
_PIECE: Final = 1 << 13
Key = tuple[Any, ...]


class Changes:
    """The weighted rows that a statement changes, and how many rows it matched."""

    __slots__ = ("count", "rows", "weights")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.weights: list[int] = []
        self.count = 0

    def replace(self, old: Row | None, new: Row | None) -> None:
        """A row is replaced, or appears (no old one), or disappears (no new one)."""
        self.count += 1
        if old == new:
            return
        for row, weight in ((old, -1), (new, 1)):
            if row is not None:
                self.rows.append(row)
                self.weights.append(weight)

    def move(self, moved: Sequence[tuple[Row, Row]]) -> None:
        """Rows get other keys; all old ones are removed first: their keys may be used again."""
        self.count += len(moved)
        self.rows += [*(old for old, _ in moved), *(new for _, new in moved)]
        self.weights += [-1] * len(moved) + [1] * len(moved)

    def batch(self, schema: Schema) -> ChangeBatch | None:
        """The changes, to be committed; None when nothing changes."""
        if not self.rows:
            return None
        weights = None if min(self.weights) > 0 else pa.array(self.weights, pa.int64())
        return ChangeBatch(schema, self.rows, None, weights)


class Table:
    """The rows of a table.

    Args:
        name: the table, and its topic.
        schema: its columns and its key.

    Attributes:
        changing: held by the thread that computes and commits a change.
        unsettled: whether the last commit may still be under way, though no thread waits for it.
        lsn: the LSN at which the rows hold.
        written: how many rows its changes had, old and new, besides what was saved.
        due: when so many were written, ``on_due`` is called, once.
        error: why its rows could not be read, or None.
    """

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.changing = threading.Lock()
        self.unsettled = False
        self.lsn = 0
        self.written = 0
        self.due = NEVER
        self.on_due: Callable[[], None] = lambda: None
        self.error: LogCorruptError | None = None
        self._rows: dict[Key, Row] = {}
        self._lock = threading.Lock()
        self.evolve(schema)

    def __len__(self) -> int:
        return len(self._rows)

    def evolve(self, schema: Schema) -> None:
        """Have more columns from now on."""
        with self._lock:
            self.schema = schema
            self._key = tuple(schema.names.index(name) for name in schema.key)
            width = len(schema.columns)
            self._rows = {
                key: row + (None,) * (width - len(row)) for key, row in self._rows.items()
            }

    def load(self, log: Log, saved: Saved | None = None) -> None:
        """Read what was saved of it, and what the log has after that."""
        start: int | Literal["earliest"] = "earliest"
        if saved is not None and saved.fits({_ROWS: self.schema.arrow}):
            start = saved.lsn + 1
            for piece in saved.parts[_ROWS].to_batches():
                rows = self.schema.arrow_to_rows(piece)
                self._rows.update((self._key_of(row), row) for row in rows)
            self.lsn = saved.lsn
        try:
            for batch in log.read(self.name, start=start):
                self.apply(batch)
        except LogCorruptError as error:
            self.error = error
            self._rows.clear()

    def check(self) -> None:
        """Raise if its rows are not known.

        Raises:
            LogCorruptError: a part of its log is damaged.
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
            self._rows.clear()

    def salvage(self, log: Log) -> None:
        """Take in what can be read of its log, over every damaged place."""
        for batch in log.salvage(self.name):
            self.apply(batch)

    def saved(self) -> Saved:
        """What it holds, to be written."""
        rows, lsn, schema = self.snapshot()
        pieces = [rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE)]
        batches = [schema.rows_to_arrow(piece) for piece in pieces]
        return Saved(lsn, 0, {_ROWS: pa.Table.from_batches(batches, schema=schema.arrow)})

    def apply(self, batch: ChangeBatch) -> None:
        """Take in a batch that was committed."""
        rows = self._rows
        changed = batch.held_rows
        if self.schema.is_nested:  # lists and dicts of its own: others have those of the batch
            changed = batch.schema.arrow_to_rows(batch.arrow)
        with self._lock:
            for row, weight in zip(changed, batch.weights, strict=True):
                if weight > 0:
                    rows[self._key_of(row)] = row
                elif _same(rows.get(self._key_of(row)), row):
                    del rows[self._key_of(row)]
            self.lsn = batch.lsn
            self.written += len(batch)
        if self.written >= self.due:
            self.due = NEVER
            self.on_due()

    def snapshot(self) -> tuple[list[Row], int, Schema]:
        """All rows, the LSN at which they hold, and their columns."""
        self.check()
        with self._lock:
            rows, lsn, schema = list(self._rows.values()), self.lsn, self.schema
        return (copy.deepcopy(rows) if schema.is_nested else rows), lsn, schema

    # ---- what statements change; call these with ``changing`` held

    def insert(
        self, rows: Iterable[Row], conflict: Conflict = "error", own: OwnRows | None = None
    ) -> Changes:
        """The changes that add rows.

        Args:
            rows: the new rows, checked.
            conflict: what to do about a key that exists.
            own: the rows of the tenant that inserts; None: of everyone.

        Raises:
            DuplicateKeyError: a row with that key exists.
            TenantError: a row of another tenant would be replaced.
        """
        changes = Changes()
        new: dict[Key, Row] = {}
        for row in map(self._widened, rows):
            key = self._key_of(row)
            taken = key in new or key in self._rows
            if taken and conflict == "error":
                raise self._duplicate(key)
            if not taken or conflict == "replace":
                new[key] = row
        for key, row in new.items():
            changes.replace(self._rows.get(key), row)
        if own is not None and len(own.places(changes.rows)) < len(changes.rows):
            raise TenantError(
                "a row of another tenant has that key", hint="insert it with another key"
            )
        return changes

    def update(
        self, predicate: Predicate | None, projection: Projection, own: OwnRows | None = None
    ) -> Changes:
        """The changes that replace rows.

        Args:
            predicate: selects the rows; None: all.
            projection: makes the new row of an old one.
            own: the rows of the tenant that updates, others are not read; None: of everyone.

        Raises:
            DuplicateKeyError: two rows would have one key.
            RowError: a value that does not fit.
            TenantError: a new row would be another tenant's.
        """
        old = self._selected(predicate, own)
        made = projection.rows(old)
        if own is not None:
            own.check(made)
        new = self._checked([self._widened(row) for row in made])
        left = {self._key_of(row) for row in old}
        taken: set[Key] = set()
        moved: list[tuple[Row, Row]] = []
        changes = Changes()
        for before, after in zip(old, new, strict=True):
            key = self._key_of(after)
            if key in taken or (key in self._rows and key not in left):
                raise self._duplicate(key)
            taken.add(key)
            if key == self._key_of(before):
                changes.replace(before, after)
            else:
                moved.append((before, after))
        changes.move(moved)
        return changes

    def delete(self, predicate: Predicate | None, own: OwnRows | None = None) -> Changes:
        """The changes that remove the rows that a predicate selects; arguments as in ``update``."""
        changes = Changes()
        for row in self._selected(predicate, own):
            changes.replace(row, None)
        return changes

    def _selected(self, predicate: Predicate | None, own: OwnRows | None) -> list[Row]:
        rows = list(self._rows.values())
        if own is not None:  # the predicate must not be evaluated on rows of other tenants
            rows = [rows[place] for place in own.places(rows)]
        return rows if predicate is None else [rows[place] for place in predicate.places(rows)]

    def _checked(self, rows: list[Row]) -> list[Row]:
        try:
            return self.schema.check_rows(rows)
        except RowError as error:
            raise RowError(
                f"{self.name}: {error.message}", row=error.row, column=error.column, hint=error.hint
            ) from error

    def _widened(self, row: Row) -> Row:
        """A row that was computed before the last ALTER, with NULL in the columns that it lacks."""
        missing = len(self.schema.columns) - len(row)
        return row + (None,) * missing if missing else row

    def _key_of(self, row: Row) -> Key:
        return tuple([row[place] for place in self._key])

    def _duplicate(self, key: Key) -> DuplicateKeyError:
        shown = ", ".join(f"{n} = {v!r}" for n, v in zip(self.schema.key, key, strict=True))
        return DuplicateKeyError(
            f"{self.name} has a row with {shown} already",
            key=key,
            hint="UPDATE it, or write INSERT OR REPLACE or INSERT OR IGNORE",
        )


def _same(one: Row | None, other: Row) -> bool:
    """Whether two rows are the same; NaN, which no number equals, is the same as NaN."""
    return one == other or repr(one) == repr(other)

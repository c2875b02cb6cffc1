"""The rows of a table by key; those that were saved become Python rows in the background.

Ten million rows take Python some twenty seconds. Until that is done they stay in Arrow, as they
were read, and what has changed since lies in a dict in front of them. A key is found by a scan of
its columns, some milliseconds; one that is a whole number, once the thread has sorted them, in
some microseconds. Who needs all rows waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.threads import Waiters, thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row

Key = tuple[Any, ...]
FEW: Final = 200_000
"""So many saved rows are made Python rows at once."""
_PIECE: Final = 1 << 13
_LARGEST: Final = 1 << 63
_UNKNOWN: Final[Any] = object()


class SavedBase:
    """Saved rows in Arrow, which do not change.

    Args:
        rows: the rows.
        schema: their columns.
        key: the places of the key's columns.
        added: the values of columns that were added since.
    """

    def __init__(self, rows: pa.Table, schema: Schema, key: tuple[int, ...], added: Row) -> None:
        self.rows = rows
        self._schema = schema
        self._key = key
        self._added = added
        # The keys in ascending order, and the row of each; None: not sorted.
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def sort(self) -> None:
        """Have keys found without a scan, if they are whole numbers."""
        column = self.rows.column(self._key[0])
        if len(self._key) == 1 and pa.types.is_integer(column.type) and not column.null_count:
            keys = column.to_numpy().astype(np.int64, copy=False)
            order = np.argsort(keys, kind="stable")
            self._sorted = (keys[order], order)

    def find(self, key: Key) -> Row | None:
        """The row with a key, or None.

        Raises:
            pa.ArrowException, TypeError, ValueError, OverflowError: a value that Arrow does not
                take for the type of its column.
        """
        if self._sorted is not None and type(key[0]) is int and -_LARGEST <= key[0] < _LARGEST:
            keys, order = self._sorted
            at = int(np.searchsorted(keys, np.int64(key[0])))
            return self._row(int(order[at])) if at < len(keys) and keys[at] == key[0] else None
        found: pa.ChunkedArray | None = None
        for place, value in zip(self._key, key, strict=True):
            column = self.rows.column(place)
            same = pc.equal(column, pa.scalar(value, column.type))
            found = same if found is None else pc.and_(found, same)
        at = -1 if found is None else pc.index(found, True).as_py()
        return None if at < 0 else self._row(at)

    def _row(self, at: int) -> Row:
        return next(self._tuples(self.rows.slice(at, 1)))

    def look_for(self, key: Key) -> Row | None:
        """The row with a key, or None; compared as Python does."""
        rows = (row for piece in self.pieces() for row in piece)
        return next((row for row in rows if tuple([row[n] for n in self._key]) == key), None)

    def pieces(self) -> Iterator[list[Row]]:
        """All rows, some at a time."""
        for start in range(0, self.rows.num_rows, _PIECE):
            yield list(self._tuples(self.rows.slice(start, _PIECE)))

    def _tuples(self, rows: pa.Table) -> Iterator[Row]:
        for piece in rows.to_batches():
            for row in self._schema.arrow_to_rows(piece):
                yield row + self._added


class _Held(NamedTuple):
    """What is known: replaced as a whole, so that readers need no lock.

    Attributes:
        rows: by key; with a base, only what has changed since: None for a row that is gone.
        base: the saved rows; None once they are among the others.
    """

    rows: dict[Key, Row | None]
    base: SavedBase | None


class TableRows:
    """Rows by key. Changed with the table's lock held, by one thread at a time; read by any.

    Args:
        lock: the table's lock.
        key_of: gives the key of a row.
    """

    def __init__(self, lock: threading.Lock, key_of: Callable[[Row], Key]) -> None:
        self._held = _Held({}, None)
        self._count = 0
        self._lock = lock
        self._key_of = key_of
        self._is_complete = True
        self._waiters = Waiters()
        self._error: Exception | None = None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def get(self, key: Key) -> Row | None:
        """The row with a key, or None."""
        rows, base = self._held
        row = rows.get(key, _UNKNOWN)
        if row is not _UNKNOWN:
            return row  # type: ignore[no-any-return]
        if base is None:
            return None
        try:
            return base.find(key)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return base.look_for(key)

    def all(self) -> dict[Key, Row]:
        """All rows by key; waits for those that were saved. Not with the table's lock held."""
        if not self._is_complete:
            self._waiters.wait(lambda: self._is_complete)
        if self._error is not None:
            raise self._error
        return self._held.rows  # type: ignore[return-value]

    @property
    def base(self) -> pa.Table | None:
        """The rows in Arrow, if they are as they were saved."""
        rows, base = self._held
        return None if base is None or rows else base.rows

    # ---- changes, with the lock held

    def put(self, key: Key, row: Row) -> None:
        """Add a row, or replace the one with its key."""
        if self.get(key) is None:
            self._count += 1
        self._held.rows[key] = row

    def drop(self, key: Key) -> None:
        """Remove the row with a key, which is there."""
        rows, base = self._held
        self._count -= 1
        if base is None:
            del rows[key]
        else:
            rows[key] = None

    def replace(self, rows: Iterable[Row]) -> None:
        """Have these rows, and no others."""
        made: dict[Key, Row | None] = {self._key_of(row): row for row in rows}
        self._held, self._count = _Held(made, None), len(made)
        self._completed()

    def start_with(self, base: SavedBase) -> None:
        """Begin with saved rows, before anything else; many of them are read in the background.

        Not with the lock held.
        """
        self._held, self._count = _Held({}, base), base.rows.num_rows
        self._is_complete = False
        if self._count <= FEW:
            self._fill(base)
        else:
            thread("table-rows", lambda: self._fill(base), self._end).start()

    def close(self, error: Exception) -> None:
        """Read no more saved rows; who waits for them is given an error."""
        if not self._is_complete:
            self._end(error)

    def _completed(self) -> None:
        self._is_complete = True
        self._waiters.wake()

    def _end(self, error: Exception) -> None:
        self._error = error
        self._completed()

    def _fill(self, base: SavedBase) -> None:
        made: dict[Key, Row | None] = {}
        base.sort()
        for piece in base.pieces():
            if self._is_complete:
                return
            for row in piece:
                made[self._key_of(row)] = row
        with self._lock:
            if self._held.base is not base:
                return
            for key, changed in self._held.rows.items():
                if changed is None:
                    made.pop(key, None)
                else:
                    made[key] = changed
            self._held = _Held(made, None)
            self._completed()

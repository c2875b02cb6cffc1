"""The rows that changes come to: a bag, which counts how often each is there; append-only rows.

A log-structured merge in memory: by how much rows have changed of late is in a dict, all other rows
lie in a few Arrow runs. Since weights add up, a change of a few rows is one operation on the dict
for each, and looks at no other row.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch
from millstream.model.result_rows import ResultRows, as_arrow
from millstream.model.weighted_rows import UPDATE
from millstream.state.result_reader import WEIGHT, ResultReader
from millstream.state.runs import Run, compacted, net, take_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.model.result_rows import Results
    from millstream.model.schema import Row, Schema

Key = tuple[Any, ...]

_FEW = 256  # rows up to which Python is faster than Arrow
_MOST = 4096  # rows in the dict before they are moved to the runs
_PIECE = 1 << 16  # rows from which on batches are no longer joined
_LARGEST = 1 << 28  # bytes from which on they are not
_FLOATS: Final = ("REAL", "DOUBLE")
_NAN: Final = object()  # stands for NaN in a key, since no two NaNs are equal in Python


class BagDiff:
    """What some weighted rows change: computed by ``Bag.diff``, applied by ``Bag.apply``.

    Attributes:
        changes: the rows and their weights; None when they cancel each other out.
        recent: keys, and by how much these rows become more.
        settled: what the runs become; None: they stay as they are.
        grown: by how many rows there are more.
        version: what the rows were when this was computed.
    """

    __slots__ = ("changes", "grown", "recent", "settled", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.changes: ChangeBatch | None = None
        self.recent: Sequence[tuple[Key, int]] = ()
        self.settled: _Settled | None = None
        self.grown = 0


class _Settled(NamedTuple):
    """What rows that come and go do to the runs.

    Attributes:
        added: a new run; None: no row comes.
        taken: runs, the places of rows in them, and by how much these become less.
        owed: rows that go and were not there, each as often as its weight says; None: there are
            none.
    """

    added: Run | None
    taken: list[tuple[Run, NDArray[np.int64], NDArray[np.int64]]]
    owed: Run | None


class Bag:
    """Rows of input that retracts, each with a count.

    One thread computes diffs, one diff at a time: it is applied, by any thread, or discarded before
    the next. Snapshots may be taken at any time by any thread. A row may be retracted before it is
    inserted: its count is then negative until it is.

    >>> from millstream.model.schema import Schema
    >>> bag = Bag(Schema.of(k="VARCHAR", n="BIGINT"))
    >>> bag.load(ChangeBatch.from_rows(bag.schema, [("a", 1), ("b", 1)]))
    >>> results = {"k": ["a", "a", "b", "b"], "n": [1, 2, 1, 1], "_weight": [-1, 1, -1, 1]}
    >>> diff = bag.diff(pa.RecordBatch.from_pydict(results))
    >>> bag.apply(diff)
    >>> diff.changes.rows, diff.changes.weights, len(bag)
    ([('a', 1), ('a', 2)], [-1, 1], 2)

    Args:
        schema: the columns.

    Attributes:
        few: results of at most so many rows are counted one by one, larger ones in Arrow.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._reader = ResultReader(schema)
        self.few = 0 if schema.is_nested else _FEW
        self._floats = any(column.type.kind in _FLOATS for column in schema.columns)
        self._lock = threading.Lock()
        self._recent: dict[Key, int] = {}
        self._runs: tuple[Run, ...] = ()
        self._owed: Run | None = None  # rows that have gone before they came
        self._version = 0
        self._size = 0

    def __len__(self) -> int:
        return max(self._size, 0)

    # ---- changes

    def diff(self, batch: Results) -> BagDiff:
        """What rows with ``_weight`` change; an insert and a retraction of a row cancel out."""
        if isinstance(batch, ResultRows) and self.few:
            place = batch.place(WEIGHT)
            return self._diff_rows(self._reader.rows(batch), [row[place] for row in batch.rows])
        batch = as_arrow(batch)
        weights = batch.column(WEIGHT).to_numpy(zero_copy_only=False)
        rows = self._reader.arrow(batch)
        if batch.num_rows <= self.few:
            try:
                return self._diff_rows(self.schema.arrow_to_rows(rows), weights.tolist())
            except (SchemaMismatchError, OverflowError):
                pass  # such as the year 10000, which Arrow can hold and Python cannot
        return self._diff_arrow(rows, weights)

    def apply(self, diff: BagDiff) -> None:
        """Apply the last diff."""
        with self._lock:
            if diff.version != self._version:
                raise AssertionError("a diff is applied once, and before the next is computed")
            recent = self._recent
            for key, weight in diff.recent:
                left = recent.get(key, 0) + weight
                if left:
                    recent[key] = left
                else:
                    del recent[key]
            if diff.settled is not None:
                self._set(diff.settled)
            self._size += diff.grown
            self._version += 1

    def load(self, batch: ChangeBatch) -> None:
        """Apply changes that were committed before, in order."""
        if batch.has_rows and len(batch) <= self.few:
            weights = [1] * len(batch) if batch.is_insert_only else batch.weights
            self.apply(self._diff_rows(batch.held_rows, weights))
        else:
            self.apply(self._diff_arrow(batch.arrow, batch.weights_arrow().to_numpy()))

    def check(self, diff: BagDiff) -> None:
        """Raise if a change retracts a row that is not there."""
        changes = diff.changes
        if changes is None or changes.is_insert_only:
            return
        weights = changes.weights_arrow().to_numpy()
        rows = changes.arrow.take(pa.array(np.flatnonzero(weights < 0)))
        copy = self._copy()
        copy._all_rows()  # noqa: SLF001 - which moves the recent ones to the runs
        _, missing = take_rows(copy._runs, rows, -weights[weights < 0])  # noqa: SLF001
        if missing.any():
            row = self.schema.arrow_to_rows(rows.slice(int(missing.argmax()), 1), lenient=True)[0]
            raise AssertionError(f"a row is retracted that is not there: {row}")

    def _diff_rows(self, rows: list[Row], weights: list[int]) -> BagDiff:
        if len(self._recent) > _MOST:
            self._settle()
        diff = BagDiff(self._version)
        keys = rows if not self._floats else list(map(_key, rows))
        if weights == [-1, 1] and keys[0] != keys[1]:
            diff.recent = ((keys[0], -1), (keys[1], 1))
            diff.changes = ChangeBatch(self.schema, rows, None, UPDATE)
            return diff
        if weights == [1]:
            diff.recent, diff.grown = ((keys[0], 1),), 1
            diff.changes = ChangeBatch(self.schema, rows, None, None)
            return diff
        sums: dict[Key, tuple[Row, int]] = {}
        for key, row, weight in zip(keys, rows, weights, strict=True):
            _, known = sums.pop(key, (row, 0))  # so that the order is that of the last ones
            sums[key] = (row, known + weight)
        diff.recent = [(key, weight) for key, (_, weight) in sums.items() if weight]
        if min(weights, default=1) <= 0:
            changed = [each for each in sums.values() if each[1]]
            rows, weights = [row for row, _ in changed], [weight for _, weight in changed]
        diff.grown = sum(weights)
        if rows:
            made = _weights(np.array(weights, np.int64))
            diff.changes = ChangeBatch(self.schema, rows, None, made)
        return diff

    def _diff_arrow(self, rows: pa.RecordBatch, weights: NDArray[np.int64]) -> BagDiff:
        self._settle()
        diff = BagDiff(self._version)
        if (weights <= 0).any():
            places, weights = net(rows, weights)
            rows = rows.take(pa.array(places))
        if not rows.num_rows:
            return diff
        diff.changes = ChangeBatch(self.schema, None, rows, _weights(weights))
        diff.grown = int(weights.sum())
        diff.settled = self._settled(rows, weights)
        return diff

    def _settle(self) -> None:
        """Move the recent rows to the runs, and keep these few. No row changes."""
        settled = self._settled(*self._in_arrow(self._recent)) if self._recent else None
        with self._lock:
            if settled is not None:
                self._set(settled)
                self._recent = {}
            self._runs = compacted(self._runs)
            self._version += 1  # a diff from before would take rows from runs that are gone

    def _settled(self, rows: pa.RecordBatch, weights: NDArray[np.int64]) -> _Settled:
        """What rows do to the runs; all of them differ."""
        if self._owed is not None:
            owed = self._owed
            rows = pa.concat_batches([owed.batch, rows])
            places, weights = net(rows, np.concatenate([-owed.weights.astype(np.int64), weights]))
            rows = rows.take(pa.array(places))
        coming = weights > 0
        if coming.all():
            return _Settled(Run(rows, weights) if rows.num_rows else None, [], None)
        going = rows.filter(pa.array(~coming))
        taken, missing = take_rows(self._runs, going, -weights[~coming])
        added = Run(rows.filter(pa.array(coming)), weights[coming]) if coming.any() else None
        is_owed = missing > 0
        owed_rows = going.filter(pa.array(is_owed)) if is_owed.any() else None
        return _Settled(
            added, taken, None if owed_rows is None else Run(owed_rows, missing[is_owed])
        )

    def _set(self, settled: _Settled) -> None:
        for run, places, weights in settled.taken:
            run.take_away(places, weights)
        if settled.added is not None:
            self._runs = (*self._runs, settled.added)
        self._owed = settled.owed

    def _in_arrow(self, recent: dict[Key, int]) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """Rows of the dict in Arrow, and by how much they are more."""
        rows = list(map(_row, recent)) if self._floats else list(recent)
        return self.schema.rows_to_arrow(rows), np.fromiter(recent.values(), np.int64, len(recent))

    # ---- reading

    def snapshot(self) -> pa.Table:
        """All rows at one moment, each as often as it is there."""
        rows, weights = self.capture()()
        if weights is not None:
            counts = np.maximum(weights, 0)
            rows = rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return rows

    def capture(self) -> Callable[[], tuple[pa.Table, NDArray[np.int64] | None]]:
        """A function that gives the rows of this moment, whenever it is called, and their weights.

        A row may be there several times; None as weights: all are 1. Capturing the rows is quick;
        only calling the function takes long.
        """
        copy = self._copy()
        return copy._all_rows  # noqa: SLF001

    def _copy(self) -> Bag:
        """The rows of this moment."""
        made = Bag(self.schema)
        with self._lock:
            made._runs = tuple(run.copy() for run in self._runs)
            made._recent, made._owed = self._recent.copy(), self._owed
        return made

    def _all_rows(self) -> tuple[pa.Table, NDArray[np.int64] | None]:
        """All rows and their weights, of a bag that is not used any more."""
        if self._recent:
            self._set(self._settled(*self._in_arrow(self._recent)))
        parts = [run.living() for run in self._runs]
        if self._owed is not None:
            parts.append((self._owed.batch, -self._owed.weights.astype(np.int64)))
        batches = [batch.replace_schema_metadata(self.schema.arrow.metadata) for batch, _ in parts]
        rows = pa.Table.from_batches(batches, schema=self.schema.arrow)
        if all((weights == 1).all() for _, weights in parts):
            return rows, None
        return rows, np.concatenate([weights.astype(np.int64) for _, weights in parts])


def _key(row: Row) -> Key:
    """A row as a key of the dict."""
    return tuple([_NAN if value != value else value for value in row])  # noqa: PLR0124


def _row(key: Key) -> Row:
    """The row of a key."""
    return tuple([math.nan if value is _NAN else value for value in key])


def _weights(weights: NDArray[np.int64]) -> pa.Array | None:
    """Weights as a batch has them: None when all are 1."""
    return None if (weights == 1).all() else pa.array(weights)


@dataclass(frozen=True, slots=True)
class AppendDiff:
    """Inserted rows.

    Attributes:
        changes: the rows; None when there are none.
    """

    changes: ChangeBatch | None


class AppendOnlyRows:
    """Rows of append-only input; interface and threads as of ``Bag``, without an index.

    Args:
        schema: the user's columns.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._reader = ResultReader(schema)
        self._lock = threading.Lock()
        self._pieces: list[pa.RecordBatch] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def diff(self, batch: Results) -> AppendDiff:
        """What rows change, all of which are inserted.

        Raises:
            SchemaMismatchError: a row is retracted.
        """
        if not batch.num_rows:
            return AppendDiff(None)
        batch = as_arrow(batch)
        rows = self._reader.arrow(batch)
        if WEIGHT in batch.schema.names:
            weights = batch.column(WEIGHT)
            _check_inserts(weights)
            if pc.max(weights).as_py() > 1:
                counts = weights.to_numpy()
                rows = rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return AppendDiff(ChangeBatch(self.schema, None, rows, None))

    def apply(self, diff: AppendDiff) -> None:
        """Apply the last diff."""
        if diff.changes is not None:
            self.load(diff.changes)

    def load(self, batch: ChangeBatch) -> None:
        """Apply changes that were committed before, in order."""
        if not batch.is_insert_only:
            _check_inserts(batch.weights_arrow())
        with self._lock:
            self._pieces.append(batch.arrow)
            self._size += len(batch)
            self._join()

    def snapshot(self) -> pa.Table:
        """All rows at one moment."""
        with self._lock:
            pieces = list(self._pieces)
        return pa.Table.from_batches(pieces, schema=self.schema.arrow)

    def _join(self) -> None:
        """Join small pieces, each at least twice the next, so that they stay few."""
        pieces = self._pieces
        start, size, memory = len(pieces) - 1, 0, 0
        for number in reversed(range(len(pieces))):
            piece = pieces[number]
            if piece.num_rows >= _PIECE or memory + piece.nbytes > _LARGEST:
                break
            if size > piece.num_rows / 2:
                start = number
            size, memory = size + piece.num_rows, memory + piece.nbytes
        if start < len(pieces) - 1:
            pieces[start:] = [pa.concat_batches(pieces[start:])]


def _check_inserts(weights: pa.Array) -> None:
    if not pc.all(pc.greater(weights, 0)).as_py():
        raise SchemaMismatchError(
            "a row is retracted in append-only rows",
            hint="Keep the rows of a view that retracts in a Bag.",
        )

"""Rows without a key: a bag, which counts how often each row is there, and append-only rows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch
from millstream.model.result_rows import ResultRows, as_arrow
from millstream.model.schema import Column, Schema
from millstream.model.types import BIGINT
from millstream.state.result_reader import WEIGHT, ResultReader
from millstream.state.rows import Rows
from millstream.state.runs import newest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.model.result_rows import Results
    from millstream.model.schema import Row
    from millstream.state.rows import Diff, Key

_FEW = 256  # rows up to which Python is faster than Arrow
_PIECE = 1 << 16  # rows from which on batches are no longer joined
_LARGEST = 1 << 28  # bytes from which on they are not


class BagDiff:
    """What some weighted rows change.

    Attributes:
        changes: the rows and their weights; None when they cancel each other out.
        stored: the same batch: a bag stores no other columns.
        counts: what changes in the counts.
    """

    __slots__ = ("changes", "counts", "grown", "stored")

    def __init__(self, changes: ChangeBatch | None, counts: Diff | None, grown: int) -> None:
        self.changes = self.stored = changes
        self.counts = counts
        self.grown = grown


class Bag:
    """Rows of input that retracts, each with a count; interface and threads as of ``Rows``.

    A row may be retracted before it is inserted: its count is then negative until it is.

    Args:
        schema: the user's columns.

    Attributes:
        few: results of at most so many rows are compared one by one, larger ones in Arrow.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = self.stored_schema = schema
        self._count = "_count"
        while self._count in schema.names:
            self._count += "_"
        counted = Schema((*schema.columns, Column(self._count, BIGINT)))
        self._counts = Rows(counted, schema.names)
        self._reader = ResultReader(schema)
        self.few = 0 if schema.is_nested else _FEW
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def diff(self, batch: Results) -> BagDiff:
        """What rows with ``_weight`` change; an insert and a retraction of a row cancel out."""
        if isinstance(batch, ResultRows) and self.few:
            place = batch.place(WEIGHT)
            return self._diff_rows(self._reader.rows(batch)[0], [row[place] for row in batch.rows])
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
        if diff.counts is not None:
            self._counts.apply(diff.counts)
        self._size += diff.grown

    def load(self, batch: ChangeBatch) -> None:
        """Apply changes that were committed before, in order."""
        self.apply(self._diff_arrow(batch.arrow, batch.weights_arrow().to_numpy()))

    @property
    def captured_schema(self) -> Schema:
        """The columns that ``capture`` gives: the user's, and the count."""
        return self._counts.schema

    def capture(self) -> Callable[[], pa.Table]:
        """A function that gives each row of this moment and its count, whenever it is called."""
        return self._counts.capture()

    def load_captured(self, batch: ChangeBatch) -> None:
        """Apply what the function of ``capture`` gave."""
        rows, counts = batch.arrow.select(list(self.schema.names)), batch.arrow.column(self._count)
        self.load(ChangeBatch(self.schema, None, self.schema.conform(rows), counts))

    def snapshot(self, *, stored: bool = False) -> pa.Table:  # noqa: ARG002
        """All rows at one moment, each as often as it is there."""
        counted = self._counts.snapshot()
        counts = np.maximum(counted.column(self._count).to_numpy(), 0)
        rows = counted.select(list(self.schema.names))
        if not (counts == 1).all():
            rows = rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        return rows.replace_schema_metadata(self.schema.arrow.metadata)

    def _diff_rows(self, rows: list[Row], weights: list[int]) -> BagDiff:
        counts = self._counts
        net: dict[Key, tuple[Row, int]] = {}
        for row, weight in zip(rows, weights, strict=True):
            key = counts.key_of(row)
            _, known = net.pop(key, (row, 0))
            net[key] = (row, known + weight)
        changed = [(row, weight) for row, weight in net.values() if weight]
        counted, grown = [], 0
        for row, weight in changed:
            held = counts.find(row)
            before = held[-1] if held else 0
            counted.append((*row, before + weight))
            grown += max(before + weight, 0) - max(before, 0)
        if min(weights, default=1) <= 0:
            rows, weights = [row for row, _ in changed], [weight for _, weight in changed]
        changes = ChangeBatch(self.schema, rows, None, _weights(np.array(weights, np.int64)))
        diff = counts.diff_rows(counted, keep=[row[-1] != 0 for row in counted])
        return BagDiff(changes if rows else None, diff, grown)

    def _diff_arrow(self, rows: pa.RecordBatch, weights: NDArray[np.int64]) -> BagDiff:
        new = newest(rows, range(rows.num_columns))
        net = np.zeros(rows.num_rows, np.int64)
        np.add.at(net, new.last, weights)
        places = np.flatnonzero(net)
        changed, net = rows.take(pa.array(places)), net[places]
        before = self._counted(changed)
        after = before + net
        grown = int(np.maximum(after, 0).sum() - np.maximum(before, 0).sum())
        diff = self._counts.diff(self._with_count(changed, after), keep=after != 0)
        if (weights <= 0).any():
            rows, weights = changed, net
        changes = ChangeBatch(self.schema, None, rows, _weights(weights))
        return BagDiff(changes if rows.num_rows else None, diff, grown)

    def _counted(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """The count of each of some rows."""
        known, places = self._counts.find_all(
            self._with_count(rows, np.zeros(rows.num_rows, np.int64))
        )
        counts = np.zeros(rows.num_rows, np.int64)
        there = places >= 0
        counts[there] = known.column(self._count).to_numpy()[places[there]]
        return counts

    def _with_count(self, rows: pa.RecordBatch, counts: NDArray[np.int64]) -> pa.RecordBatch:
        arrays = [*rows.columns, pa.array(counts, pa.int64())]
        return pa.RecordBatch.from_arrays(arrays, schema=self._counts.schema.arrow)


def _weights(weights: NDArray[np.int64]) -> pa.Array | None:
    """Weights as a batch has them: None when all are 1."""
    return None if (weights == 1).all() else pa.array(weights)


class AppendDiff:
    """Inserted rows.

    Attributes:
        changes: the rows; None when there are none.
        stored: the same batch: no other columns are stored.
    """

    __slots__ = ("changes", "stored")

    def __init__(self, changes: ChangeBatch | None) -> None:
        self.changes = self.stored = changes


class AppendOnlyRows:
    """Rows of append-only input; interface and threads as of ``Rows``, without an index.

    Args:
        schema: the user's columns.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = self.stored_schema = schema
        self._reader = ResultReader(schema)
        self._lock = threading.Lock()
        self._pieces: list[pa.RecordBatch] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def diff(self, batch: Results) -> AppendDiff:
        """What rows change, all of which are inserted.

        Raises:
            SchemaMismatchError: a row has a ``_weight`` other than 1.
        """
        if not batch.num_rows:
            return AppendDiff(None)
        batch = as_arrow(batch)
        if WEIGHT in batch.schema.names:
            _check_inserts(batch.column(WEIGHT))
        return AppendDiff(ChangeBatch(self.schema, None, self._reader.arrow(batch), None))

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

    def snapshot(self, *, stored: bool = False) -> pa.Table:  # noqa: ARG002
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
    if not pc.all(pc.equal(weights, 1)).as_py():
        raise SchemaMismatchError(
            "a row is retracted, or inserted more than once, in append-only rows",
            hint="Keep the rows of a view that retracts in a Bag.",
        )

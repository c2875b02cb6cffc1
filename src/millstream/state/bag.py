"""The rows of a view without a key: how often each is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column, Schema
from millstream.model.types import BIGINT
from millstream.state.compare import newest
from millstream.state.intake import WEIGHT, Intake
from millstream.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.model.schema import Row
    from millstream.state.diff import Diff, Key

_FEW = 256  # rows up to which Python is faster than Arrow


class BagDiff:
    """What some weighted rows change.

    Attributes:
        changes: the rows and their weights; None when they cancel each other out.
        stored: the same: a bag stores nothing else.
        counts: what changes in how often rows are there.
    """

    __slots__ = ("changes", "counts", "grown", "stored")

    def __init__(self, changes: ChangeBatch | None, counts: Diff | None, grown: int) -> None:
        self.changes = self.stored = changes
        self.counts = counts
        self.grown = grown


class Bag:
    """Rows that may come more than once and go again; interface and threads as of ``Rows``.

    A row may go before it has come: it is then there less than not at all, until it comes.

    Args:
        schema: the user's columns.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = self.stored_schema = schema
        self._count = "_count"
        while self._count in schema.names:
            self._count += "_"
        counted = Schema((*schema.columns, Column(self._count, BIGINT)))
        self._counts = Rows(counted, schema.names)
        self._intake = Intake(schema)
        self._few = 0 if schema.is_nested else _FEW
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def diff(self, batch: pa.RecordBatch) -> BagDiff:
        """What rows with ``_weight`` change; rows that come and go at once change nothing."""
        weights = batch.column(WEIGHT).to_numpy(zero_copy_only=False)
        rows = self._intake.arrow(batch)
        if batch.num_rows <= self._few:
            try:
                return self._diff_rows(self.schema.arrow_to_rows(rows), weights.tolist())
            except (SchemaMismatchError, OverflowError):
                pass  # such as the year 10000, which Arrow can hold and Python cannot
        return self._diff_arrow(rows, weights)

    def apply(self, diff: BagDiff) -> None:
        """Take in what the last diff has worked out."""
        if diff.counts is not None:
            self._counts.apply(diff.counts)
        self._size += diff.grown

    def load(self, batch: ChangeBatch) -> None:
        """Take in changes that were committed before, in order."""
        self.apply(self._diff_arrow(batch.arrow, batch.weights_arrow().to_numpy()))

    @property
    def counted_schema(self) -> Schema:
        """The columns of ``counted``."""
        return self._counts.schema

    def counted(self) -> Callable[[], pa.Table]:
        """What gives, whenever it is called, how often each row is there at this moment."""
        return self._counts.held()

    def load_counted(self, batch: ChangeBatch) -> None:
        """Take in what ``counted`` gave."""
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
            held = counts.like(row)
            before = held[-1] if held else 0
            counted.append((*row, before + weight))
            grown += max(before + weight, 0) - max(before, 0)
        if min(weights, default=1) <= 0:
            rows, weights = [row for row, _ in changed], [weight for _, weight in changed]
        told = ChangeBatch(self.schema, rows, None, _weights(np.array(weights, np.int64)))
        diff = counts.diff_rows(counted, keep=[row[-1] != 0 for row in counted])
        return BagDiff(told if rows else None, diff, grown)

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
        told = ChangeBatch(self.schema, None, rows, _weights(weights))
        return BagDiff(told if rows.num_rows else None, diff, grown)

    def _counted(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """How often each of some rows is there."""
        known, places = self._counts.like_all(
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

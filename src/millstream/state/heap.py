"""The rows of a view without a key whose rows never go: all that ever came."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch
from millstream.state.intake import WEIGHT, Intake

if TYPE_CHECKING:
    from millstream.model.schema import Schema

_PIECE = 1 << 16  # rows from which on batches are no longer joined
_LARGEST = 1 << 28  # bytes; the same


class HeapDiff:
    """Rows that come.

    Attributes:
        changes: the rows; None when there are none.
        stored: the same: a heap stores nothing else.
    """

    __slots__ = ("changes", "stored")

    def __init__(self, changes: ChangeBatch | None) -> None:
        self.changes = self.stored = changes


class Heap:
    """Rows that only come; interface and threads as of ``Rows``, without any work to find one.

    Args:
        schema: the user's columns.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = self.stored_schema = schema
        self._intake = Intake(schema)
        self._lock = threading.Lock()
        self._pieces: list[pa.RecordBatch] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def diff(self, batch: pa.RecordBatch) -> HeapDiff:
        """What rows change, all of which come.

        Raises:
            SchemaMismatchError: a row has a ``_weight`` other than 1.
        """
        if not batch.num_rows:
            return HeapDiff(None)
        if WEIGHT in batch.schema.names:
            _check_come(batch.column(WEIGHT))
        return HeapDiff(ChangeBatch(self.schema, None, self._intake.arrow(batch), None))

    def apply(self, diff: HeapDiff) -> None:
        """Take in what the last diff has worked out."""
        if diff.changes is not None:
            self.load(diff.changes)

    def load(self, batch: ChangeBatch) -> None:
        """Take in changes that were committed before, in order."""
        if not batch.is_insert_only:
            _check_come(batch.weights_arrow())
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


def _check_come(weights: pa.Array) -> None:
    if not pc.all(pc.equal(weights, 1)).as_py():
        raise SchemaMismatchError(
            "a row goes, or comes more than once, in a view whose rows only come",
            hint="Keep the rows of a view that retracts in a Bag.",
        )

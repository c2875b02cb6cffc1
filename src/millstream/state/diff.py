"""What new results change in the rows of a view: the changes to tell, and the steps to take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from millstream.model.schema import Row, Schema
    from millstream.state.runs import Run

Key = tuple[Any, ...]

_UPDATE = pa.array([-1, 1], pa.int64())


class Diff:
    """What some results change. Worked out by ``Rows.diff``, taken in by ``Rows.apply``.

    Attributes:
        changes: the user's columns where they changed, an old row and its new one side by side;
            None when they did not.
        stored: the same of all stored columns.
    """

    __slots__ = ("added", "changes", "grown", "killed", "put", "stored", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.changes: ChangeBatch | None = None
        self.stored: ChangeBatch | None = None
        self.put: list[tuple[Key, Row | None]] = []
        self.added: Run | None = None
        self.killed: list[tuple[Run, NDArray[np.int64]]] = []
        self.grown = 0


def told_rows(schema: Schema, changed: list[tuple[Row | None, Row | None]]) -> ChangeBatch | None:
    """Rows that go and come, side by side, as a batch; None without any."""
    if not changed:
        return None
    if len(changed) == 1:
        ((old, new),) = changed
        if old is not None and new is not None:
            return ChangeBatch(schema, [old, new], None, _UPDATE)
    rows: list[Row] = []
    weights: list[int] = []
    for pair in changed:
        for row, weight in zip(pair, (-1, 1), strict=True):
            if row is not None:
                rows.append(row)
                weights.append(weight)
    only_come = min(weights) > 0
    return ChangeBatch(schema, rows, None, None if only_come else pa.array(weights, pa.int64()))


def told_arrow(
    schema: Schema, rows: pa.RecordBatch, weights: pa.Array | None
) -> ChangeBatch | None:
    """The same for rows in Arrow, which may have further columns."""
    if not rows.num_rows:
        return None
    arrays = rows.columns[: len(schema.columns)]
    return ChangeBatch(
        schema, None, pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), weights
    )

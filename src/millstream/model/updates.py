"""From weighted rows to changes: which two rows are one update. Pure.

An update is a -1 and a +1 side by side, with equal keys. Without a key a -1 next to a +1 may be
two unrelated rows, so they stay a delete and an insert: both are exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.change import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.model.schema import Schema


def changes(
    schema: Schema,
    rows: Sequence[tuple[Any, ...]],
    weights: Sequence[int] | None,
    lsns: Sequence[int],
) -> Iterator[Change]:
    """Yield the changes that weighted rows stand for; weights are None when all are +1."""
    if weights is None:
        for row, lsn in zip(rows, lsns, strict=True):
            yield Change("insert", row, None, lsn, schema)
        return
    updates = _update_places(schema, rows, weights)
    for place, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        if place - 1 in updates:
            yield Change("update", row, rows[place - 1], lsns[place], schema)
        elif place in updates:
            continue
        elif weight > 0:
            for _ in range(weight):
                yield Change("insert", row, None, lsns[place], schema)
        else:
            for _ in range(-weight):
                yield Change("delete", row, row, lsns[place], schema)


def _update_places(
    schema: Schema, rows: Sequence[tuple[Any, ...]], weights: Sequence[int]
) -> set[int]:
    """The places of the old rows of updates."""
    if not schema.key:
        return set()
    key = [schema.names.index(name) for name in schema.key]
    return {
        place
        for place, pair in enumerate(pairwise(weights))
        if pair == (-1, 1) and all(rows[place][k] == rows[place + 1][k] for k in key)
    }


def ops(weights: pa.Array, keys: Sequence[pa.Array]) -> pa.Array:
    """The ``_op`` column of rows, by the same rule, without Python values of any row.

    Args:
        weights: the weight of each row.
        keys: the columns of the primary key.
    """
    made = pc.if_else(pc.greater(weights, 0), "insert", "delete")
    if not keys or len(weights) < 2:
        return made
    pair = pc.and_(pc.equal(weights[:-1], -1), pc.equal(weights[1:], 1))
    for column in keys:
        pair = pc.and_(pair, _same(column[:-1], column[1:]))
    none = pa.array([False])
    old = pa.concat_arrays([pair, none])
    new = pa.concat_arrays([none, pair])
    return pc.if_else(pc.or_(old, new), "update", made)


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Where two arrays are equal; two NULLs are, as they are in a key."""
    return pc.if_else(
        pc.or_(pc.is_null(left), pc.is_null(right)),
        pc.and_(pc.is_null(left), pc.is_null(right)),
        pc.equal(left, right),
    )

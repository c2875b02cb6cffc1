"""Which values of two Arrow arrays are the same, as GROUP BY and IS NOT DISTINCT FROM see it.

NULL is the same as NULL, NaN as NaN, 0.0 as -0.0; in nested values, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.arrow_lists import map_entries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Mask: TypeAlias = "NDArray[np.bool_]"


def same_rows(pairs: Iterable[tuple[pa.Array, pa.Array]], rows: int) -> Mask:
    """Where so many rows are the same in all of their columns."""
    same = np.ones(rows, np.bool_)
    for left, right in pairs:
        same &= same_values(left, right)
    return same


def same_values(left: pa.Array, right: pa.Array) -> Mask:
    """Where two arrays of one type and one length hold the same."""
    of = left.type
    if pa.types.is_map(of):
        return _same_lists(map_entries(left), map_entries(right))
    if pa.types.is_list(of):
        return _same_lists(left, right)
    if pa.types.is_struct(of):
        same: Mask = _valid(left) == _valid(right)
        children = zip(left.flatten(), right.flatten(), strict=True)
        return same & same_rows(children, len(left))
    same = as_mask(pc.equal(left, right))
    if pa.types.is_floating(of):
        same |= as_mask(pc.is_nan(left)) & as_mask(pc.is_nan(right))
    if left.null_count and right.null_count:
        same |= ~_valid(left) & ~_valid(right)
    return same


def as_mask(flags: pa.BooleanArray) -> Mask:
    """Arrow's flags as a mask of one's own; NULL is false."""
    if flags.null_count:
        flags = flags.fill_null(False)
    return np.array(flags.to_numpy(zero_copy_only=False), np.bool_)


def _valid(array: pa.Array) -> Mask:
    return as_mask(array.is_valid())


def _same_lists(left: pa.Array, right: pa.Array) -> Mask:
    lengths = _lengths(left)
    same: Mask = lengths == _lengths(right)
    # Where both are as long, the elements stand side by side once all others are left out.
    rows = np.flatnonzero(same & (lengths > 0))
    if not len(rows):
        return same
    places = pa.array(rows)
    elements = same_values(left.take(places).flatten(), right.take(places).flatten())
    differing = np.concatenate([[0], np.cumsum(~elements)])
    ends = np.cumsum(lengths[rows])
    same[rows] = differing[ends] == differing[ends - lengths[rows]]
    return same


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """The lengths of lists; -1 for NULL."""
    lengths = pc.fill_null(lists.value_lengths(), -1).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)  # type: ignore[no-any-return]

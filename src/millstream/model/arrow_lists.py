"""Lists and maps of Arrow, taken apart: whatever NULLs hide, and wherever the array was sliced."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def is_list(arrow: pa.DataType) -> bool:
    """Whether the values of a type are lists, however they are laid out."""
    return any(is_one(arrow) for is_one in _LISTS)


def list_offsets(lists: pa.Array) -> pa.Array:
    """Where each list begins in ``lists.flatten()``, which skips what NULLs hide, and the end.

    >>> list_offsets(pa.array([[1, 2], None, [3]])).to_pylist()
    [0, 2, 2, 3]
    """
    lengths = pc.fill_null(lists.value_lengths(), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())


def map_entries(array: pa.Array) -> pa.Array:
    """Return maps as lists of (key, value), which unlike maps can be flattened when sliced."""
    entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    return array.cast(pa.list_(entry))

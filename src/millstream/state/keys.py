"""Keys: which values of Arrow arrays are the same, and their hashes.

As GROUP BY and IS NOT DISTINCT FROM see it: NULL is the same as NULL, NaN as NaN, 0.0 as -0.0; in
nested values, too. Values that are the same have the same hash. Hashes only find candidates, so a
collision costs time and nothing else. They are never stored: another release may hash otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.arrow_lists import map_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


# ---- equality

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


Hashes: TypeAlias = "NDArray[np.uint64]"

_SEED = 0x9E3779B97F4A7C15
_NULL = 0xC2B2AE3D27D4EB4F
_FACTOR = 0xBF58476D1CE4E5B9
_SHIFT = 29
_MASK = (1 << 64) - 1
_NAN = 0x7FF8000000000000
_LONG = 256  # bytes; a longer text is hashed alone, so that it holds up no others


# ---- hashes of many rows


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """The hashes of so many rows, whose keys are in these columns."""
    hashes = np.full(rows, _SEED, np.uint64)
    for column in columns:
        hashes = _column(hashes, column)
    return hashes


def _step(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * np.uint64(_FACTOR)
    mixed ^= mixed >> np.uint64(_SHIFT)
    return mixed


def _column(hashes: Hashes, column: pa.Array) -> Hashes:
    if column.null_count == len(column):  # its buffers may not even be there
        return _step(hashes, np.uint64(_NULL))  # type: ignore[arg-type]
    hashed = _values(hashes, column)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        hashed[nulls] = _step(hashes[nulls], np.uint64(_NULL))  # type: ignore[arg-type]
    return hashed


def _values(hashes: Hashes, column: pa.Array) -> Hashes:
    """The hashes with a column mixed in; those of its NULLs may be anything."""
    of = column.type
    if pa.types.is_string(of) or pa.types.is_binary(of):
        return _texts(hashes, column)
    if pa.types.is_decimal(of):
        halves = np.frombuffer(column.buffers()[1], np.uint64)
        halves = halves[2 * column.offset : 2 * (column.offset + len(column))]
        return _step(_step(hashes, halves[::2]), halves[1::2])
    if pa.types.is_struct(of):
        for child in column.flatten():
            hashes = _column(hashes, child)
        return hashes
    if pa.types.is_map(of):
        column = map_entries(column)
    if pa.types.is_list(column.type):
        return _lists(hashes, column)
    return _step(hashes, _words(column))


def _words(column: pa.Array) -> Hashes:
    """Values of a fixed width as 64 bits each."""
    of = column.type
    if pa.types.is_boolean(of):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_floating(of) or pa.types.is_integer(of)):  # a date or a time
        column = column.view(pa.int32() if of.bit_width == 32 else pa.int64())
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if not pa.types.is_floating(of):
        return values.astype(np.int64).view(np.uint64)  # type: ignore[no-any-return]
    floats = values.astype(np.float64) + 0.0  # which makes 0.0 of -0.0
    words: Hashes = floats.view(np.uint64)
    words[np.isnan(floats)] = _NAN
    return words


def _texts(hashes: Hashes, column: pa.Array) -> Hashes:
    """Texts and bytes: eight bytes at a time, then the length."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    # Eight more bytes, so that the last text can be read in whole words, too.
    padded = np.zeros(last - first + 8, np.uint8)
    if last > first:
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
    words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, strides=(1,))
    starts -= first
    hashed = hashes.copy()
    at, rows = 0, np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    while len(rows):
        word = words[starts[rows] + at]
        short = np.minimum(lengths[rows] - at, 8).astype(np.uint64)
        word &= np.uint64(_MASK) >> (np.uint64(64) - np.uint64(8) * short)
        hashed[rows] = _step(hashed[rows], word)
        at += 8
        rows = rows[lengths[rows] > at]
    hashed = _step(hashed, lengths.view(np.uint64))
    for row in np.flatnonzero(lengths > _LONG).tolist():
        text = padded[starts[row] : starts[row] + lengths[row]].tobytes()
        hashed[row] = _hash_bytes(int(hashes[row]), text)
    return hashed


def _lists(hashes: Hashes, column: pa.Array) -> Hashes:
    """Arrays: the sum of their elements' hashes, each with its place; then the length."""
    lengths = pc.fill_null(column.value_lengths(), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    elements = column.flatten()
    ends = np.cumsum(lengths)
    places = np.arange(len(elements)) - np.repeat(ends - lengths, lengths)
    single = _column(places.astype(np.uint64) * np.uint64(_FACTOR), elements)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(single, dtype=np.uint64)])
    return _step(_step(hashes, sums[ends] - sums[ends - lengths]), lengths.view(np.uint64))


def _mix(hashed: int, word: int) -> int:
    hashed = ((hashed ^ word) * _FACTOR) & _MASK
    return hashed ^ (hashed >> _SHIFT)


def _hash_bytes(hashed: int, value: bytes) -> int:
    for at in range(0, len(value), 8):
        hashed = _mix(hashed, int.from_bytes(value[at : at + 8], "little"))
    return _mix(hashed, len(value))

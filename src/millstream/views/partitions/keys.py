"""Which partition of a view a row belongs to: a hash of its key, the same for ever. Pure.

A view's checkpoints count on it: rows as Python's and as Arrow's give the same partition, on every
machine and in every version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from millstream.model.clock import from_datetime
from millstream.views.run.columns import INITIAL, LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema

EVERY: Final = -1
"""In place of a partition: the row is for all of them."""

KINDS: Final = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "VARCHAR",
    "BINARY",
    "DATE",
    "TIMESTAMP",
)
"""The types of columns that rows can be distributed by: what is equal is so byte by byte."""

_LONG: Final = struct.Struct("<q")
_NULL: Final = crc32(b"\x00")
_FACTOR: Final = 0x01000193
_MASK: Final = 0xFFFFFFFF
_EPOCH_DAY: Final = 719_163


def _of_int(value: int) -> int:
    return crc32(_LONG.pack(value))


def _of_text(value: str) -> int:
    return crc32(value.encode())


def _of_moment(value: Any) -> int:  # noqa: ANN401 - a datetime
    return _of_int(from_datetime(value))


def _of_day(value: Any) -> int:  # noqa: ANN401 - a date
    return _of_int(value.toordinal() - _EPOCH_DAY)


def _function(kind: str) -> Callable[[Any], int]:
    """The hash of a value of Python's; of a number, that of an int."""
    if kind in {"DATE", "TIMESTAMP"}:
        return _of_day if kind == "DATE" else _of_moment
    return _of_number_or_text(kind)


def _of_number_or_text(kind: str) -> Callable[[Any], int]:
    if kind == "VARCHAR":
        return _of_text
    return crc32 if kind == "BINARY" else _of_int


class Partitioner:
    """Distributes rows over the partitions of a view.

    Args:
        count: how many partitions there are.

    Attributes:
        count: how many partitions there are.
        keys: for each log, its key's columns: their names in the log and in the feed, their types.
            Filled when the view's query has been planned.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.keys: tuple[tuple[tuple[str, str, str], ...], ...] = ()
        self._places: dict[int, tuple[Schema, list[tuple[int, Callable[[Any], int]]]]] = {}

    def of_rows(self, log: int, batch: ChangeBatch) -> list[int]:
        """The partition of each row that a batch of Python's rows has.

        Raises:
            AttributeError, TypeError: a value cannot be read in Python; Arrow has it.
        """
        known = self._places.get(log)
        if known is None or known[0] is not batch.schema:
            names = batch.schema.names
            made = [(names.index(own), _function(kind)) for own, _, kind in self.keys[log]]
            known = self._places[log] = (batch.schema, made)
        hashes, found = known[1], []
        for row in batch.held_rows:
            mixed = 0
            for place, function in hashes:
                value = row[place]
                one = _NULL if value is None else function(value)
                mixed = (mixed * _FACTOR + one) & _MASK
            found.append(mixed % self.count)
        return found

    def of_feed(self, data: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """The partition of each row of a feed, EVERY for the initial row."""
        if LOG not in data.schema.names:
            return self._of_columns(0, data)
        logs = data.column(LOG).to_numpy()
        if len(logs) and (logs == logs[0]).all() and logs[0] != INITIAL:
            return self._of_columns(int(logs[0]), data)
        found = np.full(len(logs), EVERY, np.int8)
        for log in np.unique(logs):
            if log != INITIAL:
                places = np.flatnonzero(logs == log)
                found[places] = self._of_columns(int(log), data.take(pa.array(places)))
        return found

    def _of_columns(self, log: int, data: pa.RecordBatch) -> np.ndarray[Any, Any]:
        count, mask = np.uint64(self.count), np.uint64(_MASK)
        (_, first, kind), *others = self.keys[log]
        known, codes = _hashes(data.column(first), kind)
        if not others:  # its partition, too, is computed once for each value
            known = (known % count).astype(np.int8)
        mixed: np.ndarray[Any, Any] = known[codes]
        for _, name, kind in others:
            known, codes = _hashes(data.column(name), kind)
            mixed = (mixed * np.uint64(_FACTOR) + known[codes]) & mask
        return (mixed % count).astype(np.int8) if others else mixed


def _hashes(column: pa.Array, kind: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The hash of each value that is different, and the place of each row's among them."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    if kind not in {"VARCHAR", "BINARY"}:
        values = values.cast(pa.int32()) if kind == "DATE" else values
        values = values.cast(pa.int64()) if kind != "BOOLEAN" else values.cast(pa.int8())
    function = _of_number_or_text(kind)
    known = np.array([function(each) for each in values.to_pylist()] + [_NULL], np.uint64)
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return known, codes


def split(data: pa.RecordBatch, partitions: Sequence[int] | np.ndarray[Any, Any]) -> dict[int, Any]:
    """The rows of each partition that has some; those of EVERY are to be added by the caller."""
    found = np.asarray(partitions)
    counts = np.bincount(found - EVERY)
    names = np.flatnonzero(counts)
    if len(names) == 1:
        return {int(names[0]) + EVERY: data}
    # Put into the order of partitions once, and cut there: a take for each takes twice as long.
    ordered = data.take(pa.array(np.argsort(found, kind="stable")))
    ends = np.cumsum(counts)
    return {
        int(name) + EVERY: ordered.slice(int(ends[name] - counts[name]), int(counts[name]))
        for name in names
    }

"""Weighted rows, as Python tuples or as Arrow: what a ``ChangeBatch`` holds."""

from __future__ import annotations

import struct
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.model.schema import Schema

Row = tuple[Any, ...]

UPDATE: Final = pa.Array.from_buffers(  # pa.array would import pandas, see ``Database``
    pa.int64(), 2, [None, pa.py_buffer(struct.pack("=2q", -1, 1))]
)
"""The weights of an old row and the new one, which most changes of an aggregate have."""

# Listed; or as Arrow; or the rows and the mask that they are counted out from when needed.
RowLsns: TypeAlias = "list[int] | pa.Array | tuple[WeightedRows, pa.BooleanArray] | None"


class MaskedRows(NamedTuple):
    """The rows of an Arrow batch where a mask is true, yet to be taken out."""

    batch: pa.RecordBatch
    mask: pa.BooleanArray
    size: int


class WeightedRows:
    """Rows of one schema, each with a weight and an LSN.

    Rows are held in one form, tuples or an Arrow record batch; the other is made when first needed,
    and kept. Weights are None when every row appears (+1), which is the usual case and costs
    nothing. LSNs are counted up from ``first_lsn`` unless a filter took rows out, in which case
    each row's LSN is listed.

    Attributes:
        schema: the user's columns.
        first_lsn: the first LSN that the rows stand for.
    """

    __slots__ = ("_arrow", "_lsns", "_rows", "_weights", "first_lsn", "schema")

    schema: Schema
    first_lsn: int
    _rows: list[Row] | None
    _arrow: pa.RecordBatch | MaskedRows | None
    _weights: pa.Array | None
    _lsns: RowLsns

    def __len__(self) -> int:
        """The number of weighted rows; an update counts two."""
        if self._rows is not None:
            return len(self._rows)
        held = self._arrow
        return held.size if isinstance(held, MaskedRows) else int(self._held_arrow().num_rows)

    @property
    def rows(self) -> list[Row]:
        """The rows as tuples of Python values: a list of your own.

        A value that Python cannot hold, such as a year beyond 9999 that a view has worked out, is
        an ``Unreadable`` in its place; ``arrow`` has it.
        """
        return list(self.held_rows)

    @property
    def held_rows(self) -> list[Row]:
        """The rows as the very list that the batch holds: not to be changed."""
        if self._rows is None:
            self._rows = self.schema.arrow_to_rows(self._held_arrow(), lenient=True)
        return self._rows

    @property
    def arrow(self) -> pa.RecordBatch:
        """The user's columns as an Arrow record batch, without LSNs and weights."""
        if self._arrow is None:
            self._arrow = self.schema.rows_to_arrow(self.held_rows)
        return self._held_arrow()

    @property
    def is_arrow(self) -> bool:
        """Whether the Arrow form is there without any work."""
        return self._arrow is not None

    @property
    def has_rows(self) -> bool:
        """Whether the rows are there without any work."""
        return self._rows is not None

    @property
    def is_insert_only(self) -> bool:
        """Whether every weight is +1."""
        return self._weights is None

    @property
    def is_counted(self) -> bool:
        """Whether the rows' LSNs are simply counted up from ``first_lsn``."""
        return self._lsns is None

    @property
    def weights(self) -> list[int]:
        """The weight of each row: +1 it appears, -1 it disappears."""
        if self._weights is None:
            return [1] * len(self)
        if self._weights is UPDATE:  # asked for with every change of an aggregate
            return [-1, 1]
        weights: list[int] = self._weights.to_pylist()
        return weights

    @property
    def lsns(self) -> Sequence[int]:
        """The LSN of each row."""
        if self._lsns is None:
            return range(self.first_lsn, self.first_lsn + len(self))
        if isinstance(self._lsns, list):
            return self._lsns
        listed: list[int] = self.lsns_arrow().to_pylist()
        self._lsns = listed
        return listed

    def each(self) -> Iterator[tuple[Row, int, int]]:
        """Each row with its LSN and its weight."""
        rows = self.held_rows
        if self._lsns is None and self._weights is None:
            return zip(rows, count(self.first_lsn), repeat(1))
        return zip(rows, self.lsns, self.weights, strict=True)

    def lsns_arrow(self) -> pa.Array:
        """The LSN of each row as an Arrow int64 array."""
        if self._lsns is None:
            return pa.arange(self.first_lsn, self.first_lsn + len(self))
        if isinstance(self._lsns, tuple):
            batch, mask = self._lsns
            return batch.lsns_arrow().filter(mask)
        if isinstance(self._lsns, pa.Array):
            return self._lsns
        return pa.array(self._lsns, pa.int64())

    def weights_arrow(self) -> pa.Array:
        """The weights as an Arrow int64 array."""
        if self._weights is None:
            return pa.repeat(pa.scalar(1, pa.int64()), len(self))
        return self._weights

    def _lsn_at(self, place: int) -> int:
        if self._lsns is None:
            return self.first_lsn + place
        if isinstance(self._lsns, pa.Array):
            return int(self._lsns[place].as_py())
        return self.lsns[place]

    def _held_arrow(self) -> pa.RecordBatch:
        held = self._arrow
        if held is None:
            raise AssertionError("a ChangeBatch holds rows or Arrow")
        if isinstance(held, MaskedRows):  # two threads may do it at once, with the same result
            self._arrow = held = held.batch.filter(held.mask)
        return held

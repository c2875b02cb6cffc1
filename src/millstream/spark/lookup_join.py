"""Joins with tables, done by the feed: each row of the main log gets the tables' columns.

Exact in the end, whatever comes first: when a table changes, the rows of the main log that were
joined with its rows, or with none, are sent again, with the old columns and weight -1 and with the
new ones and +1. They are read from the log; nothing of the main log is kept in memory. The tables'
rows are, as Python tuples by key: a batch is looked up once for each distinct key that it has, and
all else is done in Arrow.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError
from millstream.model.arrow_values import column_values
from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column, Schema
from millstream.model.types import BIGINT
from millstream.spark.columns import ROW_LSN, name_in_feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from millstream.model.schema import Row
    from millstream.sql.views.plan import Lookup

_NAN: Final = "NaN"
"""NaN as a key: as in Spark's SQL, it equals itself."""
_FLOATS: Final = frozenset({"DOUBLE", "REAL"})
_FEW: Final = 16  # rows up to which Python is faster than Arrow

Key = tuple[Any, ...]


@dataclass(slots=True)
class _JoinedRows:
    """Some rows, joined so far, each with its weight, its LSN and that of the main log's row."""

    columns: list[pa.Array]
    weights: pa.Array
    lsns: pa.Array
    row_lsns: pa.Array

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, places: pa.Array) -> _JoinedRows:
        """The rows at some places."""
        columns = [each.take(places) for each in self.columns]
        rest = (each.take(places) for each in (self.weights, self.lsns, self.row_lsns))
        return _JoinedRows(columns, *rest)


class LookupJoin:
    """The tables of one feed at one place of the log, as it moves on.

    Args:
        lookups: the joins, in order; each may use columns of those before it.
        schemas: the columns of all logs.
        history: the rows of the main log before an LSN that were in time, batch by batch.
    """

    def __init__(
        self,
        lookups: Sequence[Lookup],
        schemas: Sequence[Schema],
        history: Callable[[int], Iterable[ChangeBatch]],
    ) -> None:
        self._history = history
        self._width = len(schemas[0].columns)
        self._order = (0, *(each.table for each in lookups))
        columns = [
            Column(name_in_feed(log, column.name, len(schemas)), column.type)
            for log in self._order
            for column in schemas[log].columns
        ]
        self.schema = Schema((*columns, Column(ROW_LSN, BIGINT)))
        starts = _starts(self._order, schemas)
        self._tables = [
            _JoinedTable(each, schemas[each.table], self.schema.columns, starts, schemas)
            for each in lookups
        ]

    def load(self, log: int, batch: ChangeBatch) -> None:
        """Take in what a table had before, without corrections."""
        for table in self._tables:
            if table.log == log:
                table.change(batch)

    def join(self, log: int, batch: ChangeBatch) -> ChangeBatch | None:
        """The changes of the joined rows that a batch of a log brings; None when there are none."""
        if log == 0 and len(batch) <= _FEW:
            with contextlib.suppress(SchemaMismatchError):  # Arrow can hold what Python cannot
                return self._join_few(batch)
        joined = [self._join_all(self._main(batch))] if log == 0 else self._corrected(log, batch)
        return self._made([each for each in joined if len(each)], batch)

    def _main(self, batch: ChangeBatch) -> _JoinedRows:
        """The rows of the main log, without columns that were added after the view was made."""
        columns = batch.arrow.columns[: self._width]
        lsns = batch.lsns_arrow()
        return _JoinedRows(columns, batch.weights_arrow(), lsns, lsns)

    def _join_all(self, rows: _JoinedRows) -> _JoinedRows:
        for table in self._tables:
            if len(rows):
                rows = table.joined(rows)
        return rows

    def _join_few(self, batch: ChangeBatch) -> ChangeBatch | None:
        """A few rows of Python with the tables' columns, without the way to Arrow and back."""
        rows: list[Row] = []
        weights: list[int] = []
        lsns: list[int] = []
        for row, weight, lsn in zip(batch.held_rows, batch.weights, batch.lsns, strict=True):
            found = [row[: self._width]]
            for table in self._tables:
                found = [each + match for each in found for match in table.matches(each)]
            rows += [(*each, lsn) for each in found]
            weights += [weight] * len(found)
            lsns += [lsn] * len(found)
        return self._batch(batch, rows, None, pa.array(weights, pa.int64()), lsns)

    def _corrected(self, log: int, batch: ChangeBatch) -> list[_JoinedRows]:
        """The rows that the change of a table alters: as they were, and as they are."""
        first = next((each for each in self._tables if each.log == log), None)
        if first is None:
            return []
        touched = first.keys(batch)
        past = [
            first.with_keys(self._main(each), touched) for each in self._history(batch.first_lsn)
        ]
        past = [each for each in past if len(each)]
        before = [self._join_all(each) for each in past]
        self.load(log, batch)
        after = [self._join_all(each) for each in past]
        for each in before:
            each.weights = pc.negate(each.weights)
        for each in (*before, *after):
            each.lsns = pa.repeat(pa.scalar(batch.lsn, pa.int64()), len(each))
        return before + after

    def _made(self, parts: list[_JoinedRows], batch: ChangeBatch) -> ChangeBatch | None:
        if not parts:
            return None
        arrow = self.schema.arrow
        made = [
            pa.RecordBatch.from_arrays([*each.columns, each.row_lsns], schema=arrow)
            for each in parts
        ]
        data = made[0] if len(made) == 1 else pa.concat_batches(made)
        weights = pa.concat_arrays([each.weights for each in parts])
        return self._batch(batch, None, data, weights, pa.concat_arrays([p.lsns for p in parts]))

    def _batch(
        self,
        batch: ChangeBatch,
        rows: list[Row] | None,
        data: pa.RecordBatch | None,
        weights: pa.Array,
        lsns: list[int] | pa.Array,
    ) -> ChangeBatch | None:
        """Joined rows, at the place of the batch that led to them; None when there are none."""
        if not len(weights):
            return None
        return ChangeBatch(
            self.schema,
            rows,
            data,
            weights,
            topic=batch.topic,
            first_lsn=batch.first_lsn,
            lsn=batch.lsn,
            lsns=lsns,
        )


class _JoinedTable:
    """The rows of one table by the columns that it is joined on.

    Args:
        lookup: the join.
        schema: the table's columns.
        joined: the columns of the whole join.
        starts: where each log's columns begin among them.
        schemas: the columns of all logs.
    """

    def __init__(
        self,
        lookup: Lookup,
        schema: Schema,
        joined: Sequence[Column],
        starts: dict[int, int],
        schemas: Sequence[Schema],
    ) -> None:
        self.log = lookup.table
        self._is_on_main = all(log == 0 for (log, _), _ in lookup.on)
        places = [starts[log] + schemas[log].names.index(name) for (log, name), _ in lookup.on]
        self._left = [(place, joined[place]) for place in places]
        self._right = tuple(schema.names.index(name) for _, name in lookup.on)
        width, start = len(schema.columns), starts[lookup.table]
        self._schema = Schema(tuple(joined[start : start + width]))
        self._floats = any(schema.columns[n].type.kind in _FLOATS for n in self._right)
        self._nothing: list[Row] = [(None,) * width] if lookup.outer else []
        self._rows: defaultdict[Key, list[Row]] = defaultdict(list)

    def change(self, batch: ChangeBatch) -> None:
        """Take in changes of the table."""
        width = len(self._schema.columns)
        for held, weight in zip(batch.held_rows, batch.weights, strict=True):
            row = held[:width]
            key = self._key([row[place] for place in self._right])
            if weight > 0:
                self._rows[key].append(row)
            else:
                rows = self._rows[key]
                _remove(rows, row)
                if not rows:
                    del self._rows[key]

    def keys(self, batch: ChangeBatch) -> set[Key]:
        """The keys that rows of the table are found by."""
        return {self._key([row[place] for place in self._right]) for row in batch.held_rows}

    def with_keys(self, rows: _JoinedRows, keys: set[Key]) -> _JoinedRows:
        """The rows that are looked up by some keys; all, when the key comes from other tables."""
        if not self._is_on_main or not len(rows):
            return rows
        distinct, codes = self._distinct_keys(rows)
        wanted = np.array([each in keys for each in distinct], np.bool_)[codes]
        return rows if wanted.all() else rows.take(pa.array(np.flatnonzero(wanted)))

    def matches(self, row: Row) -> list[Row]:
        """The rows of the table that fit a row. NULL fits nothing."""
        return self._matches(self._key([row[place] for place, _ in self._left]))

    def _matches(self, key: Key) -> list[Row]:
        return (None not in key and self._rows.get(key)) or self._nothing

    def joined(self, rows: _JoinedRows) -> _JoinedRows:
        """Each row with the columns of each row of the table that fits."""
        distinct, codes = self._distinct_keys(rows)
        found: list[Row] = []
        starts, counts = np.zeros(len(distinct), np.int64), np.zeros(len(distinct), np.int64)
        for place, key in enumerate(distinct):
            matches = self._matches(key)
            starts[place], counts[place] = len(found), len(matches)
            found += matches
        first, count = starts[codes], counts[codes]
        if (count != 1).any():
            # The n-th match of a row is the n-th place after its first one.
            lefts = np.repeat(np.arange(len(rows)), count)
            nth = np.arange(len(lefts)) - np.repeat(count.cumsum() - count, count)
            rows, first = rows.take(pa.array(lefts)), first[lefts] + nth
        table = self._schema.rows_to_arrow(found)
        more = [each.take(pa.array(first)) for each in table.columns]
        return _JoinedRows([*rows.columns, *more], rows.weights, rows.lsns, rows.row_lsns)

    def _distinct_keys(self, rows: _JoinedRows) -> tuple[list[Key], NDArray[np.int64]]:
        """The distinct keys that some rows are looked up by, and for each row which of them."""
        values: list[list[Any]] = []
        codes: list[NDArray[np.int64]] = []
        for place, column in self._left:
            encoded = rows.columns[place].dictionary_encode(null_encoding="encode")
            values.append(column_values(column.name, column.type, encoded.dictionary))
            codes.append(encoded.indices.to_numpy(zero_copy_only=False))
        if len(codes) == 1:
            return [self._key([each]) for each in values[0]], codes[0]
        pairs, inverse = np.unique(np.stack(codes), axis=1, return_inverse=True)
        keys = [
            self._key([known[code] for known, code in zip(values, each, strict=True)])
            for each in pairs.T
        ]
        return keys, inverse.reshape(-1)

    def _key(self, values: list[Any]) -> Key:
        if self._floats:
            values = [_NAN if each != each else each for each in values]  # noqa: PLR0124
        return tuple(values)


def _starts(order: Sequence[int], schemas: Sequence[Schema]) -> dict[int, int]:
    """Where the columns of each log begin in a joined row."""
    starts, place = {}, 0
    for log in order:
        starts[log] = place
        place += len(schemas[log].columns)
    return starts


def _remove(rows: list[Row], row: Row) -> None:
    try:
        rows.remove(row)
    except ValueError:  # it has a NaN in it, which equals nothing, not even itself
        text = repr(row)
        del rows[next(place for place, each in enumerate(rows) if repr(each) == text)]

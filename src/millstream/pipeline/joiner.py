"""Joins with tables, done by the feed: each row of the main log comes with the tables' columns.

Exact in the end, whatever comes first: when a table changes, the rows of the main log that were
joined with what it had, or had not, are sent again, with the old columns and weight -1 and with the
new ones and +1. They are read from the log; nothing of the main log is kept in memory. The tables'
rows are.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.model.batch import ChangeBatch
from millstream.model.schema import Column, Schema
from millstream.pipeline.columns import name_in_feed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.model.schema import Row
    from millstream.sql.planner.plan import Lookup

_NAN: Final = "NaN"
"""NaN as a key: as in Spark's SQL, it equals itself."""
_FLOATS: Final = frozenset({"DOUBLE", "REAL"})

Key = tuple[Any, ...]
Weighted = tuple["Row", int, int]
"""A row, its weight, its LSN."""


class Joiner:
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
        self.schema = Schema(
            tuple(
                Column(name_in_feed(log, column.name, len(schemas)), column.type)
                for log in self._order
                for column in schemas[log].columns
            )
        )
        starts = _starts(self._order, schemas)
        self._tables = [
            _Table(
                each,
                schemas[each.table],
                lambda log, name: starts[log] + schemas[log].names.index(name),
            )
            for each in lookups
        ]

    def load(self, log: int, batch: ChangeBatch) -> None:
        """Take in what a table had before, without corrections."""
        for table in self._tables:
            if table.log == log:
                table.change(batch)

    def join(self, log: int, batch: ChangeBatch) -> ChangeBatch | None:
        """What a batch of a log means for the joined rows."""
        if log == 0:
            return self._made(self._joined(self._weighted(batch)), batch)
        return self._made(self._corrected(log, batch), batch)

    def _joined(self, rows: Iterable[Weighted]) -> Iterator[Weighted]:
        for row, weight, lsn in rows:
            found: list[Row] = [row]
            for table in self._tables:
                found = [one for each in found for one in table.matches(each)]
            for each in found:
                yield each, weight, lsn

    def _corrected(self, log: int, batch: ChangeBatch) -> list[Weighted]:
        """The rows that the change of a table alters: as they were, and as they are."""
        first = next((each for each in self._tables if each.log == log), None)
        if first is None:
            return []
        touched = first.keys(batch)
        rows = [
            each
            for past in self._history(batch.first_lsn)
            for each in self._weighted(past)
            if not first.is_on_main or first.key_of(each[0]) in touched
        ]
        before = [(row, -weight, batch.lsn) for row, weight, _ in self._joined(rows)]
        self.load(log, batch)
        after = [(row, weight, batch.lsn) for row, weight, _ in self._joined(rows)]
        return before + after

    def _weighted(self, batch: ChangeBatch) -> Iterator[Weighted]:
        return zip(_known(batch, self._width), batch.weights, batch.lsns, strict=True)

    def _made(self, rows: Iterable[Weighted], batch: ChangeBatch) -> ChangeBatch | None:
        listed = list(rows)
        if not listed:
            return None
        return ChangeBatch(
            self.schema,
            [row for row, _, _ in listed],
            None,
            pa.array([weight for _, weight, _ in listed], pa.int64()),
            topic=batch.topic,
            first_lsn=batch.first_lsn,
            lsn=batch.lsn,
            lsns=[lsn for _, _, lsn in listed],
        )


class _Table:
    """The rows of one table by the columns that it is joined on."""

    def __init__(self, lookup: Lookup, schema: Schema, place: Callable[[int, str], int]) -> None:
        self.log = lookup.table
        self.is_on_main = all(log == 0 for (log, _), _ in lookup.on)
        self._left = tuple(place(log, name) for (log, name), _ in lookup.on)
        self._right = tuple(schema.names.index(name) for _, name in lookup.on)
        self._width = len(schema.columns)
        self._floats = any(schema.columns[n].type.kind in _FLOATS for n in self._right)
        self._nothing: list[Row] = [(None,) * len(schema.columns)] if lookup.outer else []
        self._rows: defaultdict[Key, list[Row]] = defaultdict(list)

    def key_of(self, row: Row) -> Key:
        """What a row of the left side asks for."""
        return self._key(row, self._left)

    def keys(self, batch: ChangeBatch) -> set[Key]:
        """What rows of the table answer to."""
        return {self._key(row, self._right) for row in batch.held_rows}

    def matches(self, row: Row) -> list[Row]:
        """A row with the columns of each row of the table that fits. NULL fits nothing."""
        key = self.key_of(row)
        found = () if None in key else self._rows.get(key, ())
        return [row + each for each in found or self._nothing]

    def change(self, batch: ChangeBatch) -> None:
        """Take in changes of the table."""
        for row, weight in zip(_known(batch, self._width), batch.weights, strict=True):
            key = self._key(row, self._right)
            if weight > 0:
                self._rows[key].append(row)
            else:
                rows = self._rows[key]
                _remove(rows, row)
                if not rows:
                    del self._rows[key]

    def _key(self, row: Row, places: tuple[int, ...]) -> Key:
        key = tuple([row[place] for place in places])
        if not self._floats:
            return key
        return tuple([_NAN if each != each else each for each in key])  # noqa: PLR0124


def _starts(order: Sequence[int], schemas: Sequence[Schema]) -> dict[int, int]:
    """Where the columns of each log begin in a joined row."""
    starts, place = {}, 0
    for log in order:
        starts[log] = place
        place += len(schemas[log].columns)
    return starts


def _known(batch: ChangeBatch, width: int) -> list[Row]:
    """The rows without columns that were added after the view was made."""
    rows = batch.held_rows
    return rows if len(batch.schema.columns) <= width else [row[:width] for row in rows]


def _remove(rows: list[Row], row: Row) -> None:
    try:
        rows.remove(row)
    except ValueError:  # it has a NaN in it, which equals none, not even itself
        text = repr(row)
        del rows[next(place for place, each in enumerate(rows) if repr(each) == text)]

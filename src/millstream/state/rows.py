"""The current rows of a view by key, and what new results of its groups change.

A log-structured merge tree in memory: the keys that changed last lie in a dict, all others in a
few Arrow runs. Few results are handled row by row in Python, many at once in Arrow; both ways
give the same changes.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import SchemaMismatchError
from millstream.model.batch import ChangeBatch
from millstream.model.result_rows import as_arrow
from millstream.model.schema import Schema
from millstream.state.keys import hash_columns, one_hasher
from millstream.state.result_reader import ResultReader, row_getter
from millstream.state.runs import (
    Run,
    added,
    compacted,
    compare,
    deleted,
    living,
    newest,
    outcome,
    run_of,
    weighted_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.model.result_rows import Results
    from millstream.model.schema import Column, Row
    from millstream.state.keys import Mask

Key = tuple[Any, ...]
_FEW = 256  # results up to which Python is faster than Arrow
_MOST = 4096  # rows in the dict, or deleted rows in the runs, before runs are compacted
_FLOATS = ("REAL", "DOUBLE")
_NAN = object()  # stands for NaN in a key, since no two NaNs are equal in Python
_UPDATE = pa.Array.from_buffers(  # pa.array would import pandas, see ``Database``
    pa.int64(), 2, [None, pa.py_buffer(np.array([-1, 1], np.int64))]
)


class Diff:
    """What some results change: computed by ``Rows.diff``, applied by ``Rows.apply``.

    Attributes:
        changes: the user's columns where they changed, an old row and its new one side by side;
            None when they did not.
        stored: the changes of all stored columns.
        put: keys and their new rows, None for none: what changes in the dict.
        added: a new run.
        deleted: places in runs whose rows are deleted.
        grown: by how many rows there are more.
        version: what the rows were when this was computed.
    """

    __slots__ = ("added", "changes", "deleted", "grown", "put", "stored", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.changes: ChangeBatch | None = None
        self.stored: ChangeBatch | None = None
        self.put: list[tuple[Key, Row | None]] = []
        self.added: Run | None = None
        self.deleted: list[tuple[Run, NDArray[np.int64]]] = []
        self.grown = 0


class Rows:
    """The rows of a view.

    One thread computes diffs, one diff at a time: it is applied, by any thread, or discarded before
    the next. Snapshots may be taken at any time by any thread.

    >>> rows = Rows(Schema.of(key=("k",), k="VARCHAR", n="BIGINT"), ("k",))
    >>> diff = rows.diff(pa.RecordBatch.from_pydict({"k": ["a", "b"], "n": [1, 1]}))
    >>> rows.apply(diff)
    >>> diff = rows.diff(pa.RecordBatch.from_pydict({"k": ["a", "b"], "n": [2, 1]}))
    >>> diff.changes.rows, diff.changes.weights
    ([('a', 1), ('a', 2)], [-1, 1])

    Args:
        schema: the user's columns.
        keys: the columns, the user's or hidden ones, that identify a group; none when there is
            only one group.
        hidden: columns that are kept but not shown.

    Attributes:
        schema: the user's columns.
        stored_schema: these and the hidden ones.
        key_of: takes the key out of a stored row; keys are equal when their groups are the same.
        few: results of at most so many rows are compared one by one, larger ones in Arrow.
        runs: the rows that came in larger results, the longest run first.
    """

    def __init__(self, schema: Schema, keys: Sequence[str], hidden: Sequence[Column] = ()) -> None:
        self.schema = schema
        self.stored_schema = Schema((*schema.columns, *hidden), schema.key) if hidden else schema
        names = self.stored_schema.names
        self._width = len(schema.columns)
        self._keys = [names.index(name) for name in keys]
        types = [self.stored_schema.columns[key].type for key in self._keys]
        self.key_of = _key_getter(self._keys, floats=any(t.kind in _FLOATS for t in types))
        self.few = 0 if self.stored_schema.is_nested else _FEW
        self._hash_key = one_hasher(types)
        self._floats = any(c.type.kind in _FLOATS for c in self.stored_schema.columns)
        self._reader = ResultReader(self.stored_schema)
        self._lock = threading.Lock()
        self._recent: dict[Key, Row] = {}
        self.runs: tuple[Run, ...] = ()
        self._deleted = 0
        self._version = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    # ---- changes

    def diff(self, batch: Results, *, keep: Mask | None = None, revise: bool = True) -> Diff:
        """What new results of some groups change; of a group that is there twice, the last counts.

        Args:
            batch: the stored columns and, perhaps, ``_shown``.
            keep: which of the groups stay; without it, those that are shown.
            revise: whether groups that are there may change or be retracted.
        """
        if batch.num_rows <= self.few:
            try:
                rows, shown = self._reader.rows(batch)
                return self.diff_rows(rows, keep=shown if keep is None else keep, revise=revise)
            except (SchemaMismatchError, OverflowError):
                pass  # such as the year 10000, which Arrow can hold and Python cannot
        batch = as_arrow(batch)
        if keep is None:
            keep = self._reader.shown(batch)
        return self._diff_arrow(self._reader.arrow(batch), keep, revise=revise)

    def diff_rows(
        self, rows: Sequence[Row], *, keep: Sequence[bool] | Mask | None = None, revise: bool = True
    ) -> Diff:
        """What new rows of some groups change, given as tuples in canonical form, not nested.

        Args:
            rows: all stored columns.
            keep: which of the rows stay; without it, all.
            revise: whether groups that are there may change or be retracted.
        """
        if len(self._recent) > _MOST or self._deleted > _MOST:
            self._compact()
        diff = Diff(self._version)
        key_of = self.key_of
        if len(rows) == 1:
            latest = {key_of(rows[0]): rows[0] if keep is None or keep[0] else None}
        else:
            latest = {}
            for place, row in enumerate(rows):
                key = key_of(row)
                latest.pop(key, None)  # so that the order is that of the last ones
                latest[key] = row if keep is None or keep[place] else None
        changed = []
        for key, new in latest.items():
            old = self._recent.get(key)
            held = None if old is not None or not self.runs else self._find(key)
            if held is not None:
                run, place, old = held
            if (old is None and new is None) or (old is not None and not revise):
                continue
            if old is not None and new is not None and _same(old, new, self._floats):
                continue
            changed.append((old, new))
            diff.put.append((key, new))
            if held is not None:
                diff.deleted.append((run, np.array([place])))
            diff.grown += (new is not None) - (old is not None)
        if changed:
            self._set_changes(diff, changed)
        return diff

    def apply(self, diff: Diff) -> None:
        """Apply the last diff."""
        with self._lock:
            if diff.version != self._version:
                raise AssertionError("a diff is applied once, and before the next is computed")
            self._version += 1
            recent = self._recent
            for run, places in diff.deleted:
                self._deleted += run.delete(places)
            for key, row in diff.put:
                if row is None:
                    recent.pop(key, None)
                else:
                    recent[key] = row
            if diff.added is not None:
                self.runs = (*self.runs, diff.added)
            self._size += diff.grown

    def load(self, batch: ChangeBatch) -> None:
        """Apply changes of the stored columns that were committed before, in order."""
        weights = batch.weights_arrow().to_numpy()
        if len(batch) <= self.few and not batch.is_arrow:
            self.apply(self.diff_rows(batch.held_rows, keep=weights > 0))
        else:
            self.apply(self.diff(batch.arrow, keep=weights > 0))

    def restore(self, batch: ChangeBatch) -> None:
        """Take in rows of the stored columns that were captured before: each key is there once."""
        if len(self) or len(batch) <= self.few:
            self.load(batch)
            return
        with self._lock:
            self.runs = (Run.unindexed(batch.arrow, self._keys),)
            self._size = len(batch)
            self._version += 1

    # ---- reading

    def snapshot(self, *, stored: bool = False) -> pa.Table:
        """All rows at one moment: the user's columns, or all that are stored."""
        return self.capture(stored=stored)()

    def capture(self, *, stored: bool = False) -> Callable[[], pa.Table]:
        """A function that gives all rows of this moment, whenever it is called.

        Capturing them is quick; only calling the function takes long.
        """
        with self._lock:
            recent = list(self._recent.values())
            runs = [
                (run.batch, run.alive.copy() if run.live < len(run.alive) else None)
                for run in self.runs
            ]
        schema = self.stored_schema if stored else self.schema

        def table() -> pa.Table:
            names = list(schema.names)
            parts = [living(batch.select(names), alive) for batch, alive in runs]
            if recent:
                parts.append(self.stored_schema.rows_to_arrow(recent).select(names))
            parts = [part.replace_schema_metadata(schema.arrow.metadata) for part in parts]
            return pa.Table.from_batches(parts, schema=schema.arrow)

        return table

    def members(self, batch: pa.RecordBatch, names: Sequence[str]) -> list[pa.RecordBatch]:
        """All stored rows that have, in some columns, the values of some row of a batch.

        Args:
            batch: rows that all differ in these columns.
            names: the columns; the same ones at each call.
        """
        if self._recent:
            self._compact()
        places = [self.stored_schema.names.index(name) for name in names]
        keys = [batch.column(name) for name in names]
        hashes = hash_columns(keys, batch.num_rows)
        found = [run.members(hashes, keys, places) for run in self.runs]
        return [part for part in found if part.num_rows]

    def find(self, row: Row) -> Row | None:
        """The stored row with the key of another row, or None; no column is nested."""
        key = self.key_of(row)
        recent = self._recent.get(key)
        if recent is not None:
            return recent
        held = self._find(key)
        return None if held is None else held[2]

    def find_all(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """The stored rows with the keys of a batch of the stored columns, which has each key once.

        Returns:
            Rows, and for each place of the batch which of them has its key; -1 without one.
        """
        self._compact()
        compared = compare(newest(batch, self._keys), self.runs, self._keys)
        return compared.old, compared.old_places

    # ---- row by row

    def _find(self, key: Key) -> tuple[Run, int, Row] | None:
        hashed = self._hash_key([math.nan if value is _NAN else value for value in key])
        for run in self.runs:
            for place in run.candidates(hashed):
                (row,) = self.stored_schema.arrow_to_rows(run.batch.slice(place, 1))
                if self.key_of(row) == key:
                    return run, place, row
        return None

    def _set_changes(self, diff: Diff, changed: list[tuple[Row | None, Row | None]]) -> None:
        diff.stored = diff.changes = row_changes(self.stored_schema, changed)
        if self.stored_schema is not self.schema:
            width = self._width
            cut = [(old and old[:width], new and new[:width]) for old, new in changed]
            seen = [
                (old, new)
                for old, new in cut
                if not (old and new and _same(old, new, self._floats))
            ]
            diff.changes = row_changes(self.schema, seen)

    # ---- many at once

    def _diff_arrow(self, batch: pa.RecordBatch, keep: Mask | None, *, revise: bool) -> Diff:
        self._compact()
        diff = Diff(self._version)
        if not batch.num_rows:
            return diff
        compared = compare(newest(batch, self._keys), self.runs, self._keys)
        values = [place for place in range(batch.num_columns) if place not in self._keys]
        what = outcome(compared, keep, values, revise=revise)
        diff.stored = diff.changes = arrow_changes(
            self.stored_schema, *weighted_rows(compared, what)
        )
        if self.stored_schema is not self.schema and diff.stored is not None:
            seen_values = [place for place in values if place < self._width]
            seen = outcome(compared, keep, seen_values, revise=revise)
            diff.changes = arrow_changes(self.schema, *weighted_rows(compared, seen))
        diff.added = added(compared, what)
        diff.deleted.extend(deleted(compared, what))
        diff.grown = int(what.inserted.sum()) - int(what.retracted.sum())
        return diff

    def _compact(self) -> None:
        """Merge runs, and move the recent rows into one. No row changes."""
        runs = self.runs
        recent = list(self._recent.values())
        if recent:
            runs = (*runs, run_of(self.stored_schema.rows_to_arrow(recent), self._keys))
        runs = compacted(runs)
        with self._lock:
            self.runs, self._recent, self._deleted = runs, {}, 0
            self._version += 1  # a diff from before would delete rows in runs that are gone


def _key_getter(places: Sequence[int], *, floats: bool) -> Callable[[Row], Key]:
    """A function that gives the key of a row; keys are equal when GROUP BY says so."""
    if floats:
        return lambda row: tuple([_NAN if _is_nan(row[place]) else row[place] for place in places])
    return row_getter(places)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def row_changes(schema: Schema, changed: list[tuple[Row | None, Row | None]]) -> ChangeBatch | None:
    """Pairs of an old and a new row, side by side, as a batch; None without any.

    Args:
        schema: their columns.
        changed: old and new rows; None for a row that is not there.
    """
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
    is_insert_only = min(weights) > 0
    return ChangeBatch(
        schema, rows, None, None if is_insert_only else pa.array(weights, pa.int64())
    )


def arrow_changes(
    schema: Schema, rows: pa.RecordBatch, weights: pa.Array | None
) -> ChangeBatch | None:
    """Weighted rows in Arrow, which may have further columns, as a batch; None without any."""
    if not rows.num_rows:
        return None
    arrays = rows.columns[: len(schema.columns)]
    return ChangeBatch(
        schema, None, pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), weights
    )


def _same(old: Row, new: Row, floats: bool) -> bool:
    """Whether two rows are the same; of floating-point columns, NaN is the same as NaN."""
    if old == new:
        return True
    return floats and all(
        one == other or (_is_nan(one) and _is_nan(other))
        for one, other in zip(old, new, strict=True)
    )

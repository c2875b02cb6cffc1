"""The rows of a view: what weighted results change in them, and what is committed of that.

Besides its own topic a view may have one more: ``__state_<view>`` has its rows with the columns by
which they are ordered when they are read, and which are not selected.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.model.result_rows import ResultRows, as_arrow
from millstream.model.schema import Schema
from millstream.state.bags import AppendOnlyRows, Bag
from millstream.state.result_reader import WEIGHT
from millstream.state.runs import net
from millstream.state.saved import rows_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.log import Log
    from millstream.model.result_rows import Results
    from millstream.model.schema import Column
    from millstream.state.saved import SavedRows

CHECK: Final = "MILLSTREAM_CHECK_ROWS"
"""With this in the environment, a view fails on a retraction of a row that it does not have."""

STATE: Final = "__state_"

PENDING: Final = "__pending_"
"""Earlier versions had such a topic for each view with an EMIT other than CHANGES."""

_TOGETHER: Final = 1 << 12
"""So many commits of a log are loaded together: each by itself takes some kernels."""

_ROWS: Final = "rows"
_LSN: Final = "_lsn"
_COUNT: Final = "_count"

Parts: TypeAlias = "list[tuple[str, ChangeBatch]]"
"""Changes of some topics, which are one commit."""


@dataclass(slots=True)
class ViewUpdate:
    """What a flush changes.

    Attributes:
        parts: what is to be committed.
        apply: updates the rows; called by the dispatcher's thread once the parts are committed, or
            by the view's when there is none.
    """

    parts: Parts
    apply: Callable[[], None]


class ViewRows:
    """The rows of a view, a weighted multiset; or, of a stream, only what changes.

    Args:
        name: the view.
        schema: its columns.
        kept: whether its current rows are kept.
        retracts: whether rows may be retracted; else they are append-only.
        hidden: columns that are stored and not shown, of rows that are kept.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        *,
        kept: bool,
        retracts: bool,
        hidden: Sequence[Column] = (),
    ) -> None:
        self.retracts = retracts
        self._name = name
        self._schema = schema
        self._stored = Schema((*schema.columns, *hidden)) if hidden else schema
        self._store: Bag | AppendOnlyRows | None = None
        if kept:
            self._store = Bag(self._stored) if retracts else AppendOnlyRows(self._stored)
        self._is_checked = bool(os.environ.get(CHECK))
        self._cause = -1  # over no rows, too, there may be results: those of LSN 0, say

    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    @property
    def topics(self) -> dict[str, Schema]:
        """The topics that it needs besides the view's own."""
        return {STATE + self._name: self._stored} if self._stored is not self._schema else {}

    # ---- changes

    def take(self, rows: Sequence[Results], lsn: int) -> ViewUpdate | None:
        """What rows with ``_lsn`` and ``_weight`` change; None when nothing.

        Rows up to the LSN of the last update are a replay, and were shown.
        """
        batch = _one_batch(rows)
        if batch is not None:
            batch = _in_log_order(batch, self._cause)
        if batch is None or not batch.num_rows:
            return None
        if self._store is not None:
            return self._update(batch, lsn)
        batch = as_arrow(batch)
        data = self._schema.conform(batch.select(list(self._schema.names)))
        weights = batch.column(WEIGHT)
        plain = pc.all(pc.equal(weights, 1)).as_py()
        return self._sent(ChangeBatch(self._schema, None, data, None if plain else weights), lsn)

    def follow(self, batch: ChangeBatch, lsn: int) -> ViewUpdate | None:
        """What rows change that were selected in this process; they count up to an LSN."""
        data = batch.arrow
        width = len(self._schema.columns)
        if data.num_columns > width:  # some were added to what is read
            data = data.select(list(range(width)))
        if self._store is None:
            weights = None if batch.is_insert_only else batch.weights_arrow()
            return self._sent(ChangeBatch(self._schema, None, data, weights), lsn)
        weighted = data.append_column(WEIGHT, batch.weights_arrow())
        return self._update(weighted, lsn)

    def _update(self, batch: Results, lsn: int) -> ViewUpdate:
        changes, change = self._diff(batch)

        def apply() -> None:
            change()
            self._cause = lsn

        if changes is None:
            return ViewUpdate([], apply)
        if self._stored is self._schema:
            return ViewUpdate([(self._name, changes)], apply)
        parts = [(STATE + self._name, changes)]
        shown = _shown(changes, self._schema)
        return ViewUpdate([(self._name, shown), *parts] if shown is not None else parts, apply)

    def _diff(self, batch: Results) -> tuple[ChangeBatch | None, Callable[[], None]]:
        """What results change in the rows that are kept, and what applies that."""
        store = self._store
        if isinstance(store, Bag):
            found = store.diff(batch)
            if self._is_checked:
                store.check(found)
            return found.changes, partial(store.apply, found)
        if store is None:
            raise AssertionError("no rows are kept")
        appended = store.diff(batch)
        return appended.changes, partial(store.apply, appended)

    def _sent(self, batch: ChangeBatch, lsn: int) -> ViewUpdate:
        """What changes, whose rows nobody keeps; a row that goes and comes again does not."""

        def apply() -> None:
            self._cause = lsn

        shown = batch if batch.is_insert_only else _shown(batch, self._schema)
        return ViewUpdate([] if shown is None else [(self._name, shown)], apply)

    # ---- what is stored

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Load saved rows, if they fit, and what the log has after them.

        Returns:
            The LSN up to which inputs count in them, and how many rows of the log were read.

        Raises:
            LogCorruptError: the log does not go back to its beginning, and there are no saved rows
                that do.
        """
        if saved is not None and not self._restore(saved):
            saved = None
        topic = next(iter(self.topics), self._name)
        first, start = log.topic(topic).low_lsn, FIRST_LSN
        if saved is not None and saved.lsn + 1 >= first:
            start = saved.lsn + 1
        elif first > FIRST_LSN and self._store is not None:
            raise rows_lost(self._name, log.path, first)
        rows, cause = 0, 0 if saved is None else saved.cause
        known: int | Literal["earliest"] = "earliest" if start == FIRST_LSN else start
        for changes in _together(log.read(topic, start=known)):
            rows += sum(map(len, changes))
            cause = max(cause, *(each.cause for each in changes))
            if self._store is not None:
                self._store.load(_as_one(changes))
        if rows or saved is not None:
            self._cause = cause
        return cause, rows

    def _restore(self, saved: SavedRows) -> bool:
        """Take in saved rows; whether they have the view's columns, and perhaps counts."""
        rows = saved.parts.get(_ROWS)
        width = len(self._stored.columns)
        if rows is None or not pa.schema(list(rows.schema)[:width]).equals(self._stored.arrow):
            return False
        counts = rows.column_names[width:]
        if len(counts) > 1 or (counts and counts[0].rstrip("_") != _COUNT):
            return False
        store = self._store
        if store is not None and rows.num_rows:
            [batch] = rows.combine_chunks().to_batches()
            weights = batch.column(width) if counts else None
            plain = batch.select(list(range(width))).cast(self._stored.arrow)
            store.load(ChangeBatch(self._stored, None, plain, weights))
        return True

    def capture(self) -> dict[str, Callable[[], pa.Table]] | None:
        """The rows of this moment, to be saved; None for append-only rows: the log has them."""
        store = self._store
        if isinstance(store, AppendOnlyRows):
            return None
        if store is None:
            return {_ROWS: self._schema.arrow.empty_table}
        captured, name = store.capture(), _COUNT
        while name in self._stored.names:
            name += "_"

        def table() -> pa.Table:
            rows, weights = captured()
            return rows if weights is None else rows.append_column(name, pa.array(weights))

        return {_ROWS: table}

    # ---- reading

    def snapshot(self) -> pa.Table:
        """The rows, with the hidden columns."""
        if self._store is None:
            return self._schema.arrow.empty_table()
        return self._store.snapshot()

    def counted(self) -> tuple[pa.Table, NDArray[np.int64] | None] | None:
        """What the changes of the view's log come to: rows and their weights; None: all are 1.

        None when its rows are not kept.
        """
        if isinstance(self._store, Bag):
            return self._store.capture()()
        return None if self._store is None else (self.snapshot(), None)


def _shown(batch: ChangeBatch, schema: Schema) -> ChangeBatch | None:
    """What changes are in the columns that are shown; None when nothing."""
    rows = batch.arrow.select(list(schema.names))
    places, weights = net(rows, batch.weights_arrow().to_numpy())
    if not len(places):
        return None
    kept = schema.conform(rows.take(pa.array(places)))
    return ChangeBatch(schema, None, kept, pa.array(weights))


def _together(changes: Iterable[ChangeBatch]) -> Iterator[list[ChangeBatch]]:
    """Changes of a log, those of many commits at a time."""
    group: list[ChangeBatch] = []
    for change in changes:
        if group and (len(group) == _TOGETHER or group[0].schema is not change.schema):
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _as_one(group: list[ChangeBatch]) -> ChangeBatch:
    """Changes that follow each other as those of one commit, which come to the same."""
    if len(group) == 1:
        return group[0]
    weights = None
    if not all(each.is_insert_only for each in group):
        weights = pa.concat_arrays([each.weights_arrow() for each in group])
    rows = pa.concat_batches([each.arrow for each in group])
    return ChangeBatch(group[0].schema, None, rows, weights)


def _one_batch(rows: Sequence[Results]) -> Results | None:
    """Some batches as one; None when there is no row."""
    if len(rows) == 1:
        return rows[0] if rows[0].num_rows else None
    some = [each for each in rows if each.num_rows]
    if not some:
        return None
    return some[0] if len(some) == 1 else pa.concat_batches(list(map(as_arrow, some)))


def _in_log_order(batch: Results, after: int) -> Results:
    """The rows after an LSN, in the order of the log: operators send them by key."""
    if isinstance(batch, ResultRows):
        place = batch.place(_LSN)
        lsn = batch.rows[0][place]
        if len(batch.rows) <= 2 and batch.rows[-1][place] == lsn > after:  # one change of a group
            return batch
        rows = sorted((row for row in batch.rows if row[place] > after), key=itemgetter(place))
        return ResultRows(batch.schema, rows, batch.places)
    lsns = batch.column(_LSN)
    if len(lsns) and pc.min(lsns).as_py() <= after:
        batch = batch.filter(pc.greater(lsns, after))
        lsns = batch.column(_LSN)
    if len(lsns) > 1:
        batch = batch.take(pc.sort_indices(lsns))
    return batch

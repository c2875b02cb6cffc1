"""Keepers: what each shape of result means for a view's rows and its topics.

Besides its own topic a view may have two more: ``__state_<view>`` has the columns that tell groups
apart and are not shown, ``__pending_<view>`` the results that wait to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.batch import ChangeBatch
from millstream.state.bags import AppendOnlyRows, Bag
from millstream.state.rows import Rows
from millstream.state.sets import Sets
from millstream.views.emission import Emission
from millstream.views.view import in_log_order, one_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.log import Log
    from millstream.model.schema import Column, Schema
    from millstream.state.saved import SavedRows
    from millstream.views.emission import Mode, Release
    from millstream.views.view import Parts

STATE: Final = "__state_"
PENDING: Final = "__pending_"
_ROWS: Final = "rows"
_PENDING: Final = "pending"


@dataclass(slots=True)
class _Step:
    parts: Parts
    apply: Callable[[], None]


class GroupedRows:
    """Rows by group, shown as the view's EMIT says.

    Args:
        name: the view.
        schema: the user's columns.
        hidden: columns that are kept and not shown.
        keys: the columns that tell groups apart; of sets, those of the group.
        mode: when results are shown.
        match: of sets, the columns that tell the rows of one group apart.
        lateness: for how long after a window's end late rows count, in microseconds.
        every: from one tick to the next, in microseconds.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        hidden: Sequence[Column],
        keys: Sequence[str],
        mode: Mode,
        *,
        match: Sequence[str] | None = None,
        lateness: int = 0,
        every: int | None = None,
    ) -> None:
        self._name = name
        self._sets = None if match is None else Sets(schema, keys, match, hidden)
        rows = Rows(schema, keys, hidden) if self._sets is None else self._sets.rows
        self.retracts = True
        every_key = (*keys, *(match or ()))
        self._emission = Emission(mode, rows, every_key, lateness=lateness, every=every)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def topics(self) -> dict[str, Schema]:
        """The topics that it needs besides the view's own."""
        return topics_of(self._name, self._rows, self._emission)

    def take(
        self, rows: Sequence[pa.RecordBatch], lsn: int, watermark: int | None, now: int
    ) -> _Step | None:
        """What the newest results of some groups change."""
        batch = one_batch(rows)
        emission = self._emission
        if batch is None:
            if emission.mode == "changes":
                return None
            release = emission.advance(watermark=watermark, now=now)
            return None if release is None else self._step(release)
        if self._sets is not None:
            batch = self._sets.keyed(batch, emission.visible, emission.pending)
        return self._step(emission.take(batch, lsn=lsn, watermark=watermark, now=now))

    def advance(self, watermark: int | None, now: int) -> _Step | None:
        """What it means that time goes on."""
        release = self._emission.advance(watermark=watermark, now=now)
        return None if release is None else self._step(release)

    def _step(self, release: Release) -> _Step:
        parts: Parts = []
        if release.changes is not None:
            parts.append((self._name, release.changes))
        if self._rows.stored_schema is not self._rows.schema and release.stored is not None:
            parts.append((STATE + self._name, release.stored))
        if release.waiting is not None:
            parts.append((PENDING + self._name, release.waiting))
        return _Step(parts, lambda: self._emission.apply(release))

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Read what was committed before."""
        own = STATE + self._name if STATE + self._name in self.topics else self._name
        rows, emission = self._rows, self._emission
        parts = {_ROWS: _Part(own, rows.stored_schema, rows.load, rows.load)}
        if PENDING + self._name in self.topics:
            load = emission.load_pending
            waits = _Part(PENDING + self._name, emission.pending.schema, load, load)
            parts[_PENDING] = waits
        emission.lsn, rows_read = _load(log, parts, saved)
        return emission.lsn, rows_read

    def capture(self) -> dict[str, Callable[[], pa.Table]]:
        """What is worth saving, as it is at this moment."""
        held = {_ROWS: self._rows.capture(stored=True)}
        if PENDING + self._name in self.topics:
            held[_PENDING] = self._emission.pending.capture()
        return held

    def snapshot(self) -> pa.Table:
        """The rows that are shown."""
        return self._rows.snapshot()


class PlainRows:
    """Rows of a query without groups: each result is a row that comes or goes.

    Args:
        name: the view.
        schema: its columns.
        kept: whether its current rows are kept.
        retracts: whether rows may go again.
    """

    def __init__(self, name: str, schema: Schema, *, kept: bool, retracts: bool) -> None:
        self.retracts = retracts
        self._name = name
        self._schema = schema
        self._store: Bag | AppendOnlyRows | None = None
        if kept:
            self._store = Bag(schema) if retracts else AppendOnlyRows(schema)
        self._cause = 0

    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    @property
    def topics(self) -> dict[str, Schema]:
        """The topics that it needs besides the view's own."""
        return {}

    def take(
        self, rows: Sequence[pa.RecordBatch], lsn: int, watermark: int | None, now: int
    ) -> _Step | None:
        """What rows with ``_lsn`` and ``_weight`` change."""
        del watermark, now
        batch = one_batch(rows)
        if batch is not None:
            batch = in_log_order(batch, self._cause)
        if batch is None or not batch.num_rows:
            return None
        if self._store is not None:
            return self._step(self._store.diff(batch), lsn)
        data = self._schema.conform(batch.select(list(self._schema.names)))
        weights = batch.column("_weight")
        plain = pc.all(pc.equal(weights, 1)).as_py()
        return self._plain(ChangeBatch(self._schema, None, data, None if plain else weights), lsn)

    def follow(self, batch: ChangeBatch, lsn: int) -> _Step | None:
        """The same, of rows that were selected in this process."""
        data = batch.arrow
        width = len(self._schema.columns)
        if data.num_columns > width:  # some were added to what is read
            data = data.select(list(range(width)))
        if self._store is None:
            weights = None if batch.is_insert_only else batch.weights_arrow()
            return self._plain(ChangeBatch(self._schema, None, data, weights), lsn)
        weighted = data.append_column("_weight", batch.weights_arrow())
        return self._step(self._store.diff(weighted), lsn)

    def _step(self, diff: Any, lsn: int) -> _Step:  # noqa: ANN401 - of the store's own kind
        store = self._store

        def apply() -> None:
            if store is not None:
                store.apply(diff)
            self._cause = lsn

        parts = [] if diff.changes is None else [(self._name, diff.changes)]
        return _Step(parts, apply)

    def _plain(self, batch: ChangeBatch, lsn: int) -> _Step:
        def apply() -> None:
            self._cause = lsn

        return _Step([(self._name, batch)], apply)

    def advance(self, watermark: int | None, now: int) -> _Step | None:
        """Nothing: rows do not wait."""
        del watermark, now
        return None

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Read what was committed before."""
        store, part = self._store, _Part(self._name, self._schema, _ignore, _ignore)
        if isinstance(store, Bag):
            part = _Part(self._name, store.captured_schema, store.load, store.load_captured)
        elif store is not None:
            part = _Part(self._name, self._schema, store.load, store.load)
        self._cause, rows_read = _load(log, {_ROWS: part}, saved)
        return self._cause, rows_read

    def capture(self) -> dict[str, Callable[[], pa.Table]] | None:
        """What is worth saving, as it is at this moment: rows that never go are the log itself."""
        if isinstance(self._store, AppendOnlyRows):
            return None
        return {
            _ROWS: self._schema.arrow.empty_table if self._store is None else self._store.capture()
        }

    def snapshot(self) -> pa.Table:
        """The rows."""
        if self._store is None:
            return self._schema.arrow.empty_table()
        return self._store.snapshot()


def topics_of(name: str, rows: Rows, emission: Emission) -> dict[str, Schema]:
    """The topics of a view with groups, besides its own."""
    topics = {}
    if rows.stored_schema is not rows.schema:
        topics[STATE + name] = rows.stored_schema
    if emission.mode != "changes":
        topics[PENDING + name] = emission.pending.schema
    return topics


@dataclass(frozen=True, slots=True)
class _Part:
    """A topic, the columns that are saved of it, and what takes in changes or what was saved."""

    topic: str
    schema: Schema
    load: Callable[[ChangeBatch], None]
    restore: Callable[[ChangeBatch], None]


def _load(log: Log, parts: dict[str, _Part], saved: SavedRows | None) -> tuple[int, int]:
    """Take in what was saved, if it fits, and what came after it.

    Returns:
        The cause of the last commit, and how many rows of the log were read.
    """
    shapes = {name: part.schema.arrow for name, part in parts.items()}
    if saved is not None and not saved.fits(shapes):
        saved = None
    rows = 0
    cause = 0 if saved is None else saved.cause
    for name, part in parts.items():
        start: int | Literal["earliest"] = "earliest"
        if saved is not None:
            if saved.lsn + 1 >= log.topic(part.topic).low_lsn:
                start = saved.lsn + 1
            for batch in saved.parts[name].combine_chunks().to_batches():
                part.restore(ChangeBatch(part.schema, None, batch, None))
        for change in log.read(part.topic, start=start):
            part.load(change)
            rows += len(change)
            cause = max(cause, change.cause)
    return cause, rows


def _ignore(_: ChangeBatch) -> None:
    """Of rows that are not kept only the cause matters."""

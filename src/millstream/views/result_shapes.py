"""Shapes of results: rows by group, or plain rows; what each changes in a view's rows and topics.

Besides its own topic a view may have two more: ``__state_<view>`` has its rows with the hidden
columns that identify a group, ``__pending_<view>`` its pending output.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.batch import ChangeBatch
from millstream.model.lsn import FIRST_LSN
from millstream.model.result_rows import ResultRows, as_arrow
from millstream.model.schema import Schema
from millstream.state.bags import AppendOnlyRows, Bag
from millstream.state.emission import Emission
from millstream.state.result_reader import SHOWN, WEIGHT
from millstream.state.rows import Rows
from millstream.state.runs import net
from millstream.state.saved import rows_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from millstream.log import Log
    from millstream.model.result_rows import Results
    from millstream.model.schema import Column
    from millstream.state.emission import Mode, Release
    from millstream.state.saved import SavedRows

STATE: Final = "__state_"
PENDING: Final = "__pending_"
_TOGETHER: Final = 1 << 12
"""So many commits of a log are loaded together: each by itself takes some kernels."""

_ROWS: Final = "rows"
_PENDING: Final = "pending"


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


class GroupedRows:
    """Results by group, emitted as the view's EMIT says.

    Args:
        name: the view.
        schema: the user's columns.
        hidden: columns that are stored and not shown.
        keys: the columns that identify a group.
        mode: when results are emitted.
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
        lateness: int = 0,
        every: int | None = None,
    ) -> None:
        self._name = name
        rows = Rows(schema, keys, hidden)
        self.retracts = True
        self._emission = Emission(mode, rows, keys, lateness=lateness, every=every)
        self._rows = rows
        self._cause = -1
        self._learned: tuple[pa.Schema, pa.Schema] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def emits_at_once(self) -> bool:
        """Whether what a flush changes is emitted with it."""
        return self._emission.mode == "changes"

    @property
    def topics(self) -> dict[str, Schema]:
        """The topics that it needs besides the view's own."""
        return topics_of(self._name, self._rows, self._emission)

    def take(
        self, rows: Sequence[Results], lsn: int, watermark: int | None, now: int
    ) -> ViewUpdate | None:
        """What the newest results of some groups change; None when nothing."""
        batch = _one_batch(rows)
        emission = self._emission
        if batch is not None:
            batch = self._newest(batch)
        if batch is None:
            if emission.mode == "changes":
                return None
            release = emission.advance(watermark=watermark, now=now)
            return None if release is None else self._update(release)
        return self._update(emission.take(batch, lsn=lsn, watermark=watermark, now=now))

    def _newest(self, batch: Results) -> Results | None:
        """Rows that come and go, as the newest of their groups."""
        batch = _in_log_order(batch, self._cause)
        if not batch.num_rows:
            return None
        if isinstance(batch, ResultRows):
            place = batch.place(WEIGHT)
            rows = [(*row, row[place] > 0) for row in batch.rows]
            return ResultRows(self._with_shown(batch.schema), rows)
        return batch.append_column(SHOWN, pc.greater(batch.column(WEIGHT), 0))

    def _with_shown(self, schema: pa.Schema) -> pa.Schema:
        """The columns and ``_shown``; made once for the results of one task."""
        if self._learned is None or self._learned[0] is not schema:
            self._learned = (schema, schema.append(pa.field(SHOWN, pa.bool_())))
        return self._learned[1]

    def advance(self, watermark: int | None, now: int) -> ViewUpdate | None:
        """What of the pending output is due at a watermark and a time; None when nothing is."""
        release = self._emission.advance(watermark=watermark, now=now)
        return None if release is None else self._update(release)

    def _update(self, release: Release) -> ViewUpdate:
        parts: Parts = []
        if release.changes is not None:
            parts.append((self._name, release.changes))
        if self._rows.stored_schema is not self._rows.schema and release.stored is not None:
            parts.append((STATE + self._name, release.stored))
        if release.stored_pending is not None:
            parts.append((PENDING + self._name, release.stored_pending))

        def apply() -> None:
            self._emission.apply(release)
            self._cause = release.lsn

        return ViewUpdate(parts, apply)

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Read saved rows, and what was committed after them.

        Returns:
            The LSN up to which inputs count in them, and how many rows of the log were read.
        """
        own = STATE + self._name if STATE + self._name in self.topics else self._name
        rows, emission = self._rows, self._emission
        parts = {_ROWS: _Part(own, rows.stored_schema, rows.load, rows.restore)}
        if PENDING + self._name in self.topics:
            load = emission.load_pending
            pending = _Part(PENDING + self._name, emission.pending.schema, load, load)
            parts[_PENDING] = pending
        emission.lsn, rows_read = _load(log, parts, saved)
        if rows_read or saved is not None:
            self._cause = emission.lsn
        return emission.lsn, rows_read

    def capture(self) -> dict[str, Callable[[], pa.Table]]:
        """The rows of this moment, to be saved: functions that give each part."""
        captured = {_ROWS: self._rows.capture(stored=True)}
        if PENDING + self._name in self.topics:
            captured[_PENDING] = self._emission.pending.capture()
        return captured

    def snapshot(self) -> pa.Table:
        """The rows that are shown, with the hidden columns."""
        return self._rows.snapshot(stored=True)

    def counted(self) -> tuple[pa.Table, None]:
        """What the changes of the view's log come to: rows, each of which is there once."""
        return self.snapshot(), None


class PlainRows:
    """Results of a query without groups: each is an inserted or a retracted row.

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
        self._cause = -1  # over no rows, too, there may be results: those of LSN 0, say

    emits_at_once = True

    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    @property
    def topics(self) -> dict[str, Schema]:
        """The topics that it needs besides the view's own."""
        return {STATE + self._name: self._stored} if self._stored is not self._schema else {}

    def take(
        self, rows: Sequence[Results], lsn: int, watermark: int | None, now: int
    ) -> ViewUpdate | None:
        """What rows with ``_lsn`` and ``_weight`` change; None when nothing."""
        del watermark, now
        batch = _one_batch(rows)
        if batch is not None:
            batch = _in_log_order(batch, self._cause)
        if batch is None or not batch.num_rows:
            return None
        if self._store is not None:
            return self._update(self._store.diff(batch), lsn)
        batch = as_arrow(batch)
        data = self._schema.conform(batch.select(list(self._schema.names)))
        weights = batch.column("_weight")
        plain = pc.all(pc.equal(weights, 1)).as_py()
        return self._plain(ChangeBatch(self._schema, None, data, None if plain else weights), lsn)

    def follow(self, batch: ChangeBatch, lsn: int) -> ViewUpdate | None:
        """What rows change that were selected in this process; they count up to an LSN."""
        data = batch.arrow
        width = len(self._schema.columns)
        if data.num_columns > width:  # some were added to what is read
            data = data.select(list(range(width)))
        if self._store is None:
            weights = None if batch.is_insert_only else batch.weights_arrow()
            return self._plain(ChangeBatch(self._schema, None, data, weights), lsn)
        weighted = data.append_column("_weight", batch.weights_arrow())
        return self._update(self._store.diff(weighted), lsn)

    def _update(self, diff: Any, lsn: int) -> ViewUpdate:  # noqa: ANN401 - of the store's own kind
        store = self._store

        def apply() -> None:
            if store is not None:
                store.apply(diff)
            self._cause = lsn

        if diff.changes is None:
            return ViewUpdate([], apply)
        if self._stored is self._schema:
            return ViewUpdate([(self._name, diff.changes)], apply)
        parts = [(STATE + self._name, diff.changes)]
        shown = _shown(diff.changes, self._schema)
        return ViewUpdate([(self._name, shown), *parts] if shown is not None else parts, apply)

    def _plain(self, batch: ChangeBatch, lsn: int) -> ViewUpdate:
        """What changes, whose rows nobody keeps; a row that goes and comes again does not."""

        def apply() -> None:
            self._cause = lsn

        shown = batch if batch.is_insert_only else _shown(batch, self._schema)
        return ViewUpdate([] if shown is None else [(self._name, shown)], apply)

    def advance(self, watermark: int | None, now: int) -> ViewUpdate | None:
        """None: there is no pending output."""
        del watermark, now
        return None

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Read saved rows, and what was committed after them.

        Returns:
            The LSN up to which inputs count in them, and how many rows of the log were read.
        """
        store, part = self._store, _Part(self._name, self._schema, _ignore, _ignore)
        own = STATE + self._name if STATE + self._name in self.topics else self._name
        if isinstance(store, Bag):
            part = _Part(own, store.captured_schema, store.load, store.load_captured)
        elif store is not None:
            part = _Part(own, self._stored, store.load, store.load)
        cause, rows_read = _load(log, {_ROWS: part}, saved)
        if rows_read or saved is not None:
            self._cause = cause
        return cause, rows_read

    def capture(self) -> dict[str, Callable[[], pa.Table]] | None:
        """The rows of this moment, to be saved; None for append-only rows: the log has them."""
        if isinstance(self._store, AppendOnlyRows):
            return None
        return {
            _ROWS: self._schema.arrow.empty_table if self._store is None else self._store.capture()
        }

    def snapshot(self) -> pa.Table:
        """The rows, with the hidden columns."""
        if self._store is None:
            return self._schema.arrow.empty_table()
        return self._store.snapshot()

    def counted(self) -> tuple[pa.Table, pa.ChunkedArray | None] | None:
        """What the changes of the view's log come to: rows and their weights; None: all are 1.

        None when its rows are not kept.
        """
        if isinstance(self._store, Bag):
            rows = self._store.capture()()
            return rows, rows.column(rows.num_columns - 1)
        return None if self._store is None else (self.snapshot(), None)


def _shown(batch: ChangeBatch, schema: Schema) -> ChangeBatch | None:
    """What changes are in the columns that are shown; None when nothing."""
    rows = batch.arrow.select(list(schema.names))
    places, weights = net(rows, batch.weights_arrow().to_numpy())
    if not len(places):
        return None
    kept = schema.conform(rows.take(pa.array(places)))
    return ChangeBatch(schema, None, kept, pa.array(weights))


def topics_of(name: str, rows: Rows, emission: Emission) -> dict[str, Schema]:
    """The topics of a view with groups, besides its own."""
    topics = {}
    if rows.stored_schema is not rows.schema:
        topics[STATE + name] = rows.stored_schema
    if emission.mode != "changes":
        topics[PENDING + name] = emission.pending.schema
    return topics


ResultShape: TypeAlias = GroupedRows | PlainRows
"""What a view's results are, and what they change."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A topic of a view.

    Attributes:
        topic: its name.
        schema: the columns that are saved of it.
        load: applies changes of the topic.
        restore: applies saved rows.
    """

    topic: str
    schema: Schema
    load: Callable[[ChangeBatch], None]
    restore: Callable[[ChangeBatch], None]


def _load(log: Log, parts: dict[str, _Part], saved: SavedRows | None) -> tuple[int, int]:
    """Load saved rows, if they fit, and what the log has after them.

    Returns:
        The cause of the last commit, and how many rows of the log were read.

    Raises:
        LogCorruptError: the log does not go back to its beginning, and there are no saved rows that
            do.
    """
    shapes = {name: part.schema.arrow for name, part in parts.items()}
    if saved is not None and not saved.fits(shapes):
        saved = None
    rows = 0
    cause = 0 if saved is None else saved.cause
    for name, part in parts.items():
        start: int | Literal["earliest"] = "earliest"
        first = log.topic(part.topic).low_lsn
        if saved is not None and saved.lsn + 1 >= first:
            start = saved.lsn + 1
        elif first > FIRST_LSN and part.load is not _ignore:
            owner = part.topic.removeprefix(STATE).removeprefix(PENDING)
            raise rows_lost(owner, log.path, first)
        if saved is not None:
            for batch in saved.parts[name].combine_chunks().to_batches():
                part.restore(ChangeBatch(part.schema, None, batch, None))
        for changes in _together(log.read(part.topic, start=start)):
            rows += sum(map(len, changes))
            cause = max(cause, *(each.cause for each in changes))
            part.load(_as_one(changes))
    return cause, rows


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


def _ignore(_: ChangeBatch) -> None:
    """Rows that are not kept are read only for their cause."""


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
        place = batch.place("_lsn")
        rows = sorted((row for row in batch.rows if row[place] > after), key=itemgetter(place))
        return ResultRows(batch.schema, rows)
    lsns = batch.column("_lsn")
    if len(lsns) and lsns[0].as_py() <= after:
        batch = batch.filter(pc.greater(lsns, after))
        lsns = batch.column("_lsn")
    if len(lsns) > 1:
        batch = batch.take(pc.sort_indices(lsns))
    return batch

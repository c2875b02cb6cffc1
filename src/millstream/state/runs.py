"""Runs: immutable rows in Arrow, found by the hash of their key; new results compared with them.

A view's rows lie in a few runs, each at least twice as large as the next. A row of a run is never
changed, only marked as deleted. Every key is alive in one run at most, so runs do not hide each
other's rows and no tombstones are kept. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.state.keys import hash_columns, same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.keys import Hashes, Mask

    Places = NDArray[np.int64]

_LARGEST = 1 << 30  # bytes: the offsets of Arrow's strings end at 2 GiB


class Run:
    """Some rows and an index over the hashes of their keys.

    Attributes:
        batch: the rows.
        alive: which of them still count.
        live: how many do.
    """

    __slots__ = ("_groups", "_index", "_keys", "alive", "batch", "live")

    def __init__(
        self,
        batch: pa.RecordBatch,
        index: tuple[Hashes, NDArray[np.int32]] | None,
        keys: Sequence[int] = (),
    ) -> None:
        self.batch = batch
        self._index = index
        self._keys = keys
        self.alive = np.ones(batch.num_rows, np.bool_)
        self.live = batch.num_rows
        self._groups: tuple[Hashes, NDArray[np.int32]] | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, hashes: Hashes) -> Run:
        """A run of rows and their hashes, in any order."""
        return cls(batch, _sorted(hashes))

    @classmethod
    def unindexed(cls, batch: pa.RecordBatch, keys: Sequence[int]) -> Run:
        """A run of rows, given the places of their key columns; hashed when one is looked for."""
        return cls(batch, None, keys)

    @property
    def index(self) -> tuple[Hashes, NDArray[np.int32]]:
        """The hashes, sorted, and the place of the row that each is of."""
        index = self._index
        if index is None:
            columns = [self.batch.column(key) for key in self._keys]
            index = self._index = _sorted(hash_columns(columns, self.batch.num_rows))
        return index

    def candidates(self, hashed: int) -> list[int]:
        """The places of the rows alive that have a hash."""
        wanted, (hashes, places) = np.uint64(hashed), self.index
        at = int(hashes.searchsorted(wanted))
        found = []
        while at < len(hashes) and hashes[at] == wanted:
            if self.alive[places[at]]:
                found.append(int(places[at]))
            at += 1
        return found

    def find(
        self, hashes: Hashes, keys: Sequence[pa.Array], rows: Places, columns: Sequence[int]
    ) -> tuple[Places, Places]:
        """Which of some keys are here, and at which places.

        Args:
            hashes: the hashes of the keys; sorted ones are found faster.
            keys: columns in which the keys are.
            rows: where in these columns; one for each hash.
            columns: the run's columns to compare them with.
        """
        known, places_of = self.index
        size = len(known)
        at = known.searchsorted(hashes)
        found: list[tuple[Places, Places]] = []
        while len(rows):
            inside = np.flatnonzero(at < size)
            inside = inside[known[at[inside]] == hashes[inside]]
            hashes, rows, at = hashes[inside], rows[inside], at[inside]
            places = places_of[at].astype(np.int64)
            match = self.alive[places]
            match[match] = self._same(keys, rows[match], columns, places[match])
            found.append((rows[match], places[match]))
            rest = ~match
            hashes, rows, at = hashes[rest], rows[rest], at[rest] + 1
        none = np.zeros(0, np.int64)
        return (
            np.concatenate([none, *(part[0] for part in found)]),
            np.concatenate([none, *(part[1] for part in found)]),
        )

    def members(
        self, hashes: Hashes, keys: Sequence[pa.Array], columns: Sequence[int]
    ) -> pa.RecordBatch:
        """All rows alive that have, in some columns, one of some keys, which all differ.

        Args:
            hashes: the hashes of the keys.
            keys: columns with the keys, in the order of the hashes.
            columns: the run's columns to compare them with; always the same ones.
        """
        if self._groups is None:
            known = hash_columns([self.batch.column(column) for column in columns], len(self.alive))
            order = known.argsort(kind="stable")
            self._groups = known[order], order.astype(np.int32)
        known, group_places = self._groups
        first, end = known.searchsorted(hashes), known.searchsorted(hashes, "right")
        counts = end - first
        rows = np.repeat(np.arange(len(hashes)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(first, counts) + np.arange(len(rows)) - before
        places = group_places[at].astype(np.int64)
        match = self.alive[places]
        match[match] = self._same(keys, rows[match], columns, places[match])
        return self.batch.take(pa.array(places[match]))

    def delete(self, places: Places) -> int:
        """Mark some rows as deleted; returns how many."""
        self.alive[places] = False
        self.live -= len(places)
        return len(places)

    def _same(
        self,
        keys: Sequence[pa.Array],
        rows: Places,
        columns: Sequence[int],
        places: Places,
    ) -> Mask:
        wanted, held = pa.array(rows), pa.array(places)
        pairs = (
            (key.take(wanted), self.batch.column(column).take(held))
            for key, column in zip(keys, columns, strict=True)
        )
        return same_rows(pairs, len(rows))


def _sorted(hashes: Hashes) -> tuple[Hashes, NDArray[np.int32]]:
    order = hashes.argsort(kind="stable")
    return hashes[order], order.astype(np.int32)


def living(batch: pa.RecordBatch, alive: Mask | None) -> pa.RecordBatch:
    """The rows that are alive; all of them without a mask."""
    return batch if alive is None else batch.filter(pa.array(alive))


def compacted(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs with the same rows alive: each at least twice the next, and at least half alive.

    Returns the runs themselves when there is nothing to do. The work is in proportion to the rows
    that were inserted and deleted since, with a factor of the logarithm of all.
    """
    start = len(runs)
    size = memory = 0
    for number in reversed(range(len(runs))):
        run = runs[number]
        size, memory = size + run.live, memory + run.batch.nbytes
        fits = memory <= _LARGEST
        if run.live < len(run.alive) / 2 or (fits and size - run.live > run.live / 2):
            start = number
    if start == len(runs):
        return tuple(runs)
    return (*runs[:start], *_merged(runs[start:]))


def _merged(runs: Sequence[Run]) -> list[Run]:
    """All rows alive in one run, or in several when one would be too large."""
    made: list[Run] = []
    group: list[Run] = []
    memory = 0
    for run in runs:
        if group and memory + run.batch.nbytes > _LARGEST:
            made.append(_merge(group))
            group, memory = [], 0
        group.append(run)
        memory += run.batch.nbytes
    made.append(_merge(group))
    return [run for run in made if run.live]


def _merge(runs: Sequence[Run]) -> Run:
    batches, hashes, places = [], [], []
    base = 0
    for run in runs:
        run_hashes, run_places = run.index
        kept = run.alive[run_places]
        moved = np.cumsum(run.alive, dtype=np.int32) + np.int32(base - 1)
        batches.append(living(run.batch, run.alive if run.live < len(run.alive) else None))
        hashes.append(run_hashes[kept])
        places.append(moved[run_places[kept]])
        base += run.live
    together = np.concatenate(hashes)
    order = together.argsort(kind="stable")  # which only merges what is sorted piece by piece
    index = together[order], np.concatenate(places)[order]
    return Run(pa.concat_batches(batches), index)


def run_of(batch: pa.RecordBatch, keys: Sequence[int]) -> Run:
    """A run of some rows, given the places of their key columns."""
    return Run.of(batch, hash_columns([batch.column(key) for key in keys], batch.num_rows))


# ---- many new results beside the old ones


class Newest(NamedTuple):
    """The last result of each group in a batch.

    Attributes:
        batch: all results.
        places: where in it the last ones are, in the order of their hashes.
        hashes: these hashes.
        last: for each place of the batch, that of the last result of the same group.
    """

    batch: pa.RecordBatch
    places: Places
    hashes: Hashes
    last: Places


class Compared(NamedTuple):
    """New results beside the old ones, in the order in which they came.

    Attributes:
        newest: the new results.
        old: the old ones that were found.
        old_places: for each place of the batch, where its old result is in ``old``; or -1.
        found: the runs that hold the old ones, with the places in them and in the batch.
    """

    newest: Newest
    old: pa.RecordBatch
    old_places: Places
    found: list[tuple[Run, Places, Places]]


def newest(batch: pa.RecordBatch, keys: Sequence[int]) -> Newest:
    """The last result of each group."""
    columns = [batch.column(key) for key in keys]
    hashes = hash_columns(columns, batch.num_rows)
    order = hashes.argsort(kind="stable")
    hashes = hashes[order]
    later = np.arange(len(order))  # for each row the next one of its group, or itself
    rows, distance = later.copy(), 1
    # Among rows of one hash, each is compared with the next, and if these differ, which only a
    # collision can bring about, with the one after that.
    while len(rows):
        rows = rows[rows < len(order) - distance]
        rows = rows[hashes[rows] == hashes[rows + distance]]
        one, other = pa.array(order[rows]), pa.array(order[rows + distance])
        pairs = ((column.take(one), column.take(other)) for column in columns)
        superseded = same_rows(pairs, len(rows))
        later[rows[superseded]] += distance
        rows, distance = rows[~superseded], distance + 1
    is_last = later == np.arange(len(order))
    while not is_last[later].all():  # twice as far each time
        later = later[later]
    last = np.empty_like(order)
    last[order] = order[later]
    return Newest(batch, order[is_last], hashes[is_last], last)


def net(rows: pa.RecordBatch, weights: Places) -> tuple[Places, Places]:
    """Where the rows are whose weights do not cancel, each at its last place, and their weights."""
    found = newest(rows, range(rows.num_columns))
    sums = np.zeros(rows.num_rows, np.int64)
    np.add.at(sums, found.last, weights)
    places = np.flatnonzero(sums)
    return places, sums[places]


def compare(new: Newest, runs: Sequence[Run], keys: Sequence[int]) -> Compared:
    """New results beside the old ones of the same groups, which are found in the runs."""
    old_places = np.full(new.batch.num_rows, -1, np.int64)
    columns = [new.batch.column(key) for key in keys]
    found, parts, count = [], [], 0
    for run in runs:
        rows, places = _in_order(*run.find(new.hashes, columns, new.places, keys), len(old_places))
        if len(rows):
            old_places[rows] = np.arange(count, count + len(rows))
            found.append((run, places, rows))
            parts.append(run.batch.take(pa.array(places)))
            count += len(rows)
    old = pa.concat_batches(parts) if parts else new.batch.slice(0, 0)
    return Compared(new, old, old_places, found)


def _in_order(rows: Places, places: Places, size: int) -> tuple[Places, Places]:
    """Rows below a size in ascending order, with their places: memory is then read in order."""
    by_row = np.full(size, -1, np.int64)
    by_row[rows] = places
    rows = np.flatnonzero(by_row >= 0)
    return rows, by_row[rows]


class Outcome(NamedTuple):
    """Which old rows are retracted and which new ones inserted.

    Attributes:
        places: the places in the batch of the results that count, in order.
        retracted: where the old row is retracted.
        inserted: where the new row is inserted.
    """

    places: Places
    retracted: Mask
    inserted: Mask


def outcome(
    compared: Compared, keep: Mask | None, columns: Sequence[int], *, revise: bool
) -> Outcome:
    """What changes, when only some columns are compared.

    Args:
        compared: the results, new and old.
        keep: which results stay; None: all.
        columns: the columns that are compared.
        revise: whether rows that are there may change or be retracted.
    """
    batch, old = compared.newest.batch, compared.old
    counts = np.zeros(batch.num_rows, np.bool_)
    counts[compared.newest.places] = True
    places = np.flatnonzero(counts)
    at = compared.old_places[places]
    known = at >= 0
    kept = np.ones(len(places), np.bool_) if keep is None else keep[places]
    changed = np.ones(len(places), np.bool_)
    both = np.flatnonzero(known & kept)
    if len(both):
        left, right = pa.array(at[both]), pa.array(places[both])
        pairs = ((old.column(c).take(left), batch.column(c).take(right)) for c in columns)
        changed[both] = ~same_rows(pairs, len(both))
    if not revise:
        changed[known] = False
    return Outcome(places, known & changed, kept & changed)


def weighted_rows(compared: Compared, what: Outcome) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The retracted and inserted rows side by side, and their weights; None when all are 1."""
    batch, old = compared.newest.batch, compared.old
    if not what.retracted.any():
        return _taken(batch, what.places[what.inserted]), None
    pairs = np.empty((len(what.places), 2), np.int64)
    pairs[:, 0], pairs[:, 1] = compared.old_places[what.places], what.places + old.num_rows
    weights = np.empty_like(pairs)
    weights[:, 0], weights[:, 1] = -1, 1
    if not (what.retracted.all() and what.inserted.all()):
        mask = np.stack([what.retracted, what.inserted], axis=1)
        pairs, weights = pairs[mask], weights[mask]
    rows = pa.concat_batches([old, batch]).take(pa.array(pairs.reshape(-1)))
    return rows, pa.array(weights.reshape(-1))


def added(compared: Compared, what: Outcome) -> Run | None:
    """A run of the inserted rows; None without any."""
    places = what.places[what.inserted]
    if not len(places):
        return None
    new = compared.newest
    place_in_run = np.full(new.batch.num_rows, -1, np.int32)
    place_in_run[places] = np.arange(len(places), dtype=np.int32)
    moved = place_in_run[new.places]
    inserted = moved >= 0
    return Run(_taken(new.batch, places), (new.hashes[inserted], moved[inserted]))


def deleted(compared: Compared, what: Outcome) -> list[tuple[Run, Places]]:
    """The places of the retracted rows, run by run."""
    retracted = np.zeros(compared.newest.batch.num_rows, np.bool_)
    retracted[what.places[what.retracted]] = True
    return [(run, places[retracted[rows]]) for run, places, rows in compared.found]


def _taken(batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """The rows at places that ascend; the batch itself when these are all."""
    return batch if len(places) == batch.num_rows else batch.take(pa.array(places))

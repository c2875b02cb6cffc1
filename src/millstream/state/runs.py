"""Runs: rows in Arrow, each with a weight, found by their hash when some of them go. Pure.

The rows of a run do not change, only their weights; a row whose weight is 0 has gone. Runs are
hashed when a row is first looked for: where rows only come, none ever is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.keys import hash_columns, same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.keys import Hashes

    Places = NDArray[np.int64]
    Weights = NDArray[np.int8] | NDArray[np.int64]

_LARGEST = 1 << 30  # bytes: the offsets of Arrow's strings end at 2 GiB
_MOST_SMALL = np.iinfo(np.int8).max


class _Index:
    """Rows, and where each is by its hash; made when it is first asked for, and never changed."""

    __slots__ = ("batch", "made")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.made: tuple[Hashes, NDArray[np.int32]] | None = None

    def get(self) -> tuple[Hashes, NDArray[np.int32]]:
        """The hashes, sorted, and the place of the row that each is of."""
        if self.made is None:
            hashes = hash_columns(self.batch.columns, self.batch.num_rows)
            order = hashes.argsort(kind="stable")
            self.made = hashes[order], order.astype(np.int32)
        return self.made


class Run:
    """Some rows and their weights, with an index over their hashes.

    Args:
        batch: the rows.
        weights: how often each is there; None: once.

    Attributes:
        batch: the rows.
        weights: how often each is there; 0: it has gone.
        live: how many rows have not gone.
    """

    __slots__ = ("_index", "batch", "live", "weights")

    def __init__(self, batch: pa.RecordBatch, weights: Weights | None = None) -> None:
        self.batch = batch
        self.weights: Weights
        if weights is None:
            self.weights = np.ones(batch.num_rows, np.int8)
        else:
            is_small = not len(weights) or weights.max() <= _MOST_SMALL
            # A copy in either case: what Arrow holds cannot be written to.
            self.weights = weights.astype(np.int8) if is_small else weights.astype(np.int64)
        self.live = batch.num_rows
        self._index = _Index(batch)

    def copy(self) -> Run:
        """The same rows with weights of their own."""
        made = Run.__new__(Run)
        made.batch, made.weights, made.live = self.batch, self.weights.copy(), self.live
        made._index = self._index  # noqa: SLF001
        return made

    @property
    def is_indexed(self) -> bool:
        """Whether a row was looked for."""
        return self._index.made is not None

    @property
    def index(self) -> tuple[Hashes, NDArray[np.int32]]:
        """The hashes, sorted, and the place of the row that each is of."""
        return self._index.get()

    def set_index(self, runs: Sequence[Run]) -> None:
        """Make the index of those of the runs that this one has the living rows of."""
        hashes, places, base = [], [], 0
        for run in runs:
            run_hashes, run_places = run.index
            alive = run.weights != 0
            kept = alive[run_places]
            moved = np.cumsum(alive, dtype=np.int32) + np.int32(base - 1)
            hashes.append(run_hashes[kept])
            places.append(moved[run_places[kept]])
            base += run.live
        together = np.concatenate(hashes)
        order = together.argsort(kind="stable")  # which only merges what is sorted piece by piece
        self._index.made = together[order], np.concatenate(places)[order]

    def living(self) -> tuple[pa.RecordBatch, Weights]:
        """The rows that have not gone, and their weights."""
        if self.live == self.batch.num_rows:
            return self.batch, self.weights
        alive = self.weights != 0
        return self.batch.filter(pa.array(alive)), self.weights[alive]

    def find(
        self, hashes: Hashes, columns: Sequence[pa.Array], rows: Places, weights: Weights
    ) -> tuple[Places, Places]:
        """Find the first place of each of some rows, among those that have not gone.

        Args:
            hashes: the hashes of the rows; sorted ones are found faster.
            columns: columns in which the rows are.
            rows: where in these columns; one for each hash.
            weights: of the rows of this run.

        Returns:
            The rows that are here, and at which places of this run.
        """
        known, places_of = self.index
        at = known.searchsorted(hashes)
        none = np.zeros(0, np.int64)
        found, places_found = [none], [none]
        while len(rows):
            inside = np.flatnonzero(at < len(known))
            inside = inside[known[at[inside]] == hashes[inside]]
            hashes, rows, at = hashes[inside], rows[inside], at[inside]
            places = places_of[at].astype(np.int64)
            match = weights[places] != 0
            match[match] = self._same(columns, rows[match], places[match])
            found.append(rows[match])
            places_found.append(places[match])
            rest = ~match
            hashes, rows, at = hashes[rest], rows[rest], at[rest] + 1
        return np.concatenate(found), np.concatenate(places_found)

    def _same(self, columns: Sequence[pa.Array], rows: Places, places: Places) -> NDArray[np.bool_]:
        wanted, held = pa.array(rows), pa.array(places)
        pairs = (
            (column.take(wanted), own.take(held))
            for column, own in zip(columns, self.batch.columns, strict=True)
        )
        return same_rows(pairs, len(rows))

    def take_away(self, places: Places, weights: Places) -> None:
        """Make rows less; none of the places is there twice."""
        left = self.weights[places] - weights
        self.weights[places] = left
        self.live -= int((left == 0).sum())


def take_rows(
    runs: Sequence[Run], rows: pa.RecordBatch, wanted: Places
) -> tuple[list[tuple[Run, Places, Places]], Places]:
    """Find rows that go, in the runs that have them. Nothing changes.

    Args:
        runs: where they may be.
        rows: the rows; all of them differ.
        wanted: how many of each go.

    Returns:
        Runs, places and how many rows go there; and how many of each row were not found.
    """
    found: list[tuple[Run, Places, Places]] = []
    left = wanted.copy()
    if not runs or not rows.num_rows:
        return found, left
    hashes = hash_columns(rows.columns, rows.num_rows)
    order = hashes.argsort(kind="stable")
    for run in runs:
        missing = order[left[order] > 0]
        weights = run.weights
        while len(missing):
            here, places = run.find(hashes[missing], rows.columns, missing, weights)
            if not len(here):
                break
            taken = np.minimum(left[here], weights[places].astype(np.int64))
            found.append((run, places, taken))
            left[here] -= taken
            missing = here[left[here] > 0]
            if len(missing):  # the run may have the row at another place, too
                missing = missing[hashes[missing].argsort(kind="stable")]
                weights = weights.copy()
                weights[places] -= taken.astype(weights.dtype)
    return found, left


def compacted(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs with the same rows: each at least twice the next, and at least half of its rows live.

    Returns the runs themselves when there is nothing to do. The work is in proportion to the rows
    that came and went since, with a factor of the logarithm of all.
    """
    start = len(runs)
    size = memory = 0
    for number in reversed(range(len(runs))):
        run = runs[number]
        size, memory = size + run.live, memory + run.batch.nbytes
        fits = memory <= _LARGEST
        if run.live < run.batch.num_rows / 2 or (fits and size - run.live > run.live / 2):
            start = number
    if start == len(runs):
        return tuple(runs)
    return (*runs[:start], *_merged(runs[start:]))


def _merged(runs: Sequence[Run]) -> list[Run]:
    """All rows that have not gone in one run, or in several when one would be too large."""
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
    parts = [run.living() for run in runs]
    made = Run(
        pa.concat_batches([batch for batch, _ in parts]),
        np.concatenate([weights for _, weights in parts]),
    )
    if max(runs, key=lambda each: each.live).is_indexed:
        made.set_index(runs)
    return made


# ---- what the changes of a batch come to


def net(rows: pa.RecordBatch, weights: Places) -> tuple[Places, Places]:
    """Where the rows are whose weights do not cancel, each at its last place, and their weights."""
    sums = np.zeros(rows.num_rows, np.int64)
    np.add.at(sums, _last(rows), weights)
    places = np.flatnonzero(sums)
    return places, sums[places]


def _last(batch: pa.RecordBatch) -> Places:
    """For each row the place of the last one that is the same."""
    hashes = hash_columns(batch.columns, batch.num_rows)
    order = hashes.argsort(kind="stable")
    hashes = hashes[order]
    later = np.arange(len(order))  # for each row the next one that is the same, or itself
    rows, distance = later.copy(), 1
    # Among rows of one hash, each is compared with the next, and if these differ, which only a
    # collision can bring about, with the one after that.
    while len(rows):
        rows = rows[rows < len(order) - distance]
        rows = rows[hashes[rows] == hashes[rows + distance]]
        one, other = pa.array(order[rows]), pa.array(order[rows + distance])
        pairs = ((column.take(one), column.take(other)) for column in batch.columns)
        superseded = same_rows(pairs, len(rows))
        later[rows[superseded]] += distance
        rows, distance = rows[~superseded], distance + 1
    is_last = later == np.arange(len(order))
    while not is_last[later].all():  # twice as far each time
        later = later[later]
    last = np.empty_like(order)
    last[order] = order[later]
    return last

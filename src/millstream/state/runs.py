"""Runs: rows in Arrow that never change, found by the hash of their key, and may only die.

A view's rows lie in a few runs, each at least twice as large as the next. Every key is alive in
one of them at most, so runs do not hide each other's rows and no tombstones are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.hashes import hash_columns
from millstream.state.same import same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.hashes import Hashes
    from millstream.state.same import Mask

    Places = NDArray[np.int64]

_LARGEST = 1 << 30  # bytes: the offsets of Arrow's texts end at 2 GiB


class Run:
    """Some rows and an index over the hashes of their keys.

    Attributes:
        batch: the rows.
        alive: which of them still count.
        live: how many do.
        hashes: the hashes, sorted.
        places: the place of the row that each hash is of.
    """

    __slots__ = ("_groups", "alive", "batch", "hashes", "live", "places")

    def __init__(self, batch: pa.RecordBatch, hashes: Hashes, places: NDArray[np.int32]) -> None:
        self.batch = batch
        self.hashes = hashes
        self.places = places
        self.alive = np.ones(batch.num_rows, np.bool_)
        self.live = batch.num_rows
        self._groups: tuple[Hashes, NDArray[np.int32]] | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, hashes: Hashes) -> Run:
        """A run of rows and their hashes, in any order."""
        order = hashes.argsort(kind="stable")
        return cls(batch, hashes[order], order.astype(np.int32))

    def candidates(self, hashed: int) -> list[int]:
        """The places of the rows alive that have a hash."""
        wanted = np.uint64(hashed)
        at = int(self.hashes.searchsorted(wanted))
        found = []
        while at < len(self.hashes) and self.hashes[at] == wanted:
            if self.alive[self.places[at]]:
                found.append(int(self.places[at]))
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
        known, size = self.hashes, len(self.hashes)
        at = known.searchsorted(hashes)
        found: list[tuple[Places, Places]] = []
        while len(rows):
            inside = np.flatnonzero(at < size)
            inside = inside[known[at[inside]] == hashes[inside]]
            hashes, rows, at = hashes[inside], rows[inside], at[inside]
            places = self.places[at].astype(np.int64)
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

    def kill(self, places: Places) -> int:
        """Some rows no longer count; returns how many."""
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


def living(batch: pa.RecordBatch, alive: Mask | None) -> pa.RecordBatch:
    """The rows that are alive; all of them without a mask."""
    return batch if alive is None else batch.filter(pa.array(alive))


def settled(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs with the same rows alive: each at least twice the next, and at least half alive.

    The same tuple when nothing is to do. Work is spent in proportion to the rows that came and
    went since, with a factor of the logarithm of all.
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
        kept = run.alive[run.places]
        moved = np.cumsum(run.alive, dtype=np.int32) + np.int32(base - 1)
        batches.append(living(run.batch, run.alive if run.live < len(run.alive) else None))
        hashes.append(run.hashes[kept])
        places.append(moved[run.places[kept]])
        base += run.live
    together = np.concatenate(hashes)
    order = together.argsort(kind="stable")  # which only merges what is sorted piece by piece
    return Run(pa.concat_batches(batches), together[order], np.concatenate(places)[order])


def frozen(batch: pa.RecordBatch, keys: Sequence[int]) -> Run:
    """A run of rows, given where their keys are."""
    return Run.of(batch, hash_columns([batch.column(key) for key in keys], batch.num_rows))

"""Conflation: changes by key, netted. Pure."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from millstream.model.commits import Commits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch, Row


class Net:
    """Changes by key, netted: what a reader must do to come from where it is to now."""

    __slots__ = ("_changes", "_first", "_last", "rows")

    def __init__(self) -> None:
        # By key: the rows whose weights do not add up to 0, and the latest LSN with its time.
        # Mostly it is the row that the reader has and the one that it should have; rows need not
        # be hashable.
        self._changes: dict[Row, tuple[list[tuple[Row, int]], int, int]] = {}
        self._first: ChangeBatch | None = None
        self._last: ChangeBatch | None = None
        self.rows = 0

    @property
    def first(self) -> ChangeBatch | None:
        """The first batch that was not taken yet."""
        return self._first

    def add(self, batch: ChangeBatch) -> None:
        """Add the changes of a batch."""
        if self._last is not None and len(self._last.schema.columns) < len(batch.schema.columns):
            self._widen(len(batch.schema.columns))
        self._first = self._first or batch
        self._last = batch
        places = [batch.schema.names.index(name) for name in batch.schema.key]
        changes, rows = self._changes, self.rows
        for row, weight, lsn in zip(batch.held_rows, batch.weights, batch.lsns, strict=True):
            key = tuple(row[place] for place in places)
            known, _, _ = changes.pop(key, ((), 0, 0))
            net = _added(known, row, weight)
            rows += len(net) - len(known)
            if net:
                changes[key] = (net, lsn, batch.commit_time(lsn))
        self.rows = rows

    def _widen(self, width: int) -> None:
        """Columns were added: rows from before have NULL in them."""
        for key, (net, lsn, time) in self._changes.items():
            wide = [(row + (None,) * (width - len(row)), weight) for row, weight in net]
            self._changes[key] = (wide, lsn, time)

    def take(self) -> ChangeBatch | None:
        """All of it as one batch, each key once; None when nothing is left to tell."""
        first, last, changes = self._first, self._last, self._changes
        self._first = self._last = None
        self._changes, self.rows = {}, 0
        if first is None or last is None or not changes:
            return None
        rows: list[Row] = []
        weights: list[int] = []
        lsns: list[int] = []
        for net, lsn, _ in changes.values():
            for row, weight in sorted(net, key=itemgetter(1)):  # what goes, then what comes
                rows.append(row)
                weights.append(weight)
                lsns.append(lsn)
        commits = sorted((lsn, time) for _, lsn, time in changes.values())
        return last.netted(first, rows, weights, lsns, Commits.of(*zip(*commits, strict=True)))


def _added(net: Sequence[tuple[Row, int]], row: Row, weight: int) -> list[tuple[Row, int]]:
    """Weighted rows with one more."""
    for place, (known, count) in enumerate(net):
        # NaN does not equal itself, and looks the same.
        if known == row or repr(known) == repr(row):
            rest = [*net[:place], *net[place + 1 :]]
            return [*rest, (row, count + weight)] if count + weight else rest
    return [*net, (row, weight)]

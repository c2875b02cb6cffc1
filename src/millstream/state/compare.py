"""Many new results at once, compared with the runs that hold the old ones. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.state.hashes import hash_columns
from millstream.state.runs import Run
from millstream.state.same import same_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.hashes import Hashes
    from millstream.state.same import Mask

    Places = NDArray[np.int64]


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
        killed: the runs that hold the old ones, with the places in them and in the batch.
    """

    newest: Newest
    old: pa.RecordBatch
    old_places: Places
    killed: list[tuple[Run, Places, Places]]


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


def compare(new: Newest, runs: Sequence[Run], keys: Sequence[int]) -> Compared:
    """Find the old results of the groups that have new ones."""
    old_places = np.full(new.batch.num_rows, -1, np.int64)
    columns = [new.batch.column(key) for key in keys]
    killed, parts, count = [], [], 0
    for run in runs:
        rows, places = _in_order(*run.find(new.hashes, columns, new.places, keys), len(old_places))
        if len(rows):
            old_places[rows] = np.arange(count, count + len(rows))
            killed.append((run, places, rows))
            parts.append(run.batch.take(pa.array(places)))
            count += len(rows)
    old = pa.concat_batches(parts) if parts else new.batch.slice(0, 0)
    return Compared(new, old, old_places, killed)


def _in_order(rows: Places, places: Places, size: int) -> tuple[Places, Places]:
    """Rows below a size in ascending order, with their places: memory is then read in order."""
    by_row = np.full(size, -1, np.int64)
    by_row[rows] = places
    rows = np.flatnonzero(by_row >= 0)
    return rows, by_row[rows]


class Outcome(NamedTuple):
    """Which old rows go and which new ones come.

    Attributes:
        places: the places in the batch of the results that count, in order.
        goes: where the old row goes.
        comes: where the new row comes.
    """

    places: Places
    goes: Mask
    comes: Mask


def outcome(
    compared: Compared, keep: Mask | None, columns: Sequence[int], *, revise: bool
) -> Outcome:
    """What changes, if only some columns are looked at."""
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


def told(compared: Compared, what: Outcome) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The rows that go and come, side by side, and their weights; None when all come."""
    batch, old = compared.newest.batch, compared.old
    if not what.goes.any():
        return _taken(batch, what.places[what.comes]), None
    pairs = np.empty((len(what.places), 2), np.int64)
    pairs[:, 0], pairs[:, 1] = compared.old_places[what.places], what.places + old.num_rows
    weights = np.empty_like(pairs)
    weights[:, 0], weights[:, 1] = -1, 1
    if not (what.goes.all() and what.comes.all()):
        mask = np.stack([what.goes, what.comes], axis=1)
        pairs, weights = pairs[mask], weights[mask]
    rows = pa.concat_batches([old, batch]).take(pa.array(pairs.reshape(-1)))
    return rows, pa.array(weights.reshape(-1))


def added(compared: Compared, what: Outcome) -> Run | None:
    """A run of the rows that come."""
    places = what.places[what.comes]
    if not len(places):
        return None
    new = compared.newest
    place_in_run = np.full(new.batch.num_rows, -1, np.int32)
    place_in_run[places] = np.arange(len(places), dtype=np.int32)
    moved = place_in_run[new.places]
    comes = moved >= 0
    return Run(_taken(new.batch, places), new.hashes[comes], moved[comes])


def killed(compared: Compared, what: Outcome) -> list[tuple[Run, Places]]:
    """The rows that go, run by run."""
    goes = np.zeros(compared.newest.batch.num_rows, np.bool_)
    goes[what.places[what.goes]] = True
    return [(run, places[goes[rows]]) for run, places, rows in compared.killed]


def _taken(batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """The rows at places that ascend; the batch itself when these are all."""
    return batch if len(places) == batch.num_rows else batch.take(pa.array(places))

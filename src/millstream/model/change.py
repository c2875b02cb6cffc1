"""Changes (insert, update, delete) made of weighted rows; gaps; the commits of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ColumnNotFoundError
from millstream.model.display import shown_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.model.schema import Schema

    Numbers: TypeAlias = NDArray[np.int64]


Op = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """An insert, an update or a delete of one row.

    >>> from millstream import ChangeBatch, Schema
    >>> schema = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
    >>> batch = ChangeBatch.from_rows(schema, [(1, "a"), (1, "b")], weights=[-1, 1])
    >>> change = next(iter(batch))
    >>> change.op, change.before, change.row, change["name"]
    ('update', (1, 'a'), (1, 'b'), 'b')

    Attributes:
        op: ``"insert"``, ``"update"`` or ``"delete"``.
        row: the row after the change; for a delete, the deleted row.
        before: the row before an update or a delete, else None.
        lsn: the LSN of the change.
        schema: the columns of ``row`` and ``before``.
        cause: of a change of a view, the LSN of the commit that led to it: the view had processed
            all of its inputs up to this LSN. 0 for a change of a source or a table, and for a row
            of a snapshot. ``db.cause(change)`` returns the rows that led to the change.
    """

    op: Op
    row: tuple[Any, ...]
    before: tuple[Any, ...] | None
    lsn: int
    schema: Schema
    cause: int = 0

    def __repr__(self) -> str:
        names = self.schema.names
        row = shown_values(names, self.row)
        if self.op == "update" and self.before is not None:
            pairs = zip(names, self.before, self.row, strict=True)
            changed = [(name, old) for name, old, new in pairs if old is not new and old != new]
            before = shown_values([name for name, _ in changed], [old for _, old in changed])
            row = f"{row} (before: {before})"
        return f"<Change {self.op} at LSN {self.lsn}: {row}>"

    def __getitem__(self, column: str) -> Any:  # noqa: ANN401 - a value of the user's
        """Return the value of a column of ``row``."""
        names = self.schema.names
        if column not in names:
            raise ColumnNotFoundError(
                f"there is no column {column!r}", hint=f"the columns are {', '.join(names)}"
            )
        return self.row[names.index(column)]

    def as_dict(self) -> dict[str, Any]:
        """Return ``row`` as a dict from column name to value."""
        return dict(zip(self.schema.names, self.row, strict=True))


@dataclass(frozen=True, slots=True)
class Gap:
    """The report of changes that a reader did not receive.

    Attributes:
        first_lsn: the first LSN of the gap.
        last_lsn: the last LSN of the gap, inclusive.
        count: number of rows. For rows dropped by a policy, the rows that the query keeps. For rows
            removed by retention, all rows committed to the relation in that range, because it is
            no longer known which of them the query would keep. None if the number is not known:
            the rows were lost in a crash, or were removed so long ago that it is not recorded.
    """

    first_lsn: int
    last_lsn: int
    count: int | None


# ---- commits


class Commits:
    """The commits that the rows of a batch are from: the last LSN and the time of each.

    Times are microseconds since 1970 in UTC. A batch of one commit has none of these.

    >>> commits = Commits.of([10, 12], [1_000, 2_000])
    >>> commits.time(10), commits.time(11), commits.time(12)
    (1000, 2000, 2000)
    """

    __slots__ = ("_encoded", "_held")

    def __init__(
        self,
        held: tuple[Numbers, Numbers] | None,
        encoded: tuple[Any, int, int] | None = None,
    ) -> None:
        self._held = held
        self._encoded = encoded  # decoded when somebody asks

    @classmethod
    def of(cls, ends: Sequence[int], times: Sequence[int]) -> Commits:
        """Commits by their last LSNs and their times, both growing."""
        return cls((np.array(ends, np.int64), np.array(times, np.int64)))

    @classmethod
    def joined(cls, parts: Sequence[Commits]) -> Commits:
        """The commits of several batches, one after the other."""
        ends, times = zip(*(part.arrays for part in parts), strict=True)
        return cls((np.concatenate(ends), np.concatenate(times)))

    @classmethod
    def across(cls, parts: Sequence[tuple[int, int, Commits | None]]) -> Commits | None:
        """The commits of consecutive batches; None when all were committed at one time.

        Args:
            parts: of each batch the last LSN, the time of its last commit, and its commits.
        """
        if all(commits is None for _, _, commits in parts):
            if parts[0][1] == parts[-1][1]:  # times never run back
                return None
            ends, times, _ = zip(*parts, strict=True)
            return cls.of(ends, times)
        return cls.joined([commits or cls.of([lsn], [time]) for lsn, time, commits in parts])

    def time(self, lsn: int) -> int:
        """The time of the commit that an LSN belongs to."""
        ends, times = self.arrays
        place = int(np.searchsorted(ends, lsn))
        return int(times[min(place, len(times) - 1)])

    def first_since(self, time: int, first: int) -> int:
        """The first LSN committed at a time or later; ``first`` when all of them were."""
        ends, times = self.arrays
        place = int(np.searchsorted(times, time))
        return int(ends[place - 1]) + 1 if place else first

    def encode(self, first: int, rows: int, time: int) -> bytes:
        """A list of those that some rows are from; empty when all of these are of one time.

        For each the number of its rows, and how many microseconds it was before ``time``, as u32.
        """
        ends, times = self.arrays
        start, last = np.searchsorted(ends, (first, first + rows - 1))
        before = time - times[start : last + 1]
        if not before.any():
            return b""
        ends = ends[start : last + 1].copy()
        ends[-1] = first + rows - 1
        pairs: NDArray[Any] = np.column_stack((np.diff(ends, prepend=first - 1), before))
        return pairs.astype("<u4").tobytes()

    @classmethod
    def decode(cls, data: Any, first: int, time: int) -> Commits:  # noqa: ANN401 - any buffer
        """The commits that ``encode`` listed."""
        return cls(None, (data, first, time))

    @property
    def arrays(self) -> tuple[Numbers, Numbers]:
        """The last LSNs, and the times."""
        held = self._held
        if held is None:
            if self._encoded is None:
                raise AssertionError("commits are held or encoded")
            data, first, time = self._encoded
            pairs = np.frombuffer(data, "<u4").astype(np.int64).reshape(-1, 2)
            # Two threads may do it at once, with the same result.
            self._held = held = (np.cumsum(pairs[:, 0]) + (first - 1), time - pairs[:, 1])
        return held


# ---- from weighted rows to changes: which two rows are one update


def changes(
    schema: Schema,
    rows: Sequence[tuple[Any, ...]],
    weights: Sequence[int] | None,
    lsns: Sequence[int],
    causes: Iterable[int],
) -> Iterator[Change]:
    """Yield the changes that weighted rows stand for; weights are None when all are +1."""
    if weights is None:
        for row, lsn, cause in zip(rows, lsns, causes, strict=True):
            yield Change("insert", row, None, lsn, schema, cause)
        return
    updates = _update_places(schema, rows, weights)
    for place, (row, weight, cause) in enumerate(zip(rows, weights, causes, strict=True)):
        if place - 1 in updates:
            yield Change("update", row, rows[place - 1], lsns[place], schema, cause)
        elif place in updates:
            continue
        elif weight > 0:
            for _ in range(weight):
                yield Change("insert", row, None, lsns[place], schema, cause)
        else:
            for _ in range(-weight):
                yield Change("delete", row, row, lsns[place], schema, cause)


def _update_places(
    schema: Schema, rows: Sequence[tuple[Any, ...]], weights: Sequence[int]
) -> set[int]:
    """The places of the old rows of updates."""
    if not schema.key:
        return set()
    key = [schema.names.index(name) for name in schema.key]
    return {
        place
        for place, pair in enumerate(pairwise(weights))
        if pair == (-1, 1) and all(rows[place][k] == rows[place + 1][k] for k in key)
    }


def ops(weights: pa.Array, keys: Sequence[pa.Array]) -> pa.Array:
    """The ``_op`` column of rows, by the same rule, without Python values of any row.

    Args:
        weights: the weight of each row.
        keys: the columns of the primary key.
    """
    made = pc.if_else(pc.greater(weights, 0), "insert", "delete")
    if not keys or len(weights) < 2:
        return made
    pair = pc.and_(pc.equal(weights[:-1], -1), pc.equal(weights[1:], 1))
    for column in keys:
        pair = pc.and_(pair, _same(column[:-1], column[1:]))
    none = pa.array([False])
    old = pa.concat_arrays([pair, none])
    new = pa.concat_arrays([none, pair])
    return pc.if_else(pc.or_(old, new), "update", made)


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Where two arrays are equal; two NULLs are, as they are in a key."""
    return pc.if_else(
        pc.or_(pc.is_null(left), pc.is_null(right)),
        pc.and_(pc.is_null(left), pc.is_null(right)),
        pc.equal(left, right),
    )

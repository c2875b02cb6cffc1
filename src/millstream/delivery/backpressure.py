"""Backpressure: the policies for a reader that is slower than its log, and its backlog. Pure.

The backlog holds the batches that a reader has not taken yet. Each row that is put in is either
taken out or counted: as dropped, and then a gap reports where; or as conflated, when a later change
of the same key replaces it.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import InvalidOptionError
from millstream.model.batch import ChangeBatch
from millstream.model.change import Commits, Gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.weighted_rows import Row

BLOCK: Final = "block"
DROP_OLDEST: Final = "drop_oldest"
DROP_NEWEST: Final = "drop_newest"
SAMPLE: Final = "sample"
CONFLATE: Final = "conflate"
DISCONNECT: Final = "disconnect"

_SAMPLE = re.compile(r"sample\s*\(\s*([0-9]+)\s*\)")
_KINDS = (BLOCK, DROP_OLDEST, DROP_NEWEST, CONFLATE, DISCONNECT)

MERGED_ROWS: Final = 8192
"""Small batches are handed over as one, up to this many rows."""


_FEW_BATCHES: Final = 8


@dataclass(frozen=True, slots=True)
class Policy:
    """One of the six backpressure policies.

    >>> Policy.parse("sample(10)")
    Policy(kind='sample', every=10)

    Attributes:
        kind: ``block``: lossless, what does not fit the buffer is read from the log later;
            ``drop_oldest``, ``drop_newest``: what does not fit is dropped; ``sample``: every n-th
            row is kept; ``conflate``: unread changes are netted by key; ``disconnect``: the
            subscription ends.
        every: for ``sample``, of how many rows one is kept.
    """

    kind: str
    every: int = 1

    def __str__(self) -> str:
        return f"sample({self.every})" if self.kind == SAMPLE else self.kind

    @classmethod
    def parse(cls, text: str) -> Policy:
        """The policy that an option names.

        Raises:
            InvalidOptionError: there is no such policy.
        """
        if text in _KINDS:
            return cls(text)
        sample = _SAMPLE.fullmatch(text) if isinstance(text, str) else None
        if sample is not None and int(sample[1]) > 0:
            return cls(SAMPLE, int(sample[1]))
        raise InvalidOptionError(
            f"unknown backpressure policy {text!r}", hint=f"one of {', '.join(_KINDS)}, sample(n)"
        )


class Backlog:
    """A bounded queue of batches.

    Args:
        policy: what happens when a batch does not fit.
        limit: how many rows it holds.

    Attributes:
        batches: what it holds now, the oldest first; of ``conflate`` always empty.
        rows: how many rows it holds now.
        dropped: how many rows were dropped so far.
        conflated: how many rows later changes have replaced so far.
    """

    __slots__ = (
        "_leading_gap",
        "_net",
        "_refused",
        "_seen",
        "_skip",
        "_trailing_gap",
        "batches",
        "conflated",
        "dropped",
        "limit",
        "policy",
        "rows",
    )

    def __init__(self, policy: Policy, limit: int) -> None:
        self.policy = policy
        self.limit = limit
        self.rows = 0
        self.dropped = 0
        self.conflated = 0
        self.batches: deque[ChangeBatch] = deque()
        self._skip = 0  # rows of the first batch that were taken or dropped
        self._leading_gap: Gap | None = None  # reported with the first batch
        self._trailing_gap: Gap | None = None  # reported with the next batch that is put in
        self._refused: ChangeBatch | None = None  # the last batch that drop_newest has dropped
        self._seen = 0  # rows that sample(n) has counted
        self._net = NetChanges() if policy.kind == CONFLATE else None

    @property
    def oldest(self) -> ChangeBatch | None:
        """The batch that will be taken next."""
        if self._net is not None:
            return self._net.first
        return self.batches[0] if self.batches else None

    @property
    def only(self) -> ChangeBatch | None:
        """The only batch that it holds, uncut and with no gap before or after it; else None."""
        if self._net is not None or len(self.batches) != 1 or self._skip:
            return None
        if (
            self._leading_gap is not None
            or self._trailing_gap is not None
            or self._refused is not None
        ):
            return None
        return self.batches[0]

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return self.rows > 0 or bool(self.batches) or self._refused is not None

    def put(self, batch: ChangeBatch) -> bool:
        """Add a batch, or the rows of it that the policy keeps; False when it does not fit.

        The caller then ends a ``disconnect`` reader, and has a ``block`` reader read the log.
        """
        kind = self.policy.kind
        if self._net is not None:
            self._net.add(batch)
            self.conflated += self.rows + len(batch) - self._net.rows
            self.rows = self._net.rows
        elif kind == SAMPLE:
            self._sample(batch)
        elif self.rows + len(batch) <= self.limit or self._takes_anyway(batch):
            self._append(batch)
        elif kind in {BLOCK, DISCONNECT}:
            return False
        elif kind == DROP_NEWEST:
            self._drop_newest(batch)
        else:
            self._append(batch)
            self._drop_oldest()
        return True

    def take(self, max_rows: int | None, *, merge: int = MERGED_ROWS) -> ChangeBatch | None:
        """Remove and return the next rows, small batches merged into one; None when it is empty.

        Args:
            max_rows: at most so many rows; one more if that would split an update.
            merge: batches are merged up to this many rows.
        """
        if self._net is not None:
            batch = self._net.take()
            self.rows = 0
            return batch
        if not self.batches:
            return self._gap_batch()
        most = merge if max_rows is None else min(merge, max_rows)
        run = [self._pop(max_rows)]
        size = len(run[0])
        while self.batches and size < most and self._can_merge(run[-1], most - size):
            run.append(self._pop(None))
            size += len(run[-1])
        batch = ChangeBatch.concat(run)
        if self._leading_gap is not None:
            batch = batch.copy(gap=merge_gaps(self._leading_gap, batch.gap))
            self._leading_gap = None
        self.rows -= size
        return batch

    def clear(self) -> None:
        """Remove everything, uncounted: the reader restarts from a snapshot, or has ended."""
        self.batches.clear()
        self._net = NetChanges() if self._net is not None else None
        self._leading_gap = self._trailing_gap = self._refused = None
        self.rows = self._skip = 0

    # ---- in

    def _takes_anyway(self, batch: ChangeBatch) -> bool:
        """Whether a batch is accepted beyond the limit.

        An empty backlog of a lossless reader accepts any batch, however large. One with a few large
        batches accepts another: reading it back from the log costs more than keeping it.
        """
        kind = self.policy.kind
        if kind == BLOCK and len(batch) > self.limit // _FEW_BATCHES > 0:
            return len(self.batches) < _FEW_BATCHES and self.rows < _FEW_BATCHES * self.limit
        return kind in {BLOCK, DISCONNECT} and not self.rows

    def _append(self, batch: ChangeBatch) -> None:
        if self._trailing_gap is not None:
            batch = batch.copy(gap=merge_gaps(self._trailing_gap, batch.gap))
            self._trailing_gap = self._refused = None
        if not len(batch) and self.batches and not len(self.batches[-1]):
            self.batches.pop()  # only a watermark, superseded by a newer one
        self.batches.append(batch)
        self.rows += len(batch)

    def _drop_newest(self, batch: ChangeBatch) -> None:
        room = slice_end(batch, self.limit - self.rows) if self.rows < self.limit else 0
        if room:
            self._append(batch.slice(0, room))
            if room == len(batch):  # it ends with an update, kept unsplit
                return
            batch = batch.slice(room)
        self.dropped += len(batch)
        self._trailing_gap = merge_gaps(
            self._trailing_gap, Gap(batch.first_lsn, batch.lsn, len(batch))
        )
        self._refused = batch

    def _drop_oldest(self) -> None:
        while self.rows > self.limit:
            head, skip = self.batches[0], self._skip
            surplus = min(self.rows - self.limit, len(head) - skip)
            end = slice_end(head, skip + surplus)
            if end - skip == self.rows:  # never drop everything: the last update stays, unsplit
                end -= 2
            count = end - skip
            if not count and len(head):
                return
            self._leading_gap = merge_gaps(self._leading_gap, head.gap if skip == 0 else None)
            if count:
                lost = Gap(_first_lsn(head, skip), _last_lsn(head, end), count)
                self._leading_gap = merge_gaps(self._leading_gap, lost)
            self.rows -= count
            self.dropped += count
            self._skip = end
            if end == len(head):
                self.batches.popleft()
                self._skip = 0

    def _sample(self, batch: ChangeBatch) -> None:
        every = self.policy.every
        start = (every - 1 - self._seen) % every
        self._seen += len(batch)
        places: Sequence[int] = range(start, len(batch), every)
        if not batch.is_insert_only:
            places = _with_partners(batch, places)
        skipped = len(batch) - len(places)
        if skipped:
            self.dropped += skipped
            self._trailing_gap = merge_gaps(
                self._trailing_gap, Gap(batch.first_lsn, batch.lsn, skipped)
            )
        if places:
            kept = (
                (batch.take(pa.array(places)) if batch.is_arrow else batch.keep_places(places))
                if skipped
                else batch
            )
            self._append(kept)
            self._drop_oldest()
        elif batch.watermark is not None:
            self._append(batch.piece(0, 0))

    # ---- out

    def _pop(self, max_rows: int | None) -> ChangeBatch:
        """Remove and return the first batch, or at most so many of its rows."""
        head, skip = self.batches[0], self._skip
        end = len(head) if max_rows is None else slice_end(head, min(len(head), skip + max_rows))
        if end == len(head):
            self.batches.popleft()
            self._skip = 0
        else:
            self._skip = end
        return head if (skip, end) == (0, len(head)) else head.slice(skip, end)

    def _can_merge(self, last: ChangeBatch, room: int) -> bool:
        """Whether the first batch can be merged with the one that was taken before it."""
        following = self.batches[0]
        return (
            len(following) <= room
            and following.gap is None
            and following.topic == last.topic
            and following.schema is last.schema
            and following.kind == last.kind
            # Rows may have an Arrow form as well: the log's encoder makes it.
            and ((following.is_arrow and last.is_arrow) or (following.has_rows and last.has_rows))
            and not _ends_with_delete(last)  # with an insert after it, it would read as an update
        )

    def _gap_batch(self) -> ChangeBatch | None:
        """The trailing gap as a batch without rows: a next batch to report it may never come."""
        if self._trailing_gap is None or self._refused is None:
            return None
        alone = self._refused.piece(0, 0).copy(gap=self._trailing_gap)
        self._trailing_gap = self._refused = None
        return alone


class NetChanges:
    """Net changes by key (conflation): what takes a reader from its last batch to the newest."""

    __slots__ = ("_changes", "_first", "_last", "rows")

    def __init__(self) -> None:
        # By key: the rows whose weights do not add up to 0; the latest LSN, its time and its cause.
        # Mostly that is the row before and the row after; rows need not be hashable.
        self._changes: dict[Row, tuple[list[tuple[Row, int]], int, int, int]] = {}
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
            known, *_ = changes.pop(key, ((), 0, 0, 0))
            net = _added(known, row, weight)
            rows += len(net) - len(known)
            if net:
                changes[key] = (net, lsn, batch.commit_time(lsn), batch.cause)
        self.rows = rows

    def _widen(self, width: int) -> None:
        """Give rows from before columns were added NULL in those columns."""
        for key, (net, lsn, time, cause) in self._changes.items():
            wide = [(row + (None,) * (width - len(row)), weight) for row, weight in net]
            self._changes[key] = (wide, lsn, time, cause)

    def take(self) -> ChangeBatch | None:
        """Remove and return all net changes as one batch, each key once; None: there are none."""
        first, last, changes = self._first, self._last, self._changes
        self._first = self._last = None
        self._changes, self.rows = {}, 0
        if first is None or last is None or not changes:
            return None
        rows: list[Row] = []
        weights: list[int] = []
        lsns: list[int] = []
        for net, lsn, _, _ in changes.values():
            for row, weight in sorted(net, key=itemgetter(1)):  # deletes before inserts
                rows.append(row)
                weights.append(weight)
                lsns.append(lsn)
        commits = sorted((lsn, time) for _, lsn, time, _ in changes.values())
        causes = tuple(sorted({(lsn, cause) for _, lsn, _, cause in changes.values()}))
        made = Commits.of(*zip(*commits, strict=True))
        return last.netted(first, rows, weights, lsns, made, causes=causes if last.cause else None)


def merge_gaps(one: Gap | None, other: Gap | None) -> Gap | None:
    """The gap that covers two; None when both are None."""
    if one is None or other is None:
        return other if one is None else one
    count = None if one.count is None or other.count is None else one.count + other.count
    return Gap(min(one.first_lsn, other.first_lsn), max(one.last_lsn, other.last_lsn), count)


def _first_lsn(batch: ChangeBatch, start: int) -> int:
    return batch.first_lsn if start == 0 else batch.lsns[start - 1] + 1


def _last_lsn(batch: ChangeBatch, end: int) -> int:
    return batch.lsn if end == len(batch) else batch.lsns[end - 1]


def _ends_with_delete(batch: ChangeBatch) -> bool:
    return not batch.is_insert_only and len(batch) > 0 and batch.weights_arrow()[-1].as_py() < 0


def slice_end(batch: ChangeBatch, end: int) -> int:
    """Where to cut a batch at ``end``: one row later if the cut would split an update."""
    if batch.is_insert_only or not 0 < end < len(batch):
        return end
    old, new = batch.weights_arrow()[end - 1 : end + 1].to_pylist()
    return end + 1 if (old, new) == (-1, 1) else end


def _with_partners(batch: ChangeBatch, places: Sequence[int]) -> list[int]:
    """The places, with both rows of an update where only one was among them."""
    weights = batch.weights
    kept = set(places)
    for place in places:
        if weights[place - 1 : place + 1] == [-1, 1]:
            kept.add(place - 1)
        elif weights[place : place + 2] == [-1, 1]:
            kept.add(place + 1)
    return sorted(kept)


def _added(net: Sequence[tuple[Row, int]], row: Row, weight: int) -> list[tuple[Row, int]]:
    """Weighted rows plus another row, rows of weight 0 left out."""
    for place, (known, count) in enumerate(net):
        # NaN does not equal itself, hence repr.
        if known == row or repr(known) == repr(row):
            rest = [*net[:place], *net[place + 1 :]]
            return [*rest, (row, count + weight)] if count + weight else rest
    return [*net, (row, weight)]

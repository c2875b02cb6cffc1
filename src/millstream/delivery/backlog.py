"""The backlog: batches that a subscriber has not read yet, and what its policy makes of them. Pure.

Every row that comes in is one day taken out, or counted: as dropped, with a gap that tells the
reader where, or as conflated, when a later change has made it needless.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.delivery.net import Net
from millstream.delivery.policy import BLOCK, CONFLATE, DISCONNECT, DROP_NEWEST, SAMPLE, Policy
from millstream.model.batch import ChangeBatch
from millstream.model.change import Gap

if TYPE_CHECKING:
    from collections.abc import Sequence


MERGED_ROWS: Final = 8192
"""Small batches are handed over as one, up to this many rows."""


_FEW_BATCHES: Final = 8


class Backlog:
    """A bounded queue of batches.

    Args:
        policy: what happens when there is no room.
        limit: how many rows it holds.

    Attributes:
        batches: what it holds now, the oldest first.
        rows: how many rows that is.
        dropped: rows that were dropped.
        conflated: rows that later ones have made needless.
    """

    __slots__ = (
        "_lost",
        "_net",
        "_refused",
        "_seen",
        "_skip",
        "_untold",
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
        self._skip = 0  # rows of the first batch that are gone already
        self._lost: Gap | None = None  # before the first batch
        self._untold: Gap | None = None  # after the last batch
        self._refused: ChangeBatch | None = None  # the last one that was dropped as it came
        self._seen = 0  # rows that a sample has counted
        self._net = Net() if policy.kind == CONFLATE else None

    @property
    def oldest(self) -> ChangeBatch | None:
        """The batch that will be taken next."""
        if self._net is not None:
            return self._net.first
        return self.batches[0] if self.batches else None

    @property
    def only(self) -> ChangeBatch | None:
        """The only batch that it holds, whole, with no gap before or after it; else None."""
        if self._net is not None or len(self.batches) != 1 or self._skip:
            return None
        if self._lost is not None or self._untold is not None or self._refused is not None:
            return None
        return self.batches[0]

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return self.rows > 0 or bool(self.batches) or self._refused is not None

    def put(self, batch: ChangeBatch) -> bool:
        """Add a batch, or what the policy leaves of it; False when the policy cannot take it.

        That is the end for ``disconnect``, and for ``block`` the moment to turn to the log.
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
        """The next rows, at most so many, small batches as one; None when there is nothing.

        The two rows of an update stay together, even if that is one row too many.
        """
        if self._net is not None:
            batch = self._net.take()
            self.rows = 0
            return batch
        if not self.batches:
            return self._told_now()
        most = merge if max_rows is None else min(merge, max_rows)
        run = [self._pop(max_rows)]
        size = len(run[0])
        while self.batches and size < most and self._joins(run[-1], most - size):
            run.append(self._pop(None))
            size += len(run[-1])
        batch = ChangeBatch.concat(run)
        if self._lost is not None:
            batch = batch.told(gap=both(self._lost, batch.gap))
            self._lost = None
        self.rows -= size
        return batch

    def clear(self) -> None:
        """Drop everything, since the reader starts anew."""
        self.batches.clear()
        self._net = Net() if self._net is not None else None
        self._lost = self._untold = self._refused = None
        self.rows = self._skip = 0

    # ---- in

    def _takes_anyway(self, batch: ChangeBatch) -> bool:
        """Whether a batch is taken although it is too much.

        A lossless reader who has nothing gets a batch, however large it is. And one who has a few
        large ones gets another: to read them back from the log costs more than to keep them.
        """
        kind = self.policy.kind
        if kind == BLOCK and len(batch) > self.limit // _FEW_BATCHES > 0:
            return len(self.batches) < _FEW_BATCHES and self.rows < _FEW_BATCHES * self.limit
        return kind in {BLOCK, DISCONNECT} and not self.rows

    def _append(self, batch: ChangeBatch) -> None:
        if self._untold is not None:
            batch = batch.told(gap=both(self._untold, batch.gap))
            self._untold = self._refused = None
        if not len(batch) and self.batches and not len(self.batches[-1]):
            self.batches.pop()  # a lone watermark, overtaken by a newer one
        self.batches.append(batch)
        self.rows += len(batch)

    def _drop_newest(self, batch: ChangeBatch) -> None:
        room = whole(batch, self.limit - self.rows) if self.rows < self.limit else 0
        if room:
            self._append(batch.slice(0, room))
            if room == len(batch):  # an update that was one row too many
                return
            batch = batch.slice(room)
        self.dropped += len(batch)
        self._untold = both(self._untold, Gap(batch.first_lsn, batch.lsn, len(batch)))
        self._refused = batch

    def _drop_oldest(self) -> None:
        while self.rows > self.limit:
            head, skip = self.batches[0], self._skip
            surplus = min(self.rows - self.limit, len(head) - skip)
            end = whole(head, skip + surplus)
            if end - skip == self.rows:  # all there is: an update that is one row too many stays
                end -= 2
            count = end - skip
            if not count and len(head):
                return
            self._lost = both(self._lost, head.gap if skip == 0 else None)
            if count:
                lost = Gap(_first_lsn(head, skip), _last_lsn(head, end), count)
                self._lost = both(self._lost, lost)
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
            self._untold = both(self._untold, Gap(batch.first_lsn, batch.lsn, skipped))
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
        """The first batch, or as many of its rows."""
        head, skip = self.batches[0], self._skip
        end = len(head) if max_rows is None else whole(head, min(len(head), skip + max_rows))
        if end == len(head):
            self.batches.popleft()
            self._skip = 0
        else:
            self._skip = end
        return head if (skip, end) == (0, len(head)) else head.slice(skip, end)

    def _joins(self, last: ChangeBatch, room: int) -> bool:
        following = self.batches[0]
        return (
            len(following) <= room
            and following.gap is None
            and following.topic == last.topic
            and following.schema is last.schema
            and following.kind == last.kind
            # Rows may have their Arrow form, too: the log makes it when it gets to them.
            and ((following.is_arrow and last.is_arrow) or (following.has_rows and last.has_rows))
            and not _ends_with_delete(last)  # which the next insert would make an update of
        )

    def _told_now(self) -> ChangeBatch | None:
        """A gap at the end is told at once, by a batch without rows: the next may never come."""
        if self._untold is None or self._refused is None:
            return None
        told = self._refused.piece(0, 0).told(gap=self._untold)
        self._untold = self._refused = None
        return told


def both(one: Gap | None, other: Gap | None) -> Gap | None:
    """Two gaps as one."""
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


def whole(batch: ChangeBatch, end: int) -> int:
    """``end``, or one more where it would part the two rows of an update."""
    if batch.is_insert_only or not 0 < end < len(batch):
        return end
    old, new = batch.weights_arrow()[end - 1 : end + 1].to_pylist()
    return end + 1 if (old, new) == (-1, 1) else end


def _with_partners(batch: ChangeBatch, places: Sequence[int]) -> list[int]:
    """The places, and where one is a half of an update, the other half's, too."""
    weights = batch.weights
    kept = set(places)
    for place in places:
        if weights[place - 1 : place + 1] == [-1, 1]:
            kept.add(place - 1)
        elif weights[place : place + 2] == [-1, 1]:
            kept.add(place + 1)
    return sorted(kept)

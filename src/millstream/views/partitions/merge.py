"""Merging what partitions report: commits come out in LSN order, each as a whole. Pure.

A frame that ends with an LSN goes to the partitions that it has rows for. When all of these have
reported that LSN, and those before it are out, what they have sent for it is one change of the
view. A partition may report several frames at once, in which case these belong together, and so
does what other partitions have sent for them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.model.result_rows import Results


@dataclass(slots=True)
class _Frame:
    """What was sent up to an LSN.

    Attributes:
        lsn: that LSN.
        open: the partitions that have not reported it.
        rows: what the others have sent for it.
        is_inner: whether some partition has reported it together with the next one.
    """

    lsn: int
    open: set[int]
    rows: list[Results] = field(default_factory=list)
    is_inner: bool = False


class PartitionMerge:
    """The frames that were sent and are not out yet.

    >>> merge = PartitionMerge()
    >>> merge.sent(7, {0, 1})
    >>> list(merge.reported(1, 7, ["b"])), list(merge.reported(0, 7, ["a"]))
    ([], [(7, ['b', 'a'])])
    """

    def __init__(self) -> None:
        self._frames: deque[_Frame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def open_partitions(self) -> set[int]:
        """The partitions that have something to report."""
        return {partition for frame in tuple(self._frames) for partition in frame.open}

    def sent(self, lsn: int, partitions: Iterable[int]) -> None:
        """A frame was sent to some partitions; LSNs never go back."""
        last = self._frames[-1] if self._frames else None
        if last is not None and last.lsn == lsn:
            last.open.update(partitions)
        else:
            self._frames.append(_Frame(lsn, set(partitions)))

    def reported(
        self, partition: int, lsn: int, rows: list[Results]
    ) -> Iterator[tuple[int, list[Results]]]:
        """A partition has sent all that frames up to an LSN led to; gives what is out by that.

        Each with its LSN.
        """
        mine = [each for each in self._frames if each.lsn <= lsn and partition in each.open]
        if mine:
            last = mine[-1]
            for each in self._frames:
                if mine[0].lsn <= each.lsn < last.lsn:
                    each.is_inner = True
            for each in mine:
                each.open.discard(partition)
            last.rows += rows
        elif rows:
            raise AssertionError(f"partition {partition} was sent nothing up to LSN {lsn}")
        while (count := self._ready()) > 0:
            done = [self._frames.popleft() for _ in range(count)]
            yield done[-1].lsn, [row for each in done for row in each.rows]

    def _ready(self) -> int:
        """How many frames at the head are out together; 0 when some partition has to report yet."""
        for count, frame in enumerate(self._frames, 1):
            if frame.open:
                return 0
            if not frame.is_inner:
                return count
        return 0

    def clear(self) -> None:
        """Forget all: what was sent will be sent again."""
        self._frames.clear()

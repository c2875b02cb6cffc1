"""The commits that the rows of a batch are from, when they are several, and the time of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.int64]


class Commits:
    """Consecutive commits: the last LSN of each, and its time in microseconds since 1970 UTC.

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

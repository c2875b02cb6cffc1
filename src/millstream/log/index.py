"""The sparse index of a segment: from an LSN or a time to an offset, and what each topic has there.

Pure. Built as frames are written or scanned; written at the end of a sealed segment as JSON.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.log.frame import Frame

STRIDE: Final = 256 << 10
"""One entry for about this many bytes: a seek reads at most that much more than it needs."""


@dataclass(slots=True)
class Extent:
    """What a segment holds of one topic."""

    first_lsn: int
    last_lsn: int
    rows: int
    size: int


class SegmentIndex:
    """Where things are in one segment.

    Attributes:
        extents: what there is of each topic.
        end_lsn: the first LSN after the segment.
        partial: it was made from what damage had left of the segment.
        first_time: the time of its first commit, 0 when it has none.
        last_time: the time of its last commit, 0 when it has none.
    """

    __slots__ = (
        "_lsns",
        "_offsets",
        "_times",
        "end_lsn",
        "extents",
        "first_time",
        "last_time",
        "partial",
    )

    def __init__(self, base_lsn: int) -> None:
        self._lsns: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self.extents: dict[int, Extent] = {}
        self.end_lsn = base_lsn
        self.first_time = 0
        self.last_time = 0
        self.partial = False

    def add(self, frame: Frame, offset: int) -> None:
        """Take note of a frame that has rows or a watermark."""
        if not self._offsets or offset - self._offsets[-1] >= STRIDE:
            # Readers look at a growing index without a lock, and look at the LSNs first.
            self._offsets.append(offset)
            self._times.append(frame.committed_at)
            self._lsns.append(frame.first_lsn)
        extent = self.extents.get(frame.topic)
        if extent is None:
            extent = Extent(frame.first_lsn, frame.first_lsn, 0, 0)
            self.extents[frame.topic] = extent
        extent.last_lsn = frame.end_lsn - 1
        extent.rows += frame.span
        extent.size += frame.size
        self.end_lsn = frame.end_lsn
        self.first_time = self.first_time or frame.committed_at
        self.last_time = frame.committed_at

    def offset_of(self, lsn: int, default: int) -> int:
        """An offset at or before the frame of an LSN, and not far before it."""
        place = bisect_right(self._lsns, lsn) - 1
        return self._offsets[place] if place >= 0 else default

    def offset_at(self, time: int, default: int) -> int:
        """An offset at or before the first frame committed at a time or later."""
        place = bisect_left(self._times, time) - 1
        return self._offsets[place] if place >= 0 else default

    def to_json(self) -> dict[str, Any]:
        """The index as it stands at the end of a sealed segment."""
        return {
            "lsns": self._lsns,
            "offsets": self._offsets,
            "times": self._times,
            "extents": {
                str(topic): [e.first_lsn, e.last_lsn, e.rows, e.size]
                for topic, e in self.extents.items()
            },
            "end_lsn": self.end_lsn,
            "first_time": self.first_time,
            "last_time": self.last_time,
            "partial": self.partial,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SegmentIndex:
        """The index that ``to_json`` described."""
        index = cls(data["end_lsn"])
        index._lsns, index._offsets, index._times = data["lsns"], data["offsets"], data["times"]
        index.extents = {int(topic): Extent(*e) for topic, e in data["extents"].items()}
        index.first_time, index.last_time = data["first_time"], data["last_time"]
        index.partial = data["partial"]
        return index

"""What is written: the one thing that the writer publishes and everybody else reads.

It is replaced as a whole, in one assignment, so that readers need no lock and never see a new
segment without its end, or rows without their topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.log.epochs import Epochs
    from millstream.log.identity import SegmentRef
    from millstream.log.index import SegmentIndex
    from millstream.log.segment import SegmentFile
    from millstream.log.topics import Topics


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a segment can be read, and where things are in it.

    Attributes:
        index: None when the seal that had it is damaged.
        end: where its whole frames end.
        last_lsn: the last LSN in it; 0 when that is not known.
    """

    index: SegmentIndex | None
    end: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Written:
    """The log as it is written at one moment.

    Attributes:
        segments: oldest first; the last one is being written.
        offset: where the whole commits of the last segment end.
        lsn: the last LSN that is written.
        index: that of the last segment; it grows, but never shrinks.
        topics: the topics.
        epochs: the runs of the database, this one included.
    """

    segments: tuple[SegmentRef, ...]
    offset: int
    lsn: int
    index: SegmentIndex
    topics: Topics
    epochs: Epochs

    def extent(self, file: SegmentFile) -> Extent:
        """How far a segment of this moment, or of one before, can be read."""
        if file.ref == self.segments[-1]:
            return Extent(self.index, self.offset, self.lsn)
        if file.seal is None:
            return Extent(None, file.size, 0)
        return Extent(file.seal.index, file.seal.end, file.seal.index.end_lsn - 1)

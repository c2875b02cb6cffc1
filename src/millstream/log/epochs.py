"""Epochs: the runs of a database, and which LSNs of which run are still true.

A run that ends in a crash may have handed out LSNs that never reached the disk; the next run uses
them again for other rows. A resume token says in which run its LSN was seen, and this table says
whether that row is still there. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epochs:
    """The first LSN of each run, oldest first; of runs that begin at the same LSN only the last."""

    starts: tuple[tuple[int, int], ...] = ()

    @property
    def current(self) -> int:
        """The number of the newest run; 0 before the first."""
        return self.starts[-1][0] if self.starts else 0

    def begin(self, epoch: int, first_lsn: int) -> Epochs:
        """The table once a new run has begun."""
        kept = self.starts
        if kept and kept[-1][1] == first_lsn:
            kept = kept[:-1]
        return Epochs((*kept, (epoch, first_lsn)))

    def since(self, lsn: int) -> Epochs:
        """The table without runs that ended before an LSN: no row of theirs is kept.

        What exactly was true of them is forgotten with them, so nothing is: who comes with a token
        of theirs has to start afresh anyway.
        """
        gone = sum(1 for _, start in self.starts[1:] if start <= lsn)
        last_gone = [(self.starts[gone - 1][0], 0)] if gone else []
        return Epochs((*last_gone, *self.starts[gone:]))

    def is_true(self, epoch: int, lsn: int) -> bool:
        """Whether what a run saw up to an LSN is what the log holds up to there."""
        if epoch > self.current:
            return False  # the log was set back to before that run: an older copy was restored
        later = [start for number, start in self.starts if number > epoch]
        return not later or lsn < later[0]

    def to_json(self) -> list[list[int]]:
        """The table as it stands in the head of a segment."""
        return [list(start) for start in self.starts]

    @classmethod
    def from_json(cls, data: list[list[int]]) -> Epochs:
        """The table that ``to_json`` described."""
        return cls(tuple((epoch, lsn) for epoch, lsn in data))

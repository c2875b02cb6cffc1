"""Corrections: which row a query has no value for, and the wait until the row is corrected.

Such a query fails again on the same row. So it waits for a commit to what it reads, and begins with
what the changes come to: a row that was corrected or deleted is gone from them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import Error
from millstream.views.run.failures import FailedRow, lsn_of
from millstream.views.run.inputs import FeedLogs

if TYPE_CHECKING:
    import threading

    from millstream.delivery.tail import LogTail
    from millstream.model.batch import ChangeBatch
    from millstream.views.run.live import LiveFeed

_FEW: Final = 1000


class Progress(Protocol):
    """How far a view has come.

    Attributes:
        reached: everything up to this LSN was taken in.
    """

    reached: int

    def still_failed(self, lsn: int) -> None:
        """Nothing that the view reads was committed after its failure and up to an LSN."""


class Corrections:
    """Finds the row that one query has no value for, and waits for its correction.

    Args:
        live: what it reads.
        progress: how far its view has come.
        wakeup: set when the wait is to look around: at a commit, a probe, or the end.
        over: set at the end.
    """

    def __init__(
        self,
        live: LiveFeed,
        progress: Progress,
        *,
        wakeup: threading.Event,
        over: threading.Event,
    ) -> None:
        self._live = live
        self._progress = progress
        self._wakeup = wakeup
        self._over = over

    @property
    def tried_lsn(self) -> int:
        """The last attempt has failed on what there was up to this LSN."""
        return max(self._live.tried_lsn, self._progress.reached)

    def wait_for_commit(self, row: FailedRow | None, pause: float) -> None:
        """Wait for a commit to what the query reads.

        Args:
            row: the row that it has no value for; once that is retracted, there is no pause.
            pause: wait at least so many seconds, unless the row is retracted.
        """
        until = time.monotonic() + pause
        is_due = False
        tail = self._live.tail_after(self.tried_lsn)
        try:
            while not self._over.is_set():
                self._wakeup.clear()
                batch = tail.take()
                if batch is not None:
                    if row is not None and _retracts(batch, row):
                        return
                    is_due |= len(batch) > 0
                    continue
                left = until - time.monotonic()
                if is_due and left <= 0:
                    return
                if not is_due:
                    self._progress.still_failed(tail.settled())
                if self._is_quiet(tail):
                    self._wakeup.wait(left if is_due else None)
        except Error:  # retention has removed rows, say: the query itself reports that
            self._over.wait(pause)
        finally:
            tail.close()

    def _is_quiet(self, tail: LogTail) -> bool:
        return tail.notify(self._wakeup.set) and not self._over.is_set()

    # ---- the row

    def row_of(self, text: str) -> FailedRow | None:
        """The row that the query has no value for, by Spark's error; None: it is not known."""
        live, lsn = self._live, lsn_of(text)
        after = max(self._progress.reached, live.folded_lsn)
        if lsn is not None and lsn <= after:
            return None
        first, last = (after + 1, self.tried_lsn) if lsn is None else (lsn, lsn)
        found: FailedRow | None = None
        try:
            for _, batch in FeedLogs(live.inputs, live.log).read(first, last):
                for place, weight in enumerate(batch.weights if len(batch) <= _FEW else ()):
                    if weight > 0 and found is not None:
                        return None
                    if weight > 0:
                        found = FailedRow.of(batch, place)
                if len(batch) > _FEW:
                    return None
        except Error:
            return None
        return found


def _retracts(batch: ChangeBatch, row: FailedRow) -> bool:
    """Whether a batch may retract a row."""
    if batch.topic != row.topic or batch.is_insert_only:
        return False
    if len(batch) > _FEW:
        return True
    gone = (place for place, weight in enumerate(batch.weights) if weight < 0)
    return any(FailedRow.of(batch, place).text == row.text for place in gone)

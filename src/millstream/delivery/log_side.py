"""The log side of an inbox: where a reader starts, what it reads back, and its return to live.

The border between the log and the offers is exact. The log side first has offers held, and then
reads the dispatcher's LSN, which the dispatcher sets before it offers a commit. So everything after
that LSN will be offered, and everything up to it is in the log; a batch that came both ways is
recognized by its LSN.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.delivery.backpressure import merge_gaps
from millstream.errors import (
    ClosedError,
    Error,
    LsnNotKeptError,
    SubscriptionEndedError,
    TopicNotFoundError,
)
from millstream.model.lsn import FIRST_LSN

if TYPE_CHECKING:
    from millstream.delivery.feed import LogFeed, Replay
    from millstream.delivery.live_side import LiveSide, Progress
    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap

_LOG_WAIT: Final = 0.05
"""How long, in seconds, to wait for the log to write what was committed, before looking again."""


class LogSide:
    """Reads from the log what the live side does not have. Only the reader's thread uses it.

    Args:
        feed: what is subscribed to.
        live: the live side, whose offers are held and admitted from here.
        progress: where the reader is.

    Attributes:
        replay: what is being read, or None.
        ahead: batches of a snapshot, or the rest of a batch, to be taken before anything else.
        gap: to be reported with the next batch, or None.
        snapshot_until: what is read up to this LSN counts as a snapshot.
        awaits_snapshot: the rows to start with do not count yet what was committed before.
        is_snapshot_due: they do now, and are to be read.
    """

    __slots__ = (
        *("_feed", "_gap_of_snapshot", "_live", "_progress", "ahead", "awaits_snapshot", "gap"),
        "is_snapshot_due",
        *("replay", "snapshot_until"),
    )

    def __init__(self, feed: LogFeed, live: LiveSide, progress: Progress) -> None:
        self.replay: Replay | None = None
        self.ahead: deque[ChangeBatch] = deque()
        self.gap: Gap | None = None
        self.snapshot_until = 0
        self.awaits_snapshot = False
        self.is_snapshot_due = False
        self._gap_of_snapshot: Gap | None = None
        self._feed = feed
        self._live = live
        self._progress = progress

    # ---- where to start

    def start_now(self) -> None:
        """Start with what is committed from now on."""
        self._progress.position = lsn = self._feed.lsn()
        self._live.admit(lsn)

    def start_at(self, lsn: int) -> None:
        """Start with an LSN."""
        self._live.spill(lsn)
        self._progress.position = lsn - 1

    def start_past(self, lsn: int, gap: Gap | None = None) -> None:
        """Start with the rows that there were at an LSN, followed by their changes."""
        batches, lsn = self._feed.snapshot_at(lsn)
        self._report(gap)
        self.ahead.extend(batches)
        self.start_at(lsn + 1)

    def start_earliest(self) -> None:
        """Start with the oldest row that is kept."""
        first, gap = self._feed.kept_from(FIRST_LSN)
        self._report(gap)
        self.start_at(first)

    def start_when_ready(self, gap: Gap | None = None) -> None:
        """Start with the current rows, once they count everything that was committed before.

        Args:
            gap: to be reported with the first batch.
        """
        self.awaits_snapshot = True
        self._gap_of_snapshot = gap
        self._live.refuse_offers()
        if not self._feed.when_ready(self._snapshot_is_due):
            self.start_snapshot(gap)

    def _snapshot_is_due(self) -> None:
        """Have the reader read the current rows; called by a thread of the view."""
        self.is_snapshot_due = True
        self._live.wake_up()

    def start_snapshot(self, gap: Gap | None = None, first: int | None = None) -> None:
        """Start with the current rows, followed by their changes.

        Args:
            gap: to be reported with the first batch.
            first: where a log without current rows starts; None: with all that is kept of it.
        """
        self.awaits_snapshot = self.is_snapshot_due = False
        self._live.hold_offers(clear=True)
        self.gap = merge_gaps(self.gap, gap)
        snapshot = self._feed.snapshot()
        if snapshot is not None:
            batches, lsn = snapshot
            self.ahead.extend(batches)
            self._live.admit(lsn)
        else:
            self.snapshot_until = self._feed.lsn()
            self.start_at(self._feed.earliest() if first is None else first)

    def _report(self, gap: Gap | None) -> None:
        """Count rows that retention has removed, and have the next batch report them."""
        if gap is not None:
            self._progress.lost += gap.count or 0
            self.gap = merge_gaps(self.gap, gap)

    # ---- reading

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to give, and reads nothing."""
        return (
            self.replay is None and not self.ahead and self.gap is None and not self.is_snapshot_due
        )

    def next(self) -> ChangeBatch | None:
        """The next batch of the replay; None when there is none at the moment, or it has ended."""
        replay = self.replay
        if replay is None or self._live.is_discarded:
            self.stop()
            return None
        try:
            batch = replay.next(0.0 if replay.target is None else _LOG_WAIT)
        except LsnNotKeptError:
            self._skip_lost(self._progress.position + 1)
        except Error as error:
            self._fail(error)
        else:
            if batch is not None and batch.gap is not None:
                self._progress.lost += batch.gap.count or 0
            return batch
        return None

    def advance(self) -> bool:
        """Begin to read the log, or return to the live side; False when neither is due."""
        replay, live = self.replay, self._live
        if self.is_snapshot_due and not live.is_discarded:
            self.start_snapshot(self._gap_of_snapshot)
        elif replay is None:
            with live.lock:
                first = live.spilled_at
                if first is None or live.is_discarded or live.backlog.has_news:
                    return False
            self._begin(first)
        elif self._is_done(replay):
            self.stop()
        elif replay.target is None:  # all that is written was read
            live.hold_offers()
            # Rows of a sync commit are in the log before they are offered: they may have been read.
            replay.target = lsn = max(self._feed.lsn(), replay.position)
            live.admit(lsn)
        else:
            return False
        return True

    def _begin(self, first: int) -> None:
        try:
            self.replay = self._feed.replay(first, self.snapshot_until)
        except LsnNotKeptError:
            self._skip_lost(first)
        except Error as error:
            self._fail(error)

    def _is_done(self, replay: Replay) -> bool:
        try:
            return replay.is_over
        except LsnNotKeptError:
            self._skip_lost(self._progress.position + 1)
        except Error as error:
            self._fail(error)
        return self.replay is None

    def stop(self) -> None:
        """Read no further; gaps that were not reported yet remain to be."""
        if self.replay is not None:
            self._report(self.replay.gap_before())
            self.replay.close()
            self.replay = None

    # ---- when the log cannot be read

    def _skip_lost(self, first: int) -> None:
        """Go on after rows that retention has removed, from an LSN on, and report the gap."""
        if self.replay is not None:  # it has passed rows that the query does not keep, too
            first = max(first, self.replay.position + 1)
        self.stop()
        try:
            start, gap = self._feed.kept_from(first)
            if gap is None:  # none of them was of this log
                self.start_at(start)
            else:
                self._report(gap)
                self.start_snapshot(first=start)
        except Error as error:
            self._fail(error)

    def _fail(self, error: Error) -> None:
        """End with an error: what only the log has cannot be read."""
        self.stop()
        if isinstance(error, ClosedError):
            error = SubscriptionEndedError(
                f"the database was closed when the reader was at LSN {self._progress.position:,}",
                hint="open it again, and subscribe with start=subscription.token",
            )
        elif isinstance(error, TopicNotFoundError):
            error = SubscriptionEndedError("what the subscription reads was dropped")
        self._live.end_now(error)

"""What a view's reader is sent: every commit goes to Spark's one reader as it comes.

The feed, not Spark's clock, says when a batch ends: after some time, after many rows, or because
the view stops. Only then does Spark write its checkpoint, and whatever it counts on is on disk
before.

While all is quiet a commit of a few rows is sent by the dispatcher's own thread, straight from the
fan-out: no other thread has to wake up for it. It never waits there: what the socket does not take
at once, and all that takes longer, is left to the connection's thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.delivery.tail import LogTail
from millstream.dispatch import make_durable, make_readable
from millstream.errors import ClosedError, Error
from millstream.spark.bridge.frames import END, FAILED, HEADER, MARK, MORE, ROWS, passed
from millstream.sql.inputs import CLOCK
from millstream.views.run.checkpoint import offset_text
from millstream.views.run.columns import NO_ROWS, FeedColumns, Part
from millstream.views.run.snapshot_sender import SnapshotSender

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.sql import SelectPlan
    from millstream.views.run.checkpoint import Offset
    from millstream.views.run.inputs import FeedInputs, TrackerState, WatermarkTracker
    from millstream.views.run.reader_wire import ReaderWire
    from millstream.views.run.snapshot_sender import SnapshotSource

LIVE_SECONDS: Final = 900.0
LIVE_ROWS: Final = 2_000_000
"""A live batch ends after this time, if it had rows, or after so many: what a crash can make Spark
do again is bounded, and the pause at a batch's end is rare."""

SOON_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 1.0
"""After so long it ends once no row has come for a while, so that rows seldom meet the pause."""

_MERGED: Final = 1 << 13
_BEHIND: Final = 1 << 16
"""While so many rows are to be sent, the results of those before may wait for them."""

FEW_ROWS: Final = 64
_PROBE_SECONDS: Final = 1.0
_MOST_FORMS: Final = 1024


class FewFrame(NamedTuple):
    """A commit of a few rows, as views get it that want the same of it.

    Attributes:
        frame: what is sent.
        state: that of their watermark trackers, after it.
        watermark: that of all their logs together, after it.
    """

    frame: bytes
    state: TrackerState
    watermark: int | None


class Encodings:
    """The last few rows as frames: made once for all views that want the same of them.

    Used by the dispatcher's thread only, but for ``form``.
    """

    def __init__(self) -> None:
        self._batch: ChangeBatch | None = None
        self._made: dict[object, FewFrame] = {}
        self._forms: dict[object, int] = {}
        self._numbers = itertools.count()

    def form(self, wanted: object) -> int:
        """A number for what a view wants of its logs, the same for all that want the same."""
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()  # views that are there keep their numbers
        return self._forms.setdefault(wanted, next(self._numbers))

    def of(self, batch: ChangeBatch) -> dict[object, FewFrame]:
        """The frames of a batch that were made so far, by form and state before it."""
        if batch is not self._batch:
            self._batch, self._made = batch, {}
        return self._made


def _nothing() -> None:
    """Do nothing: nobody wants to know."""


class LiveFeed:
    """Serves the readers of one view, from batch to batch.

    Args:
        inputs: what the view reads.
        log: where the rows are.
        dispatcher: whose commits are followed.
        plan_of: the plan that selects all rows of a log.
        on_late: called with rows that came too late, in order; again when they are read again.
        encodings: shared by all views of the database.
        snapshot: the rows that are sent before all else; None: the log from its start.
        late: how many rows came too late before.
        shown_lsn: gives up to which LSN results were taken already. Spark may read what is before
            it again; no frame goes beyond it that begins before it, so that the results of a
            dataflow can be told apart: those of commits that were sent together are one.
        cuts: LSNs at which a frame has to end, and all results up to there to be taken before any
            later ones; the view's own list, which changes.
        on_reading: called when a batch begins: from then on rows are taken as they come.
        on_quiet: called when a batch has sent all that was there when it began.

    Attributes:
        snapshot_lsn: results up to this LSN, without it, are not shown: they are of the snapshot
            rows, and more of these are to come.
        replayed_lsn: results up to this LSN were shown before, and keep their LSN; -1: none were.
        nets: whether the next batch begins with what the changes come to, and not with the changes:
            the query has failed on one of them, which may be gone.
        folded_lsn: rows up to this LSN were sent without their own LSNs.
        tried_lsn: a query that fails before it gets further has failed on what there was up to this
            LSN. More may have been sent, which it has not worked on.
        late: how many rows came too late.
    """

    def __init__(
        self,
        inputs: FeedInputs,
        log: Log,
        dispatcher: Dispatcher,
        plan_of: Callable[[str], SelectPlan | None],
        *,
        on_late: Callable[[ChangeBatch], None],
        encodings: Encodings,
        snapshot: SnapshotSource | None = None,
        late: int = 0,
        shown_lsn: Callable[[], int] = lambda: 0,
        cuts: list[int] | None = None,
        on_reading: Callable[[], None] = _nothing,
        on_quiet: Callable[[], None] = _nothing,
    ) -> None:
        self.encodings = encodings
        self.snapshot = snapshot
        self.snapshot_lsn = self.replayed_lsn = self.folded_lsn = -1
        self.tried_lsn = 0
        self.nets = False
        self.inputs = inputs
        self.log = log
        self.dispatcher = dispatcher
        self.on_late = on_late
        self.late = late
        self.sent_lsn = 0
        self.probed = 0
        self.is_ending = False
        self.shown_lsn = shown_lsn
        self.cuts: list[int] = [] if cuts is None else cuts
        self.on_reading = on_reading
        self.on_quiet = on_quiet
        self._plan_of = plan_of
        self._tail: LogTail | None = None
        self._marks: deque[tuple[int, int | None, int]] = deque()
        self._parked = threading.Event()

    def serve(
        self,
        names: list[str],
        start: Offset,
        tracker: WatermarkTracker,
        wire: ReaderWire,
    ) -> None:
        """Send every commit after a place, until the batch ends.

        Args:
            names: the columns that are wanted.
            start: the place.
            tracker: the watermarks there.
            wire: the reader's connection.
        """
        self.on_reading()
        columns = FeedColumns(self.inputs.schemas, names)
        wire.send(columns.schema.serialize())
        first = max(start.lsn, self.inputs.start - 1)
        is_first = start.lsn == self.inputs.initial_lsn
        nets, self.nets = self.nets, False
        try:
            rows = 0
            if self.snapshot is not None and (is_first or nets):
                sender = SnapshotSender(start, tracker, columns, wire, self.on_late)
                first, rows = self._send_snapshot(self.snapshot, sender, nets=nets)
            tail = self._tail_at(first)
            batch = LiveBatch(self, tail, tracker=tracker, columns=columns, wire=wire)
            if is_first and self.snapshot is None:
                batch.begin()
            batch.run(rows)
        except ClosedError:
            return
        except Error as error:
            text = str(error).encode()
            wire.send(HEADER.pack(FAILED, self.sent_lsn, len(text)) + text)
            raise

    def _send_snapshot(
        self, snapshot: SnapshotSource, sender: SnapshotSender, *, nets: bool
    ) -> tuple[int, int]:
        """Send what a batch begins with instead of the log: current rows, or what changes come to.

        What leads to results that were shown before ends with a mark, and the rest is one commit.

        Returns:
            The LSN up to which it counts, and how many rows it is.
        """
        self.drop_tail()
        start, shown = sender.start.lsn, self.shown_lsn()
        is_first = start == self.inputs.initial_lsn
        known = until = snapshot.lsn() if is_first else max(start, shown)
        if nets and (not is_first or known == shown):
            until = make_readable(self.dispatcher, self.log)
        self.snapshot_lsn = self.tried_lsn = until
        self.replayed_lsn = known if until > known else -1
        rows = 0
        if is_first:
            self.folded_lsn = known
            rows = sender.send_rows(snapshot, known, self._check_open)
        elif known > start:
            rows = sender.send_changes(snapshot, start, known, self._check_open)
        if until > known:
            if is_first or known > start:
                sender.mark(known)
            rows += sender.send_changes(snapshot, known, until, self._check_open)
        self._tail_at(until)
        self.sent(until, sender.tracker)  # before its results come
        sender.mark(until)
        return until, rows

    def tail_after(self, lsn: int) -> LogTail:
        """Another tail of its logs, of what is committed after an LSN."""
        topics, keep = self.inputs.topics, self.inputs.keep
        return LogTail(self.log, self.dispatcher, topics, self._plan_of, lsn, keep=keep)

    def _check_open(self) -> None:
        """Raise when the batch is to end: it has not begun to count."""
        if self.is_ending:
            raise ClosedError("the view is being stopped")

    def _tail_at(self, lsn: int) -> LogTail:
        """The tail from before, if it stands just there: then nothing has to be read again."""
        tail = self._tail
        if tail is not None and tail.position <= lsn == self.sent_lsn:
            return tail
        if tail is not None:
            tail.close()
        tail = self._tail = self.tail_after(lsn)
        self.sent_lsn = lsn
        self._marks.clear()
        return tail

    def is_current(self, tail: LogTail) -> bool:
        """Whether a batch still goes on; not when its query has failed or was stopped."""
        return self._tail is tail

    def sent(self, lsn: int, tracker: WatermarkTracker, read: int | None = None) -> None:
        """Everything up to an LSN was sent; its newest commit has the LSN ``read``, or that one."""
        self.note_sent(lsn, tracker.late, tracker.watermark, lsn if read is None else read)

    def note_sent(self, lsn: int, late: int, watermark: int | None, read: int) -> None:
        """Note the same, of a tracker whose values are known."""
        self.sent_lsn = lsn
        self.late = late
        self._marks.append((lsn, watermark, read))

    # ---- from outside

    def held_back(self) -> tuple[int, int]:
        """The first LSN whose results are shown, and up to where earlier ones were shown before."""
        return self.snapshot_lsn, self.replayed_lsn

    def sent_at(self, lsn: int) -> tuple[int | None, int]:
        """When the reader was sent everything up to an LSN: the watermark, and the newest commit.

        A mark may come back together with the rows before it, and be at a later LSN, one of logs
        that the view does not read.
        """
        watermark, read = None, lsn
        while self._marks and self._marks[0][0] <= lsn:
            _, watermark, read = self._marks.popleft()
        return watermark, read

    def probe(self, lsn: int) -> None:
        """Send a frame without rows when everything up to an LSN has passed, of its logs or not."""
        self.probed = max(self.probed, lsn)
        if self._tail is not None:
            self._tail.wake_up()

    def lag(self) -> int:
        """About how many rows the reader has not been sent."""
        tail = self._tail
        return max(0, self.log.lsn - (self.sent_lsn if tail is None else tail.settled()))

    def end_batch(self) -> None:
        """End the batch, and begin no other."""
        self._parked.clear()
        self.is_ending = True
        if self._tail is not None:
            self._tail.wake_up()

    def park(self) -> None:
        """Note that the last batch is over for Spark, too."""
        self._parked.set()

    def wait_parked(self, seconds: float) -> bool:
        """Wait until the batch is over for Spark, too; whether it is."""
        return self._parked.wait(seconds)

    def open_again(self) -> None:
        """Get ready for another query that reads."""
        self.is_ending = False
        self._parked.clear()

    def drop_tail(self) -> None:
        """Close the tail, and with it the batch that reads from it."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.wake_up()
            tail.close()


class LiveBatch:
    """One live batch.

    ``busy`` is held by the thread that sends: the connection's thread while it is awake, the
    dispatcher's for a moment while the other one sleeps.
    """

    def __init__(
        self,
        feed: LiveFeed,
        tail: LogTail,
        *,
        tracker: WatermarkTracker,
        columns: FeedColumns,
        wire: ReaderWire,
    ) -> None:
        self._feed = feed
        self._tail = tail
        self._tracker = tracker
        self._columns = columns
        self._wire = wire
        self._topics = {topic: place for place, topic in enumerate(feed.inputs.topics)}
        self._ticks = CLOCK if feed.inputs.waits == "clock" else ""
        self._rows = 0
        self._began = self._seen_at = time.monotonic()
        self._seen_rows = 0  # how many there were then
        self._taken_lsn = tail.position
        self._busy = threading.Lock()
        self._woken = threading.Event()
        self._spare: ChangeBatch | None = None  # handed over, and not sent by the dispatcher
        self._missed: list[ChangeBatch] = []  # came too late, not reported yet
        self._shown = feed.shown_lsn()
        self._cut = -1  # the last one that was marked
        self._unsent = b""  # the rest of a frame that the socket did not take
        self._form = feed.encodings.form((columns.names, feed.inputs.form))
        self._trouble: Exception | None = None

    def begin(self) -> None:
        """Send the first row of all."""
        lsn = max(self._feed.inputs.start - 1, 0)
        self._send(lsn, self._columns.initial_row(lsn))

    def run(self, rows: int = 0) -> None:
        """Send until the batch ends, which has so many rows already."""
        feed, was_quiet = self._feed, False
        self._rows = rows
        with self._busy:
            while feed.is_current(self._tail):
                self._settle()
                has_sent = self._send_ready() or self._send_cut()
                if self._is_due():
                    self._end()
                    return
                if not has_sent:
                    if not was_quiet:
                        was_quiet = True
                        feed.on_quiet()
                    if feed.probed > feed.sent_lsn:
                        self._send_mark()
                    self._wait()

    def _is_due(self) -> bool:
        if self._feed.is_ending or self._rows >= LIVE_ROWS:
            return True
        now = time.monotonic()
        age = now - self._began
        if not self._rows or age < min(SOON_SECONDS, LIVE_SECONDS):
            return False
        if self._rows != self._seen_rows:
            self._seen_rows, self._seen_at = self._rows, now
        return age > LIVE_SECONDS or now - self._seen_at >= IDLE_SECONDS

    # ---- the connection's thread

    def _wait(self) -> None:
        """Sleep while all is quiet; meanwhile the dispatcher sends."""
        self._woken.clear()
        if not self._tail.hand_to(self._handed):
            return
        seconds = self._quiet_seconds()
        self._busy.release()
        try:
            self._woken.wait(seconds)
        finally:
            self._busy.acquire()
        self._tail.wake_up()  # from now on nothing is handed over
        # What was just being handed over comes before anything that is taken.
        while self._spare is None and self._tail.position > self._taken_lsn:
            self._woken.wait(0.001)
            self._woken.clear()

    def _quiet_seconds(self) -> float | None:
        """For how long there is nothing to do, unless it is woken; None: for ever.

        Looked at when it can be woken: whoever wanted something before could not wake it.
        """
        feed = self._feed
        if feed.is_ending or not feed.is_current(self._tail):
            return 0.0
        if feed.probed > feed.sent_lsn:
            # An LSN that is awaited may be one of other logs, of which nobody is woken here.
            return 0.0 if self._tail.settled() > feed.sent_lsn else _PROBE_SECONDS
        if not self._rows:
            return None
        age = time.monotonic() - self._began
        if age < SOON_SECONDS:
            return max(0.0, min(SOON_SECONDS, LIVE_SECONDS) - age)
        return max(0.0, min(IDLE_SECONDS, LIVE_SECONDS - age))

    def _settle(self) -> None:
        """Do what the dispatcher left to this thread."""
        if self._trouble is not None:
            raise self._trouble
        self._report_late()
        if self._unsent:
            self._wire.send_rest(self._unsent)
            self._unsent = b""

    def _report_late(self) -> None:
        """Before Spark gets the frame: a reader that waits for it finds the late rows, too."""
        missed, self._missed = self._missed, []
        for batch in missed:
            self._feed.on_late(batch)

    def _send_ready(self) -> int:
        """One frame of what is there; returns how many rows it has."""
        ready: list[tuple[int, Part]] = []
        taken, rows, lsn, kind = False, 0, 0, ROWS
        while rows < _MERGED:
            batch, self._spare = self._spare, None
            if batch is None:
                batch = self._tail.take()
            if batch is not None:
                batch = self._before_border(batch, is_first=not taken)
            if batch is None:
                break
            taken, lsn = True, batch.lsn
            self._taken_lsn = lsn
            rows += max(1, len(batch))
            log = self._topics[batch.topic]
            kept, missed, before = self._tracker.split(log, batch)
            if missed is not None:
                self._missed.append(missed)
            if kept is not None:
                ready.append((log, (kept, before)))
            if batch.topic == self._ticks:
                kind = MARK  # what waits for the tick is what there was before it
                break
        if taken:
            if kind == ROWS and self._is_behind():
                kind = MORE
            data = self._columns.joined(ready)
            self._report_late()
            self._send(lsn, data, MARK if lsn <= self._shown else kind)
        self._rows += rows
        return rows

    def _is_behind(self) -> bool:
        """Whether there are many more rows, of which the next ones are at hand."""
        if self._spare is None and self._feed.lag() >= _BEHIND:
            self._spare = self._tail.take()
        return self._spare is not None and self._feed.lag() >= _BEHIND

    def _next_cut(self) -> int | None:
        """The first cut that is to come and was not marked yet."""
        sent, marked = self._feed.sent_lsn, self._cut
        cuts = [each for each in tuple(self._feed.cuts) if each >= sent and each > marked]
        return min(cuts, default=None)

    def _before_border(self, batch: ChangeBatch, *, is_first: bool) -> ChangeBatch | None:
        """The rows of a batch that may be in one frame; the others are left for later.

        A frame ends at a cut, and where results were taken already: they were of the watermark
        there, and a dataflow must not work on what is before and after it together.

        Args:
            batch: what was taken.
            is_first: whether it is the first of the frame.
        """
        border = self._next_cut() if self._feed.cuts else None
        if self._feed.sent_lsn < self._shown < batch.lsn:
            begins_before = not is_first or bisect_right(batch.lsns, self._shown) > 0
            if begins_before and (border is None or self._shown < border):
                border = self._shown
        if border is None or batch.lsn <= border:
            return batch
        count = bisect_right(batch.lsns, border)  # a frame of the log may have several commits
        self._spare = batch.slice(count) if count else batch
        return batch.slice(0, count) if count else None

    def _send_cut(self) -> bool:
        """Mark the next cut, if everything before it was sent; whether it was."""
        cut = self._next_cut() if self._feed.cuts else None
        if cut is None or (self._spare is None and cut > self._tail.settled()):
            return False
        self._cut = cut
        self._send(cut, self._columns.none(), MARK)
        return True

    def _send(self, lsn: int, data: pa.RecordBatch, kind: int = ROWS) -> None:
        """Send a frame."""
        head = self._header(lsn, MARK if self._wire.marks_rows else kind)
        self._wire.send_rows(lsn, head, data)

    def _header(self, lsn: int, kind: int = ROWS) -> tuple[bytes, bytes]:
        self._feed.sent(lsn, self._tracker, min(lsn, self._taken_lsn))
        return self._head(lsn, kind)

    def _head(self, lsn: int, kind: int) -> tuple[bytes, bytes]:
        tracker = self._tracker
        offset = offset_text(lsn, tracker.watermarks, tracker.late).encode()
        return passed(tracker.passed) + HEADER.pack(kind, lsn, len(offset)), offset

    def _send_mark(self) -> None:
        """A frame without rows: when it comes back, everything before it has."""
        lsn = self._tail.settled()
        if self._spare is None and lsn > self._feed.sent_lsn:  # what was taken is sent, too
            self._send_nothing(lsn)

    def _send_nothing(self, lsn: int) -> None:
        if self._wire.marks_progress:
            self._send(lsn, self._columns.none(), MARK)
        else:
            self._wire.send_nothing(lsn, *self._header(lsn, NO_ROWS[0]), NO_ROWS[1])

    def _end(self) -> None:
        feed = self._feed
        make_durable(feed.dispatcher, feed.log)
        self._send_mark()
        if feed.log.durable_lsn < feed.sent_lsn:
            make_durable(feed.dispatcher, feed.log)
        self._wire.send(*self._head(feed.sent_lsn, END))

    # ---- the dispatcher's thread

    def _handed(self, batch: ChangeBatch | None) -> None:
        """Send a few rows at once, or leave them to the other thread. Neither waits nor raises."""
        if batch is None:
            self._woken.set()
        elif not self._busy.acquire(blocking=False):
            self._spare = batch
            self._woken.set()
        else:
            try:
                self._send_now(batch)
            except Exception as error:  # noqa: BLE001 - it is for the connection's thread
                self._trouble = error
                self._woken.set()
            finally:
                self._busy.release()

    def _send_now(self, batch: ChangeBatch) -> None:
        feed, size = self._feed, len(batch)
        is_small = size <= FEW_ROWS and not feed.cuts and batch.topic != self._ticks
        if not (is_small and self._wire.take(self._topics[batch.topic], batch)):
            self._spare = batch
            self._woken.set()
            return
        self._taken_lsn = batch.lsn
        is_first = not self._rows
        self._rows += size or 1
        tracker, made = self._tracker, feed.encodings.of(batch)
        key = (self._form, tracker.state)
        known = made.get(key)
        if known is None:
            known, is_whole = self._few(batch)
            if is_whole:
                made[key] = known
        else:
            tracker.state = known.state
        feed.note_sent(batch.lsn, tracker.late, known.watermark, batch.lsn)
        self._unsent = known.frame if self._missed else self._wire.send_now(known.frame)
        # With the first row it is settled when the batch ends.
        busy = is_first or self._unsent or self._missed or self._rows >= LIVE_ROWS
        if busy or not self._tail.hand_to(self._handed):
            self._woken.set()

    def _few(self, batch: ChangeBatch) -> tuple[FewFrame, bool]:
        """The frame of what is kept of a batch, and whether that is all of it."""
        tracker, log = self._tracker, self._topics[batch.topic]
        kept, missed, before = tracker.split(log, batch)
        if missed is not None:
            self._missed.append(missed)
        kind, data = NO_ROWS if kept is None else self._columns.encoded(log, kept, before)
        frame = b"".join((*self._head(batch.lsn, kind), data))
        return FewFrame(frame, tracker.state, tracker.watermark), kept is batch

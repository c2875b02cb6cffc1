"""A view at run time: turns results into commits, and holds the current rows.

Results come from Spark or from a follower in this process, one flush after the other, each with
the LSN up to which it counts. What they change is committed by the dispatcher, together with that
LSN, and only then is the next flush computed: so a view is always at one place of its inputs, and
a flush that is older than the view is a replay, and changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from millstream.dispatch import make_durable
from millstream.errors import (
    ClosedError,
    LogError,
    LogFailedError,
    ObjectNotFoundError,
    RowTooLargeError,
)
from millstream.state.saved import NEVER, SavedRows
from millstream.threads import Waiters
from millstream.views.sorting import ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from millstream.dispatch import Dispatcher
    from millstream.errors import ViewFailedError
    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.model.result_rows import Results
    from millstream.model.schema import Schema
    from millstream.sources import EventTime
    from millstream.views.plan.plan import SortKey
    from millstream.views.rows import Parts, ViewRows, ViewUpdate


_RECENT: Final = 4096


class ViewProgress:
    """How far a view has come, and why it cannot go on; what ``wait_for`` waits for.

    Args:
        name: the view.
        dispatcher: ends its subscriptions when it has failed.

    Attributes:
        reached: everything up to this LSN was taken in, whether it changed anything or not.
        error: why its query cannot go on, or None.
        failed_lsn: the error counts up to this LSN: nothing that the view reads was committed
            between its failure and there. None: it counts whatever is committed.
        blocked_by: why its changes cannot be committed for now, such as a full disk; or None. It
            goes on by itself.
        is_over: whether the view was dropped.
        is_stopping: whether the database closes.
        saved_until: of a view that was opened with saved rows, the LSN up to which it catches up
            first; until then its rows are those of the last run. 0: it began without saved rows.
        cuts: LSNs that were not reached yet, and at which it is to stop for a moment: no commit of
            the view counts rows from before and from after one of them.
    """

    def __init__(self, name: str, dispatcher: Dispatcher) -> None:
        self.reached = 0
        self.cuts: list[int] = []
        self.error: ViewFailedError | None = None
        self.failed_lsn: int | None = None
        self.blocked_by: LogError | None = None
        self.is_over = False
        self.is_stopping = False
        self.saved_until = 0
        self._name = name
        self._dispatcher = dispatcher
        self._has_started = False
        self._reaching = threading.Lock()
        self._moved = Waiters()
        self._on_cut: list[tuple[int, Callable[[bool], None]]] = []  # by LSN, as in cuts
        self._on_reached: list[tuple[int, Callable[[], None]]] = []

    def caught_up(self, lsn: int, *, idle: bool = False) -> None:
        """Everything up to an LSN was taken in; idle: there was nothing to read up to there."""
        with self._reaching:
            if lsn > self.reached:
                self.error = None  # it has got further than where it failed
                self.reached = lsn
        self._moved.wake()
        if self._on_reached:
            self._call_reached()
        if self.cuts:
            self._pass_cuts(lsn, idle=idle)

    def idle(self, lsn: int) -> None:
        """There was nothing to read up to an LSN."""
        self.caught_up(lsn, idle=True)

    def cut_at(self, lsn: int, passed: Callable[[bool], None], *, idle: bool = False) -> None:
        """Have a function called when everything up to an LSN was taken in, now or later.

        Args:
            lsn: the LSN.
            passed: gets whether the view was then just there, and no further.
            idle: if it is further now, there was nothing to read in between.
        """
        with self._reaching:
            reached = self.reached
            if reached < lsn:
                self._on_cut.append((lsn, passed))
                self.cuts.append(lsn)
        if reached >= lsn:
            passed(idle or reached == lsn)

    def _pass_cuts(self, lsn: int, *, idle: bool) -> None:
        with self._reaching:
            passed = [each for each in self._on_cut if each[0] <= lsn]
            self._on_cut = [each for each in self._on_cut if each[0] > lsn]
            self.cuts[:] = [each for each, _ in self._on_cut]
        for place, function in passed:
            function(idle or place == lsn)

    def failed(self, error: ViewFailedError, *, hopeless: bool, lsn: int | None = None) -> None:
        """Note that the query failed.

        Args:
            error: why.
            hopeless: whether it was at the same place again, so that its subscriptions end.
            lsn: the query has no value for what was committed up to there, and is tried again
                after a later commit; None: nothing that is committed changes that.
        """
        if hopeless:
            self.failed_lsn = lsn
            self.error = error
            dispatcher, name = self._dispatcher, self._name
            dispatcher.soon(lambda: dispatcher.fan_out.fail_routes(name, error))
        self._moved.wake()

    def still_failed(self, lsn: int) -> None:
        """Nothing that the view reads was committed after its failure and up to an LSN."""
        if self.failed_lsn is not None and lsn > self.failed_lsn:
            self.failed_lsn = lsn
            self._moved.wake()

    def counts_at(self, lsn: int) -> bool:
        """Whether the view has failed, and not only before what was committed up to an LSN."""
        failed_lsn = self.failed_lsn
        return self.error is not None and (failed_lsn is None or failed_lsn >= lsn)

    def wait_retried(self, lsn: int, seconds: float) -> None:
        """Wait until a view that has failed was tried again with all up to an LSN."""
        self._moved.wait(lambda: self.error is None or self.is_over or self.counts_at(lsn), seconds)

    def healed(self) -> None:
        """The query runs again after a failure that was none of its own."""
        self.error = self.failed_lsn = None

    def started(self) -> None:
        """The query runs, perhaps again."""
        self._has_started = True
        self._moved.wake()
        if self._on_reached:
            self._call_reached()

    def blocked(self, error: LogError) -> None:
        """The log takes no changes for now."""
        self.blocked_by = error
        self._moved.wake()

    def stop(self) -> None:
        """The database closes: nobody waits for the view any more."""
        self.is_stopping = True
        self._moved.wake()

    def end(self) -> None:
        """The view was dropped, and has ended."""
        self._moved.wake()

    def wake(self) -> None:
        """Have the threads that wait look at their conditions again."""
        self._moved.wake()

    @property
    def shows_saved_rows(self) -> bool:
        """Whether its rows are still those of the last run of the database."""
        return self.saved_until > 0 and not self.is_at(self.saved_until)

    def when_at(self, lsn: int, call: Callable[[], None]) -> bool:
        """Register a one-shot callback for when the query runs and an LSN was taken in.

        Returns:
            False, and the callback is not called, if that is so already.
        """
        with self._reaching:
            if self.is_at(lsn):
                return False
            self._on_reached.append((lsn, call))
        return True

    def _call_reached(self) -> None:
        with self._reaching:
            due = [call for lsn, call in self._on_reached if self.is_at(lsn)]
            self._on_reached = [each for each in self._on_reached if not self.is_at(each[0])]
        for call in due:
            call()

    def wait_for(
        self, lsn: int, seconds: float | None, is_interrupted: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until the query runs and everything up to an LSN was taken in.

        Args:
            lsn: the LSN.
            seconds: for how long; None: as long as it takes.
            is_interrupted: whether to wait no longer; call ``wake`` when that changes.

        Returns:
            False when the time is up, or the wait was interrupted.

        Raises:
            ViewFailedError: its query cannot go on.
            LogFullError: the disk is full, and the view waits for room.
            ObjectNotFoundError: it was dropped or replaced.
        """
        self._moved.wait(
            lambda: self.is_at(lsn) or self._cannot_reach(lsn) or is_interrupted(), seconds
        )
        if self.is_at(lsn):
            return True
        stopped_by = self.error or self.blocked_by
        if stopped_by is not None:
            raise stopped_by.again()
        if self.is_over:
            raise ObjectNotFoundError(f"{self._name} was dropped or replaced meanwhile")
        if self.is_stopping:
            raise ClosedError("the database is closed", hint="open it again")
        return False

    def is_at(self, lsn: int) -> bool:
        """Whether the query runs and everything up to an LSN was taken in."""
        return self._has_started and self.reached >= lsn

    def _cannot_reach(self, lsn: int) -> bool:
        return (
            self.is_over or self.is_stopping or self.blocked_by is not None or self.counts_at(lsn)
        )


class View:
    """A view, or a stream.

    Args:
        name: its topic.
        schema: its columns.
        rows: what it holds, and what results change in that.
        dispatcher: commits its changes.
        log: where they go.
        order: how its rows are sorted when they are read.
        event_time: that of its rows, at the end of its log; None when they have none.
        waits: whether rows wait before they are emitted.

    Attributes:
        progress: how far it has come.
        cause: the inputs count up to this LSN in what was committed.
        lsn: the LSN of the last change.
        watermark: the event time that has passed, or None.
        changes: how many rows were emitted, old and new.
        written: how many rows were committed, to all of its topics; with those that were read from
            its log, besides its saved rows, when it was loaded.
        due: when so many were written, ``on_due`` is called, once.
        recent: of the last changes, their first and last LSN, and the LSN after which the inputs
            count in them, up to their cause; unless rows wait before they are emitted, which are of
            earlier inputs, too.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        rows: ViewRows,
        *,
        dispatcher: Dispatcher,
        log: Log,
        order: Sequence[SortKey] = (),
        event_time: EventTime | None = None,
        waits: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self.order = order
        self.event_time = event_time
        self.progress = ViewProgress(name, dispatcher)
        self.cause = 0
        self.lsn = 0
        self.watermark: int | None = None
        self.changes = 0
        self.written = 0
        self.due = NEVER
        self.on_due: Callable[[], None] = lambda: None
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=_RECENT)
        self._is_stopping = False
        self._placed = 0  # the LSN of the last change, of any of its topics
        self._rows = rows
        self._dispatcher = dispatcher
        self._log = log
        self._waits = waits
        self._working = threading.Lock()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def load(self, saved: SavedRows | None = None) -> None:
        """Read its saved rows, and what the log has after them."""
        self.cause, self.written = self._rows.load(self._log, saved)
        self.lsn = self._placed = self._log.lsn

    # ---- results

    def take(
        self,
        rows: Sequence[Results],
        lsn: int,
        watermark: int | None,
        *,
        cause: int | None = None,
    ) -> None:
        """Commit what the newest results change, which count up to an LSN.

        The cause is the LSN of the newest commit that counts in them; None: the same LSN.
        """
        with self._working:
            if watermark is not None:
                self.watermark = watermark
            if lsn >= self.cause:
                update = self._rows.take(rows, lsn)
                newest = lsn if cause is None else max(cause, self.cause)
                self._commit(update, newest, self._since())
        self.progress.caught_up(lsn)

    def follow(self, compute: Callable[[], ViewUpdate | None], lsn: int) -> None:
        """Commit what rows change that were selected in this process, up to an LSN."""
        with self._working:
            if lsn > self.cause:
                self._commit(compute(), lsn, self._since())
        self.progress.caught_up(lsn)

    def _since(self) -> int | None:
        """After which LSN the inputs count in the next flush; None: some wait since before."""
        return None if self._waits else max(self.progress.reached, self.cause)

    def make_durable(self) -> None:
        """Return when all results that were taken are on the disk."""
        make_durable(self._dispatcher, self._log)

    def stop(self) -> None:
        """Do not wait for room on the disk any more."""
        self._is_stopping = True

    def end(self) -> None:
        """Commit nothing any more: another view of this name may be about to be created."""
        self.progress.is_over = True  # before the lock: its holder may wait for room on the disk
        with self._working:
            pass
        self.progress.end()

    def _commit(self, update: ViewUpdate | None, lsn: int, since: int | None = None) -> None:
        if update is None or self.progress.is_over:
            return
        if not update.parts:
            with self._lock:
                update.apply()
            return
        for topic, batch in update.parts:
            batch.cause = lsn
            if self.event_time is not None and topic == self.name:
                self.event_time.observe(batch)

        def applied(placed: list[ChangeBatch]) -> None:
            with self._lock:
                update.apply()
                for batch in placed:
                    self.written += len(batch)
                    if batch.topic == self.name:
                        self.lsn = batch.lsn
                        self.changes += len(batch)
                        if since is not None:
                            self.recent.append((batch.first_lsn, batch.lsn, since))
                self.cause, self._placed = lsn, placed[-1].lsn
            if self.written >= self.due:
                self.due = NEVER
                self.on_due()

        self._place(update.parts, applied)

    def _place(self, parts: Parts, applied: Callable[[list[ChangeBatch]], None]) -> None:
        """Commit changes; while the disk is full, wait for room."""
        while not self.progress.is_over:
            try:
                self._dispatcher.commit_here(parts, applied)
            except (LogFailedError, RowTooLargeError):
                raise
            except LogError as error:
                self._wait_for_room(error)
            else:
                self.progress.blocked_by = None
                return

    def _wait_for_room(self, error: LogError) -> None:
        """The log takes nothing, so wait: to fail would end the subscriptions."""
        self.progress.blocked(error)
        if self._is_stopping or not self._dispatcher.wait_for_retry():
            raise error

    # ---- its rows

    def snapshot(self) -> tuple[pa.Table, int]:
        """The rows, in the view's order if it has one, and the LSN at which they hold."""
        with self._lock:
            rows, lsn = self._rows.snapshot(), self.lsn
        rows = ordered(rows, self.order)
        if rows.num_columns > len(self.schema.columns):
            shown = rows.select(list(self.schema.names))
            rows = shown.replace_schema_metadata(self.schema.arrow.metadata)
        return rows, lsn

    def current(self) -> tuple[pa.Table, NDArray[np.int64] | None, int] | None:
        """What the changes of its log come to: rows, their weights, and the LSN of the last change.

        None as weights: all are 1. None when its rows are not kept.
        """
        with self._lock:
            counted, lsn = self._rows.counted(), self.lsn
        if counted is None:
            return None
        return counted[0].select(list(self.schema.names)), counted[1], lsn

    def saved(self) -> SavedRows | None:
        """Its current rows, to be saved; None when the log itself has them, and no others."""
        with self._lock:
            captured, lsn, cause = self._rows.capture(), self._placed, self.cause
        if captured is None:
            return None
        return SavedRows(lsn, cause, {name: table() for name, table in captured.items()})

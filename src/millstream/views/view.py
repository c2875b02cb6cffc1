"""A view at run time: takes results, commits what they change, keeps the rows.

Results come from Spark or from a follower in this process, one flush after the other, each with
the LSN up to which it counts. What they change is committed by the dispatcher, together with that
LSN, and only then is the next flush worked out: so a view is always at one place of its inputs, and
a flush that is older than what it has is a replay, and changes nothing.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millstream.dispatch import Commit
from millstream.errors import ClosedError, LogError, LogFailedError, RowTooLargeError
from millstream.model.batch import ChangeBatch
from millstream.state.saved import NEVER, SavedRows
from millstream.threads import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.dispatch import Dispatcher
    from millstream.errors import ViewFailedError
    from millstream.log import Log
    from millstream.model.schema import Schema

Parts = list[tuple[str, ChangeBatch]]


class Step(Protocol):
    """What a flush changes."""

    parts: Parts

    def apply(self) -> None:
        """Take it in. Called by the dispatcher's thread, or by the view's when there is no part."""


class ResultShape(Protocol):
    """Works out what results change, and keeps the rows."""

    def take(
        self, rows: Sequence[pa.RecordBatch], lsn: int, watermark: int | None, now: int
    ) -> Step | None:
        """What results change; None for nothing at all."""

    def advance(self, watermark: int | None, now: int) -> Step | None:
        """What it means that time goes on."""

    def load(self, log: Log, saved: SavedRows | None) -> tuple[int, int]:
        """Read what was committed before.

        Returns:
            The LSN up to which inputs count in it, and how many rows of the log were read.
        """

    def capture(self) -> dict[str, Callable[[], pa.Table]] | None:
        """What is worth saving, as it is at this moment."""

    def snapshot(self) -> pa.Table:
        """The rows."""

    def __len__(self) -> int: ...


class View:
    """A view, or a stream.

    Args:
        name: its topic.
        schema: its columns.
        shape: its rows.
        dispatcher: who commits.
        settle: returns when all that was committed is on the disk.
        clock: the time, in microseconds.

    Attributes:
        cause: the inputs count up to this LSN in what was committed.
        reached: everything up to this LSN was taken in, whether it changed anything or not.
        lsn: the LSN of the last change.
        watermark: the event time that has passed, or None.
        changes: how many rows it has told, old and new.
        written: the same, and those that it keeps for itself; with those that were read at the
            beginning, besides what was saved.
        due: when so many were written, ``on_due`` is called, once.
        error: why its query cannot go on, or None.
        waits: why what it has worked out cannot be committed for now, the disk is full, say; or
            None. It goes on by itself.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        shape: ResultShape,
        *,
        dispatcher: Dispatcher,
        settle: Callable[[], int],
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.schema = schema
        self.cause = 0
        self.reached = 0
        self.lsn = 0
        self.watermark: int | None = None
        self.changes = 0
        self.written = 0
        self.due = NEVER
        self.on_due: Callable[[], None] = lambda: None
        self.error: ViewFailedError | None = None
        self.waits: LogError | None = None
        self._has_started = self._is_stopping = self._is_over = False
        self._placed = 0  # the LSN of the last change, of whatever topic
        self._shape = shape
        self._dispatcher = dispatcher
        self._settle = settle
        self._clock = clock
        self._working = threading.Lock()
        self._lock = threading.Lock()
        self._reaching = threading.Lock()
        self._moved = Waiters()

    def __len__(self) -> int:
        return len(self._shape)

    def load(self, log: Log, saved: SavedRows | None = None) -> None:
        """Read what was saved of it, and what the log has after that."""
        self.cause, self.written = self._shape.load(log, saved)
        self.lsn = self._placed = log.lsn

    # ---- results

    def take(
        self, rows: Sequence[pa.RecordBatch], lsn: int, watermark: int | None, *, durably: bool
    ) -> None:
        """Take in the newest results, which count up to an LSN."""
        with self._working:
            if watermark is not None:
                self.watermark = watermark
            if lsn >= self.cause:
                step = self._shape.take(rows, lsn, self.watermark, self._clock())
                self._commit(step, lsn)
        if durably:
            self._settle()
        self._has_reached(lsn)

    def follow(self, work_out: Callable[[], Step | None], lsn: int) -> None:
        """Take in what was selected in this process, up to an LSN."""
        with self._working:
            if lsn > self.cause:
                self._commit(work_out(), lsn)
        self._has_reached(lsn)

    def tick(self) -> None:
        """Let time go on."""
        with self._working:
            self._commit(self._shape.advance(self.watermark, self._clock()), self.cause)

    def settle(self) -> None:
        """Return when all that was taken is on the disk."""
        self._settle()

    def stop(self) -> None:
        """Wait for room on the disk no more."""
        self._is_stopping = True

    def end(self) -> None:
        """Commit nothing any more: another view of this name may be about to be made."""
        self._is_over = True  # before the lock: who has it may wait for room on the disk
        with self._working:
            pass
        self._moved.wake()

    def _commit(self, step: Step | None, lsn: int) -> None:
        if step is None or self._is_over:
            return
        if not step.parts:
            with self._lock:
                step.apply()
            return
        for _, batch in step.parts:
            batch.cause = lsn

        def applied(placed: list[ChangeBatch]) -> None:
            with self._lock:
                step.apply()
                for batch in placed:
                    self.written += len(batch)
                    if batch.topic == self.name:
                        self.lsn = batch.lsn
                        self.changes += len(batch)
                self.cause, self._placed = lsn, placed[-1].lsn
            if self.written >= self.due:
                self.due = NEVER
                self.on_due()

        self._place(step.parts, applied)

    def _place(self, parts: Parts, applied: Callable[[list[ChangeBatch]], None]) -> None:
        """Commit changes; while the disk is full, wait for room."""
        while not self._is_over:
            try:
                self._dispatcher.commit_here(Commit(parts, applied))
            except (LogFailedError, RowTooLargeError):
                raise
            except LogError as error:
                self._wait_for_room(error)
            else:
                self.waits = None
                return

    def _wait_for_room(self, error: LogError) -> None:
        """The log takes nothing, so wait: to fail would end the subscriptions."""
        self.waits = error
        self._moved.wake()
        if self._is_stopping or not self._dispatcher.wait_for_retry():
            raise error

    def _has_reached(self, lsn: int) -> None:
        with self._reaching:
            self.reached = max(self.reached, lsn)
        self._moved.wake()

    # ---- how it fares

    def caught_up(self, lsn: int) -> None:
        """There is nothing more to read up to an LSN."""
        self._has_reached(lsn)

    def failed(self, error: ViewFailedError, *, hopeless: bool) -> None:
        """Its query failed; hopeless: again at the same place."""
        if hopeless:
            self.error = error
            self._dispatcher.soon(lambda: self._dispatcher.fan_out.drop_routes(self.name, error))
        self._moved.wake()

    def started(self) -> None:
        """Its query runs, again perhaps."""
        self._has_started = True
        self._moved.wake()

    def recovered(self) -> None:
        """Its query goes on."""
        self.error = None

    def wait_for(self, lsn: int, seconds: float | None) -> bool:
        """Until it has started and taken in everything up to an LSN; False when the time is up.

        Raises:
            ViewFailedError: its query cannot go on.
            LogFullError: the disk is full, and it waits for room.
            ClosedError: it was dropped, or the database closed.
        """
        self._moved.wait(lambda: self._is_at(lsn) or self._cannot_go_on(), seconds)
        if self._is_at(lsn):
            return True
        stopped_by = self.error or self.waits
        if stopped_by is not None:
            raise stopped_by.again()
        if self._is_over:
            raise ClosedError(f"{self.name} was dropped, or the database closed")
        return False

    def _is_at(self, lsn: int) -> bool:
        return self._has_started and self.reached >= lsn

    def _cannot_go_on(self) -> bool:
        return self._is_over or self.error is not None or self.waits is not None

    # ---- its rows

    def snapshot(self) -> tuple[pa.Table, int]:
        """The rows, and the LSN at which they hold."""
        with self._lock:
            return self._shape.snapshot(), self.lsn

    def saved(self) -> SavedRows | None:
        """What it holds, to be written; None when that is the log itself."""
        with self._lock:
            held, lsn, cause = self._shape.capture(), self._placed, self.cause
        if held is None:
            return None
        return SavedRows(lsn, cause, {name: table() for name, table in held.items()})


def one_batch(rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Some batches as one; None when there is no row."""
    some = [each for each in rows if each.num_rows]
    if not some:
        return None
    return some[0] if len(some) == 1 else pa.concat_batches(some)


def in_log_order(batch: pa.RecordBatch, after: int) -> pa.RecordBatch:
    """The rows after an LSN, in the order of the log: tasks that read at once sent them mixed."""
    lsns = batch.column("_lsn")
    if len(lsns) and lsns[0].as_py() <= after:
        batch = batch.filter(pc.greater(lsns, after))
        lsns = batch.column("_lsn")
    if len(lsns) > 1:
        batch = batch.take(pc.sort_indices(lsns))
    return batch

"""A view in this process: a thread that follows one log, filters and projects it.

A row that the query has no value for, such as ``1 / 0``, fails the view as long as it is there. The
thread goes on reading; once an UPDATE or a DELETE has retracted each such row, the view gets all
that was committed meanwhile as one change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.dispatch import make_readable
from millstream.errors import ClosedError, Error
from millstream.log.reader import not_kept
from millstream.model.batch import ChangeBatch
from millstream.threads import thread
from millstream.views.failures import BadRows, no_value, view_failed
from millstream.views.running import LogHolds, RunningView
from millstream.views.snapshot_rows import rows_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.tail import LogTail
    from millstream.errors import ViewFailedError
    from millstream.sql import SelectPlan
    from millstream.views.definitions import Storage
    from millstream.views.planning import PlannedView
    from millstream.views.rows import ViewRows
    from millstream.views.view import View

_PROBE_SECONDS: Final = 1.0


def follow(storage: Storage, planned: PlannedView, plan: SelectPlan, view: View) -> RunningView:
    """A view that needs no Spark, ready to start."""
    begins = planned.definition.begins
    holds = LogHolds.of(storage.log, (plan.target,), max(view.cause + 1, begins))
    follower = LogFollower(
        view, planned.rows, plan, storage=storage, begins=begins, on_committed=holds.advance
    )
    return RunningView(planned, view, follower, None, holds)


class LogFollower:
    """Keeps a view that only filters and projects one log, in a thread of its own.

    Args:
        view: the view.
        rows: what it holds.
        plan: what it keeps of the log.
        storage: where the log is.
        begins: the first LSN that the view reads.
        on_committed: called with the LSN up to which nothing will be read again.
    """

    def __init__(
        self,
        view: View,
        rows: ViewRows,
        plan: SelectPlan,
        *,
        storage: Storage,
        begins: int,
        on_committed: Callable[[int], None],
    ) -> None:
        self.state = "starting"
        self.restarts = 0
        self.error: ViewFailedError | None = None
        self._view = view
        self._rows = rows
        self._plan = plan
        self._storage = storage
        self._begins = begins
        self._on_committed = on_committed
        self._bad = BadRows(plan)
        # Up to this LSN it reads again what was committed while it had failed; 0: it does not.
        self._until = 0
        self._again: list[ChangeBatch] = []
        self._tail: LogTail | None = None
        self._probed = 0
        self._stopping = False
        self._thread = thread(view.name, self._run, self._fail)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def probe(self, lsn: int) -> None:
        """Have the view notified soon how far the log has been read."""
        self._probed = max(self._probed, lsn)
        if self._tail is not None:
            self._tail.wake_up()

    def stop(self, *, gracefully: bool = True, patiently: bool = False) -> None:
        """Have the thread end. Nothing has to be repeated either way: each batch is a commit."""
        del gracefully, patiently
        self._stopping = True
        if self._tail is not None:
            self._tail.wake_up()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._tail = self._open_tail()
            self._view.progress.started()
            self._set_live()
            while not self._stopping:
                self._step(self._tail)
        except ClosedError:
            pass
        except Error as error:
            self._fail(error)
            return
        finally:
            if self._tail is not None:
                self._tail.close()
        self.state = "stopped"

    def _set_live(self) -> None:
        if not self._bad:
            self.state = "live"
            self.error = None

    # ---- where it begins

    def _open_tail(self) -> LogTail:
        topic = self._plan.target
        if self._rows.retracts and not self._view.cause:
            return self._storage.tail(topic, self._begin())
        kept = self._storage.log.topic(topic)
        wanted = max(self._view.cause + 1, self._begins)
        if self._rows.retracts and kept.low_lsn > wanted:
            raise not_kept(kept, wanted)  # a row that is gone would stay
        return self._storage.tail(topic, max(wanted, kept.low_lsn) - 1)

    def _begin(self) -> int:
        """Show the current rows of what it reads, in one commit; returns their LSN."""
        storage = self._storage
        lsn = make_readable(storage.dispatcher, storage.log)
        self._until, kept = 0, list[ChangeBatch]()
        for batch in rows_at(storage, self._plan.target, lsn, self._check_open):
            good, bad = self._bad.split(batch)
            if bad is not None:
                self._bad.add(bad)
            if good is not None and len(good):
                kept.append(good)
        if not self._bad:
            self._commit(kept, lsn)
        return lsn

    def _check_open(self) -> None:
        if self._stopping:
            raise ClosedError("the view is being stopped")

    # ---- batch by batch

    def _step(self, tail: LogTail) -> None:
        progress = self._view.progress
        batch = tail.take()
        if batch is None:
            if self._bad:
                self._report(tail.settled())
            elif not self._until:
                progress.idle(tail.settled())
            known = max(progress.reached, progress.failed_lsn or 0)
            # An LSN that is awaited may be one of other logs, of which nobody is woken here.
            tail.wait(_PROBE_SECONDS if self._probed > known else None)
            return
        for cut in sorted((*progress.cuts, self._until)):
            if batch.first_lsn <= cut < batch.lsn:  # a frame of the log may have several commits
                self._take(batch.slice(0, cut - batch.first_lsn + 1))
                batch = batch.slice(cut - batch.first_lsn + 1)
        self._take(batch)

    def _take(self, batch: ChangeBatch) -> None:
        if self._until:
            self._take_again(batch)
            return
        good, bad = self._bad.split(batch)
        if bad is not None:
            self._bad.add(bad)
            if not self._rows.retracts:
                raise no_value(self._view.name, self._bad, retracts=False)
        if not self._bad:
            if bad is not None or self.error is not None:
                self._read_again(batch.lsn)
                return
            if self._view.progress.cuts:
                self._view.progress.idle(batch.first_lsn - 1)
            self._commit([] if good is None else [good], batch.lsn)

    def _commit(self, kept: list[ChangeBatch], lsn: int) -> None:
        """Commit what the query keeps of all up to an LSN."""
        batch = ChangeBatch.concat(kept) if kept else None
        if batch is not None and len(batch):
            self._view.follow(lambda: self._rows.follow(batch, lsn), lsn)
            self._on_committed(lsn)
        else:
            self._view.progress.caught_up(lsn)

    # ---- failures

    def _report(self, lsn: int) -> None:
        """The view has failed: some row up to an LSN has no value."""
        error = no_value(self._view.name, self._bad, retracts=True)
        progress = self._view.progress
        if self.error is not None and self.error.lsn == error.lsn:
            progress.still_failed(lsn)
            return
        self.state = "failed"
        self.error = error
        progress.failed(error, hopeless=True, lsn=lsn)

    def _read_again(self, lsn: int) -> None:
        """Every row has a value again: read what follows the last change, up to an LSN."""
        self.restarts += 1
        self._until = lsn
        if self._tail is not None:
            self._tail.close()
        self._tail = self._open_tail()
        if not self._until:  # it has begun with the current rows, unless one of them has no value
            self._set_live()

    def _take_again(self, batch: ChangeBatch) -> None:
        """Collect what the query keeps of a batch; rows without a value are gone by the end."""
        good, _ = self._bad.split(batch)
        if good is not None and len(good):
            self._again.append(good)
        if batch.lsn >= self._until:
            again, self._again, self._until = self._again, [], 0
            self._commit(again, batch.lsn)
            self._set_live()

    def _fail(self, error: Exception) -> None:
        """It cannot go on: the view's subscriptions end with the error."""
        self.state = "failed"
        self.error = view_failed(self._view.name, error)
        self._view.progress.failed(self.error, hopeless=True)

"""What keeps a view up to date without Spark: a follower of one log, a ticker, or nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.dispatch import select
from millstream.errors import ClosedError, Error, LogFailedError, ViewFailedError
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.delivery.tail import LogTail
    from millstream.sql import SelectPlan
    from millstream.views.result_shapes import PlainRows
    from millstream.views.storage import Storage
    from millstream.views.view import View

_IDLE_SECONDS: Final = 1.0


class LogFollower:
    """Keeps a view that only filters and projects one log, in a thread of its own.

    Args:
        view: the view.
        shape: its rows.
        plan: what it keeps of the log.
        storage: where the log is.
        begins: the first LSN that the view reads.
        on_committed: called with the LSN up to which nothing will be read again.
    """

    def __init__(
        self,
        view: View,
        shape: PlainRows,
        plan: SelectPlan,
        *,
        storage: Storage,
        begins: int,
        on_committed: Callable[[int], None],
    ) -> None:
        self.state = "starting"
        self.shifts = 0
        self.restarts = 0
        self.error: ViewFailedError | None = None
        self._view = view
        self._shape = shape
        self._plan = plan
        self._storage = storage
        self._begins = begins
        self._on_committed = on_committed
        self._tail: LogTail | None = None
        self._stopping = False
        self._ready = threading.Event()
        self._thread = thread(view.name, self._run, self._fail)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_ready(self, seconds: float | None = None) -> bool:
        """Wait until it follows the log, or has failed; False when the time is up."""
        return self._ready.wait(seconds)

    def probe(self, lsn: int) -> None:
        """Have the view notified soon how far the log has been read."""
        del lsn
        if self._tail is not None:
            self._tail.wake_up()

    def stop(self, *, gracefully: bool = True) -> None:
        """Have the thread end. Nothing has to be repeated either way: each batch is a commit."""
        del gracefully
        self._stopping = True
        if self._tail is not None:
            self._tail.wake_up()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            tail = self._tail = self._open_tail()
            self.state = "live"
            self._ready.set()
            self._view.progress.started()
            while not self._stopping:
                self._step(tail)
        except ClosedError:
            pass
        except Error as error:
            self._fail(error)
            return
        finally:
            if self._tail is not None:
                self._tail.close()
        self.state = "stopped"

    def _open_tail(self) -> LogTail:
        topic = self._plan.target
        first = max(self._view.cause + 1, self._begins, self._storage.log.topic(topic).low_lsn)
        return self._storage.tail(topic, first - 1)

    def _fail(self, error: Exception) -> None:
        """It cannot go on: the view's subscriptions end with the error."""
        self.state = "failed"
        self.error = view_failed(self._view.name, error)
        self._view.progress.failed(self.error, hopeless=True)
        self._ready.set()

    def _step(self, tail: LogTail) -> None:
        batch = tail.take()
        if batch is None:
            self._view.progress.caught_up(tail.settled())
            tail.wait(_IDLE_SECONDS)
            return
        kept = select(batch, self._plan)
        if kept is not None and len(kept):
            self._view.follow(lambda: self._shape.follow(kept, batch.lsn), batch.lsn)
            self._on_committed(batch.lsn)
        else:
            self._view.progress.caught_up(batch.lsn)


class Stalled:
    """In place of the query of a view that can never go on: nothing runs.

    Args:
        view: the view.
        error: why it cannot.
    """

    def __init__(self, view: View, error: ViewFailedError) -> None:
        self.state = "failed"
        self.shifts = 0
        self.restarts = 0
        self.error = error
        self._view = view

    def start(self) -> None:
        """Have the view fail."""
        self._view.progress.failed(self.error, hopeless=True)

    def stop(self, *, gracefully: bool = True) -> None:
        """Do nothing: no thread runs."""

    def join(self) -> None:
        """Return at once: no thread runs."""


class Ticker:
    """Calls a view's ``tick`` at each multiple of an interval, in a thread of its own: EMIT EVERY.

    Args:
        view: the view.
        seconds: the interval.
    """

    def __init__(self, view: View, seconds: float) -> None:
        self._view = view
        self._seconds = seconds
        self._over = threading.Event()
        thread(f"tick-{view.name}", self._run, self._crashed).start()

    def stop(self) -> None:
        """Have the thread end."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds - time.time() % self._seconds):
            try:
                self._view.tick()
            except (ClosedError, LogFailedError):  # which every reader gets, too
                return

    def _crashed(self, error: Exception) -> None:
        """Without ticks the view would show nothing new: its subscriptions end with the error."""
        self._view.progress.failed(view_failed(self._view.name, error), hopeless=True)


def view_failed(name: str, raised: Exception) -> ViewFailedError:
    """The error that readers of a view get for what was raised in one of its threads."""
    if isinstance(raised, Error):
        return ViewFailedError(
            f"the view {name} failed: {raised.message}", view=name, hint=raised.hint
        )
    return ViewFailedError(
        f"the view {name} failed: {type(raised).__name__}: {raised}",
        view=name,
        hint="open the database again; this is a bug in Millstream, please report it",
    )

"""A view that only filters and projects one log: kept up in this process, without Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from millstream.dispatch import select
from millstream.errors import ClosedError, Error
from millstream.threads import thread
from millstream.views.failure import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ViewFailedError
    from millstream.sql import SelectPlan
    from millstream.views.result_shapes import Lines
    from millstream.views.view import View

_IDLE_SECONDS: Final = 1.0


class Follower:
    """Follows a log in a thread of its own.

    Args:
        view: whose rows it makes.
        lines: which keep them.
        plan: what it keeps of the log.
        open_tail: the log's batches after an LSN.
        on_committed: told the LSN up to which nothing will be read again.
    """

    def __init__(
        self,
        view: View,
        lines: Lines,
        plan: SelectPlan,
        open_tail: Callable[[int], Any],
        on_committed: Callable[[int], None],
    ) -> None:
        self.state = "starting"
        self.shifts = 0
        self.restarts = 0
        self.error: ViewFailedError | None = None
        self._view = view
        self._lines = lines
        self._plan = plan
        self._open_tail = open_tail
        self._on_committed = on_committed
        self._tail: Any = None
        self._stopping = False
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._thread = thread(view.name, self._run, self._fail)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait_ready(self, seconds: float | None = None) -> bool:
        """Until it follows, or has failed."""
        return self._ready.wait(seconds)

    def probe(self, lsn: int) -> None:
        """Have it told when everything up to an LSN has passed."""
        del lsn
        if self._tail is not None:
            self._tail.wake_up()

    def stop(self, *, gracefully: bool = True) -> None:
        """End. It has nothing to do again either way: what is committed is committed."""
        del gracefully
        self._stopping = True
        self._wake.set()
        if self._tail is not None:
            self._tail.wake_up()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._tail = self._open_tail(self._view.cause)
            self.state = "live"
            self._ready.set()
            self._view.started()
            while not self._stopping:
                self._step()
        except ClosedError:
            pass
        except Error as error:
            self._fail(error)
            return
        finally:
            if self._tail is not None:
                self._tail.close()
        self.state = "stopped"

    def _fail(self, error: Exception) -> None:
        """It cannot go on: whoever reads the view is told."""
        self.state = "failed"
        self.error = failure(self._view.name, error)
        self._view.failed(self.error, hopeless=True)
        self._ready.set()

    def _step(self) -> None:
        tail = self._tail
        batch = tail.take()
        if batch is None:
            self._view.caught_up(tail.settled())
            tail.wait(_IDLE_SECONDS)
            return
        kept = select(batch, self._plan)
        if kept is not None and len(kept):
            self._view.follow(lambda: self._lines.follow(kept, batch.lsn), batch.lsn)
            self._on_committed(batch.lsn)
        else:
            self._view.caught_up(batch.lsn)

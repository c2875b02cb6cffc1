"""A ticker: lets time go on for a view that shows its changes at times."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from millstream.errors import ClosedError, LogFailedError
from millstream.threads import thread
from millstream.views.failure import failure

if TYPE_CHECKING:
    from millstream.views.view import View


class Ticker:
    """Calls a view's ``tick`` at each multiple of an interval, in a thread of its own.

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
        """Tick no more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(self._seconds - time.time() % self._seconds):
            try:
                self._view.tick()
            except (ClosedError, LogFailedError):  # everybody is told
                return

    def _crashed(self, error: Exception) -> None:
        """Without it the view would show nothing new: whoever reads it is told."""
        self._view.failed(failure(self._view.name, error), hopeless=True)

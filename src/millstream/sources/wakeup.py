"""How producers and the dispatcher wait for each other: wake-ups one way, completions the other.

The dispatcher says that it is about to sleep, looks at the buffers once more, and sleeps. A
producer appends first and looks at ``asleep`` second. So either the dispatcher sees the row, or the
producer sees the sleeper: no wake-up is lost, and a dispatcher at work is never disturbed.
"""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue

from millstream.errors import Error


class Wakeup:
    """Wakes one thread, from any other.

    Attributes:
        asleep: whether that thread sleeps, or is about to.
    """

    __slots__ = ("_wakes", "asleep")

    def __init__(self) -> None:
        self.asleep = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """Wake the sleeper; one wake too many only makes it look for work once more.

        No signal can come between the two lines, since there is no call between them.
        """
        self.asleep = False
        self._wakes.put(None)

    def sleep(self, timeout: float | None = None) -> bool:
        """Wait for ``wake``; False when it was not called within ``timeout`` seconds.

        Set ``asleep`` and look for work before.
        """
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return False
        finally:
            self.asleep = False
        return True


class Completion:
    """Lets a thread wait until its commit is done, or has failed.

    Attributes:
        lsn: the last LSN that was handed out by then.
        error: why it has failed, or None.
    """

    __slots__ = ("_done", "error", "lsn")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.lsn = 0
        self._done = threading.Lock()
        self._done.acquire()

    def settle(self, lsn: int, error: BaseException | None = None) -> None:
        """End the wait, with an error if there is one; only the first call counts."""
        if not self._done.locked():
            return
        self.lsn, self.error = lsn, error
        with contextlib.suppress(RuntimeError):  # settled just now
            self._done.release()

    def wait(self) -> None:
        """Wait until it is settled; raises the error that it was settled with."""
        with self._done:
            pass
        if self.error is not None:
            raise self.error.again() if isinstance(self.error, Error) else self.error

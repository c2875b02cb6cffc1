"""The bell: how Ring 0 wakes the dispatcher, and nothing else.

The dispatcher says that it is about to sleep, looks at the buffers once more, and sleeps. A
producer appends first and looks at ``asleep`` second. So either the dispatcher sees the row, or the
producer sees the sleeper: no wake-up is lost, and a dispatcher at work is never disturbed.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Bell:
    """Rung by any thread, heard by one.

    Attributes:
        asleep: whether the one who listens sleeps, or is about to.
    """

    __slots__ = ("_rung", "asleep")

    def __init__(self) -> None:
        self.asleep = False
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake the sleeper. Rung once too often, it wakes for nothing, which does no harm.

        No signal can come between the two lines, since there is no call between them.
        """
        self.asleep = False
        self._rung.put(None)

    def sleep(self, timeout: float | None = None) -> bool:
        """Wait for the bell; False when it was not rung in so many seconds.

        Set ``asleep`` and look for work before.
        """
        try:
            self._rung.get(timeout=timeout)
        except Empty:
            return False
        finally:
            self.asleep = False
        return True

"""How Ring 0 wakes the dispatcher.

The dispatcher says that it is about to sleep, looks at the buffers once more, and sleeps. A
producer appends first and looks at ``asleep`` second. So either the dispatcher sees the row, or the
producer sees the sleeper: no wake-up is lost, and a dispatcher at work is never disturbed.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


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
        """Wait for ``wake``; False when nobody called it in ``timeout`` seconds.

        Set ``asleep`` and look for work before.
        """
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return False
        finally:
            self.asleep = False
        return True

"""Holds: who still needs rows that retention could drop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Hold:
    """Rows from ``lsn`` on are kept, of some topics, until it moves on or is released.

    A hold lives as long as the process: who needs one takes it again right after opening.
    """

    def __init__(self, holds: Holds, topics: frozenset[int], lsn: int) -> None:
        self._holds = holds
        self.topics = topics
        self.lsn = lsn

    def advance(self, lsn: int) -> None:
        """Rows before ``lsn`` are no longer needed. Never moves back."""
        self.lsn = max(self.lsn, lsn)

    def release(self) -> None:
        """Nothing is needed any more. Releasing twice is fine."""
        self._holds.drop(self)


class Holds:
    """All holds of a log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Hold] = set()

    def take(self, topics: Iterable[int], lsn: int) -> Hold:
        """A new hold."""
        hold = Hold(self, frozenset(topics), lsn)
        with self._lock:
            self._all.add(hold)
        return hold

    def drop(self, hold: Hold) -> None:
        """Forget a hold."""
        with self._lock:
            self._all.discard(hold)

    def needed(self, topic: int) -> int | None:
        """The lowest LSN of a topic that somebody needs; None when nobody needs any."""
        with self._lock:
            return min((hold.lsn for hold in self._all if topic in hold.topics), default=None)

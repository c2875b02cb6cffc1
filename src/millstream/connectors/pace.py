"""How fast a connector may go: pauses between attempts, rests after many, a limit of rows. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Retries:
    """The pauses between attempts: twice as long each time, with jitter, and a circuit breaker.

    After ``limit`` failures in a row the circuit is open: the outside is left alone for ``rest``
    seconds, then tried once; another failure opens it again at once, a success closes it.

    >>> retries = Retries(first=1.0, longest=60.0, limit=3, rest=300.0, jitter=lambda: 1.0)
    >>> [retries.failed() for _ in range(4)]
    [1.0, 2.0, 300.0, 300.0]

    Attributes:
        failures: failures in a row.
        jitter: a number between 0 and 1: a pause is so much of its second half longer than half.
    """

    first: float = 0.5
    longest: float = 60.0
    limit: int = 20
    rest: float = 300.0
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    failures: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the outside is left alone."""
        return self.failures >= self.limit

    def failed(self) -> float:
        """Count a failure; returns for how many seconds to wait before the next attempt."""
        self.failures += 1
        if self.is_open:
            return self.rest
        pause = min(self.longest, self.first * 2.0 ** min(self.failures - 1, 60))
        return pause * (0.5 + 0.5 * self.jitter())

    def succeeded(self) -> None:
        """Begin again with the shortest pause."""
        self.failures = 0


@dataclass(slots=True)
class RateLimit:
    """At most so many rows in a second, averaged over a second.

    >>> limit = RateLimit(100.0)
    >>> limit.pause_after(100, now=0.0), limit.pause_after(100, now=0.0)
    (0.0, 1.0)

    Attributes:
        rows_per_second: None: no limit.
    """

    rows_per_second: float | None
    _free_at: float = field(default=float("-inf"), repr=False)

    def pause_after(self, rows: int, now: float) -> float:
        """For how many seconds to wait after so many rows, of which the first second's are free."""
        rate = self.rows_per_second
        if rate is None or rate <= 0:
            return 0.0
        self._free_at = max(self._free_at, now - 1.0) + rows / rate
        return max(0.0, self._free_at - now)

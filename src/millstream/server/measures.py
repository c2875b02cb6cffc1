"""What the server counts: requests, and how long changes take to clients."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Final

_KEPT: Final = 512
_TARGETS: Final = 1024


class Measures:
    """Counters, filled by the event loop only.

    Attributes:
        requests: how many, by route and status.
        seconds: how long they took, by route.
        frames: how many frames were sent, by kind.
        connections: WebSockets that are open.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.frames: Counter[str] = Counter()
        self.connections = 0
        self._latencies: dict[str, deque[float]] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]

    def delivered(self, target: str, committed_at: int) -> None:
        """Count a batch of changes of a relation, committed at a time in microseconds.

        A snapshot, which was committed at no time (0), is not counted.
        """
        if not committed_at:
            return
        kept = self._latencies.get(target)
        if kept is None:
            if len(self._latencies) >= _TARGETS:
                return
            kept = self._latencies[target] = deque(maxlen=_KEPT)
        kept.append(max(0.0, time.time() - committed_at / 1e6))

    def latencies(self) -> dict[str, tuple[float, float]]:
        """Of each relation the median and the 99th percentile of the last 512 batches."""
        found = {}
        for target, kept in self._latencies.items():
            ordered = sorted(kept)
            found[target] = (
                ordered[len(ordered) // 2],
                ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            )
        return found

"""One row every few milliseconds, and how long each takes until its callback: for all peers alike.

Needs nothing but Python's own library: it runs in the environments of the others, too.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Row = tuple[str, float, int, datetime]

ROWS = 2400
PAUSE = 0.004
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Pace:
    """Pushes rows one by one, each when the last one has been answered, and a pause has passed.

    Args:
        push: takes a row.
    """

    def __init__(self, push: Callable[[Row], object]) -> None:
        self._push = push
        self._came = threading.Event()
        self._at = 0
        self._took: list[float] = []

    def came(self) -> None:
        """The callback has been called."""
        if not self._came.is_set():
            self._at = time.perf_counter_ns()
            self._came.set()

    def run(self, then: Callable[[], object] = lambda: None) -> None:
        """Push all rows, then call a function."""
        for number in range(ROWS):
            row = (f"S{number % 20}", 1.5, 1 + number % 7, _NOON + timedelta(milliseconds=number))
            time.sleep(PAUSE)
            self._came.clear()
            began = time.perf_counter_ns()
            self._push(row)
            if not self._came.wait(30):
                raise TimeoutError(f"row {number} was not answered")
            self._took.append((self._at - began) / 1e6)
        then()

    def result(self) -> dict[str, float]:
        """The median and the 99th percentile in milliseconds, without the first third."""
        cuts = statistics.quantiles(self._took[ROWS // 3 :], n=100)
        return {"p50": cuts[49], "p99": cuts[98]}


def report(work: str, found: dict[str, float]) -> None:
    """Print what was measured as the last line, for ``peers.py`` to read."""
    print(json.dumps({work: found}))

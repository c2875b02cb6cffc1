"""What Bytewax does of the work in ``peers.py``. Run by it, where only bytewax is.

The source waits in ``next_batch`` for a row, which is its quickest way to take one. The window is
its own operator, ``window``, with a logic that gives the sum at each value, as a view does.
"""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import bytewax.operators as op  # type: ignore[import-not-found,unused-ignore]
import bytewax.operators.windowing as win  # type: ignore[import-not-found,unused-ignore]
from bytewax.dataflow import Dataflow  # type: ignore[import-not-found,unused-ignore]
from bytewax.inputs import (  # type: ignore[import-not-found,unused-ignore]
    DynamicSource,
    StatelessSourcePartition,
)
from bytewax.outputs import (  # type: ignore[import-not-found,unused-ignore]
    DynamicSink,
    StatelessSinkPartition,
)
from bytewax.testing import run_main  # type: ignore[import-not-found,unused-ignore]

from peer_pace import Pace, Row, report

MINUTE = timedelta(minutes=1)


class Rows(StatelessSourcePartition):  # type: ignore[misc,unused-ignore]
    """Rows from a queue; None ends it."""

    def __init__(self, queue: SimpleQueue[Row | None]) -> None:
        self._queue = queue

    def next_batch(self) -> list[Row]:
        """Wait for a row."""
        row = self._queue.get()
        if row is None:
            raise StopIteration
        return [row]


class Source(DynamicSource):  # type: ignore[misc,unused-ignore]
    """A source with one worker."""

    def __init__(self, queue: SimpleQueue[Row | None]) -> None:
        self._queue = queue

    def build(self, *_: object) -> Rows:
        """Its only part."""
        return Rows(self._queue)


class Called(StatelessSinkPartition):  # type: ignore[misc,unused-ignore]
    """Calls a function."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def write_batch(self, items: list[Any]) -> None:
        """Say that something came."""
        if items:
            self._pace.came()


class Sink(DynamicSink):  # type: ignore[misc,unused-ignore]
    """A sink with one worker."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def build(self, *_: object) -> Called:
        """Its only part."""
        return Called(self._pace)


class Sums(win.WindowLogic):  # type: ignore[misc,unused-ignore]
    """The sum and the number of the rows of a window, at each row."""

    def __init__(self, state: tuple[int, int] | None) -> None:
        self.state = state or (0, 0)

    def on_value(self, row: Row) -> list[tuple[int, int]]:
        """Add a row."""
        self.state = (self.state[0] + row[2], self.state[1] + 1)
        return [self.state]

    def on_merge(self, original: Sums) -> list[tuple[int, int]]:
        """Add another window; tumbling windows are not merged."""
        self.state = (self.state[0] + original.state[0], self.state[1] + original.state[1])
        return []

    def on_close(self) -> list[tuple[int, int]]:
        """Nothing is new."""
        return []

    def snapshot(self) -> tuple[int, int]:
        """What is to be kept."""
        return self.state


def measured(work: str) -> dict[str, float]:
    """The latency of one kind of work."""
    queue: SimpleQueue[Row | None] = SimpleQueue()
    pace = Pace(queue.put)
    flow = Dataflow(work)
    stream = op.input("rows", flow, Source(queue))
    if work == "filter":
        stream = op.filter("high", stream, lambda row: row[1] > 1.0)
    else:
        keyed = op.key_on("symbol", stream, lambda row: row[0])
        # Its watermark goes on with the clock of the machine, and the rows' times are slower.
        clock = win.EventClock(lambda row: row[3], wait_for_system_duration=timedelta(days=1))
        windower = win.TumblingWindower(length=MINUTE, align_to=datetime(2026, 1, 1, tzinfo=UTC))
        stream = win.window("sums", keyed, clock, windower, Sums, ordered=False).down
    op.output("called", stream, Sink(pace))
    pusher = threading.Thread(target=pace.run, args=(lambda: queue.put(None),))
    pusher.start()
    run_main(flow)
    pusher.join()
    return pace.result()


if __name__ == "__main__":
    report(sys.argv[1], measured(sys.argv[1]))

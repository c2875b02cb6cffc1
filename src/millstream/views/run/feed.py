"""A view's feed: the logs it reads, merged in LSN order, served to Spark's source.

One reader gets every commit as it comes; the feed, not Spark's clock, says when a batch ends.
Whatever Spark's checkpoint may count on is on disk before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import Error
from millstream.views.run.checkpoint import Offset
from millstream.views.run.inputs import FeedLogs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.spark.bridge.connection import Connection, ReaderWire
    from millstream.views.run.live import LiveFeed


class ViewFeed:
    """Serves one view's source.

    Args:
        live: sends what the view reads.
        on_committed: called with the LSN of each checkpoint.
        on_idle: called with an LSN up to which there is nothing more to read.

    Attributes:
        live: sends what the view reads.
        slots: how many tasks of Spark it feeds for good.
    """

    def __init__(
        self,
        live: LiveFeed,
        *,
        on_committed: Callable[[int], None],
        on_idle: Callable[[int], None],
    ) -> None:
        self.live = live
        self.slots = 1
        self._logs = FeedLogs(live.inputs, live.log)
        self._on_committed = on_committed
        self._on_idle = on_idle

    def control(
        self, wire: Connection, answering: Callable[[str, tuple[str, ...]], str] | None = None
    ) -> None:
        """Answer the driver's questions until its connection ends, by a function if it is given."""
        answer_to = answering or self._answer
        while True:
            verb, *words = wire.receive_text().split("\t")
            try:
                answer = "=" + answer_to(verb, tuple(words))
            except Error as error:
                answer = f"!{error}"
            wire.send_text(answer)

    def _answer(self, verb: str, words: Sequence[str]) -> str:
        if verb == "initial":
            return self._logs.initial_offset.json
        if verb == "committed":
            self._on_committed(Offset.of(words[0]).lsn)
        return ""

    def send_live(self, names: str, start: str, wire: ReaderWire) -> None:
        """Send some columns of every commit after an offset as it comes, until the batch ends."""
        begin = Offset.of(start)
        self._on_idle(begin.lsn)  # all before was read, or is not for this view
        self.live.serve(names.split("\x1f"), begin, self._logs.tracker_at(begin), wire)

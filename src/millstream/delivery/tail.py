"""The tail of some logs: what a view reads, in LSN order, from the log and then as it comes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from millstream.delivery.backpressure import Policy
from millstream.delivery.feed import LogFeed, MultiLogFeed
from millstream.delivery.inbox import Inbox
from millstream.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.sql import SelectPlan

_BUFFER_ROWS: Final = 1 << 17


class LogTail:
    """Batches of some logs after an LSN, as they were committed: none merged, none left out.

    Args:
        log: where they are kept.
        dispatcher: who offers what comes.
        topics: the logs.
        plan_of: the plan of a whole log.
        lsn: everything after it is wanted.
        keep: filters each batch; None: all rows are given.
    """

    def __init__(
        self,
        log: Log,
        dispatcher: Dispatcher,
        topics: tuple[str, ...],
        plan_of: Callable[[str], SelectPlan | None],
        lsn: int,
        *,
        keep: Callable[[ChangeBatch], ChangeBatch] | None = None,
    ) -> None:
        self._keep = keep
        plan = plan_of(topics[0]) if len(topics) == 1 else None
        if plan is not None:
            self._feed = LogFeed(log, dispatcher, plan)
        else:
            self._feed = MultiLogFeed(
                log,
                dispatcher,
                lambda name: plan_of(name) if name in topics else None,
                lambda: topics,
            )
        self._inbox = Inbox(self._feed, Policy.parse("block"), _BUFFER_ROWS)
        self._feed.join(self._inbox.live)
        self._inbox.log_side.start_at(lsn + 1)
        self._news = threading.Event()

    @property
    def position(self) -> int:
        """Everything up to this LSN was taken."""
        return self._inbox.progress.position

    def take(self) -> ChangeBatch | None:
        """The next batch, if there is one now.

        Raises:
            Error: there will be none any more.
        """
        batch = self._inbox.take(merge=1)
        while batch is not None and batch.gap is not None and batch.kind == "changes":
            if len(batch):
                break
            batch = self._inbox.take(merge=1)  # damage, which somebody has said is to be skipped
        if batch is not None and batch.gap is not None:
            raise PipelineError(
                f"rows before LSN {batch.first_lsn:,} are gone", hint="CREATE OR REPLACE the view"
            )
        if batch is None and self._inbox.is_over and self._inbox.live.error is not None:
            raise self._inbox.live.error.again()
        return batch if batch is None or self._keep is None else self._keep(batch)

    def wait(self, seconds: float) -> None:
        """Until there is one, or ``wake_up``, or the time is up."""
        self._news.clear()
        if self._inbox.wake_on_news(self._news.set):
            self._news.wait(seconds)
            self._inbox.live.forget(self._news.set)

    def hand_to(self, taker: Callable[[ChangeBatch | None], None]) -> bool:
        """Give the next batch to a function, in the dispatcher's thread; False: take it now.

        It is called once, with None when somebody has called ``wake_up`` instead.
        """
        keep = self._keep
        if keep is None:
            return self._inbox.hand_to(taker)
        return self._inbox.hand_to(lambda batch: taker(None if batch is None else keep(batch)))

    def wake_up(self) -> None:
        """Let who waits look around."""
        self._inbox.live.wake_up()

    def settled(self) -> int:
        """Everything up to this LSN was taken, or is of other logs."""
        return self._inbox.settled_lsn()

    def close(self) -> None:
        """Take no more."""
        self._feed.leave(self._inbox.live)
        self._inbox.discard()

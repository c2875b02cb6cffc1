"""The tail of some logs: what a view reads, in LSN order, from the log and then live."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from millstream.delivery.backpressure import Policy
from millstream.delivery.feed import LogFeed, MultiLogFeed
from millstream.delivery.inbox import Inbox
from millstream.errors import LsnNotKeptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.batch import ChangeBatch
    from millstream.sql import SelectPlan

_BUFFER_ROWS: Final = 1 << 17


class LogTail:
    """Batches of some logs after an LSN, as they were committed: not merged, none left out.

    Args:
        log: the log of the database.
        dispatcher: offers what is committed.
        topics: the names of the logs.
        plan_of: the plan that selects all rows of a log.
        lsn: where to start: after it.
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
            feed = LogFeed(log, dispatcher, plan)
        else:
            feed = MultiLogFeed(
                log,
                dispatcher,
                lambda name: plan_of(name) if name in topics else None,
                lambda: topics,
            )
        self._inbox = Inbox(feed, Policy.parse("block"), _BUFFER_ROWS)
        self._inbox.live.outlives_failures = True  # a view's changes go on when it does
        self._inbox.open()
        self._inbox.start(lsn + 1)
        self._news = threading.Event()
        self._called = False  # wake_up was, since the last wait

    @property
    def position(self) -> int:
        """Everything up to this LSN was taken."""
        return self._inbox.progress.position

    def take(self) -> ChangeBatch | None:
        """The next batch, if there is one now.

        Raises:
            Error: it has ended.
        """
        batch = self._inbox.take(merge=1)
        while batch is not None and batch.gap is not None and batch.kind == "changes":
            if len(batch):
                break
            batch = self._inbox.take(merge=1)  # damage that the user has chosen to skip
        if batch is not None and batch.gap is not None:
            raise LsnNotKeptError(
                f"retention has removed rows before LSN {batch.first_lsn:,}",
                oldest=batch.first_lsn,
                hint="CREATE OR REPLACE the view",
            )
        if batch is None and self._inbox.is_over and self._inbox.error is not None:
            raise self._inbox.error.again()
        return batch if batch is None or self._keep is None else self._keep(batch)

    def wait(self, seconds: float | None) -> None:
        """Wait until there is a batch, for ``wake_up``, or until the time is up.

        Returns at once when ``wake_up`` was called since the last wait.
        """
        self._news.clear()
        if self._inbox.wake_on_news(self._news.set):
            if not self._called:
                self._news.wait(seconds)
            self._inbox.forget(self._news.set)
        self._called = False

    def notify(self, on_news: Callable[[], None]) -> bool:
        """Register a one-shot callback for the next batch. Return False if there is one already."""
        return self._inbox.wake_on_news(on_news)

    def hand_to(self, receiver: Callable[[ChangeBatch | None], None]) -> bool:
        """Have the next batch given to a function, in the dispatcher's thread; False: take it now.

        It is called once, with None when ``wake_up`` was called before there was one.
        """
        keep = self._keep
        if keep is None:
            return self._inbox.hand_to(receiver)
        return self._inbox.hand_to(lambda batch: receiver(None if batch is None else keep(batch)))

    def wake_up(self) -> None:
        """Wake the reader, or have it not wait the next time, so that it checks its state."""
        self._called = True
        self._inbox.wake_up()

    def settled(self) -> int:
        """Everything up to this LSN was taken, or belongs to other logs."""
        return self._inbox.settled_lsn()

    def close(self) -> None:
        """End, and drop what was not taken."""
        self._inbox.close()
        self._inbox.discard()

"""Callbacks: on a thread of the subscription, or on the pusher's thread."""

from __future__ import annotations

import inspect
import logging
import threading
from queue import SimpleQueue
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Self

from millstream.dispatch import select
from millstream.errors import Error, InvalidOptionError, SubscriptionEndedError
from millstream.model.batch import ChangeBatch
from millstream.model.display import one_line, public_names
from millstream.subscriptions.subscription import Subscription
from millstream.threads import thread, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sources import Inlet
    from millstream.sql import SelectPlan

    OnChange = Callable[[ChangeBatch], object]
    OnError = Callable[[BaseException], object]
    OnComplete = Callable[[], object]

_logger = logging.getLogger("millstream.subscriptions")


def check_callback(name: str, function: object) -> None:
    """Raise unless an argument is a function that a thread can call: async functions are refused.

    Raises:
        InvalidOptionError: the argument is not callable, or its result would have to be awaited.
    """
    if not callable(function):
        raise InvalidOptionError(f"{name} is not callable: {function!r}", hint="pass a function")
    call = type(function).__call__  # of an object with __call__
    if any(map(_is_async, (function, call))):
        raise InvalidOptionError(
            f"{name} is an async function, and callbacks are not awaited",
            hint="async for batch in db.subscribe_stream(query), and await in the loop",
        )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def check_returned(returned: object) -> None:
    """Raise if a callback has returned a coroutine, which would never run."""
    if type(returned) is CoroutineType:
        returned.close()
        raise InvalidOptionError(
            "the callback has returned a coroutine, and callbacks are not awaited",
            hint="async for batch in db.subscribe_stream(query), and await in the loop",
        )


class CallbackSubscription(Subscription):
    """Calls a function with every batch, on a thread that starts with the first batch.

    When the callback raises, ``on_error`` gets the exception, and the callback is called with the
    next batch.

    A durable subscription acknowledges each batch when the callback has returned, unless it was
    opened with ``ack="manual"``. Once the callback has raised, the subscription acknowledges no
    further batch by itself, so that the failed batch is delivered again when it is opened the next
    time. It starts again once the program acknowledges the failed batch or a later one.

    Args:
        args: arguments of ``SubscriptionBase``.
        on_change: called with each batch.
        on_error: called with the exceptions of ``on_change``, and with the error that ends the
            subscription.
        on_complete: called when the database closes.
        options: keyword arguments of ``SubscriptionBase``.
    """

    style = "callback"

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - as in the docstring
        on_change: OnChange,
        on_error: OnError | None,
        on_complete: OnComplete | None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **options)
        self._acks_itself = self.ack_mode == "auto" and self._acknowledge is not None
        self._failed_at = 0  # the callback has raised: acknowledge again from this LSN on
        self._on_change = on_change
        self._on_error = on_error
        self._on_complete = on_complete
        self._slot: SimpleQueue[ChangeBatch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._started = threading.Lock()

    def start(self) -> None:
        """Start the thread, now or with the first batch."""
        if not self._inbox.wake_on_news(self._start):
            self._start()

    def _start(self) -> None:
        with self._started:
            if self._thread is None:
                self._thread = thread(f"callback-{self.id}", self._run, self._crashed)
                try:
                    self._thread.start()
                except RuntimeError as error:  # too many threads
                    self._thread = None
                    ended = SubscriptionEndedError(f"the callback's thread cannot start: {error}")
                    self._inbox.end(ended)
                    report_error(self._on_error, ended, self.sql)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while (batch := self._next()) is not None:
                if not self._cancelled:
                    self._call(batch)
        except Error as ended:
            error = ended
            self._inbox.end(ended)  # unless it has ended: the disk takes no rows
        if error is not None:
            report_error(self._on_error, error, self.sql)
        elif self._on_complete is not None and not self._cancelled:
            try:
                self._on_complete()
            except Exception as raised:  # noqa: BLE001 - of the user's code
                self.errors += 1
                report_error(self._on_error, raised, self.sql)

    def _crashed(self, error: Exception) -> None:
        """End the subscription with an error, reported to ``on_error``: its thread has ended."""
        ended = SubscriptionEndedError(
            f"the callback's thread ended: {type(error).__name__}: {error}",
            hint="subscribe again; this is a bug in Millstream, please report it",
        )
        self._inbox.end(ended)
        self._leave()
        self._inbox.discard()
        report_error(self._on_error, ended, self.sql)

    def _next(self) -> ChangeBatch | None:
        """The next batch; None at the end.

        While nothing is pending, the dispatcher puts the next batch into the slot itself, instead
        of waking this thread to look for it: that saves a quarter of the time from a push to here.
        """
        slot = self._slot
        while self._reader.is_unlimited() and self._inbox.hand_to(slot.put):
            if not self._reader.is_unlimited():  # paused just now: take it back
                self._inbox.wake_up()
            batch = slot.get()
            if batch is not None:
                if self.name is not None:
                    self._inbox.feed.log.await_durable(batch.lsn)
                return self._own(batch)
        return next(self, None)

    def _call(self, batch: ChangeBatch) -> None:
        try:
            returned = self._on_change(batch)
            if returned is not None:
                check_returned(returned)
        except BaseException as raised:  # noqa: BLE001 - of the user's code, sys.exit() included
            self.errors += 1
            acknowledged = self._acknowledged_lsn()
            if not batch.lsn or acknowledged < batch.lsn:  # a part of a snapshot is at no LSN
                self._failed_at = max(self._failed_at, batch.lsn, acknowledged + 1)
            report_error(self._on_error, raised, self.sql)
            return
        if self._acks_itself and self._acknowledged_lsn() >= self._failed_at:
            try:
                batch.ack()
            except Error as error:  # a later batch acknowledges this one, too
                report_error(self._on_error, error, self.sql)

    def _acknowledged_lsn(self) -> int:
        return 0 if self._acknowledged is None else self._acknowledged()

    def is_here(self) -> bool:
        """Whether the caller runs on its thread."""
        return self._thread is threading.current_thread()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the callback's thread to end, and return whether it has ended.

        The thread ends after ``cancel``, or when the database closes.
        """
        if self.is_here():
            return True
        with self._started:  # a thread that is there has been started
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()


def report_error(on_error: OnError | None, error: BaseException, sql: str) -> None:
    """Call the user's ``on_error`` with an error, or log it when there is none."""
    if on_error is None:
        _logger.error("a callback of %s raised", sql, exc_info=error)
        return
    try:
        on_error(error)
    except Exception:
        _logger.exception("on_error of %s raised", sql)


class InlineSubscription:
    """Calls a function on the pusher's own thread, within the push.

    This style has the lowest latency, since no other thread is involved. The callback sees rows
    before they are committed: its batches have no LSN and no token. The time that it takes delays
    the pusher, and several pushers may call it at the same time.

    Args:
        inlet: the source.
        plan: the query.
        sql: the text of the query.
        on_change: called with each batch.
        on_error: called with the exceptions of ``on_change``, and with the error that ends the
            subscription.
        on_complete: called when the database closes.

    Attributes:
        delivered: number of rows passed to the callback.
        errors: number of exceptions raised by the callback.
    """

    style = "inline"
    name: str | None = None

    def __init__(
        self,
        inlet: Inlet,
        plan: SelectPlan,
        *,
        sql: str,
        on_change: OnChange,
        on_error: OnError | None,
        on_complete: OnComplete | None,
    ) -> None:
        self.sql = sql
        self.schema: Schema = plan.schema
        self.delivered: int = 0
        self.errors: int = 0
        self._inlet = inlet
        self._plan = plan
        self._test = None if plan.predicate is None else plan.predicate.test
        self._project = None if plan.projection is None else plan.projection.row
        self._on_change = on_change
        self._on_error = on_error
        self._on_complete = on_complete
        self._is_over = False

    def row(self, row: Row) -> None:
        """Call the callback with a pushed row, if the query keeps the row."""
        try:
            if self._test is None or self._test(row):
                schema = self._inlet.schema  # a column may have been added
                if self._project is not None:
                    row, schema = self._project(row), self.schema
                self.delivered += 1
                returned = self._on_change(ChangeBatch.of_row(schema, self._inlet.name, row))
                if returned is not None:
                    check_returned(returned)
        except Exception as raised:  # noqa: BLE001 - of the user's code, or a row without a value
            self.errors += 1
            report_error(self._on_error, raised, self.sql)

    def batch(self, batch: ChangeBatch) -> None:
        """Call the callback with the rows of a pushed batch that the query keeps."""
        try:
            kept = select(batch, self._plan)
            if kept is not None:
                self.delivered += len(kept)
                returned = self._on_change(kept)
                if returned is not None:
                    check_returned(returned)
        except Exception as raised:  # noqa: BLE001 - of the user's code, or a row without a value
            self.errors += 1
            report_error(self._on_error, raised, self.sql)

    def fail(self, error: Error) -> None:
        """End with an error, reported to ``on_error``: what it reads was dropped."""
        if not self._is_over:
            self.finish(complete=False)
            report_error(self._on_error, error, self.sql)

    @property
    def state(self) -> str:
        """``active`` or ``cancelled``."""
        return "cancelled" if self._is_over else "active"

    @uninterrupted
    def cancel(self) -> None:
        """End the subscription. A second call does nothing."""
        self.finish(complete=False)

    close = cancel

    def finish(self, *, complete: bool) -> None:
        """End; ``complete`` when the database closes, and ``on_complete`` is to be called."""
        if self._is_over:
            return
        self._is_over = True
        self._inlet.remove_inline(self)
        if complete and self._on_complete is not None:
            try:
                self._on_complete()
            except Exception as raised:  # noqa: BLE001 - of the user's code
                self.errors += 1
                report_error(self._on_error, raised, self.sql)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state}: {one_line(self.sql)}>"

    def __dir__(self) -> list[str]:
        return public_names(self, {"batch", "fail", "finish", "row"})

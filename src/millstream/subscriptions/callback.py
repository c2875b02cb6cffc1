"""Callbacks: on a thread of the subscription's own, or on the pusher's."""

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

    from millstream.model.weighted_rows import Row
    from millstream.sources import Inlet
    from millstream.sql import SelectPlan

    OnChange = Callable[[ChangeBatch], object]
    OnError = Callable[[BaseException], object]
    OnComplete = Callable[[], object]

_logger = logging.getLogger("millstream.subscriptions")


def check_callback(name: str, function: object) -> None:
    """Raise unless a function can be called back from a thread: one that is async cannot.

    Raises:
        InvalidOptionError: it cannot be called, or nobody would await what it returns.
    """
    if not callable(function):
        raise InvalidOptionError(f"{name} cannot be called: {function!r}", hint="give a function")
    call = type(function).__call__  # of an object that is no function itself
    if any(map(_is_async, (function, call))):
        raise InvalidOptionError(
            f"{name} is an async function, and callbacks are not awaited",
            hint="async for batch in db.subscribe_stream(query), and await in the loop",
        )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def check_returned(returned: object) -> None:
    """Raise if a callback has given a coroutine, of which nothing has run."""
    if type(returned) is CoroutineType:
        returned.close()
        raise InvalidOptionError(
            "the callback has returned a coroutine, and callbacks are not awaited",
            hint="async for batch in db.subscribe_stream(query), and await in the loop",
        )


class CallbackSubscription(Subscription):
    """Calls back with every batch, on a thread that is started when there is the first one.

    A callback that raises is told to ``on_error``, and called again with the next batch.
    """

    style = "callback"

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - what a Subscription takes
        on_change: OnChange,
        on_error: OnError | None,
        on_complete: OnComplete | None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **options)
        self._on_change = on_change
        self._on_error = on_error
        self._on_complete = on_complete
        self._slot: SimpleQueue[ChangeBatch | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._started = threading.Lock()

    def start(self) -> None:
        """Begin to call back, now or when there is something."""
        if not self._inbox.wake_on_news(self._start):
            self._start()

    def _start(self) -> None:
        with self._started:
            if self._thread is None:
                self._thread = thread(f"callback-{self.id}", self._run, self._crashed)
                try:
                    self._thread.start()
                except RuntimeError as error:  # there are too many
                    self._thread = None
                    ended = SubscriptionEndedError(f"the callback's thread cannot start: {error}")
                    self._inbox.live.fail(ended)
                    tell(self._on_error, ended, self.sql)

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while (batch := self._next()) is not None:
                if not self._cancelled:
                    self._call(batch)
        except Error as ended:
            error = ended
        if error is not None:
            tell(self._on_error, error, self.sql)
        elif self._on_complete is not None and not self._cancelled:
            try:
                self._on_complete()
            except Exception as raised:  # noqa: BLE001 - the user's own
                self.errors += 1
                tell(self._on_error, raised, self.sql)

    def _crashed(self, error: Exception) -> None:
        """There will be no more calls: the reader is told."""
        ended = SubscriptionEndedError(
            f"the callback's thread ended: {type(error).__name__}: {error}",
            hint="subscribe again; this is a bug in Millstream, please report it",
        )
        self._inbox.live.fail(ended)
        self._leave()
        self._inbox.discard()
        tell(self._on_error, ended, self.sql)

    def _next(self) -> ChangeBatch | None:
        """The next batch; None at the end.

        One that waits with nothing before it is handed the next batch itself, and need not be woken
        to find it: that is a quarter of the way from a push to here.
        """
        slot = self._slot
        while self._may_be_handed() and self._inbox.hand_to(slot.put):
            if not self._may_be_handed():  # paused just now: take it back
                self._inbox.live.wake_up()
            batch = slot.get()
            if batch is not None:
                return batch
        return next(self, None)

    def _call(self, batch: ChangeBatch) -> None:
        try:
            returned = self._on_change(batch)
            if returned is not None:
                check_returned(returned)
        except BaseException as raised:  # noqa: BLE001 - the user's own, sys.exit() included
            self.errors += 1
            tell(self._on_error, raised, self.sql)

    def is_here(self) -> bool:
        """Whether this is its thread."""
        return self._thread is threading.current_thread()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end, after ``cancel`` or when the database closes."""
        if self.is_here():
            return True
        with self._started:  # the thread is there, and runs
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()


def tell(on_error: OnError | None, error: BaseException, sql: str) -> None:
    """Tell the user's ``on_error``, or the log of the program when there is none."""
    if on_error is None:
        _logger.error("a callback of %s raised", sql, exc_info=error)
        return
    try:
        on_error(error)
    except Exception:
        _logger.exception("on_error of %s raised", sql)


class InlineSubscription:
    """Calls back on the pusher's own thread, within the push.

    The quickest way there is: nothing is handed from thread to thread. It sees what is pushed,
    before it has a place in the log: its batches have no LSN and no token. What it does delays the
    pusher, and several pushers call it at once.

    Attributes:
        delivered: how many rows it was called with.
        errors: how many times it has raised.
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
        self.schema = plan.schema
        self.delivered = 0
        self.errors = 0
        self._inlet = inlet
        self._plan = plan
        self._test = None if plan.predicate is None else plan.predicate.test
        self._project = None if plan.projection is None else plan.projection.row
        self._on_change = on_change
        self._on_error = on_error
        self._on_complete = on_complete
        self._is_over = False

    def row(self, row: Row) -> None:
        """One row was pushed."""
        try:
            if self._test is None or self._test(row):
                schema = self._inlet.schema  # a column may have been added
                if self._project is not None:
                    row, schema = self._project(row), self.schema
                self.delivered += 1
                returned = self._on_change(ChangeBatch.of_row(schema, self._inlet.name, row))
                if returned is not None:
                    check_returned(returned)
        except Exception as raised:  # noqa: BLE001 - the user's own, or a row without a value
            self.errors += 1
            tell(self._on_error, raised, self.sql)

    def batch(self, batch: ChangeBatch) -> None:
        """Several rows were pushed as one."""
        try:
            kept = select(batch, self._plan)
            if kept is not None:
                self.delivered += len(kept)
                returned = self._on_change(kept)
                if returned is not None:
                    check_returned(returned)
        except Exception as raised:  # noqa: BLE001 - the user's own, or a row without a value
            self.errors += 1
            tell(self._on_error, raised, self.sql)

    def fail(self, error: Error) -> None:
        """What it reads was dropped."""
        if not self._is_over:
            self.finish(told=False)
            tell(self._on_error, error, self.sql)

    @property
    def state(self) -> str:
        """Whether it is active or cancelled."""
        return "cancelled" if self._is_over else "active"

    @uninterrupted
    def cancel(self) -> None:
        """Call back no more. Twice is fine."""
        self.finish(told=False)

    close = cancel

    def finish(self, *, told: bool) -> None:
        """End; ``told`` when it ends because the database closes, and not by its own wish."""
        if self._is_over:
            return
        self._is_over = True
        self._inlet.remove_inline(self)
        if told and self._on_complete is not None:
            try:
                self._on_complete()
            except Exception as raised:  # noqa: BLE001 - the user's own
                self.errors += 1
                tell(self._on_error, raised, self.sql)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state}: {one_line(self.sql)}>"

    def __dir__(self) -> list[str]:
        return public_names(self, {"batch", "fail", "finish", "row"})

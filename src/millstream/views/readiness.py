"""Readiness: whether views count what was committed before a read, and waiting until they do.

A view that reads other views is ready when they are, and when it has taken in their changes. A view
that was opened with saved rows is readable at once, until it has caught up for the first time.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ClosedError,
    ObjectNotFoundError,
    QueryTimeoutError,
    ViewNotReadyError,
)
from millstream.threads import deadline_of, time_left, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.dispatch import Dispatcher
    from millstream.views.running import RunningView
    from millstream.views.views import Views

READ_SECONDS: Final = 30.0
"""How long a read waits for the views that it reads, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a read treats views that do not count yet what was committed before it.

    Attributes:
        stale_ok: read the rows that they have, without waiting.
        timeout: for how many seconds to wait for them; None: as long as it takes.
    """

    stale_ok: bool = False
    timeout: float | None = READ_SECONDS


READ_OPTIONS: Final = ReadOptions()
"""Those of a read that says nothing else."""


class _Wait:
    """A thread that waits for views.

    Attributes:
        is_interrupted: whether it is to wait no longer.
        wake: has the thread look at that.
    """

    def __init__(self) -> None:
        self.is_interrupted = False
        self.wake: Callable[[], None] = lambda: None


class Readiness:
    """Waits for the views of one database.

    Args:
        views: the views that run.
        dispatcher: knows what was committed.
    """

    def __init__(self, views: Views, dispatcher: Dispatcher) -> None:
        self._views = views
        self._dispatcher = dispatcher
        self._waiting: dict[int, _Wait] = {}  # by thread

    def is_ready(self, name: str) -> bool:
        """Whether a relation counts everything committed so far; one that is no view does."""
        running = self._views.get(name)
        return running is None or self._is_ready(running)

    def _is_ready(self, running: RunningView, *, as_saved: bool = True) -> bool:
        """Whether a view counts everything; ``as_saved``: or may be read as it was saved."""
        progress, views = running.view.progress, self._views
        if progress.shows_saved_rows:
            return as_saved
        newest = self._dispatcher.fan_out.newest
        for each in running.planned.inputs:
            lower = views.get(each)
            if lower is not None and not self._is_ready(lower, as_saved=as_saved):
                return False
            if not progress.is_at(newest(each)):
                return False
        return True

    def wait(self, names: Iterable[str], options: ReadOptions) -> tuple[str, ...]:
        """Wait until relations count everything committed before this call.

        Returns:
            The views that are to be read although they do not.

        Raises:
            ViewNotReadyError: the time is up.
            ViewFailedError: the query of a view cannot go on.
            LogFullError: the disk is full, and a view waits for room.
            ClosedError: the database is being closed.
        """
        views = [(name, self._views.get(name)) for name in names]
        late = [name for name, each in views if each and not self._is_ready(each, as_saved=False)]
        if not late:
            return ()
        awaited = [] if options.stale_ok else [name for name in late if not self.is_ready(name)]
        if awaited:
            self._wait_for(awaited, options)
        return tuple(name for name in late if name not in awaited)

    def _wait_for(self, names: Iterable[str], options: ReadOptions) -> None:
        thread, wait = threading.get_ident(), _Wait()
        deadline = deadline_of(options.timeout)
        self._waiting[thread] = wait
        try:
            for name in names:
                while not self._wait_through(name, deadline, wait):
                    pass
        finally:
            del self._waiting[thread]

    def interrupt(self, thread: int) -> None:
        """End the wait of a thread for views, if it waits, with an error."""
        wait = self._waiting.get(thread)
        if wait is not None:
            wait.is_interrupted = True
            wait.wake()

    def when_ready(self, name: str, call: Callable[[], None]) -> bool:
        """Register a one-shot callback for when a view counts everything committed so far.

        Returns:
            False, and the callback is not called, if it does already.
        """
        if self.is_ready(name):
            return False
        steps = self._steps(self._views[name])

        def go_on() -> None:
            for running, lsn in steps:
                running.runner.probe(lsn)
                if running.view.progress.when_at(lsn, go_on):
                    return
            call()

        go_on()
        return True

    def _steps(self, running: RunningView) -> Iterator[tuple[RunningView, int]]:
        """The views to wait for, one after the other, each with the LSN that it must take in.

        An LSN is looked up when its turn comes: the views before it have committed by then.
        """
        if running.view.progress.shows_saved_rows:
            return
        for each in running.planned.inputs:
            lower = self._views.get(each)
            if lower is not None:
                yield from self._steps(lower)
        newest = self._dispatcher.fan_out.newest
        yield running, max(map(newest, running.planned.inputs), default=0)

    def _wait_through(self, name: str, deadline: float | None, wait: _Wait) -> bool:
        """Wait for a view and those that it reads; False if one was replaced meanwhile."""
        shown = self._views.get(name)
        if shown is None:  # dropped, or failed: who reads it is told why
            return True
        for running, lsn in self._steps(shown):
            progress = running.view.progress
            wait.wake = progress.wake
            uninterrupted(running.runner.probe)(lsn)
            try:
                is_there = progress.wait_for(
                    lsn, time_left(deadline, None), lambda: wait.is_interrupted
                )
            except (ClosedError, ObjectNotFoundError):
                self._wait_for_successor(running, deadline, wait)
                return False
            if not is_there:
                raise _not_ready(name, running, wait)
        return True

    def _wait_for_successor(
        self, stopped: RunningView, deadline: float | None, wait: _Wait
    ) -> None:
        """Wait until another view is in the place of one that was stopped, or none."""
        views, progress = self._views, stopped.view.progress

        def is_over() -> bool:
            return (
                views.is_closed
                or views.get(stopped.view.name) is not stopped
                or progress.error is not None
                or wait.is_interrupted
            )

        wait.wake = views.moved.wake
        if not views.moved.wait(is_over, time_left(deadline, None)) or wait.is_interrupted:
            raise _not_ready(stopped.view.name, stopped, wait)
        if views.is_closed:
            raise ClosedError("the database is closed", hint="open it again")


def _not_ready(name: str, late: RunningView, wait: _Wait) -> ViewNotReadyError | QueryTimeoutError:
    """The error of a read whose time is up, or that was interrupted."""
    if wait.is_interrupted:
        return QueryTimeoutError(f"the read of {name} was interrupted while it waited for the view")
    other = "" if late.view.name == name else f" {late.view.name}, which it reads, is late:"
    return ViewNotReadyError(
        f"{name} has not processed what was committed before the read, and the time is up:{other} "
        f"its query is {late.state}",
        hint="stale_ok=True reads the rows that it has; timeout= waits longer; see SHOW VIEWS",
    )

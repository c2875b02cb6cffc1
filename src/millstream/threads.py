"""Threads: work that no signal stops halfway, waiting, and threads that report their crash.

A signal handler that raises (Ctrl-C raises ``KeyboardInterrupt``) does so in the main thread,
between any two of its calls: with a lock half acquired, a counter half raised. No signal reaches
any other thread. So what must not stop halfway is done by a helper thread when it is called from
the main one, and the main thread only waits, which may end at any moment. See decision 0022.

What the main thread does itself keeps to three rules. A lock is taken by ``with lock:`` on a plain
lock, which is one step of the interpreter; never by ``acquire()`` and ``try``, and never through a
``Condition`` or an ``Event``, which are Python code. What changes under it changes by single
assignments, or without a call in between: the interpreter looks for signals after calls, at the
beginning of functions and at jumps back. No thread ever waits for the main one. (Nor does it ask
whether a thread ``is_alive``: interrupted there, Python takes the thread for ended.)
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast, overload

from millstream.errors import Error, InvalidOptionError

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_EXIT_SECONDS: Final = 10.0

_logger = logging.getLogger("millstream.threads")


# ---- what a signal must not stop


class _Job(Generic[T]):
    """A call that another thread makes; ``result`` is set when it has returned."""

    __slots__ = ("call", "done", "error", "result")

    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.done = threading.Lock()
        self.done.acquire()
        self.result: T
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.call()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            self.error = error
        self.done.release()

    def check(self) -> None:
        """Raise what the call has raised, and drop it, since its frames refer to this job."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error


class _Helper:
    """A thread that runs jobs for the main one, until this object is gone."""

    __slots__ = ("jobs", "last")

    def __init__(self) -> None:
        self.last: threading.Lock | None = None  # is held until its last job is done
        jobs = self.jobs = SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=_work, args=(jobs,), name="millstream-helper", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether its last job still runs, although the main thread waits no more."""
        return self.last is not None and self.last.locked()

    def __del__(self) -> None:
        self.jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # and with it its result, if nothing else refers to that


class _Main:
    """The main thread of this process, and its helper."""

    __slots__ = ("abandoned", "helper", "ident")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start without a helper, as in a child process: threads do not survive a fork."""
        self.ident = threading.main_thread().ident
        self.helper: _Helper | None = None
        self.abandoned: list[threading.Lock] = []  # of jobs that still run, with no waiter

    def replace(self, helper: _Helper) -> None:
        """Use another helper from now on."""
        old = self.helper
        if old is not None and old.last is not None:
            self.abandoned = [job for job in (*self.abandoned, old.last) if job.locked()]
        self.helper = helper


_MAIN = _Main()
os.register_at_fork(after_in_child=_MAIN.begin)


def in_main_thread() -> bool:
    """Whether this is the thread that signals may interrupt."""
    return threading.get_ident() == _MAIN.ident


@atexit.register
def _finish() -> None:
    """Wait for jobs that still run although their caller was interrupted: a close, say."""
    deadline = time.monotonic() + _EXIT_SECONDS
    last = None if _MAIN.helper is None else _MAIN.helper.last
    for job in _MAIN.abandoned if last is None else (*_MAIN.abandoned, last):
        job.acquire(timeout=max(0.0, deadline - time.monotonic()))


@overload
def uninterrupted(function: F, /) -> F: ...


@overload
def uninterrupted(*, undo: Callable[[Any], object]) -> Callable[[F], F]: ...


def uninterrupted(
    function: F | None = None, /, *, undo: Callable[[Any], object] | None = None
) -> F | Callable[[F], F]:
    """Make a function that is never stopped halfway by a signal, in whichever thread it is called.

    Called in the main thread, it is run by another one, and the main thread waits. When a signal
    handler raises meanwhile, the call raises at once, and the function runs on to its end.

    Args:
        function: what must not be stopped.
        undo: called with its result, if that never reached the caller.
    """
    if function is None:
        return lambda each: _protected(each, undo)
    return _protected(function, undo)


def _protected(function: F, undo: Callable[[Any], object] | None) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        if not in_main_thread():
            return function(*args, **kwargs)
        return _delegate(_Job(functools.partial(function, *args, **kwargs)), undo)

    return cast("F", call)


def _delegate(job: _Job[T], undo: Callable[[T], object] | None) -> T:
    helper = _MAIN.helper
    if helper is None or helper.is_busy:
        try:
            helper = _Helper()
        except RuntimeError:  # no thread can be started any more: the interpreter ends
            return job.call()
        _MAIN.replace(helper)
    try:
        # Nothing can come between these two: neither a signal nor the garbage collector.
        helper.last = job.done
        helper.jobs.put(job.run)
        with job.done:  # held until the job is done
            pass
        job.check()
    except BaseException:
        if undo is not None:
            helper.jobs.put(functools.partial(_undo, job, undo))
        raise
    return job.result


def _undo(job: _Job[T], undo: Callable[[T], object]) -> None:
    if hasattr(job, "result"):
        try:
            undo(job.result)
        except Exception:
            _logger.exception("the result of an interrupted call could not be undone")


# ---- waiting


class Waiters:
    """Threads that wait until a condition holds: a condition variable without a lock.

    A thread that is interrupted while it waits leaves nothing behind. Change what the condition
    looks at first, then wake them.

    Attributes:
        asleep: a lock for each thread that waits.
    """

    __slots__ = ("asleep",)

    def __init__(self) -> None:
        self.asleep: list[threading.Lock] = []

    def wait(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until a condition holds; False when it did not within ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not holds():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._sleep(holds, left)
        return True

    def _sleep(self, holds: Callable[[], bool], seconds: float | None) -> None:
        asleep = threading.Lock()
        asleep.acquire()
        self.asleep.append(asleep)
        try:
            if not holds():  # it may hold since before this thread could be woken
                asleep.acquire(timeout=-1 if seconds is None else seconds)
        finally:
            with contextlib.suppress(ValueError):
                self.asleep.remove(asleep)

    def wake(self) -> None:
        """Let all of them check their condition again."""
        for asleep in tuple(self.asleep):
            with contextlib.suppress(RuntimeError):  # it was woken already
                asleep.release()


def deadline_of(timeout: float | None) -> float | None:
    """The moment at which a timeout is up; None: never.

    Raises:
        InvalidOptionError: it is no number of seconds.
    """
    if timeout is None:
        return None
    if type(timeout) is bool or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidOptionError(
            f"timeout is {timeout!r}",
            hint="a number of seconds, at least 0; or None, to wait without limit",
        )
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout


def time_left(deadline: float | None, wait: float | None) -> float | None:
    """For how many seconds to sleep: until a deadline, at most for a wait. None: no limit."""
    if deadline is None:
        return wait
    left = max(0.0, deadline - time.monotonic())
    return left if wait is None else min(left, wait)


# ---- threads of our own


def thread(
    name: str, body: Callable[[], object], crashed: Callable[[Exception], object]
) -> threading.Thread:
    """A daemon thread, not started yet, whose crash is logged and passed to its owner.

    Args:
        name: its name, after ``millstream-``.
        body: what it runs.
        crashed: called with the exception that ends ``body``; fails what depends on the thread.
    """

    def run() -> None:
        try:
            body()
        except Exception as error:
            _logger.exception("the thread millstream-%s ended; this is a bug in Millstream", name)
            crashed(error)

    return threading.Thread(target=run, name=f"millstream-{name}", daemon=True)


# ---- how producers and the dispatcher wait for each other


class Wakeup:
    """Wakes one thread, from any other: the dispatcher, from producers.

    The dispatcher says that it is about to sleep, looks at the buffers once more, and sleeps. A
    producer appends first and looks at ``asleep`` second. So either the dispatcher sees the row, or
    the producer sees the sleeper: no wake-up is lost, and a dispatcher at work is never disturbed.

    Attributes:
        asleep: whether that thread sleeps, or is about to.
    """

    __slots__ = ("_wakes", "asleep")

    def __init__(self) -> None:
        self.asleep = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        """Wake the sleeper; one wake too many only makes it look for work once more.

        No signal can come between the two lines, since there is no call between them.
        """
        self.asleep = False
        self._wakes.put(None)

    def sleep(self, timeout: float | None = None) -> bool:
        """Wait for ``wake``; False when it was not called within ``timeout`` seconds.

        Set ``asleep`` and look for work before.
        """
        try:
            self._wakes.get(timeout=timeout)
        except Empty:
            return False
        finally:
            self.asleep = False
        return True


class Completion:
    """Lets a thread wait until its commit is done, or has failed.

    Attributes:
        lsn: the last LSN that was handed out by then.
        error: why it has failed, or None.
    """

    __slots__ = ("_done", "error", "lsn")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.lsn = 0
        self._done = threading.Lock()
        self._done.acquire()

    def settle(self, lsn: int, error: BaseException | None = None) -> None:
        """End the wait, with an error if there is one; only the first call counts."""
        if not self._done.locked():
            return
        self.lsn, self.error = lsn, error
        with contextlib.suppress(RuntimeError):  # settled just now
            self._done.release()

    def wait(self) -> None:
        """Wait until it is settled; raises the error that it was settled with."""
        with self._done:
            pass
        if self.error is not None:
            raise self.error.again() if isinstance(self.error, Error) else self.error

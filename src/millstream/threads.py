"""Threads: whose work a signal cannot stop halfway, who waits, and who hears of a crash.

A signal handler that raises (Ctrl-C raises ``KeyboardInterrupt``) does so in the main thread,
between any two of its calls: with a lock half acquired, a counter half raised. No signal reaches
any other thread. So what must not stop halfway is done by another thread when the main one asks
for it, and the main thread only waits, which may end at any moment. See decision 0022.

What the main thread does itself keeps to three rules. A lock is taken by ``with lock:`` on a plain
lock, which is one step of the interpreter; never by ``acquire()`` and ``try``, and never through a
``Condition`` or an ``Event``, which are Python code. What changes under it changes by single
assignments, or without a call in between: the interpreter looks for signals after calls, at the
beginning of functions and at jumps back. Nobody ever waits for the main thread. (Nor does it ask
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
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast, overload

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

_EXIT_SECONDS: Final = 10.0

_logger = logging.getLogger("millstream.threads")


# ---- what a signal must not stop


class _Job(Generic[T]):
    """A call that another thread makes; ``result`` is there when it gave one."""

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
        except BaseException as error:  # noqa: BLE001 - raised where the call was asked for
            self.error = error
        self.done.release()

    def check(self) -> None:
        """Raise what the call has raised, and forget it: it knows the frames that know this job."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error


class _Deputy:
    """A thread that works for the main one, as long as this object is there."""

    __slots__ = ("jobs", "last")

    def __init__(self) -> None:
        self.last: threading.Lock | None = None  # is held until its last job is done
        jobs = self.jobs = SimpleQueue[Callable[[], None] | None]()
        threading.Thread(target=_work, args=(jobs,), name="millstream-deputy", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether its last job goes on, although nobody waits for it any more."""
        return self.last is not None and self.last.locked()

    def __del__(self) -> None:
        self.jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # and with it what it gave, if nobody waits for that


class _Main:
    """What is known of the main thread of this process."""

    __slots__ = ("abandoned", "deputy", "ident")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew, as in a child process: threads do not survive a fork."""
        self.ident = threading.main_thread().ident
        self.deputy: _Deputy | None = None
        self.abandoned: list[threading.Lock] = []  # jobs that go on, though nobody waits for them

    def replace(self, deputy: _Deputy) -> None:
        """Let another one work from now on."""
        old = self.deputy
        if old is not None and old.last is not None:
            self.abandoned = [job for job in (*self.abandoned, old.last) if job.locked()]
        self.deputy = deputy


_MAIN = _Main()
os.register_at_fork(after_in_child=_MAIN.begin)


@atexit.register
def _finish() -> None:
    """Wait, for a while, for what goes on although its caller was interrupted: a close, say."""
    deadline = time.monotonic() + _EXIT_SECONDS
    last = None if _MAIN.deputy is None else _MAIN.deputy.last
    for job in _MAIN.abandoned if last is None else (*_MAIN.abandoned, last):
        job.acquire(timeout=max(0.0, deadline - time.monotonic()))


@overload
def uninterrupted(function: F, /) -> F: ...


@overload
def uninterrupted(*, undo: Callable[[Any], object]) -> Callable[[F], F]: ...


def uninterrupted(
    function: F | None = None, /, *, undo: Callable[[Any], object] | None = None
) -> F | Callable[[F], F]:
    """A function that is never stopped halfway by a signal, whoever calls it.

    The main thread has it run by another one, and waits. When a signal handler raises meanwhile, it
    raises at once, and the function goes on to its end.

    Args:
        function: what must not be stopped.
        undo: called with what it gave, if that never reached the caller.
    """
    if function is None:
        return lambda each: _protected(each, undo)
    return _protected(function, undo)


def _protected(function: F, undo: Callable[[Any], object] | None) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        if threading.get_ident() != _MAIN.ident:
            return function(*args, **kwargs)
        return _delegate(_Job(functools.partial(function, *args, **kwargs)), undo)

    return cast("F", call)


def _delegate(job: _Job[T], undo: Callable[[T], object] | None) -> T:
    deputy = _MAIN.deputy
    if deputy is None or deputy.is_busy:
        try:
            deputy = _Deputy()
        except RuntimeError:  # no thread can be started any more: the interpreter ends
            return job.call()
        _MAIN.replace(deputy)
    try:
        # Nothing can come between these two: neither a signal nor the garbage collector.
        deputy.last = job.done
        deputy.jobs.put(job.run)
        with job.done:  # held until the job is done
            pass
        job.check()
    except BaseException:
        if undo is not None:
            deputy.jobs.put(functools.partial(_undo, job, undo))
        raise
    return job.result


def _undo(job: _Job[T], undo: Callable[[T], object]) -> None:
    if hasattr(job, "result"):
        try:
            undo(job.result)
        except Exception:
            _logger.exception("what nobody waits for could not be undone")


# ---- waiting


class Waiters:
    """Threads that wait until something is so: a condition variable without a lock.

    Who is interrupted while it waits leaves nothing behind. Change what they wait for, then wake
    them.
    """

    __slots__ = ("asleep",)

    def __init__(self) -> None:
        self.asleep: list[threading.Lock] = []

    def wait(self, is_so: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until it is so; False when it was not in so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_so():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._sleep(is_so, left)
        return True

    def _sleep(self, is_so: Callable[[], bool], seconds: float | None) -> None:
        asleep = threading.Lock()
        asleep.acquire()
        self.asleep.append(asleep)
        try:
            if not is_so():  # it may have become so before this thread could be woken
                asleep.acquire(timeout=-1 if seconds is None else seconds)
        finally:
            with contextlib.suppress(ValueError):
                self.asleep.remove(asleep)

    def wake(self) -> None:
        """Let all of them look again."""
        for asleep in tuple(self.asleep):
            with contextlib.suppress(RuntimeError):  # it was woken already
                asleep.release()


# ---- threads of our own


def thread(
    name: str, body: Callable[[], object], crashed: Callable[[Exception], object]
) -> threading.Thread:
    """A thread of Millstream's own, to be started; what it did not foresee goes to its owner.

    Args:
        name: what it is called, after ``millstream-``.
        body: what it does.
        crashed: called with what ``body`` raises; reports it to whoever depends on the thread.
    """

    def run() -> None:
        try:
            body()
        except Exception as error:
            _logger.exception("the thread millstream-%s ended; this is a bug in Millstream", name)
            crashed(error)

    return threading.Thread(target=run, name=f"millstream-{name}", daemon=True)

"""The dispatcher: one thread that drains the inlets, commits, and fans out.

It is put together here: ``cut`` has what is drained, ``tasks`` what others want done between two
commits, ``commit`` what becomes of both, ``route`` the subscribers, and ``loop`` the thread.

A task runs after the commit of everything that was pushed before it was handed in. While the log
takes nothing, tasks that only read go on to run.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, TypeVar

from millstream.dispatch.commit import Committer
from millstream.dispatch.cut import DrainedInlets
from millstream.dispatch.loop import Loop
from millstream.dispatch.route import FanOut
from millstream.dispatch.tasks import CallTask, Commit, Tasks
from millstream.errors import ClosedError
from millstream.threads import Wakeup, in_main_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from millstream.dispatch.tasks import Applied, Batches
    from millstream.errors import LogError
    from millstream.log import Log
    from millstream.sources.inlet import Inlet

T = TypeVar("T")


class Dispatcher:
    """Ring 1, and the face of this package: all that others ask of its parts goes through here.

    Runs from construction until ``stop``.

    Attributes:
        wakeup: producers wake the dispatcher with it.
        inlets: the inlets that it drains.
        fan_out: the routes to its subscribers.
        tasks: what waits to be done after the commit at hand.
    """

    def __init__(self, log: Log) -> None:
        self.wakeup = Wakeup()
        self.fan_out = FanOut(log.lsn)
        self.tasks = Tasks(self.wakeup)
        self.inlets = DrainedInlets(self.tasks.waiting)
        self._committer = Committer(log, self.inlets, self.tasks, self.fan_out)
        self._loop = Loop(self.wakeup, self.inlets, self.tasks, self._committer, self.fan_out)
        self._forks = _FORKS.count
        _RUNNING.add(self.inlets)
        self._loop.start()

    @property
    def lsn(self) -> int:
        """The last LSN that was handed out, or is just being."""
        return self.fan_out.lsn

    # ---- what flows in

    def add(self, inlet: Inlet) -> None:
        """Drain one more inlet."""
        self.inlets.add(inlet)

    def remove(self, inlet: Inlet) -> None:
        """Drain an inlet no more, and discard what is held for it. In the dispatcher's thread."""
        self.inlets.remove(inlet)
        self._committer.forget(inlet.name)

    def commit(
        self,
        batches: Batches | Callable[[], Batches],
        applied: Applied | None = None,
        *,
        sync: bool = False,
    ) -> int:
        """Commit changes; returns the last LSN once they are applied and handed to subscribers.

        Args:
            batches: the topics and what is added to them, or a function that returns them then.
            applied: called with the batches at their places, before any subscriber gets them.
            sync: whether the commit is complete only when they are on the disk.
        """
        commit = Commit(batches, applied, sync=sync)
        self._hand_in(commit)
        commit.completion.wait()
        return commit.completion.lsn

    def commit_here(
        self, batches: Batches | Callable[[], Batches], applied: Applied | None = None
    ) -> int:
        """Commit changes, in this thread if no cycle is running, so that no thread is woken for it.

        Not in the main thread, where Ctrl-C could end a cycle anywhere. Returns the last LSN once
        they are applied and handed to subscribers; ``together`` says when these wake up.
        """
        if not (in_main_thread() or self.is_forked):
            lsn = self._loop.commit_here(batches, applied)
            if lsn is not None:
                return lsn
        return self.commit(batches, applied)

    def together(self) -> AbstractContextManager[None]:
        """A block at whose end subscribers get what ``commit_here`` commits in it, all together.

        For one thread of the database. What other threads commit meanwhile is not held up.
        """
        return self._loop.together()

    def commit_inside(self, batches: Batches) -> None:
        """Commit changes from within a function that the dispatcher's thread runs."""
        self._committer.add_to_log()
        self._committer.run(batches)

    def post(self, batches: Callable[[], Batches], applied: Applied, *, sync: bool) -> None:
        """Commit changes, some time soon; while the log takes nothing, they wait for it."""
        commit = Commit(batches, applied, sync=sync)
        commit.is_posted = True
        self._hand_in(commit)

    def soon(self, function: Callable[[], None]) -> None:
        """Run a function in the dispatcher's thread some time, or never if the dispatcher ends.

        Takes no lock: it may be called from a finalizer.
        """
        if not (self.is_forked or self._committer.failure):
            self.tasks.add(CallTask(function))

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the dispatcher's thread, after all that was pushed so far."""
        if self.is_here():
            return function()
        call = CallTask(function)
        self._hand_in(call)
        call.completion.wait()
        result: T = call.result
        return result

    def barrier(self, *, complete: bool = False) -> int:
        """Wait until all that was pushed so far is committed and handed to subscribers.

        Returns the last LSN. While the log takes nothing, rows that no thread waits for are not
        committed: then this returns without them.

        Raises:
            LogError: with ``complete``, why some rows could not be committed.
        """
        lsn, stalled = self.call(self._reached)
        if complete and stalled is not None:
            # It may be of a try that began before this call. Each cycle begins with another one.
            lsn, stalled = self.call(self._reached)
            if stalled is not None:
                raise stalled.again()
        return lsn

    def _reached(self) -> tuple[int, LogError | None]:
        return self.lsn, self.inlets.stalled

    def wait_for_retry(self) -> bool:
        """After the log took nothing, wait for the time to try again; False when this ends."""
        return self._loop.wait_for_retry()

    def is_here(self) -> bool:
        """Whether this is the dispatcher's thread, or another one that runs a cycle for it."""
        return self._loop.is_here()

    def _hand_in(self, task: Commit | CallTask) -> None:
        self.check()
        self.tasks.add(task)
        if self._committer.failure is not None or self._loop.is_over:
            # It stopped just now, perhaps before it saw the task.
            self.tasks.refuse(self.lsn, self._committer.failure or _closed())

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that opened the database."""
        return self._forks != _FORKS.count

    def check(self) -> None:
        """Raise if nothing is taken any more."""
        if self.is_forked:
            raise forked()
        if self._committer.failure is not None:
            raise self._committer.failure.again()

    def stop(self) -> None:
        """Commit what is there, and end. Twice is fine.

        Raises:
            LogError: the log takes nothing, and what was pushed is lost; it says how much.
        """
        self._loop.stop()
        committer = self._committer
        if committer.failure is None:
            committer.failure = _closed()
        self.tasks.refuse(self.lsn, committer.failure)
        lost, committer.lost = committer.lost, None
        if lost is not None:
            raise lost


def make_durable(dispatcher: Dispatcher, log: Log) -> int:
    """Wait until all pushed rows are on the disk and delivered; returns the last LSN.

    Raises:
        LogFullError: the disk is full; pushed rows are kept in memory until there is room.
    """
    lsn = dispatcher.barrier(complete=True)
    log.flush()
    return lsn


def make_readable(dispatcher: Dispatcher, log: Log) -> int:
    """Wait until all pushed rows can be read from the log; returns the last LSN.

    Raises:
        LogFullError: the disk is full; pushed rows are kept in memory until there is room.
    """
    lsn = dispatcher.barrier(complete=True)
    log.appender.wait_written(lsn)
    return lsn


def _closed() -> ClosedError:
    return ClosedError("the database is closed", hint="open it again")


def forked() -> ClosedError:
    """The error in a process that was forked from the one that opened the database."""
    return ClosedError(
        "this database was opened before a fork",
        hint="open it in one process only, after the fork",
    )


class _Forks:
    """Counts the forks between the first process and this one."""

    count = 0


_FORKS = _Forks()
_RUNNING: weakref.WeakSet[DrainedInlets] = weakref.WeakSet()


def _in_child() -> None:
    """Threads do not survive a fork: let every producer in the child hear it at once."""
    _FORKS.count += 1
    for inlets in _RUNNING:
        inlets.close(forked(), abandon=False)


os.register_at_fork(after_in_child=_in_child)

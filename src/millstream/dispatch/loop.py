"""The loop: the dispatcher's thread, which runs one cycle after another.

A cycle takes a cut of all buffers, commits what it holds, and runs the tasks that were handed in by
then. Another thread that commits may run a cycle itself while none is running, which spares two
wake-ups: there is one cycle at a time, whichever thread runs it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.dispatch.cut import commits, drained, exact_cut
from millstream.dispatch.tasks import Commit
from millstream.errors import LogError, LogFailedError, RowTooLargeError
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.dispatch.commit import Committer
    from millstream.dispatch.cut import DrainedInlets
    from millstream.dispatch.route import FanOut
    from millstream.dispatch.tasks import Applied, Batches, CallTask, Tasks
    from millstream.errors import Error
    from millstream.model.batch import ChangeBatch
    from millstream.threads import Completion, Wakeup

_RETRY: Final = 0.5
"""Seconds after which a log that takes nothing is tried again."""

_LINGER: Final = 0.001
"""Seconds after which the thread looks whether it is quiet, and writes rows to the log."""

_QUIET: Final = 0.0005
"""It is quiet when nothing was committed for so many seconds."""


class Loop:
    """The thread, and the cycles. Runs from ``start`` until ``stop``.

    Attributes:
        is_over: whether the thread runs no more cycles.
    """

    def __init__(
        self,
        wakeup: Wakeup,
        inlets: DrainedInlets,
        tasks: Tasks,
        committer: Committer,
        fan_out: FanOut,
    ) -> None:
        self.is_over = False
        self._wakeup = wakeup
        self._inlets = inlets
        self._tasks = tasks
        self._committer = committer
        self._fan_out = fan_out
        self._completions: list[Completion] = []  # of the cycle at hand
        self._is_stopping = False
        self._stopped = threading.Event()  # set with it
        self._cycling = threading.Lock()  # held by the thread that runs a cycle
        self._cycling_thread = 0
        self._gathering_thread = 0  # hands on what it commits later, several commits together
        self._committed_at = 0.0  # by the monotonic clock
        self._lingers = False  # whether the thread will soon look at what is to be written
        self._thread = thread("dispatcher", self._run, self._crashed)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Commit what is there, and end the thread; waits for it, unless this is the thread."""
        self._is_stopping = True
        self._stopped.set()
        self._wakeup.wake()
        if not self.is_here():
            self._thread.join()

    def wait_for_retry(self) -> bool:
        """Wait until it is time to try the log again; False when the loop is stopping."""
        self.hand_on()  # what was committed before does not wait with this thread
        return not self._stopped.wait(_RETRY)

    def is_here(self) -> bool:
        """Whether this is the dispatcher's thread, or another one that runs a cycle."""
        current = threading.current_thread()
        return current is self._thread or threading.get_ident() == self._cycling_thread

    def commit_here(
        self, batches: Batches | Callable[[], Batches], applied: Applied | None
    ) -> int | None:
        """Commit changes in this thread, after a cut; returns the last LSN that was handed out.

        Returns None, with nothing done, when there are tasks before them, a cycle is running, or
        the loop ends.

        Raises:
            Error: the log does not take them, or they could not be worked out.
        """
        committer, buffers = self._committer, self._inlets.current[1]
        if self._tasks.waiting or not self._cycling.acquire(blocking=False):
            return None
        try:
            if self._is_stopping or committer.failure is not None:
                return None
            if any(map(len, buffers)) or committer.held or committer.postponed:
                self._cut_here()
                if committer.failure is not None:
                    raise committer.failure.again()
            self._cycling_thread = threading.get_ident()
            self._committed_at = time.monotonic()
            if committer.unwritten:
                committer.add_to_log(write=False)
            gathers = self._gathering_thread == self._cycling_thread
            committer.run(batches, applied, hand_on=not gathers)
        finally:
            self._cycling_thread = 0
            self._cycling.release()
            wakeup = self._wakeup
            if wakeup.asleep and (any(map(len, self._inlets.current[1])) or not self._lingers):
                wakeup.wake()  # there is more to do, or to be written after a moment
        return self._fan_out.lsn

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Hand on what this thread commits within the block at its end, all of it together.

        A thread that is woken earlier takes the interpreter from this one, and both are late. It
        begins once no cycle is running: that is over sooner if this thread keeps out of its way.
        """
        with self._cycling:
            pass
        self._gathering_thread = threading.get_ident()
        try:
            yield
        finally:
            self._gathering_thread = 0
            self.hand_on()

    def hand_on(self) -> None:
        """Hand on what was committed in a ``together`` and waits for its end."""
        fan_out = self._fan_out
        if not (fan_out.handed or fan_out.wakes):
            return
        with self._cycling:
            self._cycling_thread = threading.get_ident()
            try:
                fan_out.hand_on()
            finally:
                self._cycling_thread = 0

    def _cut_here(self) -> None:
        """Commit what was pushed before, in this thread, and run no task."""
        try:
            self._guarded(lambda: self._cycle(0))
        except Exception as error:  # noqa: BLE001 - then everything has failed, and this with it
            raise (self._committer.failure or error) from None

    def _run(self) -> None:
        try:
            while True:
                with self._cycling:
                    self._guarded(self._cycle)
                if not self._rest():
                    return
        except BaseException as error:
            self._crashed(error)  # before it is over: tasks that come now are refused with this
            raise
        finally:
            self.is_over = True

    def _guarded(self, cycle: Callable[[], None]) -> None:
        """Run a cycle; if it fails, so does everything that depends on the dispatcher."""
        self._cycling_thread = threading.get_ident()
        try:
            cycle()
        except BaseException as error:
            self._crashed(error)
            raise
        finally:
            self._cycling_thread = 0

    def _crashed(self, error: BaseException) -> None:
        """Fail sources and subscribers, and whatever is waited for."""
        failure: Error | None = self._committer.failure
        if not isinstance(failure, LogFailedError):
            failure = LogFailedError(
                f"the dispatcher stopped: {type(error).__name__}: {error}",
                hint="open the database again; this is a bug in Millstream, please report it",
            )
            self._committer.fail(failure)
        for completion in self._completions:
            completion.settle(self._fan_out.lsn, failure)
        self._tasks.refuse(self._fan_out.lsn, failure)

    def _cycle(self, tasks: int | None = None) -> None:
        """One cut, and all tasks or so many."""
        committer = self._committer
        if committer.held or committer.postponed:
            committer.retry()
        inlets, buffers, may_drop = self._inlets.current
        removed: list[int] = []
        sizes = list(map(len, buffers))
        if not any(sizes):
            return
        self._committed_at = time.monotonic()
        if may_drop:
            sizes, removed = exact_cut(inlets, buffers)
        batches: list[tuple[str, ChangeBatch]] = []
        completions = self._completions = []
        for place, (inlet, size) in enumerate(zip(inlets, sizes[1:], strict=True)):
            if size:
                gone = removed[place] if removed else 0
                batches += drained(inlet, size, gone, completions)
        for commit in commits(batches) if len(batches) > 1 and not completions else (batches,):
            if commit:
                committer.commit(commit, completions)
        for _ in range(sizes[0] if tasks is None else tasks):
            task = self._tasks.next()
            if task is not None:
                completions.append(task.completion)
                self._run_task(task)

    def _run_task(self, task: Commit | CallTask) -> None:
        committer = self._committer
        error: BaseException | None = committer.failure
        try:
            # A commit is fanned out first, too: it is written with it, when all is quiet.
            committer.add_to_log(write=not isinstance(task, Commit))
            if error is None and isinstance(task, Commit):
                committer.run(task.batches, task.applied, sync=task.sync)
            elif error is None and not isinstance(task, Commit):
                task.result = task.function()
        except BaseException as raised:  # noqa: BLE001 - raised where the task is waited for
            error = raised
        if isinstance(task, Commit) and task.is_posted and self._may_try_again(error):
            committer.postponed.append(task)
        else:
            task.completion.settle(self._fan_out.lsn, error)

    def _may_try_again(self, error: BaseException | None) -> bool:
        final = (LogFailedError, RowTooLargeError)
        return (
            isinstance(error, LogError) and not isinstance(error, final) and not self._is_stopping
        )

    def _rest(self) -> bool:
        """Sleep until there is something to do; False when there never will be.

        A thread that was just woken needs the interpreter, and this thread holds it. So it sleeps
        at once, and writes the rows to the log when nothing more came for a moment.
        """
        wakeup, committer = self._wakeup, self._committer
        # Looked at before the buffers: what was pushed before the end is in them by then.
        stopping = self._is_stopping
        self._lingers = False  # before any other thread can run a cycle
        wakeup.asleep = True
        if any(map(len, self._inlets.current[1])):
            wakeup.asleep = False
            return True
        if stopping:
            with self._cycling:
                self._guarded(self._cycle)  # what is held is tried once more
                self._guarded(committer.add_to_log)
                committer.give_up()
            return False
        self._lingers = committer.has_unwritten
        if not self._lingers:
            wakeup.sleep(_RETRY if committer.held or committer.postponed else None)
        elif not wakeup.sleep(_LINGER) and self._may_write():
            with self._cycling:
                self._guarded(self._write_to_log)
        return True

    def _may_write(self) -> bool:
        return time.monotonic() - self._committed_at > _QUIET or self._committer.is_overdue

    def _write_to_log(self) -> None:
        self._lingers = False
        self._committer.write_to_log()

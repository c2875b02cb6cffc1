"""The dispatcher: one thread that drains the inlets, commits, and fans out.

Each turn takes a cut: how many items each inlet holds at one moment. ``list(map(len, ...))`` is a
single step of the interpreter, so a cut never has a push without those that came before it, even
when one thread pushes to several sources. What a cut holds becomes one commit.

Whoever wants something done between two commits hands in a call; it runs after the commit of
everything that was pushed before it.

A thread that commits while nobody takes a turn may take one itself, which spares two wake-ups:
there is one turn at a time, whoever takes it.

When the log takes nothing, since the disk is full, say, no turn waits for it. Whoever waits for a
commit is refused at once. Rows that nobody waits for are held, their sources are not drained, and
both are tried again; calls go on to be made, so whatever only reads works.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.dispatch.held import Held, not_refusable
from millstream.dispatch.merge import commits, joined
from millstream.dispatch.route import Routes
from millstream.dispatch.tasks import CallTask, Commit
from millstream.errors import (
    ClosedError,
    Error,
    LogError,
    LogFailedError,
    RowTooLargeError,
    TopicNotFoundError,
)
from millstream.sources.wakeup import Wakeup
from millstream.threads import thread, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.dispatch.tasks import Batches
    from millstream.log import Log
    from millstream.log.queue import Part
    from millstream.model.batch import ChangeBatch
    from millstream.sources.inlet import Completion, Inlet

T = TypeVar("T")

_RETRY: Final = 0.5
"""Seconds after which a log that takes nothing is tried again."""

_LINGER: Final = 0.0005
"""Seconds of quiet after which rows are added to the log."""

_PATIENCE: Final = 100
"""Turns of others after which it is not waited for quiet any more."""


class Dispatcher:
    """Ring 1. Runs from construction until ``stop``.

    Attributes:
        wakeup: producers wake the dispatcher with it.
        lsn: the last LSN that was handed out, or is just being. Read it *after* joining the routes:
            every later batch will come through them.
        offered_lsn: everything up to this LSN was offered to who should have it.
        published: how many rows were fanned out.
        wakes: whom to wake at the end of the fan-out, left here by those who were offered a batch.
        handed: who waits for just this batch, and is given it then.
    """

    def __init__(self, log: Log) -> None:
        self.wakeup = Wakeup()
        self.lsn = self.offered_lsn = log.lsn
        self.published = 0
        self.wakes: list[Callable[[], None]] = []
        self.handed: list[tuple[Callable[[ChangeBatch], None], ChangeBatch]] = []
        self._log = log
        self._pid = os.getpid()
        self._tasks: list[Commit | CallTask] = []
        self._held = Held()
        self._all_inlets: tuple[Inlet, ...] = ()
        # The inlets and the buffers of a cut, in one assignment, so that they always match.
        self._inflow: tuple[tuple[Inlet, ...], tuple[list[Any], ...], bool]
        self._set_inlets(())
        self._routes: dict[str, Routes] = {}
        self._everything = Routes()
        self._tickets: list[Completion] = []  # of the cut at hand
        self._placed: Sequence[Part] = ()  # what was placed just now
        self._fanned_out: Sequence[Part] = ()  # what subscribers have, and the log has not yet
        self._stopping = False
        self._is_over = False  # the thread takes nothing more
        self._over = threading.Event()  # set with it
        self._failure: Error | None = None
        self._lost: LogError | None = None
        self._lock = threading.Lock()
        self._turning = threading.Lock()
        self._turner = 0  # the thread whose turn it is
        self._turns = self._tidied = 0
        self._lingers = False  # whether it will soon look at what is to be added to the log
        self._thread = thread("dispatcher", self._run, self._crashed)
        _FORKED.add(self)
        self._thread.start()

    # ---- what flows in

    def add(self, inlet: Inlet) -> None:
        """Drain one more inlet."""
        with self._lock:
            # Those of the database's own come last in a commit: a NOTIFY after what was pushed.
            inlets = (*self._all_inlets, inlet)
            ordered = sorted(inlets, key=lambda each: each.name.startswith("__"))
            self._set_inlets(tuple(ordered))
        inlet.stall(self._held.error)

    def remove(self, inlet: Inlet) -> None:
        """Drain it no more. Called by the dispatcher's thread."""
        with self._lock:
            self._set_inlets(tuple(each for each in self._all_inlets if each is not inlet))
        self._held.forget(inlet.name)

    def _set_inlets(self, inlets: tuple[Inlet, ...]) -> None:
        self._all_inlets = inlets
        if self._held.error is not None:  # rows that nobody waits for stay where they are
            inlets = tuple(each for each in inlets if each.sync)
        buffers: tuple[list[Any], ...] = (self._tasks, *(inlet.items for inlet in inlets))
        self._inflow = (inlets, buffers, any(each.drops for each in inlets))

    def commit(self, commit: Commit) -> int:
        """Commit changes; returns the last LSN once they are applied and handed to subscribers."""
        self._hand_in(commit)
        commit.completion.wait()
        return commit.completion.lsn

    def commit_here(self, commit: Commit) -> int:
        """The same, in this thread if nobody takes a turn just now: so nobody has to be woken.

        Not in the main thread, where Ctrl-C could end a turn anywhere.
        """
        if threading.current_thread() is threading.main_thread() or not self._take_turn(commit):
            return self.commit(commit)
        if self.wakeup.asleep and (any(map(len, self._inflow[1])) or not self._lingers):
            self.wakeup.wake()  # there is more to do, or to be added to the log after a moment
        commit.completion.wait()
        return commit.completion.lsn

    def _take_turn(self, commit: Commit) -> bool:
        if self._tasks or not self._turning.acquire(blocking=False):
            return False
        try:
            if self._stopping or self._failure is not None or self.is_forked:
                return False
            self._tasks.insert(0, commit)
            self._guarded(lambda: self._turn(1))
        except Exception:  # noqa: BLE001 - then everything has failed, and this is told so
            commit.completion.settle(self.lsn, self._failure)
        finally:
            self._turning.release()
        return True

    def post(self, commit: Commit) -> None:
        """Commit changes, some time soon; while the log takes nothing, they wait for it."""
        commit.is_posted = True
        self._hand_in(commit)

    def soon(self, function: Callable[[], None]) -> None:
        """The same, without waiting. Takes no lock: it may be called from a finalizer."""
        if not (self.is_forked or self._failure):
            self._tasks.append(CallTask(function))
            if self.wakeup.asleep:
                self.wakeup.wake()

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

        While the log takes nothing, rows that nobody waits for are not committed: then this returns
        without them.

        Raises:
            LogError: with ``complete``, why some rows could not be committed.
        """

        def reached() -> int:
            if complete and self._held.error is not None:
                raise self._held.error.again()
            return self.lsn

        return self.call(reached)

    def wait_for_room(self) -> bool:
        """Wait for a moment, after the log took nothing; False when this is about to end."""
        return not self._over.wait(_RETRY)

    def is_here(self) -> bool:
        """Whether this is the dispatcher's thread, or one that takes a turn for it."""
        return threading.current_thread() is self._thread or threading.get_ident() == self._turner

    def _hand_in(self, task: Commit | CallTask) -> None:
        self.check()
        try:
            self._tasks.append(task)
            if self.wakeup.asleep:
                self.wakeup.wake()
        except BaseException:  # a signal; what was handed in must be seen all the same
            self.wakeup.wake()
            raise
        if self._failure is not None or self._is_over:
            # It stopped just now, perhaps before it saw the task.
            self._refuse_tasks()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that opened the database."""
        return self._pid != os.getpid()

    def check(self) -> None:
        """Raise if nothing is taken any more."""
        if self.is_forked:
            raise forked()
        if self._failure is not None:
            raise self._failure.again()

    # ---- what flows out

    def routes(self, topic: str) -> Routes:
        """The routes of a topic."""
        found = self._routes.get(topic)
        if found is None:
            with self._lock:
                found = self._routes.setdefault(topic, Routes())
        return found

    def drop_routes(self, topic: str, error: Error) -> None:
        """End whoever reads a topic; who subscribes to another one of that name begins anew."""
        routes = self._routes.pop(topic, None)
        for subscriber in routes.subscribers if routes is not None else ():
            subscriber.fail(error)

    @property
    def everything(self) -> Routes:
        """Routes that get the batches of every topic."""
        return self._everything

    # ---- the thread

    def _run(self) -> None:
        try:
            while True:
                with self._turning:
                    is_busy = self._guarded(self._turn)
                if not is_busy and not self._rest():
                    return
        except BaseException as error:
            self._crashed(error)  # before it is over: whoever comes now is told why
            raise
        finally:
            self._is_over = True

    def _guarded(self, turn: Callable[[], bool]) -> bool:
        """A turn; if it fails, nothing is taken any more, and everybody is told."""
        self._turner = threading.get_ident()
        self._turns += 1
        try:
            return turn()
        except BaseException as error:
            self._crashed(error)
            raise
        finally:
            self._turner = 0

    def _crashed(self, error: BaseException) -> None:
        """Nothing is taken any more: everybody is told."""
        if not isinstance(self._failure, LogFailedError):
            self._fail(
                LogFailedError(
                    f"the dispatcher stopped: {type(error).__name__}: {error}",
                    hint="open the database again; this is a bug in Millstream, please report it",
                )
            )
        for completion in self._tickets:
            completion.settle(self.lsn, self._failure)
        self._refuse_tasks()

    def _turn(self, tasks: int | None = None) -> bool:
        """One cut, and all tasks or so many; False when there is nothing to do."""
        if self._held:
            self._place_held()
        inlets, buffers, may_drop = self._inflow
        removed: list[int] = []
        sizes = list(map(len, buffers))
        if not any(sizes):
            return False
        if may_drop:
            sizes, removed = _exact_cut(inlets, buffers)
        batches: list[tuple[str, ChangeBatch]] = []
        completions = self._tickets = []
        for place, (inlet, size) in enumerate(zip(inlets, sizes[1:], strict=True)):
            if size:
                gone = removed[place] if removed else 0
                batches += self._drained(inlet, size, gone, completions)
        for commit in commits(batches) if len(batches) > 1 and not completions else (batches,):
            if commit:
                self._commit(commit, completions)
        for _ in range(sizes[0] if tasks is None else tasks):
            task = self._next_task()
            if task is not None:
                completions.append(task.completion)
                self._run_task(task)
        return True

    def _rest(self) -> bool:
        """Sleep until there is something to do; False when there never will be.

        Who was just woken needs the interpreter, and this thread holds it. So it sleeps at once,
        and adds the rows to the log when nothing more came for a moment.
        """
        wakeup = self.wakeup
        # Looked at before the buffers: what was pushed before the end is in them by then.
        stopping = self._stopping
        self._lingers = False  # before anybody can take a turn
        wakeup.asleep = True
        if any(map(len, self._inflow[1])):
            wakeup.asleep = False
            return True
        if stopping:
            with self._turning:
                self._guarded(self._tidy)
                self._give_up_held()
            return False
        turns = self._turns
        self._lingers = bool(self._fanned_out)
        if not self._lingers:
            wakeup.sleep(_RETRY if self._held else None)
        elif not wakeup.sleep(_LINGER) and (
            self._turns == turns or turns > self._tidied + _PATIENCE
        ):
            with self._turning:
                self._guarded(self._tidy)
        return True

    def _tidy(self) -> bool:
        self._lingers = False
        self._tidied = self._turns
        self._add_to_log()
        return True

    def _add_to_log(self, *, write: bool = True) -> None:
        """Add what subscribers have already; before anything else is given an LSN."""
        parts, self._fanned_out = self._fanned_out, ()
        if parts:
            self._log.appender.add(parts)
            if write:
                self._log.appender.write_soon()

    def _drained(
        self, inlet: Inlet, size: int, removed: int, completions: list[Completion]
    ) -> list[tuple[str, ChangeBatch]]:
        drained, waiting = inlet.drain(size, removed)
        completions += waiting
        batches = []
        for batch in drained if len(drained) == 1 else joined(drained):
            if inlet.event_time.has_column or batch.watermark is not None:
                inlet.event_time.observe(batch)
            if len(batch) or batch.watermark is not None:
                batches.append((inlet.name, batch))
        return batches

    def _commit(self, batches: Batches, completions: list[Completion]) -> None:
        """Commit a cut, and tell who waits for it how it went."""
        self._add_to_log()
        # What is held was pushed before: nothing may be committed ahead of it.
        error = self._held.error or self._place(batches, sync=bool(completions))
        if error is None:
            self._fan_out(batches)
        elif self._failure is None and isinstance(error, LogError):
            self._hold(not_refusable(batches, self._all_inlets), error)
        for completion in completions:
            completion.settle(self.lsn, error)

    def _place(self, batches: Batches, *, sync: bool) -> Error | None:
        """Give batches their place in the log; returns why they have none."""
        try:
            self._placed = self._log.appender.place(batches, sync=sync)
        except LogFailedError as error:
            self._fail(error)
            return error
        except (LogError, TopicNotFoundError) as error:
            return error
        return None

    def _hold(self, batches: Batches, error: LogError) -> None:
        """Keep rows that nobody waits for until the log takes them."""
        if batches:
            self._held.commits.append(batches)
            if not isinstance(error, RowTooLargeError):
                self._stall(error)
            elif self._held.error is None:  # of another row of the cut, which somebody waits for
                self._place_held()

    def _place_held(self) -> None:
        """Try again what the log did not take, in order."""
        held = self._held
        self._add_to_log()
        while held.commits and self._failure is None:
            error = self._place(held.commits[0], sync=False)
            if isinstance(error, LogError):
                self._stall(error)
                return
            batches = held.commits.popleft()
            if error is None:
                self._fan_out(batches)
                self._add_to_log()
        if held.error is not None:
            self._stall(None)
        self._tasks[:0] = held.postponed
        held.postponed.clear()

    def _stall(self, error: LogError | None) -> None:
        """The log takes nothing, or None: it does again."""
        was, self._held.error = self._held.error, error
        if (was is None) != (error is None):
            with self._lock:
                self._set_inlets(self._all_inlets)
        for inlet in self._all_inlets:
            inlet.stall(error)

    def _give_up_held(self) -> None:
        """At the end, when the log still takes nothing: count what is lost."""
        held, error = self._held, self._held.error
        if error is None or self._failure is not None:
            return
        rows = held.rows()
        for inlet in self._all_inlets:
            drained, _ = inlet.drain(len(inlet.items))
            rows += sum(map(len, drained))
        held.commits.clear()
        self._lost = error.with_lost(rows)
        self._fail(self._lost)

    def _fan_out(self, batches: Batches) -> None:
        """Offer placed batches to everybody."""
        # Before anybody is offered anything: who joins now and sees the old LSN is offered all.
        self.lsn = batches[-1][1].lsn
        everything = self._everything
        for topic, batch in batches:
            self.published += len(batch)
            if batch.schema.is_nested:
                _ = batch.arrow  # what the log will write: a reader may change lists and dicts
            routes = self._routes.get(topic)
            if routes is not None:
                routes.deliver(batch)
            if len(everything):
                everything.deliver(batch)
        self.offered_lsn = self.lsn
        for hand_over, batch in self.handed:
            hand_over(batch)
        for wake in self.wakes:
            wake()
        self.handed.clear()
        self.wakes.clear()
        self._fanned_out, self._placed = self._placed, ()

    def _run_task(self, task: Commit | CallTask) -> None:
        error: BaseException | None = self._failure
        try:
            # A commit is fanned out first, too: it is written with it, when all is quiet.
            self._add_to_log(write=not isinstance(task, Commit))
            if error is None and isinstance(task, Commit):
                self._run_commit(task)
            elif error is None and isinstance(task, CallTask):
                task.result = task.function()
        except BaseException as raised:  # noqa: BLE001 - it is told to who waits for it
            error = raised
        if isinstance(task, Commit) and task.is_posted and self._may_try_again(error):
            self._held.postponed.append(task)
        else:
            task.completion.settle(self.lsn, error)

    def _may_try_again(self, error: BaseException | None) -> bool:
        final = (LogFailedError, RowTooLargeError)
        return isinstance(error, LogError) and not isinstance(error, final) and not self._stopping

    def _run_commit(self, commit: Commit) -> None:
        try:
            batches = commit.batches() if callable(commit.batches) else commit.batches
            if self._held.error is not None:
                raise self._held.error.again()
            self._placed = self._log.appender.place(batches, sync=commit.sync)
        except LogFailedError as error:
            self._fail(error)
            raise
        if commit.applied is not None:
            commit.applied([batch for _, batch in batches])
        self._fan_out(batches)

    # ---- the end

    def stop(self) -> None:
        """Commit what is there, and end. Twice is fine.

        Raises:
            LogError: the log takes nothing, and what was pushed is lost; it says how much.
        """
        self._stopping = True
        self._over.set()
        self.wakeup.wake()
        if not self.is_here():
            self._thread.join()
        if self._failure is None:
            self._failure = _closed()
        self._refuse_tasks()
        lost, self._lost = self._lost, None
        if lost is not None:
            raise lost

    def _fail(self, error: Error) -> None:
        self._failure = error
        for inlet in self._all_inlets:
            inlet.close(error)
            inlet.abandon()
        for routes in (*self._routes.values(), self._everything):
            for subscriber in routes.subscribers:
                subscriber.fail(error)

    @uninterrupted
    def _refuse_tasks(self) -> None:
        while (task := self._next_task()) is not None:
            task.completion.settle(self.lsn, self._failure or _closed())

    def _next_task(self) -> Commit | CallTask | None:
        try:
            return self._tasks.pop(0)
        except IndexError:  # there was none, or somebody has just refused it
            return None


def _exact_cut(
    inlets: tuple[Inlet, ...], buffers: tuple[list[Any], ...]
) -> tuple[list[int], list[int]]:
    """How many items each buffer holds at one moment, and how many were removed by then."""
    while True:
        removed = [inlet.removed for inlet in inlets]
        sizes = list(map(len, buffers))
        if removed == [inlet.removed for inlet in inlets]:
            return sizes, removed


def _closed() -> ClosedError:
    return ClosedError("the database is closed", hint="open it again")


def forked() -> ClosedError:
    """The error in a process that was forked from the one that opened the database."""
    return ClosedError(
        "this database was opened before a fork",
        hint="open it in one process only, after the fork",
    )


_FORKED: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _in_child() -> None:
    """Threads do not survive a fork: let every producer in the child hear it at once."""
    for dispatcher in _FORKED:
        for inlet in dispatcher._all_inlets:  # noqa: SLF001 - this module's own
            inlet.close(forked())


os.register_at_fork(after_in_child=_in_child)

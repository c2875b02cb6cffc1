"""Gears: keeps one view's query running, in the gear that fits, on one checkpoint.

Catch-up reads what has gathered in parallel and ends; live takes every row as it comes. A view that
is far behind catches up first; one that falls behind in the live gear shifts down, and up again.
A query that fails is started again, after a pause that grows while it gets nowhere; one whose Java
has died, at once, in another Java.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, Protocol

from millstream.errors import Error
from millstream.spark.corrections import Corrections
from millstream.spark.failure import has_no_value, query_failure
from millstream.spark.live import FAR_BEHIND
from millstream.spark.setbacks import Setbacks
from millstream.threads import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.errors import ViewFailedError
    from millstream.spark.bridge.connection import Connection
    from millstream.spark.bridge.server import BridgeServer
    from millstream.spark.failure import FailedRow
    from millstream.spark.feed import ViewFeed
    from millstream.spark.query import Gear, RunningQuery, SparkQuery
    from millstream.spark.results import Results
    from millstream.spark.setbacks import Setback

State = Literal["starting", "catching up", "live", "micro-batch", "restarting", "failed", "stopped"]

SHIFT_UP: Final = 50_000
"""Live can take over with so many rows behind: a fraction of a second."""

SHIFT_DOWN: Final = 400_000
"""So many rows behind, and not getting better, is what the catch-up gear is for."""

_LOOK_SECONDS: Final = 0.25
_PATIENCE: Final = 4  # looks
_PARK_SECONDS: Final = 30.0
_LITTLE: Final = 500_000
_NOT_ONE_THREAD: Final = "reader and sink do not share a thread"


class Watcher(Protocol):
    """Is notified when the query of a view starts, fails and catches up."""

    reached: int

    def failed(self, error: ViewFailedError, *, hopeless: bool, lsn: int | None = None) -> None:
        """Its query failed; hopeless: again at the same place; up to an LSN it has no value."""

    def still_failed(self, lsn: int) -> None:
        """Nothing that the view reads was committed after its failure and up to an LSN."""

    def healed(self) -> None:
        """Its query runs again after a failure that was none of its own."""

    def started(self) -> None:
        """Its query runs."""

    def idle(self, lsn: int) -> None:
        """There is nothing more to read up to an LSN."""


class FeedEnd(Protocol):
    """What serves the source of a query: a view's feed, or that of one of its parts."""

    def control(self, wire: Connection) -> None:
        """Answer the driver's questions until its connection ends."""

    def send_part(self, names: str, start: str, last: str, wire: Connection) -> None:
        """Send one part of a batch."""

    def send_live(self, names: str, start: str, wire: Connection) -> None:
        """Send every commit after an offset as it comes, until the batch ends."""


class TaskEndpoint:
    """Serves the connections of one query's tasks, by its feed or by its results.

    Args:
        feed: what the tasks read.
        results: where their rows go.

    Attributes:
        error: what went wrong here first since ``reset``; Spark sees only an ended connection.
        is_watched: whether ``on_end`` will be called when the query ends: its driver is connected,
            and stays so until then.
        on_end: called when the query seems to have ended.
    """

    def __init__(self, feed: FeedEnd, results: Results) -> None:
        self.error: BaseException | None = None
        self.is_watched = False
        self.on_end: Callable[[], None] = lambda: None
        self._feed = feed
        self._results = results
        self._closed = False

    def reset(self) -> None:
        """Forget the error: another query starts."""
        self.error = None
        self.is_watched = False

    def close(self) -> None:
        """Take no error any more: the query is being stopped."""
        self._closed = True

    def serve(self, role: str, words: Sequence[str], wire: Connection) -> None:
        """Serve a connection of one of the query's tasks, until its end."""
        feed, results = self._feed, self._results
        roles: dict[str, Callable[[], None]] = {
            "control": lambda: self._control(wire),
            "read": lambda: feed.send_part(words[0], words[1], words[2], wire),
            "tail": lambda: feed.send_live(words[0], words[1], wire),
            "sink": lambda: results.sink(int(words[0]), int(words[1]), wire),
            "commit": lambda: results.commit(int(words[0]), words[1], wire),
        }
        try:
            roles[role]()
        except (OSError, EOFError):
            raise
        except Exception as error:
            if self.error is None and not self._closed:
                self.error = error
                self.on_end()
            raise EOFError from error

    def _control(self, wire: Connection) -> None:
        self.is_watched = True
        try:
            self._feed.control(wire)
        finally:
            self.is_watched = False
            self.on_end()


class Endpoints:
    """Serves the tasks of a view's queries: one, or one for each of its parts.

    Args:
        ends: the endpoint of each, by the name of its feed.
    """

    def __init__(self, ends: dict[str, TaskEndpoint]) -> None:
        self._ends = ends

    @property
    def error(self) -> BaseException | None:
        """What went wrong here first since ``reset``, in any of them."""
        return next((each.error for each in self._ends.values() if each.error is not None), None)

    @property
    def is_watched(self) -> bool:
        """Whether the end of any query will be noticed, see ``TaskEndpoint``."""
        return all(each.is_watched for each in self._ends.values())

    def notify(self, on_end: Callable[[], None]) -> None:
        """Have a function called when a query seems to have ended."""
        for each in self._ends.values():
            each.on_end = on_end

    def add_to(self, server: BridgeServer) -> None:
        """Have a server pass connections on."""
        for name, each in self._ends.items():
            server.add(name, each)

    def remove_from(self, server: BridgeServer) -> None:
        """Have a server refuse them."""
        for name in self._ends:
            server.remove(name)

    def reset(self) -> None:
        """Forget errors: other queries start."""
        for each in self._ends.values():
            each.reset()

    def check(self, running: RunningQuery) -> None:
        """Raise what ended a query, here or in Spark.

        Raises:
            SparkError: it failed in Spark.
        """
        if self.error is not None:
            raise self.error
        running.check()

    def close(self) -> None:
        """Take no error any more: the queries are being stopped."""
        for each in self._ends.values():
            each.close()


class Runner:
    """Runs one view's query, in a thread of its own.

    Args:
        name: the view.
        query: what runs.
        feed: what it reads.
        results: where its rows go.
        watcher: is notified of what happens to it.
        parts: serves the tasks of each of its parts, if it has several.

    Attributes:
        state: what it is doing.
        shifts: how often it has changed gear.
        restarts: how often its query was started again after a failure, or after Java's death.
        error: why it failed the last time, until it has got further; or why it restarts.
    """

    def __init__(
        self,
        name: str,
        query: SparkQuery,
        feed: ViewFeed,
        results: Results,
        watcher: Watcher,
        *,
        parts: Sequence[TaskEndpoint] = (),
    ) -> None:
        self.state: State = "starting"
        self.shifts = 0
        self.restarts = 0
        self.error: Error | None = None
        self._awaits_java = False
        self._name = name
        self._query = query
        self._feed = feed
        self._results = results
        self._watcher = watcher
        self._over = threading.Event()
        self._gracefully = True
        self._patiently = False
        self._wanted: Literal["live", "catch-up"] | None = None
        ends = parts or (TaskEndpoint(feed, results),)
        self._tasks = Endpoints(dict(zip(query.feeds, ends, strict=True)))
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._setbacks = Setbacks(query.spark)
        self._corrections = Corrections(feed.live, watcher, wakeup=self._wake, over=self._over)
        self._gear: Gear | None = None
        self._server: BridgeServer | None = None
        self._thread = thread(name, self._run, lambda error: self._fail(error, hopeless=True))
        feed.live.on_behind = self._wake.set
        feed.live.on_reading = watcher.started
        self._tasks.notify(self._wake.set)

    # ---- from outside

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def shift(self, gear: Literal["live", "catch-up"]) -> None:
        """Change into a gear now, whatever the lag."""
        self._wanted = gear
        self._wake.set()

    def wait_ready(self, seconds: float | None = None) -> bool:
        """Until its query runs, or has failed."""
        return self._ready.wait(seconds)

    def probe(self, lsn: int) -> None:
        """Have the view notified when everything up to an LSN has passed, of its logs or not."""
        self._feed.live.probe(lsn)
        if self.state == "failed":
            self._wake.set()

    def stop(self, *, gracefully: bool = True, patiently: bool = False) -> None:
        """End. Gracefully: with a checkpoint, so that nothing has to be read again.

        Patiently: however long the batch at hand takes, and in any gear. Another ``stop``, which is
        not patient, ends the patience.
        """
        self._gracefully, self._patiently = gracefully, patiently
        self._over.set()
        self._tasks.close()
        self._wake.set()

    def join(self) -> None:
        """Wait until it has ended."""
        if self._thread.is_alive():
            self._thread.join()
        if self._server is not None:
            self._tasks.remove_from(self._server)
        self._feed.live.drop_tail()

    # ---- the thread

    def _run(self) -> None:
        setbacks = self._setbacks
        while not self._over.is_set():
            try:
                setbacks.begin()
                self._run_in_gear()
                setbacks.clear()
            except Exception as raised:  # noqa: BLE001 - reported, and tried again
                if self._over.is_set():
                    break
                if _NOT_ONE_THREAD in str(raised) and self._query.may_exchange:
                    self._query.needs_exchange = True
                    continue
                # Spark says only that a connection has ended; here is known why.
                reason = self._tasks.error or raised
                self._pause_after(setbacks.add(reason, raised, self._watcher.reached))
                self.restarts += 1
        self.state = "stopped"
        self._ready.set()

    def _pause_after(self, setback: Setback) -> None:
        """Report why the query has ended, and wait until another attempt may do better."""
        reason, self._awaits_java = setback.reason, setback.is_of_java
        if not setback.is_failure:
            self._restart(reason)
        elif has_no_value(reason):
            row = self._corrections.row_of(str(reason))
            tried = self._corrections.tried_lsn
            self._fail(reason, row, hopeless=setback.is_hopeless, lsn=tried)
            if setback.is_hopeless:
                self._corrections.wait_for_commit(row, setback.pause)
                return
        else:
            self._fail(reason, hopeless=setback.is_hopeless)
        self._over.wait(setback.pause)

    def _run_in_gear(self) -> None:
        """One gear, until there is reason for another one."""
        self._feed.live.tried_lsn = self._feed.live.dispatcher.lsn
        self._tasks.reset()
        self._server = self._query.server()
        self._tasks.add_to(self._server)
        if self._watcher.reached == 0 and self._query.plan.is_global:
            self._show_nothing()
        if not self._query.is_live:
            self._follow("micro-batch", "micro-batch", lambda: 0)
            return
        wanted, self._wanted = self._wanted, None
        live = self._feed.live
        live.nets = self._setbacks.failed and live.beginning is not None
        if self._query.plan.line:  # which is fast enough in one thread, and has only that
            self._follow("live", "live", lambda: 0)
            return
        behind = self._feed.behind(self._query.offset(), SHIFT_UP)
        if wanted == "catch-up" or (behind >= SHIFT_UP and wanted is None and not live.nets):
            self._catch_up()
        if self._over.is_set():
            return
        self._follow("live", "live", lambda: _should_shift_down(self._feed.live.lag()))

    def _show_nothing(self) -> None:
        """Emit what a global aggregate is of no rows; a crash may have come before that."""
        _, nothing = self._query.result_of_nothing(rows=True)
        if nothing is not None:
            self._results.show(nothing.to_batches())

    def _catch_up(self) -> None:
        while not self._over.is_set():
            self._feed.open_again()
            self._feed.enough = lambda: SHIFT_UP
            running = self._query.start("catch-up")
            self._shifted("catch-up", "catching up")
            while not running.wait(1):
                if self._over.is_set():
                    if not self._patiently:
                        running.stop()
                        return
                    self._feed.end_batch()
            try:
                self._tasks.check(running)
            except BaseException:  # of several queries the others go on
                with contextlib.suppress(Exception):
                    running.stop()
                raise
            if self._feed.is_ending:
                return
            until = self._feed.until
            if until is not None:
                self._watcher.idle(until)
            if self._feed.behind(self._query.offset(), SHIFT_UP) < SHIFT_UP:
                return

    def _follow(self, gear: Gear, state: State, should_leave: Callable[[], int]) -> None:
        """Run a query until it fails, is stopped, or there is reason for another gear."""
        self._feed.open_again()
        looks, place = 0, self._watcher.reached
        running = self._query.start(gear)
        self._shifted(gear, state)
        while running.is_active and self._tasks.error is None:
            is_quiet = self._tasks.is_watched and not looks and self.error is None
            self._wake.wait(None if is_quiet else _LOOK_SECONDS)
            self._wake.clear()
            reasons = should_leave()
            looks = looks + reasons if reasons else 0
            if self._over.is_set() or self._wanted is not None or looks >= _PATIENCE:
                self._leave(running, gear)
                return
            if self.error is not None and self._watcher.reached > place:
                self.error = None
        with contextlib.suppress(Exception):
            running.stop()
        self._tasks.check(running)

    def _leave(self, running: RunningQuery, gear: Gear) -> None:
        """End a query at a checkpoint, if there is time for one.

        When it falls behind soon after a checkpoint, reading a little again takes less.
        """
        live = self._feed.live
        if self._over.is_set():
            graceful = self._patiently or (gear == "live" and self._gracefully)
        else:
            graceful = gear == "live" and (self._wanted is not None or live.batch_rows > _LITTLE)
        if graceful:
            self._feed.end_batch()
            deadline = time.monotonic() + _PARK_SECONDS
            while not live.wait_parked(0.05):
                is_late = time.monotonic() > deadline and not self._patiently
                if is_late or not running.is_active:
                    break
        else:
            live.drop_tail()
        running.stop()
        live.drop_tail()

    def _shifted(self, gear: Gear, state: State) -> None:
        if self._gear is not None and self._gear != gear:
            self.shifts += 1
        self._gear = gear
        if self._awaits_java:
            self._awaits_java, self.error = False, None
            self._watcher.healed()
        self.state = state
        self._ready.set()
        if gear != "live":  # which is, to whoever waits for it, when its task reads
            self._watcher.started()

    # ---- failures

    def _fail(
        self,
        raised: BaseException,
        row: FailedRow | None = None,
        *,
        hopeless: bool,
        lsn: int | None = None,
    ) -> None:
        self._feed.live.drop_tail()
        self.state = "failed"
        retracts = self._feed.live.beginning is not None
        self.error = failure = query_failure(self._name, raised, row, retracts=retracts)
        self._ready.set()
        self._watcher.failed(failure, hopeless=hopeless, lsn=lsn)

    def _restart(self, reason: BaseException) -> None:
        """Start again without a failure: the view's rows and its subscribers stay."""
        self._feed.live.drop_tail()
        self.state = "restarting"
        self.error = reason if isinstance(reason, Error) else query_failure(self._name, reason)


def _should_shift_down(lag: int) -> int:
    """How much speaks for the catch-up gear with so many rows behind, in looks."""
    return _PATIENCE if lag > FAR_BEHIND else int(lag > SHIFT_DOWN)

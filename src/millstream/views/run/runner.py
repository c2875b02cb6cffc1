"""Keeps one view's query running, from its first row to its last, on one checkpoint.

A query that fails is started again, after a pause that grows while it gets nowhere; one whose Java
has died, at once, in another Java.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, Protocol

from millstream.errors import Error
from millstream.threads import thread
from millstream.views.run.failures import Corrections, has_no_value, query_failure
from millstream.views.run.setbacks import Setbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.errors import ViewFailedError
    from millstream.spark.bridge.connection import Connection
    from millstream.spark.bridge.server import BridgeServer
    from millstream.spark.session import Spark
    from millstream.views.run.failures import FailedRow
    from millstream.views.run.feed import ViewFeed
    from millstream.views.run.results import Results
    from millstream.views.run.setbacks import Setback

State = Literal["starting", "live", "restarting", "failed", "stopped"]

_LOOK_SECONDS: Final = 0.25
_PARK_SECONDS: Final = 30.0


class Watcher(Protocol):
    """Is notified when the query of a view starts, and when it fails."""

    reached: int

    def failed(self, error: ViewFailedError, *, hopeless: bool, lsn: int | None = None) -> None:
        """Its query failed; hopeless: again at the same place; up to an LSN it has no value."""

    def still_failed(self, lsn: int) -> None:
        """Nothing that the view reads was committed after its failure and up to an LSN."""

    def healed(self) -> None:
        """Its query runs again after a failure that was none of its own."""


class Running(Protocol):
    """What was started: ``RunningQuery`` or ``RunningQueries``."""

    @property
    def is_active(self) -> bool:
        """Whether all of it runs."""

    def stop(self) -> None:
        """End it, and wait for that."""

    def check(self) -> None:
        """Raise what ended it, if anything did."""


class ViewQuery(Protocol):
    """What a runner runs: ``SparkQuery`` or ``PartitionedQuery``."""

    @property
    def spark(self) -> Spark:
        """The session's owner."""

    @property
    def server(self) -> Callable[[], BridgeServer]:
        """Gives what its tasks connect to."""

    @property
    def feeds(self) -> list[str]:
        """The names under which the server knows it, one for each partition."""

    def start(self) -> Running:
        """Run it, from the checkpoint on."""

    def state_size(self) -> tuple[int, int] | None:
        """How many rows its state has, and how many bytes; None when that is not known."""


class TaskEndpoint:
    """Serves the connections of one query's tasks, by its feed or by its results.

    Args:
        feed: what the tasks read.
        partition: which partition of the view they are of.
        results: where their rows go.
        on_end: called when the query seems to have ended.

    Attributes:
        error: what went wrong here first since ``reset``; Spark sees only an ended connection.
        is_watched: whether ``on_end`` will be called when the query ends: its driver is connected,
            and stays so until then.
    """

    def __init__(
        self, feed: ViewFeed, partition: int, results: Results, on_end: Callable[[], None]
    ) -> None:
        self.error: BaseException | None = None
        self.is_watched = False
        self._feed = feed
        self._partition = partition
        self._results = results
        self._on_end = on_end
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
        feed, partition, results = self._feed, self._partition, self._results
        roles: dict[str, Callable[[], None]] = {
            "control": lambda: self._control(wire),
            "tail": lambda: feed.send_live(words[0], words[1], wire, partition),
            "sink": lambda: results.sink(wire),
            "commit": lambda: results.commit(wire),
        }
        try:
            roles[role]()
        except (OSError, EOFError):
            raise
        except Exception as error:
            if self.error is None and not self._closed:
                self.error = error
                self._on_end()
            raise EOFError from error

    def _control(self, wire: Connection) -> None:
        self.is_watched = True
        try:
            self._feed.control(wire, self._partition)
        finally:
            self.is_watched = False
            self._on_end()


class Endpoints:
    """Serves the tasks of a view's queries: one, or one for each partition.

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

    def check(self, running: Running) -> None:
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
        results: where the rows of each of its partitions go.
        watcher: is notified of what happens to it.

    Attributes:
        state: what it is doing.
        restarts: how often its query was started again after a failure, or after Java's death.
        error: why it failed the last time, until it has got further; or why it restarts.
    """

    def __init__(
        self,
        name: str,
        query: ViewQuery,
        feed: ViewFeed,
        results: Sequence[Results],
        watcher: Watcher,
    ) -> None:
        self.state: State = "starting"
        self.restarts = 0
        self.error: Error | None = None
        self._awaits_java = False
        self._name = name
        self._query = query
        self._feed = feed
        self._watcher = watcher
        self._over = threading.Event()
        self._gracefully = True
        self._patiently = False
        self._wake = threading.Event()
        ends = (TaskEndpoint(feed, n, each, self._wake.set) for n, each in enumerate(results))
        self._tasks = Endpoints(dict(zip(query.feeds, ends, strict=True)))
        self._setbacks = Setbacks(query.spark)
        self._corrections = Corrections(feed.live, watcher, wakeup=self._wake, over=self._over)
        self._server: BridgeServer | None = None
        self._thread = thread(name, self._run, lambda error: self._fail(error, hopeless=True))

    # ---- from outside

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def state_size(self) -> tuple[int, int] | None:
        """How many rows and bytes its query has to remember; None when that is not known."""
        return self._query.state_size()

    def probe(self, lsn: int) -> None:
        """Have the view notified when everything up to an LSN has passed, of its logs or not."""
        self._feed.live.probe(lsn)
        if self.state == "failed":
            self._wake.set()

    def stop(self, *, gracefully: bool = True, patiently: bool = False) -> None:
        """End. Gracefully: with a checkpoint, so that nothing has to be read again.

        Patiently: however long the batch at hand takes. Another ``stop``, which is not patient,
        ends the patience.
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
                self._run_query()
                setbacks.clear()
            except Exception as raised:  # noqa: BLE001 - reported, and tried again
                if self._over.is_set():
                    break
                # Spark says only that a connection has ended; here is known why.
                reason = self._tasks.error or raised
                self._pause_after(setbacks.add(reason, raised, self._watcher.reached))
                self.restarts += 1
        self.state = "stopped"

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

    def _run_query(self) -> None:
        """Run the query until it fails or is stopped."""
        live = self._feed.live
        live.tried_lsn = live.dispatcher.lsn
        self._tasks.reset()
        self._server = self._query.server()
        self._tasks.add_to(self._server)
        live.nets = self._setbacks.failed and live.snapshot is not None
        self._feed.open_again()
        place = self._watcher.reached
        running = self._query.start()
        self._started()
        while running.is_active and self._tasks.error is None:
            is_quiet = self._tasks.is_watched and self.error is None
            self._wake.wait(None if is_quiet else _LOOK_SECONDS)
            self._wake.clear()
            if self._over.is_set():
                self._end(running)
                return
            if self.error is not None and self._watcher.reached > place:
                self.error = None
        with contextlib.suppress(Exception):
            running.stop()
        self._tasks.check(running)

    def _end(self, running: Running) -> None:
        """End a query, at a checkpoint if there is time for one."""
        live = self._feed.live
        if self._patiently or self._gracefully:
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

    def _started(self) -> None:
        """Note that the query runs: it is ready for whoever waits for it when its task reads."""
        if self._awaits_java:
            self._awaits_java, self.error = False, None
            self._watcher.healed()
        self.state = "live"

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
        retracts = self._feed.live.snapshot is not None
        self.error = failure = query_failure(self._name, raised, row, retracts=retracts)
        self._watcher.failed(failure, hopeless=hopeless, lsn=lsn)

    def _restart(self, reason: BaseException) -> None:
        """Start again without a failure: the view's rows and its subscribers stay."""
        self._feed.live.drop_tail()
        self.state = "restarting"
        self.error = reason if isinstance(reason, Error) else query_failure(self._name, reason)

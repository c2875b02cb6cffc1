"""Databases for tests, and what waits for them.

A database that is gone afterwards, a clock that tests move, waiting on conditions instead of on the
time, and a ``Mirror``: a subscriber's copy of a result, which must always equal the query's answer.

>>> from millstream.testing import Mirror, database
>>> with database("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)") as db:
...     mirror = Mirror(db.subscribe("SELECT * FROM t"))
...     _ = db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
...     _ = db.execute("DELETE FROM t WHERE id = 1")
...     mirror.catch_up(db).fetchall()
[(2, 'b')]
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.database import Database
from millstream.model.clock import ManualClock, system_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.delivery.inbox import Inbox
    from millstream.dispatch import Dispatcher
    from millstream.engine.engine import Engine
    from millstream.log.log import Log
    from millstream.log.writer import LogWriter
    from millstream.model.batch import ChangeBatch
    from millstream.model.clock import Clock
    from millstream.model.weighted_rows import Row
    from millstream.sources.inlet import Inlet
    from millstream.sources.source import Source
    from millstream.subscriptions import Subscription
    from millstream.subscriptions.base import SubscriptionBase

__all__ = [
    "TIMEOUT",
    "Background",
    "ManualClock",
    "Mirror",
    "database",
    "engine_of",
    "inbox_of",
    "inlet_of",
    "paused",
    "wait_until",
    "writer_of",
]

T = TypeVar("T")

TIMEOUT = 120.0
"""Seconds after which what must happen is taken for lost. No test waits for them to pass."""


@contextlib.contextmanager
def database(
    *statements: str,
    path: str | Path | None = None,
    spark: Any = None,  # noqa: ANN401 - a SparkSession
    clock: Clock = system_clock,
) -> Iterator[Database]:
    """Give a database for one test, closed at the end, after some statements.

    >>> with database("CREATE SOURCE s (n BIGINT)") as db:
    ...     db.insert("s", [(1,), (2,)])
    2

    Args:
        statements: SQL to begin with.
        path: a directory that stays; None: a temporary one.
        spark: the SparkSession for views; tests that share one start faster.
        clock: the time of commits; a ``ManualClock`` is moved by the test.
    """
    with _with_clock(clock)(path, spark=spark) as db:
        for each in statements:
            db.execute(each)
        yield db


def _with_clock(clock: Clock) -> type[Database]:
    class ClockedDatabase(Database):
        _clock = staticmethod(clock)

    return ClockedDatabase


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], str] = "the condition",
    *,
    timeout: float = TIMEOUT,
) -> T:
    """Check a condition again and again until it holds; return its value.

    The longer it takes, the longer are the pauses: a tenth of what has passed, at most 20 ms.

    >>> wait_until(lambda: 7)
    7

    Args:
        condition: anything whose value becomes true.
        what: what is awaited, for the error; a function is called when the time is up.
        timeout: seconds after which AssertionError is raised.
    """
    start, pause = time.monotonic(), threading.Event()
    while not (value := condition()):
        passed = time.monotonic() - start
        if passed > timeout:
            name = what() if callable(what) else what
            raise AssertionError(f"{name} did not come true within {timeout:g} seconds")
        pause.wait(min(max(passed / 10, 0.001), 0.02))  # a condition may cost what it waits for
    return value


class Background(Generic[T]):
    """A call in a thread of its own.

    >>> Background(sum, [1, 2]).result()
    3

    Args:
        function: what is called with the other arguments.
    """

    def __init__(self, function: Callable[..., T], *args: Any, **options: Any) -> None:  # noqa: ANN401
        self.error: BaseException | None = None
        self._values: list[T] = []
        self._thread = threading.Thread(
            target=self._run, args=(function, args, options), daemon=True
        )
        self._thread.start()

    def _run(
        self, function: Callable[..., T], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        try:
            self._values.append(function(*args, **options))
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self.error = error

    @property
    def is_done(self) -> bool:
        """Whether it has returned or raised."""
        return not self._thread.is_alive()

    def result(self, timeout: float = TIMEOUT) -> T:
        """Wait for it; return what it returned, or raise what it raised."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise AssertionError(f"it still runs after {timeout:g} seconds")
        if self.error is not None:
            raise self.error
        return self._values[0]


class Mirror:
    """A subscriber's copy of a result: the snapshot, then every change applied.

    It fails with AssertionError as soon as the changes contradict each other: a delete of a row
    that is not there, an update that changes nothing, a commit that comes twice, rows that were
    dropped.

    Args:
        subscription: where it reads; None: batches are given to ``apply``.
        key_columns: no two rows may have the same values in the first so many columns; 0: they may.

    Attributes:
        rows: each row, with how many times it is there.
        changes: how many changes were applied.
        token: where to resume.
    """

    def __init__(self, subscription: Subscription | None = None, *, key_columns: int = 0) -> None:
        self.rows: Counter[Row] = Counter()
        self.changes = 0
        self.token: str | None = None
        self._subscription = subscription
        self._key_columns = key_columns
        self._lsn = 0

    def follow(self, subscription: Subscription) -> Mirror:
        """Read on from another subscription, such as one that resumes at ``token``."""
        self._subscription = subscription
        return self

    def apply(self, batch: ChangeBatch) -> None:
        """Apply one batch."""
        _check(batch.gap is None, f"rows were dropped: {batch.gap}")
        if batch.kind == "changes":
            _check(batch.first_lsn > self._lsn, f"LSN {batch.first_lsn} comes twice")
        for change in batch:
            if change.op == "update":
                _check(change.before != change.row, f"an update that changes nothing: {change.row}")
            if change.before is not None:
                self._remove(change.before)
            if change.op != "delete":
                self.rows[change.row] += 1
            self.changes += 1
        self._lsn, self.token = batch.lsn, batch.token

    def _remove(self, row: Row) -> None:
        _check(self.rows[row] > 0, f"a delete of a row that is not there: {row}")
        self.rows[row] -= 1
        if not self.rows[row]:
            del self.rows[row]

    def catch_up(self, db: Database, *views: str, timeout: float = TIMEOUT) -> Mirror:
        """Take in all that was committed so far; returns itself.

        Args:
            db: the database, whose pushed rows are flushed first.
            views: the views on the way, from the lowest to the one that is read; each is awaited.
            timeout: seconds for each step.
        """
        if self._subscription is None:
            raise ValueError("a mirror without a subscription is given its batches by apply()")
        for view in views:
            db.wait_for(view, lsn=db.flush(), timeout=timeout)
        db.flush()
        wait_until(self._is_up_to_date, "the mirror is up to date", timeout=timeout)
        if self._key_columns:
            keys = Counter(row[: self._key_columns] for row in self.rows.elements())
            twice = [key for key, count in keys.items() if count > 1]
            _check(not twice, f"keys of more than one row: {twice[:3]}")
        return self

    def _is_up_to_date(self) -> bool:
        subscription = self._subscription
        if subscription is None:
            return True
        while (batch := subscription.try_recv()) is not None:
            self.apply(batch)
        return subscription.metrics.lag_rows == 0

    def fetchall(self) -> list[Row]:
        """The rows, in the order in which they appeared."""
        return list(self.rows.elements())


def _check(holds: bool, otherwise: str) -> None:
    """Fail the test, with or without ``python -O``."""
    if not holds:
        raise AssertionError(otherwise)


# ---- the database's own parts, for its own tests


def engine_of(db: Database) -> Engine:
    """The parts that a database is made of: its log, dispatcher, catalog, views.

    They are not public: names and meanings change without notice.
    """
    return db._engine  # noqa: SLF001


def inbox_of(subscription: SubscriptionBase) -> Inbox:
    """Where the dispatcher puts the changes of a subscription. Not public."""
    return subscription._inbox  # noqa: SLF001


def inlet_of(source: Source) -> Inlet:
    """The buffer that a source handle pushes into. Not public."""
    return source._inlet  # noqa: SLF001


def writer_of(log: Log) -> LogWriter:
    """What writes the segments of a log. Not public."""
    return log._writer  # noqa: SLF001


@contextlib.contextmanager
def paused(dispatcher: Dispatcher) -> Iterator[None]:
    """Stop commits: whatever is pushed or requested within waits until the end of the block."""
    entered, resume = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        _check(resume.wait(TIMEOUT), "the block did not end")

    waiting = Background(dispatcher.call, wait)
    _check(entered.wait(TIMEOUT), "the dispatcher does not answer")
    try:
        yield
    finally:
        resume.set()
        waiting.result()

"""The inlet: the bounded buffer of a source, which its producers fill and the dispatcher drains.

A plain list is the buffer: ``append`` by many threads, ``[:n]`` and ``del [:n]`` by one are each a
single step of the interpreter, so no lock is taken on either side. The bound is checked before the
append, so it may be passed by as many rows as there are producers, and never by more. Only where
producers drop the oldest rows do two sides cut the list, and take a lock for it.

What is not a single row (batches, watermarks, whatever somebody waits for) is a ``Parcel`` in the
same list, so that the order of pushes is the order of the log.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Literal, Protocol

from millstream.errors import ClosedError, Error, SourceFullError
from millstream.model.batch import ChangeBatch
from millstream.sources.event_time import EventTime
from millstream.sources.wakeup import Completion
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.sources.wakeup import Wakeup

Policy = Literal["block", "drop_oldest", "reject"]


class Inline(Protocol):
    """Who is called on the pusher's own thread, before the row has a place in the log."""

    def row(self, row: Row) -> None:
        """One row was pushed."""

    def batch(self, batch: ChangeBatch) -> None:
        """Several were."""

    def fail(self, error: Error) -> None:
        """There will be no more."""


class Parcel:
    """Batches that were pushed as one, and who waits for them."""

    __slots__ = ("batches", "completion", "watermark")

    def __init__(
        self,
        batches: list[ChangeBatch],
        watermark: int | None = None,
        completion: Completion | None = None,
    ) -> None:
        self.batches = batches
        self.watermark = watermark
        self.completion = completion

    def __len__(self) -> int:
        return sum(map(len, self.batches))


class Inlet:
    """What all handles of a source share.

    Attributes:
        name: the source.
        schema: its columns; ALTER replaces it.
        wakeup: wakes the dispatcher.
        event_time: its watermark.
        capacity: how many rows may wait.
        policy: what a push does when there is no room.
        sync: whether producers wait until their rows are on the disk.
        items: the buffer: tuples and parcels.
        dropped: rows that ``drop_oldest`` has dropped.
        pushed: rows that the dispatcher has taken.
        parcel_rows: rows that wait in parcels.
        removed: items that producers have removed from the buffer, to make room.
        inline: called on the pusher's thread with each row, or each batch.
        closed: why nothing is taken any more, or None.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        wakeup: Wakeup,
        *,
        event_time: EventTime | None = None,
        capacity: int = 65536,
        policy: Policy = "block",
        sync: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self.wakeup = wakeup
        self.event_time = EventTime() if event_time is None else event_time
        self.capacity = capacity
        self.policy = policy
        self.sync = sync
        self.items: list[Row | Parcel] = []
        self.dropped = 0
        self.removed = 0
        self.pushed = 0
        self.inline: tuple[Inline, ...] = ()
        self.closed: Error | None = None
        self.watchers: list[Callable[[], None]] = []
        self._stalled: Error | None = None
        self._evolved = False
        self._is_abandoned = False
        self._lock = threading.Lock()
        self._parcels = 0
        self.parcel_rows = 0
        self._watermark: int | None = None  # of parcels that were dropped
        self._waiting: list[threading.Lock] = []
        # Rows are dropped many at a time, since cutting a list moves all that is behind the cut;
        # the dispatcher drops the rest, so that just the newest ``capacity`` rows come through.
        self._slack = max(1, capacity // 16) if policy == "drop_oldest" else 0

    # ---- Ring 0

    @property
    def limit(self) -> int:
        """At how many items a push has to look closer."""
        if self.closed is not None or self.inline:
            return -1
        return self.capacity + self._slack

    @property
    def drops(self) -> bool:
        """Whether producers remove what is oldest."""
        return self._slack > 0

    def is_full(self) -> bool:
        """Whether a push would have to wait, to drop something, or to be refused."""
        return len(self.items) >= self.capacity or self.parcel_rows >= self.capacity

    def make_room(self, timeout: float | None = None) -> bool:
        """Do what the policy says until there is room; False when it was waited for in vain.

        Raises:
            SourceFullError: the policy is ``reject``.
            ClosedError: the source is closed, or was meanwhile.
            LogError: the buffer is full and the log takes nothing.
        """
        while True:
            if self.closed is not None:
                raise self.closed.again()
            if not self.is_full():
                return True
            if self.policy == "drop_oldest":
                self._drop_oldest()
                return True
            if self.policy == "reject":
                raise SourceFullError(
                    f"the buffer of {self.name} is full: {self.capacity:,} rows wait",
                    hint="push again later, or raise buffer_size, or use backpressure = 'block'",
                )
            if self._stalled is not None:
                raise self._stalled.again()
            if not self._wait(timeout):
                return False

    def enter(self, batches: list[ChangeBatch]) -> None:
        """Take batches that were pushed as one; with ``sync``, wait until they are on the disk."""
        self.make_room()
        completion = Completion() if self.sync else None
        shown = [batch.copy() for batch in batches] if self.inline else []  # without a place yet
        self.put(Parcel(batches, None, completion))
        for each in self.inline:
            for batch in shown:
                each.batch(batch)
        if completion is not None:
            completion.wait()

    def put(self, parcel: Parcel) -> None:
        """Add a parcel; the caller has made room."""
        rows, append = len(parcel), self.items.append
        try:
            with self._lock:
                # Counted before it is there: the dispatcher must not take it for a row. And without
                # a call in between, so that no signal can leave it counted and not there.
                self._parcels += 1
                self.parcel_rows += rows
                append(parcel)
            if self.wakeup.asleep:
                self.wakeup.wake()
        except BaseException:  # a signal; what is in the buffer must be seen all the same
            self.wakeup.wake()
            raise
        if self._is_abandoned:  # since this producer looked
            self.abandon()

    def watermark(self, micros: int) -> None:
        """Take a producer's watermark: no older row is still to come after what was pushed."""
        if self.event_time.promise(micros):
            self.put(Parcel([], micros))

    @uninterrupted
    def _drop_oldest(self) -> None:
        with self._lock:
            while self.items and self.parcel_rows >= self.capacity:
                self._forget(self.items[0])
                del self.items[0]
                self.removed += 1
            surplus = len(self.items) - self.capacity - self._slack + 1
            if surplus > 0:
                count = max(surplus, self._slack)
                for item in self.items[:count]:
                    self._forget(item)
                del self.items[:count]
                self.removed += count

    def _forget(self, item: Row | Parcel) -> None:
        if isinstance(item, Parcel):
            self._parcels -= 1
            self.parcel_rows -= len(item)
            self.dropped += len(item)
            if item.watermark is not None:  # a promise about event time outlives its rows
                self._watermark = max(item.watermark, self._watermark or item.watermark)
        else:
            self.dropped += 1

    def _wait(self, timeout: float | None) -> bool:
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        try:
            # Who makes room looks for waiters afterwards, so look for room after joining them.
            if not self.is_full() or self.closed is not None or self._stalled is not None:
                return True
            return waiter.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)

    # ---- Ring 1

    def drain(
        self, count: int, removed: int | None = None
    ) -> tuple[list[ChangeBatch], list[Completion]]:
        """The first items as batches, in order, and who waits for them.

        Args:
            count: how many there were at the cut.
            removed: how many had been removed by then; what was removed since is not there now.
                None: the cut is now.
        """
        if self._slack:
            items = self._drain_newest(count, removed)
        else:
            items = self.items[:count]
            del self.items[:count]
        if self._waiting:
            self._let_in()
        if not self._parcels and self._watermark is None:
            self.pushed += len(items)
            return [ChangeBatch(self.schema, self._fitting(items), None, None)], []
        batches, completions = self._unpack(items)
        if self._waiting:
            self._let_in()
        self.pushed += sum(map(len, batches))
        return batches, completions

    def _drain_newest(self, count: int, removed: int | None = None) -> list[Row | Parcel]:
        with self._lock:
            if removed is not None:
                count = max(0, count - (self.removed - removed))
            surplus = min(len(self.items), count) - self.capacity
            if surplus > 0:
                for item in self.items[:surplus]:
                    self._forget(item)
                del self.items[:surplus]
                count -= surplus
            items = self.items[:count]
            del self.items[:count]
            # At once: producers drop for what waits here, not for what is just being unpacked.
            self.parcel_rows -= sum(len(item) for item in items if isinstance(item, Parcel))
        return items

    def _let_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.release()

    def _unpack(self, items: list[Row | Parcel]) -> tuple[list[ChangeBatch], list[Completion]]:
        """Runs of rows, and the parcels between them."""
        batches: list[ChangeBatch] = []
        completions: list[Completion] = []
        rows: list[Row | Parcel] = []
        parcels = parcel_rows = 0
        for item in items:
            if not isinstance(item, Parcel):
                rows.append(item)
                continue
            if rows:
                batches.append(ChangeBatch(self.schema, self._fitting(rows), None, None))
                rows = []
            parcels += 1
            parcel_rows += len(item)
            batches += self._marked(list(map(self._upgraded, item.batches)), item.watermark)
            if item.completion is not None:
                completions.append(item.completion)
        if rows:
            batches.append(ChangeBatch(self.schema, self._fitting(rows), None, None))
        with self._lock:
            self._parcels -= parcels
            if not self._slack:
                self.parcel_rows -= parcel_rows
            watermark, self._watermark = self._watermark, None
        return self._marked(batches, watermark), completions

    def _marked(self, batches: list[ChangeBatch], watermark: int | None) -> list[ChangeBatch]:
        """Batches after which a watermark holds."""
        if watermark is None:
            return batches
        last = batches[-1] if batches else ChangeBatch(self.schema, [], None, None)
        if last.watermark is not None:
            watermark = max(watermark, last.watermark)
        return [*batches[:-1], last.with_watermark(watermark)]

    def _fitting(self, rows: list[Row | Parcel]) -> list[Row]:
        """The rows, those from before an ALTER with NULLs in the columns they lack."""
        fitting: list[Row] = rows  # type: ignore[assignment] # parcels are out by now
        if self._evolved:
            width = len(self.schema.columns)
            fitting = [row + (None,) * (width - len(row)) for row in fitting]
        return fitting

    def _upgraded(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch; one from before an ALTER with NULLs in the columns it lacks."""
        schema = self.schema
        if not self._evolved or batch.schema is schema:
            return batch
        if batch.is_arrow:
            return batch.with_columns(schema, None, schema.upgrade(batch.arrow))
        nulls = (None,) * (len(schema.columns) - len(batch.schema.columns))
        return batch.with_columns(schema, [row + nulls for row in batch.held_rows], None)

    # ---- what changes

    def evolve(self, schema: Schema) -> None:
        """Take rows of a schema with more columns from now on."""
        self._evolved = True
        self.schema = schema
        self._tell()

    def add_inline(self, inline: Inline) -> None:
        """Call one more on the pusher's thread."""
        with self._lock:
            self.inline = (*self.inline, inline)
        self._tell()

    def remove_inline(self, inline: Inline) -> None:
        """Call it no more."""
        with self._lock:
            self.inline = tuple(each for each in self.inline if each is not inline)
        self._tell()

    def stall(self, error: Error | None) -> None:
        """Raise this instead of waiting for room, since the log takes nothing; None: it does."""
        self._stalled = error
        self._let_in()

    def close(self, error: Error | None = None) -> None:
        """Take nothing more."""
        if self.closed is None:
            self.closed = error or ClosedError(
                f"the source {self.name} is closed", hint="get it again: db.source(name)"
            )
        self._tell()
        self._let_in()

    def abandon(self) -> None:
        """Nobody drains it any more: tell those who wait for what they pushed."""
        self._is_abandoned = True
        with self._lock:
            left = [item for item in self.items if isinstance(item, Parcel)]
        for parcel in left:
            if parcel.completion is not None:
                parcel.completion.settle(0, self.closed)

    def _tell(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

"""The inlet: the bounded buffer of a source, which its producers fill and the dispatcher drains.

A plain list is the buffer: ``append`` by many threads, ``[:n]`` and ``del [:n]`` by one are each a
single step of the interpreter, so no lock is taken on either side. The bound is checked before the
append, so it may be passed by as many rows as there are producers, and never by more. Only where
producers drop the oldest rows do two sides cut the list, and take a lock for it.

What is not a single row (batches, watermarks, pushes that wait for the disk) is a ``PushedBatches``
in the same list, so that the order of pushes is the order of the log.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, Protocol

from millstream.errors import ClosedError, Error, SourceFullError
from millstream.model.batch import ChangeBatch
from millstream.sources.event_time import EventTime
from millstream.threads import Completion, Waiters, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.schema import Schema
    from millstream.model.weighted_rows import Row
    from millstream.threads import Wakeup

PushPolicy = Literal["block", "drop_oldest", "reject"]
"""What a push does when the buffer is full."""


class InlineSubscriber(Protocol):
    """Is called on the pusher's own thread, before the row has a place in the log."""

    def row(self, row: Row) -> None:
        """Take a row that was pushed."""

    def batch(self, batch: ChangeBatch) -> None:
        """Take a batch that was pushed."""

    def fail(self, error: Error) -> None:
        """End: there will be no more rows."""


class PushedBatches:
    """Batches that were pushed as one: an item of the buffer that is no single row.

    Attributes:
        batches: may be empty, for a watermark alone.
        watermark: holds after them, in microseconds since 1970 UTC.
        completion: settled when they are committed, if their producer waits for that.
    """

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
    """The buffer of a source, which all its handles share.

    It has more methods than most classes, since both ends of the buffer are here: producers and the
    dispatcher share the list, its counters and one lock.

    Attributes:
        name: the source.
        schema: its columns; ALTER replaces it.
        wakeup: wakes the dispatcher.
        event_time: its watermark.
        capacity: how many rows may wait.
        policy: what a push does when there is no room.
        sync: whether producers wait until their rows are on the disk.
        drops: whether producers remove the oldest items.
        items: the buffer: rows, and batches that were pushed as one.
        dropped: rows that ``drop_oldest`` has dropped.
        pushed: rows that the dispatcher has taken.
        batch_rows: rows that wait in batches.
        removed: items that producers have removed from the buffer, to make room.
        inline: called on the pusher's thread with each row, or each batch.
        closed: why nothing is taken any more, or None.
        waiters: producers that wait for room.
        watchers: called when the schema, the inline subscribers or ``closed`` change.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        wakeup: Wakeup,
        *,
        event_time: EventTime | None = None,
        capacity: int = 65536,
        policy: PushPolicy = "block",
        sync: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self.wakeup = wakeup
        self.event_time = EventTime() if event_time is None else event_time
        self.capacity = capacity
        self.policy = policy
        self.sync = sync
        self.drops = policy == "drop_oldest"
        self.items: list[Row | PushedBatches] = []
        self.dropped = 0
        self.removed = 0
        self.pushed = 0
        self.inline: tuple[InlineSubscriber, ...] = ()
        self.closed: Error | None = None
        self.watchers: list[Callable[[], None]] = []
        self._stalled: Error | None = None
        self._evolved = False
        self._is_abandoned = False
        self._lock = threading.Lock()
        self._batch_items = 0
        self.batch_rows = 0
        self._watermark: int | None = None  # of batches that were dropped
        self.waiters = Waiters()
        # Rows are dropped many at a time, since cutting a list moves all that is behind the cut;
        # the dispatcher drops the rest, so that just the newest ``capacity`` rows come through.
        self._slack = max(1, capacity // 16) if self.drops else 0

    # ---- Ring 0

    @property
    def limit(self) -> int:
        """At how many items a push has to look closer."""
        if self.closed is not None or self.inline:
            return -1
        return self.capacity + self._slack

    def is_full(self) -> bool:
        """Whether a push would have to wait, to drop something, or to be refused."""
        return len(self.items) >= self.capacity or self.batch_rows >= self.capacity

    def make_room(self, timeout: float | None = None) -> bool:
        """Do what the policy says until there is room; False when it took longer than ``timeout``.

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
            if not self.waiters.wait(self._may_go_on, timeout):
                return False

    def _may_go_on(self) -> bool:
        return not self.is_full() or self.closed is not None or self._stalled is not None

    def enter(self, batches: list[ChangeBatch]) -> None:
        """Take batches that were pushed as one; with ``sync``, wait until they are on the disk."""
        self.make_room()
        completion = Completion() if self.sync else None
        shown = [batch.copy() for batch in batches] if self.inline else []  # without a place yet
        self.put(PushedBatches(batches, None, completion))
        for each in self.inline:
            for batch in shown:
                each.batch(batch)
        if completion is not None:
            completion.wait()

    def put(self, pushed: PushedBatches) -> None:
        """Add batches; the caller has made room."""
        rows, append = len(pushed), self.items.append
        try:
            with self._lock:
                # Counted before it is there: the dispatcher must not take it for a row. And without
                # a call in between, so that no signal can leave it counted and not there.
                self._batch_items += 1
                self.batch_rows += rows
                append(pushed)
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
            self.put(PushedBatches([], micros))

    @uninterrupted
    def _drop_oldest(self) -> None:
        with self._lock:
            while self.items and self.batch_rows >= self.capacity:
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

    def _forget(self, item: Row | PushedBatches) -> None:
        if isinstance(item, PushedBatches):
            self._batch_items -= 1
            self.batch_rows -= len(item)
            self.dropped += len(item)
            if item.watermark is not None:  # a promise about event time outlives its rows
                self._watermark = max(item.watermark, self._watermark or item.watermark)
        else:
            self.dropped += 1

    # ---- Ring 1

    def drain(
        self, count: int, removed: int | None = None
    ) -> tuple[list[ChangeBatch], list[Completion]]:
        """The first items as batches, in order, and the completions that are to be settled.

        Args:
            count: how many items there were at the cut.
            removed: how many had been removed by then; what was removed since is not there now.
                None: the cut is now.
        """
        if self._slack:
            items = self._drain_newest(count, removed)
        else:
            items = self.items[:count]
            del self.items[:count]
        if self.waiters.asleep:
            self.waiters.wake()
        schema = self.schema
        if not self._batch_items and self._watermark is None:
            self.pushed += len(items)
            rows: list[Row] = items  # type: ignore[assignment] # there is no other item
            if self._evolved:
                rows = _widened(rows, schema)
            return [ChangeBatch(schema, rows, None, None)], []
        batches, unpacked = _unpack(items, schema, evolved=self._evolved)
        with self._lock:
            self._batch_items -= len(unpacked)
            if not self._slack:
                self.batch_rows -= sum(map(len, unpacked))
            watermark, self._watermark = self._watermark, None
        if self.waiters.asleep:
            self.waiters.wake()
        batches = _with_watermark(batches, watermark, schema)
        self.pushed += sum(map(len, batches))
        return batches, [each.completion for each in unpacked if each.completion is not None]

    def _drain_newest(self, count: int, removed: int | None = None) -> list[Row | PushedBatches]:
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
            self.batch_rows -= sum(len(item) for item in items if isinstance(item, PushedBatches))
        return items

    # ---- what changes

    def evolve(self, schema: Schema) -> None:
        """Take rows of a schema with more columns from now on."""
        self._evolved = True
        self.schema = schema
        self._notify()

    def add_inline(self, inline: InlineSubscriber) -> None:
        """Call a subscriber on the pusher's thread from now on."""
        with self._lock:
            self.inline = (*self.inline, inline)
        self._notify()

    def remove_inline(self, inline: InlineSubscriber) -> None:
        """Stop calling one on the pusher's thread."""
        with self._lock:
            self.inline = tuple(each for each in self.inline if each is not inline)
        self._notify()

    def stall(self, error: Error | None) -> None:
        """Let pushes raise this instead of waiting, as the log takes nothing; None: it does."""
        self._stalled = error
        self.waiters.wake()

    def close(self, error: Error | None = None) -> None:
        """Refuse pushes, with this error or one that says that the source is closed."""
        if self.closed is None:
            self.closed = error or ClosedError(
                f"the source {self.name} is closed", hint="get it again: db.source(name)"
            )
        self._notify()
        self.waiters.wake()

    def abandon(self) -> None:
        """Fail the pushes that wait to be committed: the inlet is not drained any more."""
        self._is_abandoned = True
        with self._lock:
            left = [item for item in self.items if isinstance(item, PushedBatches)]
        for each in left:
            if each.completion is not None:
                each.completion.settle(0, self.closed)

    def _notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()


def _unpack(
    items: list[Row | PushedBatches], schema: Schema, *, evolved: bool
) -> tuple[list[ChangeBatch], list[PushedBatches]]:
    """Items as batches, in order: runs of rows, and the batches between them; and the latter."""
    batches: list[ChangeBatch] = []
    unpacked: list[PushedBatches] = []
    rows: list[Row] = []
    for item in items:
        if not isinstance(item, PushedBatches):
            rows.append(item)
            continue
        if rows:
            rows = _widened(rows, schema) if evolved else rows
            batches.append(ChangeBatch(schema, rows, None, None))
            rows = []
        unpacked.append(item)
        found = [_upgraded(batch, schema) for batch in item.batches] if evolved else item.batches
        batches += _with_watermark(found, item.watermark, schema)
    if rows:
        rows = _widened(rows, schema) if evolved else rows
        batches.append(ChangeBatch(schema, rows, None, None))
    return batches, unpacked


def _with_watermark(
    batches: list[ChangeBatch], watermark: int | None, schema: Schema
) -> list[ChangeBatch]:
    """Batches after which a watermark holds; an empty one when there is none to carry it."""
    if watermark is None:
        return batches
    last = batches[-1] if batches else ChangeBatch(schema, [], None, None)
    if last.watermark is not None:
        watermark = max(watermark, last.watermark)
    return [*batches[:-1], last.with_watermark(watermark)]


def _widened(rows: list[Row], schema: Schema) -> list[Row]:
    """The rows; those from before an ALTER with NULLs in the columns they lack."""
    width = len(schema.columns)
    return [row + (None,) * (width - len(row)) for row in rows]


def _upgraded(batch: ChangeBatch, schema: Schema) -> ChangeBatch:
    """The batch; one from before an ALTER with NULLs in the columns it lacks."""
    if batch.schema is schema:
        return batch
    if batch.is_arrow:
        return batch.with_columns(schema, None, schema.upgrade(batch.arrow))
    nulls = (None,) * (len(schema.columns) - len(batch.schema.columns))
    return batch.with_columns(schema, [row + nulls for row in batch.held_rows], None)

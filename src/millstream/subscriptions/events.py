"""Subscriptions that deliver one item at a time: events of the change bus, or notifications."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar

from millstream.errors import ClosedError, InvalidOptionError, ReceiveTimeoutError
from millstream.model.arguments import check_text
from millstream.model.clock import to_datetime
from millstream.model.display import one_line, public_names
from millstream.subscriptions.base import timed_out
from millstream.threads import deadline_of, time_left

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Change, Gap
    from millstream.model.schema import Schema
    from millstream.subscriptions.base import SubscriptionBase, SubscriptionMetrics
    from millstream.subscriptions.stream import AsyncSubscription
    from millstream.subscriptions.subscription import Subscription


class HasLsn(Protocol):
    """An item with a place in the order of commits."""

    @property
    def lsn(self) -> int:
        """Its LSN."""


T = TypeVar("T", bound=HasLsn)


class EventsBase(Generic[T]):
    """Converts the batches of a subscription to items, and delivers them one by one.

    Args:
        subscription: delivers the batches.
        convert: returns the items of a batch.

    Attributes:
        subscription: delivers the batches; call its ``pause`` and ``resume``.
    """

    subscription: SubscriptionBase

    def __init__(
        self, subscription: SubscriptionBase, convert: Callable[[ChangeBatch], Iterable[T]]
    ) -> None:
        self.subscription = subscription
        self._convert = convert
        self._batch: ChangeBatch | None = None  # received and not converted yet
        self._ready: deque[T] = deque()
        self._last_lsn = 0

    def try_recv(self) -> T | None:
        """Return the next item, or None if nothing is available.

        Raises:
            ClosedError: the subscription has ended.
        """
        while not self._ready:
            if self._batch is None:
                self._batch = self.subscription.try_recv()
            if not self._unpack():
                return None
        return self._next()

    def cancel(self) -> None:
        """End the subscription. A second call does nothing."""
        self.subscription.cancel()

    close = cancel

    def __repr__(self) -> str:
        of, name = self.subscription, type(self).__name__
        return f"<{name} {of.state}: {one_line(of.sql)}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @property
    def metrics(self) -> SubscriptionMetrics:
        """The metrics of the subscription."""
        return self.subscription.metrics

    @property
    def token(self) -> str:
        """The token with which to resume after the last delivered item."""
        if self._batch is not None:
            return self.subscription.token_at(self._batch.first_lsn - 1)
        if self._ready:  # the batch has more items
            return self.subscription.token_at(self._last_lsn)
        return self.subscription.token

    def _unpack(self) -> bool:
        """Convert the batch at hand; False when there is none.

        If a signal interrupts it, the next call does it again: nothing is lost.
        """
        if self._batch is None:
            return False
        ready = deque(self._convert(self._batch))
        self._ready, self._batch = ready, None
        return True

    def _next(self) -> T:
        event = self._ready[0]
        self._last_lsn = event.lsn
        del self._ready[0]  # from here on there is no call until the reader has it
        return event


class Events(EventsBase[T]):
    """Items for a thread that waits: iterate, or ``recv(timeout=)``."""

    subscription: Subscription

    def recv(self, timeout: float | None = None) -> T:
        """Wait for the next item and return it; ``timeout`` is in seconds, None: no limit.

        Raises:
            TimeoutError: nothing arrived in time (a ReceiveTimeoutError).
            ClosedError: the subscription has ended.
        """
        deadline = deadline_of(timeout)
        while not self._ready:
            try:
                if self._batch is None:
                    self._batch = self.subscription.recv(time_left(deadline, None))
            except ReceiveTimeoutError:
                raise timed_out(timeout) from None
            self._unpack()
        return self._next()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self.recv()
        except ClosedError:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class AsyncEvents(EventsBase[T]):
    """Items for a task: ``async for``, or ``await recv(timeout=)``."""

    subscription: AsyncSubscription

    async def recv(self, timeout: float | None = None) -> T:
        """Wait for the next item and return it; ``timeout`` is in seconds, None: no limit.

        Raises:
            TimeoutError: nothing arrived in time (a ReceiveTimeoutError).
            ClosedError: the subscription has ended.
        """
        deadline = deadline_of(timeout)
        while not self._ready:
            try:
                if self._batch is None:
                    self._batch = await self.subscription.recv(time_left(deadline, None))
            except ReceiveTimeoutError:
                raise timed_out(timeout) from None
            self._unpack()
        return self._next()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.recv()
        except ClosedError:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()


# ---- the change bus: every committed mutation as an event, in LSN order


EventOp = Literal["insert", "update", "delete", "gap"]
Include = Literal["keys", "after", "both", "changed"]
_INCLUDES = ("keys", "after", "both", "changed")


@dataclass(frozen=True, slots=True, repr=False)
class ChangeEvent:
    """A committed mutation; or, with the op ``"gap"``, mutations that the reader did not receive.

    Attributes:
        lsn: the LSN of the mutation; of a gap, its last LSN.
        collection: the source, table or view that has changed; empty for a gap on a bus over all
            collections.
        op: ``"insert"``, ``"update"``, ``"delete"`` or ``"gap"``.
        key: the primary key, as a dict from column to value; None without a primary key.
        timestamp: when the mutation was committed; of a gap, the time of the batch that reports it.
        tenant: the tenant of the row; None if the collection has no tenant column.
        before: the row before an update or delete, if included.
        after: the row after an insert or update, if included.
        changed: the changed columns of an update, if included, as a dict from column to new value.
        gap: of a gap, the range of LSNs and the number of rows; an update counts as two rows.
        cause: of a change of a view, the LSN of the commit that led to it; else 0.
    """

    lsn: int
    collection: str
    op: EventOp
    key: dict[str, Any] | None
    timestamp: datetime
    tenant: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    changed: dict[str, Any] | None = None
    gap: Gap | None = None
    cause: int = 0

    def __repr__(self) -> str:
        shown = [
            one_line(f", {name}={value!r}")
            for name in ("key", "tenant", "before", "after", "changed", "gap")
            if (value := getattr(self, name)) is not None
        ]
        place = f"{self.collection} at LSN {self.lsn}"
        return f"<ChangeEvent {self.op} {place}{''.join(shown)}, {self.timestamp.isoformat()}>"


class EventMaker:
    """Converts batches to events.

    Args:
        tenant_of: gives the tenant column of a collection, or None.
        fields: the columns to include; None for all.
        include: ``"keys"``: no values; ``"after"``, ``"both"``: the rows; ``"changed"``: what an
            update has changed, and the whole row of an insert or delete.
        collection: where the batches come from; empty: several.
    """

    def __init__(
        self,
        tenant_of: Callable[[str], str | None],
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        collection: str = "",
    ) -> None:
        if include not in _INCLUDES:
            raise InvalidOptionError(
                f"include is {include!r}", hint=f"one of {', '.join(_INCLUDES)}"
            )
        if isinstance(fields, str):
            raise InvalidOptionError(f"fields is {fields!r}", hint=f"a list: [{fields!r}]")
        if fields is not None:
            fields = _names(fields)
        self._tenant_of = tenant_of
        self._fields = None if fields is None else frozenset(fields)
        self._include = include
        self._collection = collection

    def __call__(self, batch: ChangeBatch) -> Iterator[ChangeEvent]:
        """The events of a batch, in order; before them, an event for its gap."""
        if batch.gap is not None:
            yield gap_event(batch.gap, self._collection, to_datetime(batch.committed_at))
        if not len(batch):
            return
        tenant = self._tenant_of(batch.topic)
        time, timestamp = batch.committed_at, to_datetime(batch.committed_at)
        for change in batch:
            if batch.commit_time(change.lsn) != time:
                time = batch.commit_time(change.lsn)
                timestamp = to_datetime(time)
            before, after, changed = self._images(change)
            yield ChangeEvent(
                lsn=change.lsn,
                collection=batch.topic,
                op=change.op,
                key=_key(change, batch.schema),
                timestamp=timestamp,
                tenant=None if tenant is None else change[tenant],
                before=before,
                after=after,
                changed=changed,
                cause=change.cause,
            )

    def _images(
        self, change: Change
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
        if self._include == "keys":
            return None, None, None
        after = None if change.op == "delete" else self._included(change.schema, change.row)
        before = None if change.before is None else self._included(change.schema, change.before)
        if self._include == "after":
            return None, after, None
        if self._include == "both":
            return before, after, None
        if before is None or after is None:
            return before, after, None
        return None, None, {n: v for n, v in after.items() if before[n] != v}

    def _included(self, schema: Schema, row: tuple[Any, ...]) -> dict[str, Any]:
        pairs = zip(schema.names, row, strict=True)
        return {n: v for n, v in pairs if self._fields is None or n in self._fields}


def gap_event(gap: Gap, collection: str, timestamp: datetime) -> ChangeEvent:
    """The event that reports a gap."""
    return ChangeEvent(gap.last_lsn, collection, "gap", None, timestamp, gap=gap)


def _names(fields: Sequence[str]) -> list[str]:
    try:
        names = list(fields)
    except TypeError as error:
        raise InvalidOptionError(f"fields is {fields!r}", hint="a list of columns") from error
    for name in names:
        check_text(name, "a column in fields")
    return names


def _key(change: Change, schema: Schema) -> dict[str, Any] | None:
    return {name: change[name] for name in schema.key} if schema.key else None

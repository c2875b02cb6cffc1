"""What a session pushes out: subscriptions, the change bus, notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from millstream.engine import notifications, subscribe
from millstream.errors import InvalidOptionError
from millstream.subscriptions import (
    AsyncCutSubscription,
    AsyncEvents,
    AsyncSubscription,
    CallbackSubscription,
    CutSubscription,
    Events,
    NotificationMaker,
    SubscribeOptions,
    Subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.engine.context import Context
    from millstream.model.batch import ChangeBatch
    from millstream.model.cut import Cut
    from millstream.notebook import LiveTable
    from millstream.sql import ParameterValues
    from millstream.subscriptions import (
        Ack,
        AsyncListener,
        Backpressure,
        ChangeEvent,
        Channels,
        Include,
        InlineSubscription,
        Listener,
        Notification,
        Start,
    )

Queries: TypeAlias = "list[str] | tuple[str, ...]"
"""Names of sources, tables and views, and SELECTs, that are read together."""


def check_queries(queries: object, parameters: object, *, inline: bool = False) -> None:
    """Raise unless several queries can be read together.

    Raises:
        InvalidOptionError: they are not in a list, or it is empty; they have parameters, or are to
            be inline.
    """
    if not isinstance(queries, list | tuple):
        raise InvalidOptionError(
            f"expected a query or a list of them, got {type(queries).__name__}",
            hint='"SELECT ...", or ["view", "SELECT ..."]',
        )
    if not queries:
        raise InvalidOptionError("the list of queries is empty", hint='["view", "table"]')
    if parameters is not None or inline:
        raise InvalidOptionError(
            f"a list of queries has no {'inline' if inline else 'parameters'}",
            hint="leave it out, or subscribe to each query",
        )


class Subscribing:
    """The methods of a ``Session`` that push out.

    It is a part of the public face: a method for everything that users do, and no logic of its own.
    """

    _channels: Channels

    def _context_of(self, tenant: str | None) -> Context:
        """What a call runs in."""
        raise NotImplementedError

    @overload
    def subscribe(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        query: Queries,
        *,
        start: Start = None,
        buffer_rows: int = 65536,
        tenant: str | None = None,
    ) -> CutSubscription: ...
    def subscribe(
        self,
        query: str | Queries,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> Subscription | CutSubscription:
        """Subscribe to the changes of a query's result, and receive them in your own thread.

        Iterate over the subscription, or call ``recv(timeout=)``. Every row that is pushed after
        this call has returned is delivered.

        Args:
            query: a SELECT; groups and joins use a hidden view, shared by identical queries. Or a
                list of names and SELECTs, whose changes are delivered together, up to one LSN at a
                time (see ``Cut``); a list takes the options ``start``, ``buffer_rows``, ``tenant``.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            start: where to start. None: a source with new rows, a table or a view with a snapshot
                of its rows. Or ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a
                datetime. With an LSN or a datetime, a table or a view starts with its rows of then.
            backpressure: the policy for a slow reader: ``block`` (nothing is lost; rows beyond the
                buffer are read from the log), ``drop_oldest``, ``drop_newest``, ``sample(n)``,
                ``conflate``, ``disconnect``.
            buffer_rows: maximum number of rows that wait in memory.
            max_rows: maximum number of rows in a batch.
            max_delay: seconds that a batch waits for ``max_rows`` rows.
            demand: initial credit in rows; further rows are delivered as ``request(n)`` asks.
            name: makes the subscription durable: it resumes after the last ``ack``, also after a
                restart.
            tenant: read only this tenant's rows.
        """
        context = self._context_of(tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )
        if not isinstance(query, str):
            check_queries(query, parameters)
            return subscribe.cut(context, CutSubscription, query, options)
        return subscribe.query(context, Subscription, query, parameters, options)

    @overload
    def subscribe_callback(
        self,
        query: str,
        on_change: Callable[[ChangeBatch], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        inline: Literal[False] = False,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        ack: Ack = "auto",
        tenant: str | None = None,
    ) -> CallbackSubscription: ...
    @overload
    def subscribe_callback(
        self,
        query: str,
        on_change: Callable[[ChangeBatch], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        inline: Literal[True],
        tenant: str | None = None,
    ) -> InlineSubscription: ...
    @overload
    def subscribe_callback(
        self,
        query: Queries,
        on_change: Callable[[Cut], object],
        *,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        start: Start = None,
        buffer_rows: int = 65536,
        tenant: str | None = None,
    ) -> CallbackSubscription: ...
    def subscribe_callback(
        self,
        query: str | Queries,
        on_change: Callable[[ChangeBatch], object] | Callable[[Cut], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        inline: bool = False,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        ack: Ack = "auto",
        tenant: str | None = None,
    ) -> CallbackSubscription | InlineSubscription:
        """Call a function with every batch of changes, on a thread of the subscription.

        Args:
            query: a SELECT, or a list, as for ``subscribe``.
            on_change: called with each batch, or cut, in order. An ``async def`` is refused: use
                ``subscribe_stream``.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            on_error: called with the exceptions of ``on_change``, and with the error that ends the
                subscription.
            on_complete: called when the database closes.
            inline: call on the pusher's thread, before the row is committed. Of the options below,
                an inline callback takes only ``tenant``.
            start: where to start, as for ``subscribe``.
            backpressure: the policy for a slow callback, as for ``subscribe``.
            buffer_rows: maximum number of rows that wait in memory.
            max_rows: maximum number of rows in a batch.
            max_delay: seconds that a batch waits for ``max_rows`` rows.
            demand: initial credit in rows; further rows are delivered as ``request(n)`` asks.
            name: makes the subscription durable: it resumes after the last acknowledged batch.
            ack: who acknowledges for a durable subscription. ``"auto"``: the callback, by
                returning; after it has raised, no further batch is acknowledged, so that the failed
                one is delivered again when the subscription is opened the next time. ``"manual"``:
                the program, with ``batch.ack()``.
            tenant: read only this tenant's rows.
        """
        context = self._context_of(tenant)
        given = subscribe.checked_callbacks(on_change, on_error, on_complete)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
            ack=ack,
        )
        if not isinstance(query, str):
            check_queries(query, parameters, inline=inline)
            return subscribe.cut(context, CallbackSubscription, query, options, **given)
        if inline:
            subscribe.check_inline(options)
            return subscribe.inline(context, query, parameters, **given)
        return subscribe.query(context, CallbackSubscription, query, parameters, options, **given)

    @overload
    def subscribe_stream(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> AsyncSubscription: ...
    @overload
    def subscribe_stream(
        self,
        query: Queries,
        *,
        start: Start = None,
        buffer_rows: int = 65536,
        tenant: str | None = None,
    ) -> AsyncCutSubscription: ...
    def subscribe_stream(
        self,
        query: str | Queries,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> AsyncSubscription | AsyncCutSubscription:
        """Subscribe to the changes of a query's result, and receive them with ``async for``.

        The arguments are those of ``subscribe``.
        """
        context = self._context_of(tenant)
        options = SubscribeOptions(
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=max_rows,
            max_delay=max_delay,
            demand=demand,
            name=name,
        )
        if not isinstance(query, str):
            check_queries(query, parameters)
            return subscribe.cut(context, AsyncCutSubscription, query, options)
        return subscribe.query(context, AsyncSubscription, query, parameters, options)

    def watch(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        limit: int = 100,
        start: Start = None,
        backpressure: Backpressure = "block",
        tenant: str | None = None,
    ) -> LiveTable:
        """Show the result of a query as a live table in a notebook.

        The table shows the rows, the changes per second and the lag. It is updated until
        ``stop()``, or its button. A result without a key, such as that of a source, shows its
        newest rows.

        Args:
            query: a SELECT, as for ``subscribe``.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            limit: number of rows to show, up to 10,000.
            start: where to start, as for ``subscribe``. By default a source shows new rows only.
            backpressure: the policy for a slow notebook, as for ``subscribe``.
            tenant: read only this tenant's rows.

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from millstream.notebook import watch  # noqa: PLC0415 - an extra, and its widgets are slow

        subscription = self.subscribe(
            query, parameters, start=start, backpressure=backpressure, tenant=tenant
        )
        return watch(subscription, limit=limit)

    # ---- the change bus

    def changes(
        self,
        collection: str | None = None,
        tenant: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
    ) -> Events[ChangeEvent]:
        """Follow every committed mutation, one event at a time, in LSN order.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        ...     bus = db.changes("t", include="changed")
        ...     _ = db.execute("INSERT INTO t VALUES (1, 10); UPDATE t SET n = 11 WHERE id = 1")
        ...     [(e.op, e.key, e.changed) for e in (bus.recv(10), bus.recv(10))]
        [('insert', {'id': 1}, None), ('update', {'id': 1}, {'n': 11})]

        Args:
            collection: a source, table or view; None: all of them, those created later included.
            tenant: read only this tenant's rows, and no collection without a tenant column.
            fields: the columns in the events; None: all.
            include: the values in the events: ``"keys"``, ``"after"``, ``"both"``, ``"changed"``.
            start: where to start, as for ``subscribe``.
            backpressure: the policy for a slow reader, as for ``subscribe``.
            buffer_rows: maximum number of rows that wait in memory.
        """
        context = self._context_of(tenant)
        maker = subscribe.event_maker(context, collection, fields, include)
        options = SubscribeOptions(start=start, backpressure=backpressure, buffer_rows=buffer_rows)
        return Events(subscribe.changes(context, Subscription, collection, options), maker)

    def changes_stream(
        self,
        collection: str | None = None,
        tenant: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: Backpressure = "block",
        buffer_rows: int = 65536,
    ) -> AsyncEvents[ChangeEvent]:
        """Follow every committed mutation with ``async for``; arguments as for ``changes``."""
        context = self._context_of(tenant)
        maker = subscribe.event_maker(context, collection, fields, include)
        options = SubscribeOptions(start=start, backpressure=backpressure, buffer_rows=buffer_rows)
        made = subscribe.changes(context, AsyncSubscription, collection, options)
        return AsyncEvents(made, maker)

    def notify(self, channel: str, payload: str = "", *, tenant: str | None = None) -> None:
        """Send a message to the listeners of a channel."""
        notifications.send(self._context_of(tenant), channel, payload)

    def listen(self, *channels: str, tenant: str | None = None) -> Listener:
        """Receive the messages on the given channels, or on all channels.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     listener = db.listen("orders")
        ...     db.notify("orders", "42 is ready")
        ...     listener.recv(timeout=10).payload
        '42 is ready'
        """
        made = notifications.subscribe_to(self._context_of(tenant), Subscription, channels)
        return Events(made, NotificationMaker())

    def listen_stream(self, *channels: str, tenant: str | None = None) -> AsyncListener:
        """Receive the messages on the given channels, or on all, with ``async for``."""
        made = notifications.subscribe_to(self._context_of(tenant), AsyncSubscription, channels)
        return AsyncEvents(made, NotificationMaker())

    def notifies(self, timeout: float | None = None) -> Iterator[Notification]:
        """Yield the messages on the channels of SQL's LISTEN.

        The iterator ends after ``timeout`` seconds without a message; None: no limit.
        """
        return self._channels.notifies(timeout)

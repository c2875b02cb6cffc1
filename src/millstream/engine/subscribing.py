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
        """The changes of a query's result: iterate over it, or call ``recv(timeout=)``.

        Args:
            query: a SELECT; groups and joins need a hidden view, shared by identical queries. A
                list of names and SELECTs: all of them at one LSN at a time, see ``Cut``; of the
                options it takes ``start``, ``buffer_rows`` and ``tenant``.
            parameters: the values of ``?`` or ``:name`` in it, as for ``execute``.
            start: None: a source from now on, a table with its rows and then their changes;
                or ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a datetime. A table
                or a view begins with its rows as they were at an LSN or a datetime.
            backpressure: what happens when the reader is too slow: ``block`` (nothing is lost, the
                rest is read from the log), ``drop_oldest``, ``drop_newest``, ``sample(n)``,
                ``conflate``, ``disconnect``.
            buffer_rows: how many rows wait for it in memory.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` rows.
            demand: initial credit in rows; more is delivered only as ``request(n)`` asks.
            name: makes it durable: it resumes after the last ``ack``, also after a restart.
            tenant: only this tenant's rows.
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
        """Call back with every batch of changes, on a thread of its own.

        Args:
            query: a SELECT, or a list, as for ``subscribe``.
            on_change: called with one batch, or cut, after another; for ``async def``,
                ``subscribe_stream``.
            parameters: the values of ``?`` or ``:name`` in the query.
            on_error: called with what ``on_change`` raises, and with what ends the subscription.
            on_complete: called at the end, when the database closes.
            inline: call on the pusher's thread instead, before the row is committed; such a
                callback has none of the options that follow, except ``tenant``.
            start: as for ``subscribe``, and so are all that follow.
            backpressure: what happens when the callback is too slow.
            buffer_rows: how many rows wait for it in memory.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` rows.
            demand: initial credit in rows; more is delivered only as ``request(n)`` asks.
            name: makes it durable: it resumes after the last batch that was acknowledged.
            ack: of a durable one: ``"auto"`` acknowledges a batch when the callback has returned,
                and stops to do so when it has raised, so that the batch is given again when the
                subscription is opened the next time; ``"manual"`` leaves it to ``batch.ack()``.
            tenant: only this tenant's rows.
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
        """The changes of a query's result, for ``async for``; arguments are those of subscribe."""
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
        """A table in a notebook that changes as the result of a query does.

        It shows rows, rows a second and lag, and runs until ``stop()``, or its button. A result
        without a key, such as that of a source, is shown by its newest rows.

        Args:
            query: a SELECT, as for ``subscribe``.
            parameters: the values of ``?`` or ``:name`` in it.
            limit: how many rows are shown, up to 10,000.
            start: as for ``subscribe``: without it a source is shown from now on.
            backpressure: what happens when the notebook is too slow, as for ``subscribe``.
            tenant: only this tenant's rows.

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
        """Every committed mutation, one by one, in LSN order.

        >>> import millstream as ms
        >>> with ms.open() as db:
        ...     _ = db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        ...     bus = db.changes("t", include="changed")
        ...     _ = db.execute("INSERT INTO t VALUES (1, 10); UPDATE t SET n = 11 WHERE id = 1")
        ...     [(e.op, e.key, e.changed) for e in (bus.recv(10), bus.recv(10))]
        [('insert', {'id': 1}, None), ('update', {'id': 1}, {'n': 11})]

        Args:
            collection: a source or table; None: all, those created later included.
            tenant: only this tenant's rows; collections without tenants are left out.
            fields: the columns in the events; None: all.
            include: which values are in them: ``"keys"``, ``"after"``, ``"both"``, ``"changed"``.
            start: as for ``subscribe``.
            backpressure: what happens when the reader is too slow, as for ``subscribe``.
            buffer_rows: how many rows wait for it in memory.
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
        """Every committed mutation, for ``async for``; arguments are those of ``changes``."""
        context = self._context_of(tenant)
        maker = subscribe.event_maker(context, collection, fields, include)
        options = SubscribeOptions(start=start, backpressure=backpressure, buffer_rows=buffer_rows)
        made = subscribe.changes(context, AsyncSubscription, collection, options)
        return AsyncEvents(made, maker)

    def notify(self, channel: str, payload: str = "", *, tenant: str | None = None) -> None:
        """Send a message to the listeners of a channel."""
        notifications.send(self._context_of(tenant), channel, payload)

    def listen(self, *channels: str, tenant: str | None = None) -> Listener:
        """The messages on some channels, or on all.

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
        """The messages on some channels, or on all, for ``async for``."""
        made = notifications.subscribe_to(self._context_of(tenant), AsyncSubscription, channels)
        return AsyncEvents(made, NotificationMaker())

    def notifies(self, timeout: float | None = None) -> Iterator[Notification]:
        """The messages on the channels of SQL's LISTEN; ends after so many seconds without one."""
        return self._channels.notifies(timeout)

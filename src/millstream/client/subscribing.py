"""What a client pushes out: subscriptions, in all styles."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from millstream.client.frames import FrameReader
from millstream.engine.subscribe import checked_callbacks
from millstream.engine.subscribing import check_queries
from millstream.errors import InvalidOptionError
from millstream.model.arguments import check_text
from millstream.model.names import check_name
from millstream.subscriptions import (
    AsyncCutSubscription,
    AsyncEvents,
    AsyncSubscription,
    CallbackSubscription,
    CutSubscription,
    EventMaker,
    Events,
    NotificationMaker,
    SubscribedQuery,
    SubscribeOptions,
    Subscription,
    SubscriptionBase,
    check_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.client.inbox import RemoteInbox
    from millstream.client.link import Link
    from millstream.delivery.inbox import Inbox
    from millstream.engine.subscribing import Queries
    from millstream.model.batch import ChangeBatch
    from millstream.model.cut import Cut
    from millstream.model.result import Result
    from millstream.notebook import LiveTable
    from millstream.sql import ParameterValues
    from millstream.subscriptions import (
        Ack,
        AsyncListener,
        Backpressure,
        ChangeEvent,
        Include,
        Listener,
        Start,
    )

_DEFAULTS = SubscribeOptions()
S = TypeVar("S", bound=SubscriptionBase)


class RemoteSubscribing:
    """The methods of a ``Client`` that push out. Subscriptions are those of a database."""

    _link: Link

    def _check(self) -> None:
        """Raise when the client is closed."""
        raise NotImplementedError

    def execute(self, sql: str, parameters: ParameterValues = None) -> Result:
        """Run statements."""
        raise NotImplementedError

    @overload
    def subscribe(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        query: Queries,
        *,
        start: Start = None,
        buffer_rows: int = 16_384,
    ) -> CutSubscription: ...
    def subscribe(
        self,
        query: str | Queries,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> Subscription | CutSubscription:
        """Subscribe to the changes of a query's result, and receive them in your own thread.

        Iterate over the subscription, or call ``recv(timeout=)``. Every row that is pushed after
        this call has returned is delivered. After a disconnection the subscription resumes by
        itself; no change is lost, and none is delivered twice.

        Args:
            query: a SELECT. Or a list of names and SELECTs, whose changes are delivered together,
                up to one LSN at a time (see ``Cut``); a list takes the options ``start`` and
                ``buffer_rows``.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            start: where to start. None: a source with new rows, a table or a view with a snapshot
                of its rows. Or ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a
                datetime.
            backpressure: the server's policy for a slow reader, as for ``Database``.
            buffer_rows: maximum number of rows that wait in this process, and in the server.
            max_rows: maximum number of rows in a batch.
            max_delay: seconds that a batch waits for ``max_rows`` rows.
            demand: initial credit in rows; further rows are delivered as ``request(n)`` asks.
            name: makes the subscription durable: it resumes after the last ``ack``, also after a
                restart.

        Raises:
            SqlError: the query is refused.
            DisconnectedError: the server cannot be reached.
        """
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
            return self._open_cut(CutSubscription, query, parameters, options)
        return self._open(Subscription, query, parameters, options)

    @overload
    def subscribe_callback(
        self,
        query: str,
        on_change: Callable[[ChangeBatch], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        ack: Ack = "auto",
    ) -> CallbackSubscription: ...
    @overload
    def subscribe_callback(
        self,
        query: Queries,
        on_change: Callable[[Cut], object],
        *,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        start: Start = None,
        buffer_rows: int = 16_384,
    ) -> CallbackSubscription: ...
    def subscribe_callback(
        self,
        query: str | Queries,
        on_change: Callable[[ChangeBatch], object] | Callable[[Cut], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
        ack: Ack = "auto",
    ) -> CallbackSubscription:
        """Call a function with every batch of changes, on a thread of the subscription.

        Args:
            query: a SELECT, or a list of names and SELECTs, as for ``subscribe``.
            on_change: called with each batch, or each ``Cut`` of a list, in order.
            parameters: the values of ``?`` or ``:name``, as for ``execute``.
            on_error: called with the exceptions of ``on_change``, and with the error that ends the
                subscription.
            on_complete: called when the client closes.
            start: where to start, as for ``subscribe``.
            backpressure: the server's policy for a slow callback.
            buffer_rows: maximum number of rows that wait in this process, and in the server.
            max_rows: maximum number of rows in a batch.
            max_delay: seconds that a batch waits for ``max_rows`` rows.
            demand: initial credit in rows; further rows are delivered as ``request(n)`` asks.
            name: makes the subscription durable: it resumes after the last acknowledged batch.
            ack: who acknowledges for a durable subscription, ``"auto"`` or ``"manual"``, as for
                ``Database``.
        """
        given = checked_callbacks(on_change, on_error, on_complete)
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
        if isinstance(query, str):
            made = self._open(CallbackSubscription, query, parameters, options, **given)
        else:
            made = self._open_cut(CallbackSubscription, query, parameters, options, **given)
        made.start()
        return made

    @overload
    def subscribe_stream(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> AsyncSubscription: ...
    @overload
    def subscribe_stream(
        self,
        query: Queries,
        *,
        start: Start = None,
        buffer_rows: int = 16_384,
    ) -> AsyncCutSubscription: ...
    def subscribe_stream(
        self,
        query: str | Queries,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> AsyncSubscription | AsyncCutSubscription:
        """Subscribe to the changes of a query's result, and receive them with ``async for``.

        The arguments are those of ``subscribe``. This call waits for the server's answer; if that
        may take long, call it with ``asyncio.to_thread``.
        """
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
            return self._open_cut(AsyncCutSubscription, query, parameters, options)
        return self._open(AsyncSubscription, query, parameters, options)

    def watch(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        limit: int = 100,
        start: Start = None,
        backpressure: Backpressure = "block",
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

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from millstream.notebook import watch  # noqa: PLC0415 - an extra, and its widgets are slow

        subscription = self.subscribe(query, parameters, start=start, backpressure=backpressure)
        return watch(subscription, limit=limit)

    # ---- the change bus

    def changes(
        self,
        collection: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
    ) -> Events[ChangeEvent]:
        """Follow every committed mutation that the key may see, in LSN order.

        Args:
            collection: a source, table or view; None: all of them, those created later included.
            fields: the columns in the events; None: all.
            include: the values in the events: ``"keys"``, ``"after"``, ``"both"``, ``"changed"``.
            start: where to start, as for ``subscribe``.
            backpressure: the server's policy for a slow reader.
            buffer_rows: maximum number of rows that wait in this process, and in the server.
        """
        options = SubscribeOptions(start=start, backpressure=backpressure, buffer_rows=buffer_rows)
        return Events(*self._open_changes(Subscription, collection, fields, include, options))

    def changes_stream(
        self,
        collection: str | None = None,
        *,
        fields: Sequence[str] | None = None,
        include: Include = "keys",
        start: Start = "now",
        backpressure: Backpressure = "block",
        buffer_rows: int = 16_384,
    ) -> AsyncEvents[ChangeEvent]:
        """Follow every committed mutation with ``async for``; arguments as for ``changes``."""
        options = SubscribeOptions(start=start, backpressure=backpressure, buffer_rows=buffer_rows)
        opened = self._open_changes(AsyncSubscription, collection, fields, include, options)
        return AsyncEvents(*opened)

    # ---- messages

    def notify(self, channel: str, payload: str = "") -> None:
        """Send a message to the listeners of a channel."""
        check_name(channel, "channel")
        self.execute(f'NOTIFY "{channel}", ?', [payload])

    def listen(self, *channels: str) -> Listener:
        """Receive the messages on some channels, except those sent while disconnected."""
        return Events(self._listen(Subscription, channels), NotificationMaker())

    def listen_stream(self, *channels: str) -> AsyncListener:
        """Receive the messages on some channels, with ``async for``."""
        return AsyncEvents(self._listen(AsyncSubscription, channels), NotificationMaker())

    def _listen(self, style: type[S], channels: tuple[str, ...]) -> S:
        self._check()
        if not channels:
            raise InvalidOptionError("name at least one channel", hint='db.listen("orders")')
        for channel in channels:
            check_name(channel, "channel")
        return self._made(style, self._link.listen(tuple(dict.fromkeys(channels))))

    # ---- opening

    def _open(
        self,
        style: type[S],
        query: str,
        parameters: ParameterValues,
        options: SubscribeOptions,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> S:
        self._check()
        options.check_ack()
        inbox = self._link.open(_message(query, parameters, options), options.buffer_rows)
        return self._made(style, inbox, options, **callbacks)

    def _open_cut(
        self,
        style: type[S],
        queries: Queries,
        parameters: ParameterValues,
        options: SubscribeOptions,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> S:
        self._check()
        check_queries(queries, parameters)
        check_options(options)
        for each in queries:
            check_text(each, "a query in a list")
        wanted = _fields(options, "start", "buffer_rows")
        inbox = self._link.open_cut(list(queries), wanted, options.buffer_rows)
        return self._made(style, inbox, options, **callbacks)

    def _open_changes(
        self,
        style: type[S],
        collection: str | None,
        fields: Sequence[str] | None,
        include: Include,
        options: SubscribeOptions,
    ) -> tuple[S, EventMaker]:
        """A subscription to the change bus, and what makes events of its batches."""
        self._check()
        check_text(collection, "collection", optional=True)
        frames = FrameReader()
        maker = EventMaker(frames.tenants.get, fields, include, collection or "")
        wanted = {"collection": collection} if collection is not None else {}
        wanted |= _fields(options, "start", "backpressure", "buffer_rows")
        inbox = self._link.open_changes(wanted, options.buffer_rows, frames)
        subscription = self._made(style, inbox, options)
        known = subscription.schema.names if collection is not None else ()
        unknown = [name for name in fields or () if known and name not in known]
        if unknown:
            subscription.cancel()
            raise InvalidOptionError(
                f"{collection} has no column {unknown[0]!r}",
                hint=f"available columns: {', '.join(known)}",
            )
        return subscription, maker

    def _made(
        self,
        style: type[S],
        inbox: RemoteInbox,
        options: SubscribeOptions = _DEFAULTS,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> S:
        """A subscription that reads from an inbox."""
        link = self._link
        is_durable = options.name is not None
        acknowledged = [inbox.frames.lsn]

        def acknowledge(lsn: int) -> None:
            link.acknowledge(inbox, lsn)
            acknowledged[0] = max(acknowledged[0], lsn)

        return style(
            cast("Inbox", inbox),  # it has all that subscriptions use
            SubscribedQuery(sql=inbox.sql, schema=inbox.frames.schema, target=inbox.frames.target),
            replace(options, max_delay=None),  # the server waits
            acknowledge=acknowledge if is_durable else None,
            acknowledged=(lambda: acknowledged[0]) if is_durable else None,
            leave=cast("Callable[[Inbox], None]", link.leave),
            forgotten=cast("Callable[[Inbox], None]", link.forget),
            **callbacks,
        )


def _message(query: str, parameters: ParameterValues, options: SubscribeOptions) -> dict[str, Any]:
    """The fields of a ``subscribe`` message. What is demanded is counted here, not there."""
    names = ("start", "backpressure", "buffer_rows", "max_rows", "max_delay", "name")
    wanted = {"sql": query, **_fields(options, *names)}
    return wanted if parameters is None else {**wanted, "params": parameters}


def _fields(options: SubscribeOptions, *names: str) -> dict[str, Any]:
    """Some options as fields of a message; rows are to come in Arrow."""
    given = {name: getattr(options, name) for name in names}
    if isinstance(options.start, datetime):
        given["start"] = options.start.isoformat()
    return {name: value for name, value in given.items() if value is not None} | {
        "encoding": "arrow"
    }

"""What a client pushes out: subscriptions, in all styles."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.engine.subscribe import checked_callbacks
from millstream.errors import InvalidOptionError
from millstream.model.names import check_name
from millstream.subscriptions import (
    AsyncEvents,
    AsyncSubscription,
    CallbackSubscription,
    Events,
    NotificationMaker,
    SubscribedQuery,
    SubscribeOptions,
    Subscription,
    SubscriptionBase,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.inbox import RemoteInbox
    from millstream.client.link import Link
    from millstream.delivery.inbox import Inbox
    from millstream.model.batch import ChangeBatch
    from millstream.model.result import Result
    from millstream.notebook import LiveTable
    from millstream.sql import ParameterValues
    from millstream.subscriptions import AsyncListener, Listener, Start

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

    def subscribe(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> Subscription:
        """The changes of a query's result: iterate over it, or call ``recv(timeout=)``.

        It goes on by itself when the server was away, with nothing lost and nothing twice. A row
        that is pushed after this returned is seen.

        Args:
            query: a SELECT.
            parameters: the values of ``?`` or ``:name`` in it, as for ``execute``.
            start: None: a source from now on, a table or a view with its rows and then their
                changes; or ``"now"``, ``"earliest"``, ``"snapshot"``, a token, an LSN, a datetime.
            backpressure: what the server does when the reader is too slow, as for ``Database``.
            buffer_rows: how many rows wait for it here, and as many in the server.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` rows.
            demand: hand over only what ``request(n)`` asks for, and so many rows to begin with.
            name: makes it durable: it resumes after the last ``ack``, also after a restart.

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
        return self._open(Subscription, query, parameters, options)

    def subscribe_callback(
        self,
        query: str,
        on_change: Callable[[ChangeBatch], object],
        *,
        parameters: ParameterValues = None,
        on_error: Callable[[BaseException], object] | None = None,
        on_complete: Callable[[], object] | None = None,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> CallbackSubscription:
        """Call back with every batch of changes, on a thread of its own.

        Args:
            query: a SELECT.
            on_change: called with one batch after another.
            parameters: the values of ``?`` or ``:name`` in the query.
            on_error: called with what ``on_change`` raises, and with what ends the subscription.
            on_complete: called at the end, when the client closes.
            start: as for ``subscribe``, and so are all that follow.
            backpressure: what the server does when the callback is too slow.
            buffer_rows: how many rows wait for it here, and as many in the server.
            max_rows: at most so many rows in a batch.
            max_delay: wait so many seconds for ``max_rows`` rows.
            demand: call only with what ``request(n)`` asks for, and so many rows to begin with.
            name: makes it durable.
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
        )
        made = self._open(CallbackSubscription, query, parameters, options, **given)
        made.start()
        return made

    def subscribe_stream(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        start: Start = None,
        backpressure: str = "block",
        buffer_rows: int = 16_384,
        max_rows: int | None = None,
        max_delay: float | None = None,
        demand: int | None = None,
        name: str | None = None,
    ) -> AsyncSubscription:
        """The changes of a query's result, for ``async for``; arguments are those of subscribe.

        This call itself waits for the server's answer; where that may take long, call it with
        ``asyncio.to_thread``.
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
        return self._open(AsyncSubscription, query, parameters, options)

    def watch(
        self,
        query: str,
        parameters: ParameterValues = None,
        *,
        limit: int = 100,
        start: Start = None,
        backpressure: str = "block",
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

        Raises:
            MissingExtraError: anywidget is not installed.
        """
        from millstream.notebook import watch  # noqa: PLC0415 - an extra, and its widgets are slow

        subscription = self.subscribe(query, parameters, start=start, backpressure=backpressure)
        return watch(subscription, limit=limit)

    # ---- messages

    def notify(self, channel: str, payload: str = "") -> None:
        """Send a message to the listeners of a channel."""
        check_name(channel, "channel")
        self.execute(f'NOTIFY "{channel}", ?', [payload])

    def listen(self, *channels: str) -> Listener:
        """The messages on some channels. Those sent while the server is away do not come."""
        return Events(self._listen(Subscription, channels), NotificationMaker())

    def listen_stream(self, *channels: str) -> AsyncListener:
        """The messages on some channels, for ``async for``."""
        return AsyncEvents(self._listen(AsyncSubscription, channels), NotificationMaker())

    def _listen(self, style: type[S], channels: tuple[str, ...]) -> S:
        self._check()
        if not channels:
            raise InvalidOptionError("there is no channel", hint='db.listen("orders")')
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
        if not isinstance(query, str):
            raise InvalidOptionError(
                f"a client subscribes to one query, got {type(query).__name__}",
                hint="subscribe to each; or, where the database is opened, to a list",
            )
        inbox = self._link.open(_message(query, parameters, options), options.buffer_rows)
        return self._made(style, inbox, options, **callbacks)

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
            SubscribedQuery(sql=inbox.sql, schema=inbox.frames.schema),
            replace(options, max_delay=None),  # the server waits
            acknowledge=acknowledge if is_durable else None,
            acknowledged=(lambda: acknowledged[0]) if is_durable else None,
            leave=cast("Callable[[Inbox], None]", link.leave),
            forgotten=cast("Callable[[Inbox], None]", link.forget),
            **callbacks,
        )


def _message(query: str, parameters: ParameterValues, options: SubscribeOptions) -> dict[str, Any]:
    """The fields of a ``subscribe`` message. What is demanded is counted here, not there."""
    start = options.start
    wanted = {
        "sql": query,
        "params": parameters,
        "start": start.isoformat() if isinstance(start, datetime) else start,
        "backpressure": options.backpressure,
        "buffer_rows": options.buffer_rows,
        "max_rows": options.max_rows,
        "max_delay": options.max_delay,
        "name": options.name,
        "encoding": "arrow",
    }
    return {name: value for name, value in wanted.items() if value is not None}

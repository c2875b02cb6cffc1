"""Opening subscriptions: from a query, a collection or a channel to something that can be read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from millstream.delivery.feed import LogFeed, MultiLogFeed
from millstream.engine.engine import NOTIFICATIONS
from millstream.engine.execute import Executor, shown_to
from millstream.errors import (
    InvalidOptionError,
    ObjectNotFoundError,
    SqlUnsupportedError,
    WrongObjectError,
)
from millstream.model.arguments import check_text
from millstream.sql import Query, Select, parse, plan_all, plan_select
from millstream.subscriptions import (
    EventMaker,
    InlineSubscription,
    Registry,
    SubscribedQuery,
    SubscribeOptions,
    SubscriptionBase,
)
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Definition
    from millstream.delivery.inbox import Inbox
    from millstream.engine.engine import Engine
    from millstream.model.batch import ChangeBatch
    from millstream.sql import ParameterValues, SelectPlan
    from millstream.subscriptions import Include
    from millstream.views.running import Running
    from millstream.views.views import Views

R = TypeVar("R", bound=SubscriptionBase)
_DEFAULTS: Final = SubscribeOptions()


def _cancel(subscription: SubscriptionBase | InlineSubscription) -> None:
    subscription.cancel()


class Opener:
    """Opens subscriptions of every style.

    Args:
        engine: what they read.
        registry: which keeps them.
    """

    def __init__(self, engine: Engine, registry: Registry) -> None:
        self._engine = engine
        self._registry = registry

    @uninterrupted(undo=_cancel)
    def query(
        self,
        style: type[R],
        sql: str | Select | Query,
        parameters: ParameterValues = None,
        options: SubscribeOptions = _DEFAULTS,
        *,
        tenant: str | None = None,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> R:
        """A subscription to the changes of a query's result."""
        select = sql if isinstance(sql, Select | Query) else _select(sql, parameters)
        if isinstance(select, Query):
            hidden, plan = self._hidden(select, tenant, options.name)
            definition = hidden.planned.definition
            feed_of: type[LogFeed] = partial(SharedFeed, self._engine.views, hidden)  # type: ignore[assignment]
        else:
            definition, plan = self.plan(select, tenant)
            with shown_to(tenant):
                self._engine.check_view(definition)
            feed_of = LogFeed
        snapshot = self._engine.snapshot(definition, plan)
        subscribed = SubscribedQuery(
            sql=select.text,
            schema=plan.schema,
            target=definition.name,
            tenant=tenant,
            has_state=snapshot is not None,
            born=definition.born,
            check_exists=lambda: self._check_exists(definition),
        )
        feed = feed_of(self._engine.log, self._engine.dispatcher, plan, snapshot)
        return self._open(style, feed, subscribed, options, **callbacks)

    def _hidden(
        self, query: Query, tenant: str | None, name: str | None
    ) -> tuple[Running, SelectPlan]:
        """The view that answers a query which nobody has created one for, up to date."""
        if name is not None:
            raise InvalidOptionError(
                "a durable subscription to such a query needs a view that lasts",
                hint="CREATE MATERIALIZED VIEW v AS ...; then subscribe to SELECT * FROM v",
            )
        engine = self._engine
        running = engine.share_view(query, tenant)
        try:
            with shown_to(tenant):
                for read in running.planned.inputs:
                    engine.check_view(engine.catalog[read])
                engine.wait_for(running.view.name, engine.dispatcher.barrier(), None)
        except BaseException:
            engine.views.release(running)
            raise
        definition = running.planned.definition
        return running, plan_all(definition.name, definition.schema, None)

    def _check_exists(self, definition: Definition | None) -> None:
        if definition is not None and not self._engine.is_current(definition):
            raise ObjectNotFoundError(f"{definition.name} was dropped meanwhile")

    @uninterrupted(undo=_cancel)
    def inline(
        self,
        sql: str,
        parameters: ParameterValues,
        *,
        tenant: str | None,
        on_change: Callable[[ChangeBatch], object],
        on_error: Callable[[BaseException], object] | None,
        on_complete: Callable[[], object] | None,
    ) -> InlineSubscription:
        """A callback on the pusher's own thread."""
        select = _select(sql, parameters)
        if isinstance(select, Query):
            raise WrongObjectError(
                "inline callbacks are for a SELECT of one source, with WHERE and columns",
                hint="leave inline out: the callback runs on a thread of its own",
            )
        definition, plan = self.plan(select, tenant)
        if definition.kind != "source":
            raise WrongObjectError(
                f"inline callbacks are for sources, and {definition.name} is a {definition.kind}",
                hint="leave inline out: the callback runs on a thread of its own",
            )
        inlet = self._engine.inlet(definition)
        made = InlineSubscription(
            inlet,
            plan,
            sql=select.text,
            on_change=on_change,
            on_error=on_error,
            on_complete=on_complete,
        )
        self._registry.add_inline(made)
        self._engine.dispatcher.call(lambda: inlet.add_inline(made))
        return made

    @uninterrupted(undo=_cancel)
    def changes(
        self,
        style: type[R],
        collection: str | None,
        options: SubscribeOptions,
        tenant: str | None,
    ) -> R:
        """A subscription to every mutation of a collection, or of all of them."""
        check_text(tenant, "tenant", optional=True)
        engine = self._engine
        definition = None if collection is None else engine.find(collection, tenant)
        feed: LogFeed
        if definition is not None:
            plan = engine.select_all(definition.name, tenant)
            if plan is None:
                raise AssertionError("the catalog knows it")
            feed = LogFeed(engine.log, engine.dispatcher, plan)
        else:
            feed = MultiLogFeed(
                engine.log,
                engine.dispatcher,
                lambda topic: engine.select_all(topic, tenant),
                lambda: engine.collections(tenant),
            )
        subscribed = SubscribedQuery(
            sql=f"changes of {collection or 'everything'}",
            schema=feed.plan.schema,
            tenant=tenant,
            born=0 if definition is None else definition.born,
            check_exists=lambda: self._check_exists(definition),
        )
        return self._registry.open(style, feed, subscribed, options)

    def event_maker(
        self,
        collection: str | None,
        fields: Sequence[str] | None,
        include: Include,
        tenant: str | None,
    ) -> EventMaker:
        """What makes events of the batches."""
        definition = None if collection is None else self._engine.find(collection, tenant)
        name = "" if definition is None else definition.name
        maker = EventMaker(self._engine.tenant_of, fields, include, name)
        known = () if definition is None else definition.schema.names
        for name in fields or ():
            if known and name not in known:
                raise InvalidOptionError(
                    f"{collection} has no column {name!r}", hint=f"it has {', '.join(known)}"
                )
        return maker

    @uninterrupted(undo=_cancel)
    def listen(self, style: type[R], channels: Sequence[str], tenant: str | None) -> R:
        """A subscription to notifications on some channels, or on all."""
        check_text(tenant, "tenant", optional=True)
        for channel in channels:
            check_text(channel, "a channel")
        engine = self._engine
        sql = f"SELECT channel, payload FROM {NOTIFICATIONS}"  # noqa: S608 - a name of ours
        extra = None if tenant is None else ("tenant", tenant)
        # One log, a filter, two columns: a plain SELECT.
        if channels:
            select = cast("Select", _select(f"{sql} WHERE channel IN (?)", [channels]))
        else:
            select = cast("Select", _select(sql, None))
        plan = plan_select(select, engine.notifications.schema, extra=extra)
        feed = LogFeed(engine.log, engine.dispatcher, plan)
        names = ", ".join(channels) or "*"
        subscribed = SubscribedQuery(sql=f"LISTEN {names}", schema=plan.schema)
        return self._open(style, feed, subscribed, _DEFAULTS)

    def _open(
        self,
        style: type[R],
        feed: LogFeed,
        query: SubscribedQuery,
        options: SubscribeOptions,
        **callbacks: Any,  # noqa: ANN401 - of the style
    ) -> R:
        # As for a query: what this thread pushed before is committed before.
        self._engine.dispatcher.barrier()
        return self._registry.open(style, feed, query, options, **callbacks)

    def plan(self, select: Select, tenant: str | None) -> tuple[Definition, SelectPlan]:
        """What a query reads, and how."""
        if select.limit is not None:
            raise SqlUnsupportedError(
                "a subscription has no LIMIT: its changes never end",
                sql=select.sql,
                line=select.line,
                column=select.column,
                hint="leave LIMIT out, or run it once with db.query",
            )
        definition = self._engine.find(select.target, tenant)
        return definition, Executor(self._engine, self._registry, tenant).plan(definition, select)


class SharedFeed(LogFeed):
    """The changes of a view that goes with its last subscriber."""

    __slots__ = ("_release",)

    def __init__(self, views: Views, running: Running, *more: Any) -> None:  # noqa: ANN401
        super().__init__(*more)
        self._release: Callable[[], None] | None = lambda: views.release(running)

    def leave(self, subscriber: Inbox) -> None:  # type: ignore[override]
        """Have nothing more offered; called more than once."""
        super().leave(subscriber)
        release, self._release = self._release, None
        if release is not None:
            release()


def _select(sql: str, parameters: ParameterValues) -> Select | Query:
    statements = parse(sql, parameters)
    statement = statements[0]
    if len(statements) != 1 or not isinstance(statement, Select | Query):
        raise InvalidOptionError(
            f"a subscription takes one SELECT, not: {sql}", hint="run the others with db.execute"
        )
    return statement

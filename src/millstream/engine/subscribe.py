"""Opening subscriptions: to the result of a query, to the changes of a collection."""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.delivery.feed import LogFeed, MultiLogFeed
from millstream.errors import (
    InvalidOptionError,
    ObjectChangedError,
    ObjectNotFoundError,
    SqlUnsupportedError,
    TopicNotFoundError,
    WrongObjectError,
)
from millstream.model.arguments import check_text
from millstream.model.names import quote_name
from millstream.sql import Query, Select, parse, plan_all
from millstream.sql.inputs import CLOCK
from millstream.subscriptions import (
    EventMaker,
    InlineSubscription,
    SubscribedQuery,
    SubscribeOptions,
    SubscriptionBase,
    check_callback,
    check_options,
)
from millstream.threads import uninterrupted
from millstream.views.cuts import ViewCuts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Definition
    from millstream.dispatch import Subscriber
    from millstream.engine.context import Context
    from millstream.engine.engine import Engine
    from millstream.model.batch import ChangeBatch
    from millstream.model.cut import Cut
    from millstream.sql import ParameterValues, SelectPlan
    from millstream.subscriptions import Include
    from millstream.views.running import RunningView
    from millstream.views.views import Views

R = TypeVar("R", bound=SubscriptionBase)
_DEFAULTS: Final = SubscribeOptions()


def cancel(subscription: SubscriptionBase | InlineSubscription) -> None:
    """Cancel a subscription whose opening was interrupted."""
    subscription.cancel()


# ---- queries


@uninterrupted(undo=cancel)
def query(
    context: Context,
    style: type[R],
    sql: str | Select | Query,
    parameters: ParameterValues = None,
    options: SubscribeOptions = _DEFAULTS,
    **callbacks: Any,  # noqa: ANN401 - of the style
) -> R:
    """A subscription to the changes of a query's result.

    Args:
        context: what it runs in.
        style: the kind of subscription.
        sql: the query, or its text.
        parameters: the values of the parameters in the text.
        options: where it starts, and how rows are delivered.
        callbacks: those of the style.
    """
    context.check("subscribe" if options.name is None else "keep a durable subscription")
    options.check_ack()
    engine = context.engine
    select = sql if isinstance(sql, Select | Query) else _select(sql, parameters)
    _check_no_past(select, options)

    def opened() -> R:
        feed, subscribed = _followed(context, select, options.name)
        try:
            engine.dispatcher.barrier()  # rows pushed before by this thread are before it
            return engine.registry.open(style, feed, subscribed, options, **callbacks)
        except BaseException:
            _release([feed])
            raise

    return _unchanged(opened)


def _unchanged(opened: Callable[[], R]) -> R:
    """A subscription, planned again if what it reads was dropped or replaced meanwhile.

    Raises:
        ObjectNotFoundError: it was dropped.
    """
    while True:
        with contextlib.suppress(ObjectChangedError, TopicNotFoundError):
            return opened()


def _check_no_past(select: Select | Query, options: SubscribeOptions) -> None:
    """Refuse what would begin in the past of a query whose changes are not kept, or in the SQL."""
    if isinstance(select, Query) and isinstance(options.start, int | datetime):
        raise InvalidOptionError(
            "the past of such a query is not kept, so it cannot start there",
            hint="CREATE MATERIALIZED VIEW v AS ...; then subscribe to SELECT * FROM v; "
            "or SELECT ... AS OF, which is answered once",
        )
    if select.as_of is not None:
        raise SqlUnsupportedError(
            "a subscription has no AS OF",
            sql=select.sql,
            line=select.as_of.line,
            column=select.as_of.column,
            hint="db.subscribe(query, start=lsn) begins with the rows of that LSN, or of a time",
        )


@uninterrupted(undo=cancel)
def cut(
    context: Context,
    style: type[R],
    queries: Sequence[str],
    options: SubscribeOptions,
    **callbacks: Any,  # noqa: ANN401 - of the style
) -> R:
    """A subscription to the changes of several queries, all up to one LSN at a time.

    Args:
        context: what it runs in.
        style: the kind of subscription.
        queries: names of sources, tables and views, and SELECTs.
        options: where it starts, and how many rows wait in memory.
        callbacks: those of the style.
    """
    context.check("subscribe")
    check_options(options)
    engine = context.engine

    def opened() -> R:
        feeds: dict[str, tuple[LogFeed, SubscribedQuery]] = {}
        try:
            for text, select in _selects(context, queries).items():
                _check_no_past(select, _DEFAULTS)
                feeds[text] = _followed(context, select, None, waits=False)
            views = [query.target for _, query in feeds.values() if query.is_view]
            cuts = ViewCuts(engine.views, views, engine.dispatcher)
            engine.dispatcher.barrier()  # rows pushed before by this thread are before it
            return engine.registry.open_cut(style, feeds, cuts, options, **callbacks)
        except BaseException:
            _release([feed for feed, _ in feeds.values()])
            raise

    return _unchanged(opened)


def _selects(context: Context, queries: Sequence[str]) -> dict[str, Select | Query]:
    """The queries of a list of names and SELECTs, by their text."""
    found: dict[str, Select | Query] = {}
    for text in queries:
        check_text(text, "a query in a list")
        if text in found:
            raise InvalidOptionError(f"{text} is twice in the list", hint="name it once")
        is_name = len(text.split()) == 1 or context.engine.catalog.get(text) is not None
        if is_name:
            name = quote_name(context.find(text).name)
        found[text] = _select(f"SELECT * FROM {name}" if is_name else text, None)  # noqa: S608
    return found


def _release(feeds: list[LogFeed]) -> None:
    """Let hidden views be dropped: the subscription to them was not opened."""
    for feed in feeds:
        if isinstance(feed, SharedFeed):
            feed.release()


def _followed(
    context: Context, select: Select | Query, name: str | None, *, waits: bool = True
) -> tuple[LogFeed, SubscribedQuery]:
    """What a subscription to a query reads; a hidden view, if need be, is shared by one more.

    Args:
        context: what it runs in.
        select: the query.
        name: of a durable subscription.
        waits: whether a snapshot waits until the view counts what was committed before.
    """
    engine = context.engine
    if isinstance(select, Query):
        hidden, plan = _hidden_view(context, select, name)
        definition = hidden.planned.definition
        feed_of: type[LogFeed] = partial(SharedFeed, engine.views, hidden)  # type: ignore[assignment]
    else:
        definition, plan = planned(context, select)
        with context.filtered_errors():
            engine.views.check(definition)
        feed_of = LogFeed
    snapshot = engine.relations.snapshot(definition, plan)
    past = None if snapshot is None else engine.relations.past_snapshot(definition, plan)
    subscribed = SubscribedQuery(
        sql=select.text,
        schema=plan.schema,
        target=definition.name,
        tenant=context.tenant,
        has_state=snapshot is not None,
        has_past=past is not None,
        born=definition.born,
        check_exists=lambda: _check_exists(engine, definition),
        is_view=definition.name in engine.views,
    )
    ready = None
    if waits and subscribed.is_view:
        ready = partial(engine.relations.readiness.when_ready, definition.name)
    feed = feed_of(engine.log, engine.dispatcher, plan, snapshot, past, when_ready=ready)
    return feed, subscribed


def _hidden_view(
    context: Context, query: Query, name: str | None
) -> tuple[RunningView, SelectPlan]:
    """The hidden view of a query, shared by identical queries of a tenant; it is up to date."""
    if name is not None:
        raise InvalidOptionError(
            "a durable subscription to such a query needs a view that lasts",
            hint="CREATE MATERIALIZED VIEW v AS ...; then subscribe to SELECT * FROM v",
        )
    engine = context.engine
    running = engine.views.shared.acquire(query, context.inputs(), context.tenant)
    try:
        with context.filtered_errors():
            _check_inputs(engine, running)
            try:
                running.wait_for(engine.dispatcher.barrier(), None)
            except ObjectNotFoundError:  # dropped with what it reads, which has a name
                _check_inputs(engine, running)
                raise
    except BaseException:
        engine.views.shared.release(running)
        raise
    definition = running.planned.definition
    return running, plan_all(definition.name, definition.schema, None)


def _check_inputs(engine: Engine, running: RunningView) -> None:
    """Raise if what a hidden view reads was dropped, or cannot be read."""
    for read in running.planned.inputs:
        if read != CLOCK:
            engine.views.check(engine.catalog[read])


@uninterrupted(undo=cancel)
def inline(
    context: Context,
    sql: str,
    parameters: ParameterValues,
    *,
    on_change: Callable[[ChangeBatch], object],
    on_error: Callable[[BaseException], object] | None,
    on_complete: Callable[[], object] | None,
) -> InlineSubscription:
    """A callback on the pusher's own thread."""
    context.check("subscribe")
    select = _select(sql, parameters)
    _check_no_past(select, _DEFAULTS)
    if isinstance(select, Query):
        raise WrongObjectError(
            "inline callbacks are for a SELECT of one source, with WHERE and columns",
            hint="leave inline out: the callback runs on a thread of its own",
        )
    definition, plan = planned(context, select)
    if definition.kind != "source":
        raise WrongObjectError(
            f"inline callbacks are for sources, and {definition.name} is a {definition.kind}",
            hint="leave inline out: the callback runs on a thread of its own",
        )
    engine = context.engine
    inlet = engine.inlets[definition]
    made = InlineSubscription(
        inlet,
        plan,
        sql=select.text,
        on_change=on_change,
        on_error=on_error,
        on_complete=on_complete,
    )

    def add() -> None:
        _ = engine.inlets[definition]  # raises if it was dropped meanwhile
        inlet.add_inline(made)

    engine.dispatcher.call(add)
    engine.registry.add_inline(made)
    return made


def checked_callbacks(
    on_change: Callable[[ChangeBatch], object] | Callable[[Cut], object],
    on_error: Callable[[BaseException], object] | None,
    on_complete: Callable[[], object] | None,
) -> dict[str, Any]:
    """The callbacks of a subscription by name; raises if one cannot be called."""
    callbacks = {"on_change": on_change, "on_error": on_error, "on_complete": on_complete}
    for name, function in callbacks.items():
        if name == "on_change" or function is not None:
            check_callback(name, function)
    return callbacks


def check_inline(options: SubscribeOptions) -> None:
    """Refuse the options that need a place in the log, or a buffer."""
    given = options.given()
    if given:
        raise InvalidOptionError(
            f"an inline callback has no {', '.join(given)}",
            hint="leave inline out, or the options",
        )


def planned(context: Context, select: Select) -> tuple[Definition, SelectPlan]:
    """The relation that a query reads, and its plan."""
    if select.limit is not None:
        raise SqlUnsupportedError(
            "a subscription has no LIMIT: its changes never end",
            sql=select.sql,
            line=select.line,
            column=select.column,
            hint="leave LIMIT out, or run it once with db.query",
        )
    definition = context.find(select.target)
    return definition, context.plan(definition, select)


def _check_exists(engine: Engine, definition: Definition | None) -> None:
    if definition is not None and not engine.views.is_current(definition):
        raise ObjectChangedError(f"{definition.name} was dropped or replaced meanwhile")


# ---- the change bus


@uninterrupted(undo=cancel)
def changes(
    context: Context, style: type[R], collection: str | None, options: SubscribeOptions
) -> R:
    """A subscription to every change of a collection, or of all of them."""
    context.check("follow the change bus")
    check_text(context.tenant, "tenant", optional=True)
    return _unchanged(lambda: _changes(context, style, collection, options))


def _changes(
    context: Context, style: type[R], collection: str | None, options: SubscribeOptions
) -> R:
    engine = context.engine
    definition = None if collection is None else context.find(collection)
    feed: LogFeed
    if definition is not None:
        plan = context.select_all(definition.name)
        if plan is None:
            raise ObjectChangedError(f"{definition.name} was dropped meanwhile")
        feed = LogFeed(engine.log, engine.dispatcher, plan)
    else:
        feed = MultiLogFeed(engine.log, engine.dispatcher, context.select_all, context.names)
    subscribed = SubscribedQuery(
        sql=f"changes of {collection or 'everything'}",
        schema=feed.plan.schema,
        tenant=context.tenant,
        born=0 if definition is None else definition.born,
        check_exists=lambda: _check_exists(engine, definition),
    )
    return engine.registry.open(style, feed, subscribed, options)


def event_maker(
    context: Context, collection: str | None, fields: Sequence[str] | None, include: Include
) -> EventMaker:
    """Makes events of the batches of a subscription to changes."""
    definition = None if collection is None else context.find(collection)
    name = "" if definition is None else definition.name
    maker = EventMaker(context.tenant_column, fields, include, name)
    known = () if definition is None else definition.schema.names
    for name in fields or ():
        if known and name not in known:
            raise InvalidOptionError(
                f"{collection} has no column {name!r}", hint=f"it has {', '.join(known)}"
            )
    return maker


class SharedFeed(LogFeed):
    """The changes of a hidden view, which is dropped with its last subscriber."""

    __slots__ = ("_release",)

    def __init__(
        self,
        views: Views,
        running: RunningView,
        *more: Any,  # noqa: ANN401 - those of a LogFeed
        when_ready: Callable[[Callable[[], None]], bool] | None,
    ) -> None:
        super().__init__(*more, when_ready=when_ready)
        self._release: Callable[[], None] | None = lambda: views.shared.release(running)

    def leave(self, subscriber: Subscriber) -> None:
        """Have nothing more offered; called more than once."""
        super().leave(subscriber)
        self.release()

    def release(self) -> None:
        """Let the view be dropped if this was its last user; called more than once."""
        release, self._release = self._release, None
        if release is not None:
            release()


_NAME: Final = re.compile(r"""\s*([A-Za-z_]\w*|"[^"]+"|`[^`]+`)\s*""")


def _select(sql: str, parameters: ParameterValues) -> Select | Query:
    """The SELECT that is subscribed to; the name of a relation alone stands for all of it."""
    if isinstance(sql, str) and _NAME.fullmatch(sql):
        sql = f"SELECT * FROM {sql}"  # noqa: S608 - a name
    statements = parse(sql, parameters)
    statement = statements[0]
    if len(statements) != 1 or not isinstance(statement, Select | Query):
        raise InvalidOptionError(
            f"a subscription takes one SELECT, not: {sql}", hint="run the others with db.execute"
        )
    return statement

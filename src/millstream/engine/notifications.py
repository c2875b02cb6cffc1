"""Messages on channels: NOTIFY, LISTEN, UNLISTEN, SHOW CHANNELS. They have a topic of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from millstream.delivery.feed import LogFeed
from millstream.engine.subscribe import cancel
from millstream.errors import TenantError
from millstream.model.arguments import check_text
from millstream.model.batch import ChangeBatch
from millstream.model.result import Result
from millstream.model.schema import Schema
from millstream.sql import Select, parse, plan_select
from millstream.subscriptions import (
    Channels,
    Events,
    NotificationMaker,
    SubscribedQuery,
    SubscribeOptions,
    Subscription,
    SubscriptionBase,
)
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.engine.context import Context
    from millstream.sql import Listen, Notify, Unlisten

R = TypeVar("R", bound=SubscriptionBase)

TOPIC: Final = "__notifications"
SCHEMA: Final = Schema.of(channel="VARCHAR NOT NULL", payload="VARCHAR NOT NULL", tenant="VARCHAR")
_CHANNELS: Final = Schema.of(name="VARCHAR NOT NULL")


def notify(context: Context, statement: Notify) -> Result:
    """NOTIFY."""
    send(context, statement.channel, statement.payload)
    return context.done("NOTIFY")


def send(context: Context, channel: Any, payload: Any) -> None:  # noqa: ANN401 - checked here
    """Send a message to the listeners of a channel, in the order of the pushes."""
    context.check("NOTIFY")
    check_text(channel, "the channel")
    check_text(payload, "the payload", optional=True)
    rows = SCHEMA.check_rows([(channel, payload, context.tenant)])
    context.engine.notifications.enter([ChangeBatch(SCHEMA, rows, None, None)])


@uninterrupted(undo=cancel)
def subscribe_to(context: Context, style: type[R], channels: Sequence[str]) -> R:
    """A subscription to the messages on some channels, or on all."""
    context.check("LISTEN")
    check_text(context.tenant, "tenant", optional=True)
    for channel in channels:
        check_text(channel, "a channel")
    engine = context.engine
    # One topic, a filter, two columns: a plain SELECT.
    sql = f"SELECT channel, payload FROM {TOPIC}"  # noqa: S608 - a name of ours
    select = parse(f"{sql} WHERE channel IN (?)", [channels]) if channels else parse(sql)
    extra = None if context.tenant is None else ("tenant", context.tenant)
    plan = plan_select(cast("Select", select[0]), SCHEMA, extra=extra)
    feed = LogFeed(engine.log, engine.dispatcher, plan)
    subscribed = SubscribedQuery(sql=f"LISTEN {', '.join(channels) or '*'}", schema=plan.schema)
    engine.dispatcher.barrier()  # messages sent before by this thread are before the subscription
    return engine.registry.open(style, feed, subscribed, SubscribeOptions())


# ---- the channels of a session


def channels_of(context: Context) -> Channels:
    """The channels that SQL's LISTEN names, of a session that runs in a context like this."""
    return Channels(lambda: Events(subscribe_to(context, Subscription, ()), NotificationMaker()))


def listen(context: Context, statement: Listen) -> Result:
    """LISTEN."""
    _channels(context).listen(statement.channel)
    return Result.of_status("LISTEN")


def unlisten(context: Context, statement: Unlisten) -> Result:
    """UNLISTEN."""
    _channels(context).unlisten(statement.channel)
    return Result.of_status("UNLISTEN")


def show_channels(context: Context) -> Result:
    """SHOW CHANNELS."""
    return Result.of_rows(_CHANNELS, [(name,) for name in _channels(context).names])


def _channels(context: Context) -> Channels:
    if context.channels is None:
        raise TenantError(
            "LISTEN belongs to a session, and tenant= is for one call",
            hint="db.session(tenant=...) listens for a tenant; or call db.listen(..., tenant=)",
        )
    return context.channels

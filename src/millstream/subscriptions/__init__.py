"""Ring 2: how changes reach a consumer, at the consumer's own pace.

Takes: the inbox of a query (``delivery``), and the options of ``subscribe``.
Gives: channels, callbacks, async streams, change events, notifications; durable positions.
Never knows: SQL text, where a batch comes from.
"""

from millstream.subscriptions.base import SubscriptionBase, SubscriptionMetrics
from millstream.subscriptions.callback import (
    CallbackSubscription,
    InlineSubscription,
    check_callback,
)
from millstream.subscriptions.cuts import AsyncCutSubscription, CutSubscription, check_options
from millstream.subscriptions.events import AsyncEvents, ChangeEvent, EventMaker, Events, Include
from millstream.subscriptions.notifications import (
    AsyncListener,
    Channels,
    Listener,
    Notification,
    NotificationMaker,
)
from millstream.subscriptions.options import (
    Ack,
    Backpressure,
    Sample,
    Start,
    SubscribedQuery,
    SubscribeOptions,
)
from millstream.subscriptions.position_rows import DurablePosition, OwnedName
from millstream.subscriptions.positions import Positions
from millstream.subscriptions.registry import Registry
from millstream.subscriptions.stream import AsyncSubscription
from millstream.subscriptions.subscription import Subscription

__all__ = [
    "Ack",
    "AsyncCutSubscription",
    "AsyncEvents",
    "AsyncListener",
    "AsyncSubscription",
    "Backpressure",
    "CallbackSubscription",
    "ChangeEvent",
    "Channels",
    "CutSubscription",
    "DurablePosition",
    "EventMaker",
    "Events",
    "Include",
    "InlineSubscription",
    "Listener",
    "Notification",
    "NotificationMaker",
    "OwnedName",
    "Positions",
    "Registry",
    "Sample",
    "Start",
    "SubscribeOptions",
    "SubscribedQuery",
    "Subscription",
    "SubscriptionBase",
    "SubscriptionMetrics",
    "check_callback",
    "check_options",
]

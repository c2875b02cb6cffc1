"""Ring 2: how changes reach a consumer, at the consumer's own pace.

Takes: batches that the dispatcher offers, and the log for what was before.
Gives: channels, callbacks, async streams, events of the change bus; gaps are reported, positions
kept.
Never knows: SQL text, how a batch came to be.
"""

from millstream.delivery.backpressure import Policy
from millstream.delivery.feed import LogFeed, MultiLogFeed
from millstream.delivery.inbox import Inbox
from millstream.subscriptions.base import SubscriptionBase, SubscriptionMetrics
from millstream.subscriptions.callback import (
    CallbackSubscription,
    InlineSubscription,
    check_callback,
)
from millstream.subscriptions.changes import ChangeEvent, EventMaker, Include
from millstream.subscriptions.events import AsyncEvents, Events
from millstream.subscriptions.notifications import (
    AsyncListener,
    Channels,
    Listener,
    Notification,
    NotificationMaker,
)
from millstream.subscriptions.options import Start, SubscribedQuery, SubscribeOptions
from millstream.subscriptions.positions import DurablePosition, Positions
from millstream.subscriptions.registry import Registry
from millstream.subscriptions.stream import AsyncSubscription
from millstream.subscriptions.subscription import Subscription

__all__ = [
    "AsyncEvents",
    "AsyncListener",
    "AsyncSubscription",
    "CallbackSubscription",
    "ChangeEvent",
    "Channels",
    "DurablePosition",
    "EventMaker",
    "Events",
    "Inbox",
    "Include",
    "InlineSubscription",
    "Listener",
    "LogFeed",
    "MultiLogFeed",
    "Notification",
    "NotificationMaker",
    "Policy",
    "Positions",
    "Registry",
    "Start",
    "SubscribeOptions",
    "SubscribedQuery",
    "Subscription",
    "SubscriptionBase",
    "SubscriptionMetrics",
    "check_callback",
]

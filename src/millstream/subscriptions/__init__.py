"""Ring 2: how changes reach a consumer, at the consumer's own pace.

Takes: batches that the dispatcher offers, and the log for what was before.
Gives: channels, callbacks, async streams; gaps told, positions kept.
Never knows: SQL text, how a batch came to be.
"""

from millstream.delivery.feed import BusFeed, Feed
from millstream.delivery.inbox import Inbox
from millstream.delivery.policy import Policy
from millstream.subscriptions.callback import (
    CallbackSubscription,
    InlineSubscription,
    check_callback,
)
from millstream.subscriptions.changes import ChangeEvent, EventMaker, Include
from millstream.subscriptions.mapped import AsyncEvents, Events
from millstream.subscriptions.notifications import (
    AsyncListener,
    Channels,
    Listener,
    Notification,
    NotificationMaker,
)
from millstream.subscriptions.positions import Durable, Positions
from millstream.subscriptions.reading import Pace, Reading, SubscriptionMetrics
from millstream.subscriptions.registry import Registry, Start, Wish
from millstream.subscriptions.stream import AsyncSubscription
from millstream.subscriptions.subscription import Subscription

__all__ = [
    "AsyncEvents",
    "AsyncListener",
    "AsyncSubscription",
    "BusFeed",
    "CallbackSubscription",
    "ChangeEvent",
    "Channels",
    "Durable",
    "EventMaker",
    "Events",
    "Feed",
    "Inbox",
    "Include",
    "InlineSubscription",
    "Listener",
    "Notification",
    "NotificationMaker",
    "Pace",
    "Policy",
    "Positions",
    "Reading",
    "Registry",
    "Start",
    "Subscription",
    "SubscriptionMetrics",
    "Wish",
    "check_callback",
]

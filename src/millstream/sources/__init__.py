"""Ring 0: the handles that producers push through, and the bounded buffers that they fill.

Takes: rows in any shape, Arrow data, watermarks, from any number of threads.
Gives: checked rows, in the order they were pushed, to the dispatcher, which drains them.
Never knows: the log, LSNs, subscribers, SQL.
"""

from millstream.sources.event_time import EventTime, IdleWatch
from millstream.sources.inlet import Inlet, InlineSubscriber, PushedBatches, PushPolicy
from millstream.sources.source import Source, Writer

__all__ = [
    "EventTime",
    "IdleWatch",
    "Inlet",
    "InlineSubscriber",
    "PushPolicy",
    "PushedBatches",
    "Source",
    "Writer",
]

"""Ring 1: one thread drains the sources, commits to the log, and fans out to subscribers.

Takes: the inlets of sources, changes that tables worked out, and tasks to run in between.
Gives: batches with their LSNs, filtered and projected, to subscribers.
Never knows: how a subscriber buffers, what a table holds, Spark.
"""

from millstream.dispatch.dispatcher import Dispatcher, forked, make_durable, make_readable
from millstream.dispatch.route import Routes, Subscriber, select

__all__ = [
    "Dispatcher",
    "Routes",
    "Subscriber",
    "forked",
    "make_durable",
    "make_readable",
    "select",
]

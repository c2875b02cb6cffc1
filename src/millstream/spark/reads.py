"""What a feed reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from millstream.model.schema import Schema
    from millstream.sql.views.plan import Lookup, Window

Keep = Callable[[ChangeBatch], ChangeBatch]
"""Takes a batch of a log, gives some of its rows; LSNs and watermark stay those of the batch."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a feed reads, and how it is told apart.

    Attributes:
        topics: the logs.
        schemas: their columns.
        window: the view's window, by which rows are late; None when none is.
        event_times: the place of the event-time column in each log, or None.
        lateness: for how long after its end a window still takes rows, in microseconds.
        start: the first LSN that is read.
        lookups: joins with tables.
        keep: filters each batch before anything else sees it; None: all rows are read.
    """

    topics: tuple[str, ...]
    schemas: tuple[Schema, ...]
    window: Window | None = None
    event_times: tuple[int | None, ...] = ()
    lateness: int = 0
    start: int = 1
    lookups: tuple[Lookup, ...] = ()
    keep: Keep | None = None

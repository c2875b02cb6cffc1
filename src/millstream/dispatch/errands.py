"""What the dispatcher is asked to do: drain an inlet, commit changes, make a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.sources.inlet import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.sources.event_time import EventTime
    from millstream.sources.inlet import Inlet

Batches: TypeAlias = "Sequence[tuple[str, ChangeBatch]]"


class Intake:
    """What the dispatcher knows of one source."""

    __slots__ = ("event_time", "has_event_time", "inlet", "is_system", "topic")

    def __init__(self, topic: str, inlet: Inlet, event_time: EventTime) -> None:
        self.topic = topic
        self.inlet = inlet
        self.event_time = event_time
        self.has_event_time = event_time.has_column
        self.is_system = topic.startswith("__")


class Commit:
    """Changes that somebody has worked out, to be committed as one.

    Args:
        batches: the topics and what is added to them, or a function that says so at the time.
        applied: called with the batches at their places, before anybody else sees them.
        sync: whether the ticket is settled only when they are on the disk.

    Attributes:
        is_posted: nobody waits for it, so it may wait itself.
    """

    __slots__ = ("applied", "batches", "is_posted", "sync", "ticket")

    def __init__(
        self,
        batches: Batches | Callable[[], Batches],
        applied: Callable[[list[ChangeBatch]], None] | None = None,
        *,
        sync: bool = False,
    ) -> None:
        self.batches = batches
        self.applied = applied
        self.sync = sync
        self.is_posted = False
        self.ticket = Ticket()


class Call:
    """Something to be done by the dispatcher's thread."""

    __slots__ = ("function", "result", "ticket")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.ticket = Ticket()

"""What the dispatcher is asked to do: drain an inlet, commit changes, make a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.sources.inlet import Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.batch import ChangeBatch

Batches: TypeAlias = "Sequence[tuple[str, ChangeBatch]]"


class Commit:
    """Changes that somebody has worked out, to be committed as one.

    Args:
        batches: the topics and what is added to them, or a function that says so at the time.
        applied: called with the batches at their places, before anybody else sees them.
        sync: whether the completion is settled only when they are on the disk.

    Attributes:
        is_posted: nobody waits for it, so it may wait itself.
    """

    __slots__ = ("applied", "batches", "completion", "is_posted", "sync")

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
        self.completion = Completion()


class CallTask:
    """Something to be done by the dispatcher's thread."""

    __slots__ = ("completion", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.completion = Completion()

"""Tasks: what the dispatcher's thread is asked to do between two cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.threads import Completion, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.errors import Error
    from millstream.model.batch import ChangeBatch
    from millstream.threads import Wakeup

Batches: TypeAlias = "Sequence[tuple[str, ChangeBatch]]"
"""Topics, and what is added to each."""

Applied: TypeAlias = "Callable[[list[ChangeBatch]], None]"
"""Called with the batches of a commit once they have their places."""


class Commit:
    """Changes that are committed as one.

    Args:
        batches: the topics and what is added to them, or a function that returns them at the time.
        applied: called with the batches at their places, before any subscriber gets them.
        sync: whether the commit is complete only when they are on the disk.

    Attributes:
        completion: done when they are committed and handed to subscribers.
        is_posted: no thread waits for it, so it is postponed while the log takes nothing.
    """

    __slots__ = ("applied", "batches", "completion", "is_posted", "sync")

    def __init__(
        self,
        batches: Batches | Callable[[], Batches],
        applied: Applied | None = None,
        *,
        sync: bool = False,
    ) -> None:
        self.batches = batches
        self.applied = applied
        self.sync = sync
        self.is_posted = False
        self.completion = Completion()


class CallTask:
    """A function to be called by the dispatcher's thread.

    Attributes:
        completion: done when it has returned or raised.
        result: what it returned.
    """

    __slots__ = ("completion", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.completion = Completion()


class Tasks:
    """A queue of tasks: any thread adds, the thread that runs a cycle takes.

    Attributes:
        waiting: the tasks, oldest first; its length is a part of each cut.
    """

    __slots__ = ("_wakeup", "waiting")

    def __init__(self, wakeup: Wakeup) -> None:
        self.waiting: list[Commit | CallTask] = []
        self._wakeup = wakeup

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, task: Commit | CallTask) -> None:
        """Add a task and wake the dispatcher. Takes no lock."""
        try:
            self.waiting.append(task)
            if self._wakeup.asleep:
                self._wakeup.wake()
        except BaseException:  # a signal; the dispatcher must see the task all the same
            self._wakeup.wake()
            raise

    def put_first(self, tasks: Iterable[Commit | CallTask]) -> None:
        """Add tasks before all others."""
        self.waiting[:0] = tasks

    def next(self) -> Commit | CallTask | None:
        """Take the oldest task; None when there is none, or another thread has just refused it."""
        try:
            return self.waiting.pop(0)
        except IndexError:
            return None

    @uninterrupted
    def refuse(self, lsn: int, error: Error) -> None:
        """Complete all tasks with an error, since no cycle will run them."""
        while (task := self.next()) is not None:
            task.completion.settle(lsn, error)

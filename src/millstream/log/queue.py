"""Commits on their way into the log: what they hold, and how they wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.log.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.errors import LogError
    from millstream.log.topics import Topic, Topics
    from millstream.model.batch import ChangeBatch

_ROW_ESTIMATE: Final = 64


class Part(NamedTuple):
    """The rows, or the lone watermark, that a commit adds to one topic."""

    topic: Topic
    version: int
    batch: ChangeBatch


def held_bytes(batch: ChangeBatch) -> int:
    """About how much memory a batch keeps from being freed."""
    if batch.is_arrow:
        return int(batch.arrow.get_total_buffer_size())
    rows = batch.held_rows
    if not rows:
        return _ROW_ESTIMATE
    # The first row and the last stand for all: to look at each would cost more than the append.
    text = 0
    for value in rows[0] if len(rows) == 1 else rows[0] + rows[-1]:
        if type(value) is str or type(value) is bytes:
            text += len(value)
    return (_ROW_ESTIMATE + text) * len(rows)


@dataclass(slots=True, eq=False)
class Entry:
    """One commit in the queue: parts, which appear together, or a definition.

    Attributes:
        parts: what it adds to topics.
        first_lsn: the first LSN it takes, or the next one when it takes none.
        waited_for: somebody waits to be told how it went.
        kind: ROWS for parts; TOPIC, EPOCH or FIRST for a definition.
        payload: the definition.
        topic: the topic that holds from here on, for TOPIC.
        first: the first segment that has to be there from here on, for FIRST.
        committed_at: when the log took it.
        sequence: its place among all entries, definitions included.
        nbytes: about how much memory it holds.
        error: why it will never be written, or None.
    """

    parts: Sequence[Part]
    first_lsn: int
    waited_for: bool = False
    kind: Kind = Kind.ROWS
    payload: bytes = b""
    topic: Topic | None = None
    first: int = 0
    committed_at: int = 0
    sequence: int = 0
    nbytes: int = 0
    error: LogError | None = None

    def applied_to(self, topics: Topics) -> Topics:
        """The topics once it is written."""
        if self.topic is not None:
            return topics.with_topic(self.topic)
        return topics.with_first(self.first) if self.first else topics

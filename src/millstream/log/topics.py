"""What a log defines besides rows. Pure.

Topics: the named logs within the log, their schemas, and what retention has left of them.

Epochs: the runs of a database, and which LSNs of which run are still true. A run that ends in a
crash may have handed out LSNs that never reached the disk; the next run uses them again for other
rows. A resume token says in which run its LSN was seen, and this table says whether that row is
still there.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import InvalidOptionError, TopicNotFoundError
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a topic is kept. None means no limit; with no limit at all, everything is.

    >>> Retention(max_age=timedelta(days=7), max_bytes=10 << 30).max_age
    604800.0

    Attributes:
        max_age: rows committed longer ago than this, a timedelta or seconds, may go.
        max_bytes: the oldest rows may go when the topic takes more than this on disk.
    """

    max_age: float | timedelta | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.max_age, timedelta):
            object.__setattr__(self, "max_age", self.max_age.total_seconds())
        for name, limit in (("max_age", self.max_age), ("max_bytes", self.max_bytes)):
            if limit is not None and not (
                isinstance(limit, (int, float)) and 0 <= limit < math.inf
            ):
                raise InvalidOptionError(
                    f"{name} is {limit!r}", hint="a number from 0 on, or None for no limit"
                )

    @property
    def max_age_micros(self) -> int | None:
        """The age in the unit of the log's times."""
        age = self.max_age
        return None if age is None or isinstance(age, timedelta) else int(age * 1_000_000)


@dataclass(frozen=True, slots=True)
class Topic:
    """One named log: rows of one schema, in LSN order.

    Attributes:
        id: its number in the frames; never used again.
        name: its name.
        schemas: every schema it has had; a frame says by which one it was written.
        low_lsn: rows before this LSN are gone, or about to go.
        retention: how much of it is kept.
        trimmed_rows: how many rows retention has taken of it, ever; None when it is not known.
        dropped: it was dropped; its rows are dead.
        skipped: damaged ranges, each from an LSN to before another one, that readers are to pass
            over and to report as gaps.
    """

    id: int
    name: str
    schemas: tuple[Schema, ...]
    low_lsn: int = 0
    retention: Retention = Retention()
    dropped: bool = False
    trimmed_rows: int | None = 0
    skipped: tuple[tuple[int, int], ...] = ()

    @property
    def schema(self) -> Schema:
        """The newest schema: what appends must have, and what readers are given."""
        return self.schemas[-1]

    @property
    def version(self) -> int:
        """The place of the newest schema in ``schemas``."""
        return len(self.schemas) - 1

    def skips(self, first: int, end: int) -> bool:
        """Whether readers are to pass over the LSNs from one to before another."""
        return any(begin <= first and end <= stop for begin, stop in self.skipped)

    def to_json(self) -> dict[str, Any]:
        """The definition, as it stands in TOPIC frames and in the heads of segments."""
        return {
            "id": self.id,
            "name": self.name,
            "schemas": [schema_text(schema) for schema in self.schemas],
            "low_lsn": self.low_lsn,
            "max_age": self.retention.max_age,
            "max_bytes": self.retention.max_bytes,
            "dropped": self.dropped,
            "trimmed_rows": self.trimmed_rows,
            "skipped": self.skipped,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Topic:
        """The topic that ``to_json`` described."""
        return cls(
            id=data["id"],
            name=data["name"],
            schemas=tuple(schema_from_text(text) for text in data["schemas"]),
            low_lsn=data["low_lsn"],
            retention=Retention(data["max_age"], data["max_bytes"]),
            dropped=data["dropped"],
            trimmed_rows=data.get("trimmed_rows", None if data["low_lsn"] else 0),
            skipped=tuple((first, end) for first, end in data["skipped"]),
        )


class Topics:
    """All topics at one moment. Immutable: a change makes a new one, so readers take no lock.

    Attributes:
        by_id: the topics by their numbers, those that were dropped included.
        next_id: the number of the next one.
        first: retention has not removed the segment of this ordinal, nor any after it.
    """

    __slots__ = ("_by_name", "by_id", "first", "next_id")

    def __init__(self, topics: Iterable[Topic] = (), next_id: int = 1, first: int = 1) -> None:
        self.first = first
        self.by_id = {topic.id: topic for topic in topics}
        self.next_id = max([next_id, *(topic_id + 1 for topic_id in self.by_id)])
        self._by_name = {t.name: t for t in self.by_id.values() if not t.dropped}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Topic:
        """The topic of that name.

        Raises:
            TopicNotFoundError: there is none; the hint lists those there are.
        """
        found = self._by_name.get(name)
        if found is None:
            raise TopicNotFoundError(
                f"there is no topic {name!r}",
                hint=f"available: {', '.join(sorted(self._by_name)) or 'none yet'}",
            )
        return found

    def with_topic(self, topic: Topic) -> Topics:
        """All topics, with one added or replaced."""
        return Topics({**self.by_id, topic.id: topic}.values(), self.next_id, self.first)

    def with_first(self, first: int) -> Topics:
        """All topics, once retention may remove the segments before one."""
        return Topics(self.by_id.values(), self.next_id, first)

    def without(self, ids: set[int]) -> Topics:
        """All topics but some."""
        left = [topic for topic in self.by_id.values() if topic.id not in ids]
        return Topics(left, self.next_id, self.first)

    def to_json(self) -> dict[str, Any]:
        """All definitions, for the head of a segment."""
        topics = [topic.to_json() for topic in self.by_id.values()]
        return {"next_id": self.next_id, "first": self.first, "topics": topics}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Topics:
        """The topics that ``to_json`` described."""
        return cls(map(Topic.from_json, data["topics"]), data["next_id"], data["first"])


@dataclass(frozen=True, slots=True)
class Epochs:
    """The first LSN of each run, oldest first; of runs that begin at the same LSN only the last."""

    starts: tuple[tuple[int, int], ...] = ()

    @property
    def current(self) -> int:
        """The number of the newest run; 0 before the first."""
        return self.starts[-1][0] if self.starts else 0

    def begin(self, epoch: int, first_lsn: int) -> Epochs:
        """The table once a new run has begun."""
        kept = self.starts
        if kept and kept[-1][1] == first_lsn:
            kept = kept[:-1]
        return Epochs((*kept, (epoch, first_lsn)))

    def since(self, lsn: int) -> Epochs:
        """The table without runs that ended before an LSN: no row of theirs is kept.

        What exactly was true of them is forgotten with them, so nothing is: the bearer of a
        token of theirs has to start afresh anyway.
        """
        gone = sum(1 for _, start in self.starts[1:] if start <= lsn)
        last_gone = [(self.starts[gone - 1][0], 0)] if gone else []
        return Epochs((*last_gone, *self.starts[gone:]))

    def is_true(self, epoch: int, lsn: int) -> bool:
        """Whether what a run saw up to an LSN is what the log holds up to there."""
        if epoch > self.current:
            return False  # the log was set back to before that run: an older copy was restored
        later = [start for number, start in self.starts if number > epoch]
        return not later or lsn < later[0]

    def to_json(self) -> list[list[int]]:
        """The table as it stands in the head of a segment."""
        return [list(start) for start in self.starts]

    @classmethod
    def from_json(cls, data: list[list[int]]) -> Epochs:
        """The table that ``to_json`` described."""
        return cls(tuple((epoch, lsn) for epoch, lsn in data))


def encode_json(value: object) -> bytes:
    """JSON as it stands in frames: compact, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def schema_text(schema: Schema) -> str:
    """A schema as text, which ``schema_from_text`` reads."""
    return base64.b64encode(schema.arrow.serialize()).decode()


def schema_from_text(text: str) -> Schema:
    """The schema that ``schema_text`` wrote."""
    return Schema.from_arrow(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))

"""What waits to be written, and how it becomes frames. Pure.

Neighbours in the queue that hold a few Python rows of one topic become one frame: the cost of a row
falls when many come, and nothing waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import LogError, RowsLostError, RowTooLargeError
from millstream.log.frame import COMMIT, Encoded, Kind, encode, link
from millstream.log.payload import encode_rows
from millstream.model.batch import ChangeBatch, joined_commits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.log.frame import Tail
    from millstream.log.topics import Topic, Topics

_MERGE_BYTES: Final = 1 << 20
_MERGE_MICROS: Final = 1 << 31
"""Commits that share a frame are no further apart: their times are kept as 32-bit distances."""

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


def encode_entries(entries: Sequence[Entry], durable_lsn: int, before: Tail) -> list[Encoded]:
    """The frames of some entries, in order, after the one that is the last so far.

    An entry that cannot be encoded gets its ``error``.
    """
    frames: list[Encoded] = []
    for entry in entries:
        entry.error = None  # of an earlier attempt
    for run in _runs(entries):
        if len(run) > 1:
            merged = _merge(run)
            try:
                frames += _encode_parts(merged.parts, durable_lsn)
            except Exception:  # noqa: BLE001, S110 - one of them is to blame: see below which
                pass
            else:
                continue
        for entry in run:
            frames += _encode_one(entry, durable_lsn)
    return link(frames, before)


def _encode_one(entry: Entry, durable_lsn: int) -> list[Encoded]:
    if entry.kind != Kind.ROWS:
        definition = encode(
            entry.kind,
            entry.payload,
            first_lsn=entry.first_lsn,
            committed_at=entry.committed_at,
            durable_lsn=durable_lsn,
        )
        # Without a definition rows mean nothing: one damaged frame must not take it.
        return [definition, definition]
    try:
        return _encode_parts(entry.parts, durable_lsn)
    except RowTooLargeError as error:
        entry.error = error
    except Exception as error:  # noqa: BLE001 - one commit's trouble must not become everybody's
        first, last = entry.parts[0].batch.first_lsn, entry.parts[-1].batch.lsn
        entry.error = RowsLostError(
            f"rows {first} to {last} could not be written: {type(error).__name__}: {error}",
            hint="they are not in the log; this is a bug in Millstream, please report it",
        )
    return []


def _encode_parts(parts: Sequence[Part], durable_lsn: int) -> list[Encoded]:
    frames: list[Encoded] = []
    last = len(parts) - 1
    for place, part in enumerate(parts):
        batch = part.batch
        if len(batch):
            frames += encode_rows(
                batch,
                part.topic.id,
                part.version,
                ends_commit=place == last,
                durable_lsn=durable_lsn,
            )
        elif batch.watermark is not None:
            frames.append(
                encode(
                    Kind.WATERMARK,
                    flags=COMMIT if place == last else 0,
                    version=part.version,
                    topic=part.topic.id,
                    first_lsn=batch.first_lsn,
                    span=1,
                    committed_at=batch.committed_at,
                    watermark=batch.watermark,
                    durable_lsn=durable_lsn,
                )
            )
    return frames


def _runs(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours that may share a frame, together; every other entry alone."""
    run: list[Entry] = []
    size, is_open = 0, False
    for entry in entries:
        may_merge = _may_merge(entry)
        size += entry.nbytes
        if run and not (
            is_open
            and may_merge
            and size <= _MERGE_BYTES
            and _follows(run[-1], entry)
            and _is_near(run[0], entry)
        ):
            yield run
            run, size = [], entry.nbytes
        run.append(entry)
        is_open = may_merge
    if run:
        yield run


def _may_merge(entry: Entry) -> bool:
    """Whether an entry could share a frame with its neighbours.

    A watermark holds after the rows it came with and before the next, so such rows stay apart.
    """
    if len(entry.parts) != 1:
        return False
    batch = entry.parts[0].batch
    return not batch.is_arrow and batch.is_insert_only and batch.watermark is None


def _follows(one: Entry, other: Entry) -> bool:
    before, after = one.parts[0], other.parts[0]
    return (
        before.topic is after.topic
        and before.version == after.version
        and before.batch.lsn + 1 == after.batch.first_lsn
    )


def _is_near(first: Entry, last: Entry) -> bool:
    times = (first.parts[0].batch.committed_at, last.parts[0].batch.committed_at)
    return times[1] - times[0] < _MERGE_MICROS


def _merge(run: list[Entry]) -> Entry:
    first, last = run[0].parts[0], run[-1].parts[0].batch
    rows = [row for entry in run for row in entry.parts[0].batch.held_rows]
    batch = ChangeBatch(
        first.batch.schema,
        rows,
        None,
        None,
        topic=first.topic.name,
        first_lsn=first.batch.first_lsn,
        lsn=last.lsn,
        committed_at=last.committed_at,
        cause=last.cause,
        commits=joined_commits([entry.parts[0].batch for entry in run]),
    )
    return Entry([Part(first.topic, first.version, batch)], batch.first_lsn)

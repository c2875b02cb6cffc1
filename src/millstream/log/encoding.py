"""Commits to frames, and frames back to rows. Pure.

The payload of a ROWS frame is one Arrow IPC record batch message. Its columns are those of the
topic's schema at the frame's version, and last, only when some row has a weight other than +1,
``_weight`` as int64. The schema itself is not repeated in each frame.

Neighbours in the queue that hold a few Python rows of one topic become one frame: the cost of a row
falls when many come, and nothing waits for it. When a frame holds several commits of different
times, a list of them follows the message: for each the number of its rows, and how many
microseconds it was before the frame's time, both as u32.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import google_crc32c
import pyarrow as pa

from millstream.errors import RowsLostError, RowTooLargeError
from millstream.formats.arrow_message import FEW_ROWS, MessageWriter
from millstream.log.frame import (
    COMMIT,
    MAX_PAYLOAD,
    NO_WATERMARK,
    WEIGHTS,
    Encoded,
    Frame,
    Kind,
    encode,
    link,
    tail_of,
)
from millstream.log.queue import Part
from millstream.model.batch import ChangeBatch, joined_commits
from millstream.model.change import Commits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from millstream.log.frame import Tail
    from millstream.log.queue import Entry
    from millstream.log.topics import Topic
    from millstream.model.schema import Schema

FRAME_TARGET: Final = 4 << 20
"""Larger batches are cut into frames of about this size, so that a reader's memory is bounded."""
_MANY_ROWS: Final = 65536
_MERGE_BYTES: Final = 1 << 20
_MERGE_MICROS: Final = 1 << 31
"""Commits that share a frame are no further apart: their times are kept as 32-bit distances."""
_WEIGHT = pa.field("_weight", pa.int64(), nullable=False)


def encode_entries(entries: Sequence[Entry], durable_lsn: int, before: Tail) -> list[Encoded]:
    """The frames of some entries, in order, after the one that is the last so far.

    An entry that cannot be encoded gets its ``error``.
    """
    frames: list[Encoded] = []
    for entry in entries:
        entry.error = None  # of an earlier attempt
    for run in _runs(entries) if len(entries) > 1 else (list(entries),):
        few = _encode_few(run[0], durable_lsn, before) if len(run) == 1 else None
        made = link(_encode_run(run, durable_lsn), before) if few is None else [few]
        before = tail_of(made, before)
        frames += made
    return frames


def _encode_few(entry: Entry, durable_lsn: int, before: Tail) -> Encoded | None:
    """The frame of a few rows of one topic, after another frame; None: they take the long way.

    Each view's change is such an entry: with many views over a source, twenty to a pushed row.
    """
    if len(entry.parts) != 1:
        return None
    topic, version, batch = entry.parts[0]
    rows = len(batch)
    try:
        payload = _few(batch) if rows and batch.commits is None else None
    except Exception:  # noqa: BLE001 - the long way finds it, too, and keeps it from other commits
        payload = None
    if payload is None:
        return None
    return Encoded(
        Frame(
            len(payload),
            google_crc32c.value(payload),
            Kind.ROWS,
            COMMIT if batch.is_insert_only else COMMIT | WEIGHTS,
            version,
            topic.id,
            batch.first_lsn,
            rows,
            0,
            batch.committed_at,
            NO_WATERMARK if batch.watermark is None else batch.watermark,
            durable_lsn,
            batch.cause,
            *before,
        ),
        payload,
    )


def _encode_run(run: list[Entry], durable_lsn: int) -> list[Encoded]:
    """The frames of entries that share one, if that can be, or of one entry."""
    if len(run) > 1:
        try:
            return _encode_parts([_merge(run)], durable_lsn)
        except Exception:  # noqa: BLE001, S110 - one of them cannot be encoded: see below which
            pass
    return [frame for entry in run for frame in _encode_one(entry, durable_lsn)]


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
        and before.batch.cause == after.batch.cause  # of which a frame has one
    )


def _is_near(first: Entry, last: Entry) -> bool:
    times = (first.parts[0].batch.committed_at, last.parts[0].batch.committed_at)
    return times[1] - times[0] < _MERGE_MICROS


def _merge(run: list[Entry]) -> Part:
    """The rows of several commits of one topic as one part."""
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
    return Part(first.topic, first.version, batch)


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
    except Exception as error:  # noqa: BLE001 - it must not keep other commits out
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


def encode_rows(
    batch: ChangeBatch, topic: int, version: int, *, ends_commit: bool, durable_lsn: int
) -> list[Encoded]:
    """The frames of a placed batch.

    Raises:
        RowTooLargeError: a row that no frame can hold.
    """
    flags = 0 if batch.is_insert_only else WEIGHTS
    watermark = NO_WATERMARK if batch.watermark is None else batch.watermark
    few = _few(batch)
    payloads = _payloads(batch) if few is None else ((len(batch), few),)
    lsn, frames = batch.first_lsn, list[Encoded]()
    for rows, payload in payloads:
        last = lsn + rows > batch.lsn
        committed_at = batch.commit_time(lsn + rows - 1)
        held = batch.commits
        commits = b"" if held is None else held.encode(lsn, rows, committed_at)
        frames.append(
            encode(
                Kind.ROWS,
                b"".join((payload, commits)) if commits else payload,
                flags=flags | COMMIT if last and ends_commit else flags,
                version=version,
                topic=topic,
                first_lsn=lsn,
                span=rows,
                committed_at=committed_at,
                watermark=watermark if last else NO_WATERMARK,  # it holds after all the rows
                durable_lsn=durable_lsn,
                cause=batch.cause,
                commits_size=len(commits),
            )
        )
        lsn += rows
    return frames


def _payloads(batch: ChangeBatch) -> Iterator[tuple[int, bytes | pa.Buffer]]:
    """The rows of a batch as payloads that fit a frame: number of rows, payload."""
    try:
        data = batch.arrow
    except (pa.ArrowException, OverflowError, TypeError) as error:
        # More than the 2 GiB that one Arrow array of text can hold: in halves it may fit.
        if len(batch) == 1:
            raise _too_large(str(error)) from error
        half = len(batch) // 2
        yield from _payloads(batch.slice(0, half))
        yield from _payloads(batch.slice(half))
        return
    if batch.is_insert_only:
        yield from _pieces(data, weighted=False)
    else:
        data = data.append_column(_WEIGHT, batch.weights_arrow())
        yield from _pieces(data, weighted=True)


def _few(batch: ChangeBatch) -> bytes | None:
    """The payload of a few rows, without Arrow; None when it is for Arrow, or too large."""
    if batch.is_arrow or len(batch) > FEW_ROWS:
        return None
    weighted = not batch.is_insert_only
    writer = _message_writer(batch.schema, weighted=weighted)
    if writer is None:
        return None
    try:
        payload = writer.message(batch.held_rows, *((batch.weights,) if weighted else ()))
    except (AttributeError, OverflowError, TypeError, ValueError, struct.error):
        return None  # an Unreadable value, or one that does not fit; Arrow says which
    return payload if len(payload) <= FRAME_TARGET else None


def _pieces(data: pa.RecordBatch, *, weighted: bool) -> Iterator[tuple[int, pa.Buffer]]:
    """The batch cut by rows until each piece fits a frame: number of rows, payload.

    What a batch takes is known for sure only once it is serialized, and to ask before costs more
    than to serialize a small one; so only batches that are large by the number of rows are asked.
    """
    rows = data.num_rows
    size = data.nbytes if rows > _MANY_ROWS else 0
    if size <= 2 * FRAME_TARGET:
        payload = data.serialize()
        size = payload.size
        if size <= 2 * FRAME_TARGET or (rows == 1 and size <= MAX_PAYLOAD):
            yield rows, payload
            return
        if rows == 1:
            raise _too_large(f"{size:,} bytes")
    step = min(max(1, rows * FRAME_TARGET // size), rows - 1)
    start = 0
    while start < rows:
        stop = start + step
        if weighted and stop - start < rows - 1 and _parts_an_update(data, stop):
            stop += 1
        yield from _pieces(data.slice(start, stop - start), weighted=weighted)
        start = stop


def _parts_an_update(data: pa.RecordBatch, place: int) -> bool:
    """Whether a cut before a place would come between an old row and its new one."""
    weights = data.column(data.num_columns - 1)
    if place >= len(weights):
        return False
    before, after = weights[place - 1].as_py(), weights[place].as_py()
    return bool(before < 0 < after)


def _too_large(what: str) -> RowTooLargeError:
    return RowTooLargeError(
        f"a row is too large for a frame of at most {MAX_PAYLOAD:,} bytes: {what}",
        hint="store large objects as files, and their paths in the row",
    )


def decode_rows(
    frame: Frame, payload: pa.Buffer | None, topic: Topic, origin: tuple[UUID, int]
) -> ChangeBatch:
    """The batch that a ROWS or WATERMARK frame holds, in the topic's newest schema."""
    schema, rows, data, weights = topic.schema, None, None, None
    commits = None
    if frame.kind == Kind.ROWS and payload is not None:
        commits = decode_commits(frame, payload)
        written_by, weighted = topic.schemas[frame.version], bool(frame.flags & WEIGHTS)
        data = pa.ipc.read_record_batch(payload, _stored_schema(written_by, weighted=weighted))
        if weighted:
            weights = data.column(data.num_columns - 1)
            data = pa.RecordBatch.from_arrays(data.columns[:-1], schema=written_by.arrow)
        if written_by is not schema:
            data = schema.upgrade(data)
    else:
        rows = list[tuple[object, ...]]()
    return ChangeBatch(
        schema,
        rows,
        data,
        weights,
        topic=topic.name,
        first_lsn=frame.first_lsn,
        lsn=frame.end_lsn - 1,
        watermark=None if frame.watermark == NO_WATERMARK else frame.watermark,
        committed_at=frame.committed_at,
        cause=frame.cause,
        origin=origin,
        commits=commits,
    )


def decode_commits(frame: Frame, payload: pa.Buffer) -> Commits | None:
    """The commits that a frame's rows are from; None when it is one."""
    size = frame.commits_size
    if not size:
        return None
    listed = payload.slice(len(payload) - size)
    return Commits.decode(listed, frame.first_lsn, frame.committed_at)


@lru_cache(maxsize=1024)
def _stored_schema(schema: Schema, *, weighted: bool) -> pa.Schema:
    return schema.arrow.append(_WEIGHT) if weighted else schema.arrow


def _message_writer(schema: Schema, *, weighted: bool) -> MessageWriter | None:
    """What writes a few rows; None when a column is of a type that is left to Arrow."""
    writers = _WRITERS[weighted]
    known = writers.get(id(schema))  # to compare schemas takes longer than to write a row
    if known is not None and known[0] is schema:
        return known[1]
    try:
        writer = MessageWriter(_stored_schema(schema, weighted=weighted))
    except TypeError:
        writer = None
    if len(writers) >= _MOST_WRITERS:
        writers.clear()
    writers[id(schema)] = (schema, writer)
    return writer


_MOST_WRITERS: Final = 1024
_WRITERS: Final[tuple[dict[int, tuple[Schema, MessageWriter | None]], ...]] = ({}, {})
"""Writers by the identity of their schemas, of rows without weights and with them."""

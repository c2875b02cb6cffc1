"""Rows to bytes and back: the payload of a ROWS frame is one Arrow IPC record batch message.

Its columns are those of the topic's schema at the frame's version, and last, only when some row has
a weight other than +1, ``_weight`` as int64. The schema itself is not repeated in each frame.

When a frame holds several commits of different times, a list of them follows the message: for each
the number of its rows, and how many microseconds it was before the frame's time, both as u32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.errors import RowTooLargeError
from millstream.log.frame import (
    COMMIT,
    MAX_PAYLOAD,
    NO_WATERMARK,
    WEIGHTS,
    Encoded,
    Frame,
    Kind,
    encode,
)
from millstream.model.batch import ChangeBatch
from millstream.model.commits import Commits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from millstream.log.topics import Topic
    from millstream.model.schema import Schema

FRAME_TARGET: Final = 4 << 20
"""Larger batches are cut into frames of about this size, so that a reader's memory is bounded."""

_MANY_ROWS: Final = 65536

_WEIGHT = pa.field("_weight", pa.int64(), nullable=False)


def encode_rows(
    batch: ChangeBatch, topic: int, version: int, *, ends_commit: bool, durable_lsn: int
) -> list[Encoded]:
    """The frames of a placed batch.

    Raises:
        RowTooLargeError: a row that no frame can hold.
    """
    flags = 0 if batch.is_insert_only else WEIGHTS
    watermark = NO_WATERMARK if batch.watermark is None else batch.watermark
    lsn, frames = batch.first_lsn, list[Encoded]()
    for rows, payload in _payloads(batch):
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


def decode_commits(frame: Frame, payload: pa.Buffer) -> Commits | None:
    """The commits that a frame's rows are from; None when it is one."""
    size = frame.commits_size
    if not size:
        return None
    listed = payload.slice(len(payload) - size)
    return Commits.decode(listed, frame.first_lsn, frame.committed_at)


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


def _payloads(batch: ChangeBatch) -> Iterator[tuple[int, pa.Buffer]]:
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


@lru_cache(maxsize=1024)
def _stored_schema(schema: Schema, *, weighted: bool) -> pa.Schema:
    return schema.arrow.append(_WEIGHT) if weighted else schema.arrow

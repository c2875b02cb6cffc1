"""Frames: what a subscriber is sent, each encoded once however many subscribers get it.

``docs/wire-protocol.md`` specifies them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from millstream.delivery.backpressure import slice_end
from millstream.formats.json_output import change_objects, to_json
from millstream.server.answers import columns_json, error_json
from millstream.server.protocol import encoded_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Gap
    from millstream.model.cut import Cut
    from millstream.model.schema import Schema
    from millstream.subscriptions import SubscriptionBase

FrameType = Literal[
    "ready", "waiting", "snapshot", "changes", "cut", "progress", "gap", "reset", "error", "end"
]
Encoding = Literal["json", "arrow"]
_MOST_IDS: Final = 4
FRAME_ROWS: Final = 2048
"""So many rows at most are in a frame: what is encoded at a time holds up the event loop."""


class Frame:
    """One frame, without the id that each client has given to its subscription.

    Attributes:
        type: which one.
        token: resumes after it; empty: the frame is no place to resume from.
        lsn: the last LSN that it stands for.
        batch: of a snapshot or changes, the rows.
    """

    __slots__ = ("_arrow", "_fields", "_messages", "_text", "batch", "lsn", "token", "type")

    def __init__(
        self,
        kind: FrameType,
        *,
        token: str = "",
        lsn: int = 0,
        fields: dict[str, Any] | None = None,
        batch: ChangeBatch | None = None,
    ) -> None:
        self.type = kind
        self.token = token
        self.lsn = lsn
        self.batch = batch
        self._fields = fields or {}
        self._text: str | None = None
        self._arrow: bytes | None = None
        self._messages: dict[tuple[str, bool], bytes] = {}

    def __len__(self) -> int:
        """How many rows it has."""
        return 0 if self.batch is None else len(self.batch)

    @property
    def size(self) -> int:
        """How many bytes of it are encoded, about."""
        return len(self._text or "") + len(self._arrow or b"")

    def encode(self, encoding: Encoding) -> None:
        """Encode it now, for all who will be sent it."""
        if encoding == "arrow" and self.batch is not None:
            self._arrow = _arrow(self.batch)
        else:
            self._text = self._encoded()

    def after(self, position: int) -> Frame:
        """A frame of the changes after an LSN only."""
        batch = self.batch
        if batch is None or batch.kind == "snapshot" or batch.first_lsn > position:
            return self
        rest = batch.slice(bisect_right(batch.lsns, position))
        return Frame(self.type, token=self.token, lsn=self.lsn, fields=self._fields, batch=rest)

    def message(self, client_id: str, *, as_arrow: bool) -> bytes:
        """The frame as a message of a WebSocket, encoded once for all that have the same id."""
        found = self._messages.get((client_id, as_arrow))
        if found is None:
            is_text = not as_arrow or self.batch is None
            payload = self.json(client_id).encode() if is_text else self.binary(client_id)
            found = encoded_message(payload, is_text=is_text)
            if len(self._messages) < _MOST_IDS:
                self._messages[client_id, as_arrow] = found
        return found

    # ---- JSON

    def json(self, client_id: str = "") -> str:
        """The frame as JSON; with the id of a subscription, in JSON itself, if there is one."""
        text = self._text
        if text is None:
            text = self._text = self._encoded()
        return f'{{"id":{client_id},{text}' if client_id else f"{{{text}"

    def _encoded(self) -> str:
        """All but the brace that begins it."""
        head = self._head()
        if self.batch is not None:
            changes = to_json(change_objects(self.batch))
            return f'{head[1:-1]},"changes":{changes}}}'
        return head[1:]

    def _head(self, facts: dict[str, Any] | None = None) -> str:
        fields: dict[str, Any] = {"type": self.type}
        if self.token:
            fields |= {"token": self.token, "lsn": self.lsn}
        return to_json(fields | self._fields | (facts or {}))

    def event(self) -> str:
        """The frame as a Server-Sent Event."""
        token = f"id: {self.token}\n" if self.token else ""
        return f"{token}event: {self.type}\ndata: {self.json()}\n\n"

    # ---- Arrow

    def binary(self, client_id: str) -> bytes:
        """A frame with rows: the length of its head, the head in JSON, an Arrow IPC stream."""
        facts = {} if self.batch is None else _facts(self.batch)
        head = f'{{"id":{client_id},{self._head(facts)[1:]}'.encode()
        rows = self._arrow
        if rows is None:
            rows = self._arrow = _arrow(self.batch)
        return b"".join((struct.pack(">I", len(head)), head, rows))


def _facts(batch: ChangeBatch) -> dict[str, Any]:
    """What else a batch says of its rows, where it says so."""
    found = {
        "topic": batch.topic,
        "committed_at": batch.committed_at,
        "watermark": batch.watermark,
        "cause": batch.cause,
    }
    if batch.kind == "changes" and batch.commits is not None and len(batch):
        ends, times = batch.commits.arrays
        start, stop = np.searchsorted(ends, [batch.first_lsn, batch.lsn])
        found["commits"] = [ends[start : stop + 1].tolist(), times[start : stop + 1].tolist()]
    if batch.causes is not None:
        found["causes"] = list(batch.causes)
    return {name: value for name, value in found.items() if value}


def _arrow(batch: ChangeBatch | None) -> bytes:
    if batch is None:
        raise ValueError("only snapshots and changes have rows")
    rows = batch.to_arrow()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    data: bytes = out.getvalue().to_pybytes()
    return data


# ---- which frames there are


def ready_frame(subscription: SubscriptionBase) -> Frame:
    """The subscription is open: a row that is pushed from now on will come."""
    schema = subscription.schema
    fields = {**schema_json(schema), "target": subscription.target}
    position = subscription.position
    return Frame("ready", token=subscription.token, lsn=position, fields=fields)


def waiting_frame(subscription: SubscriptionBase) -> Frame:
    """The snapshot of a view comes once the view counts what was committed before."""
    return Frame("waiting", fields={"view": subscription.target})


def schema_json(schema: Schema) -> dict[str, Any]:
    """Columns and key, as frames have them."""
    return {"columns": columns_json(schema), "key": list(schema.key)}


def batch_frames(
    batch: ChangeBatch, *, resets: bool = False, fields: dict[str, Any] | None = None
) -> Iterator[Frame]:
    """The frames of a batch, of a few thousand rows each: first what was lost before it.

    Args:
        batch: the batch.
        resets: whether the client has rows from before, which a snapshot that begins replaces.
        fields: more fields of its frames.
    """
    is_snapshot = batch.kind == "snapshot"
    yield from _gap_frames(batch, resets=resets)
    kind: FrameType = "snapshot" if is_snapshot else "changes"
    *first, last = _parts(batch)
    for part in first:
        # A part of a state is at no LSN: from there nobody can resume.
        token = part.token if part.lsn else ""
        yield Frame(kind, token=token, lsn=part.lsn, batch=part, fields=fields)
    if len(last) or is_snapshot:
        yield Frame(kind, token=last.token, lsn=last.lsn, batch=last, fields=fields)


def cut_frames(cut: Cut) -> Iterator[Frame]:
    """The frames of a cut: those of its batches, from which nobody can resume, then its end.

    Queries are numbered in their order. ``last`` is in the last frame of a batch.
    """
    for number, batches in enumerate(cut.batches.values()):
        for batch in batches:
            fields: dict[str, Any] = {"query": number}
            yield from _gap_frames(batch, fields=fields)
            kind: FrameType = "snapshot" if batch.kind == "snapshot" else "changes"
            *first, last = _parts(batch)
            for part in first:
                yield Frame(kind, batch=part, fields=fields)
            place = {"first_lsn": batch.first_lsn, "until": batch.lsn, "at": batch.token}
            yield Frame(kind, batch=last, fields={**fields, "last": True, **place})
    yield Frame("cut", token=cut.token, lsn=cut.lsn, fields={"kind": cut.kind})


def _parts(batch: ChangeBatch) -> Iterator[ChangeBatch]:
    """A batch in parts of a few thousand rows; the last may be empty."""
    while len(batch) > FRAME_ROWS:
        end = slice_end(batch, FRAME_ROWS)
        if end >= len(batch):
            break
        yield batch.slice(0, end)
        batch = batch.slice(end)
    yield batch


def _gap_frames(
    batch: ChangeBatch, *, resets: bool = False, fields: dict[str, Any] | None = None
) -> Iterator[Frame]:
    """What was lost before a batch, or that it replaces what the client has."""
    gap, more = batch.gap, fields or {}
    if batch.kind == "snapshot" and (resets or gap is not None):
        yield Frame("reset", fields={**more, "gap": _gap(gap)})
    elif gap is not None:
        yield Frame("gap", fields={**more, **(_gap(gap) or {})})


def _gap(gap: Gap | None) -> dict[str, Any] | None:
    if gap is None:
        return None
    return {"first_lsn": gap.first_lsn, "last_lsn": gap.last_lsn, "count": gap.count}


def progress_frame(subscription: SubscriptionBase) -> Frame:
    """All up to an LSN was sent, or is not in the result."""
    settled = subscription.settled
    return Frame("progress", token=subscription.token_at(settled), lsn=settled)


def error_frame(error: BaseException) -> Frame:
    """The subscription has failed; an ``end`` follows."""
    return Frame("error", fields={"error": error_json(error)})


def end_frame(token: str, lsn: int) -> Frame:
    """Nothing more will come; with a token, another subscription goes on after it."""
    return Frame("end", token=token, lsn=lsn)

"""Frames of a subscription, turned back into batches. It does no I/O.

``docs/wire-protocol.md`` specifies them. Snapshots and changes come in Arrow. A snapshot that comes
in parts is one batch, given when its last part is there: if the connection breaks before that, a
new one replaces it, and the reader has seen nothing of the first.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.delivery.backpressure import merge_gaps
from millstream.formats.text import json_value
from millstream.model.batch import ChangeBatch
from millstream.model.change import Change, Commits, Gap
from millstream.model.lsn import ResumeToken
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from uuid import UUID

    from millstream.model.batch import Kind

_UNKNOWN = Schema.of(unknown="VARCHAR")
_HIDDEN = 3  # the columns _op, _weight, _lsn


def parse_message(message: str | bytes) -> tuple[dict[str, Any], pa.RecordBatch | None]:
    """A message of the server: the frame, and its rows with ``_op``, ``_weight`` and ``_lsn``."""
    if isinstance(message, str):
        return json.loads(message), None
    (size,) = struct.unpack_from(">I", message)
    with pa.ipc.open_stream(pa.py_buffer(message)[4 + size :]) as reader:
        return json.loads(message[4 : 4 + size]), reader.read_next_batch()


class FrameReader:
    """The frames of one subscription, across connections.

    Args:
        drops_repeated: drop changes that were there before, of a durable subscription that begins
            after its last acknowledgement.

    Attributes:
        schema: the columns, since the first ``ready``.
        token: where to go on from; empty before the first ``ready``.
        lsn: everything up to it was received.
        has_begun: whether more than a ``ready`` has come.
        origins: the first LSN, database and epoch of each run of the server's database.
        target: what it reads; empty for several.
        tenants: of the change bus, the tenant column of each collection that has come.
    """

    def __init__(self, *, drops_repeated: bool = False) -> None:
        self.schema = _UNKNOWN
        self.target = ""
        self.tenants: dict[str, str | None] = {}
        self.token, self.lsn = "", 0
        self.has_begun = False
        self.origins: list[tuple[int, UUID, int]] = []
        self._drops_repeated = drops_repeated
        self._gap: Gap | None = None
        self._parts: list[pa.RecordBatch] = []

    def connected(self) -> None:
        """Forget what has come in part: the server will begin it anew."""
        self._parts, self._gap = [], None

    def ready(self, frame: dict[str, Any]) -> None:
        """Take a ``ready``: the subscription is open."""
        self.schema = schema_from(frame)
        self.target = frame.get("target", "")
        if not self.token:
            self._passed(frame)

    def read(self, frame: dict[str, Any], rows: pa.RecordBatch | None) -> list[ChangeBatch]:
        """The batches that are whole with a further frame; mostly one or none."""
        kind = frame["type"]
        if kind == "waiting":
            return []
        if kind in {"gap", "reset"}:
            self._gap = merge_gaps(self._gap, gap_from(frame if kind == "gap" else frame["gap"]))
            if kind == "reset":
                self._parts = []
            return []
        if kind == "snapshot" and rows is not None:
            self._parts.append(rows)
            # A part of a state is at no LSN.
            return self._snapshot(frame) if frame.get("token") and frame["lsn"] else []
        self.has_begun = True
        if kind == "changes" and rows is not None:
            return self._changes(frame, rows)
        found = self._snapshot(frame) if self._parts else []
        if kind == "progress":
            self._passed(frame)
            if self._gap is not None:  # nothing follows it for now, and the token is after it
                found.append(self._empty())
        return found

    def _snapshot(self, frame: dict[str, Any]) -> list[ChangeBatch]:
        parts, self._parts = self._parts, []
        self.has_begun = True
        self._passed(frame)
        return [self._batch("snapshot", pa.concat_batches(parts), 0, frame)]

    def _changes(self, frame: dict[str, Any], rows: pa.RecordBatch) -> list[ChangeBatch]:
        before = self.lsn
        self._passed(frame)
        batch = self._batch("changes", rows, rows.column(rows.num_columns - 1)[0].as_py(), frame)
        if self._drops_repeated and batch.first_lsn <= before:
            batch = batch.slice(bisect_right(batch.lsns, before))
        return [batch] if len(batch) else []

    def _empty(self) -> ChangeBatch:
        """A gap that no rows follow, as a batch without rows."""
        gap, self._gap = self._gap, None
        first_lsn = self.lsn if gap is None else gap.first_lsn
        origin = self.origins[-1][1:]
        return ChangeBatch(
            self.schema, [], None, None, first_lsn=first_lsn, lsn=self.lsn, gap=gap, origin=origin
        )

    def _passed(self, frame: dict[str, Any]) -> None:
        """Note the token of a frame, and which run of the database it is of."""
        token = frame.get("token")
        if not token:
            return
        found = ResumeToken.parse(token)
        self.token, self.lsn = token, max(found.lsn, self.lsn if self._drops_repeated else 0)
        origin = found.database, found.epoch
        if not self.origins or self.origins[-1][1:] != origin:
            self.origins.append((found.lsn, *origin))

    def _batch(
        self, kind: Kind, rows: pa.RecordBatch, first_lsn: int, frame: dict[str, Any]
    ) -> ChangeBatch:
        schema = self.schema
        if "columns" in frame:  # of the change bus
            schema = schema_from(frame)
            self.tenants[frame["topic"]] = frame["tenant"]
        gap, self._gap = self._gap, None
        return batch_from(
            frame,
            rows,
            schema,
            first_lsn=first_lsn,
            lsn=self.lsn,
            kind=kind,
            gap=gap,
            origin=self.origins[-1][1:],
        )


def batch_from(
    frame: dict[str, Any],
    rows: pa.RecordBatch,
    schema: Schema,
    *,
    first_lsn: int,
    lsn: int,
    kind: Kind,
    gap: Gap | None,
    origin: tuple[UUID, int] | None,
) -> ChangeBatch:
    """The batch of a frame's rows, with ``_op``, ``_weight`` and ``_lsn``."""
    count = rows.num_columns - _HIDDEN
    columns, weights = rows.columns[:count], rows.column(count + 1)
    if count != len(schema.columns):  # a column was added since
        schema = Schema.from_arrow(pa.schema(list(rows.schema)[:count]))
    commits = frame.get("commits")
    causes = frame.get("causes")
    return ChangeBatch(
        schema,
        None,
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        None if pc.all(pc.equal(weights, 1)).as_py() in {True, None} else weights,
        topic=frame.get("topic", ""),
        first_lsn=first_lsn,
        lsn=lsn,
        lsns=rows.column(count + 2),
        kind=kind,
        watermark=frame.get("watermark"),
        committed_at=frame.get("committed_at", 0),
        gap=gap,
        origin=origin,
        cause=frame.get("cause", 0),
        commits=None if commits is None else Commits.of(*commits),
        causes=None if causes is None else tuple((end, cause) for end, cause in causes),
    )


def changes_from(found: dict[str, Any]) -> list[Change]:
    """The changes of one relation in JSON: ``{"columns", "key", "changes"}``."""
    schema = schema_from(found)
    types = [each.type for each in schema.columns]

    def row(values: list[Any] | None) -> tuple[Any, ...] | None:
        if values is None:
            return None
        return tuple(json_value(of, each) for of, each in zip(types, values, strict=True))

    return [
        Change(each["op"], row(each["row"]) or (), row(each["before"]), each["lsn"], schema)
        for each in found["changes"]
    ]


def schema_from(frame: dict[str, Any]) -> Schema:
    """The columns that a frame names, and their key."""
    key = frame["key"]
    columns = tuple(
        Column.parse(name, f"{kind} NOT NULL" if name in key else kind)
        for name, kind in ((each["name"], each["type"]) for each in frame["columns"])
    )
    return Schema(columns, tuple(key))


def gap_from(found: dict[str, Any] | None) -> Gap | None:
    """The gap that a frame reports."""
    return None if found is None else Gap(found["first_lsn"], found["last_lsn"], found["count"])

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from millstream import ChangeBatch, Schema
from millstream.model.change import Gap
from millstream.server.frames import FRAME_ROWS, batch_frames

PAGE = Path(__file__).parents[2] / "docs" / "wire-protocol.md"
VECTORS = json.loads(re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[0])
ORIGIN = (UUID(int=7), 1)


def batch_of(vector):
    schema = Schema.of(vector["columns"], key=tuple(vector.get("key", ())))
    decimals = [each.type.kind == "DECIMAL" for each in schema.columns]
    rows = [
        tuple(Decimal(v) if d else v for v, d in zip(row, decimals, strict=True))
        for row in vector["rows"]
    ]
    made = ChangeBatch.from_rows(schema, rows, weights=vector.get("weights"))
    return made.placed("t", vector["first_lsn"], committed_at=0, origin=ORIGIN)


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_specification(vector):
    (frame,) = batch_frames(batch_of(vector))
    assert frame.json("1") == vector["json"]
    assert frame.event() == vector["sse"]
    message = frame.binary("1")
    (size,) = struct.unpack_from(">I", message)
    assert message[4 : 4 + size].decode() == vector["head"]
    table = pa.ipc.open_stream(message[4 + size :]).read_all()
    assert table.num_rows == len(vector["rows"])
    assert table.column_names[-3:] == ["_op", "_weight", "_lsn"]


def test_every_frame_is_specified():
    text = PAGE.read_text()
    for kind in ("ready", "snapshot", "changes", "progress", "gap", "reset", "error", "end"):
        assert f"| `{kind}` |" in text


def numbered(count, **options):
    batch = ChangeBatch.from_rows(Schema.of(n="BIGINT"), [(n,) for n in range(count)])
    return batch.placed("t", 1, committed_at=0, origin=ORIGIN).copy(**options)


def test_large_batches_are_parted():
    frames = list(batch_frames(numbered(FRAME_ROWS * 2 + 1)))
    assert [len(each) for each in frames] == [FRAME_ROWS, FRAME_ROWS, 1]
    assert [each.lsn for each in frames] == [FRAME_ROWS, 2 * FRAME_ROWS, 2 * FRAME_ROWS + 1]
    assert all(each.token for each in frames)


def test_gaps_and_resets():
    gap = Gap(1, 5, 5)
    kinds = [each.type for each in batch_frames(numbered(1, gap=gap))]
    assert kinds == ["gap", "changes"]
    reset, snapshot = batch_frames(numbered(1, kind="snapshot", gap=gap))
    assert (reset.type, snapshot.type) == ("reset", "snapshot")
    assert json.loads(reset.json())["gap"] == {"first_lsn": 1, "last_lsn": 5, "count": 5}
    kinds = [each.type for each in batch_frames(numbered(0, kind="snapshot"), resets=True)]
    assert kinds == ["reset", "snapshot"]


def test_the_changes_after_an_lsn():
    (frame,) = batch_frames(numbered(10))
    rest = frame.after(7)
    assert [each["lsn"] for each in json.loads(rest.json())["changes"]] == [8, 9, 10]
    assert rest.token == frame.token
    assert frame.after(0) is frame

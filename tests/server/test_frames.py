from __future__ import annotations

import asyncio
import json
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import get_args
from uuid import UUID

import pyarrow as pa
import pytest
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from millstream import ChangeBatch, Schema
from millstream.model.change import Gap
from millstream.server.frames import FRAME_ROWS, Frame, FrameType, batch_frames
from millstream.server.protocol import encoded_message
from millstream.server.tails import Member

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
    for kind in get_args(FrameType):
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


def test_a_member_that_waits_is_handed_frames_at_once():
    async def main():
        sent, may_write = [], [True]

        def hand_over(frame):
            if may_write[0]:
                sent.append(frame.lsn)
            return may_write[0]

        member = Member(0, 100, hand_over)
        assert member.offer(Frame("progress", token="t", lsn=1))  # it does not wait yet: queued
        assert (await member.take()).lsn == 1
        taking = asyncio.ensure_future(member.take())
        await asyncio.sleep(0)
        for lsn in (2, 3):
            assert member.offer(Frame("progress", token="t", lsn=lsn))
        may_write[0] = False
        assert member.offer(Frame("progress", token="t", lsn=4))
        may_write[0] = True
        assert member.offer(Frame("progress", token="t", lsn=5))  # after the one that waits
        assert sent == [2, 3]
        assert [(await taking).lsn, (await member.take()).lsn] == [4, 5]

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_message_is_what_a_websocket_library_reads(size):
    payload = b"x" * size
    protocol = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    protocol.receive_data(encoded_message(payload, is_text=size % 2 == 0))
    (frame,) = protocol.events_received()
    assert (frame.data, frame.fin) == (payload, True)
    assert frame.opcode == (Opcode.TEXT if size % 2 == 0 else Opcode.BINARY)

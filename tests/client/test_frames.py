from __future__ import annotations

import json
from uuid import UUID

import pytest

from millstream import ChangeBatch, Schema, errors
from millstream.client.frames import FrameReader, parse_message
from millstream.client.remote_errors import error_from
from millstream.model.change import Gap
from millstream.model.lsn import ResumeToken
from millstream.server.frames import FRAME_ROWS, Frame, batch_frames

SCHEMA = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
DATABASE = UUID(int=7)


def batch(ids, lsn, *, kind="changes", weights=None, gap=None, epoch=1):
    made = ChangeBatch.from_rows(SCHEMA, [(n, "x") for n in ids], weights=weights)
    first = 0 if kind == "snapshot" else lsn - len(ids) + 1
    lsns = [0] * len(ids) if kind == "snapshot" else None
    return ChangeBatch(
        SCHEMA,
        made.rows,
        None,
        None if weights is None else made.weights_arrow(),
        first_lsn=first,
        lsn=lsn,
        lsns=lsns,
        kind=kind,
        gap=gap,
        origin=(DATABASE, epoch),
    )


def messages(frames):
    return [frame.json("1") if frame.batch is None else frame.binary("1") for frame in frames]


def ready(reader, lsn=0):
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "name", "type": "VARCHAR"}]
    reader.ready({"columns": columns, "key": ["id"], "token": token(lsn), "lsn": lsn})
    return reader


def token(lsn, epoch=1):
    return str(ResumeToken(DATABASE, epoch, lsn))


def read(reader, *batches, resets=False):
    return [
        found
        for each in batches
        for message in messages(batch_frames(each, resets=resets))
        for found in reader.read(*parse_message(message))
    ]


def test_changes_come_back_as_they_were():
    reader = ready(FrameReader())
    sent = batch([1, 1, 2], 43, weights=[-1, 1, -1])
    (found,) = read(reader, sent)
    assert found.schema == SCHEMA
    assert [(each.op, each.row, each.before, each.lsn) for each in found] == [
        (each.op, each.row, each.before, each.lsn) for each in sent
    ]
    assert found.token == sent.token == reader.token
    assert found.to_arrow().equals(sent.to_arrow())


def test_a_snapshot_in_parts_is_one_batch():
    reader = ready(FrameReader())
    sent = batch(range(3 * FRAME_ROWS), 9, kind="snapshot")
    (found,) = read(reader, sent)
    assert (found.kind, found.lsn, found.rows) == ("snapshot", 9, sent.rows)


def test_a_snapshot_that_was_cut_off_begins_anew():
    reader = ready(FrameReader())
    sent = messages(batch_frames(batch(range(2 * FRAME_ROWS), 9, kind="snapshot")))
    assert reader.read(*parse_message(sent[0])) == []
    assert not reader.has_begun
    reader.connected()
    (found,) = read(reader, batch([1], 12, kind="snapshot"))
    assert (found.rows, found.lsn) == ([(1, "x")], 12)


def test_a_reset_carries_its_gap():
    reader = ready(FrameReader())
    gap = Gap(3, 8, 6)
    (found,) = read(reader, batch([1], 12, kind="snapshot", gap=gap), resets=True)
    assert (found.kind, found.gap) == ("snapshot", gap)
    (empty,) = read(reader, batch([], 14, kind="snapshot"), resets=True)
    assert (empty.kind, empty.rows, empty.lsn) == ("snapshot", [], 14)


def test_a_gap_is_on_the_batch_after_it_or_on_an_empty_one():
    reader = ready(FrameReader())
    (found,) = read(reader, batch([1], 12, gap=Gap(3, 8, None)))
    assert found.gap == Gap(3, 8, None)
    (message,) = messages([Frame("gap", fields={"first_lsn": 13, "last_lsn": 14, "count": 2})])
    assert reader.read(*parse_message(message)) == []
    (message,) = messages([Frame("progress", token=token(15), lsn=15)])
    (empty,) = reader.read(*parse_message(message))
    assert (empty.rows, empty.gap, empty.lsn, empty.token) == ([], Gap(13, 14, 2), 15, token(15))


def test_a_durable_one_drops_what_it_has():
    reader = ready(FrameReader(drops_repeated=True))
    assert len(read(reader, batch([1, 2, 3], 13))) == 1
    reader.connected()
    ready(reader, 10)
    assert read(reader, batch([1, 2], 12)) == []
    (found,) = read(reader, batch([3, 4], 14))
    assert (found.rows, found.first_lsn) == ([(4, "x")], 14)


def test_tokens_are_of_the_run_that_has_given_them():
    reader = ready(FrameReader())
    read(reader, batch([1], 12), batch([2], 20, epoch=2))
    assert [lsn for lsn, *_ in reader.origins] == [0, 20]


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.Error)
    ],
)
def test_errors_are_rebuilt(kind):
    found = json.loads(json.dumps({"code": kind.code, "message": "what", "hint": "do this"}))
    made = error_from({**found, "line": None, "column": None})
    assert (type(made), made.code, made.message, made.hint) == (
        kind,
        kind.code,
        "what",
        "do this",
    )


def test_an_unknown_error():
    assert type(error_from({"code": "NEW", "message": "what"})) is errors.ServerError

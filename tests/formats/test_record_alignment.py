"""Records of JSON: at once and one by one say the same; what does not fit costs only itself."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import Schema
from millstream.errors import SchemaMismatchError
from millstream.formats import json_records
from millstream.formats.records import record_decoder


def decode_json(values, schema, **options):
    return record_decoder("json", schema, **options)(values)


def decode_csv(values, schema):
    return record_decoder("csv", schema)(values)


TRADES = Schema.of(
    symbol="VARCHAR NOT NULL", price="DOUBLE", qty="BIGINT", ts="TIMESTAMP", day="DATE", r="REAL"
)
GOOD = b'{"symbol": "A", "price": 1.5, "qty": 2, "ts": "2026-01-01T00:00:00Z"}'

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01 12:00", "2026-01-01", "NaN", "1"]),
    st.lists(st.integers(), max_size=2),
)
OBJECTS = st.dictionaries(st.sampled_from([*TRADES.names, "other"]), VALUES).map(
    lambda each: json.dumps({"symbol": "A", **each}).encode()
)
POISON = st.sampled_from(
    [
        *(b"", b" ", b"\n", b"{", b"[]", b"null", b"{}\x00", b' {"symbol":"A"}', GOOD),
        *(b'{"symbol":"A"}\n{"symbol":"B"}', b'{"symbol":"A"}{}', b'{"symbol":"A",\n"qty":1}'),
        *(b'{"symbol":"\xff"}', b'{"symbol":"\\ud800"}', b'{"symbol":"A","symbol":"B"}'),
        b'{"symbol":"A","price":1e400}',
    ]
)


@given(st.lists(OBJECTS | POISON, max_size=40))
def test_a_record_is_read_the_same_with_others_and_alone(values):
    found = decode_json(values, TRADES)
    alone = [decode_json([value], TRADES) for value in values]
    assert repr(found.rows.to_pylist()) == repr(
        [row for one in alone for row in one.rows.to_pylist()]
    )
    assert [
        (at, why) for at, one in enumerate(alone) for _, why in one.malformed
    ] == found.malformed
    places = list(range(len(values))) if found.places is None else found.places
    assert sorted([*places, *(at for at, _ in found.malformed)]) == list(range(len(values)))


@given(st.lists(OBJECTS | POISON, max_size=20))
def test_what_is_read_at_once_is_what_the_rows_say(values):
    arrow = json_records.json_schema(TRADES, None)
    for value in values:
        try:
            at_once = json_records.json_batch([value], TRADES, arrow, None)
            row = json_records.json_row(json_records.json_object(value), TRADES)
        except (SchemaMismatchError, pa.ArrowException):
            continue
        assert repr(TRADES.arrow_to_rows(at_once)) == repr([row])


def test_all_types_are_read_and_what_is_no_column_is_ignored():
    schema = Schema.of(
        d="DATE", b="BINARY", m="MAP<VARCHAR, INT>", x="DECIMAL(10, 2)", a="ARRAY<INT>", r="REAL"
    )
    value = b'{"d":"2026-01-31","b":"YWJj","m":{"k":1},"x":1.25,"a":[1,null],"r":0.5,"no":{"x":[]}}'
    found = decode_json([value, b'{"x": 1.234}'], schema)
    assert schema.arrow_to_rows(found.rows)[0][1:3] == (b"abc", {"k": 1})
    assert found.places == [0]
    assert "column 'x'" in found.malformed[0][1]


def test_numbers_are_times_only_when_the_unit_is_known():
    schema = Schema.of(ts="TIMESTAMP")
    value = b'{"ts": 1500}'
    (row,) = decode_json([value], schema, timestamp_unit="ms").rows.to_pylist()
    assert row["ts"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert decode_json([value, b'{"ts":"2026-01-01"}'], schema, timestamp_unit="ms").places is None
    assert decode_json([value], schema).malformed
    assert decode_json([b'{"ts": 1}'], schema, timestamp_unit="ns").malformed


@pytest.mark.parametrize("count", [1, 17, 5000])
def test_one_bad_record_among_many(count):
    values = [GOOD] * count
    values[count // 2] = b"oops"
    found = decode_json(values, TRADES)
    assert [at for at, _ in found.malformed] == [count // 2]
    assert found.rows.num_rows == count - 1
    assert found.rows.schema.equals(TRADES.arrow)


def test_a_record_larger_than_a_block():
    values = [b'{"symbol": "' + b"x" * (json_records._BLOCK + 10) + b'"}', GOOD]
    assert decode_json(values, TRADES).rows.num_rows == 2


def test_nothing():
    assert decode_json([], TRADES).rows.equals(pa.RecordBatch.from_pylist([], TRADES.arrow))


CSV = Schema.of(n="INT", s="VARCHAR")
LINES = st.lists(st.sampled_from(list(b'1,"\n\rax ')), max_size=6).map(bytes) | st.just(b"1,a")


@given(st.lists(LINES, max_size=20))
def test_a_line_of_csv_is_read_the_same_with_others_and_alone(values):
    found = decode_csv(values, CSV)
    alone = [decode_csv([value], CSV) for value in values]
    assert found.rows.to_pylist() == [row for one in alone for row in one.rows.to_pylist()]
    assert [at for at, _ in found.malformed] == [
        at for at, one in enumerate(alone) if one.malformed
    ]

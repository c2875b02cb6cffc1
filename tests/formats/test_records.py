"""Records that are decoded together: each as it would be alone, the malformed set apart."""

import json
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidOptionError
from millstream.formats.json_text import json_rows
from millstream.formats.records import record_decoder
from millstream.model import Schema

SCHEMA = Schema.of(
    n="BIGINT NOT NULL",
    s="VARCHAR",
    x="DOUBLE",
    d="DATE",
    t="TIMESTAMP",
    p="DECIMAL(10,2)",
    b="BOOLEAN",
)
GOOD = b'{"n": 1, "s": "a", "x": 2, "d": "2024-05-31", "t": "2024-05-31T12:00:00+02:00", "p": 1.5}'
BAD = [
    b"",
    b"{",
    b'{"n": 1',
    b'{"n": 1}{"n": 2}',
    b'{"n": 1} {"n": 2}',
    b"[1]",
    b"null",
    b'{"n": null}',
    b'{"s": "a"}',
    b'{"n": 1.5}',
    b'{"n": "1"}',
    b'{"n": 99999999999999999999}',
    b'{"n": 1, "n": 2}',
    b'{"n": 1, "s": 2}',
    b'{"n": 1, "s": "\xff"}',
    b'{"n": 1, "d": "2024-5-31"}',
    b'{"n": 1, "d": 5}',
    b'{"n": 1, "t": 5}',
    b'{"n": 1, "t": "10000-01-01"}',
    b'{"n": 1, "p": 1.555}',
    b'{"n": 1, "b": 1}',
    b'{"n": 1, "s": "x}',
    b'{y"}',
]


def test_json_values():
    decoded = record_decoder("json", SCHEMA)([GOOD] * 20)
    row = decoded.rows.to_pylist()[0]
    assert (row["n"], row["x"], row["p"]) == (1, 2.0, Decimal("1.50"))
    assert (row["d"], row["t"].isoformat()) == (date(2024, 5, 31), "2024-05-31T10:00:00+00:00")
    assert (decoded.places, decoded.malformed) == (None, [])


@pytest.mark.parametrize("bad", BAD)
def test_each_malformed_record_is_set_apart(bad):
    records = [GOOD] * 30
    records[17] = bad
    decoded = record_decoder("json", SCHEMA)(records)
    assert [place for place, _ in decoded.malformed] == [17]
    assert decoded.malformed[0][1]
    assert decoded.rows.num_rows == 29
    assert decoded.places == [n for n in range(30) if n != 17]


@given(st.lists(st.sampled_from([GOOD, *BAD]), max_size=60))
def test_together_as_alone(records):
    decode = record_decoder("json", SCHEMA)
    together = decode(records)
    alone = [decode([record]) for record in records]
    bad = [n for n, each in enumerate(alone) if each.malformed]
    assert [place for place, _ in together.malformed] == bad
    assert together.rows.num_rows == len(records) - len(bad)


VALUES = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "s": st.none() | st.text(st.characters(codec="utf-8")),
    "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "b": st.none() | st.booleans(),
    "other": st.integers(),
}


@given(st.lists(st.fixed_dictionaries(VALUES), min_size=9, max_size=30))
def test_json_as_insert_json_reads_it(objects):
    records = [json.dumps(each).encode() for each in objects]
    decoded = record_decoder("json", SCHEMA)(records)
    known = [{k: v for k, v in each.items() if k != "other"} for each in objects]
    assert SCHEMA.arrow_to_rows(decoded.rows) == json_rows(json.dumps(known), SCHEMA)


def test_nested_types():
    schema = Schema.of(a="ARRAY<INT>", m="MAP<VARCHAR, INT>", i="INTERVAL")
    records = [b'{"a": [1, 2], "m": {"x": 1}, "i": "PT1S"}'] * 10 + [b'{"a": 1}']
    decoded = record_decoder("json", schema)(records)
    assert decoded.rows.num_rows == 10
    assert [place for place, _ in decoded.malformed] == [10]


def test_csv():
    schema = Schema.of(n="INT NOT NULL", s="VARCHAR", x="DOUBLE")
    records = [b"1,a,2.5", b'2,"x, y",', b"3;4;5", b"", b"four,a,1", b'5,"open,1', b"6,b,1\n7,c,2"]
    decoded = record_decoder("csv", schema)(records * 4)
    assert len(decoded.rows) == 8
    assert decoded.rows.to_pylist()[1] == {"n": 2, "s": "x, y", "x": None}
    assert {place % 7 for place, _ in decoded.malformed} == {2, 3, 4, 5, 6}
    other = record_decoder("csv", schema, delimiter=";")([b"3;4;5"])
    assert other.rows.to_pylist() == [{"n": 3, "s": "4", "x": 5.0}]


def test_raw():
    decoded = record_decoder("raw", Schema.of(v="VARCHAR"))([b"a"] * 20 + [b"\xff", b""])
    assert decoded.rows.num_rows == 21
    assert decoded.malformed == [(20, "the record is not UTF-8")]
    assert record_decoder("raw", Schema.of(v="BINARY"))([b"\xff"]).rows.num_rows == 1
    with pytest.raises(InvalidOptionError):
        record_decoder("raw", SCHEMA)


def test_no_such_format():
    with pytest.raises(InvalidOptionError, match="'xml'"):
        record_decoder("xml", SCHEMA)

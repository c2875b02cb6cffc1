from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import Schema
from millstream.formats.json_output import to_json
from millstream.formats.json_text import json_rows

ANY = {
    "BOOLEAN": st.booleans(),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(20, 4)": st.decimals(-(10**15), 10**15, places=4),
    "VARCHAR": st.text(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
    "INTERVAL": st.timedeltas(timedelta(days=-99999), timedelta(days=99999)),
    "ARRAY<DOUBLE>": st.lists(st.floats(allow_nan=False)),
    "STRUCT<a BIGINT, b DATE>": st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.dates()}),
    "MAP<DATE, VARCHAR>": st.dictionaries(st.dates(), st.text()),
    "MAP<BIGINT, BINARY>": st.dictionaries(st.integers(0, 9), st.binary()),
}


@pytest.mark.parametrize("of", ANY)
@given(data=st.data())
def test_what_is_written_is_read_back(of, data):
    schema = Schema.of(v=of)
    value = schema.check_rows([(data.draw(ANY[of]),)])[0][0]
    text = to_json({"v": value})
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert json_rows(text, schema) == [(value,)]


def test_not_a_number():
    assert to_json([float("nan"), {"a": float("inf")}, -float("inf")]) == (
        '["NaN",{"a":"Infinity"},"-Infinity"]'
    )


def test_values_of_one_row():
    row = (None, True, Decimal("1.50"), date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC))
    assert to_json(row) == '[null,true,"1.50","2026-01-02","2026-01-02T00:00:00+00:00"]'

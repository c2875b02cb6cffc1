"""SQL types: their Arrow types, and the check of a column at once."""

import copy
import pickle
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import SchemaError, SchemaMismatchError
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    parse_type,
    type_from_arrow,
)

from .strategies import scalars, types

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


@settings(max_examples=50)
@given(types)
def test_the_arrow_type_of_a_type_names_it(each):
    assert type_from_arrow(each.arrow) == each


@settings(max_examples=50)
@given(types)
def test_types_are_values(each):
    assert pickle.loads(pickle.dumps(each)) == each
    assert copy.deepcopy(each) == each
    assert hash(parse_type(each.sql)) == hash(each)
    assert each.check(None) is None


@pytest.mark.parametrize(
    ("arrow", "sql"),
    [
        (pa.large_string(), "VARCHAR"),
        (pa.string_view(), "VARCHAR"),
        (pa.large_binary(), "BINARY"),
        (pa.binary_view(), "BINARY"),
        (pa.binary(16), "BINARY"),
        (pa.timestamp("s"), "TIMESTAMP"),
        (pa.timestamp("ms", "Europe/Berlin"), "TIMESTAMP"),
        (pa.timestamp("ns"), "TIMESTAMP"),
        (pa.duration("s"), "INTERVAL"),
        (pa.dictionary(pa.int8(), pa.large_string()), "VARCHAR"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.list_(pa.field("element", pa.int8(), nullable=False), 3), "ARRAY<TINYINT>"),
        (pa.list_view(pa.int8()), "ARRAY<TINYINT>"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "TINYINT"),
        (pa.date64(), "DATE"),
        (pa.uint8(), "SMALLINT"),
        (pa.uint16(), "INTEGER"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.float16(), "REAL"),
        (pa.decimal32(5, 2), "DECIMAL(5, 2)"),
        (pa.decimal64(15, 2), "DECIMAL(15, 2)"),
        (pa.decimal256(38, 2), "DECIMAL(38, 2)"),
        (pa.decimal128(5, -2), "DECIMAL(7, 0)"),
        (pa.decimal128(2, 4), "DECIMAL(4, 4)"),
    ],
)
def test_foreign_arrow_types_become_the_nearest(arrow, sql):
    assert type_from_arrow(arrow).sql == sql


@pytest.mark.parametrize(
    "arrow",
    [
        pa.null(),
        pa.list_(pa.null()),
        pa.time64("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 2),
        pa.decimal128(38, -1),
        pa.struct([]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.map_(pa.list_(pa.int8()), pa.int8()),
        pa.uuid(),
    ],
)
def test_arrow_types_without_a_counterpart(arrow):
    with pytest.raises(SchemaError) as caught:
        type_from_arrow(arrow)
    assert caught.value.hint


def test_a_column_that_is_right_is_not_copied():
    for sql_type, value in [
        *((BOOLEAN, True), (BIGINT, 1), (DOUBLE, 1.0), (VARCHAR, "a"), (BINARY, b"a")),
        *((DATE, date(2024, 1, 1)), (TIMESTAMP, NOON), (INTERVAL, timedelta(1))),
    ]:
        values = (value, value)
        assert sql_type.check_column(values, nullable=False) is values
        assert sql_type.check_column((value, None), nullable=True) == [value, None]
        with pytest.raises(SchemaMismatchError, match="NOT NULL"):
            sql_type.check_column((value, None), nullable=False)


@given(scalars, st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary())))
def test_checking_a_column_is_checking_each_value(sql_type, values):
    try:
        each = [sql_type.check(value) for value in values]
    except SchemaMismatchError:
        with pytest.raises(SchemaMismatchError):
            sql_type.check_column(values, nullable=True)
    else:
        assert repr(list(sql_type.check_column(values, nullable=True))) == repr(each)

"""SQL types: their text, their Arrow types, and which Python values they take."""

import copy
import enum
import pickle
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidNameError, SchemaError, SchemaMismatchError
from millstream.model.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    REAL,
    SMALLINT,
    TIMESTAMP,
    TINYINT,
    VARCHAR,
    array_type,
    decimal_type,
    map_type,
    parse_type,
    struct_type,
    type_from_arrow,
)

SCALARS = [
    *(BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE),
    *(VARCHAR, BINARY, DATE, TIMESTAMP, INTERVAL),
]

names = st.one_of(
    st.sampled_from(["a", "order", "unit price", 'quo"te', "back`tick", "integer", "é", "1"]),
    st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20),
).filter(lambda name: name.lower() not in {"_lsn", "_op", "_weight"})
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(decimal_type, st.just(precision), st.integers(0, precision))
)
scalars = st.one_of(st.sampled_from(SCALARS), decimals)


def nested(inner):
    fields = st.lists(
        st.tuples(names, inner), min_size=1, max_size=4, unique_by=lambda f: f[0].lower()
    )
    return st.one_of(
        st.builds(array_type, inner),
        st.builds(struct_type, fields.map(dict)),
        st.builds(map_type, scalars, inner),
    )


types = st.recursive(scalars, nested, max_leaves=8)


@given(types)
def test_the_text_of_a_type_names_it(each):
    assert parse_type(each.sql) == each
    assert parse_type(each.sql).arrow == each.arrow
    assert str(each) == each.sql


@given(types)
def test_the_arrow_type_of_a_type_names_it(each):
    assert type_from_arrow(each.arrow) == each


@given(types)
def test_types_are_values(each):
    assert pickle.loads(pickle.dumps(each)) == each
    assert copy.deepcopy(each) == each
    assert hash(parse_type(each.sql)) == hash(each)
    assert each.check(None) is None


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("bool", "BOOLEAN"),
        ("Byte", "TINYINT"),
        ("short", "SMALLINT"),
        ("INT", "INTEGER"),
        ("long", "BIGINT"),
        ("float", "REAL"),
        (" double  precision ", "DOUBLE"),
        ("string", "VARCHAR"),
        ("text", "VARCHAR"),
        ("bytea", "BINARY"),
        ("varbinary", "BINARY"),
        ("blob", "BINARY"),
        ("decimal", "DECIMAL(10, 0)"),
        ("numeric(5)", "DECIMAL(5, 0)"),
        ("NUMERIC( 5 ,2 )", "DECIMAL(5, 2)"),
        ("timestamptz", "TIMESTAMP"),
        ("interval day to second", "INTERVAL"),
        ("array<array<int>>", "ARRAY<ARRAY<INTEGER>>"),
        ("map<string,array<int>>", "MAP<VARCHAR, ARRAY<INTEGER>>"),
        ("struct<a:int,`b c` : text>", 'STRUCT<a INTEGER, "b c" VARCHAR>'),
        ('struct<"a""b" int, date date>', 'STRUCT<"a""b" INTEGER, date DATE>'),
    ],
)
def test_aliases_and_spellings(text, sql):
    assert parse_type(text).sql == sql


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "unknown type the end at position 0"),
        ("FOO", "unknown type 'FOO' at position 0"),
        ("ARRAY<FOO>", "unknown type 'FOO' at position 6"),
        ("INT8", "unknown type 'INT8'"),
        ("ARRAY", "expected '<', got the end at position 5"),
        ("ARRAY<INT", "expected '>', got the end"),
        ("INT INT", "unexpected 'INT' at position 4"),
        ("INT NOT NULL", "unexpected 'NOT'"),
        ("ARRAY<INT NOT NULL>", "NOT NULL has no place"),
        ("STRUCT<a INT NOT NULL>", "NOT NULL has no place"),
        ("VARCHAR(10)", "VARCHAR takes no length"),
        ("ARRAY<VARBINARY(10)>", "VARBINARY takes no length"),
        ("TIMESTAMP(3)", "TIMESTAMP takes no parameter"),
        ("DECIMAL(0)", r"DECIMAL\(0, 0\) cannot be"),
        ("DECIMAL(39, 2)", "cannot be"),
        ("DECIMAL(3, 4)", "cannot be"),
        ("DECIMAL(x)", "expected a number, got 'x'"),
        ("DECIMAL(99999)", "expected a number"),
        ("DECIMAL(٣)", "expected a number"),
        ("STRUCT<>", "expected the name of a field, got '>'"),
        ("STRUCT<1 INT>", "name of a field, got '1'"),
        ('STRUCT<"" INT>', "name of a field"),
        ('STRUCT<"a INT>', "name of a field"),
        ("STRUCT<a INT, A INT>", "twice"),
        ("STRUCT<a INT, a TEXT>", "twice"),
        ("MAP<INT>", "expected ',', got '>'"),
        ("MAP<ARRAY<INT>, INT>", "cannot be the key of a MAP"),
        ("ARRAY<" * 40 + "INT" + ">" * 40, "levels deep"),
        ("ARRAY<" * 100_000, "levels deep"),
        ("INT;", "unexpected ';'"),
    ],
)
def test_text_that_names_no_type(text, told):
    with pytest.raises(SchemaError, match=told) as caught:
        parse_type(text)
    assert caught.value.hint


@given(st.text(st.sampled_from('ARYMPINTSUC<>(),:12 "`né\n')))
def test_no_text_breaks_the_parser(text):
    try:
        parsed = parse_type(text)
    except (SchemaError, InvalidNameError):
        return
    assert parse_type(parsed.sql) == parsed


def test_a_reserved_field_is_refused():
    with pytest.raises(InvalidNameError, match="_lsn"):
        parse_type("STRUCT<_lsn INT>")


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
        pa.date64(),
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


class Colour(str, enum.Enum):  # noqa: UP042 - str() of this kind gives its name
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Nanoseconds(datetime):
    nanosecond = 5


class Nowhere(tzinfo):
    def utcoffset(self, when):
        return None


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
POINT = struct_type({"x": DOUBLE, "y": BIGINT})


@pytest.mark.parametrize(
    ("sql_type", "value", "canonical"),
    [
        (BOOLEAN, True, True),
        (TINYINT, -128, -128),
        (SMALLINT, np.int16(5), 5),
        (INTEGER, Size.BIG, 3),
        (BIGINT, 2**63 - 1, 2**63 - 1),
        (BIGINT, np.uint64(7), 7),
        (REAL, 0.1, 0.10000000149011612),
        (REAL, 2**24, 16777216.0),
        (REAL, 2**60, float(2**60)),
        (REAL, float("inf"), float("inf")),
        (DOUBLE, 2**53, 9007199254740992.0),
        (DOUBLE, np.float32(0.5), 0.5),
        (DOUBLE, np.float64(0.5), 0.5),
        (decimal_type(5, 2), Decimal("1.5"), Decimal("1.50")),
        (decimal_type(5, 2), Decimal("999.99"), Decimal("999.99")),
        (decimal_type(5, 2), 12, Decimal("12.00")),
        (decimal_type(5, 2), Decimal("1.5000000"), Decimal("1.50")),
        (decimal_type(5, 0), Decimal("1E+2"), Decimal(100)),
        (decimal_type(5, 2), Decimal("-0"), Decimal("0.00")),
        (decimal_type(38, 38), Decimal("0." + "9" * 38), Decimal("0." + "9" * 38)),
        (VARCHAR, "häß \U0001f600 \x00", "häß \U0001f600 \x00"),
        (VARCHAR, Colour.RED, "red"),
        (VARCHAR, np.str_("x"), "x"),
        (BINARY, bytearray(b"\xff"), b"\xff"),
        (BINARY, memoryview(b"abc")[::2], b"ac"),
        (DATE, date(1, 1, 1), date(1, 1, 1)),
        (TIMESTAMP, NOON, NOON),
        (TIMESTAMP, NOON.replace(tzinfo=None), NOON),
        (TIMESTAMP, NOON.replace(tzinfo=Nowhere()), NOON),
        (TIMESTAMP, NOON.astimezone(BERLIN), NOON),
        (TIMESTAMP, NOON.replace(tzinfo=zoneinfo.ZoneInfo("UTC")), NOON),
        (INTERVAL, timedelta(microseconds=-1), timedelta(microseconds=-1)),
        (INTERVAL, timedelta(days=-106751991), timedelta(days=-106751991)),
        (array_type(BIGINT), (1, None), [1, None]),
        (array_type(TIMESTAMP), [NOON.astimezone(BERLIN)], [NOON]),
        (POINT, {"y": 1}, {"x": None, "y": 1}),
        (POINT, (1, 2), {"x": 1.0, "y": 2}),
        (map_type(VARCHAR, POINT), {"a": (None, 1)}, {"a": {"x": None, "y": 1}}),
    ],
)
def test_values_that_belong(sql_type, value, canonical):
    checked = sql_type.check(value)
    assert checked == canonical
    assert repr(checked) == repr(canonical)
    assert type(checked) is type(canonical)
    assert sql_type.check(checked) == canonical


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [
        *((BOOLEAN, value) for value in (1, 0, "true", np.True_)),
        *((TINYINT, value) for value in (128, -129)),
        *((BIGINT, value) for value in (True, 1.0, 1.5, "1", Decimal(1), 2**63, -(2**63) - 1)),
        *((BIGINT, value) for value in (np.True_, np.array([1, 2]), NOON, np.uint64(2**63))),
        *((DOUBLE, value) for value in (True, "1", Decimal("0.5"), Fraction(1, 2), 2**53 + 1)),
        *((DOUBLE, value) for value in (10**400, 1j, np.longdouble(1) / 3)),
        *((REAL, value) for value in (1e39, 2**24 + 1, True, "1")),
        *((decimal_type(5, 2), Decimal(text)) for text in ("1.234", "1000", "NaN", "sNaN", "-Inf")),
        *((decimal_type(5, 2), value) for value in (1.5, True, "1", 1000, Decimal("1E+999999"))),
        *((VARCHAR, value) for value in (b"x", 1, "\ud800", "ok\udfff")),
        *((BINARY, value) for value in ("x", 1, [1, 2])),
        *((DATE, value) for value in (NOON, "2024-01-01", 5)),
        *((TIMESTAMP, value) for value in (0, "2024-01-01", date(2024, 1, 1), 1.5)),
        (TIMESTAMP, Nanoseconds(2024, 1, 1, tzinfo=UTC)),
        (TIMESTAMP, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (TIMESTAMP, np.datetime64("2024-01-01")),
        *((INTERVAL, value) for value in (5, timedelta.max, timedelta.min, "1 day")),
        (INTERVAL, timedelta(microseconds=-(2**63))),
        *((array_type(BIGINT), value) for value in ("ab", {1: 2}, 5, [1.5], [[1]], {1})),
        *((POINT, value) for value in ((1,), (1, 2, 3), {"z": 1}, {"x": "1"}, [1, 2], {1: 2})),
        *((map_type(VARCHAR, BIGINT), value) for value in ({None: 1}, {"a": "b"}, {1: 1})),
        (map_type(VARCHAR, BIGINT), [("a", 1)]),
        (map_type(TIMESTAMP, BIGINT), {NOON: 1, NOON.replace(tzinfo=None): 2}),
        (map_type(REAL, BIGINT), {0.1: 1, 0.10000000149011612: 2}),
    ],
)
def test_values_that_do_not_belong(sql_type, value):
    with pytest.raises(SchemaMismatchError, match="expected") as caught:
        sql_type.check(value)
    assert type(value).__name__ in caught.value.message or sql_type.children
    assert caught.value.hint
    with pytest.raises(SchemaMismatchError):
        sql_type.check_column([value], nullable=True)


def test_an_int_too_long_to_print_is_refused_all_the_same():
    for value in (10**5000, [10**5000]):
        with pytest.raises(SchemaMismatchError, match="too many digits"):
            BIGINT.check(value)


def test_nan_is_a_number_here():
    assert np.isnan(DOUBLE.check(float("nan")))
    assert np.isnan(REAL.check(np.float32("nan")))


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


def test_pandas_scalars_are_taken_only_if_nothing_is_lost():
    pd = pytest.importorskip("pandas")
    assert type(TIMESTAMP.check(pd.Timestamp(NOON))) is datetime
    assert TIMESTAMP.check(pd.Timestamp(NOON).tz_convert("Europe/Berlin")) == NOON
    assert type(INTERVAL.check(pd.Timedelta(days=1))) is timedelta
    for sql_type, value in [
        (TIMESTAMP, pd.Timestamp(NOON).as_unit("ns") + pd.Timedelta(1, "ns")),
        (INTERVAL, pd.Timedelta(1, "ns")),
        *((each, pd.NaT) for each in (DATE, TIMESTAMP, INTERVAL)),
        *((each, pd.NA) for each in SCALARS),
        (DATE, pd.Timestamp(NOON)),
    ]:
        with pytest.raises(SchemaMismatchError):
            sql_type.check(value)

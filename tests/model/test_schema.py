"""Schemas: their making, their evolution, and the ways between rows and Arrow."""

import copy
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Optional

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidNameError, RowError, SchemaError, SchemaMismatchError
from millstream.model.schema import Column, Schema
from millstream.model.types import (
    array_type,
    decimal_type,
    map_type,
    parse_type,
    struct_type,
    type_from_arrow,
)

TRADES = Schema.of(
    key=("symbol",), symbol="VARCHAR NOT NULL", price="DOUBLE", qty="bigint", ts="TIMESTAMP"
)
EVE = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
LONGEST = timedelta(days=106751991)

WORDS = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "VARCHAR", "BINARY"),
    *("DATE", "TIMESTAMP", "INTERVAL", "DECIMAL(5, 2)", "DECIMAL(38, 38)", "DECIMAL(38, 0)"),
]
scalars = st.sampled_from(WORDS).map(parse_type)
labels = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5).filter(
    lambda name: name.lower() not in {"_lsn", "_op", "_weight"}
)


def named(values, most):
    pairs = st.tuples(labels, values)
    return st.lists(pairs, min_size=1, max_size=most, unique_by=lambda pair: pair[0].lower())


types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(array_type, inner),
        st.builds(struct_type, named(inner, 3).map(dict)),
        st.builds(map_type, scalars, inner),
    ),
    max_leaves=4,
)

SCALAR_VALUES = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "REAL": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "VARCHAR": st.text(),
    "BINARY": st.binary(),
    "DATE": st.dates(),
    # In UTC no hour comes twice, so the fold that tells two apart means nothing.
    "TIMESTAMP": st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(fold=0)),
    "INTERVAL": st.timedeltas(-LONGEST, LONGEST),
}


def values_of(each, *, nullable=True):
    if each.kind in SCALAR_VALUES:
        values = SCALAR_VALUES[each.kind]
    elif each.kind == "DECIMAL":
        most, scale = 10**each.arrow.precision - 1, each.arrow.scale
        values = st.integers(-most, most).map(lambda n: Decimal(f"{n}e-{scale}"))
    elif each.kind == "ARRAY":
        values = st.lists(values_of(each.children[0]), max_size=3)
    elif each.kind == "STRUCT":
        fields = st.tuples(*map(values_of, each.children))
        values = fields.map(lambda row: dict(zip(each.names, row, strict=True)))
    else:
        key, value = each.children
        values = st.dictionaries(values_of(key, nullable=False), values_of(value), max_size=3)
    return st.one_of(st.none(), values) if nullable else values


@st.composite
def schemas(draw):
    columns = [Column(n, t, nullable=draw(st.booleans())) for n, t in draw(named(types, 4))]
    scalar = [column.name for column in columns if not column.type.children]
    key = draw(st.lists(st.sampled_from(scalar), unique=True)) if scalar else ()
    return Schema(columns, key)


@st.composite
def filled(draw, most=8):
    """A schema and rows of it, in canonical form."""
    schema = draw(schemas())
    row = st.tuples(*(values_of(c.type, nullable=c.nullable) for c in schema.columns))
    return schema, draw(st.lists(row, max_size=most))


# --- Making ---------------------------------------------------------------------------------------


def test_a_schema_of_text():
    assert TRADES.names == ("symbol", "price", "qty", "ts")
    assert TRADES.key == ("symbol",)
    assert TRADES.ddl == "symbol VARCHAR NOT NULL, price DOUBLE, qty BIGINT, ts TIMESTAMP"
    assert [column.nullable for column in TRADES.columns] == [False, True, True, True]
    assert Schema.of(a="INT  not  null ", b="INT NULL").ddl == "a INTEGER NOT NULL, b INTEGER"


@given(schemas())
def test_arrow_keeps_the_whole_schema(schema):
    assert Schema.from_arrow(schema.arrow) == schema
    assert Schema.from_arrow(pa.ipc.read_schema(schema.arrow.serialize())) == schema


@given(schemas())
def test_schemas_are_values(schema):
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert hash(Schema(list(schema.columns), schema.key)) == hash(schema)


def test_names_are_quoted_in_ddl():
    columns = (Column("unit price", parse_type("INT")), Column("order", parse_type("INT")))
    assert Schema(columns).ddl == '"unit price" INTEGER, "order" INTEGER'


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Schema(()), "must have a column"),
        (lambda: Schema.of(a="INT", A="INT"), "'a' and 'A'"),
        (lambda: Schema([Column("a", parse_type("INT"))] * 2), "'a' and 'a'"),
        (lambda: Schema.of(key=("b",), a="INT"), "'b' is no column"),
        (lambda: Schema.of(key=("a", "a"), a="INT"), "twice"),
        (lambda: Schema.of(key=("a",), a="ARRAY<INT>"), "cannot be in the key"),
        (lambda: Schema((Column("a", parse_type("INT")),), "a"), "must be a tuple"),
        (lambda: Schema.of(a="FOO"), "unknown type 'FOO'"),
        (lambda: Schema.of(a="NOT NULL"), "unknown type"),
        (lambda: Column("a", "INT"), "must be a SqlType"),
        (lambda: Schema.from_arrow(pa.schema([("t", pa.time32("s"))])), "column 't'"),
    ],
)
def test_schemas_that_cannot_be(make, told):
    with pytest.raises(SchemaError, match=told) as caught:
        make()
    assert caught.value.hint


@pytest.mark.parametrize("name", ["_lsn", "_Op", "", "a\nb"])
def test_columns_that_cannot_be_named(name):
    with pytest.raises(InvalidNameError):
        Schema.of(**{name: "INT"})


# --- From a dataclass -----------------------------------------------------------------------------


@dataclass
class Venue:
    name: str
    opened: date | None


@dataclass
class Everything:
    a: bool
    b: int
    c: float
    d: str
    e: bytes
    f: date
    g: datetime
    h: timedelta
    i: Decimal
    j: Optional[int]  # noqa: UP045 - both spellings are in use
    k: "list[int | None]"
    m: dict[str, list[float]]
    n: Venue
    o: Venue | None


@dataclass
class Loop:
    next: "Loop | None"


@dataclass
class Unresolved:
    a: "NoSuchClass"  # noqa: F821


@dataclass
class Untyped:
    a: list


@dataclass
class Either:
    a: int | str


def test_a_schema_of_a_dataclass():
    assert Schema.from_dataclass(Everything, key=("b",)) == Schema.of(
        key=("b",),
        a="BOOLEAN NOT NULL",
        b="BIGINT NOT NULL",
        c="DOUBLE NOT NULL",
        d="VARCHAR NOT NULL",
        e="BINARY NOT NULL",
        f="DATE NOT NULL",
        g="TIMESTAMP NOT NULL",
        h="INTERVAL NOT NULL",
        i="DECIMAL(38, 18) NOT NULL",
        j="BIGINT",
        k="ARRAY<BIGINT> NOT NULL",
        m="MAP<VARCHAR, ARRAY<DOUBLE>> NOT NULL",
        n="STRUCT<name VARCHAR, opened DATE> NOT NULL",
        o="STRUCT<name VARCHAR, opened DATE>",
    )


@pytest.mark.parametrize("record", [Loop, Unresolved, Untyped, Either, int, Venue("x", None)])
def test_dataclasses_that_have_no_schema(record):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dataclass(record)
    assert caught.value.hint


# --- Evolution ------------------------------------------------------------------------------------


def test_a_schema_grows_by_nullable_columns():
    grown = TRADES.with_column(Column("venue", parse_type("VARCHAR")))
    assert grown.names == (*TRADES.names, "venue")
    assert grown.key == TRADES.key
    assert grown.is_evolution_of(TRADES)
    assert TRADES.is_evolution_of(TRADES)
    assert not TRADES.is_evolution_of(grown)


def test_other_changes_are_no_evolution():
    old = Schema.of(key=("a",), a="INT", b="INT")
    assert not Schema.of(a="INT", b="INT", c="INT").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="BIGINT", c="INT").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="INT NOT NULL").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", b="INT", c="INT NOT NULL").is_evolution_of(old)
    assert not Schema.of(key=("a",), a="INT", c="INT", b="INT").is_evolution_of(old)


def test_columns_that_cannot_be_added():
    with pytest.raises(SchemaError, match="NOT NULL"):
        TRADES.with_column(Column("venue", parse_type("VARCHAR"), nullable=False))
    with pytest.raises(SchemaError, match="cannot both"):
        TRADES.with_column(Column("Price", parse_type("DOUBLE")))


@given(filled())
def test_an_old_batch_is_upgraded_with_nulls(case):
    old, rows = case
    new = old.with_column(Column("a new one", parse_type("MAP<VARCHAR, TIMESTAMP>")))
    upgraded = new.upgrade(old.rows_to_arrow(rows))
    assert upgraded.schema.equals(new.arrow)
    assert new.arrow_to_rows(upgraded) == [(*row, None) for row in rows]
    assert new.upgrade(upgraded) is upgraded


def test_a_stranger_is_not_upgraded():
    for data in ({"price": [1.0]}, {"symbol": ["A"], "qty": [1]}, {"symbol": ["A"], "x": [1]}):
        with pytest.raises(SchemaMismatchError, match="no older form"):
            TRADES.upgrade(pa.RecordBatch.from_pydict(data))
    with pytest.raises(SchemaMismatchError, match="no older form"):
        Schema.of(a="INT", b="INT NOT NULL").upgrade(Schema.of(a="INT").rows_to_arrow([(1,)]))


# --- Rows -----------------------------------------------------------------------------------------


@given(filled())
def test_canonical_rows_pass_unchanged(case):
    schema, rows = case
    checked = schema.check_rows(rows)
    assert repr(checked) == repr(rows)
    assert checked is not rows


@given(filled())
def test_rows_come_back_from_arrow(case):
    schema, rows = case
    batch = schema.rows_to_arrow(rows)
    batch.validate(full=True)
    assert batch.schema.equals(schema.arrow)
    back = schema.arrow_to_rows(batch)
    assert back == rows
    # Decimal("1.0") == Decimal("1"), and UTC comes in several makes: the text tells them apart.
    assert repr(back) == repr(rows)


@given(filled(), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_reads_as_a_slice(case, start, length):
    schema, rows = case
    batch = schema.rows_to_arrow(rows).slice(start, length)
    assert schema.arrow_to_rows(batch) == rows[start : start + length]


def test_extremes_come_back():
    words = {
        "t": "TIMESTAMP",
        "d": "DATE",
        "i": "INTERVAL",
        "n": "DECIMAL(38, 10)",
        "a": "ARRAY<DATE>",
    }
    schema = Schema.of(**words)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    rows = [
        (first, date.min, -LONGEST, Decimal("9" * 28 + "." + "9" * 10), [date.min, None]),
        (last, date.max, LONGEST, Decimal("0E-10"), []),
        (EVE, EVE.date(), -timedelta.resolution, None, None),
    ]
    assert schema.check_rows(rows) == rows
    assert schema.arrow_to_rows(schema.rows_to_arrow(rows)) == rows


def test_no_rows_are_an_empty_batch():
    assert TRADES.check_rows([]) == []
    batch = TRADES.rows_to_arrow([])
    assert batch.num_rows == 0
    assert batch.schema.equals(TRADES.arrow)
    assert TRADES.arrow_to_rows(batch) == []


def test_many_columns():
    schema = Schema.of(**{f"c{n}": "BIGINT" for n in range(1000)})
    rows = [tuple(range(n, n + 1000)) for n in range(20)]
    assert schema.arrow_to_rows(schema.rows_to_arrow(schema.check_rows(rows))) == rows


@pytest.mark.parametrize("count", [1, 100])
def test_rows_are_made_canonical(count):
    row = ["AAPL", 187, 100, NOON.replace(tzinfo=None)]
    for given_row in (row, tuple(row)):
        assert repr(TRADES.check_rows([given_row] * count)) == repr(
            [("AAPL", 187.0, 100, NOON)] * count
        )


@pytest.mark.parametrize("before", [0, 100])
@pytest.mark.parametrize(
    ("row", "column", "told"),
    [
        (("A", "x", 1, NOON), "price", "expected DOUBLE, got str 'x'"),
        (("A", 1.0, 1.5, NOON), "qty", "expected BIGINT, got float 1.5"),
        (("A", 1.0, 1, 5), "ts", "expected TIMESTAMP, got int 5"),
        ((None, 1.0, 1, NOON), "symbol", "expected VARCHAR NOT NULL, got NULL"),
        (("A", 1.0, 1), None, "expected 4 values, got 3"),
        (("A", 1.0, 1, NOON, 5), None, "expected 4 values, got 5"),
        ("ABCD", None, "expected 4 values, got str"),
        (None, None, "expected 4 values, got NoneType"),
    ],
)
def test_a_bad_row_is_named(before, row, column, told):
    good = ("A", 1.0, 1, NOON)
    with pytest.raises(RowError, match=told) as caught:
        TRADES.check_rows([good] * before + [row, (1, 2), good])
    assert (caught.value.row, caught.value.column) == (before, column)
    assert f"row {before}" in caught.value.message
    assert caught.value.hint


def test_the_first_bad_row_is_named_even_if_its_column_is_later():
    rows = [("A", 1.0, 1, NOON)] * 10 + [("A", 1.0, "x", NOON), (5, 1.0, 1, NOON)]
    with pytest.raises(RowError) as caught:
        TRADES.check_rows(rows)
    assert (caught.value.row, caught.value.column) == (10, "qty")


@pytest.mark.parametrize(
    ("sql", "array"),
    [
        ("TIMESTAMP", pa.array([2**62], pa.timestamp("us", "UTC"))),
        ("DATE", pa.array([2**30], pa.int32()).view(pa.date32())),
        (
            "ARRAY<DATE>",
            pa.ListArray.from_arrays([0, 1], pa.array([2**30], pa.int32()).view(pa.date32())),
        ),
        ("MAP<VARCHAR, INT>", pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))),
        ("VARCHAR", pa.array([b"\xff"]).view(pa.string())),
    ],
)
def test_arrow_values_that_python_cannot_hold(sql, array):
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    with pytest.raises(SchemaMismatchError, match="column 'x'") as caught:
        Schema.of(x=sql).arrow_to_rows(batch)
    assert caught.value.hint


# --- Arrow data -----------------------------------------------------------------------------------


@given(filled())
def test_data_that_conforms_is_not_copied(case):
    schema, rows = case
    batch = schema.rows_to_arrow(rows)
    assert schema.conform(batch) is batch


@given(filled(), st.randoms())
def test_columns_are_found_by_name(case, random):
    schema, rows = case
    order = list(range(len(schema.columns)))
    random.shuffle(order)
    batch = schema.rows_to_arrow(rows)
    shuffled = pa.RecordBatch.from_arrays(
        [batch.column(place) for place in order], [schema.names[place] for place in order]
    )
    assert schema.conform(shuffled) == batch


WIDEST = {
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.int8(): pa.int64(),
    pa.int16(): pa.int64(),
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
}


def widened(arrow):
    """The same type in the widest makes that Arrow has, nested ones too."""
    kinds = pa.types
    if arrow in WIDEST:
        return WIDEST[arrow]
    if kinds.is_decimal(arrow):
        return pa.decimal256(arrow.precision + 2, arrow.scale + 1)
    if kinds.is_list(arrow):
        return pa.large_list(widened(arrow.value_type))
    if kinds.is_map(arrow):
        return pa.map_(widened(arrow.key_type), widened(arrow.item_type), keys_sorted=True)
    if kinds.is_struct(arrow):
        return pa.struct(
            [pa.field(each.name, widened(each.type)) for each in reversed(list(arrow))]
        )
    return arrow


@given(types.flatmap(lambda t: st.tuples(st.just(t), st.lists(values_of(t), max_size=6))))
def test_other_makes_of_the_same_values_are_taken(case):
    each, values = case
    schema = Schema((Column("x", each),))
    foreign = pa.array(values, widened(each.arrow))
    batch = pa.RecordBatch.from_arrays([foreign], ["x"])
    conformed = schema.conform(batch)
    conformed.validate(full=True)
    assert conformed.schema.equals(schema.arrow)
    assert schema.arrow_to_rows(conformed) == [(value,) for value in values]
    assert schema.arrow_to_rows(schema.conform(batch.slice(1))) == [(v,) for v in values[1:]]


@pytest.mark.parametrize(
    ("array", "sql", "values"),
    [
        (pa.array(["a", None, "a"]).dictionary_encode(), "VARCHAR", ["a", None, "a"]),
        (pa.array(["a"], pa.string_view()), "VARCHAR", ["a"]),
        (pa.array([b"abc"], pa.binary(3)), "BINARY", [b"abc"]),
        (pa.nulls(2), "STRUCT<a INT>", [None, None]),
        (pa.array([[], None]), "ARRAY<TIMESTAMP>", [[], None]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "ARRAY<BIGINT>", [[1, 2], None]),
        (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(20, 0)", [Decimal(2**64 - 1)]),
        (pa.array([7], pa.uint64()), "BIGINT", [7]),
        (pa.array([127, None]), "TINYINT", [127, None]),
        (pa.array([12, None]), "DECIMAL(4, 2)", [Decimal("12.00"), None]),
        (pa.array([2**53, 2**60]), "DOUBLE", [float(2**53), float(2**60)]),
        (pa.array([0.5, None]), "REAL", [0.5, None]),
        (pa.array([float("inf")]), "REAL", [float("inf")]),
        (pa.array([0.5], pa.float16()), "DOUBLE", [0.5]),
        (pa.array([NOON.replace(tzinfo=None)]), "TIMESTAMP", [NOON]),
        (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), "TIMESTAMP", [NOON]),
        (pa.array([5], pa.duration("s")), "INTERVAL", [timedelta(seconds=5)]),
        (pa.array([Decimal("1.50")]), "DECIMAL(2, 1)", [Decimal("1.5")]),
        (pa.array([{"b": 1}, None]), "STRUCT<a DATE, b INT>", [{"a": None, "b": 1}, None]),
    ],
)
def test_lossless_casts(array, sql, values):
    schema = Schema.of(x=sql)
    conformed = schema.conform(pa.RecordBatch.from_arrays([array], ["x"]))
    assert schema.arrow_to_rows(conformed) == [(value,) for value in values]


def test_nan_is_no_loss():
    batch = pa.RecordBatch.from_pydict({"x": [float("nan"), 1.0]})
    assert Schema.of(x="REAL").conform(batch).column(0).is_nan().to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("array", "sql"),
    [
        (pa.array([128]), "TINYINT"),
        (pa.array([2**63], pa.uint64()), "BIGINT"),
        (pa.array([1.0]), "BIGINT"),
        (pa.array([1.5]), "BIGINT"),
        (pa.array([True]), "BIGINT"),
        (pa.array([1]), "BOOLEAN"),
        (pa.array(["1"]), "BIGINT"),
        (pa.array([1]), "VARCHAR"),
        (pa.array(["2024-01-01"]), "DATE"),
        (pa.array([b"a"]), "VARCHAR"),
        (pa.array(["a"]), "BINARY"),
        (pa.array([0.1]), "REAL"),
        (pa.array([1e300]), "REAL"),
        (pa.array([2**53 + 1]), "DOUBLE"),
        (pa.array([2**63 - 1]), "DOUBLE"),
        (pa.array([2**24 + 1]), "REAL"),
        (pa.array([Decimal("0.1")]), "DOUBLE"),
        (pa.array([0.5]), "DECIMAL(5, 2)"),
        (pa.array([Decimal("1.25")]), "DECIMAL(5, 1)"),
        (pa.array([1000]), "DECIMAL(5, 2)"),
        (pa.array([1], pa.timestamp("ns")), "TIMESTAMP"),
        (pa.array([2**62], pa.timestamp("s")), "TIMESTAMP"),
        (pa.array([1]), "TIMESTAMP"),
        (pa.array([date(2024, 1, 1)]), "TIMESTAMP"),
        (pa.array([NOON]), "DATE"),
        (pa.array([1], pa.duration("ns")), "INTERVAL"),
        (pa.array([1]), "INTERVAL"),
        (pa.array([5], pa.time64("us")), "INTERVAL"),
        (pa.array([[0.1]]), "ARRAY<REAL>"),
        (pa.array([[128]]), "ARRAY<TINYINT>"),
        (pa.array([[("a", 0.1)]], pa.map_(pa.string(), pa.float64())), "MAP<VARCHAR, REAL>"),
        (pa.array([{"a": 1, "c": 2}]), "STRUCT<a INT, b INT>"),
        (pa.array([{"a": 1}]), "MAP<VARCHAR, BIGINT>"),
        (pa.array([[1]]), "BIGINT"),
    ],
)
def test_lossy_casts_are_refused(array, sql):
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int32()), array], ["ok", "bad"])
    with pytest.raises(SchemaMismatchError, match="column 'bad'") as caught:
        Schema.of(ok="INT", bad=sql).conform(batch)
    assert caught.value.hint


@given(types, types, st.data())
def test_conform_keeps_every_value_or_refuses(source, target, data):
    values = data.draw(st.lists(values_of(source), min_size=1, max_size=3))
    batch = Schema((Column("x", source),)).rows_to_arrow([(value,) for value in values])
    schema = Schema((Column("x", target),))
    try:
        conformed = schema.conform(batch)
    except SchemaMismatchError:
        return
    back = [value for (value,) in schema.arrow_to_rows(conformed)]
    if source.kind not in {"STRUCT", "ARRAY", "MAP"}:  # a field that was missing is there now
        assert back == values


def test_unknown_columns_are_refused_with_a_guess():
    with pytest.raises(SchemaMismatchError, match="no column 'pric'") as caught:
        TRADES.conform(pa.RecordBatch.from_pydict({"symbol": ["A"], "pric": [1.0]}))
    assert "'price'" in caught.value.hint


def test_a_column_twice_is_refused():
    column = pa.array(["A"])
    with pytest.raises(SchemaMismatchError, match="twice"):
        TRADES.conform(pa.RecordBatch.from_arrays([column, column], ["symbol", "symbol"]))


def test_missing_columns_are_null_if_they_may():
    conformed = TRADES.conform(pa.RecordBatch.from_pydict({"symbol": ["A"]}))
    assert TRADES.arrow_to_rows(conformed) == [("A", None, None, None)]
    with pytest.raises(SchemaMismatchError, match="'symbol' is missing"):
        TRADES.conform(pa.RecordBatch.from_pydict({"price": [1.0]}))


def test_not_null_holds_for_arrow_too():
    rows = [("A", None, None, None), (None, None, None, None)]
    for data in (
        pa.RecordBatch.from_pydict({"symbol": ["A", None]}),
        TRADES.rows_to_arrow(rows),  # pyarrow marks the column NOT NULL and does not look
    ):
        with pytest.raises(RowError, match="row 1, column 'symbol'") as caught:
            TRADES.conform(data)
        assert (caught.value.row, caught.value.column) == (1, "symbol")


def test_values_are_not_copied_when_only_the_schema_differs():
    batch = pa.RecordBatch.from_pydict({"symbol": ["A"], "price": [1.0]})
    conformed = TRADES.conform(batch)
    assert (
        conformed.column("price").buffers()[1].address == batch.column("price").buffers()[1].address
    )


def test_the_type_of_arrow_data_can_be_asked_first():
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.uint64())})
    schema = Schema.from_arrow(batch.schema)
    assert schema.columns[0].type == type_from_arrow(pa.uint64()) == decimal_type(20, 0)
    assert schema.arrow_to_rows(batch) == [(Decimal(1),)]

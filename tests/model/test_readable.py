import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import RowError, SchemaMismatchError
from millstream.model.arrow_values import Unreadable, column_values, readable_values
from millstream.model.batch import ChangeBatch
from millstream.model.readable import reading_check, unreadable
from millstream.model.schema import Schema
from millstream.model.types import parse_type

from .strategies import small_types
from .wild import wild_arrays


def text(*values):
    """Text of any bytes."""
    return pa.array(values, pa.binary()).view(pa.string())


def dates(*days):
    return pa.array(days, pa.date32())


def times(*micros):
    return pa.array(micros, pa.timestamp("us", "UTC"))


def maps(of, *values):
    return pa.array(values, parse_type(of).arrow)


BAD = {
    "VARCHAR": text(b"a", b"\xff\xfe", b"b"),
    "DATE": dates(0, 2**31 - 1, 1),
    "TIMESTAMP": times(0, 2**63 - 1, 1),
    "INTERVAL": pa.array([0, 2**63 - 1, 1], pa.duration("us")),
    "DECIMAL(3, 1)": pa.Array.from_buffers(
        pa.decimal128(3, 1),
        3,
        [None, pa.py_buffer(b"".join(n.to_bytes(16, "little") for n in (999, 1000, 1)))],
    ),
    "MAP<VARCHAR, INTEGER>": maps(
        "MAP<VARCHAR, INTEGER>", [("k", 1), ("l", 1)], [("k", 1), ("l", 2), ("k", 2)], [("k", 3)]
    ),
    "MAP<DOUBLE, INTEGER>": maps(
        "MAP<DOUBLE, INTEGER>", [(0.0, 1)], [(0.0, 1), (-0.0, 1)], [(2.5, 1)]
    ),
    "MAP<DATE, INTEGER>": pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), dates(1, 2**30, 2), pa.array([1, 2, 3], pa.int32())
    ),
    "ARRAY<DATE>": pa.ListArray.from_arrays(pa.array([0, 2, 4, 4]), dates(1, None, 2, -(2**31))),
    "STRUCT<a DATE, b VARCHAR>": pa.StructArray.from_arrays(
        [dates(1, 2, 2**30), text(b"a", b"\xff", b"c")], ["a", "b"]
    ),
    "ARRAY<STRUCT<m MAP<VARCHAR, TIMESTAMP>>>": pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 2]),
        pa.StructArray.from_arrays(
            [
                pa.MapArray.from_arrays(
                    pa.array([0, 1, 2], pa.int32()), text(b"k", b"k"), times(1, -(2**63))
                )
            ],
            ["m"],
        ),
    ),
}


def batch_of(sql, array):
    schema = Schema.of(n="BIGINT", c=sql)
    numbers = pa.array(range(len(array)), pa.int64())
    return schema, pa.RecordBatch.from_arrays(
        [numbers, array.cast(schema.arrow.field("c").type)], ["n", "c"]
    )


@pytest.mark.parametrize("sql", BAD)
def test_what_python_cannot_hold_is_refused_with_row_and_column(sql):
    schema, batch = batch_of(sql, BAD[sql])
    with pytest.raises(RowError) as caught:
        schema.admit(batch)
    assert (caught.value.row, caught.value.column) == (1, "c")
    assert "row 1, column 'c'" in caught.value.message
    with pytest.raises(RowError):
        ChangeBatch.from_arrow(schema, batch)


@pytest.mark.parametrize("sql", BAD)
def test_slices_are_checked_by_what_they_show(sql):
    schema, batch = batch_of(sql, BAD[sql])
    good = batch.slice(0, 1)
    assert schema.admit(good) is not None
    assert len(schema.arrow_to_rows(schema.admit(good))) == 1
    with pytest.raises(RowError) as caught:
        schema.admit(batch.slice(1, 1))
    assert caught.value.row == 0


@pytest.mark.parametrize(
    ("sql", "array"),
    [
        (
            "VARCHAR",
            pa.Array.from_buffers(
                pa.string(), 2, [pa.py_buffer(b"\2"), *text(b"\xff", b"ok").buffers()[1:]]
            ),
        ),
        (
            "DATE",
            pa.Array.from_buffers(
                pa.date32(), 2, [pa.py_buffer(b"\2"), *dates(2**31 - 1, 1).buffers()[1:]]
            ),
        ),
        (
            "STRUCT<a VARCHAR>",
            pa.StructArray.from_arrays([text(b"\xff", b"ok")], ["a"], mask=pa.array([True, False])),
        ),
        (
            "ARRAY<TIMESTAMP>",
            pa.ListArray.from_arrays(
                pa.array([0, 1, 2], pa.int32()), times(2**63 - 1, 1), mask=pa.array([True, False])
            ),
        ),
    ],
)
def test_garbage_under_a_null_is_nothing(sql, array):
    schema, batch = batch_of(sql, array)
    rows = schema.arrow_to_rows(schema.admit(batch))
    assert rows[0] == (0, None)
    assert rows[1][1] is not None


def test_what_nulls_hide_is_taken_out():
    """DuckDB refuses a MAP that has a key twice, even where it is NULL."""
    hidden = pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()),
        text(b"k", b"k", b"l"),
        pa.array([1, 2, 3], pa.int32()),
        mask=pa.array([True, False]),
    )
    for sql, array in (
        ("MAP<VARCHAR, INTEGER>", hidden),
        ("STRUCT<m MAP<VARCHAR, INTEGER>>", pa.StructArray.from_arrays([hidden], ["m"])),
        ("ARRAY<MAP<VARCHAR, INTEGER>>", pa.ListArray.from_arrays(pa.array([0, 2]), hidden)),
    ):
        schema, batch = batch_of(sql, array)
        admitted = schema.admit(batch)
        admitted.validate(full=True)
        assert schema.arrow_to_rows(admitted) == schema.arrow_to_rows(batch)
        kept = admitted.column(1)
        while not pa.types.is_map(kept.type):
            (kept,) = kept.flatten() if pa.types.is_struct(kept.type) else (kept.flatten(),)
        assert len(kept.keys) == 1


def test_a_list_that_ends_before_it_begins_is_refused():
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 3, 1, 3)))
    array = pa.Array.from_buffers(
        pa.list_(pa.int64()), 3, [None, offsets], children=[pa.array([1, 2, 3], pa.int64())]
    )
    schema = Schema.of(c="ARRAY<BIGINT>")
    with pytest.raises(RowError, match="malformed"):
        schema.admit(pa.RecordBatch.from_arrays([array], schema=schema.arrow))


def test_numbers_are_not_looked_at():
    assert all(
        reading_check(parse_type(sql)) is None
        for sql in ("BIGINT", "DOUBLE", "BOOLEAN", "BINARY", "STRUCT<n INTEGER, x REAL>")
    )


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 5000])
def test_the_quick_look_is_as_strict_as_the_exact_one(size):
    for sql, good, bad in (
        ("TIMESTAMP", [253402300799999999, -62135596800000000, 0], 253402300800000000),
        ("TIMESTAMP", [253402300799999999, -62135596800000000, 0], -62135596800000001),
        ("DATE", [2932896, -719162, 0], 2932897),
        ("DATE", [2932896, -719162, 0], -719163),
        ("INTERVAL", [106751991 * 86400 * 10**6, -106751991 * 86400 * 10**6], 2**63 - 1),
        ("INTERVAL", [5, -5], -(2**63)),
    ):
        of = parse_type(sql)
        stored = pa.int32() if sql == "DATE" else pa.int64()
        values = [good[place % len(good)] for place in range(size)]
        assert unreadable(of, pa.array(values, stored).view(of.arrow)) is None
        values[size // 2] = bad
        place, _ = unreadable(of, pa.array(values, stored).view(of.arrow))
        assert place == size // 2


def test_long_text_is_looked_at_in_pieces():
    array = pa.array([b"a" * 3_000_000, b"b" * 10 + b"\xff", b"c"], pa.binary()).view(pa.string())
    assert unreadable(parse_type("VARCHAR"), array)[0] == 1
    assert unreadable(parse_type("VARCHAR"), array.slice(0, 1)) is None


def is_good(of, array, place):
    """Whether Python can hold the value at a place, and would be let in with it."""
    try:
        (value,) = column_values("c", of, array.slice(place, 1))
        of.check(value)
    except SchemaMismatchError:
        return False
    return True


@settings(deadline=None)
@given(st.data(), small_types)
def test_the_first_value_that_the_check_of_rows_refuses_is_found(data, of):
    size = data.draw(st.integers(1, 6))
    array = data.draw(wild_arrays(of, size))
    start = data.draw(st.integers(0, size - 1))
    array = array.slice(start, data.draw(st.integers(1, size - start)))
    bad = [place for place in range(len(array)) if not is_good(of, array, place)]
    found = unreadable(of, array)
    assert (None if found is None else found[0]) == (bad[0] if bad else None)


# ---- what a reader gets of one that is there all the same


@pytest.mark.parametrize("sql", [sql for sql in BAD if sql not in {"INTERVAL", "DECIMAL(3, 1)"}])
def test_a_bad_value_takes_no_good_one_with_it(sql):
    schema, data = batch_of(sql, BAD[sql])
    data = schema.conform(data)
    batch = ChangeBatch(schema, None, data, None)
    rows = batch.rows
    assert [row[0] for row in rows] == [0, 1, 2]
    bad = [row[1] for row in rows if isinstance(row[1], Unreadable)]
    assert isinstance(rows[1][1], Unreadable)
    assert bad[0].type == parse_type(sql).sql
    assert str(bad[0]).startswith(f"<unreadable {bad[0].type}: ")
    assert [change.row for change in batch] == rows
    assert len({*bad, *bad}) == len(bad)
    again = schema.rows_to_arrow(rows)
    assert again.equals(data)
    assert rows == ChangeBatch(schema, None, again, None).rows


def test_a_query_names_the_row_that_python_cannot_hold():
    with pytest.raises(RowError, match="row 1, column 'd'") as caught:
        column_values("d", parse_type("DATE"), dates(0, 4000000))
    assert caught.value.row == 1
    assert "Arrow" in caught.value.hint
    first, second = readable_values(parse_type("DATE"), dates(0, 4000000))
    assert str(first) == "1970-01-01"
    assert second.arrow.value == 4000000

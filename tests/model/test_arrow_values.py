"""From Arrow to Python: every row comes back as it was."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import SchemaMismatchError
from millstream.model.schema import Schema

from .strategies import LONGEST, filled

EVE = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)


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


@settings(max_examples=50)
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

"""A few rows to Spark and back, without Arrow: the same rows as with it."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from hypothesis import given

from millstream.model.batch import ChangeBatch
from millstream.model.result_rows import ResultRows
from millstream.spark.bridge.few_rows import few_arrow, few_reader, few_rows
from millstream.spark.bridge.frames import FEW, ROWS
from millstream.views.run.columns import NO_ROWS, FeedColumns

from ..model.strategies import filled  # noqa: TID252 - tests have no name
from .few_frames import read_few


@given(filled())
def test_what_is_written_is_what_arrow_has(content):
    schema, rows = content
    rows = rows[:60]
    lsns = list(range(5, 5 + len(rows)))
    batch = ChangeBatch(schema, rows, None, None, topic="t", lsn=99, lsns=lsns)
    columns = FeedColumns([schema], [*schema.names, "_wm", "_weight", "_lsn", "_log"])
    kind, data = columns.encoded(0, batch, 17)
    if schema.is_nested:
        assert kind == ROWS
    elif kind == FEW:
        expected = columns.batches(0, [(batch, 17)]).to_pylist()
        file = io.BytesIO(data)
        shown = repr(expected).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
        assert repr(read_few(file, columns.schema)) == shown
        assert file.read() == b""


def test_no_rows():
    kind, data = NO_ROWS
    assert (kind, read_few(io.BytesIO(data), [])) == (FEW, [])


@given(filled())
def test_what_is_written_is_read(content):
    schema, rows = content
    arrow = schema.arrow.remove_metadata()
    write = few_rows(arrow.types, [f"row[{place}]" for place in range(len(arrow))])
    assert (write is None) == schema.is_nested == (few_reader(arrow) is None)
    if write is not None and rows:  # no frame is empty
        data = write(ChangeBatch(schema, rows, None, None, lsns=[1] * len(rows)), None)
        assert repr(few_reader(arrow)(data)) == repr(rows)
        batch = ResultRows(arrow, rows).arrow()
        assert few_arrow(arrow, data).equals(batch) or "nan" in repr(rows)


def test_what_python_cannot_hold_is_read_as_arrow():
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("s", pa.string()), ("d", pa.date32())])
    late, broken, day = 2**62, b"\xff", 4_000_000
    data = struct.pack(">IQqiI", 1, 0, late, day, 1) + broken
    with pytest.raises((OverflowError, ValueError)):
        few_reader(schema)(data)
    (moment,), (text,), (date,) = few_arrow(schema, data).columns
    assert (moment.value, text.as_buffer().to_pybytes(), date.value) == (late, broken, day)

"""A few rows for Spark, without Arrow: the same rows as with it."""

from __future__ import annotations

import io

from hypothesis import given

from millstream.model.batch import ChangeBatch
from millstream.spark.bridge.frames import FEW, ROWS
from millstream.spark.columns import NO_ROWS, FeedColumns

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

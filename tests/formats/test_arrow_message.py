"""Messages that are written without Arrow: Arrow reads the same rows from them as from its own."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.strategies import characters, small_scalars, values_of

import millstream as ms
from millstream import ChangeBatch, Schema
from millstream.formats.arrow_message import FEW_ROWS, MessageWriter
from millstream.log.encoding import encode_rows


def read(message, schema):
    """What Arrow reads, with every byte checked."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    batch.validate(full=True)
    return batch


@st.composite
def tables(draw):
    """A schema without nested columns, and a few rows of it, NULLs among them."""
    kinds = draw(st.lists(small_scalars, min_size=1, max_size=6))
    schema = Schema.of(**{f"c{place}": kind.sql for place, kind in enumerate(kinds)})
    row = st.tuples(*map(values_of, kinds))
    rows = draw(st.lists(row, min_size=1, max_size=FEW_ROWS))
    return schema, schema.check_rows(rows)


@given(tables())
def test_arrow_reads_what_it_would_have_written(table):
    schema, rows = table
    message = MessageWriter(schema.arrow).message(rows)
    own = schema.rows_to_arrow(rows).serialize()
    assert read(message, schema.arrow).serialize() == read(own, schema.arrow).serialize()
    assert len(message) == own.size


@given(tables())
def test_generated_code_writes_the_same_bytes(table):
    schema, rows = table
    writer = MessageWriter(schema.arrow)
    for count in (1, 2, 3, 4):
        some = rows[:count]
        assert writer.message(some) == writer._message(some, ())


@pytest.mark.parametrize("columns", [40, 64, 65, 400])
def test_many_columns_of_text(columns):
    schema = Schema.of(**{f"c{place}": "VARCHAR" for place in range(columns)})
    rows = [tuple("ö" * (place % 9) for place in range(columns))] * 2
    got = read(MessageWriter(schema.arrow).message(rows), schema.arrow)
    assert schema.arrow_to_rows(got) == rows


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, FEW_ROWS])
def test_nulls_at_the_borders_of_bytes(count):
    schema = Schema.of(a="BOOLEAN", b="VARCHAR", c="BIGINT")
    for null in range(count):
        rows = [(None,) * 3 if n == null else (n % 2 == 0, "ö" * n, n) for n in range(count)]
        got = read(MessageWriter(schema.arrow).message(rows), schema.arrow)
        assert schema.arrow_to_rows(got) == rows


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=FEW_ROWS), st.text(characters))
def test_weights_follow_the_columns(weights, text):
    schema = Schema.of(a="VARCHAR")
    stored = schema.arrow.append(pa.field("_weight", pa.int64()))
    rows = [(text,)] * len(weights)
    got = read(MessageWriter(stored).message(rows, weights), stored)
    assert got.column(1).to_pylist() == weights
    assert got.column(0).to_pylist() == [text] * len(weights)


def test_nested_columns_are_left_to_arrow():
    with pytest.raises(TypeError):
        MessageWriter(Schema.of(a="ARRAY<INT>").arrow)


@pytest.mark.parametrize("value", ["\ud800", 7, b"x"])
def test_what_does_not_fit_raises(value):
    with pytest.raises((AttributeError, OverflowError, TypeError, ValueError)):
        MessageWriter(Schema.of(a="VARCHAR").arrow).message([(value,)])


def test_a_large_row_is_left_to_arrow_which_cuts_or_refuses():
    schema = Schema.of(a="VARCHAR")
    batch = ChangeBatch.from_rows(schema, [("x" * (3 << 20),)] * 4)
    batch.put_at("t", 1, 0, (None, 1))
    frames = encode_rows(batch, 1, 0, ends_commit=True, durable_lsn=0)
    assert sum(each.frame.span for each in frames) == 4
    assert len(frames) > 1


def test_a_log_of_single_rows_reads_as_it_was_written(tmp_path):
    row = ("Zoë", 1.5, 1_790_000_000_000, None, True)
    columns = "a VARCHAR, b DOUBLE, c BIGINT, d TIMESTAMP, e BOOLEAN"
    with ms.open(tmp_path) as db:
        db.execute(f"CREATE SOURCE s ({columns})")
        db.execute(f"CREATE TABLE t ({columns.replace('a VARCHAR', 'a VARCHAR PRIMARY KEY')})")
        for number in range(5):
            db.source("s").push(row)
            db.flush()
            db.execute("INSERT OR REPLACE INTO t VALUES ('Zoë', ?, 7, NULL, FALSE)", [number])
    with ms.open(tmp_path) as db:
        assert db.query("SELECT * FROM s").fetchall() == [row] * 5
        assert db.query("SELECT * FROM t").fetchall() == [("Zoë", 4.0, 7, None, False)]
        changes = db.subscribe("SELECT a, b FROM t", start="earliest")
        got = [(c.op, c.row[1]) for c in changes.recv(timeout=10)]
        while len(got) < 5:
            got += [(c.op, c.row[1]) for c in changes.recv(timeout=10)]
        assert got == [("insert", 0.0), *[("update", float(n)) for n in range(1, 5)]]

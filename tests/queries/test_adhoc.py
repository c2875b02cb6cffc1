"""Ad-hoc queries: rows in, rows out, errors of ours, many threads, nothing left behind."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import ClosedError, ExpressionError, LogCorruptError, SqlUnsupportedError
from millstream.model import Schema
from millstream.model.result import Result
from millstream.queries.duckdb import AdhocRunner
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc

SCHEMA = Schema.of(
    id="INTEGER NOT NULL",
    s="VARCHAR",
    cents="DECIMAL(10, 2)",
    at="TIMESTAMP",
    span="INTERVAL",
    y="BINARY",
    times="ARRAY<TIMESTAMP>",
    st="STRUCT<at TIMESTAMP, spans ARRAY<INTERVAL>>",
    kv="MAP<VARCHAR, TIMESTAMP>",
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def a_row(place):
    at = START + timedelta(microseconds=place)
    span = timedelta(days=40, microseconds=place)
    return (
        place,
        f"é{place}\0",
        Decimal(place).scaleb(-2),
        at,
        span,
        bytes([place % 256]),
        [at, None],
        {"at": at, "spans": [span, None]},
        {"a": at, "b": None},
    )


EMPTY = (-1, *[None] * 8)
ROWS = [a_row(place) for place in range(5)] + [EMPTY]


def table(rows=ROWS):
    return pa.Table.from_batches([SCHEMA.rows_to_arrow(rows)])


def planned(sql, schema=SCHEMA):
    (statement,) = parse(sql)
    return plan_adhoc(as_query(statement), lambda name: Input(name, "source", schema))


def rows_of(plan, made):
    return list(Result(plan.schema, made.to_batches()))


@pytest.fixture
def runner():
    made = AdhocRunner()
    yield made
    made.close()


def test_every_type_comes_back_as_it_went_in(runner):
    plan = planned("SELECT * FROM t ORDER BY id DESC")
    made = runner.run(plan, {"t": table()})
    assert made.schema == SCHEMA.arrow
    made.validate(full=True)
    assert rows_of(plan, made) == sorted(ROWS, reverse=True, key=lambda row: row[0])


def test_nothing_comes_back_with_all_its_types(runner):
    plan = planned("SELECT * FROM t ORDER BY id")
    made = runner.run(plan, {"t": table([])})
    assert (made.schema, made.num_rows) == (SCHEMA.arrow, 0)


def test_more_columns_than_needed_do_no_harm(runner):
    plan = planned("SELECT COUNT(*) AS n, MAX(id) AS m FROM t")
    more = table().append_column("_weight", pa.array([1] * len(ROWS)))
    assert rows_of(plan, runner.run(plan, {"t": more})) == [(6, 4)]


def test_rows_are_counted_without_a_column(runner):
    plan = planned("SELECT COUNT(*) AS n FROM t")
    assert rows_of(plan, runner.run(plan, {"t": table()})) == [(6,)]


@pytest.mark.parametrize(
    "call",
    [
        *("GREATEST(x, x - 1)", "LEAST(x, y)", "GREATEST(x, NULL)", "-ABS(x)", "COALESCE(x, y)"),
        *("MIN_BY(x, y)", "MAX_BY(x, y)", "MIN_BY(x, y) FILTER (WHERE y = 1)", "MAX(x)"),
        *("MIN_BY(x, y > 1)", "MAX_BY(x, CAST(y AS TINYINT))", "MIN_BY(x, CAST(y AS INT))"),
        *("MIN_BY(x, y) OVER ()", "FIRST_VALUE(x) OVER (ORDER BY y)"),
    ],
)
@pytest.mark.parametrize("of", ["REAL", "DOUBLE"])
def test_zero_keeps_its_sign(runner, call, of):
    schema = Schema.of(x=of, y=of)
    plan = planned(f"SELECT {call} AS x FROM t", schema)
    rows = pa.Table.from_batches([schema.rows_to_arrow([(-0.0, 1.0)])])
    assert repr(rows_of(plan, runner.run(plan, {"t": rows}))) == "[(-0.0,)]"


def test_a_reader_is_read_once(runner):
    plan = planned("SELECT id, at FROM t WHERE id > 2 ORDER BY id")
    batches = SCHEMA.rows_to_arrow(ROWS), SCHEMA.rows_to_arrow([a_row(9)])
    reader = pa.RecordBatchReader.from_batches(SCHEMA.arrow, batches)
    found = rows_of(plan, runner.run(plan, {"t": reader}))
    assert found == [(place, START + timedelta(microseconds=place)) for place in (3, 4, 9)]


def test_a_reader_that_is_needed_twice(runner):
    plan = planned("SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id + 1 ORDER BY 1")
    reader = table().to_reader()
    assert rows_of(plan, runner.run(plan, {"t": reader})) == [(0,), (1,), (2,), (3,), (4,)]


def test_the_error_of_a_reader_is_raised_unchanged(runner):
    def batches():
        yield SCHEMA.rows_to_arrow(ROWS)
        raise LogCorruptError("torn", segment="s", offset=1, next_lsn=None, hint="Repair it.")

    plan = planned("SELECT MAX(id) AS m FROM t")
    reader = pa.RecordBatchReader.from_batches(SCHEMA.arrow, batches())
    with pytest.raises(LogCorruptError, match="torn"):
        runner.run(plan, {"t": reader})


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id / (id - 1) AS x FROM t ORDER BY 1", "division by zero"),
        ("SELECT id + 2147483647 AS x FROM t ORDER BY 1", "out of the range"),
        ("SELECT CAST(s AS INT) AS x FROM t ORDER BY 1", "cannot be read as INTEGER"),
        ("SELECT SUM(CAST(9223372036854775807 AS BIGINT)) AS x FROM t", "out of the range"),
        ("SELECT (SELECT id FROM t) AS x", "has several rows"),
    ],
)
def test_a_row_without_a_value(runner, sql, message):
    plan = planned(sql)
    for _ in range(2):
        with pytest.raises(ExpressionError, match=message) as caught:
            runner.run(plan, {"t": table()})
        assert caught.value.hint
    again = planned("SELECT COUNT(*) AS n FROM t")
    assert rows_of(again, runner.run(again, {"t": table()})) == [(6,)]


def test_what_duckdb_cannot_do_is_an_error_of_ours(runner):
    plan = planned("SELECT COUNT(*) AS n FROM t")
    broken = replace(plan, sql="SELEC")
    with pytest.raises(SqlUnsupportedError, match="cannot be answered") as caught:
        runner.run(broken, {"t": table()})
    assert "SELEC" in caught.value.hint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/millstream-adhoc'",
        "INSTALL httpfs",
        "SET threads = 8",
        "SELECT * FROM secret",
    ],
)
def test_duckdb_sees_nothing_but_what_it_is_given(runner, sql):
    secret = table()  # noqa: F841 - DuckDB would look for Python variables of that name
    plan = planned("SELECT COUNT(*) AS n FROM t")
    bad = replace(plan, sql=sql)
    with pytest.raises((SqlUnsupportedError, ExpressionError)):
        runner.run(bad, {"t": table()})


def test_queries_do_not_see_each_other(runner):
    """Each thread has its own rows under the same name, and kernels are learnt by all at once."""
    plan = planned("SELECT UPPER(s) AS u, SUM(id / 2) AS h, COUNT(*) AS n FROM t GROUP BY UPPER(s)")
    ready = threading.Barrier(8)

    def ask(number):
        ready.wait()
        rows = [(each, f"x{number}", *[None] * 7) for each in range(number + 1)]
        for _ in range(20):
            found = rows_of(plan, runner.run(plan, {"t": table(rows)}))
            assert found == [(f"X{number}", sum(range(number + 1)) / 2, number + 1)]
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))


def test_a_closed_runner(runner):
    plan = planned("SELECT COUNT(*) AS n FROM t")
    runner.run(plan, {"t": table()})
    runner.close()
    runner.close()
    with pytest.raises(ClosedError):
        runner.run(plan, {"t": table()})


def test_a_runner_that_was_never_used_loads_no_duckdb_and_leaves_quietly():
    code = """
import sys
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc
from millstream.model import Schema
from millstream.queries.duckdb import AdhocRunner
runner = AdhocRunner()
schema = Schema.of(a="VARCHAR")
plan = plan_adhoc(as_query(parse("SELECT UPPER(a) AS a FROM t ORDER BY a")[0]),
                 lambda name: Input(name, "source", schema))
assert "duckdb" not in sys.modules
import pyarrow as pa
rows = pa.table({"a": ["x"]}, schema.arrow)
assert runner.run(plan, {"t": rows}).to_pylist() == [{"a": "X"}]
assert "duckdb" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_query_of_a_table_converts_the_columns_that_it_reads(monkeypatch):
    with ms.open() as db:
        db.execute(
            "CREATE TABLE t (org VARCHAR, id BIGINT, v DOUBLE, PRIMARY KEY (org, id)) "
            "WITH (tenant = 'org')"
        )
        db.insert("t", [("a", 1, 0.5), ("b", 2, 1.5), ("b", 3, None)])
        db.flush()  # the log converts rows, too
        read = []
        convert = Schema.column_to_arrow

        def noted(self, name, rows):
            read.append(name)
            return convert(self, name, rows)

        def refused(*_):
            raise AssertionError("all columns were converted")

        monkeypatch.setattr(Schema, "column_to_arrow", noted)
        monkeypatch.setattr(Schema, "rows_to_arrow", refused)
        for sql in ("SELECT COUNT(*) FROM t", "SELECT COUNT(*), 1 AS one FROM t"):
            assert db.query(sql).fetchall()[0][0] == 3
        assert read == []
        for _ in range(2):  # the second time they are there
            assert db.query("SELECT SUM(v) AS s, COUNT(*) AS n FROM t").fetchall() == [(2.0, 3)]
        assert read == ["v"]
        assert db.query("SELECT COUNT(*) FROM t", tenant="b").fetchall() == [(2,)]
        assert db.query("SELECT SUM(v) AS s FROM t", tenant="a").fetchall() == [(0.5,)]
        assert db.query("SELECT COUNT(*) FROM t", tenant="c").fetchall() == [(0,)]
        assert read == ["v", "org"]
        monkeypatch.undo()
        db.execute("DELETE FROM t WHERE id = 3")
        assert db.query("SELECT COUNT(*) AS n, MAX(id) AS m FROM t").fetchall() == [(2, 2)]
        db.execute("ALTER TABLE t ADD COLUMN w VARCHAR")
        assert db.query("SELECT COUNT(w) AS w, COUNT(*) AS n FROM t").fetchall() == [(0, 2)]

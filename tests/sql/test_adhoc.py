"""Plans of ad-hoc queries: what they read, what comes out, and what is refused.

That they give what Spark gives is tested with DuckDB, in ``tests/views``.
"""

from pathlib import Path

import pytest

from millstream import errors
from millstream.errors import InvalidNameError, ObjectNotFoundError, SqlError
from millstream.model import Schema
from millstream.model.names import check_name
from millstream.sql import Input, as_query, parse
from millstream.sql.adhoc import plan_adhoc

FIXTURE = Path(__file__).parent / "fixtures" / "refused_adhoc.sql"

TRADES = Schema.of(
    k="VARCHAR",
    i="INTEGER",
    x="DOUBLE",
    ts="TIMESTAMP",
    xs="ARRAY<INT>",
    st="STRUCT<a INT>",
)
NAMES = Schema.of(k="VARCHAR NOT NULL", name="VARCHAR", key=("k",))
INPUTS = {
    "t": Input("t", "source", TRADES, event_time="ts"),
    "u": Input("u", "table", NAMES, retracts=True),
}


def find(name):
    if name.lower() not in INPUTS:
        raise ObjectNotFoundError(f"there is no {name}", hint="Look again.")
    return INPUTS[name.lower()]


def planned(sql):
    (statement,) = parse(sql)
    return plan_adhoc(as_query(statement), find)


def blocks():
    for block in FIXTURE.read_text().split("\n\n")[1:]:
        sql, caret, error, hint = block.rstrip("\n").split("\n")
        kind, message = error.removeprefix("-- ").split(": ", 1)
        hint = hint.removeprefix("-- hint: ")
        yield pytest.param(sql, len(caret), kind, message, hint, id=sql)


@pytest.mark.parametrize(("sql", "column", "kind", "message", "hint"), list(blocks()))
def test_refused(sql, column, kind, message, hint):
    with pytest.raises(SqlError) as caught:
        planned(sql)
    error = caught.value
    assert (type(error), error.message, error.hint) == (getattr(errors, kind), message, hint)
    assert (error.sql, error.column or 1) == (sql, column)


def test_a_table_that_is_not_there():
    with pytest.raises(ObjectNotFoundError):
        planned("SELECT COUNT(*) AS n FROM nowhere")


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT COUNT(*) AS n FROM t", {"t": ()}),
        ("SELECT k, SUM(i) AS s FROM t GROUP BY k", {"t": ("k", "i")}),
        ("SELECT k FROM t WHERE x > 1 ORDER BY ts", {"t": ("x", "k", "ts")}),
        ("SELECT FIRST(i) AS f FROM t", {"t": ("i", "ts", "_lsn")}),
        ("SELECT t.i, u.name FROM t JOIN u ON t.k = u.k", {"t": ("k", "i"), "u": ("k", "name")}),
        ("SELECT T.I FROM T JOIN U USING (K)", {"t": ("k", "i"), "u": ("k",)}),
        ("SELECT i FROM (SELECT i, x FROM t) ORDER BY 1", {"t": ("i", "x")}),
        ("SELECT * FROM u ORDER BY k", {"u": ("k", "name")}),
        ("SELECT st.a AS a FROM t ORDER BY 1", {"t": ("st",)}),
        ("SELECT 1 AS one", {}),
    ],
)
def test_only_the_columns_that_are_needed_are_read(sql, reads):
    plan = planned(sql)
    assert dict(plan.columns) == reads
    assert plan.tables == tuple(reads)


def test_how_often_a_table_is_read():
    plan = planned("SELECT a.i FROM t AS a JOIN t AS b ON a.i = b.i WHERE a.k IN (SELECT k FROM u)")
    assert dict(plan.scans) == {"t": 2, "u": 1}


@pytest.mark.parametrize(
    ("sql", "ddl"),
    [
        ("SELECT COUNT(*) AS n, SUM(i) AS s FROM t", "n BIGINT NOT NULL, s BIGINT"),
        ("SELECT COUNT(*), MAX(i) FROM t", "_c0 BIGINT NOT NULL, _c1 INTEGER"),
        ("SELECT u.k FROM u JOIN t ON t.k = u.k", "k VARCHAR NOT NULL"),
        ("SELECT u.k FROM t LEFT JOIN u ON t.k = u.k", "k VARCHAR"),
        ("SELECT u.k FROM u RIGHT JOIN t ON t.k = u.k", "k VARCHAR"),
        ("SELECT k FROM u FULL JOIN t USING (k)", "k VARCHAR"),
        ("SELECT k FROM u JOIN u AS b USING (k) RIGHT JOIN (SELECT 1) ON TRUE", "k VARCHAR"),
        ("SELECT k FROM u UNION ALL SELECT name FROM u", "k VARCHAR"),
        ("SELECT i FROM t UNION SELECT x FROM t", "i DOUBLE"),
        ("SELECT EXISTS (SELECT 1 FROM u) AS e, k IN (SELECT k FROM u) AS i FROM u",
         "e BOOLEAN NOT NULL, i BOOLEAN NOT NULL"),
        ("SELECT (SELECT MAX(k) FROM u) AS m FROM u", "m VARCHAR"),
        ("SELECT window_start AS d FROM t GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
         "d TIMESTAMP NOT NULL"),
        ("SELECT ROW_NUMBER() OVER (ORDER BY k) AS r, LAG(k) OVER (ORDER BY k) AS l FROM u",
         "r INTEGER NOT NULL, l VARCHAR"),
    ],
)  # fmt: skip
def test_the_columns_of_the_result(sql, ddl):
    assert planned(sql).schema.ddl == ddl


def test_a_query_in_with_cannot_be_taken_for_a_table():
    plan = planned("WITH a AS (SELECT k FROM u) SELECT a.k FROM a JOIN u ON a.k = u.k")
    assert plan.sql.startswith('WITH "with 0" AS (')
    with pytest.raises(InvalidNameError):
        check_name("with 0")


def test_what_duckdb_does_as_spark_needs_no_kernel():
    plan = planned(
        "SELECT k, SUM(i + 1) AS s, MAX(x * 2) AS m, COUNT(DISTINCT x) AS d FROM t GROUP BY k"
    )
    assert plan.kernels == ()


def test_equal_operations_are_one_kernel():
    plan = planned("SELECT UPPER(k) AS a, UPPER(k || 'x') AS b, x / 2 AS c FROM t ORDER BY 1")
    upper, divide = plan.kernels
    assert [each.sql for each in upper.takes] == ["VARCHAR"]
    assert ([each.sql for each in divide.takes], divide.gives.sql) == (["DOUBLE"] * 2, "DOUBLE")
    again = planned("SELECT LOWER(UPPER(k)) AS a FROM t ORDER BY 1")
    assert upper.name in {each.name for each in again.kernels}

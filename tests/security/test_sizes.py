"""No function of a query makes a value that Java has no room for."""

from __future__ import annotations

import pytest

import millstream as ms
from millstream.errors import ExpressionError, PipelineError, SqlUnsupportedError
from millstream.testing import TIMEOUT

CONSTANT = (
    "explode(sequence(1, 300000000))",
    "size(sequence(1, -300000000, -1))",
    "size(sequence(TIMESTAMP '2020-01-01', TIMESTAMP '2021-01-01', INTERVAL '1' SECOND))",
    "size(sequence(DATE '2020-01-01', DATE '2020-03-01', make_interval(0, 1, 0, -28)))",
    "length(repeat('x', 2000000000))",
    "length(repeat(repeat('x', 100000), 100000))",
    "length(space(2000000000))",
    "length(lpad('x', 2000000000, 'y'))",
    "length(rpad(X'00', 2000000000, X'01'))",
    "size(array_repeat(id, 300000000))",
    "size(array_insert(array(id), 300000000, id))",
    "size(array_insert(array(id), -300000000, id))",
    "length(format_string('%2000000000d', id))",
    "length(printf('%1$1500000s', name))",
    "format_number(id, 300000000)",
)
BY_ROW = (
    "size(sequence(1, id * 300000000))",
    "size(sequence(1, 300000000, id))",
    "length(repeat(name, CAST(id AS INT) * 2000000000))",
    "length(repeat(repeat(repeat(name, 1000), 1000), 1000))",
    "length(space(CAST(id AS INT) * 2000000))",
    "length(lpad(name, CAST(id AS INT) * 2000000))",
    "length(rpad(CAST(name AS BINARY), CAST(id AS INT) * 2000000))",
    "size(array_repeat(id, CAST(id AS INT) * 2000000))",
    "size(array_insert(array(id), CAST(id AS INT) * 2000000, id))",
    "length(format_string('%' || id * 2000000 || 'd', id))",
    "format_number(id, CAST(id AS INT) * 2000000)",
    "size(transform(sequence(1, 1000), x -> sequence(1, x * 1000)))",
)
GROWING = (
    "length(replace(repeat(name, 1000000), 'a', repeat('b', 1000)))",
    "length(aggregate(sequence(1, 40), name, (acc, x) -> concat(acc, acc)))",
    "length(array_join(array_repeat(repeat(name, 1000000), 1000000), ','))",
)
MANY_SMALL = "size(transform(sequence(1, CAST(id * 1000000 AS INT)), x -> repeat(name, 10000)))"
SMALL = (
    ("size(sequence(1, 1000000))", 1_000_000),
    ("size(sequence(id, 5))", 5),
    ("size(sequence(DATE '2020-01-01', DATE '2021-01-01', INTERVAL '1' MONTH))", 13),
    ("size(sequence(TIMESTAMP '2020-01-01', TIMESTAMP '2020-01-02', INTERVAL '1' HOUR))", 25),
    ("length(repeat(name, 1000000))", 1_000_000),
    ("lpad(name, 3, 'x')", "xxa"),
    ("length(space(CAST(id AS INT) * 9))", 9),
    ("size(array_repeat(id, 9))", 9),
    ("length(format_string('%09999d', id))", 9999),
    ("length(repeat(name, CAST(NULL AS INT)))", None),
    ("size(transform(sequence(1, 10), x -> sequence(1, x)))", 10),
    ("CASE WHEN id = 1 THEN 1 ELSE length(space(CAST(1 / (id - 1) AS INT))) END", 1),
)
QUERY = "SELECT {} AS x FROM plain WHERE log10(id) >= 0"


def grouped(value):
    return "SELECT x, COUNT(*) AS n FROM (" + QUERY.format(value) + ") GROUP BY x"


@pytest.mark.parametrize("value", CONSTANT)
def test_a_constant_is_refused_at_once(db, value):
    with pytest.raises(SqlUnsupportedError, match="would have more than 1000000 elements"):
        db.execute("CREATE MATERIALIZED VIEW v AS " + QUERY.format(value))


@pytest.mark.parametrize("value", BY_ROW)
def test_a_row_is_an_error(db, value):
    with pytest.raises(ExpressionError, match=r"would have more than 10+ elements"):
        db.query(grouped(value))


@pytest.mark.parametrize(("value", "shown"), SMALL)
def test_what_is_small_is_what_it_was(db, value, shown):
    found = db.query(grouped(value))
    assert found.fetchall() == [(shown, 1)]


def create_view(db):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT name, COUNT(*) AS n FROM plain GROUP BY name")
    db.wait_for("v", timeout=TIMEOUT)


def shown_after_a_row(db):
    """What a view shows after one more row."""
    db.execute("INSERT INTO plain VALUES (2, 'a')")
    db.wait_for("v", timeout=TIMEOUT)
    return db.query("SELECT * FROM v").fetchall()


class TestWithoutRoom:
    @pytest.fixture(autouse=True)
    def view(self, db):
        create_view(db)

    @pytest.mark.parametrize("value", GROWING)
    def test_a_query_fails_alone(self, db, spark_owner, value):
        """Views of all go on: their Java is the same one."""
        deaths = spark_owner.deaths
        with pytest.raises(ExpressionError, match="has no room for what the query makes"):
            db.query(grouped(value))
        assert shown_after_a_row(db) == [("a", 2)]
        [view] = db.query("SHOW VIEWS").to_pylist()
        assert (spark_owner.deaths, view["restarts"]) == (deaths, 0)


def test_of_many_small_values_any_thread_may_find_none(tmp_path, spark_owner):
    """If that is not the query's task, Java ends, and views go on in another one."""
    assert spark_owner.session is not None  # which the database uses, too, and may replace
    message = "has no room for what the query makes|has ended while the query ran"
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE plain (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.execute("INSERT INTO plain VALUES (1, 'a')")
        create_view(db)
        with pytest.raises((ExpressionError, PipelineError), match=message):
            db.query(grouped(MANY_SMALL))
        assert shown_after_a_row(db) == [("a", 2)]

"""What Spark would accept or refuse in its own way: the same errors as of ad-hoc queries."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
from millstream.testing import TIMEOUT

SCHEMA = (
    "CREATE SOURCE s (id BIGINT, name VARCHAR, d DATE, ts TIMESTAMP, b BOOLEAN,"
    " names ARRAY<VARCHAR>);"
    "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)"
)


@pytest.fixture
def db(db):
    db.execute(SCHEMA)
    return db


def refusal(db, query):
    """The error of a view with a query."""
    with pytest.raises(SqlError) as caught:
        db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert db.query("SHOW VIEWS").fetchall() == []
    error = caught.value
    assert "__log" not in error.hint
    assert "__feed" not in str(error)
    return error


TEXT_AS_OTHER = [
    "SELECT name + 1 AS x FROM s",
    "SELECT SUM(name) AS x FROM s",
    "SELECT SUM(name) AS x FROM t",
    "SELECT id, AVG(name) AS x FROM s GROUP BY id",
    "SELECT id FROM s WHERE name = 1",
    "SELECT id FROM s WHERE name IN (1, 2)",
    "SELECT id FROM s WHERE name BETWEEN 1 AND 2",
    "SELECT id FROM s WHERE id = 'one'",
    "SELECT id FROM s WHERE ts > name",
    "SELECT YEAR(name) AS x FROM s",
    "SELECT COALESCE(name, 0) AS x FROM s",
    "SELECT names[0] + 1 AS x FROM s",
    "SELECT s.id FROM s JOIN t ON s.name = t.id",
    "SELECT id FROM s WHERE id IN (SELECT name FROM t)",
]


@pytest.mark.parametrize("query", TEXT_AS_OTHER)
def test_text_is_refused_where_a_number_or_a_time_is_expected(db, query):
    error = refusal(db, query)
    assert isinstance(error, SqlTypeError)
    assert error.hint
    with pytest.raises(SqlTypeError) as ad_hoc:
        db.query(query)
    assert (error.message, error.hint) == (ad_hoc.value.message, ad_hoc.value.hint)


def test_of_a_function_that_only_spark_has(db):
    error = refusal(db, "SELECT try_add(name, 1) AS x FROM s")
    assert error.message == "expected BIGINT, got VARCHAR"
    assert "TRY_CAST" in error.hint
    assert error.sql[error.column - 1 :].startswith("name, 1")
    with pytest.raises(SqlTypeError, match="expected BIGINT, got VARCHAR"):
        db.query("SELECT try_add(name, 1) AS x FROM s")


ACCEPTED = [
    *("CAST(name AS BIGINT)", "name::BIGINT", "TRY_CAST(name AS INT)"),
    *("BIGINT(name) + 1", "DATE(name)", "DOUBLE(name)", "INT(name)"),
    *("TO_DATE(name)", "TO_TIMESTAMP(name)", "TO_NUMBER(name, '999')"),
    *(
        "ts > '2026-01-01'",
        "d = '2026-01-31'",
        "id = '1'",
        "CONCAT(name, id)",
        "MD5(name)",
        "UPPER(id)",
    ),
]


def test_casts_that_are_written_and_constants_are_accepted(db):
    items = ", ".join(f"{each} AS c{place}" for place, each in enumerate(ACCEPTED))
    db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {items} FROM s")
    db.wait_for("v", timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("query", "at", "hint"),
    [
        ("SELECT id,\n LENGHT(name) AS x FROM s", "LENGHT(name)", "Did you mean LENGTH?"),
        ("SELECT LENGHT(a.name) AS x FROM s a, s b", "LENGHT(a", "Did you mean LENGTH?"),
        ("SELECT qqqq(name) AS x, COUNT(*) AS n FROM s GROUP BY qqqq(name)", "qqqq(", "Views may"),
        (
            "SELECT id,\n  AVG(\n    FOO(id)) AS x\nFROM s\nGROUP BY id",
            "FOO(id)",
            "Did you mean FLOOR?",
        ),
    ],
)
def test_an_unknown_function(db, query, at, hint):
    error = refusal(db, query)
    assert isinstance(error, SqlColumnError)
    assert error.message.startswith(f"there is no function {at.split('(')[0].upper()}")
    assert hint in error.hint
    assert error.sql.splitlines()[error.line - 1][error.column - 1 :].startswith(at)


def test_a_function_of_the_users_is_suggested(db, spark):
    spark.udf.register("my_function", len)
    try:
        error = refusal(db, "SELECT MY_FUNCTON(name) AS x FROM s")
    finally:
        spark.sql("DROP TEMPORARY FUNCTION my_function")
    assert error.hint == "Did you mean MY_FUNCTION?"


def test_a_function_that_is_not_allowed_is_not_suggested(db):
    error = refusal(db, "SELECT id,\n  REFLEKT(name, name) AS x\nFROM s")
    assert error.message == "there is no function REFLEKT"
    assert "REFLECT?" not in error.hint


@pytest.mark.parametrize(
    ("query", "at"),
    [
        (
            "SELECT id,\n  AVG(LENGTH(\n    Xpath_String(name, 'a'))) AS x\nFROM s GROUP BY id",
            "Xpath_String(",
        ),
        ("SELECT id,\n  schema_of_xml('<a/>') AS x\nFROM s", "schema_of_xml("),
    ],
)
def test_the_place_of_a_function_that_is_not_allowed(db, query, at):
    error = refusal(db, query)
    assert isinstance(error, SqlUnsupportedError)
    assert error.message.endswith("is not supported in a query")
    assert error.hint
    assert error.line > 1
    assert error.sql.splitlines()[error.line - 1][error.column - 1 :].startswith(at)


def test_a_misspelt_aggregate(db):
    error = refusal(db, "SELECT id, CUONT(name) AS n FROM s GROUP BY id")
    assert error.hint == "Did you mean COUNT?"


def test_wrong_arguments_are_at_the_function(db):
    error = refusal(db, "SELECT id, GREATEST(name, 1) AS x FROM s")
    assert error.sql[error.column - 1 :].startswith("GREATEST")
    assert error.hint


def test_an_error_inside_spark(db):
    query = (
        "SELECT LISTAGG(DISTINCT name, ',') WITHIN GROUP (ORDER BY name) AS o,"
        " COUNT(DISTINCT name) AS n FROM t"
    )
    error = refusal(db, query)
    assert error.message == "Spark cannot plan this query"
    assert "ClassCastException" in error.hint


def test_nothing_is_written_to_the_working_directory(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    code = f"""
import millstream as ms
with ms.open({str(tmp_path / "db")!r}) as db:
    db.execute({SCHEMA!r})
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT name, COUNT(*) AS n FROM s GROUP BY name")
    try:
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT qqqq(name) AS x FROM s")
    except ms.errors.SqlColumnError as error:
        print(error.message)
    db.query("SELECT try_add(id, 1) AS x FROM s")
    db.insert("s", [{{"id": 1, "name": "a"}}])
    db.wait_for("w", timeout={TIMEOUT})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout == "there is no function QQQQ\n", done.stderr
    assert list(folder.iterdir()) == []

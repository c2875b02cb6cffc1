"""Statements that are read once, and what is known of them before they run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import millstream as ms
from millstream.errors import SqlColumnError, SqlSyntaxError, SqlUnsupportedError


@pytest.fixture
def made(db):
    db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, at TIMESTAMP, x DECIMAL(9, 2));"
        "CREATE SOURCE s (n INT)"
    )
    db.execute("INSERT INTO t VALUES (1, 'one', NOW(), 1.5), (2, 'two', NULL, 2.25)")
    return db


@pytest.mark.parametrize(
    "case",  # the text; its kind; whether it reads; its parameters' types; its first columns
    [
        ("SELECT name FROM t WHERE id = ?", "SELECT", True, ["BIGINT"], "name VARCHAR"),
        ("SELECT COUNT(*) AS c FROM t WHERE at > :a", "SELECT", True, ["TIMESTAMP"], "c BIGINT"),
        ("SELECT id FROM t LIMIT ?", "SELECT", True, ["BIGINT"], "id BIGINT"),
        (
            "SELECT id + ? AS y FROM t ORDER BY 1",
            "SELECT",
            True,
            ["BIGINT"],
            "y BIGINT",
        ),
        ("SELECT ? AS a, CAST(? AS INT) AS b", "SELECT", True, ["VARCHAR", "INTEGER"], None),
        ("SELECT :a AS a, id FROM t WHERE id > :a", "SELECT", True, ["BIGINT"], "a BIGINT"),
        ("INSERT INTO t VALUES (?, ?, ?, ?)", "INSERT", False, None, None),
        ("UPDATE t SET x = ? WHERE name = ?", "UPDATE", False, ["DECIMAL(9, 2)", "VARCHAR"], None),
        ("DELETE FROM t WHERE at < NOW() - ?", "DELETE", False, ["TIMESTAMP"], None),
        ("SHOW TABLES LIKE ?", "SHOW", True, [None], "name VARCHAR"),
        ("DESCRIBE t", "DESCRIBE", True, [], '"column" VARCHAR'),
        ("SHOW CREATE TABLE t", "SHOW CREATE", True, [], "name VARCHAR"),
        ("EXPLAIN SELECT id FROM t", "EXPLAIN", True, [], "plan VARCHAR"),
        ("CREATE SOURCE other (n INT)", "CREATE SOURCE", False, [], None),
    ],
)
def test_what_is_known_before_it_runs(made, case):
    sql, kind, reads, types, columns = case
    before = made.lsn
    found = made.prepare(sql)
    assert (found.kind, found.reads) == (kind, reads)
    if types is not None:
        assert [each.type and each.type.sql for each in found.parameters] == types
    shown = "" if found.columns is None else found.columns.ddl
    assert shown.startswith(columns or "")
    assert (found.columns is None) == (not reads)
    assert made.lsn == before
    assert "other" not in [name for name, *_ in made.query("SHOW SOURCES")]


def test_it_runs_with_different_values(made):
    named = made.prepare("SELECT name FROM t WHERE id = ?")
    assert [named.query([n]).fetchall() for n in (1, 2, 3)] == [[("one",)], [("two",)], []]
    added = made.prepare("INSERT INTO s VALUES (:n)")
    with made.prepare("SELECT n * 2 AS m FROM s WHERE n > ?").subscribe([1]) as rows:
        for n in (1, 2):
            added.execute({"n": n})
        assert [change.row for change in rows.recv(timeout=10)] == [(4,)]
    with pytest.raises(SqlUnsupportedError, match="query is for SELECT"):
        added.query({"n": 1})


def test_what_cannot_be_prepared(made):
    for sql, error in (
        ("SELEKT 1", SqlSyntaxError),
        ("SELECT 1; SELECT 2", SqlUnsupportedError),
    ):
        with pytest.raises(error):
            made.prepare(sql)
    wrong = made.prepare("SELECT nothing FROM t")
    with pytest.raises(SqlColumnError):
        _ = wrong.columns


def test_the_time_is_that_of_the_statement(made):
    sql = "SELECT NOW() AS a, CURRENT_TIMESTAMP AS b, CURRENT_DATE AS d"
    [(a, b, day)] = made.query(sql)
    assert a == b
    assert a.date() == day
    assert abs(datetime.now(UTC) - a) < timedelta(minutes=1)
    recent = "WHERE at > NOW() - INTERVAL '1' HOUR"
    assert made.query(f"SELECT id FROM t {recent}").fetchall() == [(1,)]
    assert made.query(f"SELECT COUNT(*) AS c FROM t {recent}").fetchall() == [(1,)]
    sql = "SELECT a.id FROM t a JOIN t b ON a.id = b.id AND b.at <= NOW() ORDER BY a.id"
    assert made.query(sql).fetchall() == [(1,)]
    assert made.execute("UPDATE t SET at = NOW() WHERE at IS NULL").rowcount == 1
    assert made.query(f"SELECT id FROM t {recent} AND id = ?", [2]).fetchall() == [(2,)]


def test_words_that_are_names_of_columns_stay_so(db):
    db.execute('CREATE SOURCE c ("user" VARCHAR, version INT, now INT, current_role VARCHAR)')
    db.execute("INSERT INTO c (user, version, now, current_role) VALUES ('u', 1, 2, 'r')")
    sql = "SELECT user, version, now, current_role, c.user AS v FROM c AS c"
    assert db.query(sql).fetchall() == [("u", 1, 2, "r", "u")]
    assert db.query("SELECT user, current_user").fetchall() == [("millstream", "millstream")]


def test_columns_of_one_name(made):
    result = made.query("SELECT * FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.id = 1")
    names = ("id", "name", "at", "x")
    assert result.labels == names * 2
    assert result.columns == (*names, "id_1", "name_1", "at_1", "x_1")
    assert [row[:2] + row[4:6] for row in result] == [(1, "one", 1, "one")]
    assert made.query("SELECT id, id FROM t WHERE id = 1").to_pylist() == [{"id": 1, "id_1": 1}]
    inner = "SELECT COUNT(*) AS c FROM (SELECT * FROM t AS a JOIN t AS b ON a.id = b.id) AS j"
    assert made.query(inner).fetchall() == [(2,)]
    with pytest.raises(SqlColumnError, match="two columns are named 'id'"):
        made.subscribe("SELECT id, id FROM t")
    assert made.query("SELECT id, id AS id_1, id FROM t WHERE id = 1").columns == (
        *("id", "id_1", "id_2"),
    )


def test_a_select_without_from_needs_neither_duckdb_nor_spark():
    with ms.open() as db:
        assert db.query("SELECT 7 / 2 AS a, 'x' || 'y' AS b, NULL AS c").fetchall() == [
            (3.5, "xy", None)
        ]
        [[line], *_] = db.query("EXPLAIN SELECT 7 / 2").fetchall()
        assert line == "ad hoc: read nothing: one row, in process; no Spark"

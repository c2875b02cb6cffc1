"""Statements about one row by its key: run again without being parsed, with the same outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE = (
    "CREATE TABLE items (id BIGINT, kind VARCHAR NOT NULL, small TINYINT, price DOUBLE,"
    " good BOOLEAN, made DATE, PRIMARY KEY (id, kind))"
)
_TEXTS = [
    "UPDATE items SET price = ? WHERE id = ? AND kind = ?",
    "UPDATE items SET small = ? WHERE items.kind = ? AND id = ?",
    "UPDATE items SET price = ?, good = ?, small = ? WHERE id = ? AND kind = ?",
    "UPDATE items SET kind = ? WHERE id = ? AND kind = ?",
    "UPDATE items SET small = -? WHERE id = ? AND kind = ?",
    "UPDATE items SET small = ? WHERE id = -? AND kind = ?",
    "UPDATE items SET small = (?) WHERE id = ? AND kind = ?;",
    "UPDATE items SET small = ? WHERE id = ? AND kind = ? AND id = ?",
    "UPDATE items SET small = ? WHERE id = ? OR kind = ?",
    "UPDATE items SET small = ? WHERE id = ?",
    "DELETE FROM items WHERE id = ? AND kind = ?",
    "SELECT * FROM items WHERE id = ? AND kind = ?",
    "SELECT price, id FROM items AS i WHERE i.id = ? AND kind = ?",
    "SELECT price AS p, id FROM items WHERE id = ? AND kind = ?",
    "SELECT ? AS x, id FROM items WHERE id = ? AND kind = ?",
    "SELECT id FROM items WHERE id = ? AND kind = ? LIMIT 0",
    "SELECT id FROM items WHERE ? = id AND kind = ?",
    "INSERT INTO items (kind, id, price) VALUES (?, ?, ?)",
    "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, NULL)",
    "INSERT OR IGNORE INTO items (id, kind, small) VALUES (?, ?, ?), (?, ?, ?)",
    "INSERT OR IGNORE INTO items (id, kind) VALUES (?, ?) ",
    "SELECT COUNT(*) FROM items",
    "SELECT COUNT(*) AS n FROM Items AS i",
    "SELECT COUNT(*) AS n FROM items LIMIT 0",
    "SELECT DISTINCT COUNT(*) FROM items WHERE id = ?",
]
_VALUES = st.one_of(
    st.integers(-2, 2),
    st.sampled_from([127, 128, 2**63, 0.5, -0.0, float("nan"), True, False, None, [1]]),
    st.sampled_from(["a", "b", "1", "\ud800", "x?"]),
)


def _outcome(db: ms.Database, text: str, parameters: Any) -> object:
    try:
        result = db.execute(text, parameters)
    except ms.Error as error:
        return type(error), str(error)
    assert isinstance(result, ms.Result)
    return result.status, result.rowcount, result.schema, repr(result.fetchall())


@pytest.fixture(scope="module")
def databases() -> Iterator[tuple[ms.Database, ms.Database]]:
    with ms.open() as one, ms.open() as other:
        one.execute(_TABLE)
        other.execute(_TABLE)
        yield one, other


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(_TEXTS), st.lists(_VALUES, min_size=1, max_size=6)),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_remembered_does_what_it_says(
    databases: tuple[ms.Database, ms.Database], steps: list[tuple[str, list[Any]]]
) -> None:
    remembering, parsing = databases
    for text, values in steps:
        parameters = values[: text.count("?")]
        parsing._engine.points.clear()
        assert _outcome(remembering, text, parameters) == _outcome(parsing, text, parameters)
        named = {f"p{place}": value for place, value in enumerate(parameters)}
        renamed = text
        for name in named:
            renamed = renamed.replace("?", f":{name}", 1)
        parsing._engine.points.clear()
        assert _outcome(remembering, renamed, named) == _outcome(parsing, renamed, named)
    rows = "SELECT * FROM items ORDER BY id, kind"
    assert repr(remembering.query(rows).fetchall()) == repr(parsing.query(rows).fetchall())


_LITERALS = st.one_of(
    st.integers(-2, 2).map(str),
    st.sampled_from(
        ["a", "b", "1", "", "O'Hara", "x?", ":p", "--", "/*", "\n", "\u00e9", '"', "\\n"]
    ).map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.floats(-1e9, 1e9).map(repr),
    st.decimals(-100, 100, places=2).map(str),
    st.sampled_from(["127", "128", "-128", "-129", "9223372036854775807", "9223372036854775808"]),
    st.sampled_from(["-9223372036854775808", "999999999999999999", "-0", "-0.0", "0.0", "007"]),
    st.sampled_from(["1.", ".5", "1e3", "1E-3", "0x1F", "7L", "7D", "1.5BD", "1_000", "+1", "- 1"]),
    st.sampled_from(["--1", "1 -- x\n", "/* 1 */ 2", "'a' 'b'", "'a''", "x'6162'", "r'a'", "?"]),
    st.sampled_from(["DATE '2020-01-01'", "date'2020-01-01'", "TRUE", "false", "NULL", "1 + 1"]),
    st.sampled_from(
        ['"a"', "`a`", "$$a$$", "(1)", "('a')", "1 AND 1 = 1", "id", "0.1234567890123456"]
    ),
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(_TEXTS), st.lists(_LITERALS, min_size=6, max_size=6)),
        min_size=1,
        max_size=12,
    )
)
def test_with_the_values_in_the_text(
    databases: tuple[ms.Database, ms.Database], steps: list[tuple[str, list[str]]]
) -> None:
    remembering, parsing = databases
    for text, literals in steps:
        written = text
        for literal in literals:
            written = written.replace("?", literal.replace("?", "\0"), 1)
        written = written.replace("\0", "?")
        parsing._engine.lifted.clear()
        assert _outcome(remembering, written, None) == _outcome(parsing, written, None)
    rows = "SELECT * FROM items ORDER BY id, kind"
    assert repr(remembering.query(rows).fetchall()) == repr(parsing.query(rows).fetchall())


def test_texts_that_differ_in_their_literals_are_one() -> None:
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, price DOUBLE)")
        for n in range(3):
            db.execute(f"INSERT INTO t VALUES ({n}, 'it''s {n}', {n}.5)")
            db.execute(f"UPDATE t SET price = -{n}.25 WHERE id = {n};")
            found = db.query(f"SELECT name, price FROM t WHERE id = {n}").fetchall()
            assert found == [(f"it's {n}", -n - 0.25)]
            db.execute(f"SELECT name FROM t WHERE id = {n} LIMIT 1")
        db.execute("DELETE FROM t WHERE id = 1")
        assert db.query("SELECT COUNT(*) FROM t").fetchall() == [(2,)]
        lifted = db._engine.lifted
        assert {text for text, point in lifted.items() if point is not None} == {
            "INSERT INTO t VALUES (?, ?, ?)",
            "UPDATE t SET price = ? WHERE id = ?;",
            "SELECT name, price FROM t WHERE id = ?",
            "DELETE FROM t WHERE id = ?",
        }
        assert lifted["SELECT name FROM t WHERE id = ? LIMIT ?"] is None


def test_literals_of_a_table_that_was_altered() -> None:
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        for n in range(2):
            db.execute(f"INSERT INTO t VALUES ({n}, 10)")
        db.execute("ALTER TABLE t ADD COLUMN m VARCHAR")
        with pytest.raises(errors.SqlError):
            db.execute("INSERT INTO t VALUES (2, 10)")
        for n in range(2):
            found = db.query(f"SELECT * FROM t WHERE id = {n}").fetchall()
            assert found == [(n, 10, None)]


def test_the_usual_ones_are_remembered() -> None:
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
        texts = [
            ("INSERT INTO t VALUES (?, ?)", [1, "a"]),
            ("UPDATE t SET name = ? WHERE id = ?", ["b", 1]),
            ("SELECT name FROM t WHERE id = ?", [1]),
            ("SELECT name FROM t WHERE id = :id", {"id": 1}),
            ("DELETE FROM t WHERE id = ?", [1]),
            ("SELECT COUNT(*) FROM t", None),
        ]
        for text, parameters in texts:
            db.execute(text, parameters)
        assert sorted(db._engine.points) == sorted(text for text, _ in texts)


def test_only_query_refuses_a_remembered_update() -> None:
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        text = "UPDATE t SET n = ? WHERE id = ?"
        db.execute(text, [1, 1])
        with pytest.raises(errors.SqlUnsupportedError):
            db.query(text, [1, 1])


def test_a_table_that_was_altered_or_made_anew() -> None:
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        for _ in range(2):
            db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", [1, 10])
            assert db.query("SELECT * FROM t WHERE id = ?", [1]).fetchall() == [(1, 10)]
            assert db.query("SELECT COUNT(*) AS n FROM t").fetchall() == [(1,)]
        db.execute("ALTER TABLE t ADD COLUMN m VARCHAR")
        assert db.query("SELECT * FROM t WHERE id = ?", [1]).fetchall() == [(1, 10, None)]
        with pytest.raises(errors.SqlError):
            db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", [1, 10])
        db.execute("DROP TABLE t")
        with pytest.raises(errors.ObjectNotFoundError):
            db.query("SELECT * FROM t WHERE id = ?", [1])
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n VARCHAR)")
        assert db.query("SELECT * FROM t WHERE id = ?", [1]).fetchall() == []
        assert db.query("SELECT COUNT(*) AS n FROM t").fetchall() == [(0,)]


def test_a_tenant_sees_no_other_rows() -> None:
    with ms.open() as db:
        db.execute(
            "CREATE TABLE t (id BIGINT, org VARCHAR, PRIMARY KEY (id, org)) WITH (tenant = 'org')"
        )
        db.execute("INSERT INTO t VALUES (?, ?)", [1, "acme"])
        text = "SELECT id FROM t WHERE id = ? AND org = ?"
        assert db.query(text, [1, "acme"]).fetchall() == [(1,)]
        assert db.query(text, [1, "acme"]).fetchall() == [(1,)]
        assert db.query(text, [1, "acme"], tenant="other").fetchall() == []
        assert db.session(tenant="acme").query(text, [1, "acme"]).fetchall() == [(1,)]

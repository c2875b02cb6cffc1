"""VARCHAR(n): no longer text is stored, however it comes in."""

import io

import pyarrow as pa
import pytest

import millstream as ms
from millstream.model import Schema

FITS, LONG = "äöü", "abcd"


@pytest.fixture
def db():
    with ms.open() as made:
        made.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a VARCHAR(3), b CHARACTER VARYING(3))")
        made.execute("CREATE SOURCE s (a VARCHAR(3) NOT NULL, b TEXT(3))")
        yield made


WAYS = {
    "push": lambda db, text: db.source("s").push((text, text)),
    "push of a dict": lambda db, text: db.source("s").push({"a": text, "b": text}),
    "push_batch": lambda db, text: db.source("s").push_batch([(text, text)] * 70),
    "few rows": lambda db, text: db.insert("s", [(text, text)]),
    "Arrow": lambda db, text: db.insert("s", pa.table({"a": [FITS, text], "b": [None, text]})),
    "JSON": lambda db, text: db.insert_json("s", f'[{{"a": "{text}", "b": "{text}"}}]'),
    "CSV": lambda db, text: db.insert_csv("s", io.StringIO(f"a,b\n{text},{text}\n")),
    "INSERT": lambda db, text: db.execute(f"INSERT INTO t VALUES (1, '{text}', '{text}')"),
    "parameters": lambda db, text: db.execute("INSERT INTO t VALUES (1, ?, ?)", [text] * 2),
    "into a source": lambda db, text: db.execute(f"INSERT INTO s VALUES ('{text}', '{text}')"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_text_is_stored_or_refused(db, way):
    WAYS[way](db, FITS)
    db.flush()
    stored = db.query("SELECT a FROM s").fetchall() + db.query("SELECT b FROM t").fetchall()
    assert set(stored) == {(FITS,)}
    with pytest.raises(ms.Error, match=r"4 characters is longer than VARCHAR\(3\)"):
        WAYS[way](db, LONG)
    db.flush()
    after = db.query("SELECT a FROM s").fetchall() + db.query("SELECT b FROM t").fetchall()
    assert len(after) == len(stored)


def test_an_update_is_held_to_the_length(db):
    db.execute("INSERT INTO t VALUES (1, 'ab', 'cd')")
    db.execute("UPDATE t SET a = 'abc', b = a WHERE id = 1")
    for assigned in ("a = 'abcd'", "a = a || b", "b = ?"):
        with pytest.raises(ms.Error, match="longer than"):
            db.execute(f"UPDATE t SET {assigned} WHERE id = 1", [LONG] if "?" in assigned else None)
    assert db.query("SELECT a, b FROM t").fetchall() == [("abc", "ab")]


def test_the_length_is_there_after_reopening(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a VARCHAR(3))")
    with ms.open(tmp_path) as db:
        with pytest.raises(ms.Error, match="longer than"):
            db.execute("INSERT INTO t VALUES (1, 'abcd')")
        db.execute("ALTER TABLE t ADD COLUMN c VARCHAR(1)")
        with pytest.raises(ms.Error, match="longer than"):
            db.execute("INSERT INTO t VALUES (1, 'abc', 'ab')")


def test_a_schema_keeps_lengths_through_arrow_and_ddl():
    schema = Schema.of(key=("a",), a="VARCHAR(3) NOT NULL", b="VARCHAR", c="BIGINT")
    assert schema.ddl == "a VARCHAR(3) NOT NULL, b VARCHAR, c BIGINT"
    assert Schema.from_arrow(schema.arrow) == schema
    assert schema != Schema.of(key=("a",), a="VARCHAR NOT NULL", b="VARCHAR", c="BIGINT")


@pytest.mark.parametrize("of", ["VARCHAR(0)", "CHAR(3)", "CHARACTER(3)", "VARCHAR(x)", "FLOAT(54)"])
def test_what_cannot_be_held_is_refused(db, of):
    with pytest.raises(ms.Error):
        db.execute(f"CREATE TABLE u (id BIGINT PRIMARY KEY, a {of})")


def test_float_has_so_many_binary_digits(db):
    db.execute("CREATE TABLE f (id BIGINT PRIMARY KEY, a FLOAT(24), b FLOAT(25), c FLOAT)")
    found = db.query("SELECT a, b, c, CAST(id AS FLOAT(53)) AS d FROM f").schema
    assert [each.type.sql for each in found.columns] == ["REAL", "DOUBLE", "REAL", "DOUBLE"]

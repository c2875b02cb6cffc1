"""NUMERIC without a precision is DECIMAL(38, 18), and nothing that is stored in it is rounded."""

from decimal import Decimal

import pyarrow as pa
import pytest

import millstream as ms

FITS = ["19.99", "0.000000000000000001", "-12345678901234567890.123456789012345678", "7", "0"]
TOO_LONG = ["0.0000000000000000001", "1.1234567890123456789"]
TOO_LARGE = "123456789012345678901"


@pytest.fixture
def db():
    with ms.open() as made:
        made.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x NUMERIC, y DECIMAL)")
        made.execute("CREATE SOURCE s (x NUMERIC)")
        yield made


def _push(db, text):
    db.source("s").push((Decimal(text),))
    db.flush()


def _push_arrow(db, text):
    value = Decimal(text)
    db.insert("s", pa.table({"x": pa.array([value])}))
    db.flush()


def _json(db, text):
    db.insert_json("s", f'[{{"x": "{text}"}}]')
    db.flush()


def _csv(db, text):
    db.insert_csv("s", f"x\n{text}\n")
    db.flush()


def _parameter(db, text):
    db.execute("INSERT INTO t VALUES (1, ?, ?)", [Decimal(text)] * 2)


def _literal(db, text):
    db.execute(f"INSERT INTO t VALUES (1, {text}, {text})")


def _update(db, text):
    db.execute("INSERT INTO t VALUES (1, 1, 1)")
    db.execute(f"UPDATE t SET x = {text}, y = {text} WHERE id = 1")


def _of_a_column(db, text):
    """A DECIMAL of more digits after the point than NUMERIC has, which no literal folds."""
    db.execute("CREATE TABLE wide (id BIGINT PRIMARY KEY, w DECIMAL(38, 19), x NUMERIC)")
    db.execute("INSERT INTO wide VALUES (1, ?, 0)", [Decimal(text)])
    db.execute("UPDATE wide SET x = w")
    db.execute("INSERT INTO t VALUES (1, 0, 0)")
    found = db.query("SELECT x FROM wide").fetchall()
    db.execute("UPDATE t SET x = ?, y = ?", [found[0][0]] * 2)


WAYS = [_push, _push_arrow, _json, _csv, _parameter, _literal, _update]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", FITS)
def test_what_fits_is_kept_as_it_is(db, way, text):
    way(db, text)
    found = db.query("SELECT x FROM s").fetchall()
    found += db.query("SELECT x FROM t UNION ALL SELECT y AS x FROM t").fetchall()
    assert found
    assert {row[0] for row in found} == {Decimal(text)}


@pytest.mark.parametrize("way", [*WAYS, _of_a_column])
@pytest.mark.parametrize("text", [*TOO_LONG, TOO_LARGE])
def test_what_does_not_fit_is_an_error(db, way, text):
    with pytest.raises(ms.Error):
        way(db, text)
    assert db.query("SELECT x FROM s").fetchall() == []
    assert db.query("SELECT x FROM t WHERE x <> 0 AND x <> 1").fetchall() == []


def test_a_double_is_stored_by_its_digits_or_not_at_all(db):
    db.execute("INSERT INTO t VALUES (1, 0.1e0, 1e-18)")
    assert db.query("SELECT x, y FROM t").fetchall() == [(Decimal("0.1"), Decimal("1e-18"))]
    for text in ("1e-19", "1e25", "1e300"):
        with pytest.raises(ms.Error):
            db.execute(f"INSERT INTO t VALUES (2, {text}, 0)")


def test_cast_rounds_to_eighteen_digits_as_spark_does(db):
    db.execute("INSERT INTO t VALUES (1, 19.99, 0)")
    sql = (
        "SELECT CAST(x AS NUMERIC) AS a, '1.12345678901234567851'::numeric AS b, "
        "CAST(1e-19 AS DECIMAL) AS c, (x * 2)::numeric AS d FROM t"
    )
    expected = [("19.99", "1.123456789012345679", "0", "39.98")]
    assert db.query(sql).fetchall() == [tuple(map(Decimal, row)) for row in expected]
    with pytest.raises(ms.Error):
        db.query(f"SELECT '{TOO_LARGE}'::numeric AS a FROM t").fetchall()


def test_a_scale_that_is_written_rounds_what_is_stored(db):
    db.execute("CREATE TABLE r (id BIGINT PRIMARY KEY, x NUMERIC(10, 2), y NUMERIC(5))")
    db.execute("INSERT INTO r VALUES (1, 19.995, 19.5)")
    assert db.query("SELECT x, y FROM r").fetchall() == [(Decimal("20.00"), Decimal(20))]

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.errors import (
    DuplicateKeyError,
    FileAccessError,
    InvalidOptionError,
    RowError,
    SchemaMismatchError,
    SqlOptionError,
    SqlUnsupportedError,
    TenantError,
)

COLUMNS = (
    "id BIGINT, ok BOOLEAN, small TINYINT, x DOUBLE, price DECIMAL(10, 2), name VARCHAR, "
    "raw BINARY, day DATE, at TIMESTAMP, span INTERVAL, tags ARRAY<VARCHAR>, "
    "inner STRUCT<a BIGINT, b VARCHAR>, counts MAP<VARCHAR, BIGINT>"
).replace("inner ", '"inner" ')
ROWS = [
    (
        *(1, True, -7, 0.1, Decimal("12.30"), 'a "quoted", text\nof two lines', b"\x00\xff"),
        *(date(2026, 1, 31), datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=UTC)),
        *(timedelta(hours=2, microseconds=5), ["x", None, ""], {"a": 1, "b": None}, {"k": 2}),
    ),
    (2, False, 0, float("inf"), Decimal("-0.01"), "", b"", *[None] * 6),
    (3, *[None] * 12),
]


@pytest.fixture
def db():
    with ms.open() as opened:
        opened.execute(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id))")
        opened.execute("CREATE SOURCE s (a BIGINT NOT NULL, b VARCHAR)")
        opened.insert("t", ROWS)
        yield opened


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.tsv", "x.jsonl", "x.arrow", "x.csv.gz"])
def test_what_is_written_is_read_back(db, tmp_path, name):
    seen = []
    result = db.execute("COPY t TO ?", [str(tmp_path / name)], progress=seen.append)
    assert (result.status, result.rowcount, seen[-1].rows, seen[-1].done) == ("COPY 3", 3, 3, 1.0)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    db.execute(f"CREATE TABLE u ({COLUMNS}, PRIMARY KEY (id))")
    seen = []
    assert db.execute(f"COPY u FROM '{tmp_path / name}'", progress=seen.append).rowcount == 3
    assert seen[-1].rows == 3
    assert sorted(db.query("SELECT * FROM u")) == ROWS


def test_a_query_and_some_columns(db, tmp_path):
    path = tmp_path / "y.csv"
    db.execute(f"COPY (SELECT id * 10 AS n FROM t WHERE id > ? AND (id < 9)) TO '{path}'", [1])
    assert path.read_text() == '"n"\n20\n30\n'
    db.execute(f"COPY (SELECT count(*) AS n FROM t GROUP BY ok IS NULL ORDER BY n) TO '{path}'")
    assert path.read_text() == '"n"\n1\n2\n'
    db.execute(f"COPY t (name, id) TO '{path}' WITH (header = false, delimiter = ';')")
    assert path.read_text().endswith('"";2\n;3\n')
    path.write_text("x;1\ny;2\n")
    db.execute(f"COPY s (b, a) FROM '{path}' (header = false, delimiter = ';')")
    assert db.query("SELECT * FROM s").fetchall() == [(1, "x"), (2, "y")]


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("x.csv", 'a,b\n1,"p\nq"\nno,r\n', r"x.csv, line 4: column 'a': expected BIGINT, got text"),
        ("x.jsonl", '{"a": 1}\n{"a": 2\n', r"x.jsonl, line 2: invalid JSON"),
        ("x.csv", "a,b\n1,p,q\n", r"x.csv, line 2: expected 2 fields, got 3"),
        ("x.csv", "a,c\n1,p\n", "'c'"),
        ("x.json", '[{"a": 1}, {"b": "x"}]', "row 1, column 'a'"),
    ],
)
def test_a_bad_row_leaves_nothing(db, tmp_path, name, text, error):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SchemaMismatchError, match=error):
        db.execute(f"COPY s FROM '{path}'")
    assert not db.query("SELECT * FROM s").fetchall()


def test_rows_are_taken_as_they_are_read(db, tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]})
    pq.write_table(table, path, row_group_size=2)
    with pytest.raises(RowError, match=r"x\.parquet: row 2, column 'a'") as raised:
        db.execute(f"COPY s FROM '{path}' WITH (atomic = false)")
    assert "2 rows before it were taken" in raised.value.hint
    assert db.query("SELECT a FROM s").fetchall() == [(1,), (2,)]


def test_keys_that_are_there(db, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,name\n9,new\n1,other\n")
    with pytest.raises(DuplicateKeyError):
        db.execute(f"COPY t FROM '{path}'")
    assert len(db.query("SELECT * FROM t")) == 3
    db.execute(f"COPY t FROM '{path}' WITH (replace = true)")
    assert db.query("SELECT id, name FROM t WHERE id = 1").fetchall() == [(1, "other")]


def test_what_is_refused(db, tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no end")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a\n1\n")[:-9])
    for sql, error, match in [
        ("COPY s FROM '{}/none.csv'", FileAccessError, "does not exist"),
        ("COPY s FROM '{}/x.parquet'", FileAccessError, "cannot be read as parquet"),
        ("COPY s FROM '{}/x.csv.gz'", FileAccessError, "cannot be read as csv"),
        ("COPY s FROM '{}'", InvalidOptionError, "format of"),
        ("COPY s FROM '{}/x' WITH (fromat = 'csv')", SqlOptionError, "no option fromat"),
        ("COPY s FROM '{}/x' WITH (format = 'xml')", SqlOptionError, "no format 'xml'"),
        ("COPY s FROM '{}/x.csv' WITH (access_key = 'k')", InvalidOptionError, "no option access"),
        ("COPY s TO '{}/x.parquet/y.csv'", FileAccessError, "cannot write"),
        ("COPY s FROM STDIN", SqlUnsupportedError, "STDIN"),
    ]:
        with pytest.raises(error, match=match):
            db.execute(sql.format(tmp_path))
    with pytest.raises(TenantError):
        db.execute(f"COPY s TO '{tmp_path}/x.csv'", tenant="acme")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("delimiter = '\"'", "delimiter is '\"'"),
        ("delimiter = ''", "delimiter is ''"),
        ("delimiter = ',,'", "delimiter is ',,'"),
        ("delimiter = '\n'", "delimiter is"),
        ("delimiter = 'é'", "delimiter is 'é'"),
        ("null = 'a,b'", "null is 'a,b'"),
        ("null = '\"'", "null is '\"'"),
        ("null = ';', delimiter = ';'", "null is ';'"),
    ],
)
def test_options_of_csv_that_cannot_be(db, tmp_path, options, message):
    path = tmp_path / "x.csv"
    path.write_text("id,name\n1,a\n")
    for statement in (f"COPY t FROM '{path}'", f"COPY t TO '{path}'"):
        with pytest.raises(InvalidOptionError, match=message) as caught:
            db.execute(f"{statement} WITH ({options})")
        assert caught.value.hint
    assert path.read_text() == "id,name\n1,a\n"


@pytest.mark.parametrize("options", ["delimiter = '-'", "delimiter = '1'", "null = '5'"])
def test_csv_that_would_not_be_read_back_is_not_written(db, tmp_path, options):
    with pytest.raises(InvalidOptionError) as caught:
        db.execute(f"COPY t TO '{tmp_path / 'x.csv'}' WITH ({options})")
    assert caught.value.hint


@pytest.mark.parametrize("option", ["header = false", "delimiter = ';'", "null = 'NULL'"])
def test_options_of_csv_for_another_format(db, tmp_path, option):
    with pytest.raises(SqlOptionError, match="is an option of CSV, and the file is parquet"):
        db.execute(f"COPY t TO '{tmp_path / 'x.parquet'}' WITH ({option})")

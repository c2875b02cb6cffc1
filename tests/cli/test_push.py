from __future__ import annotations

import io

import pyarrow as pa
import pytest

import millstream as ms
from millstream.cli.pushing import PushError, push_stream


@pytest.fixture
def db(tmp_path):
    with ms.open(tmp_path / "db") as opened:
        opened.execute("CREATE SOURCE t (a BIGINT, b VARCHAR)")
        yield opened


def push(db, data, **options):
    return push_stream(db, "t", io.BytesIO(data), **options)


def rows(db):
    return db.query("SELECT a, b FROM t").fetchall()


JSON = b'{"a": 1, "b": "x"}\n\n{"a": 2}\n{"a": "no"}\n{"a": 4}\n{"a": 5\n{"a": 6}'
CSV = b'a,b\n1,"x\ny"\n2,z\nno,z\n4,\n'


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}\n{"a": 2}', [(1, None), (2, None)]),
        (b'[{"a": 1},\n {"a": 2}]', [(1, None), (2, None)]),
        (b'a,b\n1,"x\ny"\n2,', [(1, "x\ny"), (2, None)]),
        (b"", []),
    ],
)
def test_the_format_is_seen(db, data, expected):
    assert push(db, data).rows == len(expected)
    assert rows(db) == expected


@pytest.mark.parametrize("new", [pa.ipc.new_stream, pa.ipc.new_file])
def test_arrow(db, new):
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    assert push(db, sink.getvalue()).rows == 2
    assert rows(db) == [(1, "x"), (2, None)]


def test_a_pipe_is_pushed_as_it_comes(db):
    class Pipe(io.BytesIO):
        def read1(self, _=-1, /):
            return self.read(5)

    assert push_stream(db, "t", Pipe(CSV.replace(b"no", b"3"))).rows == 4
    assert rows(db) == [(1, "x\ny"), (2, "z"), (3, "z"), (4, None)]


@pytest.mark.parametrize(("data", "line"), [(JSON, 4), (CSV, 5), (b'{"a": 1}\n{"a": 2}\n{"a"', 3)])
def test_a_bad_row_is_named_and_those_before_it_are_taken(db, data, line):
    with pytest.raises(PushError, match=rf"^line {line}: ") as caught:
        push(db, data)
    assert "2 rows before it were pushed" in caught.value.hint
    assert [a for a, _ in rows(db)] == [1, 2]


def test_bad_rows_are_skipped_one_by_one(db, capsys):
    assert push(db, JSON, skip_bad=True).skipped == 2
    assert [a for a, _ in rows(db)] == [1, 2, 4, 6]
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["line 4", "line 6"]


def test_many_bad_rows_in_a_row(db, capsys):
    data = b"a\n" + b"".join(b"no\n%d\n" % n for n in range(300))
    done = push(db, data, skip_bad=True)
    assert (done.rows, done.skipped) == (300, 300)
    assert capsys.readouterr().err.splitlines()[-1].startswith("line 600: ")


def test_an_unknown_column_is_no_bad_row(db):
    with pytest.raises(ms.errors.SchemaMismatchError, match="nonsense"):
        push(db, b"a,nonsense\n1,2\n", skip_bad=True)


def test_keys_that_are_there_refuse_the_batch(db):
    db.execute("CREATE TABLE k (id BIGINT PRIMARY KEY)")
    with pytest.raises(PushError, match=r"^lines 2 to 3: "):
        push_stream(db, "k", io.BytesIO(b"id\n1\n1\n"))
    assert len(db.query("SELECT * FROM k")) == 0


def test_the_command(quick, db, tmp_path):
    db.close()
    (tmp_path / "rows.csv").write_bytes(CSV)
    done = quick("push", "t", "db", "rows.csv", "--skip-bad", check=1)
    assert done.stderr.startswith("line 5: column 'a': expected BIGINT, got text 'no'; skipped\n")
    assert "pushed 3 rows to t in " in done.stderr
    done = quick("push", "t", "db", given='{"a": 1}\n', check=0)
    assert "pushed 1 row to t" in done.stderr
    done = quick("push", "nonsense", "db", given='{"a": 1}\n', check=1)
    assert done.stderr.startswith("error: ")

"""Files: a directory that is followed, a directory that is written, whatever is killed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

import millstream as ms
from millstream.connectors import Schema, Settings, Target
from millstream.connectors.sources.files import FilesSource
from millstream.errors import (
    ConnectorFailedError,
    FileAccessError,
    InvalidOptionError,
    SqlOptionError,
)
from millstream.testing import engine_of, wait_until
from millstream.testing.connectors import (
    SinkScenario,
    SourceScenario,
    check_sink,
    check_source,
    replayed,
)

SCHEMA = "(id BIGINT NOT NULL, v VARCHAR)"


def put(directory, name, data):
    """A file that appears whole."""
    aside = directory / f".{name}"
    aside.write_bytes(data)
    aside.rename(directory / name)


def write(directory, number, rows):
    """Some rows in a file, whose format goes round."""
    table = pa.table({"id": rows, "v": [f"v{n}" for n in rows]})
    form = ("parquet", "csv", "jsonl", "arrow")[number % 4]
    aside = directory / ".aside"
    if form == "parquet":
        pq.write_table(table, aside, row_group_size=7)
    elif form == "csv":
        csv.write_csv(table, aside)
    elif form == "jsonl":
        aside.write_text("".join(f"{json.dumps(each)}\n" for each in table.to_pylist()))
    else:
        feather.write_feather(table, aside)
    aside.rename(directory / f"part-{number:05}.{form}")


def connector(directory, **options):
    given = {each.name: each.default for each in FilesSource.options}
    settings = Settings({**given, "path": str(directory), "settle": 0.0, **options})
    return FilesSource(
        settings, Target("s", "source", Schema.of(id="BIGINT NOT NULL", v="VARCHAR"))
    )


def rows_of(delivery):
    return [tuple(each.values()) for each in delivery.rows.to_pylist()] if delivery.rows else []


# ---- the source


@pytest.mark.crash
def test_a_directory_is_followed(tmp_path):
    directory = tmp_path / "in"
    directory.mkdir()
    made = iter(range(10_000))

    def produce(numbers):
        for start in range(numbers.start, numbers.stop, 5):
            write(directory, next(made), list(range(start, min(start + 5, numbers.stop))))

    check_source(
        SourceScenario(
            create=f"CREATE SOURCE s {SCHEMA} WITH (connector = 'files', path = '{directory}', "
            "poll_interval = '50 milliseconds', settle = '0 seconds')",
            name="s",
            produce=produce,
            row=lambda number: (number, f"v{number}"),
            poison=lambda: put(directory, f"x{next(made)}.csv", b"id,v\nno,x\n"),
        ),
        tmp_path / "db",
    )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow", "csv.gz"])
def test_it_goes_on_within_a_large_file(tmp_path, form):
    count = 200_000
    table = pa.table({"id": range(count), "v": [f"v{n}" for n in range(count)]})
    with ms.open() as db:
        db.execute(f"CREATE SOURCE t {SCHEMA}")
        db.insert("t", table)
        db.execute(f"COPY t TO '{tmp_path}/big.{form}'")
    position, found = None, []
    while len(found) < count:
        reader = connector(tmp_path).open(json.loads(json.dumps(position)))
        delivery = reader.read(0.0)
        reader.close()
        found += rows_of(delivery)
        position = delivery.position
    assert found == [(n, f"v{n}") for n in range(count)]
    reader = connector(tmp_path).open(position)
    last = reader.read(0.0)
    assert last is None or not rows_of(last)
    assert reader.read(0.0) is None


def test_bad_rows_are_rejected_with_their_lines(tmp_path):
    put(tmp_path, "a.csv", b'id,v\n1,"x\ny"\nno,z\n3,\n4,p,q\n5,\xff\n6,s\n')
    put(tmp_path, "b.jsonl", b'{"id": 7}\n{"id": 8\n{"id": null}\n\n{"id": 9, "v": "w"}\n')
    delivery = connector(tmp_path).open(None).read(0.0)
    assert rows_of(delivery) == [(1, "x\ny"), (3, None), (6, "s"), (7, None), (9, "w")]
    origins = [each.origin for each in delivery.rejected]
    assert origins == ["a.csv:4", "a.csv:6", "a.csv:7", "b.jsonl:2", "b.jsonl:3"]
    assert delivery.rejected[0].payload == b"no,z"
    assert "BIGINT" in delivery.rejected[0].reason


def test_a_file_is_taken_when_it_is_complete(tmp_path):
    reader = connector(tmp_path, settle=0.2, poll_interval=0.02).open(None)
    for name in (".a.csv", "_b.csv", "c.csv.tmp", "d.txt"):
        (tmp_path / name).write_text("id,v\n1,x\n")
    with (tmp_path / "e.csv").open("w") as file:
        for line in ("id,v\n", "1,a\n", "2,b\n", "3,c\n"):
            file.write(line)
            file.flush()
            assert reader.read(0.05) is None
    found = wait_until(lambda: reader.read(0.1), "the file")
    assert rows_of(found) == [(1, "a"), (2, "b"), (3, "c")]


def test_patterns_and_old_files(tmp_path):
    for name in ("2026/a-1.csv", "2026/b-1.csv", "2025/x/a-2.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("id,v\n" + name[-5] + ",x\n")
    assert rows_of(connector(tmp_path / "*" / "a-*.csv").open(None).read(0.0)) == [(1, "x")]
    found = rows_of(connector(tmp_path / "**" / "a-?.csv").open(None).read(0.0))
    assert sorted(found) == [(1, "x"), (2, "x")]
    new, old = tmp_path / "2026" / "a-1.csv", tmp_path / "2026" / "b-1.csv"
    os.utime(new, (time.time(), time.time()))
    os.utime(old, (1, 1))
    reader = connector(tmp_path / "2026", max_age=60.0, poll_interval=0.0).open(None)
    position = reader.read(0.0).position
    assert list(position["recent"]) == ["a-1.csv"]
    (tmp_path / "2026" / "b-2.csv").write_text("id,v\n5,late\n")
    os.utime(tmp_path / "2026" / "b-2.csv", (2, 2))
    assert connector(tmp_path / "2026", max_age=60.0).open(position).read(0.0) is None


def test_files_that_change_or_go(tmp_path):
    rows = "".join(f"{n},{'x' * 40}\n" for n in range(200_000))
    put(tmp_path, "a.csv", f"id,v\n{rows}".encode())
    position = connector(tmp_path).open(None).read(0.0).position
    put(tmp_path, "a.csv", f"id,v\n{rows}9,y\n".encode())
    with pytest.raises(ConnectorFailedError, match="has changed while"):
        connector(tmp_path).open(position).read(0.0)
    (tmp_path / "a.csv").unlink()
    with pytest.raises(ConnectorFailedError, match=r"a\.csv is gone"):
        connector(tmp_path).open(position).read(0.0)


def test_a_file_that_cannot_be_read(tmp_path):
    put(tmp_path, "a.parquet", b"PAR1 and no end")
    put(tmp_path, "b.csv", b"id,w\n1,x\n")
    put(tmp_path, "c.csv", b"id,v\n1,x\n")
    with pytest.raises(ConnectorFailedError, match="cannot be read as parquet") as raised:
        connector(tmp_path).open(None).read(0.0)
    assert "on_bad_file = 'skip'" in raised.value.hint
    delivery = connector(tmp_path, on_bad_file="skip").open(None).read(0.0)
    assert rows_of(delivery) == [(1, "x")]
    assert [each.origin for each in delivery.rejected] == ["a.parquet", "b.csv"]


def test_columns_are_found(tmp_path):
    put(tmp_path, "a.csv", b"id,price,at\n1,2.5,2026-01-31 12:00:00\n")
    with ms.open() as db:
        sql = "CREATE SOURCE s WITH (connector = 'files', path = '{}', settle = '0 seconds')"
        with pytest.raises(ConnectorFailedError, match="no file"):
            db.execute(sql.format(tmp_path / "none"))
        with pytest.raises(SqlOptionError, match="there is no option setle"):
            db.execute(sql.format(tmp_path).replace("settle", "setle"))
        with pytest.raises(InvalidOptionError, match="is a file"):
            db.execute(sql.format(tmp_path / "a.csv"))
        db.execute(sql.format(tmp_path))
        assert db.schema("s").ddl == "id BIGINT, price DOUBLE, at TIMESTAMP"
        wait_until(lambda: len(db.query("SELECT * FROM s")) == 1, "the row")
        put(tmp_path, "b.csv", b"id,price\n2,3\nx,4\n")
        wait_until(lambda: len(db.query("SELECT * FROM s_dead_letters")) == 1, "the dead letter")
        assert db.query("SELECT id, price FROM s").fetchall() == [(1, 2.5), (2, 3.0)]


# ---- the sink


def files(directory):
    return sorted(each for each in Path(directory).iterdir() if each.name[0] not in "._")


@pytest.mark.crash
def test_a_directory_is_written(tmp_path):
    directory = tmp_path / "out"

    def stored():
        found = files(directory) if directory.exists() else []
        if not found:
            return []
        table = ds.dataset([str(each) for each in found], format="parquet").to_table()
        return replayed(table)

    check_sink(
        SinkScenario(
            create=f"CREATE SINK k FROM items WITH (connector = 'files', path = '{directory}', "
            "mode = 'changelog', roll_interval = '20 milliseconds')",
            name="k",
            stored=stored,
        ),
        tmp_path / "db",
    )
    tokens = [each.name.split("-", 2)[2] for each in files(directory)]
    assert len(tokens) == len(set(tokens)) > 3


def test_files_are_rolled_by_size(tmp_path):
    with ms.open() as db:
        db.execute(f"CREATE SOURCE s {SCHEMA}")
        db.execute(
            f"CREATE SINK k FROM s WITH (connector = 'files', path = '{tmp_path}', "
            "format = 'csv', roll_size = '1 KB', roll_interval = '1 hour')"
        )
        for first in range(0, 1000, 100):
            db.insert("s", [(n, "x" * 20) for n in range(first, first + 100)])
            db.flush()

        def lines():
            texts = [each.read_text() for each in files(tmp_path)]
            return [line for each in texts for line in each.splitlines()[1:]]

        wait_until(lambda: len(lines()) >= 1000, "all rows")
        assert [int(line.partition(",")[0]) for line in lines()] == list(range(1000))
        assert len(files(tmp_path)) > 1


def test_changes_as_they_are(tmp_path):
    with ms.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        db.execute("INSERT INTO t VALUES (1, 'a')")
        sql = (
            f"CREATE SINK k FROM t WITH (connector = 'files', path = '{tmp_path}', mode = 'append')"
        )
        with pytest.raises(InvalidOptionError, match="change or disappear"):
            db.execute(sql)
        db.execute(sql.replace("mode = 'append'", "format = 'json', roll_interval = '1 hour'"))
        wait_until(lambda: db.query("SHOW CONNECTORS").to_pylist()[0]["state"] == "running", "it")
        db.execute("UPDATE t SET v = 'b' WHERE id = 1")
        db.execute("DELETE FROM t WHERE id = 1")
        work = engine_of(db).connections["k"].work
        wait_until(lambda: work._held_rows == 4, "all changes")  # two of the update
    found = [json.loads(each) for file in files(tmp_path) for each in file.read_text().splitlines()]
    assert [(each["_op"], each["_weight"], each["v"]) for each in found] == [
        ("insert", 1, "a"),
        ("update", -1, "a"),
        ("update", 1, "b"),
        ("delete", -1, "b"),
    ]


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with ms.open() as db:
        db.execute(f"CREATE SOURCE s {SCHEMA}")
        with pytest.raises(FileAccessError, match="cannot write in"):
            db.execute(
                f"CREATE SINK k FROM s WITH (connector = 'files', path = '{tmp_path}/file/x')"
            )


@pytest.mark.parametrize("delimiter", ['"', "", ";;"])
def test_a_delimiter_that_cannot_be_is_refused_at_create(tmp_path, delimiter):
    options = (
        f"(connector = 'files', path = '{tmp_path}', format = 'csv', delimiter = '{delimiter}')"
    )
    with ms.open() as db:
        db.execute("CREATE SOURCE t (id BIGINT)")
        for statement in ("CREATE SOURCE s (id BIGINT)", "CREATE SINK s FROM t"):
            with pytest.raises(InvalidOptionError, match="delimiter is") as caught:
                db.execute(f"{statement} WITH {options}")
            assert caught.value.hint

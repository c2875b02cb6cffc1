"""Tables and views that need no Spark, opened from saved rows and what the log has after them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pyarrow as pa
import pytest

import millstream as ms
from millstream.model import ResumeToken
from millstream.state.bags import Bag
from millstream.state.saved import SavedRows
from millstream.tables.table import Table
from millstream.testing import engine_of, wait_until
from millstream.views.saver import read_rows, write_rows


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / "x.rows"
    for saved in (
        SavedRows(7, 5, {"rows": pa.table({"k": [1]})}, "token"),
        SavedRows(8, 0, {}, ""),
    ):
        write_rows(path, saved)
        assert read_rows(path) == saved
    assert [each.name for each in path.parent.iterdir()] == ["x.rows"]
    assert read_rows(tmp_path / "none.rows") is None


MADE = """
    CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR);
    CREATE SOURCE s (k BIGINT);
    CREATE MATERIALIZED VIEW bag AS SELECT v FROM t WHERE k > 1;
    CREATE MATERIALIZED VIEW heap AS SELECT k FROM s WHERE k > 1;
    CREATE STREAM passed AS SELECT k FROM s WHERE k > 1
"""
NAMES = ("t", "bag", "heap", "passed")


def change(db, first, last):
    for n in range(first, last):
        db.execute(f"INSERT OR REPLACE INTO t VALUES ({n % 5}, 'v{n % 2}')")
        db.source("s").push((n,))
        if n % 3 == 0:
            db.execute(f"DELETE FROM t WHERE k = {n % 4}")
    db.flush()
    for name in NAMES[1:]:
        db.wait_for(name, timeout=60)


def shown(db):
    return {name: sorted(db.query(f"SELECT * FROM {name}").to_pylist(), key=str) for name in NAMES}


@pytest.fixture
def read(monkeypatch):
    """The batches that tables and bags were given."""
    counts = {Table: 0, Bag: 0}
    for kind, name, take in ((Table, "apply", Table.apply), (Bag, "load", Bag.load)):

        def counting(self, batch, kind=kind, take=take):
            counts[kind] += 1
            return take(self, batch)

        monkeypatch.setattr(kind, name, counting)
    return counts


@pytest.mark.parametrize("again", [0, 7])
def test_opened_from_saved_rows_and_the_end_of_the_log(tmp_path, read, again):
    path = tmp_path / "db"
    with ms.open(path) as db:
        db.execute(MADE)
        change(db, 0, 30)
        engine_of(db).saver.save(0, 0)
        change(db, 30, 30 + again)
        wanted = shown(db)
    read.update({Table: 0, Bag: 0})
    with ms.open(path) as db:
        assert shown(db) == wanted
        assert read[Table] <= 2 * again
        assert read[Bag] <= 2 * again + 1  # what was saved is one
        change(db, 40, 50)
        wanted = shown(db)
    (tmp_path / "db" / "rows").rename(tmp_path / "elsewhere")
    with ms.open(path) as db:  # the log alone says the same
        assert shown(db) == wanted


def test_saved_rows_of_other_columns_or_damaged_are_ignored(tmp_path):
    path = tmp_path / "db"
    with ms.open(path) as db:
        db.execute(MADE)
        change(db, 0, 30)
        engine_of(db).saver.save(0, 0)
        wanted = shown(db)
        db.execute("ALTER TABLE t ADD COLUMN more BIGINT")
    files = sorted((path / "rows").iterdir())
    assert len(files) == 3  # append-only rows are in the log itself
    with ms.open(path) as db:
        found = shown(db)
        for row in found["t"]:
            assert row.pop("more") is None
        assert found == wanted
    for file in files:
        file.write_bytes(b"MSR1")
    with ms.open(path) as db:
        assert shown(db)["bag"] == wanted["bag"]


def test_saved_rows_of_another_epoch_or_database_are_ignored(tmp_path):
    for name in ("one", "other"):
        with ms.open(tmp_path / name) as db:
            db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
            db.execute(f"INSERT INTO t VALUES ({len(name)})")
            engine_of(db).saver.save(0, 0)
    [one], [other] = (list((tmp_path / name / "rows").iterdir()) for name in ("one", "other"))
    saved = read_rows(one)
    shutil.copy(other, one)
    with ms.open(tmp_path / "one") as db:
        assert db.query("SELECT k FROM t").fetchall() == [(3,)]
    token = ResumeToken.parse(saved.token)  # of an epoch that is yet to come
    write_rows(one, replace(saved, token=str(replace(token, epoch=token.epoch + (1 << 40)))))
    with ms.open(tmp_path / "one") as db:
        assert db.query("SELECT k FROM t").fetchall() == [(3,)]


def test_saved_rows_are_removed_with_their_table_or_view(tmp_path):
    path = tmp_path / "db"
    with ms.open(path) as db:
        db.execute(MADE)
        change(db, 0, 30)
        engine_of(db).saver.save(0, 0)
        db.execute("DROP VIEW bag")
        db.execute("DROP TABLE t")
        assert len(list((path / "rows").iterdir())) == 1
        (path / "rows" / "0123-7.rows").write_bytes(b"left by a crash")
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR)")
        assert db.query("SELECT * FROM t").to_pylist() == []
    with ms.open(path) as db:
        assert db.query("SELECT * FROM t").to_pylist() == []
        assert len(list((path / "rows").iterdir())) == 1


def test_a_stream_whose_log_was_trimmed_since(tmp_path):
    path = tmp_path / "db"
    with ms.open(path, segment_bytes=1, retention_interval=0.01) as db:
        db.execute("CREATE SOURCE s (k BIGINT)")
        db.execute("CREATE STREAM p WITH (retention_bytes = 1) AS SELECT k FROM s WHERE k >= 0")
        db.source("s").push((0,))
        db.wait_for("p", timeout=60)
        engine_of(db).saver.save(0, 0)
        saved = engine_of(db).log.lsn
        for n in range(1, 30):
            db.source("s").push((n,))
            db.flush()
        db.wait_for("p", timeout=60)
        wait_until(lambda: engine_of(db).log.topic("p").low_lsn > saved + 1)
    seen = []
    with ms.open(path) as db:
        db.subscribe_callback("SELECT * FROM p", lambda batch: seen.extend(batch.rows))
        db.source("s").push((30,))
        wait_until(lambda: seen)
    assert seen == [(30,)]


def test_saved_by_itself_when_much_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("millstream.views.saver.MANY", 20)
    with ms.open(tmp_path / "db") as db:
        db.execute(MADE)
        change(db, 0, 60)
        wait_until(lambda: len(list((tmp_path / "db" / "rows").glob("*.rows"))) == 3)


def test_saved_at_the_end_when_some_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("millstream.views.saver.SOME", 20)
    with ms.open(tmp_path / "db") as db:
        db.execute(MADE)
        change(db, 0, 30)
    assert len(list((tmp_path / "db" / "rows").glob("*.rows"))) == 3

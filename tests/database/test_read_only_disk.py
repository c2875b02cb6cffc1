"""A disk that turns read-only while the database is open, and one that is when it is opened."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest

import millstream as ms
from millstream import errors
from millstream.dispatch import loop
from millstream.log import lifecycle, storage
from millstream.testing import TIMEOUT, Background, engine_of, wait_until

from ..disks import fragile, mounted  # noqa: TID252 - tests have no name


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Try again at once."""
    monkeypatch.setattr(loop, "_RETRY", 0.01)
    monkeypatch.setattr(lifecycle, "RETRY", 0.01)


def promptly(function, *args, **options):
    return Background(function, *args, **options).result()


def numbers(db, source):
    return [n for (n,) in promptly(db.query, f"SELECT n FROM {source}").fetchall()]


def opened(path):
    db = ms.open(path)
    db.execute(
        "CREATE SOURCE a (n BIGINT);"
        "CREATE SOURCE y (n BIGINT) WITH (wal_mode = 'sync');"
        "CREATE TABLE t (id BIGINT PRIMARY KEY)"
    )
    db.insert("t", [(1,)])
    db.insert("a", [(0,)])
    db.source("y").push((0,))
    db.flush()
    return db


def check_what_works(db, error):
    """Reads work; everything that writes is refused at once."""
    assert numbers(db, "y") == [0]
    assert numbers(db, "a")[0] == 0
    assert promptly(db.query, "SELECT * FROM t").fetchall() == [(1,)]
    assert promptly(db.subscribe, "SELECT * FROM t").recv(TIMEOUT).rows == [(1,)]
    assert len(promptly(db.execute, "SHOW CHANGES FOR y")) == 1
    with pytest.raises(error) as caught:
        promptly(db.source("y").push, (1,))
    assert caught.value.hint
    for sql in ("INSERT INTO t VALUES (2)", "CREATE SOURCE z (n BIGINT)", "DROP SOURCE y"):
        with pytest.raises(error):
            promptly(db.execute, sql)
    for flush in (db.flush, db.source("a").flush):
        with pytest.raises(error):
            promptly(flush)


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EROFS, errors.LogReadOnlyError), (errno.EIO, errors.LogError)],
    ids=["EROFS", "EIO"],
)
def test_writes_that_fail_for_a_while(tmp_path, monkeypatch, number, error):
    """What cannot be had for real: a disk that is read-only, and then is not, under open files."""
    db = opened(tmp_path)
    got = db.subscribe("SELECT n FROM a")

    def fail(*args):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "pwritev", fail)  # type: ignore[attr-defined]
        pushed = 0
        while engine_of(db).dispatcher.inlets.stalled is None:
            pushed += 1
            db.source("a").push((pushed,))
            engine_of(db).dispatcher.barrier()
        check_what_works(db, error)
        pushed += 1
        db.source("a").push((pushed,))
    wait_until(lambda: engine_of(db).dispatcher.inlets.stalled is None)
    db.flush()
    assert numbers(db, "a") == list(range(pushed + 1))
    seen = []
    while len(seen) < pushed:
        seen += [n for (n,) in got.recv(TIMEOUT).rows]
    assert seen == list(range(1, pushed + 1))
    db.source("y").push((1,))
    db.close()
    with ms.open(tmp_path) as db:
        assert engine_of(db).log.recovery.clean
        assert numbers(db, "a") == list(range(pushed + 1))
        assert numbers(db, "y") == [0, 1]


@pytest.mark.slow
def test_a_disk_that_turns_read_only(tmp_path):
    with fragile(tmp_path / "disk", tmp_path / "image") as disk:
        db = opened(disk.path / "db")
        disk.turn_read_only()
        pushed = 0
        while engine_of(db).dispatcher.inlets.stalled is None:
            pushed += 1
            db.source("a").push((pushed,))
            engine_of(db).dispatcher.barrier()
        check_what_works(db, errors.LogReadOnlyError)
        with pytest.raises(errors.LogReadOnlyError) as caught:
            promptly(db.close)
        assert caught.value.rows_lost == pushed
        assert f"{pushed} row" in str(caught.value)
        with pytest.raises(errors.LogReadOnlyError):
            ms.open(disk.path / "db")
        disk.repair()
        with ms.open(disk.path / "db") as db:
            assert numbers(db, "y") == [0]
            assert numbers(db, "a") == [0]
            db.source("y").push((1,))
            assert numbers(db, "y") == [0, 1]


def test_a_read_only_file_system_is_said_at_open(tmp_path):
    with mounted(tmp_path / "disk", "8m") as disk:
        opened(disk.path / "db").close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        for path in (disk.path / "db", disk.path / "new"):
            with pytest.raises(errors.LogReadOnlyError, match="Read-only file system") as caught:
                ms.open(path)
            assert str(path) in str(caught.value)
            assert "mount" in caught.value.hint
        subprocess.run(["mount", "-o", "remount,rw", str(disk.path)], check=True)
        with ms.open(disk.path / "db") as db:
            assert numbers(db, "y") == [0]

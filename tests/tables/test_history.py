"""The history of a table: how much is kept of it, and who can do without the rest."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import (
    InUseError,
    LogCorruptError,
    LsnNotKeptError,
    SqlOptionError,
    ViewFailedError,
)
from millstream.testing import TIMEOUT, engine_of

MADE = "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT) WITH (retention_bytes = 2000)"


def opened(path, **options):
    return ms.open(path, segment_bytes=4000, **options)


def rows(db, sql="SELECT * FROM t"):
    return sorted(db.query(sql).fetchall())


def change(db, first, last, keys=10):
    for n in range(first, last):
        db.execute(f"INSERT OR REPLACE INTO t VALUES ({n % keys}, {n})")
        if n % 7 == 0:
            db.execute("DELETE FROM t WHERE k = ?", [n % 3])
    db.flush()


def compact(db):
    """Save the rows, and let retention take what they make superfluous."""
    engine = engine_of(db)
    engine.saver.save(0, 0)
    engine.log.retain()


def low_lsn(db):
    return engine_of(db).log.topic("t").low_lsn


def disk(db):
    """How many bytes the log has of the table."""
    log = engine_of(db).log
    number = log.topic("t").id
    extents = [each.index.extents for _, each in log._files.open_all(log._segments)]
    return sum(each[number].size for each in extents if number in each)


@pytest.fixture
def path(tmp_path):
    """A table whose log begins long after it was created; and its rows."""
    path = tmp_path / "db"
    with opened(path) as db:
        db.execute(MADE)
        for n in range(4):
            change(db, 60 * n, 60 * n + 60)
            compact(db)
        assert low_lsn(db) > 1
        wanted = rows(db)
    return path, wanted


def files(path):
    return sorted([*path.glob("rows/*.rows"), *path.glob("rows/*.before")])


class TestOpening:
    def test_current_rows_are_kept(self, path):
        path, wanted = path
        with opened(path) as db:
            assert rows(db) == wanted
            change(db, 300, 330)
            wanted = rows(db)
        with opened(path) as db:
            assert rows(db) == wanted

    def test_the_log_stays_small(self, tmp_path):
        sizes = {}
        for keep in ("retention_bytes = 2000", "retention = 'forever'"):
            path = tmp_path / keep.split()[0]
            with opened(path) as db:
                db.execute(MADE.replace("retention_bytes = 2000", keep))
                for n in range(8):
                    change(db, 50 * n, 50 * n + 50)
                    compact(db)
                sizes[keep] = disk(db)
        bounded, everything = sizes.values()
        assert bounded < everything / 3

    @pytest.mark.parametrize("how", ["flip", "cut", "remove", "empty"])
    @pytest.mark.parametrize("which", [0, 1])
    def test_one_file_of_saved_rows_may_be_lost(self, path, which, how):
        path, wanted = path
        assert [each.suffix for each in files(path)] == [".before", ".rows"]
        harm(files(path)[which], how)
        with opened(path) as db:
            assert rows(db) == wanted
            change(db, 300, 310)
            compact(db)
            wanted = rows(db)
        with opened(path) as db:
            assert rows(db) == wanted

    @pytest.mark.parametrize("how", ["flip", "remove"])
    def test_without_any_it_is_an_error_and_no_empty_table(self, path, how):
        path, _ = path
        for each in files(path):
            harm(each, how)
        with opened(path) as db:
            for statement in ("SELECT * FROM t", "SELECT COUNT(*) FROM t", "DELETE FROM t"):
                with pytest.raises(LogCorruptError, match="saved rows") as refused:
                    db.execute(statement)
                assert "SKIP DAMAGE" in refused.value.hint
            with pytest.raises(LogCorruptError):
                db.execute("INSERT INTO t VALUES (1, 1)")
            [shown] = db.query("SHOW TABLES").to_pylist()
            assert shown["state"] == "damaged"
            first = low_lsn(db)
            engine_of(db).log.retain()
            assert low_lsn(db) == first  # nothing more is taken of it
            with pytest.raises(ViewFailedError):
                db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
                db.wait_for("v", timeout=TIMEOUT)
            with pytest.raises(InUseError):
                db.execute("ALTER TABLE t SKIP DAMAGE")
            db.execute("DROP VIEW v")
            assert db.execute("ALTER TABLE t SKIP DAMAGE").fetchall()
            left = rows(db)
            change(db, 400, 410)
            compact(db)
            wanted = rows(db)
        assert left
        with opened(path) as db:
            assert rows(db) == wanted

    def test_columns_may_be_added(self, path):
        path, wanted = path
        with opened(path) as db:
            db.execute("ALTER TABLE t ADD COLUMN w VARCHAR")
            wanted = [(*row, None) for row in wanted]
            assert rows(db) == wanted
        with opened(path) as db:
            assert rows(db) == wanted

    def test_what_cannot_be_read_is_not_taken(self, path, monkeypatch):
        """Another release may be able to."""
        path, wanted = path
        before = {each: each.read_bytes() for each in files(path)}
        with monkeypatch.context() as patch:
            patch.setattr("millstream.catalog.catalog._from_json", lambda *_: json.loads("{"))
            with opened(path) as db:
                engine_of(db).log.retain()
        assert {each: each.read_bytes() for each in files(path)} == before
        with opened(path) as db:
            assert rows(db) == wanted


def harm(file, how):
    if how == "remove":
        file.unlink()
        return
    data = bytearray(file.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
    file.write_bytes(data[: len(data) // 2] if how == "cut" else b"" if how == "empty" else data)


CRASH = """
import sys
import millstream as ms
from millstream.testing import engine_of
with ms.open(sys.argv[1], segment_bytes=4000, retention_interval=0.001) as db:
    for n in range(int(sys.argv[2]), 1 << 40):
        db.execute(f"INSERT OR REPLACE INTO t VALUES ({n % 10}, {n})")
        if n % 5 == 0:
            engine_of(db).saver.save(0, 0)
        if n % 3 == 0:
            db.flush()
            print(n, flush=True)
"""


def test_killed_while_it_is_saved_and_trimmed(tmp_path):
    """Processes that save and trim all the time are killed; nothing that was flushed is lost."""
    path, rng, last = tmp_path / "db", random.Random(3), -1
    with opened(path) as db:
        db.execute(MADE)
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CRASH, str(path), str(last + 1)], stdout=subprocess.PIPE
        )
        for _ in range(rng.randrange(5, 60)):
            last = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        flushed = [last, *map(int, child.stdout.read().split())][-1]
        child.wait()
        child.stdout.close()
        with opened(path) as db:
            found = dict(rows(db))
            last = max(found.values())
            assert last >= flushed
            assert found == {n % 10: n for n in range(max(0, last - 9), last + 1)}
    with opened(path) as db:
        assert low_lsn(db) > 1


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["put", "drop", "save", "reopen", "harm"])),
    min_size=20,
    max_size=60,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.randoms(use_true_random=False))
def test_whatever_is_saved_trimmed_and_damaged(tmp_path, steps, rng):
    """At most one of the two files is damaged between two saves: the rows are always there."""
    path = tmp_path / "db"
    shutil.rmtree(path, ignore_errors=True)
    known, is_harmed = {}, False
    db = ms.open(path, segment_bytes=600)
    try:
        db.execute(MADE.replace("2000", "1"))
        for n, (key, what) in enumerate(steps):
            if what == "put":
                db.insert("t", [(key, n)], replace=True)
                known[key] = n
            elif what == "drop":
                db.execute("DELETE FROM t WHERE k = ?", [key])
                known.pop(key, None)
            elif what == "save":
                written = engine_of(db).tables.get("t").written
                compact(db)
                is_harmed = is_harmed and written == 0
            else:
                db.close()
                if what == "harm" and not is_harmed and files(path):
                    harm(rng.choice(files(path)), rng.choice(["flip", "cut", "remove"]))
                    is_harmed = True
                db = ms.open(path, segment_bytes=600)
            assert dict(rows(db)) == known
    finally:
        db.close()


class TestReaders:
    def test_the_past_as_far_as_it_is_kept(self, tmp_path):
        with opened(tmp_path) as db:
            db.execute(MADE)
            past = {}
            for n in range(0, 200, 5):
                change(db, n, n + 5)
                past[db.lsn] = rows(db)
                if n % 50 == 0:
                    compact(db)
            first = low_lsn(db)
            assert sum(lsn >= first for lsn in past) > 5
            for lsn, wanted in past.items():
                if lsn >= first:
                    assert rows(db, f"SELECT * FROM t AS OF {lsn}") == wanted
                else:
                    with pytest.raises(LsnNotKeptError) as refused:
                        rows(db, f"SELECT * FROM t AS OF {lsn}")
                    assert refused.value.hint
            lsn = max(past) - 3
            with db.subscribe("SELECT * FROM t", start=lsn) as subscription:
                copy = {}
                while subscription.position < db.lsn:
                    for each in subscription.recv(TIMEOUT):
                        if each.op == "delete":
                            del copy[each.row[0]]
                        else:
                            copy[each.row[0]] = each.row
            assert sorted(copy.values()) == rows(db)

    def test_earliest_is_all_that_is_kept_on_the_rows_before_it(self, tmp_path):
        with opened(tmp_path) as db:
            db.execute(MADE)
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            with db.subscribe("SELECT * FROM t", start="earliest") as subscription:
                first = subscription.recv(TIMEOUT)
                assert first.kind == "snapshot"
                assert first.gap.last_lsn == low_lsn(db) - 1
                copy = {row[0]: row for row in first.rows}
                while subscription.position < db.lsn:
                    for each in subscription.recv(TIMEOUT):
                        if each.op == "delete":
                            assert copy.pop(each.row[0]) == each.row
                        else:
                            copy[each.row[0]] = each.row
            assert sorted(copy.values()) == rows(db)

    def test_a_token_that_is_too_old_begins_anew(self, tmp_path):
        with opened(tmp_path) as db:
            db.execute(MADE)
            with db.subscribe("SELECT * FROM t") as subscription:
                change(db, 0, 1)
                while (batch := subscription.recv(TIMEOUT)).kind != "changes":
                    pass
                token = batch.token
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            with db.subscribe("SELECT * FROM t", start=token) as subscription:
                batch = subscription.recv(TIMEOUT)
            assert (batch.kind, sorted(batch.rows)) == ("snapshot", rows(db))
            assert batch.gap is not None

    def test_what_a_durable_subscription_has_not_read_is_kept(self, tmp_path):
        with opened(tmp_path) as db:
            db.execute(MADE)
            change(db, 0, 10)
            with db.subscribe("SELECT v FROM t", name="d", start="now") as durable:
                db.insert("t", [(100, 1000)])
                durable.ack(durable.recv(TIMEOUT))
            at = db.lsn
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            assert low_lsn(db) <= at + 1
            with db.subscribe("SELECT v FROM t", name="d") as durable:
                first = durable.recv(TIMEOUT)
            assert (first.kind, first.gap) == ("changes", None)

    def test_a_view_begins_with_the_rows_and_goes_on(self, tmp_path):
        sql = "SELECT k, v FROM t WHERE v % 2 = 0"
        with opened(tmp_path) as db:
            db.execute(MADE)
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            db.execute(f"CREATE MATERIALIZED VIEW v AS {sql}")
            db.wait_for("v", timeout=TIMEOUT)
            assert rows(db, "SELECT * FROM v") == rows(db, sql)
            change(db, 300, 360)
            compact(db)
        with opened(tmp_path) as db:
            change(db, 360, 365)
            db.wait_for("v", lsn=db.lsn, timeout=TIMEOUT)
            assert rows(db, "SELECT * FROM v") == rows(db, sql)


class TestOptions:
    def test_are_shown_again(self, tmp_path):
        with ms.open(tmp_path) as db:
            for name, options in (
                ("a", "retention = 'forever'"),
                ("b", "retention = '2 days', retention_bytes = 1000"),
                ("c", ""),
            ):
                tail = f" WITH ({options})" if options else ""
                db.execute(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY){tail}")
        with ms.open(tmp_path) as db:
            log = engine_of(db).log
            assert log.topic("a").retention.max_bytes is None
            assert log.topic("b").retention == ms.Retention(172800.0, 1000)
            assert log.topic("c").retention.max_bytes == 64 << 20
            assert "retention = 'forever'" in str(db.query("SHOW CREATE a").fetchall())
            with pytest.raises(SqlOptionError, match="retention"):
                db.execute("CREATE TABLE d (k BIGINT PRIMARY KEY) WITH (retention = 'never')")

    def test_forever_keeps_all(self, tmp_path):
        with opened(tmp_path) as db:
            db.execute(MADE.replace("retention_bytes = 2000", "retention = 'forever'"))
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            assert low_lsn(db) == 0

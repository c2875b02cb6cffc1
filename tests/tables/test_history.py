"""The history of tables and of views over them: how much is kept, and who can do without the rest.

The views need no Spark: they have the rows of the table.
"""

from __future__ import annotations

import hashlib
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
VIEW = "CREATE MATERIALIZED VIEW v WITH (retention_bytes = 2000) AS SELECT k, v FROM t"


def opened(path, **options):
    return ms.open(path, segment_bytes=4000, **options)


@pytest.fixture(params=["t", "v"])
def name(request):
    """A table, and a view of its rows."""
    return request.param


def made(db, keep="retention_bytes = 2000"):
    """Both of them."""
    for each in (MADE, VIEW):
        db.execute(each.replace("retention_bytes = 2000", keep))


def rows(db, sql="SELECT * FROM t"):
    if engine_of(db).views.get("v") is not None:
        db.wait_for("v", lsn=db.lsn, timeout=TIMEOUT)
    return sorted(db.query(sql).fetchall())


def change(db, first, last, keys=10):
    for n in range(first, last):
        db.execute(f"INSERT OR REPLACE INTO t VALUES ({n % keys}, {n})")
        if n % 7 == 0:
            db.execute("DELETE FROM t WHERE k = ?", [n % 3])
    db.flush()
    rows(db)


def compact(db):
    """Save the rows, and let retention take what they make superfluous."""
    engine = engine_of(db)
    engine.saver.save(0, 0)
    engine.log.retain()


def low_lsn(db, name="t"):
    return engine_of(db).log.topic(name).low_lsn


def last_lsn(db, name):
    """The LSN of its last change."""
    engine = engine_of(db)
    return engine.tables.get("t").lsn if name == "t" else engine.views["v"].view.lsn


def disk(db, name):
    """How many bytes the log has of it."""
    log = engine_of(db).log
    number = log.topic(name).id
    extents = [each.index.extents for _, each in log._files.open_all(log._segments)]
    return sum(each[number].size for each in extents if number in each)


@pytest.fixture
def path(tmp_path):
    """A table and a view whose logs begin long after they were created; and their rows."""
    path = tmp_path / "db"
    with opened(path) as db:
        made(db)
        for n in range(4):
            change(db, 60 * n, 60 * n + 60)
            compact(db)
        assert min(low_lsn(db, "t"), low_lsn(db, "v")) > 1
        wanted = rows(db)
    return path, wanted


def files(path, name="t"):
    """Its saved rows, the older ones first."""
    prefix = hashlib.sha256(name.encode()).hexdigest()[:12]
    return sorted(path.glob(f"rows/{prefix}-*"))


class TestOpening:
    def test_current_rows_are_kept(self, path):
        path, wanted = path
        with opened(path) as db:
            assert rows(db) == rows(db, "SELECT * FROM v") == wanted
            change(db, 300, 330)
            wanted = rows(db)
        with opened(path) as db:
            assert rows(db) == rows(db, "SELECT * FROM v") == wanted

    def test_the_log_stays_small(self, tmp_path):
        sizes = {}
        for keep in ("retention_bytes = 2000", "retention = 'forever'"):
            path = tmp_path / keep.split()[0]
            with opened(path) as db:
                made(db, keep)
                for n in range(8):
                    change(db, 50 * n, 50 * n + 50)
                    compact(db)
                sizes[keep] = [disk(db, name) for name in ("t", "v")]
        for bounded, everything in zip(*sizes.values(), strict=True):
            assert bounded < everything / 3

    @pytest.mark.parametrize("how", ["flip", "cut", "remove", "empty"])
    @pytest.mark.parametrize("which", [0, 1])
    def test_one_file_of_saved_rows_may_be_lost(self, path, which, how):
        path, wanted = path
        for name in ("t", "v"):
            assert [each.suffix for each in files(path, name)] == [".before", ".rows"]
            harm(files(path, name)[which], how)
        with opened(path) as db:
            assert rows(db) == rows(db, "SELECT * FROM v") == wanted
            change(db, 300, 310)
            compact(db)
            wanted = rows(db)
        with opened(path) as db:
            assert rows(db) == rows(db, "SELECT * FROM v") == wanted

    @pytest.mark.parametrize("how", ["flip", "remove"])
    def test_without_any_it_is_an_error_and_no_empty_table(self, path, how):
        path, _ = path
        with opened(path) as db:
            db.execute("DROP VIEW v")
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

    @pytest.mark.parametrize("how", ["flip", "remove"])
    def test_without_any_it_is_a_view_that_failed(self, path, how):
        path, wanted = path
        for each in files(path, "v"):
            harm(each, how)
        with opened(path) as db:
            for statement in ("SELECT * FROM v", "SELECT COUNT(*) FROM v"):
                with pytest.raises(ViewFailedError, match="saved rows") as refused:
                    db.query(statement)
                assert "CREATE OR REPLACE" in refused.value.hint
            first = low_lsn(db, "v")
            for n in range(300, 400):
                db.insert("t", [(n % 10, n)], replace=True)
            engine_of(db).log.retain()
            assert low_lsn(db, "v") == first  # nothing more is taken of it
            db.execute(VIEW.replace("CREATE", "CREATE OR REPLACE"))
            assert rows(db, "SELECT * FROM v") == rows(db)
            change(db, 400, 410)
            compact(db)
            wanted = rows(db)
        with opened(path) as db:
            assert rows(db, "SELECT * FROM v") == wanted

    def test_a_view_that_cannot_be_opened_is_not_taken(self, path, monkeypatch):
        """Another release may be able to."""
        path, wanted = path
        with monkeypatch.context() as patch:
            patch.delattr("millstream.views.views.replan")
            with opened(path) as db:
                for n in range(300, 500):
                    db.insert("t", [(n % 10, n)], replace=True)
                engine_of(db).log.retain()
                wanted = sorted(db.query("SELECT * FROM t").fetchall())
        with opened(path) as db:
            assert rows(db, "SELECT * FROM v") == wanted

    def test_columns_may_be_added(self, path):
        path, wanted = path
        with opened(path) as db:
            db.execute("DROP VIEW v")
            db.execute("ALTER TABLE t ADD COLUMN w VARCHAR")
            wanted = [(*row, None) for row in wanted]
            assert rows(db) == wanted
        with opened(path) as db:
            assert rows(db) == wanted

    def test_what_cannot_be_read_is_not_taken(self, path, monkeypatch):
        """Another release may be able to."""
        path, wanted = path
        both = [*files(path), *files(path, "v")]
        before = {each: each.read_bytes() for each in both}
        with monkeypatch.context() as patch:
            patch.setattr("millstream.catalog.catalog._from_json", lambda *_: json.loads("{"))
            with opened(path) as db:
                engine_of(db).log.retain()
        assert {each: each.read_bytes() for each in both} == before
        with opened(path) as db:
            assert rows(db) == rows(db, "SELECT * FROM v") == wanted


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
            db.wait_for("v", timeout=60)
            engine_of(db).saver.save(0, 0)
        if n % 3 == 0:
            db.flush()
            print(n, flush=True)
"""


@pytest.mark.slow
def test_killed_while_it_is_saved_and_trimmed(tmp_path):
    """Processes that save and trim all the time are killed; nothing that was flushed is lost.

    Whatever of the saved rows it is that is lost with them.
    """
    path, rng, last = tmp_path / "db", random.Random(3), -1
    with opened(path) as db:
        made(db)
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
        for name in ("t", "v"):  # and one of the files is lost besides
            harm(rng.choice(files(path, name)), "remove")
        with opened(path) as db:
            found = dict(rows(db))
            assert found == dict(rows(db, "SELECT * FROM v"))
            last = max(found.values())
            assert last >= flushed
            assert found == {n % 10: n for n in range(max(0, last - 9), last + 1)}
    with opened(path) as db:
        assert low_lsn(db) > 1
        assert low_lsn(db, "v") > 1


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["put", "drop", "save", "reopen", "harm"])),
    min_size=20,
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.randoms(use_true_random=False))
def test_whatever_is_saved_trimmed_and_damaged(tmp_path, steps, rng):
    """At most one of the two files is damaged between two saves: the rows are always there."""
    path = tmp_path / "db"
    shutil.rmtree(path, ignore_errors=True)
    known, is_harmed = {}, False
    db = ms.open(path, segment_bytes=600)
    try:
        made(db, "retention_bytes = 1")
        for n, (key, what) in enumerate(steps):
            if what == "put":
                db.insert("t", [(key, n)], replace=True)
                known[key] = n
            elif what == "drop":
                db.execute("DELETE FROM t WHERE k = ?", [key])
                known.pop(key, None)
            elif what == "save":
                written = [*engine_of(db).saver._saved.values()]
                compact(db)
                is_harmed = is_harmed and not all(each.written for each, _ in written)
            else:
                db.close()
                for name in ("t", "v") if what == "harm" and not is_harmed else ():
                    if files(path, name):
                        harm(rng.choice(files(path, name)), rng.choice(["flip", "cut", "remove"]))
                        is_harmed = True
                db = ms.open(path, segment_bytes=600)
            assert dict(rows(db)) == dict(rows(db, "SELECT * FROM v")) == known
    finally:
        db.close()


class TestReaders:
    def test_the_past_as_far_as_it_is_kept(self, tmp_path, name):
        with opened(tmp_path) as db:
            made(db)
            past = {}
            for n in range(0, 200, 5):
                change(db, n, n + 5)
                past[db.lsn] = rows(db)
                if n % 50 == 0:
                    compact(db)
            first = max(low_lsn(db), low_lsn(db, "v"))
            assert sum(lsn >= first for lsn in past) > 5
            for lsn, wanted in past.items():
                if lsn >= first:
                    assert rows(db, f"SELECT * FROM {name} AS OF {lsn}") == wanted
                elif lsn < low_lsn(db):
                    with pytest.raises(LsnNotKeptError) as refused:
                        rows(db, f"SELECT * FROM {name} AS OF {lsn}")
                    assert refused.value.hint
            with pytest.raises(LsnNotKeptError):
                start = min(past)
                with db.subscribe(f"SELECT * FROM {name}", start=start) as subscription:
                    subscription.recv(TIMEOUT)
            lsn = last_lsn(db, name) - 3
            with db.subscribe(f"SELECT * FROM {name}", start=lsn) as subscription:
                copy = {}
                while subscription.position < last_lsn(db, name):
                    for each in subscription.recv(TIMEOUT):
                        if each.op == "delete":
                            del copy[each.row[0]]
                        else:
                            copy[each.row[0]] = each.row
            assert sorted(copy.values()) == rows(db)

    def test_earliest_is_all_that_is_kept_on_the_rows_before_it(self, tmp_path, name):
        with opened(tmp_path) as db:
            made(db)
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            with db.subscribe(f"SELECT * FROM {name}", start="earliest") as subscription:
                first = subscription.recv(TIMEOUT)
                assert first.kind == "snapshot"
                assert first.gap.last_lsn == low_lsn(db, name) - 1
                copy = {row[0]: row for row in first.rows}
                while subscription.position < last_lsn(db, name):
                    for each in subscription.recv(TIMEOUT):
                        if each.op == "delete":
                            assert copy.pop(each.row[0]) == each.row
                        else:
                            copy[each.row[0]] = each.row
            assert sorted(copy.values()) == rows(db)

    def test_a_token_that_is_too_old_begins_anew(self, tmp_path, name):
        with opened(tmp_path) as db:
            made(db)
            with db.subscribe(f"SELECT * FROM {name}") as subscription:
                assert subscription.recv(TIMEOUT).kind == "snapshot"  # which would have the change
                change(db, 0, 1)
                batch = subscription.recv(TIMEOUT)
                assert batch.kind == "changes"
                token = batch.token
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            with db.subscribe(f"SELECT * FROM {name}", start=token) as subscription:
                batch = subscription.recv(TIMEOUT)
            assert (batch.kind, sorted(batch.rows)) == ("snapshot", rows(db))
            assert batch.gap is not None

    def test_what_a_durable_subscription_has_not_read_is_kept(self, tmp_path, name):
        with opened(tmp_path) as db:
            made(db)
            change(db, 0, 10)
            with db.subscribe(f"SELECT v FROM {name}", name="d", start="now") as durable:
                db.insert("t", [(100, 1000)])
                durable.ack(durable.recv(TIMEOUT))
            at = db.lsn
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            assert low_lsn(db, name) <= at + 1
            with db.subscribe(f"SELECT v FROM {name}", name="d") as durable:
                first = durable.recv(TIMEOUT)
            assert (first.kind, first.gap) == ("changes", None)

    def test_a_view_begins_with_the_rows_and_goes_on(self, tmp_path, name):
        sql = f"SELECT k, v FROM {name} WHERE v % 2 = 0"
        with opened(tmp_path) as db:
            made(db)
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            db.execute(f"CREATE MATERIALIZED VIEW even AS {sql}")
            db.wait_for("even", timeout=TIMEOUT)
            assert rows(db, "SELECT * FROM even") == rows(db, sql)
            change(db, 300, 360)
            compact(db)
        with opened(tmp_path) as db:
            change(db, 360, 365)
            db.wait_for("even", lsn=db.lsn, timeout=TIMEOUT)
            assert rows(db, "SELECT * FROM even") == rows(db, sql)


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

    def test_of_views(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY); CREATE SOURCE s (k BIGINT)")
            for name, options in (
                ("a", "WITH (retention = 'forever')"),
                ("b", "WITH (retention = '2 days', retention_bytes = 1000)"),
                ("c", ""),
            ):
                db.execute(f"CREATE MATERIALIZED VIEW {name} {options} AS SELECT k FROM t")
            db.execute("CREATE MATERIALIZED VIEW d AS SELECT k FROM s")
            with pytest.raises(SqlOptionError, match="a view whose rows change"):
                db.execute(
                    "CREATE MATERIALIZED VIEW e WITH (retention = '1 day') AS SELECT k FROM s"
                )
        with ms.open(tmp_path) as db:
            log = engine_of(db).log
            assert log.topic("a").retention.max_bytes is None
            assert log.topic("b").retention == ms.Retention(172800.0, 1000)
            assert log.topic("c").retention.max_bytes == 64 << 20
            assert log.topic("d").retention == ms.Retention()
            assert "retention = 'forever'" in str(db.query("SHOW CREATE a").fetchall())

    def test_forever_keeps_all(self, tmp_path, name):
        with opened(tmp_path) as db:
            made(db, "retention = 'forever'")
            for n in range(4):
                change(db, 60 * n, 60 * n + 60)
                compact(db)
            assert low_lsn(db, name) == 0

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime

import pytest

import millstream as ms
from millstream.dispatch.route import FanOut
from millstream.engine import once
from millstream.errors import DuplicateKeyError, InvalidOptionError, TenantError
from millstream.testing import engine_of


@pytest.fixture
def db(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        yield db


@pytest.mark.parametrize("name", ["s", "t"])
def test_a_repeated_insert_adds_nothing(db, name):
    first = db.insert_once(name, [(1,), (2,)], "a")
    again = db.insert_once(name, [(1,), (2,)], "a")
    assert (first.rows, first.repeated) == (2, False)
    assert (again.rows, again.repeated) == (2, True)
    assert sorted(db.query(f"SELECT * FROM {name}")) == [(1,), (2,)]
    assert not db.insert_once(name, [(3,)], "b").repeated
    assert len(db.query(f"SELECT * FROM {name}")) == 3


@pytest.mark.parametrize("kind", ["SOURCE r (n BIGINT)", "TABLE r (n BIGINT PRIMARY KEY)"])
def test_rows_of_a_sync_log_are_on_the_disk_before_they_are_seen(db, monkeypatch, kind):
    db.execute(f"CREATE {kind} WITH (wal_mode = 'sync')")
    log, deliver, ahead = engine_of(db).log, FanOut.deliver, []

    def delivered(self, batches, **options):
        ahead.extend(batch.lsn - log.durable_lsn for name, batch in batches if name == "r")
        deliver(self, batches, **options)

    monkeypatch.setattr(FanOut, "deliver", delivered)
    for n in range(5):
        db.insert_once("r", [(n,)], str(n))
    assert len(ahead) == 5
    assert max(ahead) <= 0


def test_subscribers_see_the_rows_once_and_the_key_never(db):
    subscription = db.subscribe("SELECT * FROM s")
    bus = db.changes()
    db.insert_once("s", [(1,)], "a")
    db.insert_once("s", [(1,)], "a")
    db.insert("s", [(2,)])
    seen = []
    while len(seen) < 2:
        seen += subscription.recv(timeout=10).rows
    assert seen == [(1,), (2,)]
    assert [bus.recv(10).collection, bus.recv(10).collection] == ["s", "s"]
    assert db.metrics()["sources"]["s"]["pushed"] == 2


def test_it_is_remembered_after_a_restart(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.insert_once("s", [(1,)], "a")
    with ms.open(tmp_path / "db") as db:
        assert db.insert_once("s", [(1,)], "a").repeated
        assert not db.insert_once("s", [(1,)], "b").repeated
        assert len(db.query("SELECT * FROM s")) == 2
        db.execute("DROP SOURCE s; CREATE SOURCE s (n BIGINT)")
        assert not db.insert_once("s", [(1,)], "a").repeated


@pytest.mark.crash
def test_killed_at_any_moment_each_key_counts_once(tmp_path):
    code = textwrap.dedent(
        f"""
        import sys, millstream as ms
        db = ms.open({str(tmp_path / "db")!r})
        db.execute("CREATE SOURCE IF NOT EXISTS s (n BIGINT)")
        for n in range(int(sys.argv[1]), 100000):
            db.insert_once("s", [(n,), (n,)], str(n))
            print(n, flush=True)
        """
    )
    done = -1
    for _ in range(3):
        # It begins with the last insert that was answered, as a client that lost the answer does.
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(max(0, done))], stdout=subprocess.PIPE, text=True
        )
        for line in child.stdout:
            done = int(line)
            if done % 20 == 19:
                os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with ms.open(tmp_path / "db") as db:
        counts = db.query("SELECT n, COUNT(*) FROM s GROUP BY n ORDER BY n").fetchall()
    assert [n for n, _ in counts][: done + 1] == list(range(done + 1))
    assert {count for _, count in counts} == {2}


def test_many_threads_with_one_key(db):
    results = []
    barrier = threading.Barrier(8)

    def insert():
        barrier.wait()
        results.append(db.insert_once("s", [(1,)], "a").repeated)

    threads = [threading.Thread(target=insert) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(results) == [False] + [True] * 7
    assert len(db.query("SELECT * FROM s")) == 1


def test_a_refused_insert_leaves_the_key_free(db):
    db.insert("t", [(1,)])
    with pytest.raises(DuplicateKeyError):
        db.insert_once("t", [(1,), (2,)], "a")
    assert not db.insert_once("t", [(3,), (2,)], "a").repeated


def test_another_number_of_rows(db):
    db.insert_once("s", [(1,)], "a")
    with pytest.raises(InvalidOptionError, match="1 rows, not 2"):
        db.insert_once("s", [(1,), (2,)], "a")


@pytest.mark.parametrize("key", ["", None, 7])
def test_what_is_no_key(db, key):
    with pytest.raises(InvalidOptionError):
        db.insert_once("s", [(1,)], key)


def test_tenants_have_their_own_keys(db):
    db.execute("CREATE SOURCE o (org VARCHAR NOT NULL, n BIGINT) WITH (tenant = 'org')")
    a, b = db.session(tenant="a"), db.session(tenant="b")
    assert not a.insert_once("o", [("a", 1)], "k").repeated
    assert not b.insert_once("o", [("b", 1)], "k").repeated
    assert a.insert_once("o", [("a", 1)], "k").repeated
    with pytest.raises(TenantError):
        a.insert_once("o", [("b", 1)], "other")


def test_event_time_goes_on(db):
    db.execute("CREATE SOURCE e (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 second')")
    db.insert_once("e", [(datetime(2026, 1, 1, tzinfo=UTC),)], "a")
    assert db.source("e").current_watermark is not None


def test_the_oldest_keys_are_forgotten(db, monkeypatch):
    monkeypatch.setattr(once, "KEPT_KEYS", 2)
    for key in "abc":
        db.insert_once("s", [(1,)], key)
    assert db.insert_once("s", [(1,)], "c").repeated
    assert not db.insert_once("s", [(1,)], "a").repeated


def test_a_session_without_a_tenant_has_its_own_channels(db):
    one, two = db.session(tenant=None), db.session(tenant=None)
    one.execute("LISTEN a")
    assert one.query("SHOW CHANNELS").fetchall() == [("a",)]
    assert two.query("SHOW CHANNELS").fetchall() == []
    assert one.query("SELECT * FROM s").fetchall() == []

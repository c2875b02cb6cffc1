"""A disk that is full: what still works, what is refused, and that all goes on when there is room.

Nothing here asserts how long a thing takes; but what must not hang is done in a thread, so that a
test that would never end fails instead.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime

import pytest

import millstream as ms
from millstream import errors
from millstream.dispatch import loop
from millstream.log import lifecycle
from millstream.testing import TIMEOUT, engine_of, wait_until

from ..disks import mounted  # noqa: TID252 - tests have no name

PAYLOAD = "x" * 500


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk", "4m") as disk:
        yield disk


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Try a full disk again at once."""
    monkeypatch.setattr(loop, "_RETRY", 0.01)
    monkeypatch.setattr(lifecycle, "RETRY", 0.01)


@pytest.fixture
def db(disk):
    db = ms.open(disk.path / "db", segment_bytes=1 << 18)
    db.execute(
        "CREATE SOURCE a (n BIGINT, p VARCHAR);"
        "CREATE SOURCE y (n BIGINT, p VARCHAR) WITH (wal_mode = 'sync');"
        "CREATE SOURCE other (n BIGINT, p VARCHAR);"
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)"
    )
    db.insert("t", [(1, 10)])
    db.insert("y", [(0, "y")])
    db.insert("a", [(0, "a")])
    db.insert("other", [(n, PAYLOAD) for n in range(2000)])
    db.flush()
    yield db
    disk.free()
    db.close()


def promptly(function, *args, **options):
    """The result of a call that must not hang."""
    done = []

    def run():
        try:
            done.append((function(*args, **options), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert done, f"{function} hangs"
    result, error = done[0]
    if error is not None:
        raise error
    return result


def numbers(db, source):
    return [n for (n,) in promptly(db.query, f"SELECT n FROM {source}").fetchall()]


def stall(db, disk):
    """Fill the disk, and push until rows wait for it; how many were pushed to ``a``."""
    disk.fill()
    pushed, log, dispatcher = 0, engine_of(db).log, engine_of(db).dispatcher
    while dispatcher.inlets.stalled is None:
        pushed += 1
        db.source("a").push((pushed, PAYLOAD))
        dispatcher.barrier()
        wait_until(lambda: log.written_lsn == log.lsn or log.appender.is_stalled)
    return pushed


def test_goes_on_although_readers_keep_waking_the_writer(db, disk, monkeypatch):
    """As a reader does that waits for rows: each time, the next try was put off again."""
    monkeypatch.setattr(lifecycle, "RETRY", 0.2)
    log, stop = engine_of(db).log, threading.Event()
    disk.fill()
    db.source("a").push((1, PAYLOAD * 20))
    wait_until(lambda: log.appender.is_stalled)

    def wake():
        while not stop.wait(0.01):
            log.appender.write_soon()

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        disk.free()
        wait_until(lambda: not log.appender.is_stalled)
    finally:
        stop.set()
        waker.join()
    assert numbers(db, "a") == [0, 1]


class TestWhileFull:
    def test_a_sync_push_is_refused_and_does_not_wait_for_async_rows(self, db, disk):
        pushed = stall(db, disk)
        for n in range(20):
            db.source("a").push((pushed + 1 + n, PAYLOAD))
            with pytest.raises(errors.LogFullError):
                promptly(db.source("y").push, (n, PAYLOAD))
        disk.free()
        db.flush()
        assert numbers(db, "a") == list(range(pushed + 21))
        assert numbers(db, "y") == [0]
        db.source("y").push((1, "room"))
        assert numbers(db, "y") == [0, 1]

    def test_a_cut_that_has_both(self, db, disk):
        """The rows that somebody waits for are refused, the others are kept."""
        disk.fill()
        a, y, dispatcher = db.source("a"), db.source("y"), engine_of(db).dispatcher
        with dispatcher._loop._cycling:
            a.push((1, PAYLOAD * 20))
            waiting = threading.Thread(target=self._refused, args=(y, (1, PAYLOAD * 20)))
            waiting.start()
            wait_until(lambda: y.pending)
            a.push((2, PAYLOAD))
        waiting.join(TIMEOUT)
        assert not waiting.is_alive()
        disk.free()
        db.flush()
        assert numbers(db, "a") == [0, 1, 2]
        assert numbers(db, "y") == [0]

    @staticmethod
    def _refused(source, row):
        with pytest.raises(errors.LogFullError):
            source.push(row)

    def test_reads_work(self, db, disk):
        before = datetime.now(UTC)
        pushed = stall(db, disk)
        held = engine_of(db).dispatcher._committer.held_rows()
        shown = list(range(pushed + 1 - held))  # those that were handed out
        assert numbers(db, "a") == shown
        assert numbers(db, "y") == [0]
        rows = promptly(db.query, "SELECT COUNT(*) AS c FROM a JOIN t ON t.id = 1").fetchall()
        assert rows == [(len(shown),)]
        changes = promptly(db.execute, "SHOW CHANGES FOR a")
        assert len(changes) == len(shown)
        assert len(promptly(db.execute, "SHOW SOURCES")) == 3
        promptly(db.metrics)
        snapshot = promptly(db.subscribe, "SELECT * FROM t").recv(TIMEOUT)
        assert snapshot.rows == [(1, 10)]
        old = promptly(db.subscribe, "SELECT n FROM y", start="earliest")
        assert old.recv(TIMEOUT).rows == [(0,)]
        since = promptly(db.subscribe, "SELECT n FROM a", start=before)
        disk.free()
        got = []
        while len(got) < pushed:
            got += [n for (n,) in since.recv(TIMEOUT).rows]
        assert got == list(range(1, pushed + 1))

    def test_a_flush_when_there_is_room_again(self, db, disk, monkeypatch):
        """It does not raise what a try found that had begun before there was room."""
        pushed, dispatcher, done = stall(db, disk), engine_of(db).dispatcher, []
        committer = dispatcher._committer
        retry = committer.retry

        def try_just_before_there_is_room():
            retry()
            disk.free()

        with dispatcher._loop._cycling:
            flush = threading.Thread(target=lambda: done.append(promptly(db.flush)))
            flush.start()
            wait_until(lambda: len(dispatcher.tasks))
            monkeypatch.setattr(committer, "retry", try_just_before_there_is_room)
        flush.join()
        assert done
        assert numbers(db, "a") == list(range(pushed + 1))

    def test_statements_that_write_are_refused(self, db, disk):
        stall(db, disk)
        for sql in (
            "INSERT INTO t VALUES (2, 20)",
            "UPDATE t SET n = 11 WHERE id = 1",
            "DELETE FROM t",
            "CREATE SOURCE z (n BIGINT)",
            "CREATE TABLE z (id BIGINT PRIMARY KEY)",
        ):
            with pytest.raises(errors.LogFullError):
                promptly(db.execute, sql)
        assert promptly(db.query, "SELECT * FROM t").fetchall() == [(1, 10)]
        disk.free()
        db.flush()
        db.execute("UPDATE t SET n = 12 WHERE id = 1; CREATE SOURCE z (n BIGINT)")
        assert db.query("SELECT * FROM t").fetchall() == [(1, 12)]

    def test_flush_says_so(self, db, disk):
        pushed = stall(db, disk)
        for flush in (db.flush, db.checkpoint, db.source("a").flush):
            with pytest.raises(errors.LogFullError) as caught:
                promptly(flush)
            assert caught.value.code == "LOG_FULL"
            assert "free some space" in caught.value.hint
        disk.free()
        assert promptly(db.flush) == db.lsn
        assert numbers(db, "a") == list(range(pushed + 1))

    @pytest.mark.parametrize("policy", ["block", "reject", "drop_oldest"])
    def test_a_buffer_that_is_full_obeys_its_policy(self, db, disk, policy):
        db.execute(f"CREATE SOURCE b (n BIGINT) WITH (buffer_size = 4, backpressure = '{policy}')")
        stall(db, disk)
        source, taken, refused = db.source("b"), [], set()
        for n in range(20):
            try:
                promptly(source.push, (n,))
                taken.append(n)
            except (errors.LogFullError, errors.SourceFullError) as error:
                refused.add(type(error))
        expected = {"block": {errors.LogFullError}, "reject": {errors.SourceFullError}}
        assert refused == expected.get(policy, set())
        disk.free()
        db.flush()
        if policy == "drop_oldest":
            assert numbers(db, "b") == taken[source.dropped :]
        else:
            assert numbers(db, "b") == taken

    def test_acknowledged_positions_wait_for_room(self, db, disk):
        with db.subscribe("SELECT * FROM a", name="d") as subscription:
            db.source("a").push((0, PAYLOAD))
            db.flush()
            batch = subscription.recv(TIMEOUT)
            pushed = stall(db, disk)
            with pytest.raises(errors.LogFullError):  # what is not on the disk is not given
                subscription.recv(TIMEOUT)
            promptly(subscription.ack, batch)
            disk.free()
            db.flush()
            stored = engine_of(db).positions._stored
            wait_until(lambda: [each.lsn for each in stored.values()] == [batch.lsn])
            assert subscription.recv(TIMEOUT).rows[0] == (1, PAYLOAD)
        assert pushed
        assert numbers(db, "a")[-1] == pushed


class TestMakingRoom:
    def fill_with_rows(self, db, disk):
        """No ballast: the rows of ``other`` and ``y`` take all the room there is."""
        with pytest.raises(errors.LogFullError):
            while True:
                db.source("y").push((-1, PAYLOAD * 8))
        stalled = stall(db, disk)
        disk.free()  # a page or none
        return stalled

    def test_dropping_a_source_is_enough(self, db, disk):
        pushed = self.fill_with_rows(db, disk)
        promptly(db.execute, "DROP SOURCE y; DROP TABLE t")
        assert [name for name, *_ in db.query("SHOW SOURCES").fetchall()] == ["a", "other"]
        wait_until(lambda: engine_of(db).dispatcher.inlets.stalled is None)
        promptly(db.flush)
        assert numbers(db, "a") == list(range(pushed + 1))
        db.execute("CREATE SOURCE y (n BIGINT) WITH (wal_mode = 'sync')")
        db.source("y").push((7,))
        assert numbers(db, "y") == [7]

    @pytest.mark.slow
    def test_retention_works(self, disk):
        with ms.open(disk.path / "db", segment_bytes=1 << 16) as db:
            db.execute(
                "CREATE SOURCE a (n BIGINT, p VARCHAR);"
                "CREATE SOURCE y (n BIGINT, p VARCHAR) "
                "WITH (wal_mode = 'sync', retention_bytes = '1 MB')"
            )
            refused = 0
            for n in range(8000):  # 4 MB and more
                try:
                    db.source("y").push((n, PAYLOAD))
                except errors.LogFullError:
                    refused += 1
                    wait_until(lambda: disk.room > 100_000)  # without a word from anybody
            assert refused
            assert numbers(db, "y")[-1] == n

    @pytest.mark.crash
    def test_a_dropped_source_stays_dropped_when_the_process_is_killed(self, disk):
        script = textwrap.dedent("""
            import os, signal, sys
            import millstream as ms
            with open(sys.argv[1] + "/ballast", "wb") as ballast:
                ballast.write(bytes(1 << 16))  # the room that there will be at the end
            db = ms.open(sys.argv[1] + "/db", segment_bytes=1 << 18)
            db.execute("CREATE SOURCE a (n BIGINT, p VARCHAR); "
                       "CREATE SOURCE y (n BIGINT, p VARCHAR) WITH (wal_mode = 'sync')")
            try:
                while True:
                    db.source("y").push((1, "x" * 5000))
            except ms.errors.LogFullError:
                pass
            with open(sys.argv[1] + "/ballast", "ab", buffering=0) as ballast:
                try:
                    while True:
                        ballast.write(bytes(4096))
                except OSError:
                    pass
            for n in range(1000):
                db.source("a").push((n, "x" * 5000))
            db.execute("DROP SOURCE y")
            os.kill(os.getpid(), signal.SIGKILL)
        """)
        done = subprocess.run(
            [sys.executable, "-c", script, str(disk.path)], capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        disk.fill()
        with ms.open(disk.path / "db") as db:
            assert [name for name, *_ in db.query("SHOW SOURCES").fetchall()] == ["a"]
            disk.free()
            db.execute("CREATE SOURCE y (m BIGINT)")
            db.insert("y", [(5,)])
            assert db.query("SELECT * FROM y").fetchall() == [(5,)]
        with ms.open(disk.path / "db") as db:
            assert db.query("SELECT * FROM y").fetchall() == [(5,)]

    def test_a_durable_subscription_that_keeps_too_much_can_be_dropped(self, db, disk):
        db.subscribe("SELECT * FROM y", name="keeps").cancel()
        self.fill_with_rows(db, disk)
        promptly(db.execute, "DROP SUBSCRIPTION keeps")
        promptly(db.execute, "DROP SOURCE y")
        promptly(lambda: wait_until(lambda: engine_of(db).dispatcher.inlets.stalled is None))
        db.flush()
        wait_until(lambda: (None, "keeps") not in engine_of(db).positions._stored)

    def test_the_reserve_is_made_again(self, db, disk):
        reserve = disk.path / "db" / "RESERVE"
        full_size = reserve.stat().st_size
        self.fill_with_rows(db, disk)
        promptly(db.execute, "DROP SOURCE other")
        wait_until(lambda: engine_of(db).dispatcher.inlets.stalled is None)
        wait_until(lambda: reserve.stat().st_size == full_size)


class TestTheEnds:
    def test_close_says_how_many_rows_are_lost(self, disk):
        db = ms.open(disk.path / "db")
        db.execute(
            "CREATE SOURCE a (n BIGINT, p VARCHAR);"
            "CREATE SOURCE y (n BIGINT, p VARCHAR) WITH (wal_mode = 'sync')"
        )
        db.source("y").push((1, "acknowledged"))
        pushed = stall(db, disk)
        for n in range(5):
            db.source("a").push((pushed + 1 + n, PAYLOAD))
        written = len(list(engine_of(db).log.read("a")))
        with pytest.raises(errors.LogFullError) as caught:
            promptly(db.close)
        assert caught.value.rows_lost == pushed + 5 - written
        assert f"{caught.value.rows_lost:,} rows" in str(caught.value)
        with ms.open(disk.path / "db") as db:  # on the full disk
            assert numbers(db, "y") == [1]
            assert numbers(db, "a") == list(range(1, written + 1))

    def test_close_without_rows_that_wait_is_clean(self, disk):
        db = ms.open(disk.path / "db")
        db.execute("CREATE SOURCE y (n BIGINT) WITH (wal_mode = 'sync')")
        db.source("y").push((1,))
        disk.fill()
        db.close()
        with ms.open(disk.path / "db") as db:
            assert engine_of(db).log.recovery.clean
            assert numbers(db, "y") == [1]
            with pytest.raises(errors.LogFullError):
                while True:
                    promptly(db.source("y").push, (2,))
            disk.free()
            db.source("y").push((3,))

    def test_a_new_database_finds_no_room(self, disk):
        disk.fill()
        with pytest.raises(errors.LogFullError):
            ms.open(disk.path / "db")


class TestViews:
    def show(self, db):
        (view,) = promptly(db.query, "SHOW VIEWS").to_pylist()
        return view

    @pytest.fixture
    def waiting(self, db, disk):
        """A view whose input has changed while there was room; its own change finds none."""
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, n FROM t WHERE n > 0")
        db.wait_for("v", timeout=TIMEOUT)
        with engine_of(db).views["v"].view._working:
            db.execute("UPDATE t SET n = 11 WHERE id = 1")
            lsn = db.flush()
            stall(db, disk)
        wait_until(lambda: self.show(db)["state"] == "waiting")
        return lsn

    def test_waits_for_room_and_goes_on(self, db, disk, waiting):
        changes = promptly(db.subscribe, "SELECT n FROM v", start="now")
        state = promptly(db.subscribe, "SELECT n FROM v")
        assert state.try_recv() is None
        assert "No space left" in self.show(db)["error"]
        with pytest.raises(errors.LogFullError):
            promptly(db.wait_for, "v", waiting)
        with pytest.raises(errors.LogFullError):
            promptly(db.query, "SELECT n FROM v")
        assert promptly(db.query, "SELECT n FROM v", stale_ok=True).fetchall() == [(10,)]
        disk.free()
        wait_until(lambda: self.show(db)["state"] == "live")
        db.wait_for("v", waiting, timeout=TIMEOUT)
        assert changes.recv(TIMEOUT).rows == [(10,), (11,)]  # one goes, the other one comes
        assert state.recv(TIMEOUT).rows == [(11,)]
        assert db.query("SELECT n FROM v").fetchall() == [(11,)]

    def test_can_be_dropped_while_it_waits(self, db, disk, waiting):
        promptly(db.execute, "DROP MATERIALIZED VIEW v")
        assert promptly(db.query, "SHOW VIEWS").fetchall() == []

    def test_does_not_keep_the_database_from_closing(self, db, waiting):
        with pytest.raises(errors.LogFullError):
            promptly(db.close)

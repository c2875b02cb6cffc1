"""A damaged topic is a damaged topic: the database opens, and everything else works."""

from __future__ import annotations

import json
import os
import signal

import pytest

import millstream as ms
from millstream.errors import (
    BrokenDefinitionError,
    LogCorruptError,
    LogFilesError,
    ViewFailedError,
)
from millstream.log import Log
from millstream.testing import TIMEOUT, engine_of

ROWS = 60


def forked(path, work):
    """Do some work in a child that is killed after it."""
    pid = os.fork()
    if pid == 0:
        try:
            work(ms.open(path))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def fill(db):
    """Two sources and two tables whose rows take turns in the log, and who reads them."""
    db.execute("CREATE SOURCE a (n BIGINT, text VARCHAR) WITH (wal_mode = 'sync')")
    db.execute("CREATE SOURCE b (n BIGINT, text VARCHAR) WITH (wal_mode = 'sync')")
    for name in ("t", "u"):
        db.execute(
            f"CREATE TABLE {name} (n BIGINT PRIMARY KEY, text VARCHAR) WITH (wal_mode = 'sync')"
        )
    for n in range(ROWS):
        db.insert("a", [(n, f"a-row-{n:04d}")])
        db.insert("b", [(n, f"b-row-{n:04d}")])
        db.execute(f"INSERT INTO t VALUES ({n}, 't-row-{n:04d}')")
        db.execute(f"INSERT INTO u VALUES ({n}, 'u-row-{n:04d}')")


def flip(path, mark, back=0):
    """Damage the frame in which a text stands: its payload, or further back its header."""
    for segment in path.glob("*.seg"):
        raw = bytearray(segment.read_bytes())
        place = raw.find(mark)
        if place >= 0:
            if back:
                place = raw.rindex(b"MSF3", 0, place) + back
            raw[place] ^= 1
            segment.write_bytes(raw)
            return
    raise AssertionError(f"{mark!r} is in no segment")


def numbers(db, name):
    return sorted(n for (n,) in db.query(f"SELECT n FROM {name}").fetchall())


def states(db, what):
    return {each["name"]: each["state"] for each in db.query(f"SHOW {what}").to_pylist()}


@pytest.fixture(params=["closed", "killed"])
def path(request, tmp_path):
    """A database that was closed, or whose process was killed."""
    path = tmp_path / "db"
    if request.param == "killed":
        forked(path, fill)
    else:
        with ms.open(path) as db:
            fill(db)
    return path


# 20 is within a header, 0 stands for the payload.
@pytest.mark.parametrize("back", [0, 20], ids=["payload", "header"])
class TestSource:
    def test_reading_raises_and_all_else_works(self, path, back):
        flip(path, b"a-row-0030", back)
        with ms.open(path) as db:
            with pytest.raises(LogCorruptError) as caught:
                numbers(db, "a")
            for other in ("b", "t", "u"):
                assert numbers(db, other) == list(range(ROWS))
            assert states(db, "SOURCES") == {"a": "damaged", "b": "ok"}
            assert states(db, "TABLES") == {"t": "ok", "u": "ok"}
            with db.subscribe("SELECT n FROM a", start=caught.value.next_lsn) as sub:
                assert sub.recv(timeout=10).rows[0] == (31,)
            db.insert("a", [(ROWS, "new")])
            db.insert("b", [(ROWS, "new")])
            assert numbers(db, "b") == list(range(ROWS + 1))

    def test_a_subscription_ends_with_it(self, path, back):
        flip(path, b"a-row-0030", back)
        with ms.open(path) as db, db.subscribe("SELECT n FROM a", start="earliest") as sub:
            got = []
            with pytest.raises(LogCorruptError) as caught:
                while True:
                    got += sub.recv(timeout=10).rows
            assert got == [(n,) for n in range(30)]
            assert caught.value.next_lsn

    def test_skipped_it_is_a_gap_for_good(self, path, back):
        flip(path, b"a-row-0030", back)
        with ms.open(path) as db:
            (gap,) = db.execute("ALTER SOURCE a SKIP DAMAGE").to_pylist()
            assert gap["lost_rows"] == (1 if not back else None)
            left = [n for n in range(ROWS) if n != 30]
            assert numbers(db, "a") == left
            assert states(db, "SOURCES")["a"] == "ok"
        with ms.open(path) as db, db.subscribe("SELECT n FROM a", start="earliest") as sub:
            assert numbers(db, "a") == left
            got, gaps = [], []
            while len(got) < len(left):
                batch = sub.recv(timeout=10)
                got += batch.rows
                gaps += [(batch.gap, len(got))] if batch.gap else []
            assert got == [(n,) for n in left]
            ((reported, place),) = gaps
            assert place == 30
            assert (reported.first_lsn, reported.last_lsn) == (gap["first_lsn"], gap["last_lsn"])
            assert db.execute("ALTER SOURCE a SKIP DAMAGE").to_pylist() == []

    def test_dropped_it_is_gone(self, path, back):
        flip(path, b"a-row-0030", back)
        with ms.open(path) as db:
            db.execute("DROP SOURCE a")
            db.execute("CREATE SOURCE a (n BIGINT)")
            db.insert("a", [(7,)])
            assert numbers(db, "a") == [7]

    def test_of_a_view_only_those_that_read_it_fail(self, path, back):
        with ms.open(path) as db:
            for name in ("a", "b"):
                db.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT n FROM {name}")
            db.wait_for(view="of_a", lsn=db.lsn, timeout=30)
        flip(path, b"a-row-0030", back)
        with ms.open(path) as db:
            assert numbers(db, "of_a") == numbers(db, "of_b") == list(range(ROWS))  # long read
            db.execute("CREATE MATERIALIZED VIEW late AS SELECT n FROM a")
            with pytest.raises(ViewFailedError, match="damaged"):
                db.wait_for(view="late", lsn=db.lsn, timeout=30)
            assert states(db, "VIEWS") == {"of_a": "live", "of_b": "live", "late": "failed"}
            db.execute("ALTER SOURCE a SKIP DAMAGE")
            db.execute("CREATE OR REPLACE MATERIALIZED VIEW late AS SELECT n FROM a")
            db.wait_for(view="late", lsn=db.lsn, timeout=30)
            assert numbers(db, "late") == [n for n in range(ROWS) if n != 30]


@pytest.mark.parametrize("back", [0, 20], ids=["payload", "header"])
class TestTable:
    def test_it_is_neither_read_nor_written_and_all_else_works(self, path, back):
        flip(path, b"t-row-0030", back)
        with ms.open(path) as db:
            for sql in ("SELECT * FROM t", "SELECT COUNT(*) FROM t"):
                with pytest.raises(LogCorruptError, match="damaged") as caught:
                    db.query(sql)
                assert "SKIP DAMAGE" in caught.value.hint
            for sql in ("INSERT INTO t VALUES (1000, '')", "DELETE FROM t"):
                with pytest.raises(LogCorruptError):
                    db.execute(sql)
            with pytest.raises(LogCorruptError):
                db.subscribe("SELECT * FROM t")
            for other in ("a", "b", "u"):
                assert numbers(db, other) == list(range(ROWS))
            assert states(db, "TABLES") == {"t": "damaged", "u": "ok"}

    def test_skipped_it_goes_on_with_what_there_is(self, path, back):
        flip(path, b"t-row-0030", back)
        left = [n for n in range(ROWS) if n != 30]
        with ms.open(path) as db:
            assert len(db.execute("ALTER TABLE t SKIP DAMAGE").to_pylist()) == 1
            assert numbers(db, "t") == left
            db.execute("INSERT INTO t VALUES (30, 'again')")
            db.execute("DELETE FROM t WHERE n < 10")
        with ms.open(path) as db:
            assert numbers(db, "t") == list(range(10, ROWS))
            assert states(db, "TABLES") == {"t": "ok", "u": "ok"}
            db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM t")
            db.wait_for(view="v", lsn=db.lsn, timeout=30)
            assert numbers(db, "v") == list(range(10, ROWS))

    def test_dropped_it_is_gone(self, path, back):
        flip(path, b"t-row-0030", back)
        with ms.open(path) as db:
            db.execute("DROP TABLE t")
            db.execute("CREATE TABLE t (n BIGINT PRIMARY KEY)")
            assert numbers(db, "t") == []


def test_a_view_whose_own_log_is_damaged(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (text VARCHAR)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT CONCAT('view-', text) AS text FROM s")
        for n in range(5):
            db.insert("s", [(f"row-{n}",)])
            db.wait_for(view="v", lsn=db.flush(), timeout=30)
    flip(tmp_path, b"view-row-2")
    with ms.open(tmp_path) as db:
        assert len(db.query("SELECT * FROM s").fetchall()) == 5
        with pytest.raises(ViewFailedError, match="damaged"):
            db.query("SELECT * FROM v")
        with pytest.raises(ViewFailedError):
            db.subscribe("SELECT * FROM v")
        assert states(db, "VIEWS") == {"v": "failed"}
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT text FROM s")
        db.wait_for(view="v", lsn=db.lsn, timeout=30)
        assert len(db.query("SELECT * FROM v").fetchall()) == 5


@pytest.mark.parametrize("back", [0, 20], ids=["payload", "header"])
def test_one_damaged_place_costs_nothing_of_the_catalog(path, back):
    flip(path, b'"name": "u"', back)
    with ms.open(path) as db:
        for name in ("a", "b", "t", "u"):
            assert numbers(db, name) == list(range(ROWS))


def test_a_catalog_that_lost_a_definition_keeps_the_rest(path):
    for segment in path.glob("*.seg"):  # both copies
        raw = segment.read_bytes()
        segment.write_bytes(raw.replace(b'"name": "u"', b'"name": "x"'))
    with ms.open(path) as db:
        for name in ("a", "b", "t"):
            assert numbers(db, name) == list(range(ROWS))
        assert states(db, "SOURCES")["u"] == "broken"
        with pytest.raises(BrokenDefinitionError):
            numbers(db, "u")
        db.execute("DROP SOURCE u")
        assert "u" not in states(db, "SOURCES")
    with ms.open(path) as db:
        assert "u" not in states(db, "SOURCES")


@pytest.mark.parametrize("damaged", ['{"at"', '{"set"', '{"subscriptions"'])
def test_damaged_positions_cost_no_row(tmp_path, damaged):
    """Neither an acknowledgement, nor a copy of what made it, nor a row with all of them."""
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        with db.subscribe("SELECT n FROM s", name="mine") as sub:
            for n in range(10):
                if n == 5:
                    engine_of(db).positions._whole.demand()
                db.insert("s", [(n,)])
                batch = sub.recv(timeout=10)
                sub.ack(batch)
                db.flush()
    last = max(tmp_path.glob("*.seg"))
    raw = bytearray(last.read_bytes())
    raw[raw.rindex(damaged.encode())] ^= 1
    last.write_bytes(raw)
    with ms.open(tmp_path) as db:
        assert len(db.query("SELECT * FROM s").fetchall()) == 10
        (shown,) = db.query("SHOW SUBSCRIPTIONS").to_pylist()
        assert shown["name"] == "mine"
        db.insert("s", [(10,)])
        with db.subscribe("SELECT n FROM s", name="mine") as sub:
            got = []
            while (10,) not in got:
                got += sub.recv(timeout=10).rows
        first = 9 if damaged == '{"at"' else 10  # all else is said by other rows, too
        assert got == [(n,) for n in range(first, 11)]


def rewrite(path, name, **changes):
    """Store another definition, as a release that knows more might have."""
    with Log(path) as log:
        entries = [json.loads(text) for batch in log.read("__catalog") for (text,) in batch.rows]
        entry = [each for each in entries if each["name"] == name][-1]
        log.append("__catalog", [(json.dumps({**entry, **changes}),)], wal_mode="sync")


class TestDefinition:
    @pytest.fixture
    def path(self, tmp_path):
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            db.execute("CREATE SOURCE other (n BIGINT)")
            db.execute("CREATE MATERIALIZED VIEW v AS SELECT n FROM s")
            db.execute("CREATE MATERIALIZED VIEW over AS SELECT n FROM v")
            db.insert("s", [(1,)])
            db.wait_for(view="over", lsn=db.flush(), timeout=30)
        return tmp_path

    @pytest.mark.parametrize(
        "query",
        [
            "CREATE MATERIALIZED NONSENSE",
            "CREATE MATERIALIZED VIEW v AS SELECT n FROM nowhere",
            "SELECT 1",
        ],
    )
    def test_of_a_view_that_cannot_be_planned(self, path, query):
        rewrite(path, "v", query=query)
        with ms.open(path) as db:
            assert db.query("SELECT n FROM s").fetchall() == [(1,)]
            assert states(db, "VIEWS") == {"over": "failed", "v": "failed"}
            assert db.query("SHOW CREATE v").fetchall() == [("v", query)]
            for name in ("v", "over"):
                with pytest.raises(ViewFailedError, match="could not be opened"):
                    db.query(f"SELECT * FROM {name}")
            with pytest.raises(ViewFailedError):
                db.wait_for(view="v", lsn=db.lsn, timeout=1)
            db.execute("DROP VIEW over")
            db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n + 1 AS n FROM s")
            db.wait_for(view="v", lsn=db.lsn, timeout=30)
            assert numbers(db, "v") == [2]
        with ms.open(path) as db:
            assert states(db, "VIEWS") == {"v": "live"}

    @pytest.mark.slow
    def test_of_a_view_that_spark_cannot_plan(self, path):
        rewrite(path, "v", query="CREATE MATERIALIZED VIEW v AS SELECT nothing FROM s")
        with ms.open(path) as db:
            db.insert("s", [(2,)])
            with pytest.raises(ViewFailedError, match="nothing"):
                db.wait_for(view="v", lsn=db.flush(), timeout=TIMEOUT)
            assert states(db, "VIEWS")["v"] == "failed"
            db.execute("DROP VIEW over")
            db.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT n + 1 AS n FROM s")
            db.wait_for(view="v", lsn=db.lsn, timeout=TIMEOUT)
            assert sorted(numbers(db, "v")) == [2, 3]

    def test_of_a_view_that_is_dropped(self, path):
        rewrite(path, "v", query="CREATE MATERIALIZED NONSENSE")
        with ms.open(path) as db:
            db.execute("DROP VIEW v CASCADE")
            assert not states(db, "VIEWS")
            assert {topic for topic in engine_of(db).log.topics if "__" not in topic} == {
                "s",
                "other",
            }

    def test_of_a_source_that_cannot_be_read(self, path):
        rewrite(path, "other", options={"of_the_future": 1})
        with ms.open(path) as db:
            assert states(db, "SOURCES") == {"other": "broken", "s": "ok"}
            with pytest.raises(BrokenDefinitionError) as caught:
                db.insert("other", [(1,)])
            assert "DROP SOURCE other" in caught.value.hint
            with pytest.raises(BrokenDefinitionError):
                db.query("SELECT * FROM other")
            assert "cannot be read" in db.query("SHOW CREATE other").fetchall()[0][1]
            db.execute("DROP SOURCE other")
            db.execute("CREATE SOURCE other (n BIGINT)")
            assert states(db, "SOURCES") == {"other": "ok", "s": "ok"}


def test_a_wrong_set_of_files_is_refused(tmp_path):
    with ms.open(tmp_path, segment_bytes=4096) as db:
        db.execute("CREATE SOURCE s (n BIGINT, p VARCHAR)")
        for n in range(60):
            db.insert("s", [(n, "x" * 200)])
            db.flush()
    one, other = sorted(tmp_path.glob("*.seg"))[2:4]
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1]), other.write_bytes(contents[0])
    with pytest.raises(LogFilesError, match="holds segment"):
        ms.open(tmp_path)
    one.write_bytes(contents[0]), other.unlink()
    with pytest.raises(LogFilesError, match="missing"):
        ms.open(tmp_path)
    with ms.open(tmp_path, repair=True) as db, pytest.raises(LogCorruptError, match="missing"):
        numbers(db, "s")
    with ms.open(tmp_path) as db:
        ((first, last, _),) = db.execute("ALTER SOURCE s SKIP DAMAGE").fetchall()
        assert len(numbers(db, "s")) >= 60 - (last - first + 1)

"""What survives: a close, and a process that is really killed, at awkward moments."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT

from ..effort import effort  # noqa: TID252 - tests have no name

# ---- close and open again


def test_the_catalog_survives(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute(
            "CREATE SOURCE s (a VARCHAR NOT NULL, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL "
            "'5 seconds') WITH (buffer_size = 10, retention = '1 day', tenant = 'a')"
        )
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT) WITH (wal_mode = 'sync')")
        db.execute("CREATE SOURCE gone (a BIGINT); DROP SOURCE gone")
        db.execute("ALTER TABLE t ADD COLUMN more DOUBLE")
        shown = [list(db.query(f"SHOW CREATE {name}")) for name in "st"]
    for _ in range(2):
        with ms.open(tmp_path) as db:
            assert [list(db.query(f"SHOW CREATE {name}")) for name in "st"] == shown
            assert [s["name"] for s in db.query("SHOW SOURCES").to_pylist()] == ["s"]
            with pytest.raises(errors.ObjectNotFoundError):
                db.query("DESCRIBE gone")


def test_rows_survive(tmp_path):
    rows = [(n, f"row {n}", n / 3) for n in range(1000)]
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR, x DOUBLE)")
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, t VARCHAR, x DOUBLE)")
        source = db.source("s")
        for row in rows:
            source.push(row)
        db.insert("t", rows)
        db.execute("UPDATE t SET t = 'changed' WHERE id % 3 = 0; DELETE FROM t WHERE id % 5 = 0")
        table = sorted(db.query("SELECT * FROM t"))
        lsn = db.lsn
    with ms.open(tmp_path) as db:
        assert db.query("SELECT * FROM s").fetchall() == rows
        assert sorted(db.query("SELECT * FROM t")) == table
        assert db.lsn >= lsn
        db.insert("s", [(1, "new", 1.0)])
        assert len(db.query("SELECT * FROM s")) == 1001


def test_deleted_rows_stay_deleted_whatever_is_in_them(tmp_path):
    """NaN is not equal to itself, and rows that hold it can be deleted all the same."""
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE, l ARRAY<DOUBLE>)")
        nan = float("nan")
        db.insert("t", [(1, nan, [nan]), (2, nan, None), (3, 1.0, [1.0]), (4, -0.0, [nan])])
        db.execute("DELETE FROM t WHERE id < 3")
        db.execute("UPDATE t SET id = id + 10 WHERE id = 4")
        assert sorted(key for (key,) in db.query("SELECT id FROM t")) == [3, 14]
    with ms.open(tmp_path) as db:
        assert sorted(key for (key,) in db.query("SELECT id FROM t")) == [3, 14]


def test_keys_that_traded_places_survive(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, t VARCHAR)")
        db.insert("t", [(n, f"{n}") for n in range(10)])
        db.execute("UPDATE t SET id = 9 - id")
        db.execute("UPDATE t SET id = id + 1 WHERE id > 3")
        rows = sorted(db.query("SELECT * FROM t"))
    with ms.open(tmp_path) as db:
        assert sorted(db.query("SELECT * FROM t")) == rows


def test_the_watermark_survives(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.source("s").watermark(1_000_000)
        db.flush()
        expected = db.source("s").current_watermark
    for _ in range(2):
        with ms.open(tmp_path) as db:
            assert db.source("s").current_watermark == expected


def test_a_token_survives(tmp_path, rows_of):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT); CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        subscription = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", max_rows=3)
        copy = db.subscribe("SELECT * FROM t")
        db.execute("INSERT INTO t VALUES (1, 1)")
        db.insert("s", [(n,) for n in range(20)])
        token = subscription.recv(TIMEOUT).token
        while not (batch := copy.recv(TIMEOUT)).rows:
            pass
        copy_token = batch.token
        db.execute("UPDATE t SET n = 2")
    with ms.open(tmp_path) as db:
        db.execute("UPDATE t SET n = 3")
        db.insert("s", [(20,)])
        resumed = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", start=token)
        assert rows_of(resumed, 8) == [(n,) for n in range(6, 21, 2)]
        again = db.subscribe("SELECT * FROM t", start=copy_token)
        changes = []
        while len(changes) < 2:
            batch = again.recv(TIMEOUT)
            assert (batch.kind, batch.gap) == ("changes", None)
            changes += [(change.before, change.row) for change in batch]
        assert changes == [((1, 1), (1, 2)), ((1, 2), (1, 3))]


# ---- durable subscriptions


def test_a_durable_subscription_goes_on_after_its_ack(tmp_path, take):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        with db.subscribe("SELECT n FROM s", name="mine", max_rows=5) as mine:
            db.insert("s", [(n,) for n in range(20)])
            first = mine.recv(TIMEOUT)
            mine.ack(first)
            mine.recv(TIMEOUT)  # given, not acknowledged: it comes again
    with ms.open(tmp_path) as db:
        (shown,) = db.query("SHOW SUBSCRIPTIONS").to_pylist()
        assert (shown["name"], shown["state"], shown["acknowledged"]) == (
            "mine",
            "closed",
            first.lsn,
        )
        assert shown["lag_rows"] >= 15
        db.insert("s", [(20,)])
        with db.subscribe("SELECT n FROM s", name="mine") as mine:
            rows = [row for batch in take(mine, 16) for row in batch.rows]
            assert rows == [(n,) for n in range(5, 21)]
            mine.ack()
            db.flush()
        db.insert("s", [(21,)])
        with db.subscribe("SELECT n FROM s", name="mine") as mine:
            assert mine.recv(TIMEOUT).rows == [(21,)]
    with ms.open(tmp_path) as db:
        assert db.subscribe("SELECT n FROM s", name="mine").recv(TIMEOUT).rows == [(21,)]


def test_a_durable_copy_of_a_table(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.insert("t", [(n,) for n in range(10)])
        with db.subscribe("SELECT * FROM t", name="copy", max_rows=4) as copy:
            part = copy.recv(TIMEOUT)
            copy.ack(part)  # a part of a state is nothing to go on from
    with ms.open(tmp_path) as db:
        with db.subscribe("SELECT * FROM t", name="copy") as copy:
            batch = copy.recv(TIMEOUT)
            assert (batch.kind, len(batch)) == ("snapshot", 10)
            copy.ack()
        db.insert("t", [(10,)])
        with db.subscribe("SELECT * FROM t", name="copy") as copy:
            batch = copy.recv(TIMEOUT)
            assert (batch.kind, batch.rows) == ("changes", [(10,)])


def test_names_are_for_one_reader_and_one_query(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        mine = db.subscribe("SELECT n FROM s", name="mine")
        with pytest.raises(errors.SubscriptionExistsError):
            db.subscribe("SELECT n FROM s", name="mine")
        mine.cancel()
        with pytest.raises(errors.SubscriptionExistsError) as caught:
            db.subscribe("SELECT n FROM s WHERE n > 1", name="mine")
        assert "DROP SUBSCRIPTION" in caught.value.hint
        db.subscribe("SELECT n FROM s", name="mine").cancel()
        with pytest.raises(errors.InvalidOptionError):
            db.subscribe("SELECT n FROM s").ack()
        db.execute("DROP SUBSCRIPTION mine")
        db.subscribe("SELECT n FROM s WHERE n > 1", name="mine")
    with ms.open(tmp_path) as db:
        assert [s["query"] for s in db.query("SHOW SUBSCRIPTIONS").to_pylist()] == [
            "SELECT n FROM s WHERE n > 1"
        ]
        db.execute("DROP SOURCE s")
        assert not db.query("SHOW SUBSCRIPTIONS")


def test_what_a_durable_subscription_has_not_acknowledged_is_kept(tmp_path, take):
    with ms.open(tmp_path, segment_bytes=2000, retention_interval=0.01) as db:
        db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR) WITH (retention_bytes = 2000)")
        db.subscribe("SELECT n FROM s", name="mine").cancel()
        for n in range(100):
            db.insert("s", [(n, "x" * 100)])
            db.flush()
    with ms.open(tmp_path, segment_bytes=2000, retention_interval=0.01) as db:
        mine = db.subscribe("SELECT n FROM s", name="mine")
        rows = [row for batch in take(mine, 100) for row in batch.rows]
        assert rows == [(n,) for n in range(100)]


@pytest.mark.slow
def test_an_ack_is_never_ahead_of_what_was_given(tmp_path):
    """ack() of all that was handed over: what is handed over later lies after it."""
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT); CREATE SOURCE other (n BIGINT)")
        mine = db.subscribe("SELECT n FROM s", name="mine")
        source, other = db.source("s"), db.source("other")
        seen = pushed = batches = 0
        while batches < 500:
            source.push((pushed,))
            other.push((pushed,))
            pushed += 1
            for _ in range(3):
                mine.ack()
                acknowledged = mine.metrics.acknowledged
                batch = mine.try_recv()
                if batch is not None:
                    assert acknowledged < batch.lsns[0]
                    seen += len(batch)
                    batches += 1
        while seen < pushed:
            seen += len(mine.recv(TIMEOUT))


# ---- killed

KILLER = """
import os, signal, sys, threading
import millstream as ms

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def die():
    os.kill(os.getpid(), signal.SIGKILL)

db = ms.open(sys.argv[1], segment_bytes=50_000)
run = int(sys.argv[2])
"""


class Child:
    """A process that works until it is killed."""

    def __init__(self, path, run, work):
        program = KILLER + textwrap.dedent(work)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(run)], stdout=subprocess.PIPE
        )
        self.data = b""

    def read(self, timeout):
        """More of what it says; False when it says nothing in time, or is dead."""
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], timeout)[0]:
            return False
        chunk = os.read(fd, 1 << 16)
        self.data += chunk
        return bool(chunk)

    def wait_for(self, word):
        while word not in self.data:
            assert self.read(TIMEOUT), self.data[-500:]

    def kill(self):
        """Kill it; returns all complete lines that it printed."""
        self.process.send_signal(signal.SIGKILL)
        while self.read(TIMEOUT):
            pass
        assert self.process.wait(TIMEOUT) == -signal.SIGKILL
        self.process.stdout.close()
        return [line.split() for line in self.data.decode().split("\n")[:-1]]


PUSHING = """
if "s" not in [row[0] for row in db.query("SHOW SOURCES")]:
    db.execute("CREATE SOURCE s (run BIGINT, thread BIGINT, n BIGINT) WITH (wal_mode = 'sync')")
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT) WITH (wal_mode = 'sync')")
    db.insert("t", [(k, 0) for k in range(5)])

def work(thread):
    source, n = db.source("s"), 0
    while True:
        if thread == 0:
            source.push((run, thread, n)); n += 1
        elif thread == 1:
            source.push_batch([(run, thread, n + i) for i in range(3)]); n += 3
        elif thread == 2:
            db.insert("s", [{"run": run, "thread": 2, "n": n + i} for i in range(4)]); n += 4
        else:
            db.execute(f"UPDATE t SET n = {run * 1_000_000 + n + 1}"); n += 1
        say(thread, n)

for thread in range(1, 4):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
work(0)
"""


@pytest.mark.crash
def test_killed_while_pushing(tmp_path):
    """Everything that was acknowledged is there, in order, once; batches are whole."""
    rng = random.Random(5)
    total = 0
    for run in range(4):
        child = Child(tmp_path, run, PUSHING)
        child.wait_for(b"\n")
        deadline = time.monotonic() + rng.random() * 0.2
        while (left := deadline - time.monotonic()) > 0:
            child.read(left)
        said = child.kill()
        acknowledged = [0] * 4
        for thread, n in said:
            acknowledged[int(thread)] = int(n)
        total += sum(acknowledged)
        with ms.open(tmp_path) as db:
            found = [[], [], []]
            for _, thread, n in db.query(f"SELECT * FROM s WHERE run = {run}"):
                found[thread].append(n)
            for thread in range(3):
                assert found[thread] == list(range(len(found[thread])))
                assert len(found[thread]) >= acknowledged[thread]
            assert len(found[1]) % 3 == 0
            assert len(found[2]) % 4 == 0
            values = {n for (n,) in db.query("SELECT n FROM t")}
            assert len(values) == 1, "half an update"
            if acknowledged[3]:
                assert values.pop() - run * 1_000_000 in {acknowledged[3], acknowledged[3] + 1}
            assert len(db.query("SELECT * FROM t")) == 5
    assert total > 50


ACKNOWLEDGING = """
if run == 0:
    db.execute("CREATE SOURCE s (n BIGINT)")
    db.execute("CREATE SOURCE noise (n BIGINT)")
mine = db.subscribe("SELECT n FROM s", name="mine", buffer_rows=50, max_rows=7)
last = max([n for (n,) in db.query("SELECT n FROM s")], default=-1)
say("begin", last)

def push():
    source, noise, n = db.source("s"), db.source("noise"), last + 1
    while True:
        source.push((n,)); noise.push((n,)); n += 1

threading.Thread(target=push, daemon=True).start()
while True:
    batch = mine.recv()
    say("got", batch.rows[0][0], batch.rows[-1][0])
    if batch.rows[-1][0] % 3 == 0:
        mine.ack()
    elif batch.rows[-1][0] % 3 == 1:
        mine.ack(batch)
    db.flush() if batch.rows[-1][0] % 5 == 0 else None
    say("acked", mine.metrics.acknowledged, batch.rows[-1][0])
"""


@pytest.mark.crash
def test_a_durable_subscription_through_many_kills(tmp_path):
    """Every row at least once, in order, without a gap; nothing again that was acknowledged."""
    rng = random.Random(6)
    given = -1  # everything up to here was given
    floor = -1  # acknowledged, and flushed to the disk
    for run in range(4):
        child = Child(tmp_path, run, ACKNOWLEDGING)
        while child.data.count(b"acked") < 5:
            assert child.read(TIMEOUT)
        deadline = time.monotonic() + rng.random() * 0.3
        while (left := deadline - time.monotonic()) > 0:
            child.read(left)
        expected = None
        for line in child.kill():
            if line[0] == "begin":
                assert int(line[1]) >= floor
                continue
            if line[0] == "got":
                first, last = int(line[1]), int(line[2])
                if expected is None:
                    assert floor < first <= given + 1, (run, first, given, floor)
                else:
                    assert first == expected
                expected = last + 1
                given = max(given, last)
        with ms.open(tmp_path) as db:
            kept = [n for (n,) in db.query("SELECT n FROM s")]
            assert kept == list(range(len(kept)))
            given = min(given, len(kept) - 1)
            (shown,) = db.query("SHOW SUBSCRIPTIONS").to_pylist()
            rows = db.query(f"SHOW CHANGES FOR s SINCE {shown['acknowledged'] + 1} LIMIT 1")
            left = [int(row["after"].split(":")[1].strip(" }")) for row in rows.to_pylist()]
            floor = left[0] - 1 if left else len(kept) - 1
            assert floor <= given
    assert given > 10


LOSING = """
db.execute("CREATE SOURCE s (n BIGINT)")
db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
subscription, copy = db.subscribe("SELECT n FROM s"), db.subscribe("SELECT * FROM t")
db.insert("s", [(n,) for n in range(10)])
db.insert("t", [(n, 0) for n in range(5)])
db.flush()
old = subscription.recv(60).token
db.flush()
say("flushed", old)
while not os.path.exists(sys.argv[1] + ".go"):
    pass
db.insert("s", [(n,) for n in range(10, 30)])
while (batch := subscription.recv(60)).rows[-1] != (29,):
    pass
db.execute("UPDATE t SET n = 1")
while not (changes := copy.recv(60)).rows or changes.rows[-1][1] != 1:
    pass
say("seen", batch.token, changes.token)
while True:
    pass
"""


@pytest.mark.crash
def test_a_token_of_rows_that_a_crash_took_heals_with_a_reset(tmp_path):
    """The power goes: what was not on the disk is gone, though a reader has seen it."""
    path, saved = tmp_path / "db", tmp_path / "saved"
    child = Child(path, 0, LOSING)
    child.wait_for(b"flushed")
    shutil.copytree(path, saved)
    (tmp_path / "db.go").touch()
    child.wait_for(b"seen")
    said = {line[0]: line[1:] for line in child.kill()}
    shutil.rmtree(path)
    saved.rename(path)
    (old,), (lost, copy_lost) = said["flushed"], said["seen"]
    with ms.open(path) as db:
        # Other rows take the places of those that were lost.
        db.insert("s", [(n,) for n in range(100, 200)])
        db.execute("UPDATE t SET n = 7 WHERE id = 1")
        healed = db.subscribe("SELECT n FROM s", start=lost)
        batch = healed.recv(TIMEOUT)
        assert batch.kind == "snapshot"
        assert batch.gap is not None
        assert batch.gap.count is None
        rows = list(batch.rows)
        while len(rows) < 110:
            rows += healed.recv(TIMEOUT).rows
        assert rows == [(n,) for n in (*range(10), *range(100, 200))]
        batch = db.subscribe("SELECT * FROM t", start=copy_lost).recv(TIMEOUT)
        assert batch.kind == "snapshot"
        assert batch.gap is not None
        assert sorted(batch.rows) == sorted(db.query("SELECT * FROM t"))
        # A token of what is still there goes on as if nothing had been.
        resumed = db.subscribe("SELECT n FROM s", start=old).recv(TIMEOUT)
        assert (resumed.kind, resumed.gap, resumed.rows[0]) == ("changes", None, (100,))


AT_A_STEP = """
countdown = int(sys.argv[3])
def armed(call):
    def step(*args, **options):
        global countdown
        countdown -= 1
        if countdown == 0:
            die()
        return call(*args, **options)
    return step

for name in ("pwritev", "fdatasync", "fsync", "rename", "ftruncate"):
    setattr(os, name, armed(getattr(os, name)))

db.execute("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')"); say("CREATE")
db.insert("s", [(1,)]); say("INSERT")
db.execute("ALTER SOURCE s ADD COLUMN m BIGINT"); say("ALTER")
mine = db.subscribe("SELECT n FROM s", name="mine", start="earliest"); say("SUBSCRIBE")
mine.recv(); mine.ack(); db.flush(); say("ACK")
db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (wal_mode = 'sync')"); say("TABLE")
db.execute("INSERT INTO t VALUES (1), (2)"); say("ROWS")
db.execute("DELETE FROM t WHERE id = 1"); say("DELETE")
db.execute("DROP TABLE t"); say("DROP")
mine.cancel(); db.execute("DROP SUBSCRIPTION mine"); say("FORGET")
db.close(); say("CLOSE")
"""


@pytest.mark.crash
def test_killed_at_each_step_of_what_exists(tmp_path):  # noqa: PLR0912 - one for each step
    """A statement that was acknowledged is done; one that was not, is done or not, never half."""
    for countdown in effort((2, 4, 7, 11, 16), range(1, 20)):
        path = tmp_path / str(countdown)
        work = AT_A_STEP.replace("int(sys.argv[3])", str(countdown))
        child = Child(path, 0, work)
        while child.read(TIMEOUT):
            pass
        code = child.process.wait(TIMEOUT)
        child.process.stdout.close()
        assert code in {0, -signal.SIGKILL}
        said = child.data.decode().split()
        with ms.open(path) as db:
            sources = [s["name"] for s in db.query("SHOW SOURCES").to_pylist()]
            tables = [s["name"] for s in db.query("SHOW TABLES").to_pylist()]
            if "CREATE" in said:
                assert sources == ["s"]
            if "INSERT" in said:
                assert db.query("SELECT n FROM s").fetchall() == [(1,)]
            if "ALTER" in said:
                assert len(db.query("DESCRIBE s")) == 2
            shown = {
                s["name"]: s["acknowledged"] for s in db.query("SHOW SUBSCRIPTIONS").to_pylist()
            }
            if "SUBSCRIBE" in said and "DROP" not in said:
                assert "mine" in shown
            if "ACK" in said and "DROP" not in said:
                assert shown["mine"] > 0
            if "FORGET" in said:
                assert not shown
            if "TABLE" in said and "DELETE" not in said:
                assert tables == ["t"]
            if "ROWS" in said and "DELETE" not in said:
                assert set(db.query("SELECT * FROM t")) in ({(1,), (2,)}, {(2,)})
            if "DELETE" in said and tables:
                assert db.query("SELECT * FROM t").fetchall() == [(2,)]
            if "DROP" in said:
                assert not tables
            # And it goes on.
            if sources:
                db.insert("s", [{"n": 2}])
                assert (2,) in list(db.query("SELECT n FROM s"))
            db.execute("CREATE TABLE IF NOT EXISTS t (id BIGINT PRIMARY KEY)")

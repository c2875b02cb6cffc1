"""Connectors that hang when they are paused or dropped: nothing is committed after the answer."""

import json
import threading

import pytest

from millstream.connectors import (
    Delivery,
    SinkConnector,
    SinkWriter,
    SourceConnector,
    SourceReader,
    register,
    supervisor,
    unregister,
)
from millstream.errors import ConnectorError, ObjectNotFoundError
from millstream.testing import database, wait_until


class Gate:
    """Where a connector hangs until it is let go."""

    def __init__(self):
        self.reached, self.open = threading.Semaphore(0), threading.Event()

    def wait(self):
        self.reached.release()
        assert self.open.wait(60)


class Hanging(SourceConnector):
    name = "test-hanging"
    kinds = ("source", "table")
    gate = Gate()

    def open(self, position):
        return HangingReader(self.gate, position or 0)


class HangingReader(SourceReader):
    def __init__(self, gate, made):
        self._gate, self._made = gate, made

    def read(self, timeout):
        self._gate.wait()
        if self._made == 3:
            threading.Event().wait(timeout)
            return None
        self._made += 1
        return Delivery(rows=[(self._made,)], position=self._made)


class HangingSink(SinkConnector):
    name = "test-hanging"
    gate = Gate()

    def open(self):
        return HangingWriter(self.gate)


class HangingWriter(SinkWriter):
    def __init__(self, gate):
        super().__init__()
        self._gate = gate

    def write(self, batch):
        self._gate.wait()
        return True


@pytest.fixture
def db(monkeypatch):
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.05)
    for each in (Hanging, HangingSink):
        monkeypatch.setattr(each, "gate", Gate())
        register(each)
    with database() as db:
        yield db
        for each in (Hanging, HangingSink):
            each.gate.open.set()
    for each in (Hanging, HangingSink):
        unregister(each)


def shown(db):
    [found] = db.query("SHOW CONNECTORS").to_pylist()
    return found


def in_state(db, state):
    wait_until(lambda: shown(db)["state"] == state, lambda: f"{state}: {shown(db)}")


def rows(db):
    return sorted(db.query("SELECT id FROM k").fetchall())


@pytest.mark.parametrize("kind", ["SOURCE k (id BIGINT)", "TABLE k (id BIGINT PRIMARY KEY)"])
def test_a_source_that_hangs_commits_nothing_after_pause(db, kind):
    word = kind.split()[0]
    db.execute(f"CREATE {kind} WITH (connector = 'test-hanging')")
    assert Hanging.gate.reached.acquire(timeout=60)
    db.execute(f"ALTER {word} k PAUSE")
    assert shown(db)["state"] == "stopping"
    assert shown(db)["error"] == "it was asked to stop, and still waits for the outside"
    Hanging.gate.open.set()
    in_state(db, "paused")
    assert (rows(db), shown(db)["error"], shown(db)["rows"]) == ([], None, 0)
    db.execute(f"ALTER {word} k RESUME")
    wait_until(lambda: rows(db) == [(1,), (2,), (3,)], lambda: f"{rows(db)}")


def test_resume_while_it_hangs_does_not_let_the_old_run_through(db):
    db.execute("CREATE SOURCE k (id BIGINT) WITH (connector = 'test-hanging')")
    assert Hanging.gate.reached.acquire(timeout=60)
    db.execute("ALTER SOURCE k PAUSE")
    db.execute("ALTER SOURCE k RESUME")
    assert shown(db)["state"] == "stopping"
    Hanging.gate.open.set()
    wait_until(lambda: len(rows(db)) == 3, lambda: f"{rows(db)}")
    assert rows(db) == [(1,), (2,), (3,)]
    in_state(db, "running")
    assert shown(db)["error"] is None


def test_a_source_that_hangs_is_dropped_and_a_new_one_has_its_own_rows(db):
    first = Hanging.gate
    db.execute("CREATE SOURCE k (id BIGINT) WITH (connector = 'test-hanging')")
    assert first.reached.acquire(timeout=60)
    db.execute("DROP SOURCE k")
    Hanging.gate = Gate()
    db.execute("CREATE SOURCE k (id BIGINT) WITH (connector = 'test-hanging')")
    assert Hanging.gate.reached.acquire(timeout=60)
    first.open.set()
    threads = "connector-k"
    wait_until(
        lambda: sum(threads in each.name for each in threading.enumerate()) == 1,
        "the thread of the first one has ended",
    )
    assert rows(db) == []
    Hanging.gate.open.set()
    wait_until(lambda: rows(db) == [(1,), (2,), (3,)], lambda: f"{rows(db)}")


def test_a_sink_that_hangs_in_a_write_is_said_to(db, monkeypatch):
    db.execute("CREATE SOURCE s (id BIGINT)")
    db.execute("CREATE SINK k FROM s WITH (connector = 'test-hanging')")
    db.execute("INSERT INTO s VALUES (1)")
    assert HangingSink.gate.reached.acquire(timeout=60)
    for statement in ("ALTER SINK k PAUSE", "DROP SINK k", "DROP SOURCE s CASCADE"):
        with pytest.raises(ConnectorError, match="the connector of k is still writing") as caught:
            db.execute(statement)
        assert "'stopping'" in caught.value.hint
    [found] = db.query("SHOW SINKS").to_pylist()
    assert found["state"] == "stopping"
    assert json.loads(shown(db)["options"])["connector"] == "test-hanging"
    HangingSink.gate.open.set()
    in_state(db, "paused")
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 60.0)
    db.execute("ALTER SINK k RESUME")
    wait_until(lambda: shown(db)["rows"] == 1, lambda: f"{shown(db)}")
    db.execute("DROP SINK k")
    with pytest.raises(ObjectNotFoundError):
        db.execute("DROP SINK k")

"""Things that happen at once: what was found by trying to break it."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

import millstream as ms
from millstream.errors import Error, ObjectNotFoundError, SubscriptionEndedError, TenantError
from millstream.testing import TIMEOUT, engine_of

pytestmark = pytest.mark.slow


@contextmanager
def meanwhile(*works):
    """Do things over and over in threads of their own; gives the errors that they raise."""
    stop, errors = threading.Event(), []

    def run(work):
        while not stop.wait(0.0002):
            try:
                work()
            except Error as error:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def db():
    with ms.open() as opened:
        yield opened


def test_a_readers_list_is_its_own(tmp_path):
    other = []
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT, a ARRAY<BIGINT>)")

        def spoil(batch):
            rows = batch.rows
            rows[0][1].append(77)
            rows.clear()

        db.subscribe_callback("SELECT * FROM s", spoil)
        db.subscribe_callback("SELECT * FROM s", lambda batch: other.append(len(batch.rows)))
        db.source("s").push_batch([(n, [n]) for n in range(5)])
        db.flush()
    with ms.open(tmp_path) as db:
        assert db.query("SELECT * FROM s").fetchall() == [(n, [n]) for n in range(5)]
    assert sum(other) == 5


def test_a_readers_list_is_not_the_tables(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a ARRAY<BIGINT>)")
    subscription = db.subscribe("SELECT * FROM t", start="now")
    db.insert("t", [(1, [1])])
    subscription.recv(TIMEOUT).rows[0][1].append(77)
    db.subscribe("SELECT * FROM t").recv(TIMEOUT).rows[0][1].append(77)
    assert db.query("SELECT a FROM t").fetchall() == [([1],)]


def test_columns_are_added_while_rows_are(tmp_path):
    taken, numbers, lock = [], iter(range(1_000_000)), threading.Lock()

    def insert():
        with lock:
            n = next(numbers)
        db.insert("t", [{"id": n}])  # type: ignore[attr-defined]
        taken.append(n)

    with ms.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        look = lambda: db.query("SELECT * FROM t")  # noqa: E731
        with meanwhile(insert, insert, look) as errors:
            for n in range(20):
                db.execute(f"ALTER TABLE t ADD COLUMN c{n} BIGINT")
        assert not errors
    with ms.open(tmp_path) as db:
        assert sorted(db.query("SELECT id FROM t").fetchall()) == [(n,) for n in sorted(taken)]


def test_a_table_comes_and_goes_while_it_is_used(db):
    def insert():
        db.insert("t", [(1, 1)], replace=True)

    def subscribe():
        with db.subscribe("SELECT * FROM t WHERE b > 0") as subscription:
            subscription.try_recv()

    db.execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT)")
    with meanwhile(insert, insert, subscribe) as errors:
        for columns in ("b BIGINT PRIMARY KEY, a BIGINT", "a BIGINT PRIMARY KEY, b BIGINT") * 8:
            db.execute(f"DROP TABLE t; CREATE TABLE t ({columns})")
    assert {type(error) for error in errors} <= {ObjectNotFoundError, SubscriptionEndedError}
    insert()
    assert db.query("SELECT * FROM t").fetchall() == [(1, 1)]


def test_many_make_the_same_if_it_is_not_there(db):
    errors = []

    def create():
        try:
            for n in range(5):
                db.execute(f"CREATE SOURCE IF NOT EXISTS s{n} (a BIGINT)")
                db.execute(f"ALTER SOURCE s{n} ADD COLUMN IF NOT EXISTS b BIGINT")
        except Error as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not errors


def test_a_forgotten_subscription_is_found_in_the_midst_of_another(db):
    """The collector runs whenever it likes, also while a lock is held."""
    db.execute("CREATE SOURCE s (n BIGINT)")

    def forget():
        holder = {}
        holder["me"] = holder
        holder["subscription"] = db.subscribe("SELECT * FROM s")

    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        with meanwhile(forget, forget):
            for n in range(200):
                db.insert("s", [(n,)])
    finally:
        gc.set_threshold(*before)


def test_a_notification_comes_after_what_was_pushed_before_it(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    source, listener, subscription = db.source("s"), db.listen("c"), db.subscribe("SELECT * FROM s")
    for n in range(100):
        source.push((n,))
        db.notify("c", str(n))
    lsns = []
    while len(lsns) < 100:
        lsns += subscription.recv(TIMEOUT).lsns
    for n in range(100):
        assert listener.recv(TIMEOUT).lsn > lsns[n]


def test_a_lone_watermark_at_the_head_does_not_stop_the_dropping(db):
    db.execute("CREATE SOURCE s (n BIGINT, ts TIMESTAMP)")
    source = db.source("s")
    subscription = db.subscribe("SELECT * FROM s", backpressure="drop_oldest", buffer_rows=2)
    source.watermark(datetime(2026, 1, 1, tzinfo=UTC))
    db.flush()
    for n in range(20):
        source.push((n, None))
        db.flush()
    assert subscription.metrics.lag_rows == 2
    assert subscription.metrics.dropped == 18


def test_a_token_of_a_dropped_table_starts_with_a_snapshot_and_a_gap(db):
    db.execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
    subscription = db.subscribe("SELECT * FROM t")
    subscription.recv(TIMEOUT)
    db.insert("t", [(1,)])
    token = subscription.recv(TIMEOUT).token
    db.execute("DROP TABLE t; CREATE TABLE t (a BIGINT PRIMARY KEY)")
    batch = db.subscribe("SELECT * FROM t", start=token).recv(TIMEOUT)
    assert (batch.kind, batch.rows) == ("snapshot", [])
    assert batch.gap is not None


def test_a_source_that_is_created_again_has_no_watermark(tmp_path):
    with ms.open(tmp_path) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.source("s").watermark(datetime(2029, 1, 1, tzinfo=UTC))
    with ms.open(tmp_path) as db:
        assert db.source("s").current_watermark == datetime(2029, 1, 1, tzinfo=UTC)
        db.execute("DROP SOURCE s; CREATE SOURCE s (n BIGINT)")
        assert db.source("s").current_watermark is None


def test_a_slow_callback_is_given_everything_when_the_database_closes():
    seen, go = [], threading.Event()

    def slow(batch):
        go.wait(TIMEOUT)
        seen.extend(batch.rows)

    db = ms.open()
    db.execute("CREATE SOURCE s (n BIGINT)")
    db.subscribe_callback("SELECT * FROM s", slow, buffer_rows=10)
    for n in range(100):
        db.insert("s", [(n,)])
        db.flush()
    go.set()
    db.close()
    assert seen == [(n,) for n in range(100)]


def test_a_reader_that_is_behind_when_the_database_closes_gets_an_error():
    db = ms.open()
    db.execute("CREATE SOURCE s (n BIGINT)")
    subscription = db.subscribe("SELECT * FROM s", buffer_rows=10)
    for n in range(50):
        db.insert("s", [(n,)])
        db.flush()
    db.close()
    with pytest.raises(SubscriptionEndedError, match="closed"):
        list(subscription)


def test_the_bus_reads_logs_that_are_made_while_it_reads(db):
    db.execute("CREATE SOURCE a (n BIGINT)")
    db.insert("a", [(n,) for n in range(3)])
    db.flush()
    bus = db.changes(start="earliest")
    bus.recv(TIMEOUT)
    db.execute("CREATE SOURCE b (n BIGINT)")
    db.insert("b", [(1,)])
    db.flush()
    db.insert("a", [(3,)])
    assert [bus.recv(TIMEOUT).collection for _ in range(4)] == ["a", "a", "b", "a"]


def test_a_token_of_the_bus_is_after_the_event_and_not_after_its_batch(db):
    db.execute("CREATE SOURCE a (n BIGINT)")
    bus = db.changes(include="after")
    db.source("a").push_batch([(n,) for n in range(3)])
    assert bus.recv(TIMEOUT).after == {"n": 0}
    again = db.changes(include="after", start=bus.token)
    assert again.recv(TIMEOUT).after == {"n": 1}


def test_a_tenant_listens_to_no_one_elses_channel(db):
    with pytest.raises(TenantError):
        db.execute("LISTEN orders", tenant="acme")
    with pytest.raises(TenantError):
        db.execute("UNLISTEN *", tenant="acme")


def test_an_inline_callback_sees_the_end_and_new_columns(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    source, rows, errors = db.source("s"), [], []
    inline = db.subscribe_callback(
        "SELECT * FROM s",
        lambda batch: rows.append(batch.to_arrow().num_columns),
        on_error=errors.append,
        inline=True,
    )
    source.push((1,))
    db.execute("ALTER SOURCE s ADD COLUMN m BIGINT")
    source.push((1, 2))
    assert rows == [4, 5]
    db.execute("DROP SOURCE s")
    assert inline.state == "cancelled"
    assert [type(error) for error in errors] == [SubscriptionEndedError]


def test_a_callback_that_exits_is_an_error_like_any_other(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    errors, ended = [], threading.Event()

    def on_error(error):
        errors.append(error)
        ended.set()

    subscription = db.subscribe_callback("SELECT * FROM s", lambda _: sys.exit(), on_error=on_error)
    db.insert("s", [(1,)])
    assert ended.wait(TIMEOUT)
    assert isinstance(errors[0], SystemExit)
    assert subscription.state == "active"


def test_a_batch_without_rows_is_true():
    schema = ms.Schema.of(n="BIGINT")
    assert ms.ChangeBatch.from_rows(schema, [])


def test_rows_that_were_read_before_they_are_offered_come_once(db, monkeypatch):
    """A sync commit is in the log, where a reader that is behind finds it, before the fan-out."""
    db.execute("CREATE SOURCE s (n BIGINT) WITH (wal_mode = 'sync')")
    source, dispatcher = db.source("s"), engine_of(db).dispatcher
    source.push((0,))
    reader, fan_out, got = db.subscribe("SELECT * FROM s", start="earliest"), [], []

    def drain():
        while (batch := reader.try_recv()) is not None:
            got.extend(n for (n,) in batch.rows)

    def first_read(batches):
        drain()
        fan_out[0](batches)

    fan_out.append(dispatcher.fan_out.deliver)
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher.fan_out, "deliver", first_read)
        source.push((1,))
    source.push((2,))
    drain()
    assert got == [0, 1, 2]

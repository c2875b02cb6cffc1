"""Subscriptions through the front door: nothing twice, nothing missing, losses reported."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import random
import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import millstream as ms
from millstream import errors
from millstream.testing import wait_until


@pytest.fixture
def numbers(db):
    """A source of numbers, and a way to push so many more of them."""
    db.execute("CREATE SOURCE s (n BIGINT)")
    source, count = db.source("s"), 0

    def push(rows):
        nonlocal count
        for n in range(count, count + rows):
            source.push((n,))
        count += rows

    return push


@pytest.fixture
def accounts(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    db.insert("t", [(n, 0) for n in range(10)])
    return db


def listed(batches):
    return [row[0] for batch in batches for row in batch.rows]


class Copy:
    """A reader's copy of a table, made of its changes; a step that does not fit is an error."""

    def __init__(self, *, strict=True):
        self.rows = {}
        self.strict = strict

    def take(self, batch):
        if batch.kind == "snapshot":
            if batch.gap is not None:
                self.rows = {}
            assert all(weight > 0 for weight in batch.weights)
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            had = self.rows.get(row, 0)
            self.rows[row] = had + weight
            if not self.rows[row]:
                del self.rows[row]
        if self.strict:
            assert set(self.rows.values()) <= {1}, "a row twice, or one that never was there"

    @property
    def content(self):
        return sorted(self.rows)


# ---- ready means ready


def test_what_is_pushed_after_subscribe_is_seen(db, numbers, rows_of):
    for n in range(50):
        with db.subscribe("SELECT n FROM s") as subscription:
            numbers(1)
            assert rows_of(subscription, 1)[-1] == (n,)
            db.flush()


def test_what_was_committed_before_is_not_seen(db, numbers, rows_of):
    numbers(5)
    db.flush()
    subscription = db.subscribe("SELECT n FROM s")
    assert subscription.try_recv() is None
    numbers(2)
    assert rows_of(subscription, 2) == [(5,), (6,)]


def test_what_this_thread_pushed_before_is_not_seen(db, numbers, rows_of):
    """The same as for a query: a thread's own pushes come before what it does next."""
    for n in range(200):
        numbers(1)
        with db.subscribe("SELECT n FROM s") as subscription:
            numbers(1)
            assert rows_of(subscription, 1) == [(2 * n + 1,)]


def test_filters_and_projections(db, take):
    db.execute("CREATE SOURCE s (a BIGINT, b VARCHAR, c DOUBLE)")
    queries = {
        "SELECT * FROM s": lambda a, b, c: (a, b, c),
        "SELECT a FROM s WHERE b = 'x'": lambda a, b, c: (a,) if b == "x" else None,
        "SELECT c, a FROM s WHERE b IN ('x', 'y')": lambda a, b, c: (c, a) if b in "xy" else None,
        "SELECT a * 2 AS d FROM s WHERE c > 5 AND b = 'z'": lambda a, b, c: (
            (a * 2,) if c > 5 and b == "z" else None
        ),
        "SELECT a FROM s WHERE a % 7 = 0 OR b = 'y'": lambda a, b, c: (
            (a,) if a % 7 == 0 or b == "y" else None
        ),
    }
    open_now = {sql: db.subscribe(sql) for sql in queries}
    rows = [(n, "xyz"[n % 3], float(n % 11)) for n in range(500)]
    for row in rows[:200]:
        db.source("s").push(row)
    db.insert("s", rows[200:350])
    db.insert(
        "s",
        {
            "a": [r[0] for r in rows[350:]],
            "b": [r[1] for r in rows[350:]],
            "c": [r[2] for r in rows[350:]],
        },
    )
    for sql, python in queries.items():
        expected = [made for made in (python(*row) for row in rows) if made is not None]
        batches = take(open_now[sql], len(expected))
        assert [row for batch in batches for row in batch.rows] == expected
        lsns = [lsn for batch in batches for lsn in batch.lsns]
        assert lsns == sorted(set(lsns))
        assert db.query(sql).fetchall() == expected
        replayed = db.subscribe(sql, start="earliest")
        assert [row for batch in take(replayed, len(expected)) for row in batch.rows] == expected


def test_arrow_of_a_batch(db, take):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
    subscription = db.subscribe("SELECT * FROM t", start="now")
    db.execute("INSERT INTO t VALUES (1, 1)")
    db.execute("UPDATE t SET n = 2")
    batches = take(subscription, 3)
    arrow = pa.Table.from_batches([batch.to_arrow() for batch in batches])
    assert arrow.column_names == ["id", "n", "_op", "_weight", "_lsn"]
    assert arrow.column("_op").to_pylist() == ["insert", "update", "update"]
    assert arrow.column("_weight").to_pylist() == [1, -1, 1]
    change = [change for batch in batches for change in batch][-1]
    assert (change.op, change.before, change.row) == ("update", (1, 1), (1, 2))


# ---- where to begin


def test_start_earliest_now_snapshot(db, numbers, rows_of):
    numbers(5)
    db.flush()
    earliest = db.subscribe("SELECT n FROM s", start="earliest")
    snapshot = db.subscribe("SELECT n FROM s", start="snapshot")
    now = db.subscribe("SELECT n FROM s", start="now")
    numbers(3)
    assert rows_of(earliest, 8) == [(n,) for n in range(8)]
    assert rows_of(now, 3) == [(n,) for n in range(5, 8)]
    kinds = []
    while len(kinds) < 8:
        batch = snapshot.recv(60)
        kinds += [(row[0], batch.kind) for row in batch.rows]
    assert kinds == [(n, "snapshot" if n < 5 else "changes") for n in range(8)]


def test_start_at_a_token_goes_on_after_it(db, numbers, take, rows_of):
    subscription = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", max_rows=7)
    numbers(100)
    (batch, *_) = take(subscription, 10)
    last = batch.rows[-1][0]
    resumed = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", start=batch.token)
    assert rows_of(resumed, 1)[0] == (last + 2,)
    again = db.subscribe("SELECT n FROM s WHERE n % 2 = 0", start=subscription.token)
    assert rows_of(again, 1)[0] == (14 * 2,)


def test_a_token_of_this_very_moment(db, numbers, rows_of):
    """What subscribers have, and the log not yet, can be resumed from like all else."""
    subscription = db.subscribe("SELECT n FROM s")
    token = subscription.token
    for n in range(200):
        numbers(1)
        with db.subscribe("SELECT n FROM s", start=token) as resumed:
            batch = resumed.recv(60)
            assert batch.kind == "changes"
            assert batch.gap is None
            assert batch.rows == [(n,)]
        batch = subscription.recv(60)
        assert batch.rows == [(n,)]
        token = batch.token


def test_start_at_an_lsn(db, numbers, take, rows_of):
    subscription = db.subscribe("SELECT n FROM s")
    numbers(20)
    lsns = [lsn for batch in take(subscription, 20) for lsn in batch.lsns]
    assert rows_of(db.subscribe("SELECT n FROM s", start=lsns[7]), 13)[0] == (7,)
    assert rows_of(db.subscribe("SELECT n FROM s", start=0), 20)[0] == (0,)
    newest = db.subscribe("SELECT n FROM s", start=db.lsn)
    assert rows_of(newest, 1) == [(19,)]
    following = db.subscribe("SELECT n FROM s", start=db.lsn + 1)
    numbers(1)
    assert rows_of(following, 1) == [(20,)]


def test_start_at_the_newest_lsn_at_any_moment(db, numbers, rows_of):
    for n in range(200):
        numbers(1)
        db.query("SHOW CHANGES LIMIT 0")
        with db.subscribe("SELECT n FROM s", start=db.lsn) as subscription:
            assert rows_of(subscription, 1) == [(n,)]


def test_start_at_a_time(db, numbers, rows_of):
    numbers(5)
    db.flush()
    committed = db.query("SHOW CHANGES").to_pylist()[-1]["timestamp"]
    wait_until(lambda: datetime.now(UTC) > committed)
    between = datetime.now(UTC)
    wait_until(lambda: datetime.now(UTC) > between)
    numbers(5)
    db.flush()
    assert rows_of(db.subscribe("SELECT n FROM s", start=between), 5)[0] == (5,)
    old = datetime(2001, 1, 1, tzinfo=UTC)
    assert rows_of(db.subscribe("SELECT n FROM s", start=old), 10)[0] == (0,)
    with pytest.raises(errors.InvalidOptionError, match="future"):
        db.subscribe("SELECT n FROM s", start=datetime(2101, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("start", ["yesterday", -1, 10**9, 1.5, True, "ms1AAAA", b"now"])
def test_a_start_that_cannot_be(db, numbers, start):
    with pytest.raises(errors.Error) as caught:
        db.subscribe("SELECT n FROM s", start=start)
    assert caught.value.code in {"INVALID_OPTION", "TOKEN_INVALID"}
    assert caught.value.hint
    assert not db.query("SHOW SUBSCRIPTIONS")


def test_a_token_of_another_database(db, numbers, tmp_path):
    with ms.open(tmp_path / "other") as other:
        other.execute("CREATE SOURCE s (n BIGINT)")
        subscription = other.subscribe("SELECT n FROM s")
        other.insert("s", [(1,)])
        token = subscription.recv(60).token
    with pytest.raises(errors.ForeignTokenError):
        db.subscribe("SELECT n FROM s", start=token)


@pytest.mark.parametrize(
    "options",
    [
        {"backpressure": "nope"},
        {"backpressure": "sample(0)"},
        {"backpressure": "conflate"},
        {"buffer_rows": 0},
        {"max_rows": 0},
        {"max_delay": -1},
        {"demand": -1},
        {"max_rows": "7"},
    ],
)
def test_options_that_cannot_be(db, numbers, options):
    with pytest.raises(errors.InvalidOptionError) as caught:
        db.subscribe("SELECT n FROM s", **options)
    assert caught.value.hint
    assert db.metrics()["subscribers"] == 0


# ---- tables: a snapshot, then changes


def test_snapshot_then_changes(accounts, take):
    subscription = accounts.subscribe("SELECT * FROM t WHERE n = 0")
    first = subscription.recv(60)
    assert first.kind == "snapshot"
    assert len(first) == 10
    accounts.execute("UPDATE t SET n = 1 WHERE id < 2")
    second = subscription.recv(60)
    assert (second.kind, [c.op for c in second]) == ("changes", ["delete", "delete"])


def test_an_empty_table_begins_with_an_empty_snapshot(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    batch = db.subscribe("SELECT * FROM t").recv(60)
    assert (batch.kind, len(batch)) == ("snapshot", 0)


def test_a_token_of_an_unread_snapshot_begins_with_it(accounts):
    """A reader that got nothing, or only a part of the snapshot, cannot resume without it."""
    subscription = accounts.subscribe("SELECT * FROM t", max_rows=4)
    tokens = [subscription.token]
    part = subscription.recv(60)
    assert len(part) == 4
    tokens += [part.token, subscription.token]
    for token in tokens:
        again = accounts.subscribe("SELECT * FROM t", start=token).recv(60)
        assert (again.kind, len(again)) == ("snapshot", 10)
    rest = [subscription.recv(60), subscription.recv(60)]
    assert [len(batch) for batch in rest] == [4, 2]
    accounts.execute("INSERT INTO t VALUES (77, 7)")
    following = accounts.subscribe("SELECT * FROM t", start=rest[-1].token).recv(60)
    assert (following.kind, following.rows) == ("changes", [(77, 7)])


@pytest.mark.parametrize("start", [None, "earliest"])
@pytest.mark.parametrize(
    ("backpressure", "buffer_rows"), [("block", 65536), ("block", 5), ("conflate", 5)]
)
def test_a_readers_copy_is_exact_under_concurrent_changes(
    accounts, start, backpressure, buffer_rows
):
    """No gap and no overlap: readers that begin at any moment end with what a query gives."""
    stop = threading.Event()

    def write(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            key = rng.randrange(30)
            kind = rng.randrange(4)
            if kind == 0:
                accounts.execute(f"INSERT OR REPLACE INTO t VALUES ({key}, {rng.randrange(100)})")
            elif kind == 1:
                accounts.execute(f"DELETE FROM t WHERE id = {key}")
            elif kind == 2:
                accounts.execute(f"UPDATE t SET n = n + 1 WHERE id % 3 = {key % 3}")
            else:
                accounts.execute(f"INSERT OR IGNORE INTO t VALUES ({key}, 0), ({key + 100}, 0)")

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    readers = []
    queries = [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE n % 2 = 0",
        "SELECT id, n FROM t WHERE id = 3",
    ]
    for n in range(12):
        sql = queries[n % 3]
        subscription = accounts.subscribe(
            sql,
            start=start,
            backpressure=backpressure,
            buffer_rows=buffer_rows,
            max_rows=3 if n % 2 else None,
        )
        readers.append((sql, subscription, Copy()))
        for _, other, copy in readers[-3:]:
            for _ in range(5):
                with contextlib.suppress(TimeoutError):
                    copy.take(other.recv(0.01))
    stop.set()
    for writer in writers:
        writer.join(60)
    accounts.flush()
    for sql, subscription, copy in readers:
        while (batch := subscription.try_recv()) or subscription.metrics.lag_rows:
            if batch is not None:
                copy.take(batch)
        assert copy.content == sorted(accounts.query(sql)), sql


def test_resuming_over_and_over_gives_an_exact_copy(accounts):
    """A reader that goes away after each batch and comes back with its token."""
    copy, token = Copy(), None
    stop = threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            n += 1
            accounts.execute(f"UPDATE t SET n = {n} WHERE id % 2 = {n % 2}")

    writer = threading.Thread(target=write)
    writer.start()
    for n in range(60):
        with accounts.subscribe("SELECT * FROM t", start=token, max_rows=n % 4 * 3 or None) as part:
            for _ in range(n % 3 + 1):
                batch = part.recv(60)
                if batch.kind == "snapshot" and batch.lsn == 0:
                    continue  # a part of a snapshot: it will come again
                if batch.kind != "snapshot" or part.metrics.delivered == len(batch):
                    copy.take(batch)
                token = batch.token if copy.rows else None
    stop.set()
    writer.join(60)
    with accounts.subscribe("SELECT * FROM t", start=token) as last:
        while (batch := last.try_recv()) or last.metrics.lag_rows:
            if batch is not None:
                copy.take(batch)
    assert copy.content == sorted(accounts.query("SELECT * FROM t"))


# ---- six policies


def test_block_loses_nothing_and_holds_up_no_other(db, numbers, rows_of):
    slow = db.subscribe("SELECT n FROM s", buffer_rows=10)
    numbers(5000)
    db.flush()
    assert rows_of(slow, 5000) == [(n,) for n in range(5000)]
    numbers(10)
    assert rows_of(slow, 10) == [(n,) for n in range(5000, 5010)]
    assert (slow.metrics.delivered, slow.metrics.dropped) == (5010, 0)


def lost_rows(batches):
    """The rows that gaps report; their ranges lie between what was delivered."""
    last, count = 0, 0
    for batch in batches:
        if batch.gap is not None:
            assert last < batch.gap.first_lsn <= batch.gap.last_lsn
            if len(batch):
                assert batch.gap.last_lsn < batch.lsns[0]
            count += batch.gap.count
        if len(batch):
            last = batch.lsns[-1]
    return count


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
@pytest.mark.parametrize("max_rows", [None, 7])
def test_dropped_rows_are_reported_as_gaps(db, numbers, policy, max_rows, drain):
    subscription = db.subscribe(
        "SELECT n FROM s WHERE n % 2 = 0", backpressure=policy, buffer_rows=20, max_rows=max_rows
    )
    batches = []
    for _ in range(8):
        numbers(100)
        db.flush()
        batches.append(subscription.recv(60))
        numbers(10)
        db.flush()
        batches.append(subscription.recv(60))
    db.close()
    batches += drain(subscription)
    got = listed(batches)
    assert got == sorted(set(got))
    metrics = subscription.metrics
    assert metrics.delivered == len(got)
    assert metrics.delivered + metrics.dropped == 440
    assert metrics.dropped > 0
    assert lost_rows(batches) == metrics.dropped
    if policy == "drop_oldest":
        assert got[-1] == 878
    else:
        assert got[0] == 0


def test_sample(db, numbers, take, rows_of):
    subscription = db.subscribe("SELECT n FROM s", backpressure="sample(10)")
    numbers(95)
    db.flush()
    assert listed(take(subscription, 9)) == list(range(9, 95, 10))
    numbers(5)
    assert rows_of(subscription, 1) == [(99,)]
    assert (subscription.metrics.delivered, subscription.metrics.dropped) == (10, 90)


def test_conflate(accounts):
    subscription = accounts.subscribe("SELECT * FROM t", backpressure="conflate")
    copy = Copy()
    copy.take(subscription.recv(60))
    for n in range(1, 50):
        accounts.execute(f"UPDATE t SET n = {n} WHERE id < 5")
    accounts.execute("INSERT INTO t VALUES (70, 1)")
    accounts.execute("DELETE FROM t WHERE id = 70; DELETE FROM t WHERE id = 9")
    batch = subscription.recv(60)
    assert [(c.op, c.row[0]) for c in batch] == [
        *(("update", n) for n in range(5)),
        ("delete", 9),
    ]
    copy.take(batch)
    assert copy.content == sorted(accounts.query("SELECT * FROM t"))
    metrics = subscription.metrics
    assert metrics.delivered + metrics.conflated == 10 + 49 * 10 + 2 + 1
    assert subscription.try_recv() is None


def test_a_part_of_what_was_conflated_is_no_place_to_resume_from(accounts):
    """Key 1 was changed early and late; a reader of key 0 only must not miss what came before."""
    subscription = accounts.subscribe("SELECT * FROM t", backpressure="conflate", max_rows=2)
    copy = Copy()
    while not copy.rows or len(copy.rows) < 10:
        copy.take(subscription.recv(60))
    accounts.execute("UPDATE t SET n = 1 WHERE id = 1")
    accounts.execute("UPDATE t SET n = 1 WHERE id = 0")
    accounts.execute("UPDATE t SET n = 2 WHERE id = 1")
    part = subscription.recv(60)
    copy.take(part)
    for token in (part.token, subscription.token):
        resumed, mine = accounts.subscribe("SELECT * FROM t", start=token), Copy(strict=False)
        mine.rows = dict(copy.rows)
        while (batch := resumed.try_recv()) or resumed.metrics.lag_rows:
            for change in batch or ():
                mine.rows = {r: w for r, w in mine.rows.items() if r[0] != change.row[0]}
                mine.rows[change.row] = 1
        assert mine.content == sorted(accounts.query("SELECT * FROM t"))


def test_disconnect_says_where_to_go_on(db, numbers, take):
    subscription = db.subscribe("SELECT n FROM s", backpressure="disconnect", buffer_rows=10)
    for _ in range(10):
        numbers(5)
        db.flush()
    got = []
    with pytest.raises(errors.SlowConsumerError) as caught:
        while True:
            got += listed([subscription.recv(60)])
    assert got == list(range(10))
    assert subscription.state == "failed"
    resumed = db.subscribe("SELECT n FROM s", start=caught.value.token)
    assert listed(take(resumed, 40)) == list(range(10, 50))


def test_a_subscriber_that_never_reads_costs_producers_nothing(db):
    """With every policy, a small buffer and a small source buffer, pushes go on."""
    db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE SOURCE s (n BIGINT) WITH (buffer_size = 16)"
    )
    policies = ["block", "drop_oldest", "drop_newest", "sample(3)", "disconnect"]
    idle = [db.subscribe("SELECT n FROM s", backpressure=p, buffer_rows=10) for p in policies]
    idle.append(db.subscribe("SELECT * FROM t", backpressure="conflate", buffer_rows=10))
    source = db.source("s")
    for n in range(20_000):
        source.push((n,))
    for n in range(200):
        db.execute(f"INSERT INTO t VALUES ({n})")
    assert len(db.query("SELECT n FROM s")) == 20_000
    assert max(each.metrics.lag_rows for each in idle[1:4]) <= 10


def test_a_query_that_fails_on_a_row_ends_only_itself(db, rows_of):
    db.execute("CREATE SOURCE s (n BIGINT)")
    fails = db.subscribe("SELECT 10 / n AS x FROM s")
    works = db.subscribe("SELECT n FROM s")
    db.insert("s", [(5,)])
    assert rows_of(fails, 1) == [(2.0,)]
    db.insert("s", [(0,)])
    db.insert("s", [(2,)])
    assert rows_of(works, 3) == [(5,), (0,), (2,)]
    with pytest.raises(errors.Error) as caught:
        fails.recv(60)
    assert caught.value.code in {"EXPRESSION", "SUBSCRIPTION_ENDED"}
    assert fails.state == "failed"


# ---- demand, pause, batching


def test_demand(db, numbers, rows_of):
    subscription = db.subscribe("SELECT n FROM s", demand=0)
    numbers(100)
    db.flush()
    with pytest.raises(TimeoutError):
        subscription.recv(0.05)
    subscription.request(3)
    assert listed([subscription.recv(60)]) == [0, 1, 2]
    assert subscription.try_recv() is None
    subscription.request(2)
    subscription.request(2)
    assert rows_of(subscription, 4) == [(n,) for n in range(3, 7)]
    with pytest.raises(TimeoutError):
        subscription.recv(0.05)
    with pytest.raises(errors.InvalidOptionError):
        subscription.request(0)


def test_a_request_wakes_a_waiting_reader(db, numbers):
    subscription = db.subscribe("SELECT n FROM s", demand=0)
    numbers(1)
    got = []
    waiter = threading.Thread(target=lambda: got.append(subscription.recv(60)))
    waiter.start()
    subscription.request(1)
    waiter.join(60)
    assert listed(got) == [0]


def test_pause_and_resume(db, numbers, rows_of):
    subscription = db.subscribe("SELECT n FROM s")
    subscription.pause()
    numbers(5)
    db.flush()
    assert subscription.try_recv() is None
    assert subscription.state == "paused"
    got = []
    waiter = threading.Thread(target=lambda: got.append(subscription.recv(60)))
    waiter.start()
    subscription.resume()
    waiter.join(60)
    assert listed(got) == list(range(5))
    assert subscription.state == "active"


def test_cancel(db, numbers):
    subscription = db.subscribe("SELECT n FROM s")
    numbers(1)
    db.flush()
    subscription.cancel()
    subscription.cancel()
    assert subscription.state == "cancelled"
    with pytest.raises(errors.ClosedError):
        subscription.recv(60)
    assert list(subscription) == []
    assert db.metrics()["subscribers"] == 0
    waiting = db.subscribe("SELECT n FROM s")
    ended = []
    waiter = threading.Thread(target=lambda: ended.append(list(waiting)))
    waiter.start()
    waiting.cancel()
    waiter.join(60)
    assert ended == [[]]


def test_max_rows_and_max_delay(db, numbers, take):
    subscription = db.subscribe("SELECT n FROM s", max_rows=10)
    numbers(95)
    db.flush()
    batches = take(subscription, 95)
    assert [len(b) for b in batches] == [10] * 9 + [5]
    patient = db.subscribe("SELECT n FROM s", max_rows=50, max_delay=600.0)
    for _ in range(10):
        numbers(10)
        db.flush()
    assert [len(b) for b in take(patient, 100)] == [50, 50]
    numbers(10)
    db.flush()
    with pytest.raises(TimeoutError):
        patient.recv(0.05)
    quick = db.subscribe("SELECT n FROM s", max_rows=50, max_delay=0.01)
    numbers(3)
    assert len(quick.recv(60)) in {1, 2, 3}


def test_an_update_is_never_parted(accounts):
    subscription = accounts.subscribe("SELECT * FROM t", start="now", max_rows=3)
    accounts.execute("UPDATE t SET n = 5")
    ops = []
    while len(ops) < 10:
        ops += [change.op for change in subscription.recv(60)]
    assert ops == ["update"] * 10
    asked = accounts.subscribe("SELECT * FROM t", start="now", demand=1)
    accounts.execute("UPDATE t SET n = 6 WHERE id = 1")
    assert [change.op for change in asked.recv(60)] == ["update"]


# ---- callbacks


def test_callbacks(db, numbers):
    got, completed = [], threading.Event()
    subscription = db.subscribe_callback(
        "SELECT n FROM s WHERE n % 2 = 1",
        lambda batch: got.extend(batch.rows),
        on_complete=completed.set,
    )
    numbers(1000)
    wait_until(lambda: len(got) == 500)
    assert got == [(n,) for n in range(1, 1000, 2)]
    assert subscription.metrics.delivered == 500
    db.close()
    assert completed.wait(60)


def test_a_forgotten_callback_goes_on(db, numbers):
    got = []
    db.subscribe_callback("SELECT n FROM s", lambda batch: got.extend(batch.rows))
    gc.collect()
    numbers(3)
    wait_until(lambda: len(got) == 3)


def test_a_callback_that_raises_harms_no_one_else(db, numbers):
    errors_seen, good, inline_errors = [], [], []

    def bad(batch):
        raise ValueError(batch.rows[0])

    failing = db.subscribe_callback("SELECT n FROM s", bad, on_error=errors_seen.append, max_rows=1)
    worse = db.subscribe_callback(
        "SELECT n FROM s", bad, on_error=(_ for _ in ()).throw, max_rows=1
    )
    inline = db.subscribe_callback(
        "SELECT n FROM s", bad, on_error=inline_errors.append, inline=True
    )
    db.subscribe_callback("SELECT n FROM s", lambda batch: good.extend(batch.rows))
    numbers(20)
    wait_until(lambda: len(good) == 20 and len(errors_seen) == 20 and worse.errors == 20)
    assert [error.args[0] for error in errors_seen] == [(n,) for n in range(20)]
    assert failing.state == "active"
    assert failing.metrics.errors == 20
    assert len(inline_errors) == inline.errors == 20


def test_inline_callbacks_run_within_the_push(db, numbers):
    threads, got = set(), []

    def call(batch):
        threads.add(threading.current_thread())
        got.extend(batch.rows)
        assert (batch.token, batch.lsn) == ("", 0)

    completed = threading.Event()
    with db.subscribe_callback("SELECT n * 2 AS d FROM s WHERE n > 2", call, inline=True):
        numbers(5)
        db.insert("s", [(7,), (1,), (8,)])
        db.source("s").push_arrow(db.query("SELECT n FROM s WHERE n = 7"))
    assert got == [(6,), (8,), (14,), (16,), (14,)]
    assert threads == {threading.current_thread()}
    numbers(5)
    assert len(got) == 5
    with pytest.raises(errors.InvalidOptionError):
        db.subscribe_callback("SELECT n FROM s", call, inline=True, max_rows=1)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    with pytest.raises(errors.WrongObjectError):
        db.subscribe_callback("SELECT * FROM t", call, inline=True)
    db.subscribe_callback("SELECT n FROM s", call, inline=True, on_complete=completed.set)
    db.close()
    assert completed.is_set()


def test_an_on_complete_that_raises_does_not_keep_the_database_open(tmp_path):
    seen = []

    def bad():
        raise ValueError("complete")

    with ms.open(tmp_path / "x") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        for inline in (False, True):
            db.subscribe_callback(
                "SELECT n FROM s",
                lambda _: None,
                on_error=seen.append,
                on_complete=bad,
                inline=inline,
            )
        db.insert("s", [(1,)])
    wait_until(lambda: len(seen) == 2)
    with ms.open(tmp_path / "x") as db:
        assert len(db.query("SELECT * FROM s")) == 1


def test_inline_callbacks_come_and_go_from_many_threads(db):
    db.execute("CREATE SOURCE s (n BIGINT)")

    def work():
        for _ in range(100):
            db.subscribe_callback("SELECT n FROM s", lambda _: None, inline=True).cancel()

    workers = [threading.Thread(target=work) for _ in range(4)]
    stays, got = None, []
    for worker in workers:
        worker.start()
    stays = db.subscribe_callback("SELECT n FROM s", got.append, inline=True)
    for worker in workers:
        worker.join(60)
    db.insert("s", [(1,)])
    assert len(got) == 1
    assert stays.state == "active"
    shown = db.query("SHOW SUBSCRIPTIONS").to_pylist()
    assert [s["style"] for s in shown] == ["inline"]


def test_a_callback_may_do_what_it_likes(db, numbers):
    """Query, push, subscribe and cancel from within a callback, the thread's own and inline."""
    db.execute("CREATE SOURCE out (n BIGINT)")
    out, done = db.source("out"), []

    def call(batch):
        for (n,) in batch.rows:
            out.push((n * 10,))
        with db.subscribe("SELECT n FROM out", start="earliest") as inner:
            assert inner.recv(60) is not None
        done.append(len(db.query("SELECT n FROM s")))
        if len(done) == 2:
            subscription.cancel()

    subscription = db.subscribe_callback("SELECT n FROM s", call)
    numbers(1)
    wait_until(lambda: len(done) == 1)
    numbers(1)
    wait_until(lambda: len(done) == 2)
    assert db.query("SELECT n FROM out").fetchall() == [(0,), (10,)]
    inline = []
    db.subscribe_callback(
        "SELECT n FROM s", lambda _: inline.append(len(db.query("SELECT n FROM s"))), inline=True
    )
    numbers(1)
    assert len(inline) == 1


# ---- the async style


def test_stream(db):
    db.execute("CREATE SOURCE s (n BIGINT)")

    async def main():
        got = []
        async with db.subscribe_stream("SELECT n FROM s", buffer_rows=100) as stream:
            for n in range(1000):
                db.source("s").push((n,))
            async for batch in stream:
                got += listed([batch])
                if len(got) == 1000:
                    break
            with pytest.raises(TimeoutError):
                await stream.recv(0.01)
            waiting = asyncio.ensure_future(stream.recv())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            db.source("s").push((1000,))
            got += listed([await stream.recv(60)])
        with pytest.raises(errors.ClosedError):
            await stream.recv()
        return got

    assert asyncio.run(main()) == list(range(1001))


def test_a_cancelled_task_loses_nothing(db):
    db.execute("CREATE SOURCE s (n BIGINT)")

    async def main():
        got = []
        stream = db.subscribe_stream("SELECT n FROM s", start="earliest", buffer_rows=10)
        for n in range(3000):
            db.source("s").push((n,))
            if n % 10 == 0:
                task = asyncio.ensure_future(stream.recv())
                for _ in range(n % 3):
                    await asyncio.sleep(0)
                task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                if not isinstance(result, BaseException):
                    got += listed([result])
        while len(got) < 3000:
            got += listed([await stream.recv(60)])
        stream.cancel()
        return got

    assert asyncio.run(main()) == list(range(3000))


def test_a_stream_ends_with_the_database(db):
    db.execute("CREATE SOURCE s (n BIGINT)")

    async def main():
        stream = db.subscribe_stream("SELECT n FROM s")
        db.insert("s", [(1,), (2,)])
        db.flush()
        closing = asyncio.ensure_future(asyncio.to_thread(db.close))
        got = [row async for batch in stream for row in batch.rows]
        await closing
        return got

    assert asyncio.run(main()) == [(1,), (2,)]


# ---- the end of what is read


def test_dropping_ends_subscriptions(db, numbers):
    numbers(3)
    live = db.subscribe("SELECT n FROM s")
    replaying = db.subscribe("SELECT n FROM s", start="earliest")
    ended = []
    db.subscribe_callback("SELECT n FROM s", lambda _: None, on_error=ended.append)
    db.execute("DROP SOURCE s")
    for each in (live, replaying):
        with pytest.raises(errors.SubscriptionEndedError):
            while True:
                assert each.recv(60) is not None
        assert each.state == "failed"
    wait_until(lambda: ended)
    assert isinstance(ended[0], errors.SubscriptionEndedError)
    wait_until(lambda: db.metrics()["subscribers"] == 0)


def test_retention_is_reported_as_a_gap_and_healed(tmp_path, rows_of):
    with ms.open(tmp_path / "x", segment_bytes=2000, retention_interval=0.01) as db:
        db.execute("CREATE SOURCE s (n BIGINT, t VARCHAR) WITH (retention_bytes = 3000)")
        first = db.subscribe("SELECT n FROM s")
        db.insert("s", [(0, "")])
        token = first.recv(60).token
        for n in range(1, 200):
            db.insert("s", [(n, "x" * 100)])
            db.flush()
        while db.query("SHOW CHANGES LIMIT 1").to_pylist()[0]["after"].startswith('{"n": 0'):
            pass
        healed = db.subscribe("SELECT n FROM s", start=token)
        batch = healed.recv(60)
        assert batch.kind == "snapshot"
        assert batch.gap.count == batch.lsns[0] - batch.gap.first_lsn
        assert batch.gap.last_lsn < batch.lsns[0]
        got = listed([batch])
        while got[-1] != 199:
            batch = healed.recv(60)
            if batch.gap is not None:  # retention was faster once more
                assert batch.kind == "snapshot"
                got = []
            got += listed([batch])
        assert got == list(range(got[0], 200))


async def _awaited(batch):
    """What asyncio would await."""


class _Awaitable:
    async def __call__(self, batch):
        """What asyncio would await."""


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("name", ["on_change", "on_error", "on_complete"])
def test_async_callbacks_are_refused(db, numbers, inline, name):
    """Nobody would await them, and nothing of them would run."""
    for function in (_awaited, _Awaitable(), functools.partial(_awaited)):
        given = {"on_change": print, name: function, "inline": inline}
        with pytest.raises(errors.InvalidOptionError, match=f"{name} is an async") as caught:
            db.subscribe_callback("SELECT * FROM s", **given)
        assert "subscribe_stream" in caught.value.hint
    with pytest.raises(errors.InvalidOptionError, match=f"{name} is not callable"):
        db.subscribe_callback("SELECT * FROM s", **{"on_change": print, name: 5, "inline": inline})
    assert db.metrics()["subscribers"] == 0


@pytest.mark.parametrize("inline", [False, True])
def test_a_callback_that_returns_a_coroutine_is_reported(db, numbers, inline):
    failed = []
    made = db.subscribe_callback(
        "SELECT * FROM s", lambda _: _awaited(None), on_error=failed.append, inline=inline
    )
    numbers(1)
    db.insert("s", pa.table({"n": [7]}))
    db.flush()
    wait_until(lambda: made.delivered == 2 if inline else made.metrics.delivered == 2)
    wait_until(lambda: failed)
    assert {type(error) for error in failed} == {errors.InvalidOptionError}
    assert made.errors == len(failed)

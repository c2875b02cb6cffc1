"""Everything at once: producers and subscribers of every kind that come, go, stall and raise.

At the end the books are balanced for each of them: what it was given, in LSN order, plus the
rows reported to it as lost, is what was committed and matched its query while it was there.

``MILLSTREAM_SEED`` says which dice (``seed.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import threading
import time
from array import array
from bisect import bisect_right

import pyarrow as pa
import pytest

import millstream as ms
from millstream import errors
from millstream.testing import wait_until

from ..effort import effort  # noqa: TID252 - tests have no name
from ..seed import SEED  # noqa: TID252

pytestmark = pytest.mark.slow

SECONDS = effort(4, 300)

PRODUCERS = 4
READERS, CALLBACKS, STREAMS, INLINES, COPIES = 22, 10, 10, 4, 4

QUERIES = {
    "SELECT * FROM s": lambda p, n, v: True,
    "SELECT n, v FROM s WHERE p = 1": lambda p, n, v: p == 1,
    "SELECT n FROM s WHERE p = 2 AND v > 3": lambda p, n, v: p == 2 and v > 3,
    "SELECT v, n, p FROM s WHERE p IN (0, 3)": lambda p, n, v: p in {0, 3},
    "SELECT n + v AS x FROM s WHERE v % 3 = 0": lambda p, n, v: v % 3 == 0,
    "SELECT p FROM s WHERE v = 7": lambda p, n, v: v == 7,
    "SELECT p FROM s WHERE v > 10": lambda p, n, v: False,
}
POLICIES = ["block", "block", "drop_oldest", "drop_newest", "sample(7)", "disconnect"]


class Session:
    """What one subscriber was given, from where to where."""

    def __init__(self, query, policy):
        self.query, self.policy = query, policy
        self.start = self.end = 0
        self.lsns = array("q")
        self.gaps = 0
        self.metrics = None
        self.lock = threading.Lock()

    def begin(self, subscription):
        self.start = subscription.position

    def take(self, batch):
        with self.lock:
            lsns = batch.lsns
            assert len(lsns) == len(batch.rows)
            if len(lsns):
                assert not self.lsns or lsns[0] > self.lsns[-1], "out of order, or twice"
                assert all(a < b for a, b in itertools.pairwise(lsns))
            self.lsns.extend(lsns)
            if batch.gap is not None:
                self.gaps += batch.gap.count
            assert batch.kind == "changes"

    def finish(self, subscription, end=None):
        self.metrics = subscription.metrics
        self.end = end if end is not None else subscription.position
        self.ended_early = end is None

    def check(self, lsns):
        """Against the LSNs of all rows that match the query."""
        begin, end = bisect_right(lsns, self.start), bisect_right(lsns, self.end)
        due = lsns[begin:end]
        got, metrics = self.lsns, self.metrics
        about = (self.query, self.policy, self.start, self.end, self.ended_early)
        assert metrics.delivered == len(got), about
        if self.policy in {"block", "disconnect"}:
            assert got == due, (*about, len(got), len(due))
            assert metrics.dropped == self.gaps == 0, about
            return
        assert set(got) <= set(due), about
        if not self.ended_early:
            assert metrics.delivered + metrics.dropped == len(due), (*about, len(got), metrics)
        elif not self.policy.startswith("sample"):
            assert len(got) + self.gaps == len(due), (*about, len(got), self.gaps, len(due))


class Stress:
    def __init__(self, db):
        self.db = db
        self.stop = threading.Event()  # producers
        self.finish = threading.Event()  # everybody else
        self.end_lsn = 0
        self.failures = []
        self.sessions = []

    def guarded(self, work, *args):
        def run():
            try:
                work(*args)
            except BaseException as error:
                self.failures.append(error)
                self.finish.set()
                raise

        return threading.Thread(target=run, name=f"stress-{work.__name__}", daemon=True)

    # ---- producers

    def produce(self, producer):
        rng = random.Random(SEED * 100 + producer)
        n = 0
        source = self.db.source("s")
        while not self.stop.is_set():
            count = rng.choice([1, 1, 3, 20])
            rows = [(producer, n + i, rng.randrange(10)) for i in range(count)]
            n += count
            way = rng.randrange(5)
            if way < 2:
                for row in rows:
                    source.push(row)
            elif way == 2:
                source.push_batch(rows)
            elif way == 3:
                p, ns, vs = zip(*rows, strict=True)
                source.push_arrow(pa.table({"p": p, "n": ns, "v": vs}))
            else:
                self.db.insert("s", [{"p": p, "n": n, "v": v} for p, n, v in rows])
            if rng.randrange(200) == 0:
                source.close()
                source = self.db.source("s")
            self.stop.wait(rng.random() * 0.004)
        self.pushed[producer] = n

    def change_table(self):
        rng = random.Random(SEED)
        while not self.stop.is_set():
            key = rng.randrange(40)
            self.db.execute(
                rng.choice(
                    [
                        f"INSERT OR REPLACE INTO t VALUES ({key}, {rng.randrange(100)})",
                        f"DELETE FROM t WHERE id = {key}",
                        f"UPDATE t SET n = n + 1 WHERE id % 4 = {key % 4}",
                    ]
                )
            )
            self.stop.wait(0.001)

    # ---- subscribers

    def options(self, rng):
        return {
            "backpressure": rng.choice(POLICIES),
            "buffer_rows": rng.choice([1, 10, 200, 65536]),
            "max_rows": rng.choice([None, None, 1, 17]),
            "max_delay": rng.choice([None, None, None, 0.002]),
        }

    def read(self, number):
        rng = random.Random(SEED * 1000 + number)
        while not self.finish.is_set():
            query, options = rng.choice(list(QUERIES)), self.options(rng)
            subscription = self.db.subscribe(query, **options)
            session = Session(query, options["backpressure"])
            session.begin(subscription)
            if rng.randrange(8) == 0:  # forgotten, in a ring that only the collector finds
                subscription.myself = subscription
                continue
            lives = [0.05, 0.3, 2.0] if number % 3 else [10**6]
            self.read_session(rng, subscription, session, time.monotonic() + rng.choice(lives))

    def read_session(self, rng, subscription, session, leave_at):
        stalls = rng.random() < 0.5
        try:
            while not self.finish.is_set() and time.monotonic() < leave_at:
                with contextlib.suppress(TimeoutError):
                    session.take(subscription.recv(0.05))
                if stalls and rng.randrange(20) == 0:
                    if rng.randrange(2):
                        subscription.pause()
                    self.finish.wait(rng.random() * 0.3)
                    subscription.resume()
            if not self.finish.is_set():
                session.finish(subscription)
                subscription.cancel()
            else:
                while True:
                    try:
                        session.take(subscription.recv(0.02))
                    except TimeoutError:
                        if not subscription.metrics.lag_rows:
                            break
                session.finish(subscription, self.end_lsn)
                subscription.cancel()
        except errors.SlowConsumerError as error:
            assert session.policy == "disconnect"
            session.finish(subscription)
            resumed = self.db.subscribe(session.query, start=error.token)
            with resumed, contextlib.suppress(TimeoutError):
                more = resumed.recv(0.05)
                assert not session.lsns or more.lsns[0] > session.lsns[-1]
        self.sessions.append(session)

    def call_back(self, number):
        rng = random.Random(SEED * 2000 + number)
        while not self.finish.is_set():
            query = rng.choice(list(QUERIES))
            options = self.options(rng)
            if options["backpressure"] == "disconnect":
                options["backpressure"] = "block"
            session = Session(query, options["backpressure"])
            raised = []

            # One row at a time, and slow, would be minutes behind at the end of a long run.
            slow = rng.random() < 0.3 and options["max_rows"] is None

            def call(batch, session=session, slow=slow):
                session.take(batch)
                if slow:
                    time.sleep(0.001)  # the duration of a slow callback
                if batch.lsn % 5 == 0:
                    raise ValueError(batch.lsn)

            subscription = self.db.subscribe_callback(
                query, call, on_error=raised.append, **options
            )
            # It may be called before its position could be looked at: count from the first row.
            session.start = None
            self.finish.wait(rng.choice([0.01, 0.2, 3.0]) if number % 3 else 10**6)
            if not self.finish.is_set():
                subscription.cancel()
                assert subscription.join(60)
                continue
            self.settle(subscription, session, options)
            subscription.pause()
            assert not [e for e in raised if not isinstance(e, ValueError)], raised
            with session.lock:
                session.metrics = subscription.metrics
            if session.policy == "block" and session.lsns:
                session.start, session.end, session.ended_early = (
                    session.lsns[0] - 1,
                    self.end_lsn,
                    False,
                )
                self.sessions.append(session)
            subscription.cancel()

    @staticmethod
    def settle(subscription, session, options):
        def settled():
            metrics = subscription.metrics
            return not metrics.lag_rows and metrics.delivered == len(session.lsns)

        wait_until(
            settled,
            lambda: f"{subscription}, {subscription.metrics}, {len(session.lsns)}, {options}",
        )

    def stream(self):
        async def one(number):
            rng = random.Random(SEED * 3000 + number)
            while not self.finish.is_set():
                query, options = rng.choice(list(QUERIES)), self.options(rng)
                if options["backpressure"] == "disconnect":
                    options["backpressure"] = "drop_newest"
                session = Session(query, options["backpressure"])
                async with self.db.subscribe_stream(query, **options) as subscription:
                    session.begin(subscription)
                    lives = [0.05, 0.3, 2.0] if number % 3 else [10**6]
                    leave_at = time.monotonic() + rng.choice(lives)
                    while not self.finish.is_set() and time.monotonic() < leave_at:
                        with contextlib.suppress(TimeoutError):
                            session.take(await subscription.recv(0.05))
                        if rng.randrange(50) == 0:
                            await asyncio.sleep(rng.random() * 0.2)
                    if not self.finish.is_set():
                        session.finish(subscription)
                    else:
                        while True:
                            try:
                                session.take(await subscription.recv(0.02))
                            except TimeoutError:
                                if not subscription.metrics.lag_rows:
                                    break
                        session.finish(subscription, self.end_lsn)
                self.sessions.append(session)

        async def main():
            await asyncio.gather(*(one(number) for number in range(STREAMS)))

        asyncio.run(main())

    def inline(self, number):
        rng = random.Random(SEED * 4000 + number)
        query = list(QUERIES)[number]
        while not self.finish.is_set():
            with self.db.subscribe_callback(
                query, lambda batch: 1 // len(batch.rows[0][:1]), on_error=print, inline=True
            ):
                self.finish.wait(rng.random() * 0.1)

    def copy(self, number):
        """The copy of a slow reader of a table, with its changes netted, stays exact."""
        rng = random.Random(SEED * 5000 + number)
        query = ["SELECT * FROM t", "SELECT id, n FROM t WHERE n % 2 = 0"][number % 2]
        while not self.finish.is_set():
            rows = {}
            with self.db.subscribe(query, backpressure="conflate", buffer_rows=8) as subscription:
                until = time.monotonic() + rng.choice([0.2, 1.0, 10**6])
                while not self.finish.is_set() and time.monotonic() < until:
                    with contextlib.suppress(TimeoutError):
                        self.apply(rows, subscription.recv(0.05))
                    self.finish.wait(rng.random() * 0.05)
                if self.finish.is_set():
                    while (batch := subscription.try_recv()) or subscription.metrics.lag_rows:
                        self.apply(rows, batch)
                    assert sorted(rows) == sorted(self.db.query(query))

    @staticmethod
    def apply(rows, batch):
        if batch is None:
            return
        for row, weight in zip(batch.rows, batch.weights, strict=True):
            rows[row] = rows.get(row, 0) + weight
            if not rows[row]:
                del rows[row]
        assert set(rows.values()) <= {1}

    # ---- all together

    def run(self):
        self.pushed = [0] * PRODUCERS
        writers = [self.guarded(self.produce, n) for n in range(PRODUCERS)]
        writers.append(self.guarded(self.change_table))
        others = [
            *(self.guarded(self.read, n) for n in range(READERS)),
            *(self.guarded(self.call_back, n) for n in range(CALLBACKS)),
            self.guarded(self.stream),
            *(self.guarded(self.inline, n) for n in range(INLINES)),
            *(self.guarded(self.copy, n) for n in range(COPIES)),
        ]
        for thread in (*others, *writers):
            thread.start()
        self.finish.wait(SECONDS)
        self.stop.set()
        for thread in writers:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self.end_lsn = self.db.flush()
        self.finish.set()
        for thread in others:
            thread.join(120)
            assert not thread.is_alive(), f"{thread.name} hangs"
        assert not self.failures, self.failures


@pytest.mark.timeout(SECONDS + 280)
def test_the_books_are_balanced(tmp_path):
    print(f"seed {SEED}")  # noqa: T201 - shown when it fails
    before = set(threading.enumerate())
    with ms.open(tmp_path / "db", segment_bytes=1 << 20) as db:
        db.execute("CREATE SOURCE s (p BIGINT, n BIGINT, v BIGINT) WITH (buffer_size = 256)")
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)")
        stress = Stress(db)
        stress.run()
        # What was committed, from the log: every producer's rows, in its order, each once.
        matching = {query: array("q") for query in QUERIES}
        counts = [0] * PRODUCERS
        total = sum(stress.pushed)
        with db.subscribe("SELECT * FROM s", start="earliest") as everything:
            while sum(counts) < total:
                batch = everything.recv(60)
                for (p, n, v), lsn in zip(batch.rows, batch.lsns, strict=True):
                    assert n == counts[p]
                    counts[p] += 1
                    for query, matches in QUERIES.items():
                        if matches(p, n, v):
                            matching[query].append(lsn)
        assert counts == stress.pushed
        for session in stress.sessions:
            session.check(matching[session.query])
        assert db.metrics()["sources"]["s"]["pushed"] == total
        gc.collect()  # those that were forgotten
        wait_until(lambda: db.metrics()["subscribers"] == 0)
    shared = ("millstream-helper", "millstream-read")
    now = [each for each in threading.enumerate() if not each.name.startswith(shared)]
    left = [thread for thread in now if thread not in before]
    wait_until(lambda: not [thread for thread in left if thread.is_alive()])
    print(f"{total} rows, {len(stress.sessions)} sessions")  # noqa: T201

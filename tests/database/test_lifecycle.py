"""Beginnings and ends: closing at awkward moments, forgetting to, forks, Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
import weakref

import pytest

import millstream as ms
from millstream import errors
from millstream.testing import TIMEOUT, engine_of, wait_until

pytestmark = pytest.mark.slow


def ours():
    """All but those that are the process's."""
    found = [thread for thread in threading.enumerate() if "millstream" in thread.name]
    return [
        thread
        for thread in found
        if not thread.name.startswith(("millstream-helper", "millstream-read"))
    ]


# ---- memory


@pytest.mark.parametrize(("given", "expected"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_arrow_allocates_by_the_c_library_unless_a_pool_is_named(tmp_path, given, expected):
    program = f"""
        import millstream as ms, pyarrow as pa
        ms.open({str(tmp_path)!r}).close()
        print(pa.default_memory_pool().backend_name)
    """
    environment = {k: v for k, v in os.environ.items() if k != "ARROW_DEFAULT_MEMORY_POOL"}
    if given is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = given
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == expected


# ---- close


def test_close_twice(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    source, subscription = db.source("s"), db.subscribe("SELECT n FROM s")
    assert "open" in repr(db)
    db.close()
    db.close()
    assert "closed" in repr(db)
    assert not ours()
    calls = [
        lambda: db.execute("SHOW SOURCES"),
        lambda: db.query("SHOW SOURCES"),
        lambda: db.explain("SELECT n FROM s"),
        lambda: db.source("s"),
        lambda: db.writer("s"),
        lambda: db.insert("s", [(1,)]),
        lambda: db.insert_json("s", '{"n": 1}'),
        lambda: db.insert_csv("s", "n\n1\n"),
        lambda: db.subscribe("SELECT n FROM s"),
        lambda: db.subscribe_callback("SELECT n FROM s", print),
        lambda: db.subscribe_stream("SELECT n FROM s"),
        db.changes,
        lambda: db.listen("x"),
        lambda: db.notify("x"),
        db.flush,
        db.metrics,
        db.topology,
        lambda: source.push((1,)),
        lambda: source.try_push((1,)),
        lambda: source.push_batch([(1,)]),
        source.flush,
        lambda: source.watermark(1),
        source.clone,
        lambda: subscription.recv(TIMEOUT),
        subscription.try_recv,
    ]
    for call in calls:
        with pytest.raises(errors.ClosedError) as caught:
            call()
        assert caught.value.code == "CLOSED"
        assert caught.value.hint
    assert list(subscription) == []


def test_close_from_many_threads(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    closers = [threading.Thread(target=db.close) for _ in range(8)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(TIMEOUT)
    with ms.open(tmp_path) as again:
        assert len(again.query("SHOW SOURCES")) == 1


def test_what_was_pushed_is_there_after_close(tmp_path):
    for round_number in range(1, 6):
        with ms.open(tmp_path) as db:
            db.execute("CREATE SOURCE IF NOT EXISTS s (n BIGINT)")
            source = db.source("s")
            for n in range(500):
                source.push((n,))
        with ms.open(tmp_path) as db:
            assert len(db.query("SELECT * FROM s")) == 500 * round_number


def test_subscribers_get_what_was_pushed_before_close(tmp_path, drain):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    subscription = db.subscribe("SELECT n FROM s")
    called, completed = [], threading.Event()
    db.subscribe_callback(
        "SELECT n FROM s", lambda b: called.extend(b.rows), on_complete=completed.set
    )
    for n in range(1000):
        db.source("s").push((n,))
    db.close()
    assert [row for batch in drain(subscription) for row in batch.rows] == [
        (n,) for n in range(1000)
    ]
    assert subscription.state == "completed"
    assert completed.is_set()
    assert called == [(n,) for n in range(1000)]


@pytest.mark.parametrize("sync", [False, True])
def test_close_while_producers_push(tmp_path, sync):
    """Each push is taken and kept, or refused; none hangs."""
    mode = "sync" if sync else "async"
    for attempt in range(8):
        path = tmp_path / str(attempt)
        db = ms.open(path)
        db.execute(
            f"CREATE SOURCE s (t BIGINT, n BIGINT) WITH (buffer_size = 8, wal_mode = '{mode}')"
        )
        counts = [0] * 4

        def work(thread, db=db, counts=counts):
            source = db.source("s")
            while True:
                try:
                    if thread % 2:
                        source.push((thread, counts[thread]))
                    else:
                        db.insert("s", [(thread, counts[thread])])
                except errors.ClosedError:
                    return
                counts[thread] += 1

        workers = [threading.Thread(target=work, args=(t,)) for t in range(4)]
        for worker in workers:
            worker.start()
        wait_until(lambda counts=counts: min(counts) > 3)
        db.close()
        for worker in workers:
            worker.join(TIMEOUT)
            assert not worker.is_alive(), "a push hangs"
        with ms.open(path) as db:
            found = [0] * 4
            for thread, n in db.query("SELECT * FROM s"):
                assert n == found[thread]
                found[thread] += 1
            for taken, kept in zip(counts, found, strict=True):
                assert kept == taken if sync else kept in {taken, taken - 1}


def test_drop_while_producers_push(db):
    """A push that waits for the disk does not wait for ever when its source is dropped."""
    stop = threading.Event()
    expected = (errors.ClosedError, errors.ObjectNotFoundError, errors.RowError)

    def work():
        while not stop.is_set():
            with contextlib.suppress(*expected):
                db.insert("s", [(1,)])

    create = "CREATE SOURCE s (n {}) WITH (wal_mode = 'sync', buffer_size = 2)"
    db.execute(create.format("BIGINT"))
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for n in range(12):
        db.execute(f"DROP SOURCE s; {create.format(['VARCHAR', 'BIGINT'][n % 2])}")
    stop.set()
    for worker in workers:
        worker.join(TIMEOUT)
        assert not worker.is_alive(), "a push hangs"


def test_close_while_a_recv_waits(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    ended = []

    def wait(subscription):
        try:
            subscription.recv()
        except errors.ClosedError as error:
            ended.append(error)

    paused = db.subscribe("SELECT n FROM s")
    paused.pause()
    waiting = [
        db.subscribe("SELECT n FROM s"),
        db.subscribe("SELECT n FROM s", start="earliest"),
        db.subscribe("SELECT n FROM s", max_rows=10, max_delay=1000.0),
        db.subscribe("SELECT n FROM s", demand=0),
        paused,
    ]
    threads = [threading.Thread(target=wait, args=(each,)) for each in waiting]
    bus = db.changes()
    threads.append(threading.Thread(target=wait, args=(bus,)))
    for thread in threads:
        thread.start()
    db.close()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert len(ended) == len(threads)


def test_close_while_a_stream_waits(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")

    async def main():
        stream = db.subscribe_stream("SELECT n FROM s")
        waiting = asyncio.ensure_future(stream.recv())
        await asyncio.sleep(0)
        await asyncio.to_thread(db.close)
        with pytest.raises(errors.ClosedError):
            await waiting

    asyncio.run(main())


def test_close_while_a_query_runs(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    db.insert("s", [(n,) for n in range(2000)])
    answers = []

    def ask():
        answers.extend(
            db.query("SELECT SUM(a.n * b.n) AS x FROM s AS a, s AS b, s AS c WHERE c.n < 9")
        )

    thread = threading.Thread(target=ask)
    thread.start()
    running = engine_of(db).relations._adhoc._running
    wait_until(lambda: running or answers)
    db.close()  # waits for the query, which holds DuckDB
    thread.join(TIMEOUT)
    assert answers == [(9 * sum(range(2000)) ** 2,)]


def test_close_while_a_callback_runs(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    inside, go_on, done = threading.Event(), threading.Event(), []

    def call(batch):
        inside.set()
        go_on.wait(TIMEOUT)
        done.extend(batch.rows)

    db.subscribe_callback("SELECT n FROM s", call, on_complete=lambda: done.append("end"))
    db.insert("s", [(1,)])
    assert inside.wait(TIMEOUT)
    closer = threading.Thread(target=db.close)
    closer.start()
    wait_until(lambda: "closed" in repr(db))
    go_on.set()
    closer.join(TIMEOUT)
    assert done == [(1,), "end"]


def test_close_from_within_a_callback(tmp_path):
    for inline in (False, True):
        db = ms.open(tmp_path / str(inline))
        db.execute("CREATE SOURCE s (n BIGINT)")
        closed = threading.Event()

        def call(_, db=db, closed=closed):
            db.close()
            closed.set()

        db.subscribe_callback("SELECT n FROM s", call, inline=inline)
        try:
            db.source("s").push((1,))
        except errors.ClosedError:
            assert inline
        assert closed.wait(TIMEOUT)
        wait_until(lambda: not ours())
        with ms.open(tmp_path / str(inline)) as again:
            assert len(again.query("SELECT * FROM s")) == 1


def test_a_temporary_database_leaves_nothing_behind():
    with ms.open() as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        path = db.path
        assert path.exists()
    assert not path.exists()


def test_opening_twice(tmp_path):
    with ms.open(tmp_path) as db:
        with pytest.raises(errors.LogLockedError) as caught:
            ms.open(tmp_path)
        assert caught.value.code == "LOG_LOCKED"
        assert caught.value.hint
        db.execute("CREATE SOURCE s (n BIGINT)")
    with ms.open(tmp_path) as db:
        assert len(db.query("SHOW SOURCES")) == 1


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(errors.LogPathError) as caught:
        ms.open(tmp_path / "file")
    assert caught.value.code == "LOG_PATH"
    assert not ours()


@pytest.mark.parametrize("name", ["retention_interval", "sync_interval", "segment_bytes"])
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -1, 1e300, 10**30, "1", None, True, 1j]
)
def test_an_option_out_of_its_range(tmp_path, name, value):
    with pytest.raises(errors.InvalidOptionError, match=name) as caught:
        ms.open(tmp_path / "db", **{name: value})
    assert caught.value.hint
    assert not (tmp_path / "db").exists()
    assert not ours()


@pytest.mark.parametrize("name", ["retention_interval", "segment_bytes"])
def test_an_option_that_must_not_be_zero(tmp_path, name, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(errors.InvalidOptionError, match=name):
        ms.open(**{name: 0})
    assert list(tmp_path.iterdir()) == []  # the temporary directory is gone as well


def test_rows_may_be_synced_at_once(tmp_path):
    with ms.open(tmp_path, sync_interval=0) as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.insert("s", [(1,)])
        assert db.flush()


def test_no_thread_is_left_behind(tmp_path):
    before = threading.active_count()
    for n in range(5):
        with ms.open(tmp_path / str(n)) as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            for _ in range(5):
                db.subscribe_callback("SELECT n FROM s", lambda _: None)
            db.insert("s", [(1,)])
    assert not ours()
    assert threading.active_count() <= before + 1


# ---- forgetting


def test_a_forgotten_database_is_closed_with_a_warning(tmp_path):
    db = ms.open(tmp_path)
    db.execute("CREATE SOURCE s (n BIGINT)")
    source = db.source("s")
    subscription = db.subscribe("SELECT n FROM s")
    db.insert("s", [(1,)])
    with pytest.warns(ResourceWarning, match="not closed"):
        del db
        gc.collect()
    wait_until(lambda: not ours())
    with pytest.raises(errors.ClosedError):
        source.push((2,))
    assert [row for batch in subscription for row in batch.rows] == [(1,)]
    with ms.open(tmp_path) as db:
        assert db.query("SELECT * FROM s").fetchall() == [(1,)]


def test_a_callback_that_knows_its_database_does_not_keep_it_for_ever(tmp_path):
    """The usual closure: on_change uses db. Forgotten, it is still closed at the latest at exit."""
    program = textwrap.dedent("""
        import sys, millstream as ms
        db = ms.open(sys.argv[1])
        db.execute("CREATE SOURCE s (n BIGINT)")
        db.subscribe_callback("SELECT n FROM s", lambda batch: db.lsn)
        db.insert("s", [(1,)])
        print("end")
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert done.stdout.split() == [b"end"]
    with ms.open(tmp_path) as db:
        assert db.query("SELECT * FROM s").fetchall() == [(1,)]


def test_forgotten_subscriptions_leave(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    routes = engine_of(db).dispatcher.fan_out.routes("s")
    everything = engine_of(db).dispatcher.fan_out.everything
    for make in (
        lambda: db.subscribe("SELECT n FROM s WHERE n = 1"),
        lambda: db.subscribe_stream("SELECT n FROM s WHERE n > 1"),
        lambda: db.changes("s"),
        db.changes,
        lambda: db.subscribe("SELECT n FROM s", name="mine"),
    ):
        kept = [make()]
        assert len(routes) + len(everything) == 1
        ring = [kept.pop()]
        ring.append(ring)  # only the collector finds it
        ghost = weakref.ref(ring[0])
        del ring
        gc.collect()
        assert ghost() is None
        wait_until(lambda: len(routes) + len(everything) == 0)
        wait_until(lambda: db.metrics()["subscribers"] == 0)
    db.subscribe("SELECT n FROM s", name="mine").cancel()


def test_the_collector_may_come_at_any_moment(db):
    """Subscriptions in rings are found while locks are held, by whichever thread it happens to."""
    db.execute("CREATE SOURCE s (n BIGINT)")
    source = db.source("s")
    stop = threading.Event()

    def push():
        n = 0
        while not stop.is_set():
            source.push((n,))
            n += 1
            if n % 100 == 0:
                db.flush()

    def subscribe():
        while not stop.is_set():
            forgotten = db.subscribe(f"SELECT n FROM s WHERE n % 10 = {len(db.path.name) % 10}")
            forgotten.myself = forgotten
            del forgotten
            with db.subscribe("SELECT n FROM s") as other, contextlib.suppress(TimeoutError):
                other.recv(0.001)

    threads = [
        threading.Thread(target=push),
        *(threading.Thread(target=subscribe) for _ in range(3)),
    ]
    thresholds = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for thread in threads:
            thread.start()
        stop.wait(3)
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), "a deadlock"
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    db.flush()
    assert db.metrics()["subscribers"] == 0


@pytest.mark.parametrize("held", ["routes", "registry", "inbox"])
def test_the_collector_waits_for_no_lock(tmp_path, held):
    """It may come while this very thread holds one: then waiting for it would be for ever."""
    program = textwrap.dedent("""
        import faulthandler, gc, sys
        import millstream as ms
        from millstream.testing import engine_of, inbox_of
        faulthandler.dump_traceback_later(50, exit=True)
        gc.disable()
        with ms.open() as db:
            db.execute("CREATE SOURCE s (n BIGINT)")
            subscription = db.subscribe("SELECT n FROM s")
            routes, registry = engine_of(db).dispatcher.fan_out.routes("s"), engine_of(db).registry
            inbox = inbox_of(subscription).live.lock
            locks = {"routes": routes._lock, "registry": registry._lock, "inbox": inbox}
            lock = locks[sys.argv[1]]
            del locks
            subscription.myself = subscription
            del subscription
            with lock:
                gc.collect()
            db.flush()
            assert not db.metrics()["subscribers"]
            assert not len(routes)
    """)
    subprocess.run([sys.executable, "-c", program, held], timeout=TIMEOUT, check=True)


def test_forgotten_sources_are_counted_out(db):
    db.execute("CREATE SOURCE s (n BIGINT)")
    sources = [db.source("s") for _ in range(5)]
    assert sources[0].producer_count == 5
    assert sources[0].is_mpsc
    del sources[1:]
    gc.collect()
    assert sources[0].producer_count == 1
    clone = sources[0].clone()
    assert clone.producer_count == 2
    clone.close()
    with pytest.raises(errors.ClosedError):
        clone.push((1,))
    sources[0].push((1,))
    assert db.metrics()["sources"]["s"]["producers"] == 1


# ---- fork


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_hears_that_it_has_no_database(db):
    db.execute("CREATE SOURCE s (n BIGINT); CREATE TABLE t (id BIGINT PRIMARY KEY)")
    source, subscription = db.source("s"), db.subscribe("SELECT n FROM s")
    completed = []
    db.subscribe_callback("SELECT n FROM s", completed.append)
    source.push((1,))
    db.flush()
    calls = [
        lambda: source.push((2,)),
        lambda: source.push({"n": 2}),
        lambda: source.push_batch([(2,)]),
        source.flush,
        lambda: db.insert("s", [(2,)]),
        lambda: db.execute("INSERT INTO t VALUES (1)"),
        lambda: db.query("SELECT * FROM s"),
        lambda: db.subscribe("SELECT n FROM s"),
        lambda: db.subscribe_callback("SELECT n FROM s", print),
        db.changes,
        db.flush,
        db.metrics,
        lambda: (subscription.recv(5), subscription.recv(5)),
    ]
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(50)
        try:
            for number, call in enumerate(calls):
                try:
                    call()
                    os.write(send, b"%d: nothing raised\n" % number)
                except errors.ClosedError:
                    pass
                except BaseException as error:
                    os.write(send, f"{number}: {error!r}\n".encode())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                db.close()
                db.close()
            os.write(send, b"done")
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said == b"done"
    source.push((3,))
    assert db.query("SELECT * FROM s").fetchall() == [(1,), (3,)]
    assert subscription.recv(TIMEOUT) is not None
    db.execute("INSERT INTO t VALUES (1)")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_while_everything_runs(db):
    """Locks that other threads hold at that moment must not hang the child."""
    db.execute("CREATE SOURCE s (n BIGINT)")
    stop = threading.Event()

    def push():
        source = db.source("s")
        while not stop.is_set():
            source.push((1,))
            subscription = db.subscribe("SELECT n FROM s", buffer_rows=10)
            with subscription, contextlib.suppress(TimeoutError):
                subscription.recv(0.001)

    threads = [threading.Thread(target=push) for _ in range(2)]
    for thread in threads:
        thread.start()
    source, subscription = db.source("s"), db.subscribe("SELECT n FROM s")
    try:
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                signal.alarm(40)
                code = 0
                for call in (
                    lambda: source.push((2,)),
                    lambda: db.query("SELECT n FROM s"),
                    lambda: db.subscribe("SELECT n FROM s"),
                    lambda: [subscription.recv(1) for _ in range(100_000)],
                ):
                    try:
                        call()
                        code = 1
                    except errors.ClosedError:
                        pass
                    except BaseException as error:
                        os.write(2, repr(error).encode())
                        code = 2
                db.close()
                os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
    assert len(db.query("SELECT n FROM s")) > 0


# ---- Ctrl-C

WAITING = {
    "in recv": """
        subscription = db.subscribe("SELECT n FROM s")
        ready_when(lambda: inbox_of(subscription).live.offer_waiters)
        subscription.recv()
    """,
    "in an iterator of the bus": """
        bus = db.changes()
        ready_when(lambda: inbox_of(bus.subscription).live.offer_waiters)
        for _ in bus: pass
    """,
    "in a replay": """
        subscription = db.subscribe("SELECT n FROM s", start="earliest")
        ready_when(lambda: inbox_of(subscription).live.offer_waiters)
        while True: subscription.recv()
    """,
    "in a blocked push": """
        source = db.source("s")
        with paused(engine_of(db).dispatcher):
            for n in range(10): source.push((n,))
            ready_when(lambda: inlet_of(source).waiters.asleep)
            source.push((10,))
    """,
    "in a flush": """
        with paused(engine_of(db).dispatcher):
            ready_when(lambda: engine_of(db).dispatcher.tasks)
            db.flush()
    """,
    "in an inline callback": """
        never = threading.Event()
        ready_when(lambda: never._cond._waiters)
        with db.subscribe_callback("SELECT n FROM s", lambda batch: never.wait(), inline=True):
            db.source("s").push((1,))
    """,
    "while callbacks run": """
        called, resume, never = threading.Event(), threading.Event(), threading.Event()
        def call(batch):
            called.set()
            resume.wait()
        db.subscribe_callback("SELECT n FROM s", call, max_rows=1)
        ready_when(lambda: called.is_set() and never._cond._waiters)
        try:
            db.insert("s", [(n,) for n in range(100)])
            never.wait()
        finally:
            resume.set()
    """,
}

PROGRAM = """
import faulthandler, gc, os, sys, threading
import millstream as ms
from millstream.testing import Background, engine_of, inbox_of, inlet_of, paused, wait_until

gc.disable()  # Python ignores what is raised while the collector runs a finalizer
faulthandler.dump_traceback_later({seconds}, exit=True)

def ready_when(condition):
    # The main thread waits: it is not on its way there, where an interrupt is another test's.
    Background(lambda: (wait_until(condition), os.write(1, b"ready\\n")))

interrupted = False
with ms.open(sys.argv[1]) as db:
    db.execute("CREATE SOURCE s (n BIGINT) WITH (buffer_size = 10)")
    try:
{work}
    except KeyboardInterrupt:
        interrupted = True
    # It goes on as if nothing had been.
    db.insert("s", [(77,)])
    assert (77,) in list(db.query("SELECT n FROM s"))
assert not [t for t in threading.enumerate() if "millstream" in t.name and not t.daemon]
print("interrupted" if interrupted else "not interrupted")
"""


@pytest.mark.parametrize("where", WAITING)
def test_ctrl_c(tmp_path, where):
    work = textwrap.indent(textwrap.dedent(WAITING[where]), " " * 8)
    program = PROGRAM.format(work=work, seconds=TIMEOUT / 2)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert select.select([process.stdout], [], [], TIMEOUT)[0]
        line = os.read(process.stdout.fileno(), 100)
        assert line == b"ready\n", process.communicate(timeout=5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert out.split(b"\n")[0] == b"interrupted", (out, err)
    assert process.returncode == 0, err


# ---- errors


def test_every_error_has_a_code_and_a_hint_when_it_can_be_helped():
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.Error)
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert ms.Error is errors.Error

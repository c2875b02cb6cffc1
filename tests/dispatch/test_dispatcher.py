"""One thread that takes cuts of everything that was pushed."""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest

import millstream as ms
from millstream.dispatch import loop
from millstream.errors import ClosedError, DuplicateKeyError, LogFailedError, LogFullError
from millstream.model import ChangeBatch
from millstream.testing import TIMEOUT, Background, engine_of, inlet_of, paused, wait_until


@pytest.fixture
def commits(dispatcher, monkeypatch):
    """The commits that were fanned out: lists of (topic, rows)."""
    seen, fan_out = [], dispatcher.fan_out.deliver

    def noting(batches, **options):
        seen.append([(topic, list(batch.rows)) for topic, batch in batches])
        return fan_out(batches, **options)

    monkeypatch.setattr(dispatcher.fan_out, "deliver", noting)
    return seen


def numbers(db, *names, **options):
    given = ", ".join(f"{k} = {v!r}" for k, v in options.items())
    made = f" WITH ({given})" if given else ""
    for name in names:
        db.execute(f"CREATE SOURCE {name} (n BIGINT){made}")
    return [db.source(name) for name in names]


def waits(subscription):
    """Whether a callback's thread waits for the dispatcher to hand it the next batch."""
    return subscription._inbox.live.receiver is not None


def waits_for_cycle(dispatcher):
    """Whether a thread other than the dispatcher's waits in ``together``."""
    frames = sys._current_frames().values()
    return any(frame.f_code.co_name == "together" for frame in frames)


class TestCut:
    def test_never_has_a_push_without_those_before_it(self, db, commits):
        """One thread pushes the same number to several sources, one after the other."""
        sources = numbers(db, "a", "b", "c")
        for n in range(2000):
            for source in sources:
                source.push((n,))
        db.flush()
        seen = {"a": -1, "b": -1, "c": -1}
        for commit in commits:
            for topic, rows in commit:
                seen[topic] = rows[-1][0]
            assert seen["a"] >= seen["b"] >= seen["c"] >= seen["a"] - 1
        assert set(seen.values()) == {1999}

    def test_not_even_when_rows_are_dropped_meanwhile(self, db, dispatcher, commits):
        (dropping,) = numbers(db, "d", buffer_size=4, backpressure="drop_oldest")
        (other,) = numbers(db, "o")
        inlet = inlet_of(dropping)
        drain, pushed = inlet.drain, []

        def meanwhile(*cut):
            """Another thread pushes between the cut and the drain."""
            if not pushed:
                pushed.append(True)
                other.push((1,))
                for n in range(100, 110):
                    dropping.push((n,))
            return drain(*cut)

        with paused(dispatcher):
            for n in range(4):
                dropping.push((n,))
            inlet.drain = meanwhile
        db.flush()
        of_other = [n for n, commit in enumerate(commits) if "o" in dict(commit)]
        newer = [n for n, commit in enumerate(commits) if dict(commit).get("d", [(0,)])[-1][0] > 99]
        assert of_other[0] <= newer[0]

    def test_what_gathered_is_one_commit(self, db, dispatcher, commits):
        a, b = numbers(db, "a", "b")
        with paused(dispatcher):
            for n in range(5):
                a.push((n,))
                b.push((n,))
        db.flush()
        assert len(commits) == 1
        assert [topic for topic, _ in commits[0]] == ["a", "b"]

    def test_lsns_are_the_order_of_everything(self, db):
        sources = numbers(db, "a", "b")
        bus = db.changes(include="after")
        for n in range(100):
            sources[n % 2].push((n,))
        db.flush()
        events = [bus.recv(TIMEOUT) for _ in range(100)]
        lsns = [event.lsn for event in events]
        assert lsns == list(range(lsns[0], lsns[0] + 100))
        for name in ("a", "b"):
            mine = [e.after["n"] for e in events if e.collection == name]
            assert mine == sorted(mine)

    def test_rows_of_one_push_stay_together(self, db, commits):
        (a,) = numbers(db, "a")

        def push(first):
            for n in range(first, first + 200, 4):
                a.push_batch([(n,), (n + 1,), (n + 2,), (n + 3,)])

        for each in [Background(push, first) for first in (0, 1000, 2000)]:
            each.result()
        db.flush()
        count = 0
        for commit in commits:
            for _, rows in commit:
                firsts = [n for (n,) in rows if n % 4 == 0]
                assert [n for (n,) in rows] == [n + k for n in firsts for k in range(4)]
                count += len(rows)
        assert count == 600


class TestCalls:
    def test_run_after_what_was_pushed_before(self, db, dispatcher):
        (a,) = numbers(db, "a")
        for n in range(100):
            a.push((n,))
            assert dispatcher.call(lambda: dispatcher.fan_out.published) >= n + 1
            assert a.pending == 0

    def test_run_in_the_dispatchers_thread_one_after_the_other(self, dispatcher):
        names, busy = set(), []

        def work(n):
            assert not busy
            busy.append(n)
            names.add(threading.current_thread().name)
            assert dispatcher.is_here()
            assert dispatcher.call(lambda: n) == n  # within one, at once
            busy.pop()
            return n

        doing = [Background(dispatcher.call, lambda n=n: work(n)) for n in range(20)]
        assert [each.result() for each in doing] == list(range(20))
        assert names == {"millstream-dispatcher"}
        assert not dispatcher.is_here()

    def test_what_one_raises_is_its_callers(self, db, dispatcher):
        with pytest.raises(ZeroDivisionError):
            dispatcher.call(lambda: 1 / 0)
        assert dispatcher.call(lambda: 5) == 5

    def test_a_commit_is_applied_before_any_subscriber_sees_it(self, db, dispatcher):
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        subscription = db.subscribe("SELECT * FROM t", start="now")
        schema = engine_of(db).catalog["t"].schema
        applied = []

        def apply(placed):
            applied.append((placed[0].lsn, subscription.try_recv()))

        batch = ChangeBatch.from_rows(schema, [(1,), (2,)])
        lsn = dispatcher.commit([("t", batch)], apply)
        assert applied == [(lsn, None)]
        assert subscription.recv(TIMEOUT).lsn == lsn == dispatcher.lsn

    def test_a_commit_that_cannot_be_made_changes_nothing(self, db):
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.insert("t", [(1,)])
        lsn = db.lsn
        with pytest.raises(DuplicateKeyError):
            db.insert("t", [(2,), (1,)])
        assert db.flush() == lsn
        assert db.query("SELECT * FROM t").fetchall() == [(1,)]


class TestCyclesOfOtherThreads:
    """A thread that commits may run a cycle itself; not the main one, which has Ctrl-C."""

    @staticmethod
    def commit_of(db, name, number):
        schema = engine_of(db).catalog[name].schema
        return [(name, ChangeBatch(schema, [(number,)], None, None))]

    def test_comes_after_what_was_pushed_before(self, db, dispatcher, commits):
        (source,) = numbers(db, "a")

        def push_and_commit():
            for n in range(0, 200, 2):
                source.push((n,))
                dispatcher.commit_here(self.commit_of(db, "a", n + 1))

        Background(push_and_commit).result()
        db.flush()
        assert [row[0] for commit in commits for _, rows in commit for row in rows] == [*range(200)]

    def test_is_written_although_nothing_more_comes(self, db, dispatcher):
        numbers(db, "a")
        log = engine_of(db).log

        def commit():
            for n in range(300):
                lsn = dispatcher.commit_here(self.commit_of(db, "a", n))
                if n % 3 == 0:
                    wait_until(lambda lsn=lsn: log.written_lsn >= lsn)
            wait_until(lambda: log.written_lsn >= lsn)

        Background(commit).result()

    def test_waits_while_another_thread_runs_a_cycle(self, db, dispatcher):
        (source,) = numbers(db, "a")
        with paused(dispatcher):
            source.push((1,))
            waiting = Background(dispatcher.commit_here, self.commit_of(db, "a", 2))
            wait_until(lambda: dispatcher.tasks or waiting.is_done)
            assert not waiting.is_done
        waiting.result()
        assert db.query("SELECT n FROM a").fetchall() == [(1,), (2,)]

    def test_what_is_committed_together_is_handed_on_together(self, db, dispatcher):
        numbers(db, "a")
        seen, fan_out = [], dispatcher.fan_out
        subscription = db.subscribe_callback("SELECT n FROM a", lambda b: seen.extend(b.rows))

        def commit(*each):
            for n in each:
                dispatcher.commit_here(self.commit_of(db, "a", n))

        Background(commit, 0).result()  # its thread has started, and waits for the next one
        wait_until(lambda: seen and waits(subscription))

        def together():
            with dispatcher.together():
                commit(1, 2)
                assert fan_out.handed
                assert seen == [(0,)]
            assert (fan_out.handed, fan_out.wakes) == ([], [])
            commit(3)
            assert (fan_out.handed, fan_out.wakes) == ([], []), "by itself it is handed on at once"

        Background(together).result()
        wait_until(lambda: seen == [(0,), (1,), (2,), (3,)])

    def test_what_waits_is_handed_on_with_the_commit_of_another_thread(self, db, dispatcher):
        (source,) = numbers(db, "a")
        seen = []
        subscription = db.subscribe_callback("SELECT n FROM a", lambda b: seen.extend(b.rows))
        source.push((0,))
        wait_until(lambda: seen and waits(subscription))

        def together():
            with dispatcher.together():
                dispatcher.commit_here(self.commit_of(db, "a", 1))
                source.push((2,))
                wait_until(lambda: seen == [(0,), (1,), (2,)])

        Background(together).result()

    def test_what_waits_is_handed_on_before_a_wait_for_the_disk(self, db, dispatcher, monkeypatch):
        monkeypatch.setattr(loop, "_RETRY", 0.001)
        (source,) = numbers(db, "a")
        seen = []
        subscription = db.subscribe_callback("SELECT n FROM a", lambda b: seen.extend(b.rows))
        source.push((0,))
        wait_until(lambda: seen and waits(subscription))

        def together():
            with dispatcher.together():
                dispatcher.commit_here(self.commit_of(db, "a", 1))
                dispatcher.wait_for_retry()
                wait_until(lambda: seen == [(0,), (1,)])

        Background(together).result()

    def test_begins_together_when_no_cycle_is_running(self, dispatcher):
        def together():
            with dispatcher.together():
                pass

        with paused(dispatcher):
            waiting = Background(together)
            wait_until(lambda: waiting.is_done or waits_for_cycle(dispatcher))
            assert not waiting.is_done
        waiting.result()

    def test_all_at_once_and_nothing_twice(self, db, dispatcher):
        sources = numbers(db, "a", "b")
        seen = []
        db.subscribe_callback("SELECT n FROM a", lambda batch: seen.extend(batch.rows))
        each, others = 400, 6

        def commit(first):
            for n in range(first, first + each):
                dispatcher.commit_here(self.commit_of(db, "a", n))

        def push(source, first):
            for n in range(first, first + each):
                source.push((n,))

        doing = [Background(commit, k * each) for k in range(others)]
        doing += [Background(push, sources[0], others * each), Background(push, sources[1], 0)]
        doing.append(Background(lambda: [dispatcher.barrier() for _ in range(each)]))
        for one in doing:
            one.result()
        db.flush()
        wanted = [(n,) for n in range((others + 1) * each)]
        assert sorted(db.query("SELECT n FROM a").fetchall()) == wanted
        wait_until(lambda: len(seen) >= len(wanted))
        assert sorted(seen) == wanted
        assert seen == db.query("SELECT n FROM a").fetchall()  # in the order of the log

    def test_a_few_rows_are_written_without_waking_the_log_writer(self, db, dispatcher):
        (source,) = numbers(db, "a")
        db.flush()
        log, threads = engine_of(db).log, []
        write_group = log._writer._write_group

        def noting(*args):
            threads.append(threading.current_thread().name)
            write_group(*args)

        log._writer._write_group = noting
        for n in range(20):
            source.push((n,))
            wait_until(lambda n=n: log.written_lsn > n)
        assert "millstream-dispatcher" in threads

    @pytest.mark.slow
    def test_at_the_end_it_is_committed_or_refused(self, tmp_path):
        extra = []
        for attempt in range(20):
            path = tmp_path / str(attempt)
            db = ms.open(path)
            numbers(db, "a")
            dispatcher = engine_of(db).dispatcher
            done = []

            def commit(db=db, done=done, dispatcher=dispatcher):
                while True:
                    dispatcher.commit_here(self.commit_of(db, "a", len(done)))
                    done.append(len(done))

            committing = Background(commit)
            wait_until(lambda done=done, attempt=attempt: len(done) > attempt)
            db.close()
            with pytest.raises(ClosedError):
                committing.result()
            with ms.open(path) as again:
                rows = [n for (n,) in again.query("SELECT n FROM a").fetchall()]
            assert rows[: len(done)] == done  # each commit is the number of those before it
            extra.append(len(rows) - len(done))
        assert set(extra) <= {0, 1}  # the last one may have been refused after its commit

    def test_a_bug_in_one_ends_all_waits(self, monkeypatch):
        db = ms.open()
        numbers(db, "a")
        dispatcher = engine_of(db).dispatcher
        made = self.commit_of(db, "a", 1)

        def broken(*_):
            raise ZeroDivisionError

        monkeypatch.setattr(dispatcher._loop, "_cycle", broken)
        [inlet] = [each for each in dispatcher.inlets.every if each.name == "a"]
        inlet.items.append((2,))  # the dispatcher sleeps on: the other thread's cycle is broken
        with pytest.raises(LogFailedError):
            Background(dispatcher.commit_here, made).result()
        with pytest.raises(LogFailedError):
            db.source("a").push((1,))
            db.flush()
        with contextlib.suppress(ms.Error):
            db.close()


class TestStop:
    def test_commits_what_is_there(self, tmp_path):
        with ms.open(tmp_path) as db:
            (a,) = numbers(db, "a")
            with paused(engine_of(db).dispatcher):
                for n in range(1000):
                    a.push((n,))
                closing = Background(db.close)
                wait_until(lambda: inlet_of(a).closed is not None)
            closing.result()
        with ms.open(tmp_path) as db:
            assert [n for (n,) in db.query("SELECT * FROM a").fetchall()] == list(range(1000))

    def test_is_raised_by_later_calls_too(self):
        with ms.open() as db:
            dispatcher = engine_of(db).dispatcher
        for use in (dispatcher.barrier, lambda: dispatcher.call(lambda: 1)):
            with pytest.raises(ClosedError):
                use()
        dispatcher.stop()

    def test_who_waits_is_answered(self):
        db = ms.open()
        dispatcher = engine_of(db).dispatcher
        with paused(dispatcher):
            waiting = [Background(dispatcher.barrier) for _ in range(5)]
            wait_until(lambda: len(dispatcher.tasks) == 5)
            closing = Background(db.close)
        closing.result()
        for each in waiting:
            with contextlib.suppress(ClosedError):
                each.result()


class TestFailure:
    """The log is not what it was."""

    @pytest.fixture
    def broken(self, db, monkeypatch):
        """broken(error): from now on every commit raises; broken(None): no more."""
        appender = engine_of(db).log.appender
        place = appender.place

        def set_error(error):
            def refuse(*args, **options):
                raise error

            monkeypatch.setattr(appender, "place", place if error is None else refuse)

        yield set_error
        set_error(None)

    def test_of_the_log_is_raised_by_all_calls(self, monkeypatch):
        db = ms.open()
        (a,) = numbers(db, "a")
        (synced,) = numbers(db, "b", wal_mode="sync")
        subscription = db.subscribe("SELECT * FROM a")
        bus = db.changes()
        a.push((1,))
        db.flush()

        def refuse(*args, **options):
            raise LogFailedError("the disk is gone")

        monkeypatch.setattr(engine_of(db).log.appender, "place", refuse)
        with pytest.raises(LogFailedError):
            synced.push((2,))
        for use in (lambda: a.push((3,)), db.flush, lambda: db.query("SELECT * FROM a")):
            with pytest.raises(LogFailedError, match="the disk is gone"):
                use()
        assert subscription.recv(TIMEOUT).rows == [(1,)]
        with pytest.raises(LogFailedError):
            subscription.recv(TIMEOUT)
        bus.recv(TIMEOUT)
        with pytest.raises(LogFailedError):
            bus.recv(TIMEOUT)
        db.close()

    def test_a_full_disk_keeps_what_was_taken(self, db, dispatcher, broken, monkeypatch):
        monkeypatch.setattr(loop, "_RETRY", 0.001)
        (a,) = numbers(db, "a", buffer_size=4)
        subscription = db.subscribe("SELECT * FROM a")
        broken(LogFullError("the disk is full"))
        taken = []
        with pytest.raises(LogFullError):
            for n in range(1000):
                a.push((n,))
                taken.append(n)
        assert 4 <= len(taken) < 1000
        assert subscription.try_recv() is None
        broken(None)
        got = []
        while len(got) < len(taken):
            got += [n for (n,) in subscription.recv(TIMEOUT).rows]
        assert got == taken
        a.push((5000,))
        assert [n for (n,) in db.query("SELECT * FROM a").fetchall()] == [*taken, 5000]

    def test_a_full_disk_in_a_cycle_of_another_thread(self, db, dispatcher, broken, monkeypatch):
        monkeypatch.setattr(loop, "_RETRY", 0.001)
        (a,) = numbers(db, "a", buffer_size=100)
        made = TestCyclesOfOtherThreads.commit_of(db, "a", 2)
        wait_until(lambda: dispatcher.wakeup.asleep)
        broken(LogFullError("the disk is full"))
        inlet_of(a).items.append((1,))  # without a wake-up, so that the commit finds it
        with pytest.raises(LogFullError):  # and not ahead of what was pushed before
            Background(dispatcher.commit_here, made).result()
        for n in range(3, 6):
            a.push((n,))
        broken(None)
        for n in range(6, 9):  # the dispatcher is woken
            a.push((n,))
        db.flush()
        rows = db.query("SELECT * FROM a").fetchall()
        assert [n for (n,) in rows] == [1, *range(3, 9)]

    def test_a_full_disk_is_raised_by_a_statement(self, db, broken):
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        broken(LogFullError("the disk is full"))
        with pytest.raises(LogFullError):
            db.insert("t", [(1,)])
        broken(None)
        assert db.query("SELECT * FROM t").fetchall() == []
        db.insert("t", [(1,)])

    def test_a_full_disk_at_the_end_is_reported(self, monkeypatch):
        db = ms.open()
        (a,) = numbers(db, "a")
        appender = engine_of(db).log.appender

        def refuse(*args, **options):
            raise LogFullError("the disk is full")

        monkeypatch.setattr(appender, "place", refuse)
        monkeypatch.setattr(loop, "_RETRY", 0.001)
        a.push((1,))
        with pytest.raises(LogFullError):
            db.close()

    def test_a_bug_in_the_dispatcher_ends_all_waits(self, monkeypatch, caplog):
        db = ms.open()
        dispatcher = engine_of(db).dispatcher
        (a,) = numbers(db, "a", wal_mode="sync")

        def bug(*args, **options):
            raise IndexError("a bug")

        monkeypatch.setattr(loop, "drained", bug)
        with paused(dispatcher):
            waiting = [Background(a.push, (1,)), Background(dispatcher.barrier)]
            wait_until(lambda: a.pending and dispatcher.tasks)
        wait_until(lambda: not dispatcher._loop._thread.is_alive())
        for each in waiting:
            wait_until(lambda each=each: each.is_done)
        with contextlib.suppress(LogFailedError):
            db.close()
        assert "the thread millstream-dispatcher ended" in caplog.text


def test_the_same_batch_may_be_pushed_twice(db):
    """It gets an LSN each time, and a subscriber that has it already does not see it change."""
    (a,) = numbers(db, "a")
    batch = ChangeBatch.from_rows(a.schema, [(1,), (2,)])
    subscription = db.subscribe("SELECT * FROM a")
    for _ in range(2):
        db.insert("a", batch)
        db.flush()
    got = []
    while len(got) < 4:
        got += subscription.recv(TIMEOUT).lsns
    assert len(set(got)) == 4
    assert batch.lsn == 0


def test_what_a_subscriber_was_given_can_be_pushed_on(db):
    numbers(db, "a", "b")
    to_b, of_b = db.subscribe("SELECT * FROM a WHERE n > 2"), db.subscribe("SELECT * FROM b")
    db.insert("a", [(n,) for n in range(5)])
    db.insert("b", to_b.recv(TIMEOUT))
    batch = of_b.recv(TIMEOUT)
    assert batch.rows == [(3,), (4,)]
    assert list(batch.lsns) == [db.lsn - 1, db.lsn]
    assert batch.topic == "b"

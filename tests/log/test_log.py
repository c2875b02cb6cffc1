from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import uuid
import warnings
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.log.segments import writes_held

from millstream.errors import (
    ClosedError,
    ForeignTokenError,
    InvalidNameError,
    InvalidOptionError,
    InvalidTokenError,
    RowError,
    SchemaError,
    SchemaMismatchError,
    TimeRangeError,
    TopicExistsError,
    TopicNotFoundError,
)
from millstream.log import Log
from millstream.log.lifecycle import BackgroundThreads
from millstream.model import ChangeBatch, ManualClock, Schema
from millstream.testing import wait_until


class TestTopics:
    def test_are_there_after_reopening(self, tmp_path, schema):
        with Log(tmp_path) as log:
            log.create_topic("b", schema)
            log.create_topic("a", Schema.of(key=("k",), k="BIGINT NOT NULL"))
        with Log(tmp_path) as log:
            assert log.topics == ("a", "b")
            assert log.topic("b").schema == schema
            assert log.topic("a").schema.key == ("k",)

    def test_twice_is_an_error(self, log, schema):
        with pytest.raises(TopicExistsError, match="'t'"):
            log.create_topic("t", schema)

    def test_unknown_is_an_error_that_lists_the_known(self, log):
        with pytest.raises(TopicNotFoundError) as caught:
            log.append("x", [(1, "a")])
        assert "t" in caught.value.hint
        with pytest.raises(TopicNotFoundError):
            log.read("x")

    @pytest.mark.parametrize("name", ["", "a b", "1a", "a/b", "\0", "x" * 256])
    def test_bad_names(self, log, schema, name):
        with pytest.raises(InvalidNameError):
            log.create_topic(name, schema)

    def test_dropped_and_made_anew(self, tmp_path, schema, rows, read):
        with Log(tmp_path) as log:
            log.create_topic("t", schema)
            log.append("t", rows(3))
            reader = log.read("t")
            log.drop_topic("t")
            assert log.topics == ()
            with pytest.raises(TopicNotFoundError):
                list(reader)
            with pytest.raises(TopicNotFoundError):
                log.append("t", rows(1))
            log.create_topic("t", schema)
            log.append("t", rows(2, 10))
            log.flush()
            assert read(log, "t") == rows(2, 10)
            assert read(log) == rows(2, 10)
        with Log(tmp_path) as log:
            assert read(log, "t") == rows(2, 10)


class TestAppend:
    def test_returns_the_last_lsn(self, log, rows):
        assert log.lsn == 0
        assert log.append("t", rows(3)) == 3
        assert log.append("t", rows(2)) == 5
        assert log.lsn == 5

    def test_sync_is_durable_when_it_returns(self, log, rows):
        lsn = log.append("t", rows(3), wal_mode="sync")
        assert log.durable_lsn == log.written_lsn == lsn

    def test_flush_makes_async_rows_durable(self, log, rows):
        log.append("t", rows(3))
        assert log.flush() == 3
        assert log.durable_lsn == 3

    def test_async_rows_become_durable_by_themselves(self, tmp_path, schema, rows):
        with Log(tmp_path, sync_interval=0.001) as log:
            log.create_topic("t", schema)
            lsn = log.append("t", rows(3))
            done = threading.Event()
            while log.durable_lsn < lsn:
                done.wait(0.001)

    def test_rows_arrow_and_batches_mix_in_order(self, log, schema, rows, read):
        log.append("t", rows(2))
        log.append("t", schema.rows_to_arrow(rows(2, 2)))
        log.append("t", ChangeBatch.from_rows(schema, rows(2, 4)))
        log.flush()
        assert read(log, "t") == rows(6)

    def test_an_update_is_not_parted_by_a_frame(self, log, schema):
        keyed = Schema.of(key=("n",), n="BIGINT NOT NULL", s="VARCHAR")
        log.create_topic("k", keyed)
        rows = [(n // 2, "x" * 999) for n in range(30_000)]
        log.append("k", ChangeBatch.from_rows(keyed, rows, weights=[-1, 1] * 15_000))
        log.flush()
        batches = list(log.read("k"))
        assert len(batches) > 4
        assert {change.op for batch in batches for change in batch} == {"update"}

    def test_weights_are_kept(self, log, schema):
        changes = [(1, "old"), (1, "new"), (2, "x")]
        log.append("t", ChangeBatch.from_rows(schema, changes, weights=[-1, 1, -1]))
        log.flush()
        (batch,) = log.read("t")
        assert batch.weights == [-1, 1, -1]
        assert batch.rows == changes

    def test_nothing_is_nothing(self, log):
        assert log.append("t", []) == 0
        assert log.appender.commit([]) == 0

    def test_a_bad_row_takes_nothing(self, log, rows, read):
        with pytest.raises(RowError) as caught:
            log.append("t", [*rows(2), ("x", "y")])
        assert (caught.value.row, caught.value.column) == (2, "n")
        with pytest.raises(RowError):
            log.append("t", [(None, "n is NOT NULL")])
        log.append("t", rows(1))
        log.flush()
        assert read(log, "t") == rows(1)

    def test_arrow_of_another_schema(self, log):
        with pytest.raises(SchemaMismatchError):
            log.append("t", pa.RecordBatch.from_pydict({"n": [1], "other": ["x"]}))

    def test_a_batch_of_another_schema(self, log):
        other = Schema.of(a="DOUBLE")
        with pytest.raises(SchemaMismatchError, match="a DOUBLE"):
            log.append("t", ChangeBatch.from_rows(other, [(1.0,)]))

    def test_a_large_batch_is_cut_into_frames_and_comes_back_whole(self, log, schema, read):
        big = [(n, "x" * 1000) for n in range(20_000)]
        log.append("t", schema.rows_to_arrow(big))
        log.flush()
        batches = list(log.read("t"))
        assert len(batches) > 2
        assert [row for batch in batches for row in batch.rows] == big
        assert [b.first_lsn for b in batches[1:]] == [b.lsn + 1 for b in batches[:-1]]

    def test_many_small_appends_share_frames(self, log, rows, read):
        with writes_held(log):
            for n in range(1000):
                log.append("t", rows(1, n))
        log.flush()
        assert read(log, "t") == rows(1000)
        assert len(list(log.read("t"))) < 5

    def test_anything_that_arrow_can_read(self, log, schema, read):
        table = pa.table({"n": pa.chunked_array([[0, 1], [2]]), "s": ["a", "b", None]})
        frames = [
            table,
            table.to_reader(),
            pl.DataFrame({"n": [0, 1, 2], "s": ["a", "b", None]}),
            pd.DataFrame({"n": [0, 1, 2], "s": ["a", "b", None]}),
            iter([(0, "a"), (1, "b"), (2, None)]),
            [[0, "a"], [1, "b"], [2, None]],
        ]
        for frame in frames:
            log.append("t", frame)
        log.flush()
        assert read(log, "t") == [(0, "a"), (1, "b"), (2, None)] * len(frames)

    @pytest.mark.parametrize("rows", ["text", {"n": 1}, 7, b"x"])
    def test_what_holds_no_rows(self, log, rows):
        with pytest.raises(SchemaMismatchError):
            log.append("t", rows)

    def test_wal_mode_is_checked(self, tmp_path, log, rows):
        with pytest.raises(InvalidOptionError):
            log.append("t", rows(1), wal_mode="often")
        with pytest.raises(InvalidOptionError):
            Log(tmp_path / "other", wal_mode="SYNC")

    def test_the_time_never_runs_back(self, tmp_path, schema, rows):
        clock = ManualClock(1000)
        with Log(tmp_path, clock=clock) as log:
            log.create_topic("t", schema)
            log.append("t", rows(1), wal_mode="sync")
            clock.advance(-500)
            log.append("t", rows(1), wal_mode="sync")
            clock.advance(1500)
            log.append("t", rows(1), wal_mode="sync")
            assert [b.committed_at for b in log.read("t")] == [1000, 1000, 2000]


class TestWatermarks:
    def test_come_with_rows_or_alone(self, log, rows):
        log.append("t", rows(2), watermark=100)
        assert log.append("t", [], watermark=200) == 3
        log.append("t", rows(1))
        log.flush()
        found = [(len(b), b.first_lsn, b.lsn, b.watermark) for b in log.read("t")]
        assert found == [(2, 1, 2, 100), (0, 3, 3, 200), (1, 4, 4, None)]

    def test_a_batch_may_be_given_one(self, log, schema, rows):
        log.append("t", ChangeBatch.from_rows(schema, rows(2)), watermark=7)
        log.flush()
        assert [b.watermark for b in log.read("t")] == [7]

    def test_a_datetime_will_do(self, log, rows):
        log.append("t", rows(1), watermark=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        log.flush()
        assert [b.watermark for b in log.read("t")] == [1_000_000]

    @pytest.mark.parametrize("watermark", [1.5, "now", 2**63, -(2**63), True])
    def test_others_are_refused_and_change_nothing(self, log, rows, read, watermark):
        with pytest.raises(TimeRangeError):
            log.append("t", rows(1), watermark=watermark)
        log.append("t", rows(1))
        log.flush()
        assert read(log, "t") == rows(1)

    def test_of_a_batch_that_is_cut_holds_after_its_last_row(self, log, schema):
        big = schema.rows_to_arrow([(n, "x" * 1000) for n in range(20_000)])
        log.append("t", big, watermark=7)
        log.flush()
        assert [b.watermark for b in log.read("t")][-2:] == [None, 7]

    def test_rows_with_watermarks_are_never_merged(self, log, rows):
        """A watermark holds from just after its rows; merged, its place would be lost."""
        for n in range(5):
            log.append("t", rows(1, n), watermark=n)
        log.flush()
        assert [b.watermark for b in log.read("t")] == [0, 1, 2, 3, 4]


class TestTransaction:
    def test_rows_of_several_topics_are_one_commit(self, log, schema, rows, read):
        log.create_topic("u", schema)
        with log.transaction(wal_mode="sync") as transaction:
            transaction.append("t", rows(2))
            transaction.append("u", rows(2, 2))
            transaction.append("t", rows(1, 4))
        assert transaction.lsn == 5
        assert read(log, "t", "u") == rows(5)
        assert read(log, "u") == rows(2, 2)
        times = {batch.committed_at for batch in log.read()}
        assert len(times) == 1

    def test_an_error_commits_nothing(self, log, rows, read):
        with pytest.raises(ZeroDivisionError), log.transaction() as transaction:
            transaction.append("t", rows(2))
            _ = 1 / 0
        with pytest.raises(RowError), log.transaction() as transaction:
            transaction.append("t", rows(2))
            transaction.append("t", [("bad", "row")])
        log.flush()
        assert read(log, "t") == []
        assert log.lsn == 0

    def test_a_topic_that_is_dropped_meanwhile(self, log, schema, rows):
        transaction = log.transaction()
        with pytest.raises(TopicNotFoundError), transaction:
            transaction.append("t", rows(1))
            log.drop_topic("t")
            log.create_topic("t", schema)
        assert log.lsn == 0

    def test_is_used_once_and_within_its_block(self, log, rows):
        with pytest.raises(ClosedError):
            log.transaction().append("t", rows(1))
        with log.transaction() as transaction:
            pass
        assert transaction.lsn == 0
        with pytest.raises(ClosedError):
            transaction.append("t", rows(1))
        with pytest.raises(ClosedError), transaction:
            pass


class TestEvolution:
    def test_old_rows_have_null_in_a_new_column(self, tmp_path, schema, read):
        with Log(tmp_path) as log:
            log.create_topic("t", schema)
            old = log.topic("t").schema
            log.append("t", [(1, "a")])
            log.add_column("t", "price", "DOUBLE")
            log.append("t", [(2, "b", 3.5)])
            # A producer that has not heard of the column yet goes on.
            log.append("t", ChangeBatch.from_rows(old, [(3, "c")]))
            log.flush()
            expected = [(1, "a", None), (2, "b", 3.5), (3, "c", None)]
            assert read(log, "t") == expected
        with Log(tmp_path) as log:
            assert log.topic("t").schema.names == ("n", "s", "price")
            assert read(log, "t") == expected

    def test_weights_survive_it(self, log, schema):
        log.append("t", ChangeBatch.from_rows(schema, [(1, "a"), (1, "b")], weights=[-1, 1]))
        log.add_column("t", "x", "BIGINT")
        (batch,) = log.read("t")
        assert batch.weights == [-1, 1]
        assert batch.rows == [(1, "a", None), (1, "b", None)]

    def test_not_null_is_refused(self, log):
        with pytest.raises(SchemaError):
            log.add_column("t", "x", "BIGINT NOT NULL")
        with pytest.raises(SchemaError):
            log.add_column("t", "S", "BIGINT")
        assert log.topic("t").schema.names == ("n", "s")


class TestTokens:
    def test_a_batch_says_where_to_go_on(self, log, rows, read):
        log.append("t", rows(2))
        log.flush()
        (batch,) = log.read("t")
        log.append("t", rows(2, 2))
        log.flush()
        assert read(log, "t", start=log.resume(batch.token) + 1) == rows(2, 2)
        assert log.token(batch.lsn) == batch.token

    def test_survive_a_restart(self, tmp_path, schema, rows):
        with Log(tmp_path) as log:
            log.create_topic("t", schema)
            log.append("t", rows(5), wal_mode="sync")
            token = log.token(5)
        with Log(tmp_path) as log:
            assert log.resume(token) == 5

    def test_of_another_database_are_refused(self, tmp_path, log):
        with Log(tmp_path / "other") as other, pytest.raises(ForeignTokenError):
            log.resume(other.token(0))
        with pytest.raises(InvalidTokenError):
            log.resume("not a token")
        assert isinstance(log.database, uuid.UUID)


class TestLsnAt:
    def test_finds_the_first_commit_at_a_time_or_later(self, tmp_path, schema, rows):
        clock = ManualClock(0)
        with Log(tmp_path, clock=clock, segment_bytes=2000) as log:
            log.create_topic("t", schema)
            for n in range(60):
                clock.advance(10)
                log.append("t", rows(2, n), wal_mode="sync")
            assert len(list(tmp_path.glob("*.seg"))) > 5
            for n in range(60):
                time = 10 * (n + 1)
                assert log.lsn_at(time) == log.lsn_at(time - 9) == 2 * n + 1
            assert log.lsn_at(601) == 121
            assert log.lsn_at(datetime(2000, 1, 1, tzinfo=UTC)) == 121
            assert log.lsn_at(-5) == 1


class TestClose:
    def test_twice_is_fine_and_then_nothing_goes(self, tmp_path, schema, rows):
        log = Log(tmp_path)
        log.create_topic("t", schema)
        reader = log.read("t")
        log.close()
        log.close()
        for use in (lambda: log.append("t", rows(1)), log.flush, log.retain):
            with pytest.raises(ClosedError):
                use()
        assert reader.next() is None

    def test_writes_what_is_still_queued(self, tmp_path, schema, rows, read):
        with Log(tmp_path) as log:
            log.create_topic("t", schema)
            for n in range(500):
                log.append("t", rows(1, n))
        with Log(tmp_path) as log:
            assert log.recovery.clean
            assert read(log, "t") == rows(500)

    def test_leaves_no_thread_and_no_file_behind(self, tmp_path, schema, rows):
        before = threading.active_count()
        with Log(tmp_path, segment_bytes=1000) as log:
            log.create_topic("t", schema)
            for n in range(50):
                log.append("t", rows(10, n), wal_mode="sync")
            with log.read("t") as reader:
                list(reader)
        gc.collect()
        assert threading.active_count() == before
        links = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        assert not [link for link in links if link.startswith(str(tmp_path))]

    def test_a_forgotten_one_is_closed_with_a_warning(self, tmp_path, schema, rows, read):
        log = Log(tmp_path)
        log.create_topic("t", schema)
        log.append("t", rows(3))
        with pytest.warns(ResourceWarning, match="was not closed"):
            del log
            gc.collect()
        with Log(tmp_path) as log:
            assert read(log, "t") == rows(3)

    def test_while_others_append(self, tmp_path, schema, rows, read):
        """Each append either returns, and is there, or raises, and is not."""
        log = Log(tmp_path)
        log.create_topic("t", schema)
        returned = [[] for _ in range(4)]

        def work(place):
            for n in range(100_000):
                try:
                    log.append("t", [(place, f"{n}")], wal_mode="sync" if place % 2 else "async")
                except ClosedError:
                    return
                returned[place].append((place, f"{n}"))

        threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: log.written_lsn >= 200)
        log.close()
        for thread in threads:
            thread.join()
        with Log(tmp_path) as log:
            found = read(log, "t")
        for place in range(4):
            assert [row for row in found if row[0] == place] == returned[place]

    def test_a_follower_is_given_everything_first(self, tmp_path, schema, rows):
        for _ in range(20):
            with Log(tmp_path) as log:
                if "t" not in log.topics:
                    log.create_topic("t", schema)
                got, reader = [], log.read("t", start="now")
                follower = threading.Thread(target=lambda: got.extend(reader.follow()))
                follower.start()
                for n in range(20):
                    log.append("t", rows(1, n))
            follower.join()
            assert [row for batch in got for row in batch.rows] == rows(20)

    def test_interrupted_it_can_be_done_again(self, tmp_path, schema, monkeypatch):
        def interrupted(threads):
            raise KeyboardInterrupt

        log = Log(tmp_path)
        log.create_topic("t", schema)
        with monkeypatch.context() as patch:
            patch.setattr(BackgroundThreads, "stop", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.close()
        log.close()
        Log(tmp_path).close()

    def test_wakes_followers(self, log):
        got = []
        follower = threading.Thread(target=lambda: got.extend(log.read("t").follow()))
        follower.start()
        log.append("t", [(1, "a")])
        wait_until(lambda: got)
        log.close()
        follower.join()
        assert len(got) == 1


def test_a_forked_child_can_neither_use_nor_harm_it(log, rows, read):
    def child(go, results):
        go.wait()
        try:
            log.append("t", rows(1))
        except ClosedError as error:
            results.put(str(error))
        log.close()

    context = multiprocessing.get_context("fork")
    go, results = context.Event(), context.SimpleQueue()
    with warnings.catch_warnings():
        # Python warns that a fork with threads may deadlock; this is the test that it does not.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=child, args=(go, results))
        process.start()
    log.append("t", rows(10), wal_mode="sync")
    go.set()
    assert "fork" in results.get()
    process.join()
    log.append("t", rows(1, 10), wal_mode="sync")
    assert read(log, "t") == rows(11)
    assert not list(log.verify())


class TestTimesOfCommits:
    @pytest.fixture
    def clock(self):
        return ManualClock(1_000_000)

    @pytest.fixture
    def merged(self, tmp_path, schema, rows, clock):
        """Ten commits, a second and more apart, of 1, 2, ... 10 rows, in few frames."""
        with Log(tmp_path / "merged", clock=clock) as log:
            log.create_topic("t", schema)
            times = []
            with writes_held(log):
                for n in range(10):
                    clock.advance(1_000_000 + n)
                    log.append("t", rows(n + 1))
                    times += [clock()] * (n + 1)
            log.flush()
        with Log(tmp_path / "merged", clock=clock) as log:
            yield log, times

    def test_each_row_has_the_time_of_its_own_commit(self, merged):
        log, times = merged
        batches = list(log.read("t"))
        assert len(batches) < 10
        assert [b.commit_time(lsn) for b in batches for lsn in b.lsns] == times
        half = list(log.read("t", start=20))
        assert [b.commit_time(lsn) for b in half for lsn in b.lsns] == times[19:]

    def test_a_time_is_found_within_a_frame(self, merged):
        log, times = merged
        for committed_at in times:
            first = times.index(committed_at) + 1
            assert log.lsn_at(committed_at) == log.lsn_at(committed_at - 1) == first
        assert log.lsn_at(times[-1] + 1) == len(times) + 1

    def test_commits_hours_apart_do_not_share_a_frame(self, tmp_path, schema, rows, clock):
        with Log(tmp_path / "hours", clock=clock) as log:
            log.create_topic("t", schema)
            with writes_held(log):
                for _ in range(3):
                    clock.advance(3_600_000_000)
                    log.append("t", rows(1))
            log.flush()
            times = [b.commit_time(lsn) for b in log.read("t") for lsn in b.lsns]
        assert times == [1_000_000 + 3_600_000_000 * n for n in (1, 2, 3)]

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.log.segments import writes_held

from millstream.errors import (
    ClosedError,
    InvalidOptionError,
    RowError,
    SchemaMismatchError,
    TimeRangeError,
    TopicNotFoundError,
)
from millstream.log import Log
from millstream.model import ChangeBatch, ManualClock, Schema


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

    def test_rows_of_different_causes_are_never_merged(self, log, schema, rows):
        """A frame has one cause: merged, a view's change would count rows that it does not."""
        for n in range(4):
            batch = ChangeBatch(schema, rows(1, n), None, None, cause=1 + n // 2)
            log.appender.add(log.appender.place([("t", batch)], sync=False))
        log.flush()
        causes = [(lsn, b.cause) for b in log.read("t") for lsn in b.lsns]
        assert causes == [(1, 1), (2, 1), (3, 2), (4, 2)]


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

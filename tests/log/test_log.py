from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from tests.log.segments import writes_held

from millstream.errors import (
    ForeignTokenError,
    InvalidNameError,
    InvalidTokenError,
    SchemaError,
    TopicExistsError,
    TopicNotFoundError,
)
from millstream.log import Log
from millstream.model import ChangeBatch, ManualClock, Schema


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

from __future__ import annotations

import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import ClosedError, InvalidOptionError, LogCorruptError, LsnNotKeptError
from millstream.log import Log, Retention, walk
from millstream.log.frame import decode_header
from millstream.model import Schema
from millstream.testing import writer_of

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A log of three topics over many segments; with what is in it: (topic, lsn, row)."""
    path, content = tmp_path_factory.mktemp("many"), []
    with Log(path, segment_bytes=3000) as log:
        for name in "abc":
            log.create_topic(name, SCHEMA)
        for n in range(300):
            topic = "abc"[n * n % 3]
            size = n % 7 + 1
            batch = [(n, f"{topic} {i}") for i in range(size)]
            last = log.append(topic, batch)
            content += [(topic, last - size + 1 + i, row) for i, row in enumerate(batch)]
            if n % 10 == 0:
                log.flush()
        log.flush()
        assert len(list(path.glob("*.seg"))) > 10
        yield log, content


def test_everything_is_in_lsn_order(many):
    log, content = many
    found = [(b.topic, lsn, row) for b in log.read() for lsn, row in zip(b.lsns, b.rows)]  # noqa: B905
    assert found == content
    assert [lsn for _, lsn, _ in content] == list(range(1, len(content) + 1))


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_topics_from_any_lsn(many, data):
    log, content = many
    topics = data.draw(st.sets(st.sampled_from("abc"), min_size=1))
    start = data.draw(st.integers(1, log.lsn + 2))
    with log.read(*topics, start=start) as reader:
        found = [(b.topic, lsn, row) for b in reader for lsn, row in zip(b.lsns, b.rows)]  # noqa: B905
        assert found == [c for c in content if c[0] in topics and c[1] >= start]
        assert reader.position == max(log.lsn, start - 1)


def test_a_seek_opens_one_segment(many):
    log, content = many
    opened, count = [], 0

    def audit(event, args):
        if event == "open" and str(args[0]).endswith(".seg"):
            opened.append(args[0])

    sys.addaudithook(audit)
    for topic, lsn, row in content[::37]:
        opened.clear()
        with log.read(topic, start=lsn) as reader:
            batch = reader.next_nowait()
        assert (batch.topic, batch.first_lsn, batch.rows[0]) == (topic, lsn, row)
        assert len(opened) <= 1
        count += len(opened)
    assert count


def test_readers_share_descriptors(many):
    log, _ = many
    readers = [log.read(start=1) for _ in range(50)]
    for reader in readers:
        reader.next_nowait()
    assert len({reader._cursor._file.fd for reader in readers}) == 1


class TestFollowing:
    def test_gives_what_comes_later(self, log, rows):
        reader = log.read("t")
        assert reader.next_nowait() is None
        assert reader.next(timeout=0) is None
        log.append("t", rows(2))
        assert reader.next().rows == rows(2)
        assert reader.next_nowait() is None

    def test_now_is_after_what_was_appended(self, log, rows):
        log.append("t", rows(2))
        reader = log.read("t", start="now")
        log.append("t", rows(2, 2))
        assert reader.next().rows == rows(2, 2)

    def test_a_start_in_the_future_waits_for_it(self, log, rows):
        reader = log.read("t", start=4)
        log.append("t", rows(5))
        log.flush()
        assert reader.next().rows == rows(2, 3)

    def test_does_not_poll(self, log, rows):
        """Asleep, a follower takes no time of the processor."""
        reader, woke = log.read("t"), []
        thread = threading.Thread(target=lambda: woke.append(reader.next()))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert len(writer_of(log).segments._grown.asleep) == 1
        log.append("t", rows(1))
        thread.join()
        assert woke[0].rows == rows(1)
        assert not writer_of(log).segments._grown.asleep

    def test_rows_of_other_topics_move_the_position(self, log, schema, rows):
        log.create_topic("u", schema)
        reader = log.read("u")
        log.append("t", rows(5))
        log.flush()
        assert reader.next_nowait() is None
        assert reader.position == 5

    def test_closed_is_closed(self, log):
        with log.read("t") as reader:
            pass
        with pytest.raises(ClosedError):
            reader.next_nowait()


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    segment_bytes=st.sampled_from([500, 5_000, 1 << 20]),
    sizes=st.lists(st.integers(1, 40), min_size=20, max_size=120),
    seed=st.integers(0, 2**16),
)
def test_followers_under_load_see_every_row_once(tmp_path_factory, segment_bytes, sizes, seed):
    """Writers, segments that roll, and readers that started at different places, all at once."""
    path = tmp_path_factory.mktemp("load")
    with Log(path, segment_bytes=segment_bytes, sync_interval=0.001) as log:
        for name in "ab":
            log.create_topic(name, SCHEMA)
        total = sum(sizes) * 2
        results: dict[int, list] = {}

        def follow(place, topics):
            found = results[place] = []
            with log.read(*topics) as reader:
                while reader.position < total:
                    batch = reader.next()
                    found += zip(batch.lsns, batch.rows, strict=True)
                    if place % 2 and len(topics) == 1:
                        break  # and another one goes on where this one stopped
                position = reader.position
            if position < total:
                with log.read(*topics, start=position + 1) as reader:
                    while reader.position < total:
                        batch = reader.next(timeout=0.01)
                        if batch is not None:
                            found += zip(batch.lsns, batch.rows, strict=True)

        def write(topic):
            for number, size in enumerate(sizes):
                sync = (number + seed) % 11 == 0
                rows = [(number, f"{topic}{i}") for i in range(size)]
                log.append(topic, rows, wal_mode="sync" if sync else "async")

        choices = [("a",), ("b",), ("a", "b"), ("b",)]
        threads = [threading.Thread(target=follow, args=c) for c in enumerate(choices)]
        threads += [threading.Thread(target=write, args=(topic,)) for topic in "ab"]
        for thread in threads:
            thread.start()
        # A topic's last row may come before the other's: one more row each ends the wait.
        for thread in threads[len(choices) :]:
            thread.join()
        for name in "ab":
            log.append(name, [(-1, "end")])
        for thread in threads[: len(choices)]:
            thread.join()
    for place, topics in enumerate(choices):
        expected = {
            t: [(n, f"{t}{i}") for n, size in enumerate(sizes) for i in range(size)] for t in topics
        }
        rows = [row for _, row in results[place] if row[1] != "end"]
        for topic in topics:
            assert [row for row in rows if row[1].startswith(topic)] == expected[topic]
        lsns = [lsn for lsn, _ in results[place]]
        assert lsns == sorted(set(lsns))


def test_new_readers_at_every_moment_of_a_roll(tmp_path):
    """A reader that begins while segments come and go sees whole rows, and no damage."""
    stop, problems, seen = threading.Event(), [], []
    with Log(tmp_path, segment_bytes=2000) as log:
        log.create_topic("t", SCHEMA, retention=Retention(max_bytes=20_000))

        def look():
            while not stop.is_set():
                try:
                    start = max(1, log.written_lsn - 3)
                    lsns = [lsn for b in log.read("t", start=start) for lsn in b.lsns]
                    assert lsns == list(range(start, start + len(lsns)))
                    seen.extend(lsns)
                    log.lsn_at(0)
                    problems.extend(log.verify())
                except LsnNotKeptError:
                    pass
                except Exception as error:
                    problems.append(error)

        def retain():
            while not stop.is_set():
                log.retain()

        threads = [threading.Thread(target=target) for target in (look, look, retain)]
        for thread in threads:
            thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for n in range(3000):
                log.append("t", [(n, "x" * 50)])
        finally:
            sys.setswitchinterval(interval)
            stop.set()
        for thread in threads:
            thread.join()
    assert not problems, problems[:3]
    assert seen


@pytest.mark.parametrize("start", ["latest", None, 1.5, -1])
def test_a_start_that_is_none(log, start):
    with pytest.raises(InvalidOptionError):
        log.read("t", start=start)


class TestDamage:
    @pytest.fixture
    def damaged(self, tmp_path, schema, rows):
        """Three segments of 10 commits each; a byte in the middle of the second is flipped."""
        with Log(tmp_path, segment_bytes=4000) as log:
            log.create_topic("t", schema)
            for n in range(30):
                log.append("t", rows(5, 5 * n), wal_mode="sync")
        segments = sorted(tmp_path.glob("*.seg"))
        assert len(segments) >= 3
        data = bytearray(segments[1].read_bytes())
        data[len(data) // 2] ^= 0xFF
        segments[1].write_bytes(data)
        return tmp_path, segments[1]

    def test_is_reported_and_can_be_stepped_over(self, damaged, rows):
        path, segment = damaged
        with Log(path) as log:
            reader, found = log.read("t"), []
            with pytest.raises(LogCorruptError) as caught:
                for batch in reader:
                    found += batch.rows
            error = caught.value
            assert error.segment == segment.name
            assert found == rows(len(found))
            assert error.next_lsn > len(found) + 1
            assert str(error.next_lsn) in error.hint
            rest = [row for batch in log.read("t", start=error.next_lsn) for row in batch.rows]
            assert rest == rows(150 - error.next_lsn + 1, error.next_lsn - 1)
            # Only the one commit that was hit is gone.
            assert len(found) + len(rest) == 145
            assert [e.offset for e in log.verify()] == [error.offset]

    def test_does_not_stop_new_rows(self, damaged, rows, read):
        path, _ = damaged
        with Log(path) as log:
            lsn = log.append("t", rows(3, 1000), wal_mode="sync")
            assert read(log, "t", start=lsn - 2) == rows(3, 1000)

    def test_a_missing_segment(self, damaged, rows):
        path, segment = damaged
        segment.unlink()
        with Log(path, repair=True) as log:
            assert ["missing" in str(e) for e in log.verify()] == [True]
            reader, found = log.read("t"), []
            with pytest.raises(LogCorruptError, match="missing") as caught:
                for batch in reader:
                    found += batch.rows
            assert found == rows(len(found))
            rest = [
                row for batch in log.read("t", start=caught.value.next_lsn) for row in batch.rows
            ]
            assert rest == rows(150)[-len(rest) :]

    def test_a_damaged_seal_costs_no_row(self, tmp_path, schema, rows, read):
        with Log(tmp_path, segment_bytes=4000) as log:
            log.create_topic("t", schema)
            for n in range(30):
                log.append("t", rows(5, 5 * n), wal_mode="sync")
        first = min(tmp_path.glob("*.seg"))
        data = bytearray(first.read_bytes())
        data[-30] ^= 0xFF
        first.write_bytes(data)
        with Log(tmp_path) as log:
            assert read(log, "t") == rows(150)
            assert ["seal" in str(e) for e in log.verify()][:1] == [True]
            assert log.lsn_at(0) == 1
            assert log.lsn_at(2**62) == 151

    def test_a_damaged_head_in_the_middle_costs_no_row(self, damaged, rows, read):
        path, segment = damaged
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF  # back as it was
        data[40] ^= 0xFF
        segment.write_bytes(data)
        with Log(path) as log:
            assert read(log, "t") == rows(150)

    def test_a_damaged_head_and_the_first_rows(self, damaged, rows, read):
        path, segment = damaged
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0xFF
        for place in range(40, 1400, 40):
            data[place] ^= 0xFF
        segment.write_bytes(data)
        with Log(path) as log:
            found = []
            with pytest.raises(LogCorruptError) as caught:
                for batch in log.read("t"):
                    found += batch.rows
            assert found == rows(len(found))
            assert caught.value.next_lsn > len(found) + 1
            rest = read(log, "t", start=caught.value.next_lsn)
            assert rest == rows(150)[-len(rest) :]


def test_an_lsn_that_is_not_kept_says_what_is(tmp_path, schema, rows):
    with Log(tmp_path, segment_bytes=1000) as log:
        log.create_topic("t", schema, retention=Retention(max_bytes=3000))
        for n in range(50):
            log.append("t", rows(5, 5 * n), wal_mode="sync")
        slow = log.read("t")
        slow.next_nowait()
        log.retain()
        low = log.topic("t").low_lsn
        assert low > 50
        with pytest.raises(LsnNotKeptError) as caught:
            log.read("t", start=1)
        assert caught.value.oldest == low
        assert next(iter(log.read("t"))).first_lsn == low
        with pytest.raises(LsnNotKeptError):
            list(slow)


def test_a_topic_is_read_without_the_frames_of_others(tmp_path, monkeypatch):
    """A few rows among many of another topic, in a segment that was closed, and then is sealed."""
    with Log(tmp_path) as log:
        for name in ("few", "many"):
            log.create_topic(name, SCHEMA)
        log.append("few", [(1, "x")])
        for n in range(2000):
            log.append("many", [(n, "x" * 20)], watermark=n)
        log.append("few", [(2, "x")], wal_mode="sync")
    seen = []

    def noted(*given):
        seen.append(given)
        return decode_header(*given)

    monkeypatch.setattr(walk, "decode_header", noted)
    with Log(tmp_path) as log:
        for _ in range(2):
            seen.clear()
            assert [row[0] for batch in log.read("few") for row in batch.rows] == [1, 2]
            assert len(seen) < 200
            writer_of(log).roll()
        with log.read("few", "many") as reader:
            assert sum(len(batch) for batch in reader) == 2002

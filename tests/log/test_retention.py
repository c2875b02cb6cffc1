from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.segments import last_seal

from millstream.errors import InvalidOptionError, LsnNotKeptError
from millstream.log import Log, Retention
from millstream.log.frame import HEADER_SIZE, Kind, encode
from millstream.log.retention import dead_share, low_lsn
from millstream.log.segment import SegmentIndex
from millstream.log.topics import Topic
from millstream.model import ManualClock, Schema
from millstream.testing import wait_until

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")
SECOND = 1_000_000


def segments(*contents):
    """Indexes of segments; each content is a list of (topic, rows), a second per segment."""
    lsn, made = 1, []
    for number, content in enumerate(contents, 1):
        index = SegmentIndex(lsn, {})
        for topic, rows in content:
            frame = encode(
                Kind.ROWS,
                bytes(rows * 8),
                topic=topic,
                first_lsn=lsn,
                span=rows,
                committed_at=number * SECOND,
            ).frame
            index.add(frame, 0)
            lsn += rows
        made.append(index)
    return made


class TestLowLsn:
    sealed = segments([(1, 10)], [(1, 10), (2, 5)], [(2, 5)], [(1, 10)])

    def low(self, retention, *, now=5, needed=None, topic=1, low=0):
        topic = Topic(topic, "t", (SCHEMA,), low, retention)
        return low_lsn(topic, self.sealed, now=now * SECOND, needed=needed)

    def test_no_limit_keeps_everything(self):
        assert self.low(Retention()) == 0

    def test_by_age(self):
        assert self.low(Retention(max_age=3.5)) == 11
        assert self.low(Retention(max_age=2.5)) == 21
        assert self.low(Retention(max_age=100)) == 0
        assert self.low(Retention(max_age=0)) == 41

    def test_by_size(self):
        frame = HEADER_SIZE + 80
        assert self.low(Retention(max_bytes=3 * frame)) == 0
        assert self.low(Retention(max_bytes=2 * frame + 1)) == 0
        assert self.low(Retention(max_bytes=2 * frame)) == 11
        assert self.low(Retention(max_bytes=frame)) == 21
        assert self.low(Retention(max_bytes=1)) == 21
        assert self.low(Retention(max_bytes=0)) == 41

    def test_at_least_as_much_stays_as_the_limit_says(self):
        (only,) = segments([(1, 10)])
        topic = Topic(1, "t", (SCHEMA,), 0, Retention(max_bytes=1))
        assert low_lsn(topic, [only], now=0, needed=None) == 0
        assert low_lsn(topic, [only], now=0, needed=None, newer=1) == 11

    def test_what_is_needed_stays(self):
        assert self.low(Retention(max_bytes=0), needed=15) == 15
        assert self.low(Retention(max_bytes=0), needed=1) == 1
        assert self.low(Retention(max_bytes=0), needed=99) == 41

    def test_never_moves_back(self):
        assert self.low(Retention(), low=12) == 12
        assert self.low(Retention(max_bytes=0), low=30, needed=5) == 30

    def test_another_topic_in_the_same_segments(self):
        assert self.low(Retention(max_age=2.5), topic=2) == 26


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 9)), max_size=4), max_size=6),
    st.integers(0, 60),
    st.booleans(),
)
def test_the_dead_share_is_between_none_and_all(contents, low, dropped):
    topics = {1: Topic(1, "a", (SCHEMA,), low), 2: Topic(2, "b", (SCHEMA,), dropped=dropped)}
    for index in segments(*contents):
        share = dead_share(index, topics)
        assert 0 <= share <= 1
        if not index.extents:
            assert share == 1


def fill(log, topic, count, start=0, size=50):
    for n in range(start, start + count):
        log.append(topic, [(n, "x" * size)], wal_mode="sync")


def numbers(log, topic):
    return [row[0] for batch in log.read(topic) for row in batch.rows]


def test_size_drops_the_oldest_segments(tmp_path):
    with Log(tmp_path, segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA, retention=Retention(max_bytes=10_000))
        fill(log, "t", 200)
        before = sorted(tmp_path.glob("*.seg"))
        done = log.retain()
        assert done.removed > 5
        assert done.freed > 15_000
        assert [each.exists() for each in before].count(False) == done.removed
        kept = numbers(log, "t")
        assert kept == list(range(kept[0], 200))
        assert done.trimmed == {"t": kept[0] + 1}
        assert log.retain().removed == 0
    with Log(tmp_path) as log:
        assert numbers(log, "t") == kept
        assert log.topic("t").low_lsn == kept[0] + 1


def test_age_drops_rows_even_of_the_segment_that_is_being_written(tmp_path):
    clock = ManualClock(10**15)
    with Log(tmp_path, clock=clock) as log:
        log.create_topic("t", SCHEMA, retention=Retention(max_age=60))
        fill(log, "t", 10)
        clock.advance(61 * SECOND)
        log.retain()
        assert numbers(log, "t") == []
        fill(log, "t", 3, 10)
        log.retain()
        assert numbers(log, "t") == [10, 11, 12]
        assert len(list(tmp_path.glob("*.seg"))) == 1


def test_each_topic_has_its_own_and_the_space_comes_back(tmp_path):
    """A topic that is kept for long among one that is not: the segments shrink around it."""
    with Log(tmp_path, segment_bytes=20_000) as log:
        log.create_topic("kept", SCHEMA)
        log.create_topic("loud", SCHEMA, retention=Retention(max_bytes=20_000))
        for n in range(100):
            fill(log, "kept", 1, n)
            fill(log, "loud", 10, 10 * n, size=200)
        size = sum(f.stat().st_size for f in tmp_path.glob("*.seg"))
        done = log.retain()
        assert done.removed == 0
        assert done.rewritten > 10
        left = sum(f.stat().st_size for f in tmp_path.glob("*.seg"))
        definition = 1000  # the trim itself is written down
        assert size - done.freed <= left < size - done.freed + definition
        assert left < size / 3
        assert numbers(log, "kept") == list(range(100))
        loud = numbers(log, "loud")
        assert loud == list(range(loud[0], 1000))
        assert list(log.verify()) == []
        lsns = [lsn for batch in log.read() for lsn in batch.lsns]
        assert lsns == sorted(lsns)
        for batch in list(log.read("kept"))[::7]:
            assert next(iter(log.read("kept", start=batch.lsn))).rows == batch.rows
    with Log(tmp_path) as log:
        assert numbers(log, "kept") == list(range(100))
        assert numbers(log, "loud") == loud


def test_a_dropped_topic_gives_its_space_back(tmp_path):
    with Log(tmp_path, segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        log.create_topic("u", SCHEMA)
        fill(log, "t", 100)
        fill(log, "u", 5)
        log.drop_topic("t")
        assert log.retain().removed > 5
        assert numbers(log, "u") == [0, 1, 2, 3, 4]


def test_topics_that_were_dropped_are_forgotten_in_the_end(tmp_path):
    with Log(tmp_path, segment_bytes=2000) as log:
        for n in range(50):
            log.create_topic(f"t{n}", SCHEMA)
            fill(log, f"t{n}", 3)
            log.drop_topic(f"t{n}")
        log.create_topic("last", SCHEMA)
        fill(log, "last", 50)
        log.retain()
        assert log.topic("last").id == 51
    assert len(last_seal(tmp_path).topics.by_id) == 1
    with Log(tmp_path) as log:
        assert log.topics == ("last",)
        assert log.create_topic("next", SCHEMA).id == 52


@pytest.mark.parametrize("limit", [{"max_age": -1}, {"max_bytes": "1GB"}, {"max_age": "1d"}])
def test_limits_that_are_none(limit):
    with pytest.raises(InvalidOptionError):
        Retention(**limit)


class TestHolds:
    def test_keep_what_somebody_needs(self, tmp_path):
        with Log(tmp_path, segment_bytes=2000) as log:
            log.create_topic("t", SCHEMA, retention=Retention(max_bytes=0))
            fill(log, "t", 100)
            hold = log.hold("t", lsn=40)
            all_topics = log.hold(lsn=20)
            log.retain()
            assert numbers(log, "t")[0] <= 19
            all_topics.release()
            all_topics.release()
            log.retain()
            assert log.topic("t").low_lsn == 40
            assert numbers(log, "t") == list(range(39, 100))
            hold.advance(60)
            hold.advance(50)
            log.retain()
            assert log.topic("t").low_lsn == 60
            hold.release()
            log.retain()
            assert log.topic("t").low_lsn > 90

    def test_too_late_is_said(self, tmp_path):
        with Log(tmp_path, segment_bytes=2000) as log:
            log.create_topic("t", SCHEMA, retention=Retention(max_bytes=0))
            fill(log, "t", 100)
            log.retain()
            with pytest.raises(LsnNotKeptError):
                log.hold("t", lsn=1)

    def test_of_what_is_kept_by_now(self, tmp_path):
        with Log(tmp_path, segment_bytes=2000) as log:
            log.create_topic("t", SCHEMA, retention=Retention(max_bytes=0))
            fill(log, "t", 100)
            log.retain()
            low = log.topic("t").low_lsn
            hold = log.hold("t", lsn=1, kept=True)
            fill(log, "t", 100)
            log.retain()
            assert log.topic("t").low_lsn == low
            hold.release()
            log.retain()
            assert log.topic("t").low_lsn > low

    def test_of_one_topic_do_not_hold_another(self, tmp_path):
        with Log(tmp_path, segment_bytes=2000) as log:
            for name in "tu":
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=0))
                fill(log, name, 50)
            log.hold("u", lsn=1)
            log.retain()
            assert log.topic("t").low_lsn > 40
            assert log.topic("u").low_lsn <= 51
            assert numbers(log, "u") == list(range(50))


@pytest.mark.slow
def test_readers_go_on_while_segments_shrink_and_go(tmp_path):
    """A reader either gives every row from its start on, or says that retention overtook it."""
    stop, problems, overtaken, whole = threading.Event(), [], [], []
    with Log(tmp_path, segment_bytes=4000) as log:
        log.create_topic("kept", SCHEMA)
        log.create_topic("loud", SCHEMA, retention=Retention(max_bytes=30_000))

        def read(topic):
            while not stop.is_set():
                try:
                    start = log.topic(topic).low_lsn or 1
                    expected = None
                    with log.read(topic, start=start) as reader:
                        for batch in reader:
                            for number, _ in batch.rows:
                                if expected is not None and number != expected:
                                    problems.append((topic, expected, number))
                                expected = number + 1
                    whole.append(topic)
                except LsnNotKeptError:
                    overtaken.append(topic)
                except Exception as error:
                    problems.append(error)

        def retain():
            while not stop.is_set():
                log.retain()

        threads = [threading.Thread(target=read, args=(t,)) for t in ("kept", "loud", "kept")]
        threads.append(threading.Thread(target=retain))
        for thread in threads:
            thread.start()
        for n in range(150):
            fill(log, "kept", 1, n)
            log.append("loud", [(4 * n + i, "x" * 300) for i in range(4)])
        stop.set()
        for thread in threads:
            thread.join()
        assert not problems
        assert "kept" not in overtaken
        assert "kept" in whole
        assert numbers(log, "kept") == list(range(150))
        log.retain()
        loud = numbers(log, "loud")
        assert loud == list(range(loud[0], 600))


def test_a_thread_does_it_in_the_background(tmp_path):
    with Log(tmp_path, segment_bytes=2000, retention_interval=0.01) as log:
        log.create_topic("t", SCHEMA, retention=Retention(max_bytes=4000))
        fill(log, "t", 100)
        wait_until(lambda: log.topic("t").low_lsn >= 50)


def test_retention_is_changed_and_kept(tmp_path):
    with Log(tmp_path) as log:
        log.create_topic("t", SCHEMA)
        log.set_retention("t", Retention(max_age=timedelta(seconds=1.5), max_bytes=7))
    with Log(tmp_path) as log:
        assert log.topic("t").retention == Retention(1.5, 7)


def test_old_epochs_are_forgotten_with_their_rows(tmp_path):
    for run in range(5):
        with Log(tmp_path, segment_bytes=1000) as log:
            if run == 0:
                log.create_topic("t", SCHEMA, retention=Retention(max_bytes=0))
            fill(log, "t", 20)
    assert len(last_seal(tmp_path).epochs.starts) == 5
    with Log(tmp_path, segment_bytes=1000) as log:
        log.retain()
        with pytest.raises(LsnNotKeptError):
            log.read("t", start=1)
    assert len(last_seal(tmp_path).epochs.starts) < 6


def test_a_limit_keeps_the_newest_even_of_one_large_frame(tmp_path):
    """20,000 rows committed at once are one frame of a segment that is full with it."""
    with Log(tmp_path, segment_bytes=1 << 16) as log:
        log.create_topic("t", SCHEMA, retention=Retention(max_bytes=100_000))
        log.append("t", [(n, "x" * 50) for n in range(20_000)], wal_mode="sync")
        fill(log, "t", 1, 20_000)
        log.retain()
        log.retain()
        assert numbers(log, "t") == list(range(20_001))
        fill(log, "t", 1000, 20_001)
        log.retain()
        kept = numbers(log, "t")
        assert 20_000 < kept[0] <= 21_001 - 100_000 // 360
        assert kept == list(range(kept[0], 21_001))


class TestCounts:
    """What retention takes is counted: any reader that comes too late knows how much it missed."""

    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "log"

    def write(self, log, places):
        """Rows of t and u, in any order, with watermarks between them; their LSNs go to places."""
        for n in range(150):
            name = "tuut"[n * 7 % 4]
            size = n % 3 + 1
            lsn = log.append(name, [(n, "x" * 40)] * size)
            places[name] += range(lsn - size + 1, lsn + 1)
            if n % 10 == 0:
                log.append("t", [], watermark=n)
            if n % 5 == 0:
                log.flush()
        log.flush()

    def check(self, log, places, starts=None):
        for name, lsns in places.items():
            topic = log.topic(name)
            gone = [lsn for lsn in lsns if lsn < topic.low_lsn]
            assert topic.trimmed_rows == len(gone)
            for first in starts or range(max(lsns) + 2):
                gap = log.lost(topic, first)
                missed = [lsn for lsn in gone if lsn >= first]
                assert (gap.count if gap else 0) == len(missed), (name, first)
                if gap is not None:
                    assert gap.first_lsn <= missed[0]
                    assert missed[-1] <= gap.last_lsn == topic.low_lsn - 1

    def test_of_every_reader_over_restarts(self, path):
        places = {"t": [], "u": []}
        with Log(path, segment_bytes=2000) as log:
            for name, size in (("t", 4000), ("u", 9000)):
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=size))
        for _ in range(3):
            with Log(path, segment_bytes=2000) as log:
                self.check(log, {name: lsns for name, lsns in places.items() if lsns})
                self.write(log, places)
                assert log.retain().removed
                self.check(log, places)
        with Log(path) as log:
            self.check(log, places)
            reader, gaps = log.read_kept("t", "u", start=2)
            low = {name: log.topic(name).low_lsn for name in places}
            assert {name: gap.last_lsn + 1 for name, gap in gaps.items()} == low
            lsns = [lsn for batch in reader for lsn in batch.lsns]
            every = sorted(n for name, all_ in places.items() for n in all_ if n >= low[name])
            assert [n for n in lsns if n in set(every)] == every
            lost = sum(gap.count for gap in gaps.values())
            assert lost + len(every) == sum(map(len, places.values())) - 1

    def test_of_what_a_hold_has_parted(self, path):
        places = {"t": [], "u": []}
        with Log(path, segment_bytes=2000) as log:
            for name in places:
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=1))
            self.write(log, places)
            hold = log.hold("t", lsn=77)
            log.retain()
            self.check(log, places)
        with Log(path, segment_bytes=2000) as log:
            hold = log.hold("t", lsn=111)
            log.retain()
            self.check(log, places)
            hold.release()
            log.retain()
            self.check(log, places)

    def test_what_was_never_written_down_is_not_invented(self, path):
        places = {"t": [], "u": []}
        with Log(path, segment_bytes=2000) as log:
            for name in places:
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=1))
            self.write(log, places)
            log.retain()
        (path / "trims.json").write_bytes(b"{torn")
        with Log(path, segment_bytes=2000) as log:
            topic = log.topic("t")
            assert log.lost(topic, 1).count == topic.trimmed_rows > 0
            assert log.lost(topic, 2).count is None
            self.write(log, places)
            log.retain()
            self.check(log, {"t": places["t"]}, [1, topic.low_lsn, topic.low_lsn + 5])

    def test_a_crash_between_the_file_and_the_definition(self, path):
        """The file says that rows were trimmed which were not."""
        places = {"t": [], "u": []}
        with Log(path, segment_bytes=2000) as log:
            for name in places:
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=1))
            self.write(log, places)
            topic = log.topic("t")
            log._opened.collector.trims.take([(topic, 100)], log._opened.collector._settled())
            self.check(log, places)
        with Log(path, segment_bytes=2000) as log:
            self.check(log, places)
            log.retain()
            self.check(log, places)

    def test_only_the_newest_runs_are_remembered(self, path, monkeypatch):
        monkeypatch.setattr("millstream.log.trims.MOST_RUNS", 10)
        places = {"t": [], "u": []}
        with Log(path, segment_bytes=2000) as log:
            for name in places:
                log.create_topic(name, SCHEMA, retention=Retention(max_bytes=1))
            self.write(log, places)
            log.retain()
        with Log(path, segment_bytes=2000) as log:
            topic = log.topic("t")
            assert log.lost(topic, 2).count is None
            gone = [lsn for lsn in places["t"] if lsn < topic.low_lsn]
            self.check(log, {"t": places["t"]}, [1, *range(gone[-10], gone[-1] + 3)])

    def test_since_a_time(self, path):
        clock = ManualClock(10**15)
        with Log(path, segment_bytes=1000, clock=clock) as log:
            log.create_topic("t", SCHEMA, retention=Retention(max_bytes=1500))
            for n in range(60):
                clock.advance(SECOND)
                fill(log, "t", 1, n)
            log.retain()
            low = log.topic("t").low_lsn
            assert 1 < low < 59
            assert log.lsn_since(0, "t") == 1
            for n in range(1, 60):
                found = log.lsn_since(10**15 + n * SECOND, "t")
                assert found <= n
                assert n < low or found == n
            assert log.lsn_since(10**15 + 61 * SECOND, "t") == 61

"""A feed without Spark: what it sends is the log, from its start or from any offset."""

import json
import socket
import struct
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.spark.bridge.connection import Connection
from millstream.spark.bridge.frames import MARK, MORE
from millstream.testing import TIMEOUT, engine_of, wait_until
from millstream.views.plan.plan import Window
from millstream.views.run import live as live_feed
from millstream.views.run.checkpoint import Offset
from millstream.views.run.feed import ViewFeed
from millstream.views.run.inputs import FeedInputs
from millstream.views.run.live import Encodings, LiveFeed

from .few_frames import read_few

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = "\x1f".join(["n", "ts", "_lsn", "_weight", "_wm"])
HEADER = struct.Struct(">BqI")
MINUTE = Window("tumble", "ts", 60_000_000, 60_000_000)


class Frames:
    """A reader of a feed: its rows, and how far each frame says that it goes."""

    def __init__(self, serve):
        ours, theirs = socket.socketpair()
        ours.settimeout(30)
        self._socket = ours
        self._in = ours.makefile("rb")
        self._wire = Connection(theirs)
        self._thread = threading.Thread(target=self._serve, args=(serve,), daemon=True)
        self._thread.start()
        self.schema = pa.ipc.read_schema(self._in)

    def _serve(self, serve):
        with suppress(OSError, EOFError):  # the reader has gone
            serve(self._wire)

    def next(self):
        """A kind, an LSN, an offset, and rows."""
        kind, lsn, size = HEADER.unpack(self._in.read(HEADER.size))
        offset = self._in.read(size).decode()
        rows = []
        if kind in (1, MARK, MORE):
            message = pa.ipc.read_message(self._in)
            rows = pa.ipc.read_record_batch(message, self.schema).to_pylist()
        elif kind == 6:
            kind, rows = 1, read_few(self._in, self.schema)
        return kind, lsn, offset, rows

    def all(self):
        """The rows up to the end, and the offset there."""
        found = []
        while True:
            kind, _, offset, rows = self.next()
            if kind == 3:
                self.close()
                return found, offset
            assert kind == 1
            found += rows

    def close(self):
        self._wire.close()
        self._in.close()
        self._socket.close()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with ms.open(tmp_path_factory.mktemp("feed") / "db") as db:
        yield db


NUMBERS = iter(range(10**6))


class Play:
    """A source of its own in a database, and feeds over it."""

    def __init__(self, db, window=MINUTE):
        self.db = db
        self.name = f"s{next(NUMBERS)}"
        db.execute(
            f"CREATE SOURCE {self.name} (n BIGINT, ts TIMESTAMP, "
            "WATERMARK FOR ts AS ts - INTERVAL '5 seconds')"
        )
        self.source = db.source(self.name)
        self.window = window
        self.late = []
        self.committed = []

    def push(self, *seconds):
        number = self.db.lsn
        moments = [None if s is None else NOON + timedelta(seconds=s) for s in seconds]
        self.source.push_batch([(number + n, ts) for n, ts in enumerate(moments)])
        self.db.flush()

    def feed(self, encodings=None, lateness=0, **others):
        engine = engine_of(self.db)
        inputs = FeedInputs(
            (self.name,),
            (engine.catalog[self.name].schema,),
            self.window,
            (1,),
            lateness,
            timed={0} if self.window else set(),
        )
        live = LiveFeed(
            inputs,
            engine.log,
            engine.dispatcher,
            engine.select_all,
            on_late=lambda batch: self.late.extend(batch.rows),
            encodings=encodings or Encodings(),
            **others,
        )
        return ViewFeed(live, on_committed=self.committed.append, on_idle=lambda lsn: None)

    def log(self):
        """All rows with their LSNs."""
        with engine_of(self.db).log.read(self.name) as reader:
            return [(lsn, *row) for b in reader for lsn, row in zip(b.lsns, b.rows, strict=True)]


def until_it_ends(serve, *args):
    with pytest.raises(EOFError):
        serve(*args)


def ask(feed, verb, *words):
    return feed._answer(0, verb, words)


def reader_of(feed, start=None):
    """A reader of a feed from an offset on; at the start it has read that nothing was before."""
    frames = Frames(lambda wire: feed.send_live(NAMES, start or ask(feed, "initial"), wire))
    if start is None:
        kind, lsn, _, (first,) = frames.next()
        assert (kind, lsn, first["n"], first["_weight"]) == (1, 0, None, 0)
    return frames


SECONDS = st.lists(
    st.lists(st.none() | st.integers(-200, 400), min_size=1, max_size=6), min_size=1, max_size=12
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(pushes=SECONDS, share=st.floats(0, 1, exclude_max=True))
def test_it_sends_the_log_without_what_is_late(opened, pushes, share):
    play = Play(opened)
    for seconds in pushes:
        play.push(*seconds)
    found, places, end = read(play, None)
    everything = play.log()
    late = [row[0] for row in play.late]
    assert late == [n for _, n, _ in everything if n in set(late)], "in order, each once"
    sent = {row["n"] for row in found}
    assert [(row["_lsn"], row["n"]) for row in found] == [
        (lsn, n) for lsn, n, _ in everything if n not in set(late)
    ]
    assert end.late == len(late) == len(everything) - len(sent)
    assert end.lsn >= everything[-1][0]
    place, rows = places[int(share * len(places))]
    before = Offset.of(place).late
    play.late.clear()
    rest, _, again = read(play, place)
    assert (rest, [row[0] for row in play.late], again) == (found[rows:], late[before:], end)


def read(play, start):
    """What a feed sends from an offset on; the offsets between, and how many rows come before."""
    feed = play.feed()
    frames, found = reader_of(feed, start), []
    places, last = [], play.db.flush()
    reached = 0 if start is None else Offset.of(start).lsn
    feed.live.probe(last)
    while reached < last:
        kind, reached, offset, rows = frames.next()
        assert (kind, Offset.of(offset).lsn) == (1, reached)
        found += rows
        places.append((offset, len(found)))
    feed.end_batch()
    rest, end = frames.all()
    feed.live.drop_tail()
    return found + rest, places, Offset.of(end)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(
    seconds=st.lists(st.none() | st.integers(-200, 400), min_size=2, max_size=12),
    lateness=st.lists(st.sampled_from([0, 0, 60_000_000]), min_size=2, max_size=5),
)
def test_views_that_share_frames_get_what_each_would_get_alone(opened, seconds, lateness):
    """One row at a time, sent by the dispatcher: which is late differs from view to view."""
    play, shared = Play(opened), Encodings()
    feeds = [play.feed(shared, each) for each in lateness]
    alone = [play.feed(None, each) for each in lateness]
    readers = [reader_of(feed) for feed in (*feeds, *alone)]
    for number, each in enumerate(seconds):
        play.push(each)
        sent = [reader.next() for reader in readers]
        assert sent[: len(feeds)] == sent[len(feeds) :]
        for feed in (*feeds, *alone):
            wait_until(lambda feed=feed: sends_at_once(feed))
        if number == 0:
            encoded = []
            shared.of = noted(shared.of, encoded)
    frames = [made for made in encoded[:: len(feeds)] if len(set(lateness)) == 1]
    assert all(len(made) <= 1 for made in frames), "worked out once for all that are alike"
    found = [feed.live.late for feed in feeds]
    assert found == [feed.live.late for feed in alone]
    for feed, reader in zip((*feeds, *alone), readers, strict=True):
        feed.live.drop_tail()
        reader.close()


def noted(function, results):
    """A function whose results are noted."""

    def call(*args):
        results.append(function(*args))
        return results[-1]

    return call


def sends_at_once(feed):
    """Whether the dispatcher will send the next rows itself: the connection's thread sleeps."""
    return feed.live._tail._inbox.live.receiver is not None


def test_results_that_were_taken_already_have_the_watermark_that_they_had(opened):
    """Else a window that is open there would close with what it had by then."""
    play = Play(opened)
    for seconds in ((1, 2), (30,), (400,), (401,)):
        play.push(*seconds)
    lsns = [lsn for lsn, *_ in play.log()]
    feed = play.feed(shown_lsn=lambda: lsns[2])
    frames = reader_of(feed)
    kind, lsn, offset, rows = frames.next()
    assert (kind, lsn, [row["_lsn"] for row in rows]) == (MARK, lsns[2], lsns[:3])
    mark = (NOON + timedelta(seconds=25)).timestamp() * 1e6
    assert (feed.live.sent_at(lsn), Offset.of(offset).watermarks) == ((mark, lsn), (mark,))
    kind, lsn, _, rows = frames.next()
    assert (kind, lsn, [row["_lsn"] for row in rows]) == (1, lsns[4], lsns[3:])
    feed.live.drop_tail()
    frames.close()


def test_only_the_columns_that_are_asked_for(opened):
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    frames = Frames(lambda wire: feed.send_live("_lsn", ask(feed, "initial"), wire))
    assert [list(row) for row in frames.next()[3] + frames.next()[3]] == [["_lsn"], ["_lsn"]]
    feed.live.drop_tail()
    frames.close()


def test_a_mark_comes_back_for_what_is_of_another_log(opened):
    play, other = Play(opened), Play(opened)
    play.push(0)
    feed = play.feed()
    frames = reader_of(feed)
    assert len(frames.next()[3]) == 1
    other.push(0, 1)
    lsn = opened.flush()
    feed.live.probe(lsn)
    kind, reached, _, rows = frames.next()
    assert (kind, reached >= lsn, rows) == (1, True, [])
    ((newest, *_),) = play.log()
    assert feed.live.sent_at(reached)[1] == newest  # what comes back with the mark is of the row
    feed.end_batch()
    assert Offset.of(frames.all()[1]).lsn >= lsn
    feed.live.drop_tail()


def test_while_it_is_far_behind_frames_say_that_more_follow(opened, monkeypatch):
    """Never the last one: what its rows lead to would wait for ever."""
    monkeypatch.setattr(live_feed, "_BEHIND", 4)
    monkeypatch.setattr(live_feed, "_MERGED", 1)
    play, other = Play(opened, window=None), Play(opened)
    for _ in range(6):
        play.push(0, 1)
    other.push(*range(8))  # it is behind by those of another log, and has nothing to send of them
    feed = play.feed()
    frames, found, kinds = reader_of(feed), [], []
    while len(found) < 12:
        kind, _, _, rows = frames.next()
        kinds.append(kind)
        found += rows
    assert [(row["_lsn"], row["n"]) for row in found] == [row[:2] for row in play.log()]
    assert set(kinds[:-1]) == {MORE}
    assert kinds[-1] == 1
    feed.end_batch()
    assert frames.all()[0] == []
    feed.live.drop_tail()


def test_rows_come_as_they_are_pushed_and_in_order(opened):
    play = Play(opened, window=None)
    feed = play.feed()
    frames = reader_of(feed)
    pushing = threading.Thread(target=lambda: [play.push(n % 50) for n in range(200)])
    pushing.start()
    rows = []
    while len(rows) < 200:
        rows += frames.next()[3]
    pushing.join()
    assert [(row["_lsn"], row["n"]) for row in rows] == [row[:2] for row in play.log()]
    feed.end_batch()
    assert frames.all()[0] == []
    feed.live.drop_tail()


def test_it_reports_that_rows_are_taken_and_that_all_is_sent(opened):
    play, reported = Play(opened), SimpleQueue()
    play.push(0, 1)
    feed = play.feed(
        on_reading=lambda: reported.put("reading"),
        on_quiet=lambda: reported.put(feed.live.sent_lsn),
    )
    frames = reader_of(feed)
    assert reported.get(timeout=TIMEOUT) == "reading"
    assert reported.get(timeout=TIMEOUT) == opened.lsn
    feed.end_batch()
    assert len(frames.all()[0]) == 2
    assert reported.empty()
    feed.live.drop_tail()


def test_after_the_end_of_a_batch_it_is_parked(opened):
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    frames = reader_of(feed)
    frames.next()
    feed.end_batch()
    _, end = frames.all()
    assert not feed.live.wait_parked(0)
    ours, theirs = socket.socketpair()
    parked = threading.Thread(
        target=until_it_ends, args=(feed.send_live, NAMES, end, Connection(theirs))
    )
    parked.start()
    assert feed.live.wait_parked(30)
    ours.close()
    parked.join(30)
    assert not parked.is_alive()
    theirs.close()
    feed.live.drop_tail()


def test_a_reader_whose_query_has_failed_ends(opened):
    """Nothing of it is left that could send, or say how far it is."""
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    frames = reader_of(feed)
    frames.next()
    feed.live.drop_tail()
    frames._thread.join(30)
    assert not frames._thread.is_alive()
    frames.close()


def test_what_the_driver_asks(opened):
    play = Play(opened)
    feed = play.feed()
    ours, theirs = socket.socketpair()
    asked = threading.Thread(
        target=until_it_ends, args=(feed.control, Connection(theirs)), daemon=True
    )
    asked.start()
    wire = Connection(ours)
    wire.send_text("initial")
    assert json.loads(wire.receive_text()[1:]) == {"lsn": -1, "watermarks": [None], "late": 0}
    wire.send_text("committed\t" + Offset(7, (None,)).json)
    assert wire.receive_text() == "="
    assert play.committed == [7]
    wire.close()
    asked.join(30)
    assert not asked.is_alive()
    theirs.close()


def test_nothing_is_late_without_a_window(opened):
    play = Play(opened, window=None)
    play.push(500)
    play.push(-500)
    found, _, end = read(play, None)
    assert [row["n"] for row in found] == [n for _, n, _ in play.log()]
    assert (end.late, play.late) == (0, [])

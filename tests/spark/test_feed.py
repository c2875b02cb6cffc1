"""A feed without Spark: what its parts hold is the log, and the live gear sends the same."""

import json
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.spark import feed as feed_module
from millstream.spark.bridge.connection import Connection
from millstream.spark.checkpoint import Offset
from millstream.spark.feed import ViewFeed
from millstream.spark.inputs import FeedInputs
from millstream.spark.live import Encodings, LiveGear
from millstream.sql.views.plan import Window
from millstream.testing import TIMEOUT, engine_of

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
        if kind == 1:
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

    def feed(self, **options):
        engine = engine_of(self.db)
        inputs = FeedInputs(
            (self.name,), (engine.catalog[self.name].schema,), self.window, (1,), 0, 1
        )
        live = LiveGear(
            inputs,
            engine.log,
            engine.dispatcher,
            engine.select_all,
            on_late=lambda batch: self.late.extend(batch.rows),
            encodings=Encodings(),
        )
        return ViewFeed(
            live, on_committed=self.committed.append, on_idle=lambda lsn: None, **options
        )

    def log(self):
        """All rows with their LSNs."""
        with engine_of(self.db).log.read(self.name) as reader:
            return [(lsn, *row) for b in reader for lsn, row in zip(b.lsns, b.rows, strict=True)]


def until_it_ends(serve, *args):
    with pytest.raises(EOFError):
        serve(*args)


def ask(feed, verb, *words):
    return feed._answer(verb, words)


def batches(feed):
    """What Spark would read in one catch-up: the parts of each batch, in order."""
    start = ask(feed, "initial")
    ask(feed, "available")
    while (end := ask(feed, "latest", start)) != start:
        yield end, [part.split("\t") for part in ask(feed, "split", start, end).split("\n")]
        start = end


def read(feed, parts):
    return [Frames(lambda wire: feed.send_part(NAMES, *part, wire)).all()[0] for part in parts]


SECONDS = st.lists(
    st.lists(st.none() | st.integers(-200, 400), min_size=1, max_size=6), min_size=1, max_size=12
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(pushes=SECONDS, part_rows=st.integers(1, 20), batch_rows=st.integers(1, 40))
def test_parts_are_the_log_without_what_is_late(opened, pushes, part_rows, batch_rows):
    play = Play(opened)
    for seconds in pushes:
        play.push(*seconds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_module, "_PART_ROWS", part_rows)
        patch.setattr(feed_module, "BATCH_ROWS", batch_rows)
        feed, found, last = play.feed(max_parts=100), [], None
        for end, parts in batches(feed):
            for rows in read(feed, reversed(parts)):  # tasks run in any order
                found += rows
            feed.batch_read()
            last = Offset.of(end)
    found.sort(key=lambda row: row["_lsn"])
    late = [(lsn, n) for lsn, n, _ in play.log() if (n,) in {(row[0],) for row in play.late}]
    everything = [(lsn, n) for lsn, n, _ in play.log()]
    assert sorted([*((row["_lsn"], row["n"]) for row in found), *late]) == everything
    assert [row[0] for row in play.late] == [n for _, n in late], "in order, each once"
    assert last.late == len(late) == feed.live.late
    assert last.lsn >= everything[-1][0]
    assert_the_same_live(play, found)


def assert_the_same_live(play, found):
    """The live gear, from the beginning and from any offset in between, sends the same rows."""
    late_before, play.late = play.late, []
    feed = play.feed()
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
    rows = []
    while len(rows) < len(found):
        kind, lsn, offset, more = frames.next()
        assert (kind, Offset.of(offset).lsn) == (1, lsn)
        rows += more
    feed.live.end_batch()
    rest, end = frames.all()
    assert rows + rest == found
    assert play.late == late_before
    assert Offset.of(end).late == len(late_before)
    feed.live.drop_tail()


def test_a_catch_up_goes_on_while_enough_is_pushed(opened):
    play = Play(opened)
    play.push(0, 1, 2)
    feed, found = play.feed(), []
    feed.enough = lambda: 2
    for _, parts in batches(feed):
        found += [row["n"] for rows in read(feed, parts) for row in rows]
        if len(found) < 6:
            play.push(3, 4, 5)
        else:
            play.push(6)  # for the live gear
    assert found == [n for _, n, _ in play.log()][:6]
    assert feed.until < opened.lsn


def test_a_batch_that_is_read_again_is_split_again(opened):
    play = Play(opened)
    play.push(0, 1, 2)
    play.push(100)
    first = play.feed()
    ((end, parts),) = batches(first)
    rows = read(first, parts)
    again = play.feed()  # another process, which knows the offsets only
    parts_again = [
        p.split("\t") for p in ask(again, "split", ask(again, "initial"), end).split("\n")
    ]
    assert read(again, parts_again) == rows


def test_nothing_to_read(opened):
    play = Play(opened)
    feed = play.feed()
    assert list(batches(feed)) == []
    assert feed.behind(None, 10) == 0


def test_no_batch_begins_after_the_one_that_is_to_be_the_last(opened):
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    start = ask(feed, "initial")
    feed.end_batch()
    assert not feed.live.wait_parked(0)
    assert ask(feed, "latest", start) == start
    assert feed.live.wait_parked(0)
    feed.open_again()
    assert len(list(batches(feed))) == 1


def test_how_far_behind(opened):
    play = Play(opened)
    play.push(0, 1, 2)
    play.push(3)
    feed = play.feed()
    assert feed.behind(None, 100) == 4
    assert feed.behind(None, 2) >= 2
    assert feed.behind(Offset(play.log()[2][0], (None,)), 100) == 1
    assert feed.behind(Offset(opened.lsn, (None,)), 100) == 0


def test_only_the_columns_that_are_asked_for(opened):
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    ((_, (part,)),) = batches(feed)
    rows, _ = Frames(lambda wire: feed.send_part("_lsn", *part, wire)).all()
    assert [list(row) for row in rows] == [["_lsn"]]


def test_a_mark_comes_back_for_what_is_of_another_log(opened):
    play, other = Play(opened), Play(opened)
    play.push(0)
    feed = play.feed()
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
    assert len(frames.next()[3]) == 1
    other.push(0, 1)
    lsn = opened.flush()
    feed.live.probe(lsn)
    kind, reached, _, rows = frames.next()
    assert (kind, reached >= lsn, rows) == (1, True, [])
    ((newest, *_),) = play.log()
    assert feed.live.sent_at(reached)[1] == newest  # what comes back with the mark is of the row
    feed.live.end_batch()
    assert Offset.of(frames.all()[1]).lsn >= lsn
    feed.live.drop_tail()


def test_rows_come_as_they_are_pushed_and_in_order(opened):
    play = Play(opened, window=None)
    feed = play.feed()
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
    pushing = threading.Thread(target=lambda: [play.push(n % 50) for n in range(200)])
    pushing.start()
    rows = []
    while len(rows) < 200:
        rows += frames.next()[3]
    pushing.join()
    assert [(row["_lsn"], row["n"]) for row in rows] == [row[:2] for row in play.log()]
    feed.live.end_batch()
    assert frames.all()[0] == []
    feed.live.drop_tail()


def test_it_reports_that_rows_are_taken_and_that_all_is_sent(opened):
    play, reported = Play(opened), SimpleQueue()
    play.push(0, 1)
    feed = play.feed()
    feed.live.on_reading = lambda: reported.put("reading")
    feed.live.on_quiet = lambda: reported.put(feed.live.sent_lsn)
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
    assert reported.get(timeout=TIMEOUT) == "reading"
    assert reported.get(timeout=TIMEOUT) == opened.lsn
    feed.live.end_batch()
    assert len(frames.all()[0]) == 2
    assert reported.empty()
    feed.live.drop_tail()


def test_after_the_end_of_a_batch_it_is_parked(opened):
    play = Play(opened)
    play.push(0)
    feed = play.feed()
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
    frames.next()
    feed.live.end_batch()
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
    frames = Frames(lambda wire: feed.send_live(NAMES, ask(feed, "initial"), wire))
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
    assert json.loads(wire.receive_text()[1:]) == {"lsn": 0, "watermarks": [None], "late": 0}
    wire.send_text("committed\t" + Offset(7, (None,)).json)
    assert wire.receive_text() == "="
    assert play.committed == [7]
    wire.close()
    asked.join(30)
    assert not asked.is_alive()
    theirs.close()


def test_counts_of_nothing_late_without_a_window(opened):
    play = Play(opened, window=None)
    play.push(500)
    play.push(-500)
    feed = play.feed()
    ((end, parts),) = batches(feed)
    assert Counter(row["n"] for (rows) in read(feed, parts) for row in rows) == Counter(
        n for _, n, _ in play.log()
    )
    assert Offset.of(end).late == 0

from __future__ import annotations

import os
import re
import shutil

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.log.segments import first_frame, writes_held

from millstream.errors import LogCorruptError, LogVersionError
from millstream.log import Log
from millstream.log.frame import HEADER_SIZE, MARK
from millstream.model import ManualClock, Schema
from millstream.testing import writer_of

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")


def leave_open(path, work, **options):
    """Do some work on a log in a child that ends without closing it, as kill -9 ends it."""
    pid = os.fork()
    if pid == 0:
        try:
            work(Log(path, **options))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def write_commits(log):
    """Commits of different kinds; after each one what is there is noted in COMMITS."""
    log.create_topic("t", SCHEMA)
    log.create_topic("u", SCHEMA)
    for n in range(4):
        log.append("t", [(n, "one")], wal_mode="sync")
    log.append("t", [(n, "several") for n in range(10, 15)], wal_mode="sync")
    with log.transaction(wal_mode="sync") as transaction:
        transaction.append("t", [(20, "t")])
        transaction.append("u", [(21, "u"), (22, "u")])
        transaction.append("t", [(23, "t")])
    log.append("u", [], watermark=5, wal_mode="sync")
    log.add_column("u", "extra", "DOUBLE")
    log.append("u", [(30, "wide", 0.5)], wal_mode="sync")


COMMITS = [
    [(0, "one")],
    [(1, "one")],
    [(2, "one")],
    [(3, "one")],
    [(n, "several") for n in range(10, 15)],
    [(20, "t"), (21, "u"), (22, "u"), (23, "t")],
    [(30, "wide")],
]
PREFIXES = [sum(COMMITS[:n], []) for n in range(len(COMMITS) + 1)]  # noqa: RUF017


def content(log):
    return [row[:2] for batch in log.read() for row in batch.rows]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A log that was not closed, in one segment."""
    path = tmp_path_factory.mktemp("killed") / "log"
    leave_open(path, write_commits)
    return path


def reopened(original, path, change):
    """Open a copy whose segment was changed; what it holds and what recovery says."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, path)
    (segment,) = path.glob("*.seg")
    change(segment)
    with Log(path) as log:
        return content(log), log.recovery


def test_nothing_is_lost_without_a_close(killed, tmp_path):
    found, recovery = reopened(killed, tmp_path / "copy", lambda segment: None)
    assert found == PREFIXES[-1]
    assert not recovery.clean
    assert recovery.cut_bytes == 0


def cuts(segment, start):
    """Every byte of each header and around both its ends, every eleventh of the payloads.

    A payload has one check sum: wherever it is cut, that is what fails.
    """
    raw = segment.read_bytes()
    headers = [match.start() for match in re.finditer(MARK, raw)]
    near = {place + n for place in [*headers, len(raw)] for n in range(-8, HEADER_SIZE + 8)}
    return [n for n in range(start, len(raw) + 1) if n in near or n % 11 == 0]


@pytest.mark.crash
def test_a_cut_at_any_byte_reads_as_a_prefix_of_commits(killed, tmp_path):
    """Whole commits, in order, more the later the cut."""
    (segment,) = killed.glob("*.seg")
    longest = 0
    for length in cuts(segment, first_frame(killed)):
        found, recovery = reopened(
            killed, tmp_path / "copy", lambda segment: os.truncate(segment, length)
        )
        assert found in PREFIXES, length
        assert len(found) >= longest, length
        longest = len(found)
        if recovery.cut_bytes:
            assert recovery.cut_offset + recovery.cut_bytes == length
            assert "cut" in str(recovery)
    assert longest == len(PREFIXES[-1])


def salvage(path):
    """All rows that can be read, over every damaged place."""
    found, start = [], 1
    with Log(path) as log:
        while start is not None:
            try:
                for batch in log.read(start=start):
                    found += [row[:2] for row in batch.rows]
                start = None
            except LogCorruptError as error:
                assert log.recovery.damaged
                start = error.next_lsn
        assert log.append("t", [(99, "new")], wal_mode="sync") == log.lsn
    return found


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_at_any_byte_is_never_read_as_rows(killed, tmp_path, data):
    """Acknowledged rows that are hit are reported; all others are still there, and right."""
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    path = shutil.copytree(killed, tmp_path / "copy")
    (segment,) = path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    start = first_frame(killed)
    place = data.draw(st.integers(start, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    segment.write_bytes(raw)
    try:
        found = salvage(path)
    except LogCorruptError as error:
        # Without the definition of a topic its rows mean nothing: said at once, nothing changed.
        assert "definition" in str(error)
        assert segment.read_bytes() == raw
        return
    intact = PREFIXES[-1]
    assert [row for row in intact if row in found] == found
    # One flipped byte hits one frame; of a transaction no more than its frame is lost either.
    assert len(intact) - len(found) <= 5


@pytest.mark.parametrize(
    "garbage", [b"\0" * 5000, b"MSF3" * 1000, b"\xff" * 37, b"MSF3" + bytes(60)]
)
def test_garbage_after_the_end_is_cut(killed, tmp_path, garbage):
    def change(segment):
        with segment.open("ab") as file:
            file.write(garbage)

    found, recovery = reopened(killed, tmp_path / "copy", change)
    assert found == PREFIXES[-1]
    assert recovery.cut_bytes == len(garbage)
    assert not recovery.damaged


def test_zeros_before_rows_that_were_never_synced_are_a_torn_end(tmp_path):
    """After a loss of power a later page may be there and an earlier one not."""

    def work(log):
        log.create_topic("t", SCHEMA)
        log.append("t", [(1, "kept")], wal_mode="sync")
        for n in range(2, 5):
            log.appender.wait_written(log.append("t", [(n, "never synced")]))

    path = tmp_path / "log"
    leave_open(path, work, sync_interval=1000)
    (segment,) = path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    place = raw.index(b"MSF3", raw.index(b"kept"))
    raw[place : place + 64] = bytes(64)
    segment.write_bytes(raw)
    with Log(path) as log:
        assert content(log) == [(1, "kept")]
        assert log.recovery.cut_bytes > 0
        assert not log.recovery.damaged
        assert log.lsn == 1


def test_a_torn_segment_before_the_last_ends_the_log(tmp_path):
    """The disk keeps the last segment but not all of the one before: both were never promised."""

    def work(log):
        log.create_topic("t", SCHEMA)
        log.append("t", [(0, "kept")], wal_mode="sync")
        for n in range(1, 25):
            log.appender.wait_written(log.append("t", [(n, "never synced")]))

    path = tmp_path / "log"
    leave_open(path, work, sync_interval=1000, segment_bytes=2000)
    segments = sorted(path.glob("*.seg"))
    assert len(segments) > 3
    raw = bytearray(segments[1].read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    segments[1].write_bytes(raw)
    with Log(path) as log:
        found = content(log)
        assert found == [(0, "kept")] + [(n, "never synced") for n in range(1, len(found))]
        assert 1 < len(found) < 24
        assert log.recovery.cut_bytes > 0
        assert log.recovery.cut_segment == segments[1].name
        log.append("t", [(7, "new")], wal_mode="sync")
        assert content(log)[-1] == (7, "new")
    assert len(list(path.glob("*.seg"))) == 2


def test_a_new_segment_that_never_reached_the_disk_is_set_aside(tmp_path):
    def work(log):
        log.create_topic("t", SCHEMA)
        for n in range(20):
            log.append("t", [(n, "x" * 50)], wal_mode="sync")

    path = tmp_path / "log"
    leave_open(path, work, segment_bytes=2000)
    last = max(path.glob("*.seg"))
    following = path / f"{int(last.name[:10]) + 1:010d}-{21:020d}.seg"
    following.write_bytes(b"")
    with Log(path) as log:
        assert content(log) == [(n, "x" * 50) for n in range(20)]
        assert not following.exists()
    following.write_bytes(bytes(3000))
    with Log(path) as log:
        assert len(content(log)) == 20
        assert log.recovery.cut_bytes == 3000
        assert list(path.glob("*.torn"))


def test_a_damaged_head_of_acknowledged_rows_is_not_set_aside(tmp_path):
    def work(log):
        log.create_topic("t", SCHEMA)
        n = 0
        while n < 10 or max(path.glob("*.seg")).stat().st_size < 1900:
            log.append("t", [(n, "x" * 50)], wal_mode="sync")
            n += 1

    path = tmp_path / "log"
    leave_open(path, work, segment_bytes=2000)
    last = max(path.glob("*.seg"))
    intact = last.read_bytes()
    with Log(path) as log:
        rows = content(log)
    for place in (30, 70, 200):  # the first bytes; the header of the first frame; its payload
        raw = bytearray(intact)
        raw[place] ^= 1
        last.write_bytes(raw)
        (path / "CLOSED").unlink(missing_ok=True)  # as it was when it was killed
        with Log(path) as log:
            assert content(log) == rows
            assert log.topics == ("t",)
            log.append("t", [(99, "new")], wal_mode="sync")
        with Log(path) as log:
            assert content(log) == [*rows, (99, "new")]


def test_a_seal_that_is_damaged_drops_no_segment(tmp_path):
    def work(log):
        log.create_topic("t", SCHEMA)
        for n in range(60):
            log.append("t", [(n, "x" * 50)], wal_mode="sync")

    path = tmp_path / "log"
    leave_open(path, work, segment_bytes=4000)
    before_last = sorted(path.glob("*.seg"))[-2]
    raw = bytearray(before_last.read_bytes())
    raw[-10] ^= 1
    before_last.write_bytes(raw)
    with Log(path) as log:
        assert content(log) == [(n, "x" * 50) for n in range(60)]
        assert log.recovery.cut_bytes == 0


def test_a_segment_cut_between_two_frames_ends_the_log_or_is_damage(tmp_path):
    """It looks whole; only the next segment's name shows that rows are missing."""

    def unsynced(log):
        log.create_topic("t", SCHEMA)
        log.append("t", [(0, "kept")], wal_mode="sync")
        for n in range(1, 25):
            log.appender.wait_written(log.append("t", [(n, "never synced")]))

    def synced(log):
        log.create_topic("t", SCHEMA)
        for n in range(25):
            log.append("t", [(n, "kept")], wal_mode="sync")

    for name, work in (("unsynced", unsynced), ("synced", synced)):
        path = tmp_path / name
        leave_open(path, work, sync_interval=1000, segment_bytes=2000)
        segment = sorted(path.glob("*.seg"))[-2]
        raw = segment.read_bytes()
        os.truncate(segment, raw.rindex(b"MSF3", 0, raw.rindex(b"MSF3")))  # seal and last row off
        with Log(path) as log:
            if name == "unsynced":
                found = content(log)
                assert found == [(0, "kept")] + [(n, "never synced") for n in range(1, len(found))]
                assert log.recovery.cut_bytes
            else:
                with pytest.raises(LogCorruptError) as caught:
                    content(log)
                rest = [r[0] for b in log.read("t", start=caught.value.next_lsn) for r in b.rows]
                assert rest == list(range(caught.value.next_lsn - 1, 25))


def test_a_seal_of_a_full_segment_is_no_clean_close(tmp_path):
    """The power went after a roll: the new segment is not there, the old one is torn inside."""

    def work(log):
        log.create_topic("t", SCHEMA)
        log.append("t", [(0, "kept")], wal_mode="sync")
        for n in range(1, 12):
            log.appender.wait_written(log.append("t", [(n, "never synced")]))

    path = tmp_path / "log"
    leave_open(path, work, sync_interval=1000, segment_bytes=2000)
    first, *others = sorted(path.glob("*.seg"))
    for other in others:
        other.unlink()
    raw = bytearray(first.read_bytes())
    place = raw.index(b"MSF3", raw.index(b"kept"))
    raw[place : place + 64] = bytes(64)
    first.write_bytes(raw)
    with Log(path) as log:
        assert not log.recovery.clean
        assert content(log) == [(0, "kept")]


def test_other_people_s_files_are_left_alone(tmp_path):
    with Log(tmp_path) as log:
        log.create_topic("t", SCHEMA)
    (tmp_path / "thesis.tmp").write_text("mine")
    ours = tmp_path / f"{2:010d}-{1:020d}.tmp"
    ours.write_text("left over")
    Log(tmp_path).close()
    assert (tmp_path / "thesis.tmp").exists()
    assert not ours.exists()


def test_the_time_does_not_run_back_over_a_restart(tmp_path):
    clock = ManualClock(5000)
    with Log(tmp_path, clock=clock, segment_bytes=100) as log:
        log.create_topic("t", SCHEMA)
        log.append("t", [(0, "a")], wal_mode="sync")
        writer_of(log).roll()
    clock.advance(-4000)
    with Log(tmp_path, clock=clock) as log:
        log.append("t", [(1, "b")], wal_mode="sync")
        assert [b.committed_at for b in log.read("t")] == [5000, 5000]


def test_another_format_is_refused(tmp_path):
    with Log(tmp_path) as log:
        log.create_topic("t", SCHEMA)
    (segment,) = tmp_path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    for version, begin in ((2, raw[:16] + b"MSF3"), (4, raw)):
        begin[8], begin[12:16] = version, bytes(4)
        begin[12:16] = google_crc32c.value(bytes(begin[:64])).to_bytes(4, "little")
        segment.write_bytes(begin + bytes(100))
        with pytest.raises(LogVersionError, match=f"version {version}") as caught:
            Log(tmp_path)
        assert "another release" in caught.value.hint
        assert segment.read_bytes() == begin + bytes(100)


def test_lsns_of_a_run_that_crashed_are_not_resumed(tmp_path):
    """Rows were handed out, a token with them, and then they were lost: the bearer must know."""
    token = tmp_path / "token"

    def work(log):
        log.create_topic("t", SCHEMA)
        log.append("t", [(1, "kept")], wal_mode="sync")
        with writes_held(log):
            log.append("t", [(2, "seen by a subscriber, then lost")])
            token.write_text(log.token(2))
            os._exit(0)

    leave_open(tmp_path / "log", work)
    with Log(tmp_path / "log") as log:
        log.append("t", [(3, "another row with LSN 2")], wal_mode="sync")
        assert log.lsn == 2
        assert log.resume(token.read_text()) is None
        assert log.resume(log.token(2)) == 2


def test_opening_reads_the_last_segment_only(tmp_path):
    with Log(tmp_path, segment_bytes=2000) as log:
        log.create_topic("t", SCHEMA)
        for n in range(200):
            log.append("t", [(n, "x" * 50)], wal_mode="sync")
    segments = sorted(tmp_path.glob("*.seg"))
    for segment in segments[:-1]:
        segment.chmod(0)
        segment.write_bytes(b"not looked at") if os.getuid() == 0 else None
    with Log(tmp_path) as log:
        assert log.lsn == 200

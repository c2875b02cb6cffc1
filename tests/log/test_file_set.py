"""Files that were exchanged, left out, put back or brought from elsewhere are found at open."""

from __future__ import annotations

import os
import shutil

import pytest

from millstream.errors import LogCorruptError, LogFilesError
from millstream.log import Log, Retention
from millstream.model import Schema

SCHEMA = Schema.of(n="BIGINT NOT NULL", s="VARCHAR")


def fill(log, first, count):
    for n in range(first, first + count):
        log.append("t", [(n, "x" * 100)], wal_mode="sync")


def numbers(log, start="earliest"):
    return [row[0] for batch in log.read("t", start=start) for row in batch.rows]


def segments(path):
    return sorted(path.glob("*.seg"))


def contents(path):
    return {each.name: each.read_bytes() for each in path.iterdir()}


@pytest.fixture
def path(tmp_path):
    """A database of at least six segments, closed."""
    with Log(tmp_path / "log", segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        fill(log, 0, 80)
    assert len(segments(tmp_path / "log")) >= 6
    return tmp_path / "log"


def refused(path, match):
    """It is refused, and nothing was changed by that."""
    before = contents(path)
    with pytest.raises(LogFilesError, match=match) as caught:
        Log(path)
    after = contents(path)
    after.pop("LOCK"), before.pop("LOCK", None)
    assert after == before
    assert "repair=True" in caught.value.hint
    return caught.value


def exchange(one, other):
    aside = one.with_suffix(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_two_that_were_exchanged(path):
    one, other = segments(path)[1], segments(path)[3]
    exchange(one, other)
    error = refused(path, f"{one.name} holds segment {other.name}")
    assert set(error.files) == {one.name, other.name}
    exchange(one, other)
    with Log(path) as log:
        assert numbers(log) == list(range(80))


@pytest.mark.parametrize("place", [0, 2, -1])
def test_one_that_is_missing(path, place):
    gone = segments(path)[place]
    gone.unlink()
    assert refused(path, "is missing").missing == (int(gone.name[:10]),)


def test_the_last_two_are_missing(path):
    for gone in segments(path)[-2:]:
        gone.unlink()
    refused(path, "is missing")


def test_one_of_another_database(path, tmp_path):
    with Log(tmp_path / "other", segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        fill(log, 100, 80)
    mine = segments(path)[2]
    theirs = next(each for each in segments(tmp_path / "other") if each.name == mine.name)
    shutil.copy(theirs, mine)
    assert refused(path, "of another database").files == (mine.name,)


@pytest.mark.parametrize("ordinal", [2, 99])
def test_one_that_is_there_twice(path, ordinal):
    shutil.copy(segments(path)[2], path / f"{ordinal:010d}-{500:020d}.seg")
    refused(path, "holds segment|both segment|missing")


def test_the_next_one_twice(path):
    last = segments(path)[-1]
    shutil.copy(last, path / f"{int(last.name[:10]) + 1:010d}-{81:020d}.seg")
    refused(path, f"holds segment {last.name}")


def test_an_older_copy_that_was_closed(tmp_path):
    path = tmp_path / "log"
    with Log(path, segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        fill(log, 0, 5)
    first = segments(path)[-1]
    older = first.read_bytes()
    with Log(path, segment_bytes=3000) as log:
        fill(log, 5, 60)
    newer = first.read_bytes()
    first.write_bytes(older)
    assert refused(path, "is an older copy").files == (first.name,)
    first.write_bytes(newer)
    with Log(path) as log:
        assert numbers(log) == list(range(65))


def test_one_of_a_copy_that_went_its_own_way(tmp_path):
    """Both were the same database once; names and places fit."""
    path = tmp_path / "log"
    with Log(path, segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        fill(log, 0, 30)
    copy = shutil.copytree(path, tmp_path / "copy")
    for each, first in ((path, 1000), (copy, 2000)):
        with Log(each, segment_bytes=3000) as log:
            fill(log, first, 60)
    name = segments(path)[-3].name
    shutil.copy(copy / name, path / name)
    assert name in str(refused(path, "another copy of the database"))


@pytest.mark.parametrize("cut", [1, 32, 500, 1500])
def test_a_last_segment_that_was_cut_after_the_close(path, cut):
    last = segments(path)[-1]
    os.truncate(last, last.stat().st_size - cut)
    assert refused(path, "when it was closed").files == (last.name,)
    with Log(path, repair=True) as log:
        found = numbers(log)
        assert found == list(range(len(found)))
    Log(path).close()


def test_an_older_copy_of_the_last(path):
    last = segments(path)[-1]
    older = last.read_bytes()
    with Log(path) as log:
        fill(log, 80, 2)
    last.write_bytes(older)
    refused(path, "when it was closed")


def test_all_are_missing(path):
    for each in segments(path):
        each.unlink()
    refused(path, "is missing")


def test_a_note_that_is_damaged_or_gone_costs_nothing(path):
    for change in (lambda note: note.write_bytes(b"x"), lambda note: note.unlink()):
        change(path / "CLOSED")
        with Log(path) as log:
            assert log.recovery.clean
            assert numbers(log) == list(range(80))


class TestRepair:
    """What is missing is reported to readers that pass over it; the rest is there."""

    @pytest.mark.parametrize("place", [1, 3])
    def test_a_segment_that_is_gone(self, path, place):
        segments(path)[place].unlink()
        with Log(path, repair=True) as log:
            assert log.recovery.lost == (place + 1,)
            with pytest.raises(LogCorruptError, match="missing") as caught:
                numbers(log)
            rest = numbers(log, caught.value.next_lsn)
            assert rest == list(range(80))[-len(rest) :]
            (gap,) = log.skip_damage("t")
            assert (gap.last_lsn + 1, gap.count) == (caught.value.next_lsn, None)
        with Log(path) as log:  # that was accepted once and for all
            found = [batch for batch in log.read("t") if batch.gap]
            assert [(b.gap.first_lsn, b.gap.last_lsn) for b in found] == [
                (gap.first_lsn, gap.last_lsn)
            ]
            assert len(numbers(log)) == 80 - (gap.last_lsn - gap.first_lsn + 1)

    def test_the_last_one(self, path):
        segments(path)[-1].unlink()
        with Log(path, segment_bytes=3000, repair=True) as log:
            kept = log.lsn
            assert kept < 80
            fill(log, 500, 40)
        with Log(path) as log:
            with pytest.raises(LogCorruptError, match="missing") as caught:
                numbers(log)
            assert caught.value.next_lsn == kept + 1
            assert numbers(log, kept + 1) == list(range(500, 540))
            log.skip_damage("t")
            assert numbers(log) == [*range(kept), *range(500, 540)]

    def test_the_first_one(self, path):
        segments(path)[0].unlink()
        with Log(path, repair=True) as log, pytest.raises(LogCorruptError, match="missing"):
            numbers(log)
        with Log(path) as log:
            (gap,) = log.skip_damage("t")
            assert numbers(log) == list(range(gap.last_lsn, 80))
            log.set_retention("t", Retention(max_bytes=0))
            log.retain()
            kept = numbers(log)
            assert kept == list(range(80))[-len(kept) :]
        with Log(path) as log:
            assert [batch.gap for batch in log.read("t") if batch.gap] == []
            assert numbers(log) == kept

    def test_wrong_ones_are_set_aside(self, path):
        one, other = segments(path)[1], segments(path)[3]
        exchange(one, other)
        with Log(path, repair=True) as log:
            assert log.recovery.lost == (2, 4)
        assert {each.stem for each in path.glob("*.wrong")} == {one.stem, other.stem}


def test_retention_and_a_missing_first_segment_differ(path):
    with Log(path, segment_bytes=3000) as log:
        log.set_retention("t", Retention(max_bytes=6000))
        assert log.retain().removed >= 2
        kept = numbers(log)
    with Log(path) as log:
        assert numbers(log) == kept
    segments(path)[0].unlink()
    refused(path, "is missing")


@pytest.fixture
def crashed(tmp_path):
    """The same, not closed."""
    with Log(tmp_path / "open", segment_bytes=3000) as log:
        log.create_topic("t", SCHEMA)
        fill(log, 0, 80)
        shutil.copytree(tmp_path / "open", tmp_path / "crashed")
    return tmp_path / "crashed"


def blank(segment, count=None):
    raw = bytearray(segment.read_bytes())
    raw[:count] = bytes(len(raw[:count]))
    segment.write_bytes(raw)


@pytest.mark.parametrize("place", [2, -2, -1])
@pytest.mark.parametrize("left", ["path", "crashed"])
def test_a_damaged_beginning_is_not_a_wrong_file(left, place, request):
    """Nothing says which segment it is; its rows are read all the same."""
    path = request.getfixturevalue(left)
    blank(segments(path)[place], 260)
    with Log(path, segment_bytes=3000) as log:
        assert numbers(log) == list(range(80))
        fill(log, 80, 40)
    with Log(path) as log:
        assert numbers(log) == list(range(120))


@pytest.mark.parametrize("left", ["path", "crashed"])
def test_a_last_one_of_which_nothing_is_left(left, request):
    """How many LSNs were in it is not known; without it the log can be opened."""
    path = request.getfixturevalue(left)
    blank(segments(path)[-1])
    assert refused(path, "holds nothing that can be read").files == (segments(path)[-1].name,)
    with Log(path, repair=True) as log, pytest.raises(LogCorruptError, match="missing"):
        numbers(log)


@pytest.mark.parametrize("left", ["path", "crashed"])
def test_another_one_of_which_nothing_is_left(left, request):
    """Whatever was in it is damage: the next one says at which LSN it begins."""
    path = request.getfixturevalue(left)
    blank(segments(path)[-2])
    with Log(path) as log:
        with pytest.raises(LogCorruptError) as caught:
            numbers(log)
        rest = numbers(log, caught.value.next_lsn)
        assert rest == list(range(80 - len(rest), 80))
        assert rest

"""What parts report comes out in LSN order, and no commit comes out in halves."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.views.partitions.merge import PartMerge


def test_waits_for_all_parts_and_for_what_was_sent_before():
    merge = PartMerge()
    merge.sent(3, {0, 1})
    merge.sent(5, {1})
    assert list(merge.reported(1, 3, ["b3"])) == []
    assert list(merge.reported(1, 5, ["b5"])) == []
    assert merge.open_parts == {0}
    assert list(merge.reported(0, 3, ["a3"])) == [(3, ["b3", "a3"]), (5, ["b5"])]
    assert len(merge) == 0


def test_frames_that_a_part_reports_at_once_belong_together():
    merge = PartMerge()
    for lsn, parts in ((1, {0, 1}), (2, {1}), (3, {0})):
        merge.sent(lsn, parts)
    assert list(merge.reported(1, 1, ["b1"])) == []
    assert list(merge.reported(0, 3, ["a1-3"])) == []  # with what part 1 has for 2, in between
    assert list(merge.reported(1, 2, ["b2"])) == [(3, ["b1", "b2", "a1-3"])]


def test_reports_of_nothing_new():
    merge = PartMerge()
    assert list(merge.reported(2, 9, [])) == []
    merge.sent(4, {0})
    merge.clear()
    assert list(merge.reported(0, 4, [])) == []


@given(st.data())
def test_whole_commits_in_order(data):
    """Frames with rows for some parts; each part reports them in order, some together."""
    frames = data.draw(st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=12))
    merge, waiting = PartMerge(), {part: [] for part in range(3)}
    for lsn, parts in enumerate(frames):
        merge.sent(lsn, parts)
        for part in parts:
            waiting[part].append(lsn)
    out = []
    while any(waiting.values()):
        part = data.draw(st.sampled_from([each for each, left in waiting.items() if left]))
        count = data.draw(st.integers(1, len(waiting[part])))
        together, waiting[part] = waiting[part][:count], waiting[part][count:]
        rows = [(lsn, part) for lsn in together]
        out += merge.reported(part, together[-1], [rows])
    assert len(merge) == 0
    assert [lsn for lsn, _ in out] == sorted({lsn for lsn, _ in out})
    reached = -1
    for lsn, rows in out:
        wanted = {(at, part) for at in range(reached + 1, lsn + 1) for part in frames[at]}
        assert {each for row in rows for each in row} == wanted
        reached = lsn
    assert reached == len(frames) - 1

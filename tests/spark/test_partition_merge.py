"""What partitions report comes out in LSN order, and no commit comes out in halves."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.views.partitions.results import PartitionMerge


def test_waits_for_all_parts_and_for_what_was_sent_before():
    merge = PartitionMerge()
    merge.sent(3, {0, 1})
    merge.sent(5, {1})
    assert list(merge.reported(1, 3, ["b3"])) == []
    assert list(merge.reported(1, 5, ["b5"])) == []
    assert merge.open_partitions == {0}
    assert list(merge.reported(0, 3, ["a3"])) == [(3, ["b3", "a3"]), (5, ["b5"])]
    assert len(merge) == 0


def test_frames_that_a_part_reports_at_once_belong_together():
    merge = PartitionMerge()
    for lsn, partitions in ((1, {0, 1}), (2, {1}), (3, {0})):
        merge.sent(lsn, partitions)
    assert list(merge.reported(1, 1, ["b1"])) == []
    assert list(merge.reported(0, 3, ["a1-3"])) == []  # with what partition 1 has for 2, in between
    assert list(merge.reported(1, 2, ["b2"])) == [(3, ["b1", "b2", "a1-3"])]


def test_reports_of_nothing_new():
    merge = PartitionMerge()
    assert list(merge.reported(2, 9, [])) == []
    merge.sent(4, {0})
    merge.clear()
    assert list(merge.reported(0, 4, [])) == []


@given(st.data())
def test_whole_commits_in_order(data):
    """Frames with rows for some partitions; each partition reports them in order, some together."""
    frames = data.draw(st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=1, max_size=12))
    merge, waiting = PartitionMerge(), {partition: [] for partition in range(3)}
    for lsn, partitions in enumerate(frames):
        merge.sent(lsn, partitions)
        for partition in partitions:
            waiting[partition].append(lsn)
    out = []
    while any(waiting.values()):
        partition = data.draw(st.sampled_from([each for each, left in waiting.items() if left]))
        count = data.draw(st.integers(1, len(waiting[partition])))
        together, waiting[partition] = waiting[partition][:count], waiting[partition][count:]
        rows = [(lsn, partition) for lsn in together]
        out += merge.reported(partition, together[-1], [rows])
    assert len(merge) == 0
    assert [lsn for lsn, _ in out] == sorted({lsn for lsn, _ in out})
    reached = -1
    for lsn, rows in out:
        wanted = {(at, partition) for at in range(reached + 1, lsn + 1) for partition in frames[at]}
        assert {each for row in rows for each in row} == wanted
        reached = lsn
    assert reached == len(frames) - 1

"""Backpressure policies: what is taken, dropped and conflated adds up exactly."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.delivery.backpressure import Backlog, Policy
from millstream.errors import InvalidOptionError
from millstream.model import ChangeBatch, Schema

KINDS = ["block", "drop_oldest", "drop_newest", "conflate", "disconnect"]
SCHEMA = Schema.of(key=("k",), k="BIGINT", v="BIGINT")


def place(rows, weights, first, *, arrow=False):
    batch = ChangeBatch.from_rows(SCHEMA, rows, weights=weights)
    if arrow:
        batch = ChangeBatch.from_arrow(SCHEMA, batch.arrow, weights=weights)
    return batch.placed("t", first, committed_at=1, origin=None)


def inserts(first, count):
    return place([(n, n) for n in range(first, first + count)], None, first)


@st.composite
def changes(draw):
    """(rows, weights) where an update is -1, +1 side by side; insert-only as often as not."""
    rows, weights = [], []
    only = draw(st.booleans())
    for k in draw(st.lists(st.integers(0, 5), min_size=1, max_size=6)):
        op = "insert" if only else draw(st.sampled_from(["insert", "update", "delete"]))
        if op != "insert":
            rows.append((k, 0))
            weights.append(-1)
        if op != "delete":
            rows.append((k, 1))
            weights.append(1)
    return rows, weights


@st.composite
def steps(draw):
    """Batches as a filter leaves them, in either form, and takes between them."""
    lsn, script = 1, []
    for _ in range(draw(st.integers(0, 12))):
        if draw(st.integers(0, 2)) == 0:
            script.append(draw(st.none() | st.integers(1, 4)))
            continue
        rows, weights = draw(changes())
        batch = place(rows, weights, lsn, arrow=draw(st.booleans()))
        lsn += len(batch) + draw(st.integers(0, 2))
        if draw(st.booleans()):  # a filter keeps whole changes
            kept = [n for pair in pairs(batch) if draw(st.booleans()) for n in pair]
            if kept:
                batch = batch.keep_places(kept)
        script.append(batch)
    return script


def pairs(batch):
    """The places of each change: two for an update."""
    found, n, weights = [], 0, batch.weights
    while n < len(weights):
        size = 2 if weights[n : n + 2] == [-1, 1] else 1
        found.append(range(n, n + size))
        n += size
    return found


def content(batch):
    return list(zip(batch.lsns, batch.rows, batch.weights, strict=True))


def play(backlog, script):
    """All batches that were put, and all that were taken, to the very end."""
    put, taken = [], []
    for step in script:
        if isinstance(step, ChangeBatch):
            if backlog.put(step):
                put.append(step)
        else:
            batch = backlog.take(step)
            if batch is not None:
                taken.append((step, batch))
    while backlog.has_news:
        batch = backlog.take(3)
        if batch is None:
            break
        taken.append((3, batch))
    assert backlog.take(None) is None
    assert backlog.rows == 0
    return put, taken


limits = st.integers(1, 8)


@given(st.sampled_from(["block", "disconnect"]), limits, steps())
def test_lossless_policies_give_everything(kind, limit, script):
    backlog = Backlog(Policy(kind), limit)
    put, taken = play(backlog, script)
    assert [c for _, b in taken for c in content(b)] == [c for b in put for c in content(b)]
    assert all(b.gap is None for _, b in taken)
    assert (backlog.dropped, backlog.conflated) == (0, 0)


@given(st.sampled_from(["drop_oldest", "drop_newest"]), limits, steps())
def test_gaps_report_exactly_what_was_dropped(kind, limit, script):
    backlog = Backlog(Policy(kind), limit)
    put, taken = play(backlog, script)
    committed = [c for b in put for c in content(b)]
    delivered = [c for _, b in taken for c in content(b)]
    assert delivered == [c for c in committed if c in delivered]  # in order, each once
    assert backlog.dropped == len(committed) - len(delivered)
    gaps = [b.gap for _, b in taken if b.gap is not None]
    assert sum(gap.count for gap in gaps) == backlog.dropped
    got = {lsn for lsn, _, _ in delivered}
    reported = {lsn for gap in gaps for lsn in range(gap.first_lsn, gap.last_lsn + 1)}
    assert not got & reported, "a gap covers what was given"
    assert {lsn for lsn, _, _ in committed} <= got | reported, "rows that no gap reports"
    for gap in gaps:
        assert gap.first_lsn <= gap.last_lsn
        assert gap.count > 0


@given(
    st.sampled_from(["block", "drop_oldest", "drop_newest", "sample(2)", "sample(3)"]),
    limits,
    steps(),
)
def test_an_update_is_never_split(policy, limit, script):
    put, taken = play(Backlog(Policy.parse(policy), limit), script)
    together = [set(b.lsns) for _, b in taken]
    for batch in put:
        for pair in pairs(batch):
            lsns = {list(batch.lsns)[n] for n in pair}
            assert all(lsns <= got or not lsns & got for got in together)


@given(st.sampled_from(["block", "drop_oldest", "drop_newest"]), limits, steps())
def test_a_batch_has_at_most_max_rows(policy, limit, script):
    _, taken = play(Backlog(Policy.parse(policy), limit), script)
    for most, batch in taken:
        if most is not None and len(batch) > most:
            assert len(batch) == most + 1
            assert batch.weights[-2:] == [-1, 1]


@given(st.sampled_from(["drop_oldest", "drop_newest", "sample(2)"]), limits, steps())
def test_the_limit_is_kept(policy, limit, script):
    backlog = Backlog(Policy.parse(policy), limit)
    for step in script:
        if isinstance(step, ChangeBatch):
            backlog.put(step)
            assert backlog.rows <= limit + 1  # an update that was one row too many
        else:
            backlog.take(step)


@given(st.integers(1, 4), limits, steps())
def test_a_sample_counts_the_rows_it_drops(every, limit, script):
    backlog = Backlog(Policy("sample", every), limit)
    script = [s for s in script if not isinstance(s, ChangeBatch) or s.is_insert_only]
    put, taken = play(backlog, script)
    committed = [c for b in put for c in content(b)]
    delivered = [c for _, b in taken for c in content(b)]
    sampled = committed[every - 1 :: every]
    assert [c for c in sampled if c in delivered] == delivered
    assert backlog.dropped == len(committed) - len(delivered)
    # What was dropped since the last row that was given is reported with the next.
    reported = sum(b.gap.count for _, b in taken if b.gap is not None)
    pending = 0 if backlog._trailing_gap is None else backlog._trailing_gap.count
    assert reported + pending == backlog.dropped


# ---- conflate


@st.composite
def histories(draw):
    """Commits of a table: (rows, weights) that fit its state, keys that are swapped included."""
    state, commits = {}, []
    for _ in range(draw(st.integers(1, 8))):
        rows, weights = [], []
        for k in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True)):
            old = state.get(k)
            new = draw(st.none() | st.integers(0, 2).map(lambda v, k=k: (k, v)))
            if old == new:
                continue
            for row, weight in ((old, -1), (new, 1)):
                if row is not None:
                    rows.append(row)
                    weights.append(weight)
            state[k] = new
        if draw(st.booleans()):  # UPDATE t SET k = ...: values change places
            there = [row for row in state.values() if row is not None]
            keys = draw(st.permutations([row[0] for row in there]))
            for old, k in zip(there, keys, strict=True):
                rows += [old, (k, old[1])]
                weights += [-1, 1]
            state.update({k: (k, old[1]) for old, k in zip(there, keys, strict=True)})
        if rows:
            commits.append((rows, weights))
    return commits


def add_up(state, batch):
    """Apply a batch to a Z-set, the mirror of a table."""
    for row, weight in zip(batch.rows, batch.weights, strict=True):
        state[row] = state.get(row, 0) + weight
        if not state[row]:
            del state[row]


@given(histories(), st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_conflated_mirror_equals_one_with_all_changes(history, reads):
    backlog = Backlog(Policy("conflate"), 4)
    lsn, all_steps, netted, committed, delivered = 1, {}, {}, 0, 0

    def read():
        batch = backlog.take(None)
        if batch is None:
            return 0
        assert list(batch.lsns) == sorted(batch.lsns)
        add_up(netted, batch)
        keys = [row[0] for row, weight in zip(batch.rows, batch.weights, strict=True) if weight > 0]
        assert len(keys) == len(set(keys)), "each key once"
        return len(batch)

    for (rows, weights), reading in zip(history, reads, strict=False):
        batch = place(rows, weights, lsn)
        lsn += len(batch)
        committed += len(batch)
        add_up(all_steps, batch)
        assert backlog.put(batch)
        if reading:
            delivered += read()
            assert netted == all_steps
    delivered += read()
    assert netted == all_steps
    assert delivered + backlog.conflated == committed
    assert backlog.rows == 0
    assert not backlog.has_news


def test_conflated_changes_cover_all_lsns_from_first_to_last():
    backlog = Backlog(Policy("conflate"), 4)
    backlog.put(place([(1, 0)], None, 10))
    backlog.put(place([(2, 0)], None, 11))
    backlog.put(place([(1, 0), (1, 1)], [-1, 1], 12))
    batch = backlog.take(None)
    assert (batch.first_lsn, batch.lsn) == (10, 13)
    assert content(batch) == [(11, (2, 0), 1), (13, (1, 1), 1)]
    assert [change.op for change in batch] == ["insert", "insert"]


def test_an_insert_and_its_delete_cancel_out():
    backlog = Backlog(Policy("conflate"), 4)
    backlog.put(place([(1, 0)], None, 10))
    backlog.put(place([(1, 0)], [-1], 11))
    assert not backlog.has_news
    assert backlog.take(None) is None
    assert backlog.conflated == 2


# ---- merging


class TestMerging:
    def test_small_batches_are_merged(self):
        backlog = Backlog(Policy("block"), 100)
        for first in (1, 3, 5):
            backlog.put(inserts(first, 2))
        batch = backlog.take(None)
        assert list(batch.lsns) == [1, 2, 3, 4, 5, 6]
        assert (batch.first_lsn, batch.lsn) == (1, 6)

    def test_not_across_a_gap(self):
        backlog = Backlog(Policy("drop_newest"), 2)
        backlog.put(inserts(1, 3))
        assert list(backlog.take(None).lsns) == [1, 2]
        backlog.put(inserts(4, 1))
        batch = backlog.take(None)
        assert list(batch.lsns) == [4]
        assert (batch.gap.first_lsn, batch.gap.last_lsn, batch.gap.count) == (3, 3, 1)

    def test_not_beyond_the_merge_limit(self):
        backlog = Backlog(Policy("block"), 100)
        for first in range(1, 11, 2):
            backlog.put(inserts(first, 2))
        assert len(backlog.take(None, merge=5)) == 4
        assert len(backlog.take(3, merge=5)) == 2
        assert len(backlog.take(1)) == 1
        assert len(backlog.take(None)) == 3

    def test_not_a_delete_and_an_insert_which_would_read_as_an_update(self):
        """What a reader is given does not depend on how fast it is."""
        backlog = Backlog(Policy("block"), 100)
        backlog.put(place([(1, 0)], [-1], 1))
        backlog.put(place([(1, 1)], None, 2))
        backlog.put(place([(1, 1), (1, 2)], [-1, 1], 3))
        ops = []
        while (batch := backlog.take(None)) is not None:
            ops += [change.op for change in batch]
        assert ops == ["delete", "insert", "update"]

    def test_not_of_different_forms_or_kinds(self):
        backlog = Backlog(Policy("block"), 100)
        backlog.put(place([(1, 1)], None, 1).copy(kind="snapshot"))
        backlog.put(place([(2, 2)], None, 2))
        backlog.put(place([(3, 3)], None, 3, arrow=True))
        assert [backlog.take(None).rows for _ in range(3)] == [[(1, 1)], [(2, 2)], [(3, 3)]]


class TestWatermarks:
    def mark(self, lsn, value):
        batch = ChangeBatch.from_rows(SCHEMA, [], watermark=value)
        return batch.placed("t", lsn, committed_at=1, origin=None)

    @pytest.mark.parametrize(
        "policy", ["block", "drop_oldest", "drop_newest", "disconnect", "sample(2)"]
    )
    def test_a_watermark_without_rows_is_news(self, policy):
        backlog = Backlog(Policy.parse(policy), 1)
        assert backlog.put(self.mark(1, 50))
        assert backlog.has_news
        assert backlog.take(None).watermark == 50
        assert not backlog.has_news

    def test_a_newer_watermark_supersedes(self):
        backlog = Backlog(Policy("block"), 1)
        for n in range(100):
            backlog.put(self.mark(n, n))
        assert len(backlog.batches) == 1
        assert backlog.take(None).watermark == 99

    def test_merged_batches_have_the_last_watermark(self):
        backlog = Backlog(Policy("block"), 10)
        backlog.put(inserts(1, 1).with_watermark(5))
        backlog.put(inserts(2, 1).with_watermark(7))
        backlog.put(inserts(3, 1))
        assert backlog.take(None).watermark == 7


def test_a_gap_at_the_end_is_reported_at_once():
    backlog = Backlog(Policy("drop_newest"), 2)
    backlog.put(inserts(1, 5))
    assert len(backlog.take(None)) == 2
    assert backlog.has_news
    batch = backlog.take(None)
    assert (len(batch), batch.gap.first_lsn, batch.gap.last_lsn, batch.gap.count) == (0, 3, 5, 3)
    assert not backlog.has_news


def test_an_empty_backlog_accepts_a_batch_larger_than_the_limit():
    for kind in ("block", "disconnect"):
        backlog = Backlog(Policy(kind), 2)
        assert backlog.put(inserts(1, 5))
        assert len(backlog.take(None)) == 5


def test_a_few_large_batches_are_accepted_beyond_the_limit():
    """Only where nothing may be lost: to read them back from the log would cost more."""
    backlog, count = Backlog(Policy("block"), 16), 0
    while backlog.put(inserts(1 + 10 * count, 10)):
        count += 1
    assert 2 < count < 20
    backlog = Backlog(Policy("disconnect"), 16)
    assert backlog.put(inserts(1, 10))
    assert not backlog.put(inserts(11, 10))


def test_clear():
    for policy in ("block", "drop_oldest", "drop_newest", "conflate", "sample(1)"):
        backlog = Backlog(Policy.parse(policy), 2)
        backlog.put(inserts(1, 2))
        backlog.put(inserts(3, 4))
        backlog.clear()
        assert not backlog.has_news
        assert backlog.take(None) is None
        backlog.put(inserts(7, 2))
        assert backlog.take(None).gap is None


def test_values_that_python_cannot_hold_are_netted_like_others():
    schema = Schema.of(key=("k",), k="BIGINT NOT NULL", d="DATE")

    def step(days, weights, first):
        keys = pa.array([1] * len(days), pa.int64())
        rows = pa.RecordBatch.from_arrays([keys, pa.array(days, pa.date32())], schema=schema.arrow)
        batch = ChangeBatch(schema, None, rows, pa.array(weights, pa.int64()))
        return batch.placed("t", first, committed_at=1, origin=None)

    backlog = Backlog(Policy("conflate"), 1)
    assert backlog.put(step([4_000_000], [1], 1))
    assert backlog.put(step([4_000_000, 5_000_000], [-1, 1], 2))
    batch = backlog.take(None)
    assert [row[1].arrow.value for row in batch.rows] == [5_000_000]
    assert batch.weights == [1]
    assert batch.arrow.column("d").cast(pa.int32()).to_pylist() == [5_000_000]


@pytest.mark.parametrize("written", range(4))
def test_batches_are_merged_whether_or_not_the_log_has_written_them(written):
    """The log makes the Arrow form of rows when it gets to them, which may be in between."""
    backlog = Backlog(Policy.parse("block"), 100)
    for n in range(3):
        batch = inserts(n + 1, 1)
        if n < written:
            assert batch.arrow.num_rows == 1
        backlog.put(batch)
    assert backlog.take(3).rows == [(1, 1), (2, 2), (3, 3)]


# ---- the names of policies


@pytest.mark.parametrize("kind", KINDS)
def test_policies_have_names(kind):
    assert Policy.parse(kind) == Policy(kind)
    assert str(Policy(kind)) == kind


@given(st.integers(1, 10**9))
def test_sample_takes_a_number(every):
    policy = Policy.parse(f"sample({every})")
    assert (policy.kind, policy.every) == ("sample", every)
    assert Policy.parse(str(policy)) == policy
    assert Policy.parse(f"sample ( {every} )") == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", "Block", "block ", "drop", None, 5),
        *(
            "sample",
            "sample()",
            "sample(0)",
            "sample(-1)",
            "sample(1.5)",
            "sample(x)",
            "sample(1) ",
        ),
    ],
)
def test_an_unknown_policy_is_refused_with_the_known_ones(text):
    with pytest.raises(InvalidOptionError) as caught:
        Policy.parse(text)
    assert all(kind in caught.value.hint for kind in [*KINDS, "sample(n)"])

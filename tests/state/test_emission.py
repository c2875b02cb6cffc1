"""When results are shown: against a plain reading of the rules."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidOptionError, SchemaError
from millstream.model import Schema
from millstream.model.clock import EPOCH
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.state.emission import Emission
from millstream.state.rows import Rows

SCHEMA = Schema.of(key=("k", "start"), k="VARCHAR", start="BIGINT", n="BIGINT")
END = Column("_end", parse_type("TIMESTAMP"))
KEYS = ("k", "start")
SIZE = 10  # a window's


def emission(mode, **options):
    return Emission(mode, Rows(SCHEMA, KEYS, (END,)), KEYS, **options)


def results(*rows):
    """Results (k, start, n, shown) as Spark sends them."""
    end = [EPOCH + timedelta(microseconds=row[1] + SIZE) for row in rows]
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns[0], pa.string()),
            *(pa.array(column, pa.int64()) for column in columns[1:3]),
            pa.array(end, pa.timestamp("us", "UTC")),
            pa.array(columns[3], pa.bool_()),
        ],
        names=["k", "start", "n", "_end", "_shown"],
    )


def changes_shown(release):
    if release is None or release.changes is None:
        return []
    return list(zip(release.changes.rows, release.changes.weights, strict=True))


def shown(one):
    return sorted(tuple(row.values()) for row in one.visible.snapshot().to_pylist())


class Driver:
    """Takes and applies results; has what was committed, to restart from it."""

    def __init__(self, mode, **options):
        self.mode, self.options = mode, options
        self.one = emission(mode, **options)
        self.lsn, self.watermark, self.now = 0, None, 0
        self.visible, self.pending = [], []

    def take(self, *rows, watermark=None, now=None):
        self.lsn += 1
        self.watermark = self.watermark if watermark is None else watermark
        self.now = self.now if now is None else now
        return self._apply(
            self.one.take(results(*rows), lsn=self.lsn, watermark=self.watermark, now=self.now)
        )

    def advance(self, watermark=None, now=None):
        self.watermark = self.watermark if watermark is None else watermark
        self.now = self.now if now is None else now
        return self._apply(self.one.advance(watermark=self.watermark, now=self.now))

    def restart(self):
        again = emission(self.mode, **self.options)
        for batch in self.visible:
            again.visible.load(batch)
        for batch in self.pending:
            again.load_pending(batch)
        again.lsn = self.one.lsn
        self.one = again

    def _apply(self, release):
        if release is None:
            return []
        if release.stored is not None:
            self.visible.append(release.stored)
        if release.stored_pending is not None:
            self.pending.append(release.stored_pending)
        self.one.apply(release)
        return changes_shown(release)


class TestClose:
    def test_a_window_is_shown_when_the_watermark_has_passed_its_end(self):
        one = Driver("close")
        assert one.take(("a", 0, 1, True)) == []
        assert one.take(("a", 0, 2, True), ("b", 10, 1, True), watermark=9) == []
        assert one.advance(watermark=10) == [(("a", 0, 2), 1)]
        assert one.advance(watermark=19) == []
        assert one.advance(watermark=25) == [(("b", 10, 1), 1)]
        assert len(one.one.pending) == 0

    def test_a_late_row_revises_it(self):
        one = Driver("close")
        one.take(("a", 0, 1, True), watermark=10)
        assert one.take(("a", 0, 2, True)) == [(("a", 0, 1), -1), (("a", 0, 2), 1)]
        assert one.take(("a", 0, 3, False)) == [(("a", 0, 2), -1)]

    def test_a_result_with_the_watermark_replaces_the_pending_one(self):
        one = Driver("close")
        one.take(("a", 0, 1, True))
        assert one.take(("a", 0, 2, True), watermark=10) == [(("a", 0, 2), 1)]
        assert one.advance(watermark=99) == []

    def test_a_group_that_is_not_shown_does_not_appear(self):
        one = Driver("close")
        one.take(("a", 0, 1, False))
        assert one.advance(watermark=10) == []
        assert shown(one.one) == []


class TestFinal:
    def test_a_window_is_shown_once_after_the_lateness_and_never_revised(self):
        one = Driver("final", lateness=5)
        assert one.take(("a", 0, 1, True), watermark=14) == []
        assert one.take(("a", 0, 2, True)) == []
        assert one.advance(watermark=15) == [(("a", 0, 2), 1)]
        assert one.take(("a", 0, 3, True)) == []
        assert one.take(("a", 0, 3, False)) == []
        assert shown(one.one) == [("a", 0, 2)]


class TestEvery:
    def test_results_are_shown_at_ticks(self):
        one = Driver("every", every=100)
        assert one.take(("a", 0, 1, True), now=130) == []
        assert one.take(("a", 0, 2, True), now=199) == []
        assert one.advance(now=200) == [(("a", 0, 2), 1)]
        assert one.take(("a", 0, 3, True), now=999) == []

    def test_a_group_that_is_gone_at_the_tick_is_retracted(self):
        one = Driver("every", every=100)
        one.take(("a", 0, 1, True), now=0)
        one.advance(now=100)
        assert one.take(("a", 0, 2, False), now=150) == []
        assert one.advance(now=200) == [(("a", 0, 1), -1)]

    def test_a_change_taken_back_between_two_ticks_is_none(self):
        one = Driver("every", every=100)
        one.take(("a", 0, 1, True), now=0)
        one.advance(now=100)
        one.take(("a", 0, 2, True), now=110)
        one.take(("a", 0, 1, True), now=120)
        assert one.advance(now=200) == []
        assert len(one.one.pending) == 0

    def test_pending_output_that_was_loaded_is_due_at_once(self):
        one = Driver("every", every=100)
        one.take(("a", 0, 1, True), now=0)
        one.restart()
        assert one.advance(now=10) == [(("a", 0, 1), 1)]


class TestChanges:
    def test_all_is_shown_at_once_and_nothing_is_pending(self):
        one = Driver("changes")
        assert one.take(("a", 0, 1, True)) == [(("a", 0, 1), 1)]
        assert one.advance(watermark=99) == []
        assert one.one.pending.snapshot().num_rows == 0


class TestReplay:
    @pytest.mark.parametrize("mode", ["changes", "close", "final"])
    def test_an_older_flush_changes_nothing(self, mode):
        one = Driver(mode)
        one.take(("a", 0, 1, True), watermark=0)
        one.take(("a", 0, 2, True), watermark=10)
        one.restart()
        release = one.one.take(results(("a", 0, 1, True)), lsn=1, watermark=10, now=0)
        assert changes_shown(release) == []
        one.one.apply(release)
        assert shown(one.one) == [("a", 0, 2)]
        assert one.one.lsn == 2


class TestWrongOptions:
    def test_a_window_needs_its_end(self):
        with pytest.raises(SchemaError, match="_end"):
            Emission("close", Rows(SCHEMA, KEYS), KEYS)

    @pytest.mark.parametrize(("mode", "every"), [("every", None), ("close", 5)])
    def test_ticks_are_for_every(self, mode, every):
        with pytest.raises(InvalidOptionError):
            emission(mode, every=every)


row = st.tuples(
    st.sampled_from("ab"), st.sampled_from([0, 10, 20]), st.integers(0, 3), st.booleans()
)
steps = st.lists(
    st.tuples(
        st.lists(row, max_size=4),
        st.integers(0, 12),  # how far watermark and time go on
        st.sampled_from(["take", "advance", "restart"]),
    ),
    max_size=15,
)


class Rules:
    """The rules, read aloud: all results are kept, and looked through each time."""

    def __init__(self, mode):
        self.mode, self.newest, self.shown = mode, {}, {}

    def step(self, watermark, tick):
        for (k, start), (n, there) in self.newest.items():
            end = start + SIZE
            due = {
                "changes": True,
                "close": end <= watermark,
                "final": end + 5 <= watermark,
                "every": tick,
            }[self.mode]
            key = (k, start)
            if not due or (self.mode == "final" and key in self.shown):
                continue
            if there:
                self.shown[key] = n
            else:
                self.shown.pop(key, None)

    @property
    def rows(self):
        return sorted((*key, n) for key, n in self.shown.items())


@pytest.mark.parametrize("mode", ["changes", "close", "final"])
class TestAgainstTheRules:
    @given(steps=steps)
    def test_the_same_is_shown(self, mode, steps):
        one = Driver(mode, lateness=5)
        rules = Rules(mode)
        emitted, watermark = {}, 0
        for rows, further, what in steps:
            watermark += further
            if what == "restart":
                one.restart()
                continue
            if what == "take":
                # Final results are never revised, so none comes for a window that is over.
                over = [r for r in rows if mode == "final" and r[1] + SIZE + 5 <= watermark]
                rows = [r for r in rows if r not in over]
                for k, start, n, there in rows:
                    rules.newest[k, start] = (n, there)
                changes = one.take(*rows, watermark=watermark)
            else:
                changes = one.advance(watermark=watermark)
            rules.step(watermark, tick=False)
            assert shown(one.one) == rules.rows
            for changed, weight in changes:
                emitted[changed] = emitted.get(changed, 0) + weight
            assert sorted(r for r, count in emitted.items() if count) == rules.rows

"""The buffer of a source, without a dispatcher: the test drains it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ClosedError, LogFullError, SourceFullError
from millstream.model import ChangeBatch, Schema
from millstream.model.schema import Column
from millstream.model.types import parse_type
from millstream.sources import inlet as inlet_module
from millstream.sources.inlet import Inlet, PushedBatches
from millstream.testing import Background, wait_until
from millstream.threads import Completion, Wakeup

SCHEMA = Schema.of(n="BIGINT")
WIDER = SCHEMA.with_column(Column("s", parse_type("VARCHAR")))


def inlet(**options):
    return Inlet("s", SCHEMA, Wakeup(), **options)


def batch(*numbers):
    return ChangeBatch(SCHEMA, [(n,) for n in numbers], None, None)


def numbers(batches):
    return [row[0] for each in batches for row in each.rows]


class TestDrain:
    def test_gives_the_first_items_in_order(self):
        one = inlet()
        one.items += [(1,), (2,), (3,)]
        assert numbers(one.drain(2)[0]) == [1, 2]
        assert numbers(one.drain(2)[0]) == [3]
        assert one.pushed == 3

    def test_keeps_the_order_of_rows_and_batch_items(self):
        one = inlet()
        one.items.append((1,))
        one.put(PushedBatches([batch(2, 3), batch(4)]))
        one.items.append((5,))
        batches, completions = one.drain(3)
        assert numbers(batches) == [1, 2, 3, 4, 5]
        assert completions == []
        assert one.pushed == 5
        assert (one._batch_items, one.batch_rows) == (0, 0)

    def test_gives_the_tickets_of_what_it_takes_only(self):
        one = inlet()
        first, second = Completion(), Completion()
        one.put(PushedBatches([batch(1)], completion=first))
        one.put(PushedBatches([batch(2)], completion=second))
        assert one.drain(1)[1] == [first]
        assert one.drain(1)[1] == [second]

    def test_a_watermark_holds_after_what_was_pushed_before_it(self):
        one = inlet()
        one.items.append((1,))
        one.put(PushedBatches([], 50))
        one.items.append((2,))
        batches, _ = one.drain(3)
        assert [(numbers([b]), b.watermark) for b in batches if len(b)] == [
            ([1], None),
            ([2], None),
        ]
        assert [b.watermark for b in batches if not len(b)] == [50]
        assert [len(b) for b in batches] == [1, 0, 1]

    @given(st.lists(st.one_of(st.integers(0, 3), st.just("row"), st.just("mark")), max_size=20))
    def test_loses_nothing_however_it_is_cut(self, script):
        one = inlet(capacity=10_000)
        pushed, count = [], 0
        for step in script:
            if step == "row":
                one.items.append((count,))
                pushed.append(count)
                count += 1
            elif step == "mark":
                one.put(PushedBatches([], count))
            else:
                these = list(range(count, count + step))
                one.put(PushedBatches([batch(*these)]))
                pushed += these
                count += step
        got = []
        while one.items:
            got += numbers(one.drain(3)[0])
        assert got == pushed
        assert (one._batch_items, one.batch_rows, one.pushed) == (0, 0, len(pushed))


class TestPolicies:
    def test_reject_raises_and_says_what_to_do(self):
        one = inlet(capacity=2, policy="reject")
        one.items += [(1,), (2,)]
        with pytest.raises(SourceFullError, match="2 rows wait") as caught:
            one.make_room()
        assert "buffer_size" in caught.value.hint
        one.drain(1)
        assert one.make_room()

    def test_rows_in_batch_items_count(self):
        one = inlet(capacity=3, policy="reject")
        one.put(PushedBatches([batch(1, 2), batch(3)]))
        assert one.is_full()
        one.drain(1)
        assert not one.is_full()

    def test_block_waits_until_there_is_room(self):
        one = inlet(capacity=1)
        one.items.append((1,))
        pushing = Background(one.make_room)
        wait_until(lambda: one.waiters.asleep)
        assert not pushing.is_done
        one.drain(1)
        assert pushing.result() is True
        assert one.waiters.asleep == []

    def test_block_gives_up_after_a_timeout(self):
        one = inlet(capacity=1)
        one.items.append((1,))
        assert one.make_room(timeout=0) is False
        assert one.waiters.asleep == []

    def test_block_ends_when_it_is_closed(self):
        one = inlet(capacity=1)
        one.items.append((1,))
        pushing = Background(one.make_room)
        wait_until(lambda: one.waiters.asleep)
        one.close()
        with pytest.raises(ClosedError):
            pushing.result()

    def test_block_raises_instead_of_waiting_when_the_log_takes_nothing(self):
        one = inlet(capacity=1)
        one.items.append((1,))
        pushing = Background(one.make_room)
        wait_until(lambda: one.waiters.asleep)
        one.stall(LogFullError("the disk is full"))
        with pytest.raises(LogFullError):
            pushing.result()
        with pytest.raises(LogFullError):
            one.make_room()
        one.stall(None)
        one.drain(1)
        assert one.make_room()

    def test_every_one_that_waits_is_let_in(self):
        one = inlet(capacity=1)
        one.items.append((0,))
        pushing = [Background(one.make_room) for _ in range(5)]
        wait_until(lambda: len(one.waiters.asleep) == 5)
        one.drain(1)
        assert [each.result() for each in pushing] == [True] * 5


class TestDropOldest:
    @given(st.integers(1, 40), st.integers(0, 200))
    def test_the_newest_come_through_and_the_others_are_counted(self, capacity, count):
        one = inlet(capacity=capacity, policy="drop_oldest")
        for n in range(count):
            if len(one.items) >= one.limit:
                one.make_room()
            one.items.append((n,))
        got = []
        while one.items:
            got += numbers(one.drain(len(one.items))[0])
        assert got == list(range(max(0, count - capacity), count))
        assert one.dropped == count - len(got)
        assert one.pushed == len(got)

    @given(
        st.integers(1, 8),
        st.lists(st.one_of(st.integers(1, 5), st.just("row"), st.just("drain")), max_size=40),
    )
    def test_pushed_and_dropped_are_all_there_was(self, capacity, script):
        one = inlet(capacity=capacity, policy="drop_oldest")
        count, got = 0, []
        for step in script:
            if step == "drain":
                got += numbers(one.drain(len(one.items))[0])
            elif step == "row":
                one.make_room()
                one.items.append((count,))
                count += 1
            else:
                one.enter([batch(*range(count, count + step))])
                count += step
        while one.items:
            got += numbers(one.drain(len(one.items))[0])
        assert one.pushed == len(got)
        assert one.dropped + one.pushed == count
        assert got == sorted(set(got))
        assert (one._batch_items, one.batch_rows) == (0, 0)

    def test_a_watermark_outlives_the_rows(self):
        one = inlet(capacity=2, policy="drop_oldest")
        one.put(PushedBatches([batch(1)], 70))
        for n in range(2, 20):
            one.make_room()
            one.items.append((n,))
        batches, _ = one.drain(len(one.items))
        assert max(b.watermark for b in batches if b.watermark is not None) == 70
        assert numbers(batches) == [18, 19]

    def test_room_is_made_while_the_dispatcher_unpacks(self, monkeypatch):
        """What it has taken is counted until it is unpacked; nothing may be left to drop then."""
        one, unpack = inlet(capacity=2, policy="drop_oldest"), inlet_module._unpack
        one.enter([batch(1, 2, 3)])

        def meanwhile(*given, **options):
            assert one.make_room()
            one.enter([batch(4)])
            return unpack(*given, **options)

        with monkeypatch.context() as patch:
            patch.setattr(inlet_module, "_unpack", meanwhile)
            assert numbers(one.drain(1)[0]) == [1, 2, 3]
        assert numbers(one.drain(1)[0]) == [4]
        assert one.dropped == 0


class TestSync:
    def test_a_pusher_waits_for_its_commit(self):
        one = inlet(sync=True)
        pushing = Background(one.enter, [batch(1)])
        wait_until(lambda: one.items)
        (completion,) = one.drain(1)[1]
        assert not pushing.is_done
        completion.settle(1)
        pushing.result()

    def test_and_raises_what_went_wrong(self):
        one = inlet(sync=True)
        pushing = Background(one.enter, [batch(1)])
        wait_until(lambda: one.items)
        one.drain(1)[1][0].settle(0, LogFullError("full"))
        with pytest.raises(LogFullError):
            pushing.result()

    def test_one_that_is_abandoned_fails(self):
        one = inlet(sync=True)
        pushing = Background(one.enter, [batch(1)])
        wait_until(lambda: one.items)
        one.close()
        one.abandon()
        with pytest.raises(ClosedError):
            pushing.result()

    def test_and_so_is_one_that_came_too_late(self):
        """It looked whether the source is open just before it was closed."""
        one = inlet(sync=True)
        one.make_room = lambda: True
        one.close()
        one.abandon()
        with pytest.raises(ClosedError):
            Background(one.enter, [batch(1)]).result()


class TestTicket:
    def test_can_be_waited_for_by_many_and_again(self):
        completion = Completion()
        waiting = [Background(completion.wait) for _ in range(3)]
        completion.settle(7)
        for each in waiting:
            each.result()
        completion.wait()
        assert completion.lsn == 7

    def test_the_first_time_counts(self):
        completion = Completion()
        completion.settle(7)
        completion.settle(8, ClosedError("too late"))
        completion.wait()
        assert completion.lsn == 7


class TestEvolve:
    def test_rows_from_before_have_nulls(self):
        one = inlet()
        one.items += [(1,), (2,)]
        one.evolve(WIDER)
        one.items.append((3, "c"))
        (only,), _ = one.drain(3)
        assert only.schema is WIDER
        assert only.rows == [(1, None), (2, None), (3, "c")]

    @pytest.mark.parametrize("arrow", [False, True])
    def test_and_so_have_batches(self, arrow):
        """Queries of after the ALTER are evaluated on them."""
        one = inlet()
        given = batch(1, 2)
        if arrow:
            given = ChangeBatch(SCHEMA, None, given.arrow, None)
        one.put(PushedBatches([given], 9))
        one.evolve(WIDER)
        (only,), _ = one.drain(1)
        assert only.schema is WIDER
        assert only.is_arrow == arrow
        assert only.rows == [(1, None), (2, None)]
        assert only.watermark == 9


class TestClose:
    def test_the_reason_is_raised_as_a_new_error_each_time(self):
        one = inlet()
        one.close(LogFullError("why"))
        one.close()
        errors = []
        for _ in range(2):
            with pytest.raises(LogFullError, match="why") as caught:
                one.make_room()
            errors.append(caught.value)
        assert errors[0] is not errors[1]

    def test_what_is_there_can_still_be_drained(self):
        one = inlet()
        one.items.append((1,))
        one.close()
        assert numbers(one.drain(1)[0]) == [1]


def test_only_a_sleeper_is_woken():
    one = inlet()
    one.put(PushedBatches([batch(1)]))
    assert one.wakeup._wakes.empty()
    one.wakeup.asleep = True
    one.put(PushedBatches([batch(2)]))
    assert not one.wakeup._wakes.empty()
    assert not one.wakeup.asleep

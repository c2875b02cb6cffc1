"""Where several views are exact together: ``ViewCuts`` over views that a test moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millstream.errors import WrongObjectError
from millstream.views.cuts import ViewCuts
from millstream.views.view import ViewProgress


class FakeView:
    """A view of which only the progress counts."""

    def __init__(self, *inputs):
        self.planned = SimpleNamespace(inputs=inputs)
        self.view = SimpleNamespace(progress=ViewProgress("v", None), lsn=0)
        self.sent = 0

    def may_stop_at(self, lsn):
        return self.view.progress.reached <= lsn and self.sent <= lsn

    def cut_at(self, lsn, passed, *, idle=False):
        self.view.progress.cut_at(lsn, passed, idle=idle)


class FakeDispatcher:
    def __init__(self):
        self.lsn = 0
        self.tasks = []

    def soon(self, function):
        self.tasks.append(function)

    def run(self):
        tasks, self.tasks = self.tasks, []
        for each in tasks:
            each()


@pytest.fixture
def dispatcher():
    return FakeDispatcher()


def reached(view, lsn):
    view.view.progress.caught_up(lsn)


def test_a_cut_is_found_where_the_last_view_arrives(dispatcher):
    one, other = FakeView("s"), FakeView("s")
    cuts, found = ViewCuts({"one": one, "other": other}, ["one", "other"], dispatcher), []
    cuts.on_found = lambda: found.append(cuts.found.lsn)
    reached(one, 5)
    cuts.search(5)
    assert cuts.is_searching
    assert other.view.progress.cuts == [5]
    reached(other, 3)
    assert not found
    reached(other, 5)
    assert found == [5]
    assert not cuts.is_searching
    assert cuts.take().causes == {"one": 5, "other": 5}
    assert cuts.found is None
    assert not dispatcher.tasks


def test_a_view_that_has_passed_the_lsn_in_one_step_makes_all_stop_at_the_newest(dispatcher):
    one, other = FakeView("s"), FakeView("s")
    cuts = ViewCuts({"one": one, "other": other}, ["one", "other"], dispatcher)
    reached(one, 5)
    cuts.search(5)
    reached(other, 7)
    dispatcher.lsn = 9
    dispatcher.run()
    assert one.view.progress.cuts == other.view.progress.cuts == [9]
    reached(one, 9)
    reached(other, 9)
    assert cuts.found.lsn == 9


def test_a_view_that_is_ahead_is_not_asked_for_what_it_has_passed(dispatcher):
    one, other = FakeView("s"), FakeView("s")
    cuts = ViewCuts({"one": one, "other": other}, ["one", "other"], dispatcher)
    reached(one, 5)
    other.sent = 8
    cuts.search(5)
    assert not other.view.progress.cuts
    dispatcher.lsn = 8
    dispatcher.run()
    reached(one, 8)
    reached(other, 8)
    assert cuts.found.lsn == 8


def test_a_view_with_nothing_to_read_is_exact_wherever_it_passes(dispatcher):
    one, other = FakeView("s"), FakeView("t")
    cuts = ViewCuts({"one": one, "other": other}, ["one", "other"], dispatcher)
    reached(one, 5)
    cuts.search(5)
    other.view.progress.idle(6)
    assert cuts.found.lsn == 5


def test_a_view_over_a_view_stops_at_what_the_other_had_committed(dispatcher):
    lower, upper = FakeView("s"), FakeView("lower")
    cuts = ViewCuts({"lower": lower, "upper": upper}, ["upper"], dispatcher)
    cuts.search(5)  # it is not known what that is for the upper one
    dispatcher.lsn = 20
    dispatcher.run()
    lower.view.lsn = 12
    reached(lower, 20)
    assert upper.view.progress.cuts == [12]
    reached(upper, 12)
    assert cuts.found.lsn == 20
    assert cuts.found.causes == {"lower": 20, "upper": 12}


def test_without_views_a_cut_is_anywhere(dispatcher):
    cuts = ViewCuts({}, [], dispatcher)
    cuts.search(4)
    assert cuts.found.lsn == 4


def test_a_view_over_several_logs_with_a_view_among_them_is_refused(dispatcher):
    views = {"lower": FakeView("s"), "upper": FakeView("lower", "s")}
    with pytest.raises(WrongObjectError, match="upper reads the view lower"):
        ViewCuts(views, ["upper"], dispatcher)

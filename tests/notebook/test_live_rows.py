from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream import ChangeBatch, Schema
from millstream.model.change import Gap
from millstream.notebook.live_rows import LiveRows

KEYED = Schema.of(key=("id",), id="BIGINT NOT NULL", name="VARCHAR")
PLAIN = Schema.of(n="BIGINT", name="VARCHAR")


def changes(schema, rows, weights=None, **rest):
    return ChangeBatch.from_rows(schema, rows, weights=weights).copy(**rest)


def texts(live):
    return [row for _, row in live.shown()]


class TestWithAKey:
    def test_an_update_stays_at_its_place_and_has_a_new_number(self):
        live = LiveRows(KEYED, 10)
        live.apply(changes(KEYED, [(1, "a"), (2, "b")]), 0.0)
        (first, _), (second, _) = live.shown()
        live.apply(changes(KEYED, [(1, "a"), (1, "c")], [-1, 1]), 0.0)
        assert texts(live) == [["1", "c"], ["2", "b"]]
        assert [number for number, _ in live.shown()] == [3, second]
        assert (first, live.total) == (1, 2)

    def test_a_delete_takes_the_row_away(self):
        live = LiveRows(KEYED, 10)
        live.apply(changes(KEYED, [(1, "a"), (2, None)]), 0.0)
        live.apply(changes(KEYED, [(1, "a")], [-1]), 0.0)
        assert (texts(live), live.total) == ([["2", None]], 1)

    def test_what_is_beyond_the_limit_is_shown_when_there_is_room(self):
        live = LiveRows(KEYED, 2)
        live.apply(changes(KEYED, [(n, "x") for n in range(4)]), 0.0)
        assert [row[0] for row in texts(live)] == ["0", "1"]
        live.apply(changes(KEYED, [(0, "x")], [-1]), 0.0)
        assert [row[0] for row in texts(live)] == ["1", "2"]
        assert live.total == 3

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans()), max_size=30)
    )
    def test_it_has_what_the_changes_come_to(self, steps):
        live, known = LiveRows(KEYED, 100), {}
        for key, name, is_gone in steps:
            before = [(key, known.pop(key))] if key in known else []
            after = [] if is_gone else [(key, name)]
            known.update(after)
            if before != after:
                weights = [-1] * len(before) + [1] * len(after)
                live.apply(changes(KEYED, before + after, weights), 0.0)
        assert sorted(map(tuple, texts(live))) == sorted((str(k), v) for k, v in known.items())
        assert live.total == len(known)


class TestWithoutAKey:
    def test_the_newest_are_shown_first_and_all_are_counted(self):
        live = LiveRows(PLAIN, 2)
        live.apply(changes(PLAIN, [(n, "x") for n in range(5)]), 0.0)
        assert [row[0] for row in texts(live)] == ["4", "3"]
        assert live.total == 5

    def test_a_row_that_goes_is_taken_away_once(self):
        live = LiveRows(PLAIN, 10)
        live.apply(changes(PLAIN, [(1, "a"), (1, "a"), (2, "b")]), 0.0)
        live.apply(changes(PLAIN, [(1, "a")], [-1]), 0.0)
        assert texts(live) == [["2", "b"], ["1", "a"]]
        live.apply(changes(PLAIN, [(7, "never seen")], [-1]), 0.0)
        assert len(texts(live)) == 2


def test_a_snapshot_after_a_gap_replaces_everything(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.execute("INSERT INTO t VALUES (5, 'five')")
        gap = db.subscribe("SELECT * FROM t").recv(timeout=10)
    live = LiveRows(KEYED, 10)
    live.apply(changes(KEYED, [(1, "a")]), 0.0)
    live.apply(gap.copy(kind="snapshot", gap=Gap(1, 3, 2)), 0.0)
    assert (texts(live), live.total, live.lost) == ([["5", "five"]], 1, 2)


def test_the_rate_is_that_of_the_last_seconds_and_not_of_the_snapshot():
    live = LiveRows(PLAIN, 10)
    live.apply(changes(PLAIN, [(1, "a")] * 100, kind="snapshot"), 0.0)
    assert live.rate(1.0) == 0
    live.apply(changes(PLAIN, [(1, "a")] * 30), 1.0)
    assert live.rate(1.0) == 10
    assert live.rate(4.1) == 0


def test_an_update_counts_once():
    live = LiveRows(KEYED, 10)
    rows = [(n, name) for n in range(3) for name in "ab"]
    live.apply(changes(KEYED, rows, [-1, 1] * 3), 0.0)
    assert live.rate(0.0) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), ("", ""), ("<b>", "<b>"), ("x" * 300, "x" * 199 + "…")],
)
def test_values_are_texts_that_fit(value, text):
    live = LiveRows(PLAIN, 10)
    live.apply(changes(PLAIN, [(1, value)]), 0.0)
    assert texts(live) == [["1", text]]

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.log.topics import Epochs


def test_a_token_of_this_run_is_true():
    epochs = Epochs().begin(1, 1)
    assert epochs.current == 1
    assert epochs.is_true(1, 0)
    assert epochs.is_true(1, 10**12)


def test_rows_that_a_crash_took_are_not_true():
    # Run 1 handed out LSNs up to 10, but only 7 reached the disk; run 2 goes on at 8.
    epochs = Epochs().begin(1, 1).begin(2, 8)
    assert epochs.is_true(1, 7)
    assert not epochs.is_true(1, 8)
    assert epochs.is_true(2, 8)


def test_a_run_of_the_future_is_not_true():
    assert not Epochs().begin(1, 1).is_true(2, 1)


def test_runs_without_rows_take_no_room():
    epochs = Epochs().begin(1, 1).begin(2, 8).begin(3, 8).begin(4, 8)
    assert epochs.starts == ((1, 1), (4, 8))
    assert not epochs.is_true(2, 8)
    assert epochs.is_true(2, 7)


def test_json():
    epochs = Epochs().begin(1, 1).begin(2, 8)
    assert Epochs.from_json(epochs.to_json()) == epochs


@given(st.lists(st.integers(0, 20), max_size=20), st.data())
def test_against_a_list_of_all_runs(growth, data):
    """The short table says what the whole history says."""
    epochs, lsn, history = Epochs(), 1, []
    for number, rows in enumerate(growth, 1):
        epochs = epochs.begin(number, lsn)
        history.append((number, lsn))
        lsn += rows
    if not history:
        return
    oldest = data.draw(st.integers(1, lsn))
    kept = epochs.since(oldest)
    epoch = data.draw(st.integers(1, len(history)))
    asked = data.draw(st.integers(0, lsn + 5))
    true = all(asked < start for number, start in history if number > epoch)
    assert epochs.is_true(epoch, asked) == true
    assert not (kept.is_true(epoch, asked) and not true)
    if asked >= oldest:
        assert kept.is_true(epoch, asked) == true

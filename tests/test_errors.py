from __future__ import annotations

import pickle

import pytest

from millstream import errors


def all_errors(root=errors.Error):
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)


def test_codes_are_unique():
    codes = [kind.code for kind in all_errors()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    "error",
    [
        errors.Error("what", hint="do this"),
        errors.RowError("what", row=3, column="c"),
        errors.LogCorruptError("what", segment="s", offset=5, next_lsn=None, hint="do this"),
        errors.LsnNotKeptError("what", oldest=7),
        errors.ColumnNotFoundError("what", hint="do this"),
    ],
)
def test_they_cross_process_borders(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_text_is_the_message_and_the_hint():
    assert str(errors.Error("what")) == "what"
    assert str(errors.Error("what", hint="do this")) == "what\n  hint: do this"

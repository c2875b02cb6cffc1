"""The tracer of the tests of signals raises only where a signal handler could."""

from __future__ import annotations

import dis
import itertools
import threading
from pathlib import Path

import pytest

import millstream

from .interrupting import ENDS, _looks_for_signals, at_each_point

pytestmark = ENDS
TEXT = """
def returns(lock, call):
    with lock:
        return call()

def goes_on(lock, call):
    with lock:
        call()
    call()

def loops(lock, call):
    for _ in range(3):
        with lock:
            call()
            call()

def waits(lock, call):
    while call():
        with lock:
            pass
"""


def made(name):
    """A function that is traced as one of ours is."""
    scope = {}
    exec(compile(TEXT, str(Path(millstream.__file__).with_name("made_up.py")), "exec"), scope)
    return scope[name]


@pytest.mark.parametrize("name", ["returns", "goes_on", "loops", "waits"])
def test_a_lock_that_with_has_taken_is_given_back(name):
    lock, function = threading.Lock(), made(name)

    def check():
        assert not lock.locked()

    assert at_each_point(lambda: function(lock, [*range(7)].pop), check)


def test_where_the_interpreter_looks():
    code = made("goes_on").__code__
    steps = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    looks = [
        one.opname
        for one, following in itertools.pairwise(steps)
        if _looks_for_signals(code, one.offset, following.offset)
    ]
    assert looks == ["RESUME", "CALL", "CALL", "CALL"]

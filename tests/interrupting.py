"""For tests of signals: a handler that raises in the main thread, at chosen or random instants.

CPython runs signal handlers in the main thread where its interpreter looks at ``eval_breaker``: in
3.11 at the beginning of a function and where a generator goes on (``RESUME``), after a call of
something that is no Python function (``CALL``, ``CALL_FUNCTION_EX``), and when it has jumped back.
Not after a Python function returns, and not within ``with``. ``at_each_point`` raises at each of
these in turn, as far as they are in our own code or in what it uses to wait.

What a handler raises belongs to the instruction that was executed, as in ``with lock: return f()``,
where the call is within the block and what follows it is not. A tracer raises before the next
instruction, and what it raises belongs to that one: where the two have other ``except`` or
``with`` blocks around them it would leave a lock that no signal leaves. Those points it leaves out.
"""

from __future__ import annotations

import dis
import functools
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

import millstream

from .effort import PROOF, effort
from .seed import SEED

_OURS = str(Path(millstream.__file__).parent)
_PURE = (os.path.join(_OURS, "sql"), os.path.join(_OURS, "model"))
_WAITING = {threading.__file__, os.path.join(os.path.dirname(threading.__file__), "contextlib.py")}
_CALLS = {"CALL", "CALL_FUNCTION_EX"}
_FIRST_AWAIT = 2
"""``RESUME`` with such an argument is within ``yield from`` or ``await``: there is no look."""

SOME = 30
"""At about so many points of a call, in the short form."""

ENDS = pytest.mark.timeout(effort(300, 7200), method="thread")
"""For tests that interrupt their own process. One that hangs would hang when it is ended by a
signal, too: this ends the process, with the stacks of all threads."""


@functools.cache
def _blocks(code):
    """The protected ranges of a code: first and last offset, where it goes on, how deep."""
    return tuple(vars(dis.Bytecode(code))["exception_entries"])  # typeshed does not know it


def _block_at(code, offset):
    """The innermost ``try`` or ``with`` block around an instruction."""
    return next((each for each in _blocks(code) if each.start <= offset < each.end), None)


def _looks_for_signals(code, executed, at):
    """Whether the interpreter does, between the instruction at an offset and that at another."""
    name, argument = dis.opname[code.co_code[executed]], code.co_code[executed + 1]
    if name == "RESUME":
        looks = argument < _FIRST_AWAIT
    elif "JUMP_BACKWARD" in name:
        looks = at < executed  # it may have a condition, and go on instead
    else:
        looks = name in _CALLS
    # An error belongs to what is one unit before the next instruction: see ``exception_unwind``.
    return looks and _block_at(code, at - 2) == _block_at(code, at)


class _Tracer:
    """Counts the points of a call, and raises at one of them."""

    def __init__(self, place):
        self.place = place
        self.count = 0
        self._before = {}  # the offset of the opcode that a frame has executed last
        self._called = {}  # whether that has called a Python function
        self._over = False

    def __call__(self, frame, event, _):
        name = frame.f_code.co_filename
        back = frame.f_back
        if back is not None and id(back) in self._before and frame.f_code.co_name != "__init__":
            self._called[id(back)] = True
        if self._over or not (name in _WAITING or name.startswith((_OURS, "<push"))):
            return None
        if name.startswith(_PURE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, _):
        if event == "return":
            self._before.pop(id(frame), None)
            self._called.pop(id(frame), None)
        if event != "opcode" or self._over:
            return self._step
        code, at = frame.f_code, frame.f_lasti
        before = self._before.get(id(frame))
        called = self._called.pop(id(frame), False)
        self._before[id(frame)] = at
        if before is not None and not called and _looks_for_signals(code, before, at):
            self.count += 1
            if self.count == self.place:
                self._over = True
                raise KeyboardInterrupt
        return self._step


def _traced(call, place):
    """How many points it has; it was interrupted at one of them, if there are so many."""
    tracer = _Tracer(place)
    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(old)
    return tracer.count


def at_each_point(call, check):
    """Interrupt a call at each of its points, and check after each; returns how many there were."""
    points = max(_traced(call, 0) for _ in range(3))
    assert points
    check()
    step = 1 if PROOF else max(1, points // SOME)
    first = random.Random(SEED).randrange(step) + 1
    for place in range(first, points + step, step):
        _traced(call, place)
        check()
    return points


def at_random(call, times, longest):
    """Interrupt a call at random instants, by a real signal; returns how often it was."""
    armed = interrupts = 0
    dice = random.Random(SEED)
    main, again = threading.main_thread().ident, SimpleQueue()

    def handler(*_):
        nonlocal armed
        if armed:
            armed = 0
            raise KeyboardInterrupt

    def send():
        while again.get():
            time.sleep(dice.random() * longest)  # at any instant: no condition to wait for
            signal.pthread_kill(main, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        for _ in range(times):
            try:
                armed = 1
                again.put(True)
                while armed:  # else it was raised where Python ignores it: in a finalizer
                    call()
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                armed = 0
    finally:
        again.put(False)
        sender.join()
        signal.signal(signal.SIGUSR1, old)
    return interrupts

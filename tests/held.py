"""For tests of what happens while the dispatcher is busy: it is kept busy until it is let go."""

from __future__ import annotations

import threading
from contextlib import contextmanager

PATIENCE = 30.0
"""Seconds after which something that must come is taken for lost. No test waits for it to pass."""


@contextmanager
def held(dispatcher):
    """The dispatcher stands still within; what is handed in or pushed meanwhile waits for it."""
    entered, go = threading.Event(), threading.Event()

    def stand():
        entered.set()
        assert go.wait(PATIENCE)

    thread = threading.Thread(target=dispatcher.call, args=(stand,))
    thread.start()
    assert entered.wait(PATIENCE)
    try:
        yield
    finally:
        go.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Doing:
    """Something that is done in a thread of its own, and what came of it."""

    def __init__(self, function, *args, **options):
        self.value = self.error = None
        self._thread = threading.Thread(target=self._run, args=(function, args, options))
        self._thread.daemon = True
        self._thread.start()

    def _run(self, function, args, options):
        try:
            self.value = function(*args, **options)
        except BaseException as error:
            self.error = error

    @property
    def is_done(self):
        return not self._thread.is_alive()

    def result(self):
        """What it gave or raised; waits for it."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it hangs"
        if self.error is not None:
            raise self.error
        return self.value


def until(condition):
    """Look again and again until a condition holds."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.001)):
        if condition():
            return
        pause.wait(0.001)
    raise AssertionError("it never came to be")

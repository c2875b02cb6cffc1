"""A database, and how to wait: on conditions, with time to spare, never on the clock."""

from __future__ import annotations

import threading

import pytest

import millstream as ms
from millstream.testing import TIMEOUT, wait_until


@pytest.fixture
def db(tmp_path):
    with ms.open(tmp_path / "db") as opened:
        yield opened


@pytest.fixture
def take():
    """take(subscription, 5): batches until there are five weighted rows, or what ends it raises."""

    def batches(subscription, rows):
        taken, count = [], 0
        while count < rows:
            taken.append(subscription.recv(timeout=TIMEOUT))
            count += len(taken[-1])
        return taken

    return batches


@pytest.fixture
def rows_of(take):
    """rows_of(subscription, 5): the next five rows."""

    def rows(subscription, count):
        return [row for batch in take(subscription, count) for row in batch.rows]

    return rows


@pytest.fixture
def drain():
    """drain(subscription): all batches that a subscription still gives before it is over."""

    def batches(subscription):
        taken = []
        try:
            while True:
                taken.append(subscription.recv(timeout=TIMEOUT))
        except ms.errors.ClosedError:
            return taken

    return batches


@pytest.fixture(autouse=True)
def no_thread_left_behind():
    before = set(threading.enumerate())

    def left():
        """All but those that are the process's."""
        now = [t for t in threading.enumerate() if t not in before and "millstream" in t.name]
        return [t for t in now if not t.name.startswith(("millstream-helper", "millstream-read"))]

    yield
    wait_until(lambda: not left())

"""One thread for all small connections: which stay there, which go back to their own thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial

import pytest

from millstream.spark.bridge.connection import Connection, SharedReceiver
from millstream.testing import TIMEOUT, Background, wait_until


@pytest.fixture
def receiver():
    made = SharedReceiver()
    yield made
    made.close()


class Guest:
    """Takes down what arrives, until it is ended."""

    def __init__(self, receiver):
        self.socket, theirs = socket.socketpair()
        self.got = b""
        self.threads = set()
        self.stays = True
        self.trouble = None
        self._theirs = theirs
        self.serving = Background(receiver.serve, theirs, self.ready)

    def ready(self):
        self.threads.add(threading.current_thread().name)
        if self.trouble is not None:
            raise self.trouble
        data = self._theirs.recv(1 << 16)
        self.got += data
        return bool(data) and self.stays

    def close(self):
        self.socket.close()
        self._theirs.close()


@pytest.fixture
def guests(receiver):
    made = [Guest(receiver) for _ in range(12)]
    yield made
    for guest in made:
        guest.close()


def test_one_thread_serves_all(guests):
    for number in range(50):
        for guest in guests:
            guest.socket.sendall(bytes([number]))
    wait_until(lambda: all(guest.got == bytes(range(50)) for guest in guests))
    assert {name for guest in guests for name in guest.threads} == {"millstream-receiver"}
    assert not any(guest.serving.is_done for guest in guests)


def test_those_that_have_something_at_the_same_time_are_served_together():
    blocks, gate = [], threading.Event()

    @contextlib.contextmanager
    def together():
        blocks.append([])
        yield

    def ready(number, conn):
        conn.recv(16)
        blocks[-1].append(number)
        return number > 0 or gate.wait(TIMEOUT)

    receiver = SharedReceiver(together)
    pairs = [socket.socketpair() for _ in range(5)]
    serving = [
        Background(receiver.serve, theirs, partial(ready, number, theirs))
        for number, (_, theirs) in enumerate(pairs)
    ]
    wait_until(lambda: len(receiver._selector.get_map()) == len(pairs) + 1)
    for ours, _ in pairs:
        ours.sendall(b"x")
        wait_until(lambda: [0] in blocks)  # the others come while the first is served
    gate.set()
    wait_until(lambda: sum(map(len, blocks)) == len(pairs))
    assert [sorted(block) for block in blocks if block] == [[0], [1, 2, 3, 4]]
    receiver.close()
    for each in serving:
        each.result()
    for pair in pairs:
        for conn in pair:
            conn.close()


def test_a_connection_that_wants_its_own_thread_gets_it(guests):
    first, second = guests[:2]
    first.stays = False
    first.socket.sendall(b"x")
    first.serving.result()
    first.socket.sendall(b"y")  # stays where it is, for its own thread
    second.socket.sendall(b"z")
    wait_until(lambda: second.got == b"z")
    assert first.got == b"x"


def test_what_one_raises_is_its_own(guests):
    first, second = guests[:2]
    first.trouble = ZeroDivisionError()
    first.socket.sendall(b"x")
    with pytest.raises(ZeroDivisionError):
        first.serving.result()
    second.socket.sendall(b"z")
    wait_until(lambda: second.got == b"z")


def test_a_connection_that_is_closed_is_given_back(guests):
    guests[0].socket.close()
    guests[0].serving.result()
    assert not guests[1].serving.is_done


def test_the_end_lets_all_go(receiver, guests):
    guests[0].socket.sendall(b"x")
    wait_until(lambda: guests[0].got)
    receiver.close()
    receiver.close()
    for guest in guests:
        guest.serving.result()
    late = Guest(receiver)
    late.serving.result()
    late.close()


def test_bytes_come_as_they_were_sent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours = Connection(listener.accept()[0])
    sent = bytes(range(256)) * 3000
    sending = Background(theirs.sendall, sent)
    got = b""
    for size in (1, 4, 100, 70_000, 3, 65_536, 0, 300_000):
        got += ours.read(size)
    while not (ahead := ours.read_now()):
        assert ahead is not None
    got += ahead[:1]
    ours.unread(ahead[1:])
    got += ours.read(len(sent) - len(got))
    sending.result()
    assert got == sent
    assert ours.read_now() == b"", "nothing is there, and nobody waits"
    theirs.close()
    wait_until(lambda: ours.read_now() is None)
    with pytest.raises(EOFError):
        ours.read(1)
    ours.close()

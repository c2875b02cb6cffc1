"""The server that Spark's tasks connect to: who may, what is said, how it ends."""

import socket
import struct
import threading
from contextlib import suppress

import pytest

from millstream.pipeline.wire import BridgeServer

PATIENCE = 30


class Echo:
    """Says back what it was greeted with, then every message."""

    def __init__(self):
        self.served = []
        self.ended = threading.Event()

    def serve(self, role, words, wire):
        self.served.append((role, words))
        try:
            wire.send_text("\t".join([role, *words]))
            while True:
                wire.send(struct.pack(">I", size := len(data := wire.receive_message())), data)
                assert size == len(data)
        finally:
            self.ended.set()


@pytest.fixture
def server():
    made = BridgeServer()
    yield made
    made.close()


@pytest.fixture
def echo(server):
    made = Echo()
    server.add("feed", made)
    return made


class Task:
    """The other side."""

    def __init__(self, server, secret=None, magic=b"MSB1", greeting="role\tfeed\ta\tb"):
        self.socket = socket.create_connection((server.host, server.port), timeout=PATIENCE)
        self.socket.sendall(magic)
        self.say(server.secret if secret is None else secret)
        if greeting is not None:
            self.say(greeting)

    def say(self, data):
        data = data.encode() if isinstance(data, str) else data
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was said
            self.socket.sendall(struct.pack(">I", len(data)) + data)

    def hear(self):
        """The next message; None at the end."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data[4:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def test_greeted_and_served(server, echo):
    with Task(server) as task:
        assert task.hear() == b"role\ta\tb"
        for data in (b"", b"x", bytes(range(256)) * 1000):
            task.say(data)
            assert task.hear() == data
    assert echo.ended.wait(PATIENCE)
    assert echo.served == [("role", ["a", "b"])]


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": "0" * 64},
        {"secret": ""},
        {"secret": "0" * 63},
        {"secret": b"\xff" * 64},
        {"magic": b"GET "},
        {"magic": b"MSB2"},
        {"greeting": "role\tanother feed"},
        {"greeting": "role"},
        {"greeting": b"\xff\xfe"},
    ],
    ids=str,
)
def test_refused_without_a_word(server, echo, wrong):
    with Task(server, **wrong) as task:
        assert task.hear() is None
    assert echo.served == []
    with Task(server) as task:  # and the next one is served
        assert task.hear() is not None


def test_a_secret_that_is_nearly_right(server, echo):
    for secret in (server.secret[:-1], server.secret + "0", server.secret.upper() + " "):
        with Task(server, secret=secret) as task:
            assert task.hear() is None
    assert echo.served == []


def test_secrets_differ():
    first, second = BridgeServer(), BridgeServer()
    try:
        assert first.secret != second.secret
        assert len(first.secret) >= 32
        assert first.host == "127.0.0.1"
    finally:
        first.close()
        second.close()


def test_gone_before_it_said_anything(server, echo):
    for _ in range(20):
        socket.create_connection((server.host, server.port)).close()
    with Task(server) as task:
        assert task.hear() is not None


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_greeting_that_is_too_long(server, echo):
    with Task(server, greeting=None) as task:
        task.socket.sendall(struct.pack(">I", 1 << 31))
        assert task.hear() is None
    with Task(server) as task:
        assert task.hear() is not None


def test_a_feed_that_is_served_no_more(server, echo):
    server.remove("feed")
    with Task(server) as task:
        assert task.hear() is None


def test_the_end_of_the_server_ends_all(server, echo):
    with Task(server) as task:
        assert task.hear() is not None
        server.close()
        assert task.hear() is None
        assert echo.ended.wait(PATIENCE)
    with pytest.raises(ConnectionError):
        socket.create_connection((server.host, server.port), timeout=PATIENCE)


def test_many_at_once(server, echo):
    tasks = [Task(server, greeting=f"role\tfeed\t{n}") for n in range(50)]
    for n, task in enumerate(tasks):
        with task:
            assert task.hear() == f"role\t{n}".encode()

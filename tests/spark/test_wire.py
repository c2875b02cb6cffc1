"""The server that Spark's tasks connect to: authentication, frames, the end of a connection."""

import os
import resource
import socket
import ssl
import struct
import sys
import threading
from contextlib import suppress

import pytest

from millstream.errors import MissingExtraError
from millstream.spark.bridge import server as wire_module
from millstream.spark.bridge.security import MAGIC, make_certificate, proof
from millstream.spark.bridge.server import BridgeServer
from millstream.testing import TIMEOUT


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
    """The other side, as Wire.java has it."""

    def __init__(self, server, secret=None, magic=MAGIC, greeting="role\tfeed\ta\tb", trust=None):
        self.socket = socket.create_connection((server.host, server.port), timeout=TIMEOUT)
        if trust is not None:
            self.socket = trust.wrap_socket(self.socket)
        secret = server.secret if secret is None else secret
        ours = os.urandom(32)
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was said
            self.socket.sendall(magic + ours)
            theirs, proven = self.read(32), self.read(32)
            self.is_server = proven == proof(secret, b"server", ours, theirs)
            self.socket.sendall(proof(secret, b"task", ours, theirs))
            if greeting is not None:
                self.say(greeting)

    def read(self, size):
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data

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
    assert echo.ended.wait(TIMEOUT)
    assert echo.served == [("role", ["a", "b"])]


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": bytes(32)},
        {"secret": b""},
        {"magic": b"GET "},
        {"magic": b"MSB1"},
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
    # Not one byte less: to HMAC a key that ends with a zero is the same without it.
    last = bytes([server.secret[-1] ^ 1])
    for secret in (server.secret[:-1] + last, server.secret + b"0", server.secret[::-1]):
        with Task(server, secret=secret) as task:
            assert not task.is_server  # nor does the task take it for the right server
            assert task.hear() is None
    assert echo.served == []


def test_the_server_proves_itself_first(server, echo):
    with Task(server) as task:
        assert task.is_server


def test_a_proof_that_was_overheard_is_worth_nothing(server, echo):
    ours = os.urandom(32)
    with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as first:
        first.sendall(MAGIC + ours)
        theirs = first.recv(32)
        overheard = proof(server.secret, b"task", ours, theirs)
    for answer in (overheard, None):  # None: the server's own proof, sent back to it
        with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as again:
            again.sendall(MAGIC + ours)
            heard = b""
            while len(heard) < 64:
                heard += again.recv(64)
            again.sendall(answer or heard[32:])
            assert again.recv(1) == b""
    assert echo.served == []


def test_secrets_differ_and_are_never_sent():
    first, second = BridgeServer(), BridgeServer()
    try:
        assert first.secret != second.secret
        assert len(first.secret) >= 32
        assert first.host == "127.0.0.1"
        assert first.certificate == b""
    finally:
        first.close()
        second.close()


def test_peers_that_prove_nothing_are_few_and_the_next_task_is_served(server, echo):
    silent = [socket.create_connection((server.host, server.port)) for _ in range(300)]
    with Task(server) as task:
        assert task.hear() is not None
        threads = [each for each in threading.enumerate() if each.name == "millstream-bridge-task"]
        assert len(threads) <= 300 // 3
    for each in silent:
        each.close()


def test_a_peer_that_dribbles_is_ended(server, echo, monkeypatch):
    monkeypatch.setattr(wire_module, "_GREETING_SECONDS", 0.3)
    with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as slow:
        slow.settimeout(0.02)
        sent = 0
        while True:
            try:
                slow.sendall(b"M")  # one byte at a time never lets a single read time out
                sent += 1
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert sent
    assert echo.served == []


def test_the_proof_comes_before_anything_large(server, echo):
    with socket.create_connection((server.host, server.port), timeout=TIMEOUT) as peer:
        peer.sendall(MAGIC + b"\xff" * 1000)  # lengths of gigabytes, if anybody read them as such
        heard = b""
        with suppress(ConnectionResetError):
            while more := peer.recv(4096):
                heard += more
        assert len(heard) <= 64


def test_no_file_descriptor_left_and_then_there_is(server, echo):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
    try:
        held = []
        with suppress(OSError):
            while True:
                held.append(os.dup(waiting.fileno()))
        waiting.connect((server.host, server.port))  # accept() fails
        waiting.settimeout(0.5)
        with suppress(TimeoutError, OSError):
            waiting.recv(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)
        waiting.close()
    with Task(server) as task:
        assert task.hear() is not None


@pytest.fixture
def encrypted(monkeypatch):
    """As for a Spark on other machines, though on this one."""
    monkeypatch.setattr(wire_module, "is_loopback", lambda host: False)
    made = BridgeServer()
    yield made
    made.close()


def trusting(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


def test_off_the_loopback_address_all_is_encrypted(encrypted):
    echo = Echo()
    encrypted.add("feed", echo)
    with Task(encrypted, trust=trusting(encrypted.certificate)) as task:
        assert task.socket.version() == "TLSv1.3"
        assert task.hear() == b"role\ta\tb"
        for data in (b"", b"x", bytes(range(256)) * 5000):
            task.say(data)
            assert task.hear() == data
    assert echo.ended.wait(TIMEOUT)
    with Task(encrypted) as task:  # in plain text it gets nowhere
        assert not getattr(task, "is_server", False)
    with Task(encrypted, trust=trusting(encrypted.certificate), secret=bytes(32)) as task:
        assert task.hear() is None
    assert len(echo.served) == 1


def test_another_certificate_is_not_trusted(encrypted):
    other = make_certificate()
    with pytest.raises(ssl.SSLCertVerificationError):
        Task(encrypted, trust=trusting(other.der))


def test_the_end_of_an_encrypted_server_ends_all(encrypted):
    echo = Echo()
    encrypted.add("feed", echo)
    with Task(encrypted, trust=trusting(encrypted.certificate)) as task:
        assert task.hear() is not None
        encrypted.close()
        assert task.hear() is None
        assert echo.ended.wait(TIMEOUT)


def test_without_the_package_nothing_goes_out_unencrypted(monkeypatch):
    monkeypatch.setattr(wire_module, "is_loopback", lambda host: False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError) as raised:
        BridgeServer()
    assert "millstream[cluster]" in raised.value.hint


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("127.9.9.9", True), ("0.0.0.0", False),
     ("192.0.2.1", False)],
)  # fmt: skip
def test_which_hosts_are_this_machine(host, own):
    assert wire_module.is_loopback(host) is own


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
        assert echo.ended.wait(TIMEOUT)
    with pytest.raises(ConnectionError):
        socket.create_connection((server.host, server.port), timeout=TIMEOUT)


def test_when_no_thread_can_be_started_the_next_task_is_served(server, echo, monkeypatch):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "millstream-bridge-task":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with Task(server) as task:
            assert task.hear() is None
    with Task(server) as task:
        assert task.hear() is not None


def test_a_crash_of_its_thread_refuses_tasks(server, echo, monkeypatch, caplog):
    def crash(conn):
        conn.close()
        raise ZeroDivisionError

    monkeypatch.setattr(server._unproven, "add", crash)
    with pytest.raises(ConnectionError):  # Spark is refused, and fails the query
        while True:
            socket.create_connection((server.host, server.port), timeout=TIMEOUT).close()
    assert "millstream-bridge ended" in caplog.text


def test_many_at_once(server, echo):
    tasks = [Task(server, greeting=f"role\tfeed\t{n}") for n in range(50)]
    for n, task in enumerate(tasks):
        with task:
            assert task.hear() == f"role\t{n}".encode()

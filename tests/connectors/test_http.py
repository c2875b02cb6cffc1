"""Posts of webhooks: what is sent, over TLS too, and what comes of answers that are none."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading

import pytest

from millstream.connectors.http import http_post, http_url
from millstream.errors import AddressRefusedError, InvalidOptionError

ACCEPTED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers one post with some bytes."""

    def __init__(self, answer, context=None):
        self.received = b""
        self.errors = []
        self._answer = answer
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with self._socket:
            plain, _ = self._socket.accept()
        try:
            connection = plain
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_side=True)
            with connection:
                while not self.received.endswith(b"{}"):
                    self.received += connection.recv(65536)
                connection.sendall(self._answer)
        except OSError as error:
            self.errors.append(error)
            plain.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._thread.join()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"no HTTP at all\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 yes OK\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "HTTPException"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", "LineTooLong"),
        (b"", "RemoteDisconnected"),
    ],
)
def test_an_answer_that_is_none_is_no_error_of_the_sender(answer, error):
    with Server(answer) as server:
        made = http_post(f"http://127.0.0.1:{server.port}/", b"{}", {}, 30)
    assert (made.status, made.error) == (0, error)


def test_a_redirect_is_not_followed_and_no_proxy_is_asked(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    answer = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    with Server(answer) as server:
        made = http_post(f"http://127.0.0.1:{server.port}/", b"{}", {}, 30)
    assert (made.status, made.is_accepted) == (307, False)


def test_what_is_sent():
    with Server(ACCEPTED) as server:
        url = f"http://127.0.0.1:{server.port}?a=b#c"
        assert http_post(url, b"{}", {"content-type": "text/x", "X-A": "b"}, 30).is_accepted
    head, _, body = server.received.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert (first, body) == (b"POST /?a=b HTTP/1.1", b"{}")
    assert [each for each in headers if each.lower().startswith(b"content-type")] == [
        b"Content-Type: text/x"
    ]
    assert f"Host: 127.0.0.1:{server.port}".encode() in headers
    assert b"X-A: b" in headers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    directory = tmp_path_factory.mktemp("tls")
    key, found = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", "/CN=localhost", "-days", "2", "-addext"),
            *("subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(found)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    return found, context


def test_over_tls_the_address_is_checked_and_the_name_is_verified(certificate, monkeypatch):
    found, context = certificate
    checked = []
    with Server(ACCEPTED, context) as server:
        made = http_post(f"https://localhost:{server.port}/", b"{}", {}, 30, checked.append)
    assert made.error == "SSLCertVerificationError"  # nobody trusts it
    monkeypatch.setenv("SSL_CERT_FILE", str(found))
    with Server(ACCEPTED, context) as server:
        made = http_post(f"https://localhost:{server.port}/", b"{}", {}, 30, checked.append)
    assert made.is_accepted, server.errors
    assert "127.0.0.1" in checked
    with Server(ACCEPTED, context) as server:
        made = http_post(f"https://127.0.0.1:{server.port}/", b"{}", {}, 30)
    assert made.error == "SSLCertVerificationError"  # it is of another name


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nothing_is_connected_to_when_a_check_refuses(scheme):
    def refuse(address):
        raise AddressRefusedError(f"not {address}")

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(AddressRefusedError, match="not 127"):
            http_post(url, b"{}", {}, 30, refuse)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "x", "http://", "http://[::1", "http://x:y/", "http://x:99999/", "http://x:0"],
)
def test_urls_that_are_none(url):
    with pytest.raises(InvalidOptionError, match="address is no URL of HTTP"):
        http_url(url, "address")

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess

import httpx
import pytest
from tests.server.conftest import serving
from typer.testing import CliRunner
from websockets.sync.client import connect

from millstream.cli.app import app
from millstream.errors import InvalidOptionError


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    trusted = ssl.create_default_context(cafile=certificate)
    with serving(tmp_path / "db", certificate=certificate, private_key=key) as served:
        assert served.url.startswith("https://")
        assert httpx.get(f"{served.url}/health", verify=trusted).status_code == 200
        address = served.url.replace("https", "wss") + "/v1/ws"
        with connect(address, ssl=trusted) as socket:
            socket.send('{"type": "sql", "id": 1, "sql": "SHOW TABLES"}')
            assert '"type":"result"' in socket.recv()
        with pytest.raises(httpx.HTTPError):
            httpx.get(served.url.replace("https", "http") + "/health")


def test_an_address_that_is_taken(served):
    with pytest.raises(InvalidOptionError, match="cannot listen"):
        port = int(served.url.rpartition(":")[2])
        with serving(served.db.path.parent / "other", http=("127.0.0.1", port)):
            pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--http", "0.0.0.0:0"), "no keys are asked for"),
        (("--pg", "0.0.0.0:0"), "no keys are asked for"),
        (("--http", "nonsense"), "HOST:PORT"),
    ],
)
def test_what_serve_refuses(tmp_path, options, text):
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "db"), *options])
    assert done.exit_code == 1
    assert text in str(done.exception)
    assert not (tmp_path / "db").exists()


def test_a_request_that_the_end_of_the_server_cuts_short_may_be_sent_again(served, monkeypatch):
    """Clients send it again after a 503 of ours, and not after a 500 of the web server's."""

    async def cut_short(*_):
        raise asyncio.CancelledError

    monkeypatch.setattr(served.server._service.statements, "run", cut_short)
    answer = served.sql("SELECT 1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "CLOSED")

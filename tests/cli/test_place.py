from __future__ import annotations

import json
import subprocess

import pytest
from tests.cli.conftest import COMMAND


@pytest.fixture
def url(tmp_path):
    """A server in a process of its own."""
    command = [*COMMAND, "serve", str(tmp_path / "db"), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().split(" at ")[1].split()[0]
        process.terminate()


def test_commands_on_a_server(cli, url):
    cli("sql", url, "-c", "CREATE SOURCE t (a BIGINT)", check=0)
    done = cli("push", "t", url, given="a\n7\nno\n", check=1)
    assert "error: line 3: column 'a'" in done.stderr
    done = cli("tail", "t", url, "--from", "earliest", "--limit", 1, check=0)
    assert json.loads(done.stdout)["row"] == {"a": 7}


def test_a_port_that_is_refused_is_reported_at_once():
    command = [*COMMAND, "sql", "http://127.0.0.1:9", "-c", "SHOW TABLES"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.readline()
        assert process.poll() is None  # it tries for a while
        process.kill()
    assert said.startswith("no answer from http://127.0.0.1:9")
    assert said.endswith("; trying for 10 s\n")


def test_a_key_is_for_a_url(quick):
    assert (
        "--key is for the URL" in quick("sql", "db", "--key", "k", "-c", "SELECT 1", check=1).stderr
    )

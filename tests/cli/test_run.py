from __future__ import annotations

import json
import os
import signal
import socket
import subprocess

import httpx
import psycopg
import pytest
from tests.cli.conftest import COMMAND

APP = """
-- a pipeline
CREATE TABLE IF NOT EXISTS users (id BIGINT PRIMARY KEY, name VARCHAR);
LIVE SELECT name FROM users;
INSERT OR REPLACE INTO users VALUES (1, 'Ada')
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_up_until_a_signal(tmp_path, end):
    (tmp_path / "app.sql").write_text(APP)
    with subprocess.Popen(
        [*COMMAND, "run", "app.sql", "db", "--status", "0.1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr.readline().startswith("running app.sql on ")
        assert "0 views, 0 rows behind; 1 subscriptions" in process.stderr.readline()
        lines = [process.stdout.readline() for _ in range(3)]
        (change,) = [json.loads(line) for line in lines if line.startswith("{")]
        assert (change["op"], change["row"]) == ("insert", {"name": "Ada"})
        os.kill(process.pid, end)
        assert process.stderr.read().endswith("stopped\n")
        assert process.wait(25) == 0


def test_a_statement_that_is_refused(quick, tmp_path):
    (tmp_path / "app.sql").write_text("CREATE SOURCE s (n BIGINT);\n\nSELECT m FROM s;\n")
    done = quick("run", "app.sql", check=1)
    assert "error: line 3, column 8: there is no column m" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_pipeline_that_also_serves(tmp_path):
    (tmp_path / "app.sql").write_text(APP)
    with subprocess.Popen(
        [*COMMAND, "run", "app.sql", "db", "--http", "127.0.0.1:0", "--pg", "127.0.0.1:0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stderr.readline()
        http, pg = line.partition(" at ")[2].partition(";")[0].split()
        asked = httpx.post(f"{http}/v1/sql", json={"sql": "SELECT name FROM users"}, timeout=20)
        assert asked.json()["rows"] == [["Ada"]]
        with psycopg.connect(f"{pg}?user=me") as connection:
            assert connection.execute("SELECT name FROM users").fetchall() == [("Ada",)]
        os.kill(process.pid, signal.SIGTERM)
        assert process.stderr.read().endswith("stopped\n")
        assert process.wait(25) == 0


def test_an_address_that_is_taken(tmp_path, quick):
    (tmp_path / "app.sql").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = quick("run", "app.sql", "--http", f"127.0.0.1:{taken.getsockname()[1]}", check=1)
    assert "error: cannot listen at 127.0.0.1:" in done.stderr
    done = quick("run", "app.sql", "--pg", "127.0.0.1:0", check=1)
    assert "--pg and --auth need --http" in done.stderr

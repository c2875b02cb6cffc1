from __future__ import annotations

import json
import subprocess

import pytest
from tests.cli.conftest import COMMAND

import millstream as ms


@pytest.fixture
def trades(tmp_path):
    with ms.open(tmp_path / "market.db") as db:
        db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
        db.insert("trades", [("A", 1.0), ("B", 2.5), ("C", None)])
    return tmp_path / "market.db"


def test_lines_and_tokens(quick, trades):
    done = quick("tail", "trades", trades, "--from", "earliest", "--limit", 2, "--tokens", check=0)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["op"], line["row"]["symbol"]) for line in lines] == [
        ("insert", "A"),
        ("insert", "B"),
    ]
    query = "SELECT symbol AS s, price FROM trades"
    arguments = ("--from", lines[0]["token"], "--limit", 2, "--format", "csv")
    done = quick("tail", query, trades, *arguments, check=0)
    assert [line.split(",", 2)[2] for line in done.stdout.splitlines()] == [
        "s,price",
        "B,2.5",
        "C,",
    ]


def test_a_timeout_ends_it(quick, trades):
    done = quick("tail", "trades", trades, "--from", "now", "--timeout", "0", check=0)
    assert done.stdout == ""


def test_a_reader_that_leaves(trades):
    """As ``millstream tail ... | head -n 1``."""
    command = [*COMMAND, "tail", "trades", str(trades), "--from", "earliest", "--timeout", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(25) == 1


def test_ctrl_c_on_a_terminal(terminal, trades):
    shown = terminal("tail", "trades", trades, "--from", "earliest")
    shown.expect("lsn  symbol")
    shown.expect("C")
    shown.expect("NULL")
    shown.type("\x03")
    assert shown.wait() == 0
    assert "Traceback" not in shown.text


def test_no_directory_is_refused(quick):
    assert "no database is given" in quick("tail", "trades", check=1).stderr

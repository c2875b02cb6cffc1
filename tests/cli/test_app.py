from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from millstream.cli import keys
from millstream.cli.app import app
from millstream.server.roles import ROLES


def test_help_loads_nothing_heavy():
    code = "import millstream.cli.app, sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pyarrow", "numpy", "pyspark", "sqlglot", "duckdb", "starlette", "prompt_toolkit"}
    assert not heavy & set(done.stdout.split())


COMMANDS = [each.name for each in app.registered_commands]


def test_every_command_is_listed(cli):
    shown = cli("--help", check=0).stdout
    assert all(f"│ {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_examples(command):
    (found,) = [each for each in app.registered_commands if each.name == command]
    assert f"  millstream {command}" in found.help


def test_the_roles_are_those_of_the_server():
    assert get_args(keys.Role) == ROLES

"""The rules of every session, in sessions of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import pytest

def test_that_runs():
    pass

def test_that_is_skipped():
    pytest.skip("there is no moon")

@pytest.mark.skipif(True, reason="it is day")
def test_with_a_mark():
    pass

@pytest.mark.xfail(reason="not yet")
def test_that_fails_as_expected():
    raise AssertionError
"""
MODULE = "import pytest\npytest.importorskip('no_such_module')\n\ndef test_it():\n    pass\n"


def session(folder, text, *arguments, ci):
    """Run the tests of a text in a session with the rules."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(text)
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "pytest", "-p", "tests.plain_rules", "-q", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_in_ci_a_skip_is_a_failure(tmp_path):
    done = session(tmp_path, SKIPPED, ci="true")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed, 1 xfailed, 1 error" in done.stdout  # a mark skips the set-up
    for reason in ("there is no moon", "it is day"):
        assert f"skipped, which is a failure in CI: Skipped: {reason}" in done.stdout


def test_in_ci_a_module_that_is_skipped_is_a_failure(tmp_path):
    done = session(tmp_path, MODULE, ci="true")
    assert done.returncode != 0, done.stdout
    assert "no_such_module" in done.stdout


@pytest.mark.parametrize(
    ("text", "shown"), [(SKIPPED, "1 passed, 2 skipped"), (MODULE, "1 skipped")]
)
def test_elsewhere_a_skip_is_shown(tmp_path, text, shown):
    done = session(tmp_path, text, ci="")
    assert done.returncode in {0, 5}, done.stdout
    assert shown in done.stdout


def test_a_session_without_tests_has_failed(tmp_path):
    assert session(tmp_path, "", ci="").returncode == 1
    assert session(tmp_path, SKIPPED, "-k", "no_such_test", ci="").returncode == 5

"""A plugin of pytest for a run without extras, ``make quick-bare``: leaves out what needs one.

A test file that imports what is not installed gets a stand-in; the tests that call it are skipped,
and so are those in which Millstream raises MissingExtraError. Who has no extra gets that error and
no other: any other fails the run, a ModuleNotFoundError within Millstream among them.
"""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from millstream.errors import MissingExtraError

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "millstream"
SERVED = [
    *(TESTS / each for each in ("cli", "client", "connectors", "notebook", "server")),
    *(SOURCE / each for each in ("client", "connectors", "notebook", "server")),
    TESTS / "test_docs.py",
    TESTS / "test_typing.py",
]
"""What is about the extras, or needs another tool than pytest: not collected."""

COMPLETE = ("catalog", "delivery", "dispatch", "state", "tables", "views")
"""No test of these may be left out."""


class Missing:
    """Stands in for a module, or a name of it, that is not installed."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *args, **kwargs):
        pytest.skip(f"{self._name} is not installed", allow_module_level=True)


_import = builtins.__import__


def _import_or_stand_in(name, scope=None, *args, **kwargs):
    try:
        return _import(name, scope, *args, **kwargs)
    except (ModuleNotFoundError, MissingExtraError):
        if scope is None or TESTS not in Path(scope.get("__file__", "")).parents:
            raise
        return Missing(name)


def pytest_configure():
    """Put stand-ins in place of what is missing, for tests only."""
    builtins.__import__ = _import_or_stand_in


def pytest_ignore_collect(collection_path):
    """Leave out what is about the extras."""
    return True if collection_path in SERVED else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a file that uses a part of Millstream with an extra while it is imported."""
    report = yield
    if report.failed and "errors.MissingExtraError: " in str(report.longrepr):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, "Skipped: MissingExtraError")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip a test that fails with MissingExtraError; fail one that may not be left out."""
    report = yield
    if report.failed and call.excinfo.errisinstance(MissingExtraError):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1], f"Skipped: {call.excinfo.value}")
    if report.skipped and any(TESTS / each in item.path.parents for each in COMPLETE):
        report.outcome = "failed"
    return report

"""Rules for every session: in CI nothing is skipped, and a session without tests has failed.

A skip says that a machine lacks what a test needs. CI's machine has all of it, or the test is not
one of the tests that we trust.
"""

from __future__ import annotations

import os

import pytest

_IS_CI = os.environ.get("CI", "") not in {"", "false", "0"}


def _fail_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _IS_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that is skipped."""
    report = yield
    _fail_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail a module that is skipped as a whole."""
    report = yield
    _fail_skipped(report)
    return report


class _Collected:
    """Counts the tests that are found, chosen or not, and the modules that are skipped."""

    count = 0

    def pytest_itemcollected(self, item):
        """One more."""
        self.count += 1

    def pytest_collectreport(self, report):
        """Perhaps a module more that is skipped."""
        self.count += report.skipped

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        """Fail when there were none, as when a path is wrong; -k and -m may leave none over."""
        if not self.count and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config):
    """Begin to count."""
    config.pluginmanager.register(_Collected())

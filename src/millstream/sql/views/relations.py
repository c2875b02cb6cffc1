"""Checks of what a query reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql.inputs import Input
    from millstream.sql.views.errors import ErrorReporter

_KEPT = re.compile(
    r"_[agkux]?\d+(_.*)?|_(log|lsn|row_lsn|weight|wm|w|c|e|n|r|s|t|end|start)", re.IGNORECASE
)
"""Names of columns that the feed or the planner uses itself."""


def check_recursion(tree: exp.Query, errors: ErrorReporter) -> None:
    """Refuse WITH RECURSIVE."""
    for each in tree.find_all(exp.With):
        if each.args.get("recursive"):
            hint = "Join the levels one by one, each in a view of its own."
            errors.refuse(each, "WITH RECURSIVE is not supported in a view", hint)


def check_names(inputs: Iterable[Input], errors: ErrorReporter) -> None:
    """Refuse inputs with a column whose name the feed or the planner uses itself."""
    for each in inputs:
        for name in each.schema.names:
            if _KEPT.fullmatch(name):
                what = f"{each.name} has a column {name}, a name that is reserved in views"
                errors.refuse(None, what, "Give the column another name.")

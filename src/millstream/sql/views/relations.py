"""Relations: FROM, joins, UNION ALL, common table expressions and subqueries, over one feed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.sql.views.flow import Flow, Ground, Origin, feed_name, feed_table
from millstream.sql.views.trees import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.sql.inputs import Input
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.plan import Lookup

_KEPT = re.compile(
    r"_[agkux]?\d+(_.*)?|_(log|lsn|row_lsn|weight|wm|w|c|e|n|r|s|t|end|start)", re.IGNORECASE
)
"""Names of columns that the feed or the planner uses itself."""


@dataclass(slots=True)
class Logs:
    """The inputs of a query, in the order in which it names them.

    Attributes:
        inputs: the inputs.
        ground: the feed of all of them.
        lookups: the joins with tables that were met.
    """

    inputs: tuple[Input, ...]
    ground: Ground
    lookups: list[Lookup] = field(default_factory=list)

    def index(self, name: str) -> int:
        """Return which of the inputs a name in any case is."""
        return [each.name.lower() for each in self.inputs].index(name.lower())

    def flow(self, log: int) -> Flow:
        """Return all rows of one input."""
        count = len(self.inputs)
        names = self.inputs[log].schema.names
        columns = tuple((name, column(feed_name(log, name, count))) for name in names)
        where = None
        if count > 1:
            where = exp.EQ(this=column("_log"), expression=exp.Literal.number(log))
        return Flow(self.ground, columns, where, log=log)


def read_logs(tree: exp.Query, inputs: Callable[[str], Input], errors: ErrorReporter) -> Logs:
    """Return the inputs of a query; those of FROM come before those that are joined."""
    check_recursion(tree, errors)  # first, since it reads a name that is not there
    for table in tree.find_all(exp.Table):
        if table.args.get("version") is not None:
            hint = "Write it in a view that is emitted at each change."
            errors.refuse(table, "FOR SYSTEM_TIME AS OF is not supported here", hint)
    found: dict[str, Input] = {}
    for name in _names(tree):
        if name.lower() not in found:
            found[name.lower()] = inputs(name)
    made = tuple(found.values())
    check_names(made, errors)
    return Logs(made, _feed(made))


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


def _feed(inputs: tuple[Input, ...]) -> Ground:
    origins: dict[str, Origin] = {}
    for log, each in enumerate(inputs):
        for col in each.schema.columns:
            name = feed_name(log, col.name, len(inputs))
            origins[name] = Origin(col.type, {log: col.name}, col.name == each.event_time)
    retracts = any(each.retracts for each in inputs)
    time = None
    if inputs and inputs[0].event_time is not None:
        time = feed_name(0, inputs[0].event_time, len(inputs))
    return Ground(feed_table(), origins, time=time, retracts=retracts)


def _names(tree: exp.Expr) -> list[str]:
    """The logs that a query reads, in the order of FROM."""
    if isinstance(tree, exp.Table):
        common = common_of(tree)
        return [tree.name] if common is None else _names(common.this)
    if isinstance(tree, exp.SetOperation):
        return [*_names(tree.this), *_names(tree.expression)]
    if isinstance(tree, exp.Subquery):
        return [*_names(tree.this), *_joined_names(tree)]
    if isinstance(tree, exp.Select):
        source = tree.args.get("from_")
        return [] if source is None else [*_names(source.this), *_joined_names(tree)]
    return []


def _joined_names(tree: exp.Expr) -> list[str]:
    return [name for join in tree.args.get("joins") or [] for name in _names(join.this)]

"""Binding the functions of DATE and TIMESTAMP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import DATE, INTEGER, TIMESTAMP
from millstream.sql.expressions import times
from millstream.sql.expressions.fold import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder
    from millstream.sql.expressions.nodes import Node, Tree


def time_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a DATE or a TIMESTAMP."""
    # sqlglot wraps the argument of YEAR and its kin in a conversion, which changes nothing here.
    tree = tree.this if isinstance(tree, exp.TsOrDsToDate) else tree
    node = binder.bind(tree)
    if node.type not in {DATE, TIMESTAMP}:
        binder.mismatch(
            tree, f"expected DATE or TIMESTAMP, got {node.type.sql}", "Write TIMESTAMP '...'."
        )
    return node


def _field(name: str) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        return field(binder, tree, name, time_of(binder, tree.this))

    return bind


def field(binder: Binder, tree: exp.Expr, name: str, node: Node) -> Node:
    """Return a field of a DATE or TIMESTAMP."""
    if name in {"HOUR", "MINUTE", "SECOND"}:
        node = binder.coerce(tree, node, TIMESTAMP)
    op = times.field(name, node.type)
    if op is None:
        binder.refuse(tree, f"there is no {name} of a time", "Use YEAR, MONTH, DAY, HOUR, MINUTE.")
    return call(op, node, of=INTEGER)


_EXTRACT = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")},
    "WEEK": "WEEKOFYEAR",
    "DOW": "DAYOFWEEK",
    "DOY": "DAYOFYEAR",
    "DAYOFWEEK": "DAYOFWEEK",
}


def _extract(binder: Binder, tree: exp.Extract) -> Node:
    name = _EXTRACT.get(tree.this.name.upper())
    if name is None:
        binder.refuse(
            tree,
            f"EXTRACT({tree.this.name.upper()} ...) is not supported",
            f"EXTRACT takes {', '.join(_EXTRACT)}; for whole seconds, use SECOND(time).",
        )
    return field(binder, tree, name, time_of(binder, tree.expression))


def _truncate(binder: Binder, tree: exp.TimestampTrunc) -> Node:
    unit = times.UNITS.get(tree.args["unit"].name.upper())
    if unit is None:
        binder.refuse(
            tree, "DATE_TRUNC does not know this unit", f"It knows {', '.join(times.UNITS)}."
        )
    node = binder.coerce(tree, time_of(binder, tree.this), TIMESTAMP)
    return call(times.truncation(unit), node, of=TIMESTAMP)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Year: _field("YEAR"),
    exp.Quarter: _field("QUARTER"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.DayOfMonth: _field("DAY"),
    exp.DayOfWeek: _field("DAYOFWEEK"),
    exp.DayOfYear: _field("DAYOFYEAR"),
    exp.WeekOfYear: _field("WEEKOFYEAR"),
    exp.Hour: _field("HOUR"),
    exp.Minute: _field("MINUTE"),
    exp.Second: _field("SECOND"),
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncate,
}

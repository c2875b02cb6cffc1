"""Aggregates that go by the order of their input, in a line of operators, where rows have none.

Those that have one answer in some order are written so that they have it: lists in the order that
WITHIN GROUP says, equal ones of it by the value; sets sorted; of the most frequent values, and of
any, the least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.sql.views.functions import function_name
from millstream.sql.views.trees import both, call, column, not_null, text

if TYPE_CHECKING:
    from millstream.sql.views.errors import ErrorReporter

_LISTS: Final = ("array_agg", "collect_list")
_TEXTS: Final = ("listagg", "string_agg")
_WRAPPERS: Final = (exp.Filter, exp.WithinGroup)


def rewrite_ordered(tree: exp.Query, errors: ErrorReporter) -> None:
    """Write the aggregates of a query that go by an order, but those with OVER.

    Raises:
        SqlUnsupportedError: WITHIN GROUP of a list mixes directions.
    """
    for each in list(tree.walk(bfs=False)):
        name = function_name(each)
        outer = each
        while isinstance(outer.parent, _WRAPPERS) and outer.parent.this is outer:
            outer = outer.parent
        if not each.expressions or isinstance(outer.parent, exp.Window):
            continue
        order = [part for part in _wrappers(each) if isinstance(part, exp.WithinGroup)]
        if name == "mode" and len(each.expressions) == 1 and not order:
            each.append("expressions", exp.true())
        elif name == "any_value" and len(each.expressions) == 1:
            each.set("this", "min")
        elif name == "collect_set":
            outer.replace(call("sort_array", outer))
        elif name in _TEXTS and order and not isinstance(each.expressions[0], exp.Distinct):
            value = each.expressions[0].copy()
            order[0].expression.append("expressions", exp.Ordered(this=value, nulls_first=True))
        elif name in _LISTS and order:
            outer.replace(_list(each, order[0], errors))


def _wrappers(tree: exp.Expr) -> list[exp.Expr]:
    """What is around a call: FILTER, WITHIN GROUP."""
    found = list[exp.Expr]()
    while isinstance(tree.parent, _WRAPPERS) and tree.parent.this is tree:
        tree = tree.parent
        found.append(tree)
    return found


def _list(tree: exp.Expr, within: exp.Expr, errors: ErrorReporter) -> exp.Expr:
    """The values of a list, sorted as structs with their keys."""
    value, items = tree.expressions[0], within.expression.expressions
    directions = {bool(each.args.get("desc")) for each in items}
    usual = all(bool(each.args.get("nulls_first")) != bool(each.args.get("desc")) for each in items)
    if len(directions) > 1 or not usual or isinstance(value, exp.Distinct):
        hint = "Order by expressions in one direction, with NULLs where they are without saying so."
        errors.refuse(items[0], "WITHIN GROUP of a list has one direction", hint)
    keys = [(f"_o{place}", each.this) for place, each in enumerate(items)]
    fields = [part for name, each in (*keys, ("_v", value)) for part in (text(name), each)]
    conditions = [w.expression.this for w in _wrappers(tree) if isinstance(w, exp.Filter)]
    known = both([*conditions, not_null(value)])
    rows = exp.Filter(
        this=call("collect_list", call("named_struct", *fields)),
        expression=exp.Where(this=known),
    )
    ordered = call("sort_array", rows, exp.false() if directions == {True} else exp.true())
    field = exp.Lambda(this=column("_v", "_x"), expressions=[exp.to_identifier("_x")])
    return call("transform", ordered, field)

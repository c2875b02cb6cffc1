"""Aggregates: what a call of one says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.functions import AGGREGATES, function_name
from millstream.sql.views.trees import both, not_null

if TYPE_CHECKING:
    from millstream.sql.views.errors import ErrorReporter

_FIRSTS = {"first": "first", "first_value": "first", "any_value": "first"}
_LASTS = {"last": "last", "last_value": "last"}
_NAMES = {
    **_FIRSTS,
    **_LASTS,
    "mean": "avg",
    "array_agg": "collect_list",
    "string_agg": "listagg",
    "every": "bool_and",
    "any": "bool_or",
    "some": "bool_or",
    "std": "stddev",
    "var_samp": "variance",
    "stddev_samp": "stddev",
}
"""Aggregates with several names, and the one that is used here."""

_NO_VIEW = {
    "grouping": "Write one view for each grouping.",
    "grouping_id": "Write one view for each grouping.",
    "measure": "Write the aggregate itself.",
}
_ONE = ("sum", "avg", "min", "max", "first", "last", "count_if", "bool_and", "bool_or")
_ARITY = {
    **dict.fromkeys(_ONE, (1, 1)),
    "count": (1, 1000),
    "min_by": (2, 2),
    "max_by": (2, 2),
    "collect_list": (1, 1),
    "collect_set": (1, 1),
    "listagg": (1, 2),
}
"""How many arguments the aggregates have that are written otherwise for Spark."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The call of an aggregate.

    Attributes:
        name: which one, in small letters; of several names for one thing, always the same.
        args: what it is called with.
        tree: the call itself, without FILTER.
        distinct: whether equal values count once.
        condition: what FILTER says.
        order: what WITHIN GROUP (ORDER BY ...) says.
    """

    name: str
    args: tuple[exp.Expr, ...]
    tree: exp.Expr
    distinct: bool = False
    condition: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()


def read_aggregate(tree: exp.Expr, errors: ErrorReporter) -> Aggregate:
    """Return what a tree, for which ``is_aggregate`` holds, says."""
    inner, condition, order, ignore_nulls = _unwrapped(tree)
    spelled = function_name(inner)
    if spelled not in AGGREGATES or spelled in _NO_VIEW:
        hint = _NO_VIEW.get(spelled, "Use one of Spark's aggregates.")
        errors.refuse(tree, f"{spelled.upper() or 'this'} is not supported in a view", hint)
    name = _NAMES.get(spelled, spelled)
    args, distinct = list(inner.expressions), False
    if args and isinstance(args[0], exp.Distinct):
        args, distinct = args[0].expressions, True
    if name in {"first", "last"} and len(args) == 2:
        if args[1] not in {exp.true(), exp.false()}:
            what = f"the second argument of {spelled.upper()} is TRUE or FALSE"
            errors.refuse(args[1], what, "TRUE leaves out NULLs, as IGNORE NULLS does.")
        ignore_nulls = args.pop() == exp.true() or ignore_nulls
    low, high = _ARITY.get(name, (0, len(args)))
    if not low <= len(args) <= high:
        hint = "Leave out those that it does not take, or add those that are missing."
        errors.refuse(tree, f"{spelled.upper()} with {len(args)} arguments is not supported", hint)
    if ignore_nulls:
        condition = both([condition, not_null(args[0])])
    _check_inner([*args, *([] if condition is None else [condition])], errors)
    return Aggregate(name, tuple(args), inner, distinct, condition, order)


def _unwrapped(
    tree: exp.Expr,
) -> tuple[exp.Expr, exp.Expr | None, tuple[exp.Ordered, ...], bool]:
    """Return the call itself, what FILTER and ORDER BY say, and whether NULLs do not count."""
    condition: exp.Expr | None = None
    order: tuple[exp.Ordered, ...] = ()
    ignore_nulls = False
    while isinstance(tree, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(tree, exp.Filter):
            condition = both([condition, tree.expression.this])
        elif isinstance(tree, exp.WithinGroup):
            order = tuple(tree.expression.expressions)
        ignore_nulls = ignore_nulls or isinstance(tree, exp.IgnoreNulls)
        tree = tree.this
    return tree, condition, order, ignore_nulls


def _check_inner(trees: list[exp.Expr], errors: ErrorReporter) -> None:
    for tree in trees:
        if any(function_name(each) in AGGREGATES for each in tree.walk()):
            hint = "CREATE MATERIALIZED VIEW for the inner aggregate, and aggregate over that."
            errors.refuse(tree, "an aggregate of an aggregate is not supported", hint)

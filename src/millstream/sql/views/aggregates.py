"""Aggregates: what a call of one says, and Spark's own form of it for append-only input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.flow import LSN
from millstream.sql.views.functions import AGGREGATES, function_name
from millstream.sql.views.numbers import number_kind
from millstream.sql.views.trees import both, call, cast, column, iff, not_null, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Ground

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
    """The call of an aggregate, over columns of the ground.

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
    """Return what a resolved tree, for which ``is_aggregate`` holds, says."""
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


# --- Append-only input ----------------------------------------------------------------------------


def plain(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    """Return Spark's form of an aggregate over rows that never disappear.

    Raises:
        SqlUnsupportedError: its value would depend on more than the rows.
    """
    if aggregate.distinct and aggregate.name not in _DISTINCT:
        hint = "Leave DISTINCT out, or aggregate over a view that is SELECT DISTINCT."
        errors.refuse(aggregate.tree, f"{aggregate.name.upper()}(DISTINCT) is not supported", hint)
    make = _PLAIN.get(aggregate.name)
    if make is None:
        return _filtered(aggregate.tree, aggregate.condition, aggregate.order)
    return make(aggregate, ground, errors)


def _filtered(
    tree: exp.Expr, condition: exp.Expr | None, order: tuple[exp.Ordered, ...] = ()
) -> exp.Expr:
    made = tree.copy()
    if order:
        made = exp.WithinGroup(
            this=made, expression=exp.Order(expressions=[each.copy() for each in order])
        )
    if condition is None:
        return made
    return exp.Filter(this=made, expression=exp.Where(this=condition.copy()))


def _count(aggregate: Aggregate, ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    if not aggregate.distinct:
        return _filtered(aggregate.tree, aggregate.condition)
    value, known = distinct_value(aggregate, ground)
    return cast(call("size", _filtered(call("collect_set", value), known)), "BIGINT")


def distinct_value(aggregate: Aggregate, ground: Ground) -> tuple[exp.Expr, exp.Expr | None]:
    """Return the value that COUNT(DISTINCT ...) counts, and for which rows."""
    args = [_without_minus_zero(each, ground) for each in aggregate.args]
    if len(args) == 1:
        return args[0], aggregate.condition
    known = both([aggregate.condition, *(not_null(each) for each in aggregate.args)])
    return call("struct", *args), known


def _without_minus_zero(tree: exp.Expr, ground: Ground) -> exp.Expr:
    # 0.0 and -0.0 are one value to DISTINCT, but not to collect_set.
    if number_kind(tree, ground) != "float":
        return tree
    return exp.Add(this=exp.Paren(this=tree.copy()), expression=cast(text("0"), "DOUBLE"))


def moment(ground: Ground) -> exp.Expr:
    """Return what puts the rows of a ground in order: event time first, then the log's order."""
    return LSN.copy() if ground.time is None else call("struct", column(ground.time), LSN)


def _first(aggregate: Aggregate, ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    name = "min_by" if aggregate.name == "first" else "max_by"
    return _filtered(call(name, aggregate.args[0], moment(ground)), aggregate.condition)


def _by(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    value, by = aggregate.args[:2]
    made = call(aggregate.name, value, call("struct", by, LSN))
    return _filtered(made, both([aggregate.condition, not_null(by)]))


def _list(aggregate: Aggregate, _ground: Ground, errors: ErrorReporter) -> exp.Expr:
    value = aggregate.args[0]
    keys = [*_order_key(aggregate, errors), ("_l", LSN), ("_v", value)]
    fields = [each for name, tree in keys for each in (text(name), tree)]
    known = both([aggregate.condition, not_null(value)])
    rows = _filtered(call("collect_list", call("named_struct", *fields)), known)
    descending = bool(aggregate.order and aggregate.order[0].args.get("desc"))
    ordered = call("sort_array", rows, exp.false() if descending else exp.true())
    field = exp.Lambda(this=column("_v", "_x"), expressions=[exp.to_identifier("_x")])
    return call("transform", ordered, field)


def _order_key(aggregate: Aggregate, errors: ErrorReporter) -> list[tuple[str, exp.Expr]]:
    if len(aggregate.order) > 1:
        hint = "Order by one expression."
        errors.refuse(aggregate.order[1], "WITHIN GROUP orders by one expression", hint)
    return [("_o", each.this) for each in aggregate.order]


def _listagg(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    listed = _list(aggregate, ground, errors)
    separator = aggregate.args[1] if len(aggregate.args) > 1 else text("")
    joined = call("array_join", listed, separator)
    some = exp.GT(this=call("size", listed), expression=exp.Literal.number(0))
    return iff(some, joined, exp.Null())


def _set(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    return call("array_sort", _filtered(call("collect_set", *aggregate.args), aggregate.condition))


def _mode(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    if len(aggregate.args) == 1:
        made: exp.Expr = call("mode", aggregate.args[0], exp.true())
        return _filtered(made, aggregate.condition)
    return _filtered(aggregate.tree, aggregate.condition, aggregate.order)


_PLAIN: dict[str, Callable[[Aggregate, Ground, ErrorReporter], exp.Expr]] = {
    "count": _count,
    "first": _first,
    "last": _first,
    "min_by": _by,
    "max_by": _by,
    "collect_list": _list,
    "listagg": _listagg,
    "collect_set": _set,
    "mode": _mode,
}
_DISTINCT = {"count", "min", "max", "collect_set", "bool_and", "bool_or"}
"""Aggregates whose value with DISTINCT is known; for most of them it makes no difference."""

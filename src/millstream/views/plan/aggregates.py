"""Aggregates that go by the order of their input, in a dataflow, where rows have none.

They are written by what puts rows in order: event time and LSN, as far as rows have these (see
``log_order``). What has one answer without it is written so that it has it: lists in the order that
WITHIN GROUP says, equal ones of it by the value; sets sorted; of the most frequent values, and of
any, the least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.views.plan.functions import AGGREGATES, function_name
from millstream.views.plan.trees import both, call, column, is_null, not_null, number, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.views.plan.errors import ErrorReporter
    from millstream.views.plan.log_order import LogOrder

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

_WRAPPERS: Final = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)


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


def rewrite_ordered(tree: exp.Query, orders: LogOrder, errors: ErrorReporter) -> None:
    """Write the aggregates of a query that go by an order, but those with OVER.

    Raises:
        SqlUnsupportedError: there is no order to go by, or WITHIN GROUP of a list mixes directions.
    """
    # The inner ones first: to be passed on in order, the rows of WITH are copied.
    for query in reversed(list(tree.find_all(exp.Select))):
        for each in list(_own(query)):
            make = _FORMS.get(function_name(each))
            outer = _wrapped(each)
            is_over = isinstance(outer.parent, exp.Window)
            if make is None or is_over or not each.expressions:
                continue
            made = make(read_aggregate(outer, errors), query, orders, errors)
            if made is not None:
                outer.replace(made)


def _own(query: exp.Select) -> list[exp.Expr]:
    """The nodes of a SELECT without those of its subqueries, the inner ones first."""
    found = list(query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query))
    return found[::-1]


def _wrapped(tree: exp.Expr) -> exp.Expr:
    """A call with what belongs to it: FILTER, WITHIN GROUP, IGNORE NULLS."""
    while isinstance(tree.parent, _WRAPPERS) and tree.parent.this is tree:
        tree = tree.parent
    return tree


def _where(made: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    if condition is None:
        return made
    return exp.Filter(this=made, expression=exp.Where(this=condition.copy()))


def _first(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    """FIRST and LAST: the value of the least and of the greatest place in the order."""
    spelled = function_name(aggregate.tree)
    if aggregate.distinct:
        hint = "Leave DISTINCT out, or aggregate over a view that is SELECT DISTINCT."
        errors.refuse(aggregate.tree, f"{spelled.upper()}(DISTINCT) is not supported", hint)
    if aggregate.order:
        return _first_by(aggregate, query, orders)
    keys = orders.of(query).keys
    if not keys and spelled == "any_value":
        return _where(call("min", aggregate.args[0]), aggregate.condition)
    if not keys:
        hint = f"Write {spelled.upper()}(x ORDER BY y) with a column y to go by."
        what = f"{spelled.upper()} depends on the order of rows, and they have none here"
        errors.refuse(aggregate.tree, what, hint)
    name = "min_by" if aggregate.name == "first" else "max_by"
    return _where(call(name, aggregate.args[0], call("struct", *keys)), aggregate.condition)


def _first_by(aggregate: Aggregate, query: exp.Select, orders: LogOrder) -> exp.Expr:
    """FIRST(x ORDER BY y) and LAST: by y, then by the place in the log, then by the value."""
    value, is_first = aggregate.args[0], aggregate.name == "first"
    keys = _list_keys(aggregate, orders.of(query).lsn)
    if _is_uniform(aggregate.order):
        descends = bool(aggregate.order[0].args.get("desc"))
        name = "min_by" if is_first != descends else "max_by"
        order = call("struct", *(each for _, each in keys), value)
        return _where(call(name, value, order), aggregate.condition)
    rows = _sorted_rows(aggregate, keys, aggregate.condition)
    place: exp.Expr = number(0)
    if not is_first:
        place = exp.Sub(this=call("size", rows), expression=number(1))
    return exp.Dot(this=call("get", rows, place), expression=exp.to_identifier("_v", quoted=True))


def _by(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    """MIN_BY and MAX_BY: ties by the place in the log, where rows have one."""
    del errors
    lsn, (value, by) = orders.of(query).lsn, aggregate.args
    if lsn is None:
        return None
    made = call(aggregate.name, value, call("struct", by, lsn))
    return _where(made, both([aggregate.condition, not_null(by)]))


def _list(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    """The values of a list: in the order that it says, then in that of the log, then by value."""
    value, items = aggregate.args[0], aggregate.order
    if aggregate.distinct:
        return _distinct_list(aggregate, errors)
    lsn = orders.of(query).lsn
    if not items and lsn is None:
        return call("sort_array", _where(call("collect_list", value), aggregate.condition))
    known = both([aggregate.condition, not_null(value)])
    ordered = _sorted_rows(aggregate, _list_keys(aggregate, lsn), known)
    field = exp.Lambda(this=column("_v", "_x"), expressions=[exp.to_identifier("_x")])
    return call("transform", ordered, field)


def _distinct_list(aggregate: Aggregate, errors: ErrorReporter) -> exp.Expr:
    """Different values, sorted."""
    value, items = aggregate.args[0], aggregate.order
    if items and (len(items) > 1 or items[0].this != value or not _is_uniform(items)):
        hint = "Order it by what it aggregates: ARRAY_AGG(DISTINCT x ORDER BY x)."
        errors.refuse(items[0], "a list of DISTINCT values is ordered by these", hint)
    ascending = exp.false() if items and items[0].args.get("desc") else exp.true()
    return call("sort_array", _where(call("collect_set", value), aggregate.condition), ascending)


def _is_uniform(items: tuple[exp.Ordered, ...]) -> bool:
    """Whether an order has one direction, with NULLs where they are without saying so."""
    directions = {bool(each.args.get("desc")) for each in items}
    usual = all(bool(each.args.get("nulls_first")) != bool(each.args.get("desc")) for each in items)
    return len(directions) < 2 and usual


def _list_keys(aggregate: Aggregate, lsn: exp.Expr | None) -> list[tuple[str, exp.Expr]]:
    """By what a list is ordered, under the names of its fields."""
    keys = [(f"_o{place}", each.this) for place, each in enumerate(aggregate.order)]
    return keys if lsn is None else [*keys, ("_l", lsn)]


def _sorted_rows(
    aggregate: Aggregate, keys: list[tuple[str, exp.Expr]], condition: exp.Expr | None
) -> exp.Expr:
    """The values as structs with their keys, in order; a value is the field ``_v``."""
    given, items = [*keys, ("_v", aggregate.args[0])], aggregate.order
    fields = [part for name, each in given for part in (text(name), each)]
    rows = _where(call("collect_list", call("named_struct", *fields)), condition)
    if _is_uniform(items):
        descends = bool(items) and bool(items[0].args.get("desc"))
        return call("sort_array", rows, exp.false() if descends else exp.true())
    test: exp.Expr = number(0)
    for place, item in reversed(list(enumerate(items))):
        test = _compared(f"_o{place}", item, test)
    names = [exp.to_identifier("_x"), exp.to_identifier("_y")]
    # What the comparison takes for equal stays in the order that it had before.
    return call("array_sort", call("sort_array", rows), exp.Lambda(this=test, expressions=names))


def _compared(name: str, item: exp.Ordered, equal: exp.Expr) -> exp.Expr:
    """-1, 0 or 1: how a field of two structs compares, in the direction of an item of ORDER BY."""
    left, right = column(name, "_x"), column(name, "_y")
    descends, nulls_first = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
    before, after = number(-1), number(1)
    made = exp.Case()
    made.when(exp.NullSafeEQ(this=left, expression=right), equal, copy=False)
    made.when(is_null(left), before if nulls_first else after, copy=False)
    made.when(is_null(right), after if nulls_first else before, copy=False)
    test = exp.LT(this=left.copy(), expression=right.copy())
    made.when(test, after.copy() if descends else before.copy(), copy=False)
    return made.else_(before.copy() if descends else after.copy(), copy=False)


def _text(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    """LISTAGG: in the order that it says, then in that of the log, then by the value."""
    del errors
    if aggregate.distinct and aggregate.order:
        return None
    lsn = None if aggregate.distinct else orders.of(query).lsn
    keys: list[exp.Expr] = [each.copy() for each in aggregate.order]
    last = [aggregate.args[0]] if lsn is None else [lsn, aggregate.args[0]]
    keys += [exp.Ordered(this=each.copy(), nulls_first=True) for each in last]
    made = exp.WithinGroup(this=aggregate.tree.copy(), expression=exp.Order(expressions=keys))
    return _where(made, aggregate.condition)


def _set(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    del query, orders, errors
    made = _where(aggregate.tree.copy(), aggregate.condition)
    return call("sort_array", made)


def _mode(
    aggregate: Aggregate, query: exp.Select, orders: LogOrder, errors: ErrorReporter
) -> exp.Expr | None:
    """MODE: of the most frequent values the least."""
    del query, orders, errors
    if len(aggregate.args) != 1 or aggregate.order:
        return None
    return _where(call("mode", aggregate.args[0], exp.true()), aggregate.condition)


_FORMS: Final[dict[str, Callable[..., exp.Expr | None]]] = {
    **dict.fromkeys(("any_value", "first", "first_value", "last", "last_value"), _first),
    **dict.fromkeys(("min_by", "max_by"), _by),
    **dict.fromkeys(("array_agg", "collect_list"), _list),
    **dict.fromkeys(("listagg", "string_agg"), _text),
    "collect_set": _set,
    "mode": _mode,
}

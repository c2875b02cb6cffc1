"""Weighted aggregates: exact over rows that may disappear again.

A row that disappears comes a second time with the weight -1, so sums subtract what they added, and
what has no inverse (MIN, MAX, FIRST, COUNT DISTINCT) uses our own functions, whose state is the
group's multiset of values. ``_weight`` is 1 or -1; a row that FILTER leaves out weighs 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.sql.views.aggregates import distinct_value
from millstream.sql.views.flow import WEIGHT
from millstream.sql.views.numbers import number_kind, number_type
from millstream.sql.views.trees import (
    both,
    call,
    cast,
    closed,
    column,
    iff,
    is_null,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.views.aggregates import Aggregate
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Ground
    from millstream.sql.views.numbers import Kind

_ZERO = number(0)
_INSTEAD = {
    "approx_count_distinct": "Write COUNT(DISTINCT ...), which is exact here.",
    "approx_percentile": "Only rows that never disappear can be approximated; read a source.",
}
_OTHERWISE = (
    "Rows of the input may disappear. COUNT, SUM, AVG, MIN, MAX, MIN_BY, MAX_BY, BOOL_AND, "
    "BOOL_OR and COUNT(DISTINCT) take them back exactly; for others, read a source."
)
_MOST_DIGITS = 14
"""Up to so many digits the average of a DECIMAL is rounded once, as Spark rounds it, for groups of
less than a thousand million rows; with more, Spark's division would round twice."""


def weighted(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    """Return the form of an aggregate that takes back what disappears.

    Raises:
        SqlUnsupportedError: there is none that is exact.
    """
    make = _WEIGHTED.get(aggregate.name)
    if make is None or (aggregate.distinct and aggregate.name not in _DISTINCT):
        name = f"{aggregate.name.upper()}{'(DISTINCT)' if aggregate.distinct else ''}"
        hint = _INSTEAD.get(aggregate.name, _OTHERWISE)
        errors.refuse(aggregate.tree, f"{name} is not supported over rows that change", hint)
    return make(_guarded(aggregate), ground, errors)


def _guarded(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate whose arguments are computed only where FILTER takes the row."""
    if aggregate.condition is None:
        return aggregate
    simple = (exp.Column, exp.Literal, exp.Star)
    args = [
        each if isinstance(each, simple) else iff(aggregate.condition, each, exp.Null())
        for each in aggregate.args
    ]
    return replace(aggregate, args=tuple(args))


def average(total: exp.Expr, count: exp.Expr, kind: Kind, exact: SqlType | None) -> exp.Expr | None:
    """Return a sum divided by a count, of the type that AVG has; None when that is not known.

    Args:
        total: the sum.
        count: how many values it is of; there is at least one.
        kind: of which kind the values are.
        exact: their type.
    """
    if kind == "integer":
        return exp.Div(this=cast(total, "DOUBLE"), expression=closed(count))
    quotient = exp.Div(this=closed(total), expression=closed(count))
    if kind == "float":
        return quotient
    if exact is None or exact.arrow.precision > _MOST_DIGITS:
        return None
    return cast(quotient, f"DECIMAL({exact.arrow.precision + 4}, {exact.arrow.scale + 4})")


def refuse_average(tree: exp.Expr, errors: ErrorReporter) -> NoReturn:
    """Raise the error of an average whose type ``average`` does not know."""
    hint = f"Write AVG(CAST(... AS DECIMAL({_MOST_DIGITS}, 2))), or CAST it to DOUBLE."
    errors.refuse(tree, "AVG of a DECIMAL with so many digits is not supported here", hint)


def known_kind(tree: exp.Expr, name: str, ground: Ground, errors: ErrorReporter) -> Kind:
    """Return of which kind a number is, which must be known."""
    kind = number_kind(tree, ground)
    if kind is None:
        hint = f"Write {name.upper()}(CAST(... AS DOUBLE)), or AS BIGINT, or AS a DECIMAL."
        errors.refuse(tree, f"the type of what {name.upper()} adds up is not known here", hint)
    return kind


# --- The aggregates -------------------------------------------------------------------------------


def _weight(aggregate: Aggregate) -> exp.Expr:
    if aggregate.condition is None:
        return WEIGHT.copy()
    return iff(aggregate.condition, WEIGHT, _ZERO)


def _added(tree: exp.Expr) -> exp.Expr:
    # Like COUNT it is never NULL, not even of no rows at all.
    return exp.Coalesce(this=call("sum", tree), expressions=[_ZERO.copy()])


def _counted(aggregate: Aggregate) -> exp.Expr:
    """Return how many rows have no NULL among the arguments."""
    unknown = [is_null(each) for each in aggregate.args]
    return _added(iff(exp.or_(*unknown), _ZERO, _weight(aggregate)))


def _count(aggregate: Aggregate, ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    if aggregate.distinct:
        value, known = distinct_value(aggregate, ground)
        weight = WEIGHT.copy() if known is None else iff(known, WEIGHT, _ZERO)
        return call("ms_count_distinct", value, weight)
    if not aggregate.args or isinstance(aggregate.args[0], exp.Star | exp.Literal):
        return _added(_weight(aggregate))
    return _counted(aggregate)


def _count_if(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    holds = both([aggregate.condition, aggregate.args[0]])
    return _added(iff(holds or aggregate.args[0], WEIGHT, _ZERO))


def _total(aggregate: Aggregate, kind: Kind) -> exp.Expr:
    value, weight = aggregate.args[0], _weight(aggregate)
    if kind == "float":
        return call("ms_sum", value, weight)
    if kind == "integer":
        return call("sum", exp.Mul(this=closed(value), expression=weight))
    # Not a product: its type would have more digits than the sum of the values has.
    signed = exp.Case(
        ifs=[
            exp.If(this=exp.GT(this=weight, expression=_ZERO.copy()), true=value.copy()),
            exp.If(
                this=exp.LT(this=weight.copy(), expression=_ZERO.copy()),
                true=exp.Neg(this=closed(value)),
            ),
        ]
    )
    return call("sum", signed)


def _where_some(aggregate: Aggregate, value: exp.Expr) -> exp.Expr:
    """Return a value, or NULL when the group has no row for it any more."""
    some = exp.GT(this=_counted(aggregate), expression=_ZERO.copy())
    return exp.Case(ifs=[exp.If(this=some, true=value)])


def _sum(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    kind = known_kind(aggregate.args[0], "sum", ground, errors)
    total = _total(aggregate, kind)
    return total if kind == "float" else _where_some(aggregate, total)


def _avg(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    value = aggregate.args[0]
    kind = known_kind(value, "avg", ground, errors)
    exact = number_type(value, ground)
    mean = average(_total(aggregate, kind), _counted(aggregate), kind, exact)
    if mean is None:
        refuse_average(aggregate.tree, errors)
    return _where_some(aggregate, mean)


def _extreme(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    return call(f"ms_{aggregate.name}", aggregate.args[0], _weight(aggregate))


def _truth(aggregate: Aggregate, _ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    value = closed(aggregate.args[0])
    if aggregate.name == "bool_or":
        holds = _added(iff(value, _weight(aggregate), _ZERO))
        return _where_some(aggregate, exp.GT(this=holds, expression=_ZERO.copy()))
    fails = _added(iff(exp.Not(this=value), _weight(aggregate), _ZERO))
    return _where_some(aggregate, exp.EQ(this=fails, expression=_ZERO.copy()))


def _first(aggregate: Aggregate, ground: Ground, errors: ErrorReporter) -> exp.Expr:
    keys = [column(name) for name in (ground.time, ground.row_lsn) if name is not None]
    if not keys:
        hint = "Write MIN_BY(x, y) or MAX_BY(x, y) with a column y to go by."
        what = f"{aggregate.name.upper()} over rows that change has no order to go by"
        errors.refuse(aggregate.tree, what, hint)
    # Not _lsn: a row that disappears has another one than when it came. Where all keys are equal,
    # ms_first and ms_last go by the value.
    return call(
        f"ms_{aggregate.name}", aggregate.args[0], call("struct", *keys), _weight(aggregate)
    )


def _by(aggregate: Aggregate, ground: Ground, _errors: ErrorReporter) -> exp.Expr:
    value, by = aggregate.args[:2]
    weight = iff(is_null(by), _ZERO, _weight(aggregate))
    name = "ms_first" if aggregate.name == "min_by" else "ms_last"
    keys = [by] if ground.row_lsn is None else [by, column(ground.row_lsn)]
    return call(name, value, call("struct", *keys), weight)


_WEIGHTED: dict[str, Callable[[Aggregate, Ground, ErrorReporter], exp.Expr]] = {
    "count": _count,
    "count_if": _count_if,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme,
    "max": _extreme,
    "bool_and": _truth,
    "bool_or": _truth,
    "first": _first,
    "last": _first,
    "min_by": _by,
    "max_by": _by,
}
_DISTINCT = {"count", "min", "max", "bool_and", "bool_or"}

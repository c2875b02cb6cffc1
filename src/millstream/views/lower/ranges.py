"""Inequalities in the condition of a join: what a side's rows are ordered by, and their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.views.lower.event_time import ordered, shifted
from millstream.views.lower.plans import conjuncts, kind_of

if TYPE_CHECKING:
    from millstream.views.lower.plans import Scala

_WHOLE: Final = {"byte", "short", "integer", "long"}
_TYPES: Final = {*_WHOLE, "double", "date", "timestamp", "timestamp_ntz"}


class _Bound(NamedTuple):
    """A comparison, as a bound of one side's values.

    Attributes:
        value: what is compared, of the side.
        limit: what it is compared with, of the other side.
        is_upper: whether the value is at most the limit.
        shift: how many microseconds are added to the limit.
    """

    value: Any
    limit: Any
    is_upper: bool
    shift: int


def ranges_of(
    scala: Scala,
    sides: tuple[Any, Any],
    rows: list[Any],
    condition: Any,  # noqa: ANN401
) -> list[Any]:
    """By what the rows of each side of a join are ordered; None for one that is not.

    Args:
        scala: to make objects of Spark's.
        sides: the plans of both.
        rows: the columns of each that are kept.
        condition: that of the join.
    """
    made: list[Any] = [None, None]
    for own, other in ((0, 1), (1, 0)):
        bounds = _chosen(_bounds_of(sides[own], sides[other], condition))
        if not bounds:
            continue
        value = scala.seq([scala.alias(bounds[0].value)])
        limits = scala.seq([scala.alias(each.limit) for each in bounds])
        made[own] = scala.dataflow.Range(value, rows[own], limits, rows[other])
        for each in bounds:
            made[own].addBound(each.is_upper, each.shift)
    return made


def _bounds_of(side: Any, other: Any, condition: Any) -> list[_Bound]:  # noqa: ANN401
    found = []
    for each in conjuncts(condition):
        lower, upper = ordered(each)
        if lower is None or str(lower.dataType().typeName()) not in _TYPES:
            continue
        (less, plus), (more, also) = shifted(lower), shifted(upper)
        if _is_of(less, side) and _is_of(more, other):
            found.append(_Bound(less, more, is_upper=True, shift=also - plus))
        elif _is_of(more, side) and _is_of(less, other):
            found.append(_Bound(more, less, is_upper=False, shift=plus - also))
    return found


def _is_of(expression: Any, side: Any) -> bool:  # noqa: ANN401
    """Whether an expression is a column of a side, which no row fails on."""
    if kind_of(expression) == "Cast" and str(expression.dataType().typeName()) in {
        "long",
        "double",
    }:
        expression = expression.child()
        if str(expression.dataType().typeName()) not in _WHOLE:
            return False
    is_column = kind_of(expression) == "AttributeReference"
    return is_column and bool(side.outputSet().contains(expression))


def _chosen(bounds: list[_Bound]) -> list[_Bound]:
    """The bounds of the value that has most: best are those from both ends."""
    best: list[_Bound] = []
    for each in bounds:
        same = [other for other in bounds if other.value.semanticEquals(each.value)]
        if len({one.is_upper for one in same}) > len({one.is_upper for one in best}):
            best = same
    return best

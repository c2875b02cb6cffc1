"""Conditions on the time, ``ts > NOW() - INTERVAL '5' MINUTE``, for the operator ``Moments``.

``sql.views.now`` writes them as EXISTS over the clock's log, which Spark makes a semi join with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import SqlUnsupportedError
from millstream.spark.plans import CLOCK_TIME, LogLeaf, conjuncts, each_of, kind_of
from millstream.sql.inputs import CLOCK_COLUMN

_SHAPE: Final = "write ts > NOW() - INTERVAL '5 minutes': a timestamp, and days or less"
_FLIPPED: Final = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A moment at which a row comes or goes.

    Attributes:
        time: the expression of a timestamp, of Java, over the row.
        is_end: whether the row goes then, and is not there any more; else it comes.
        shift: how many microseconds are added to the time.
    """

    time: Any
    is_end: bool
    shift: int


def is_clock(side: Any, logs: dict[int, LogLeaf]) -> bool:  # noqa: ANN401 - a plan of Java
    """Whether a plan reads the log of the clock, and nothing else."""
    leaf = side
    while kind_of(leaf) in {"Project", "Filter"}:
        leaf = leaf.child()
    return kind_of(leaf) == "LogicalRDD" and logs[leaf.rdd().id()].time == CLOCK_TIME


def read_bounds(node: Any) -> tuple[Any, list[Bound]]:  # noqa: ANN401 - a plan of Java
    """The column of the time, and the bounds that the condition of a join with the clock has.

    Raises:
        SqlUnsupportedError: it is more than comparisons of the time with values of a row.
    """
    [now] = [each for each in each_of(node.right().output()) if str(each.name()) == CLOCK_COLUMN]
    condition = node.condition().get() if node.condition().isDefined() else None
    found = [_bound(each, now, node.left()) for each in conjuncts(condition)]
    bounds = [each for each in found if each is not None]
    if not bounds or len(bounds) < len(found):
        raise SqlUnsupportedError("this condition on NOW() is not supported in a view", hint=_SHAPE)
    return now, bounds


def _bound(test: Any, now: Any, side: Any) -> Bound | None:  # noqa: ANN401
    """The bound that a comparison is; None when it is something else."""
    kind = kind_of(test)
    if kind not in _FLIPPED:
        return None
    time, clock = test.left(), test.right()
    if _shift(clock, now) is None:
        time, clock, kind = clock, time, _FLIPPED[kind]
    shift = _shift(clock, now)
    is_time = kind_of(time.dataType()).removesuffix("$") == "TimestampType"
    if shift is None or not is_time or not time.references().subsetOf(side.outputSet()):
        return None
    # It is time < now + shift, and so on: the row comes at time - shift, or just after it.
    after = 1 if kind in {"LessThan", "GreaterThanOrEqual"} else 0
    return Bound(time, kind.startswith("Greater"), after - shift)


def _shift(expression: Any, now: Any) -> int | None:  # noqa: ANN401
    """How many microseconds an expression adds to the time; None when it is something else."""
    if kind_of(expression) == "AttributeReference":
        return 0 if expression.exprId().equals(now.exprId()) else None
    if kind_of(expression) != "TimestampAddInterval":
        return None
    interval, before = expression.interval(), _shift(expression.start(), now)
    is_exact = interval.foldable() and kind_of(interval.dataType()) == "DayTimeIntervalType"
    return before + int(interval.eval(None)) if is_exact and before is not None else None

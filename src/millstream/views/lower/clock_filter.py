"""Conditions on the time, ``ts > NOW() - INTERVAL '5' MINUTE``, for the operator ``ClockFilter``.

``views.plan.now`` writes them as EXISTS over the clock's log, which Spark makes a semi
join with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlUnsupportedError
from millstream.sql.inputs import CLOCK_COLUMN
from millstream.views.lower.plans import CLOCK_TIME, LogLeaf, conjuncts, each_of, find_all, kind_of

if TYPE_CHECKING:
    from millstream.views.lower.plans import Scala

_SHAPE: Final = "write ts > NOW() - INTERVAL '5 minutes': a timestamp, and days or less"
_FLIPPED: Final = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
_NEGATED: Final = {
    "LessThan": "GreaterThanOrEqual",
    "LessThanOrEqual": "GreaterThan",
    "GreaterThan": "LessThanOrEqual",
    "GreaterThanOrEqual": "LessThan",
}
_MOST: Final = 64
"""So many alternatives a condition may have."""


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


@dataclass(frozen=True, slots=True)
class Alternative:
    """When a row is there: of those that OR joins, one.

    Attributes:
        bounds: it comes at the last of those at which it comes, and goes at the first other one.
        conditions: expressions over the row, of Java, which must all be true.
    """

    bounds: list[Bound]
    conditions: list[Any]


def is_clock(side: Any, logs: dict[int, LogLeaf]) -> bool:  # noqa: ANN401 - a plan of Java
    """Whether a plan reads the log of the clock, and nothing else."""
    leaf = side
    while kind_of(leaf) in {"Project", "Filter"}:
        leaf = leaf.child()
    return kind_of(leaf) == "LogicalRDD" and logs[leaf.rdd().id()].time == CLOCK_TIME


def read_bounds(scala: Scala, node: Any) -> tuple[Any, list[Alternative]]:  # noqa: ANN401
    """The column of the time, and the alternatives of the condition of a join with the clock.

    Args:
        scala: to make objects of Spark's.
        node: the join, a plan of Java.

    Raises:
        SqlUnsupportedError: it is more than comparisons of the time with values of a row.
    """
    [now] = [each for each in each_of(node.right().output()) if str(each.name()) == CLOCK_COLUMN]
    condition = node.condition().get() if node.condition().isDefined() else None
    reader = _Reader(scala, now, node.left())
    found = [Alternative([], [])]
    for each in conjuncts(condition):
        found = _both(found, reader.alternatives(each, negated=False))
    if not any(each.bounds for each in found):
        raise _unsupported("this condition on NOW() is not supported in a view")
    return now, found


def _unsupported(message: str) -> SqlUnsupportedError:
    return SqlUnsupportedError(message, hint=_SHAPE)


def _both(left: list[Alternative], right: list[Alternative]) -> list[Alternative]:
    """The alternatives of two conditions that must both hold."""
    if len(left) * len(right) > _MOST:
        raise _unsupported("this condition on NOW() has too many alternatives")
    return [
        Alternative([*one.bounds, *other.bounds], [*one.conditions, *other.conditions])
        for one in left
        for other in right
    ]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads conditions: those that have the time become bounds, others stay as they are."""

    scala: Scala
    now: Any
    side: Any

    def alternatives(self, test: Any, *, negated: bool) -> list[Alternative]:  # noqa: ANN401
        kind = kind_of(test)
        if kind == "Not":
            return self.alternatives(test.child(), negated=not negated)
        if kind in {"And", "Or"}:
            left = self.alternatives(test.left(), negated=negated)
            right = self.alternatives(test.right(), negated=negated)
            return _both(left, right) if (kind == "And") != negated else left + right
        if not self._reads_clock(test):
            return [
                Alternative([], [self.scala.catalyst.expressions.Not(test) if negated else test])
            ]
        bound = _bound(_NEGATED.get(kind, kind) if negated else kind, test, self.now, self.side)
        if bound is None:
            raise _unsupported("this condition on NOW() is not supported in a view")
        return [Alternative([bound], [])]

    def _reads_clock(self, test: Any) -> bool:  # noqa: ANN401
        found = find_all(test, "AttributeReference")
        return any(each.exprId().equals(self.now.exprId()) for each in found)


def _bound(kind: str, test: Any, now: Any, side: Any) -> Bound | None:  # noqa: ANN401
    """The bound that a comparison of some kind is; None when it is something else."""
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

"""ASOF joins: what Spark's plan of one says, for the operators ``AsOf`` and ``Temporal``.

Spark gives the comparison of the times with the left side's first. NEAREST is a condition besides,
as ``views.plan.asof`` writes it; what else is besides the equalities is a tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlTypeError, SqlUnsupportedError
from millstream.views.lower.plans import (
    conjuncts,
    each_of,
    find_all,
    is_temporal,
    kind_of,
    parts_of,
    subqueries_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_BACKWARD, _FORWARD, _NEAREST = 0, 1, 2

_COMPARISONS: Final = {
    "GreaterThanOrEqual": (_BACKWARD, False),
    "GreaterThan": (_BACKWARD, True),
    "LessThanOrEqual": (_FORWARD, False),
    "LessThan": (_FORWARD, True),
}
_WORDS: Final = ("at or before", "at or after", "nearest")
_BY_ROW: Final = ("Expand", "Filter", "Generate", "Project", "Union")
_MEASURED: Final = ("timestamp", "timestamp_ntz", "date", "integer", "long")
"""Types of which the operator knows how far two values are apart."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """An ASOF join; expressions are objects of Java.

    Attributes:
        times: the expression of the time on each side.
        keys: the expressions that must be equal, on each side.
        direction: where the match is, see ``AsOf.java``.
        strict: whether one at the same time is none.
        tolerance: what must hold besides; None when nothing.
    """

    times: tuple[Any, Any]
    keys: tuple[list[Any], list[Any]]
    direction: int
    strict: bool
    tolerance: Any

    @property
    def text(self) -> str:
        """Which rows match, for people."""
        times = [text_of([each]) for each in self.times]
        word = _WORDS[self.direction].split()[-1] if self.strict else _WORDS[self.direction]
        bound = "" if self.tolerance is None else f", where {text_of([self.tolerance])}"
        return f"{times[1]} {word} {times[0]}{bound}"


def read_asof(catalyst: Any, node: Any) -> AsOf:  # noqa: ANN401 - a package, a plan of Java
    """What a node AsOfJoin says.

    Raises:
        SqlUnsupportedError: it has a condition that is neither an equality nor a tolerance.
        SqlTypeError: it is the nearest by a type of which there are no distances.
    """
    test = node.asOfCondition()
    if kind_of(test) not in _COMPARISONS or any(
        each.references().isEmpty() for each in (test.left(), test.right())
    ):
        raise SqlUnsupportedError(
            "the comparison of an ASOF JOIN must be of a column of each side",
            hint="write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts",
        )
    direction, strict = _COMPARISONS[kind_of(test)]
    keys, rest = _keys_of(catalyst, node)
    bounds = [each for each in rest if not find_all(each, "FormatString")]
    if len(bounds) < len(rest):
        direction, strict = _NEAREST, False
        _check_measured(test.left().dataType())
    if not all(kind_of(each) in _COMPARISONS for each in bounds):
        raise SqlUnsupportedError(
            "an equality of an ASOF JOIN must be of a column of each side",
            hint="filter in WHERE, or in a subquery: ASOF JOIN (SELECT ... WHERE ...) AS b",
        )
    tolerance = _all_of(catalyst, bounds) if bounds else None
    return AsOf((test.left(), test.right()), keys, direction, strict, tolerance)


def read_temporal(
    catalyst: Any,  # noqa: ANN401
    node: Any,  # noqa: ANN401
    grows: Callable[[int], bool],
) -> tuple[list[Any], list[Any]]:
    """The keys of a join FOR SYSTEM_TIME AS OF, on each side.

    Args:
        catalyst: the package of Java.
        node: an AsOfJoin.
        grows: whether no row of what an RDD stands for ever goes, by its id.

    Raises:
        SqlUnsupportedError: the rows of a side do not come from logs one by one.
    """
    if not _is_rows(node.left(), grows) or not _is_rows(node.right(), lambda _: True):
        raise SqlUnsupportedError(
            "FOR SYSTEM_TIME AS OF joins rows of a source, which never change, with a table itself",
            hint="join and group what it gives: SELECT ... FROM (SELECT ... FOR SYSTEM_TIME ...)",
        )
    return _keys_of(catalyst, node)[0]


def _is_rows(node: Any, grows: Callable[[int], bool]) -> bool:  # noqa: ANN401
    """Whether the rows of a plan come from logs, one by one, in their order."""
    kind = kind_of(node)
    if kind == "LogicalRDD":
        return grows(node.rdd().id())
    if kind == "AsOfJoin" and is_temporal(node):
        return _is_rows(node.left(), grows)
    return kind in _BY_ROW and all(_is_rows(each, grows) for each in each_of(node.children()))


def _keys_of(catalyst: Any, node: Any) -> tuple[tuple[list[Any], list[Any]], list[Any]]:  # noqa: ANN401
    """The equalities of both sides, and the other conditions: as those of a plain join."""
    logical = catalyst.plans.logical
    inner = getattr(catalyst.plans, "Inner$").__getattr__("MODULE$")
    plain = logical.Join(
        node.left(), node.right(), inner, node.condition(), logical.JoinHint.NONE()
    )
    condition, keys = node.condition(), (list[Any](), list[Any]())
    equal = catalyst.planning.ExtractEquiJoinKeys.unapply(plain)
    if equal.isDefined():
        _, left, right, condition, *_ = parts_of(equal.get())
        keys = (each_of(left), each_of(right))
    return keys, conjuncts(condition.get() if condition.isDefined() else None)


def _all_of(catalyst: Any, conditions: list[Any]) -> Any:  # noqa: ANN401
    """The condition that several hold."""
    return reduce(catalyst.expressions.And, conditions)


def _check_measured(kind: Any) -> None:  # noqa: ANN401 - a DataType of Spark
    name = str(kind.typeName())
    if name not in _MEASURED:
        raise SqlTypeError(
            f"NEAREST is by TIMESTAMP, DATE, INTEGER or BIGINT, and this is {kind.sql()}",
            hint="CAST it",
        )


def with_column(
    columns: list[Any],
    expression: Any,  # noqa: ANN401
    named: Callable[[Any], Any],
) -> tuple[list[Any], int]:
    """Columns that have an expression among them, and its place; the last one if it was not.

    Args:
        columns: attributes.
        expression: what they are to have.
        named: gives an expression a name.
    """
    for place, each in enumerate(columns):
        if each.semanticEquals(expression):
            return columns, place
    return [*columns, named(expression)], len(columns)


def below_asof(jvm: Any, node: Any) -> Any:  # noqa: ANN401
    """A filter of which the conditions on the left side of an ASOF join are below it.

    Then rows that it drops are not kept. None when there are none, or there is no such join. Those
    on the right side hold after the match was found, and stay.
    """
    join = node.child()
    if kind_of(join) != "AsOfJoin":
        return None
    left = join.left().outputSet()
    tests = conjuncts(node.condition())
    moved = [
        each
        for each in tests
        if each.deterministic() and each.references().subsetOf(left) and not subqueries_of([each])
    ]
    if not moved:
        return None
    catalyst = jvm.org.apache.spark.sql.catalyst
    logical = catalyst.plans.logical
    filtered = logical.Filter(_all_of(catalyst, moved), join.left())
    sides = jvm.java.util.ArrayList()
    sides.add(filtered)
    sides.add(join.right())
    children = jvm.scala.jdk.javaapi.CollectionConverters.asScala(sides).toIndexedSeq()
    made = join.withNewChildren(children)
    left_over = [each for each in tests if not any(each is other for other in moved)]
    return logical.Filter(_all_of(catalyst, left_over), made) if left_over else made

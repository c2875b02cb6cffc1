"""Tests for NULL that Catalyst infers from the keys of joins, left out again.

A join drops rows whose key has a NULL as they come. The tests differ between subplans that are
equal otherwise, by the joins that their readers are in: see ``merging``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.views.lower.plans import (
    conjuncts,
    each_of,
    id_of,
    inner,
    is_safe,
    kind_of,
    parts_of,
)
from millstream.views.lower.subqueries import with_subqueries

if TYPE_CHECKING:
    from millstream.views.lower.scala import Scala

_DROPS: Final = {
    "Inner": (True, True),
    "Cross": (True, True),
    "LeftSemi": (True, True),
    "LeftOuter": (False, True),
    "LeftAnti": (False, True),
    "RightOuter": (True, False),
}
"""Kinds of joins, and whether they drop rows of their sides whose key has a NULL."""

_SAFE_ABOVE: Final = {"AggregateExpression", "Alias", "Count", "Max", "Min"}
_SUMS: Final = {"Average", "Sum"}
_SMALL: Final = {"double", "float", "int", "smallint", "tinyint"}
_MOST_DIGITS: Final = 28
"""Of a decimal whose sum over ten thousand million rows fits."""


def without_null_tests(scala: Scala, node: Any, keys: frozenset[int] = frozenset()) -> Any:  # noqa: ANN401
    """Return a plan without these tests.

    Args:
        scala: to make objects of Spark's.
        node: the plan.
        keys: the columns, by their numbers, by which a join drops its rows that have a NULL there.
    """
    kind, children = kind_of(node), each_of(node.children())
    below = [frozenset[int]() for _ in children]
    if kind == "Join":
        below = _of_join(scala, node, keys)
    elif kind == "Project":
        below = [_given(scala, each_of(node.projectList()), keys)]
    elif kind == "Aggregate":
        groups = frozenset(map(id_of, each_of(node.groupingExpressions())))
        below = [groups & _given(scala, each_of(node.aggregateExpressions()), keys)]
    elif kind == "Filter":
        left = [each for each in conjuncts(node.condition()) if not _tests(each, keys)]
        if not left:
            return without_null_tests(scala, node.child(), keys)
        node = scala.catalyst.plans.logical.Filter(scala.all_of(left), node.child())
        below = [keys]
    made = [without_null_tests(scala, *each) for each in zip(children, below, strict=True)]
    node = node.withNewChildren(scala.seq(made))
    return with_subqueries(scala, node, lambda plan: without_null_tests(scala, plan))


def _given(scala: Scala, columns: list[Any], keys: frozenset[int]) -> frozenset[int]:
    """What columns are below a node that names them.

    None if one of its expressions may fail for a row that the test would have left out.
    """
    below = {id_of(each): id_of(inner(each)) for each in columns}
    found = frozenset(below[each] for each in keys if below.get(each, -1) != -1)
    return found if found and all(_has_value(scala, each) for each in columns) else frozenset()


def _has_value(scala: Scala, expression: Any) -> bool:  # noqa: ANN401
    """Whether an expression, perhaps with aggregates, has a value for any rows."""
    kind, children = kind_of(expression), each_of(expression.children())
    if kind in _SUMS:
        summed = str(children[0].dataType().catalogString())
        digits = summed.removeprefix("decimal(").partition(",")[0]
        fits = summed in _SMALL or (kind == "Average" and summed == "bigint")
        if not fits and not (digits != summed and int(digits) <= _MOST_DIGITS):
            return False
    elif kind not in _SAFE_ABOVE:
        return is_safe(scala, expression)
    return all(_has_value(scala, each) for each in children)


def _tests(condition: Any, keys: frozenset[int]) -> bool:  # noqa: ANN401
    return kind_of(condition) == "IsNotNull" and id_of(condition.child()) in keys


def _of_join(scala: Scala, node: Any, keys: frozenset[int]) -> list[frozenset[int]]:  # noqa: ANN401
    """The columns of the sides of a join."""
    kind, found = str(node.joinType().toString()), [set[int](), set[int]()]
    equal = scala.catalyst.planning.ExtractEquiJoinKeys.unapply(node)
    if not equal.isDefined() or kind not in _DROPS:
        return [frozenset(), frozenset()]
    _, left, right, *_ = parts_of(equal.get())
    for side, (expressions, drops) in enumerate(zip((left, right), _DROPS[kind], strict=True)):
        if drops:
            found[side] |= {id_of(each) for each in each_of(expressions)} - {-1}
        if kind in {"Inner", "Cross"}:
            columns = each_of(node.children())[side].output()
            found[side] |= keys & {id_of(each) for each in each_of(columns)}
    return [frozenset(each) for each in found]

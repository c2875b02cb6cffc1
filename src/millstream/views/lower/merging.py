"""Equal subplans of a plan, made one: those that differ only in the columns that they give.

Catalyst inlines what a query reads twice, then prunes the columns of each copy and pushes the
conditions of its reader into it. Here the copies that still compute the same rows are given all
columns that any of them has: they are equal then, and ``lowering`` makes them one operator.

Tests for NULL that Catalyst infers from the keys of joins are left out first: a join drops rows
whose key has a NULL as they come, and the tests differ between subplans that are equal otherwise,
by the joins that their readers are in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.spark.internals import plan_merger
from millstream.views.lower.plans import (
    attributes_of,
    conjuncts,
    each_of,
    id_of,
    inner,
    is_safe,
    kind_of,
    parts_of,
    subqueries_of,
)
from millstream.views.lower.subqueries import with_subqueries

if TYPE_CHECKING:
    from millstream.views.lower.plans import Scala

_KINDS: Final = ("Aggregate", "Join")
"""Nodes that are worth it, and that Spark can merge."""

_ROUNDS: Final = 2
"""A subplan may be equal to a part of others, which have become one in the first round."""


def merged(scala: Scala, plan: Any) -> Any:  # noqa: ANN401
    """Return a plan of which equal subplans are equal in their columns, too."""
    logs = _logs_of(plan)
    if len(set(logs)) == len(logs):
        return plan
    found = max(
        (_Merging(scala, each) for each in (plan, without_null_tests(scala, plan))),
        key=lambda each: each.saved,
    )
    for _ in range(_ROUNDS):
        if not found.saved:
            break
        found = _Merging(scala, found.rewritten(found.plan))
    return found.plan


def _logs_of(node: Any) -> list[int]:  # noqa: ANN401
    """The RDDs that a plan reads, each as often as it does."""
    found = [node.rdd().id()] if kind_of(node) == "LogicalRDD" else []
    below = [*each_of(node.children()), *each_of(node.subqueries())]
    return [*found, *(each for child in below for each in _logs_of(child))]


class _Merging:
    """Finds equal subplans, and replaces each by what they have in common.

    Args:
        scala: to make objects of Spark's.
        plan: the whole plan.

    Attributes:
        plan: the same.
    """

    def __init__(self, scala: Scala, plan: Any) -> None:  # noqa: ANN401
        self.plan = plan
        self._scala = scala
        self._merger = plan_merger(scala.jvm)
        self._counts: dict[int, int] = {}  # how many subplans are merged, by their index
        self._found: list[tuple[Any, Any]] = []  # a subplan, and what the merger says of it
        self._collect(plan)

    def _collect(self, node: Any) -> None:  # noqa: ANN401
        if kind_of(node) in _KINDS and node.deterministic():
            found = self._merger.merge(node, False)
            index = int(found.mergedPlanIndex())
            self._counts[index] = self._counts.get(index, 0) + 1
            self._found.append((node, found))
        for query in subqueries_of(each_of(node.expressions())):
            self._collect(query.plan())
        for child in each_of(node.children()):
            self._collect(child)

    @property
    def saved(self) -> int:
        """How many subplans are equal to another one."""
        return len(self._found) - len(self._counts)

    def rewritten(self, node: Any) -> Any:  # noqa: ANN401
        """Return a node with the subplans below it replaced, and itself if it is one."""
        condition = node.condition() if kind_of(node) == "Filter" else None
        below = node if condition is None else node.child()
        made = self._replaced(below)
        if made is not None and condition is None:
            return made
        if made is not None and not subqueries_of([condition]):
            return self._filter_below(condition, made)
        return self._rewritten_below(node)

    def _rewritten_below(self, node: Any) -> Any:  # noqa: ANN401
        children = [self.rewritten(each) for each in each_of(node.children())]
        made = node.withNewChildren(self._scala.seq(children))
        return with_subqueries(self._scala, made, self.rewritten)

    def _replaced(self, node: Any) -> Any | None:  # noqa: ANN401
        """Return what an equal subplan gives, as its own columns; None of one that is alone."""
        for each, found in self._found:
            index = int(found.mergedPlanIndex()) if each is node or each.equals(node) else -1
            if self._counts.get(index, 0) > 1:
                plan = self._rewritten_below(self._merger.mergedPlans().apply(index).plan())
                columns = [
                    self._column(plan.output().apply(found.outputMap().apply(own)), own)
                    for own in each_of(node.output())
                ]
                return self._scala.catalyst.plans.logical.Project(self._scala.seq(columns), plan)
        return None

    def _column(self, column: Any, own: Any) -> Any:  # noqa: ANN401
        return own if id_of(column) == id_of(own) else self._scala.alias(column, own)

    def _filter_below(self, condition: Any, project: Any) -> Any:  # noqa: ANN401
        """Return a filter over a projection as a projection over the filter, as of HAVING."""
        logical, columns = self._scala.catalyst.plans.logical, each_of(project.projectList())
        values = {id_of(each): each for each in columns if kind_of(each) == "Alias"}
        replace = self._scala.dataflow.Replace()
        for each in attributes_of(condition):
            if id_of(each) in values:
                replace.put(each, values[id_of(each)].child())
        below = logical.Filter(condition.transform(replace), project.child())
        return logical.Project(project.projectList(), below)


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

"""Aggregates: from Spark's aggregate functions to those of ``java/.../dataflow``; HAVING."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.views.lower.plans import attributes_of, each_of, kind_of, parts_of
from millstream.views.lower.subqueries import outside_subqueries

if TYPE_CHECKING:
    from millstream.views.lower.plans import Scala

_KNOWN: Final = {
    "Average": "avg",
    "Count": "count",
    "Max": "max",
    "MaxBy": "max_by",
    "Min": "min",
    "MinBy": "min_by",
    "Sum": "sum",
}
"""Aggregates with a class of their own, by Spark's names; others are evaluated again over the
values of the group."""


def aggregate_of(
    scala: Scala,
    function: Any,  # noqa: ANN401
    inputs: list[Any],
    *,
    grows: bool,
) -> tuple[Any, Any, list[Any]]:
    """An aggregate, the expression of its result, and the attributes of its buffers.

    Args:
        scala: to make objects of Spark's.
        function: an AggregateExpression.
        inputs: the columns of the group's rows; those of this one are added.
        grows: whether no row of its input ever goes.
    """
    body = function.aggregateFunction()
    kind = kind_of(body)
    known = _KNOWN.get(kind) == str(body.prettyName())
    children, distinct = each_of(body.children()), function.isDistinct()
    given = [each for each in children if known or not each.foldable()]
    given = [each.child() if _is_order(each) else each for each in given]
    if distinct:
        given = [scala.dataflow.Plans.normalized(each) for each in given]
    named = [scala.alias(each) for each in given]
    at, types = len(inputs), scala.array([each.dataType() for each in named])
    inputs += named
    filtered = function.filter().isDefined()
    if filtered:
        inputs.append(scala.alias(function.filter().get()))
    if not known:
        attributes = [each.toAttribute() for each in named]
        left = iter(attributes)
        replaced = [
            each if each.foldable() else _over(scala, each, next(left)) for each in children
        ]
        result = function.resultAttribute()
        made = scala.dataflow.Replay(
            at,
            types,
            filtered,
            distinct,
            body.withNewChildren(scala.seq(replaced)),
            scala.seq(attributes),
            result.dataType(),
        )
        return made, result, [result]
    own = each_of(body.aggBufferAttributes())
    if kind in ("Min", "Max", "MinBy", "MaxBy"):
        made = scala.dataflow.Extreme(at, types, filtered, kind in ("Max", "MaxBy"), grows)
    elif kind == "Count":
        made = scala.dataflow.Count(at, types, filtered, distinct)
    else:
        sum_type, average = own[0].dataType(), kind == "Average"
        made = scala.dataflow.Sum(at, types, filtered, distinct, sum_type, len(own), average)
    return made, body.evaluateExpression(), own


def _over(scala: Scala, child: Any, attribute: Any) -> Any:  # noqa: ANN401
    """What stands for a child of a function: a column, or the order by it."""
    return child.withNewChildren(scala.seq([attribute])) if _is_order(child) else attribute


def _is_order(child: Any) -> bool:  # noqa: ANN401
    return kind_of(child) == "SortOrder"


def filtered_first(scala: Scala, condition: Any, aggregate: Any) -> Any | None:  # noqa: ANN401
    """Return a projection of a filter of a plain aggregate; None if the aggregate is plain already.

    Catalyst computes what is selected in the aggregate itself, below HAVING: ``1 / SUM(x)`` with
    ``HAVING SUM(x) <> 0`` would fail for the groups that HAVING leaves out.

    Args:
        scala: to make objects of Spark's.
        condition: that of the filter, over the results of the aggregate.
        aggregate: what is filtered.
    """
    planner = scala.catalyst.planning.PhysicalAggregation
    project = outside_subqueries(scala, parts_of(planner.unapply(aggregate).get()))
    results = {each.exprId().id(): _value(each) for each in each_of(project.projectList())}
    if all(kind_of(each) == "AttributeReference" for each in results.values()):
        return None
    replace = scala.dataflow.Replace()
    for each in attributes_of(condition):
        replace.put(each, results[each.exprId().id()])
    logical = scala.catalyst.plans.logical
    below = logical.Filter(condition.transform(replace), project.child())
    return logical.Project(project.projectList(), below)


def _value(result: Any) -> Any:  # noqa: ANN401
    return result.child() if kind_of(result) == "Alias" else result

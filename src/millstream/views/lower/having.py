"""HAVING in a plan: groups are filtered before anything is computed from their aggregates.

Catalyst computes what is selected in the aggregate itself, below the filter: ``1 / SUM(x)`` with
``HAVING SUM(x) <> 0`` would fail for the groups that HAVING leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.views.lower.plans import attributes_of, each_of, kind_of, parts_of
from millstream.views.lower.subqueries import outside_subqueries

if TYPE_CHECKING:
    from millstream.views.lower.scala import Scala


def filtered_first(scala: Scala, condition: Any, aggregate: Any) -> Any | None:  # noqa: ANN401
    """Return a projection of a filter of a plain aggregate; None if the aggregate is plain already.

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

"""Scalar subqueries in a plan: each becomes a join with the row that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import SqlUnsupportedError
from millstream.spark.plans import each_of, is_one_row, kind_of, subqueries_of

if TYPE_CHECKING:
    from millstream.spark.scala import Scala


def without_subqueries(scala: Scala, child: Any, expressions: list[Any]) -> tuple[Any, list[Any]]:  # noqa: ANN401
    """A child that has the value of each scalar subquery as a column; and these expressions."""
    found = subqueries_of(expressions)
    if not found:
        return child, expressions
    child, replace = _joined(scala, child, found)
    return child, [each.transform(replace) for each in expressions]


def subqueries_below(scala: Scala, node: Any) -> Any:  # noqa: ANN401
    """A node of one child, whose scalar subqueries are columns of the child."""
    child, replace = _joined(scala, node.child(), subqueries_of(each_of(node.expressions())))
    made = node.withNewChildren(scala.seq([child])).transformExpressions(replace)
    return scala.catalyst.plans.logical.Project(node.output(), made)


def _joined(scala: Scala, child: Any, subqueries: list[Any]) -> tuple[Any, Any]:  # noqa: ANN401
    """A child with the values of subqueries as columns, and what replaces these by the columns."""
    replace = scala.line.Replace()
    logical, plans = scala.catalyst.plans.logical, scala.catalyst.plans
    for query in subqueries:
        most = query.plan().maxRows()
        if not most.isDefined() or most.get() > 1:
            raise SqlUnsupportedError(
                "a subquery that may give several rows is not supported as a value",
                hint="use an aggregate in it, such as MAX",
            )
        column = scala.alias(query.plan().output().head())
        one = logical.Project(scala.seq([column]), query.plan())
        kind = "Inner$" if is_one_row(query.plan()) else "LeftOuter$"
        join = getattr(plans, kind).__getattr__("MODULE$")
        child = logical.Join(child, one, join, scala.nothing, logical.JoinHint.NONE())
        replace.put(query, column.toAttribute())
    return child, replace


def outside_subqueries(scala: Scala, aggregate: list[Any]) -> Any:  # noqa: ANN401
    """An aggregate whose scalar subqueries are below it, or in a projection above it.

    Args:
        scala: to make objects of Spark's.
        aggregate: its keys, functions and results, as Spark takes it apart, and its child.
    """
    grouping, functions, results, child = aggregate
    keys, made = each_of(grouping), each_of(functions)
    child, found = without_subqueries(scala, child, [*keys, *made])
    keys, replaced = found[: len(keys)], found[len(keys) :]
    values = [
        scala.alias(each, old.resultAttribute()) for each, old in zip(replaced, made, strict=True)
    ]
    logical, nothing = scala.catalyst.plans.logical, scala.nothing
    inner = [each.child() if kind_of(each) == "Alias" else each for each in keys]
    below = logical.Aggregate(scala.seq(inner), scala.seq([*keys, *values]), child, nothing)
    return logical.Project(results, below)

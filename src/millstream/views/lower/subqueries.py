"""Scalar subqueries in a plan: each becomes a join with the row that it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import SqlUnsupportedError
from millstream.views.lower.plans import each_of, is_one_row, kind_of, subqueries_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.views.lower.plans import Scala

_SEVERAL: Final = "a subquery that is used as a value has given several rows"


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


def with_subqueries(scala: Scala, node: Any, rewritten: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A node whose scalar subqueries have their plans rewritten."""
    replace, queries = scala.dataflow.Replace(), subqueries_of(each_of(node.expressions()))
    for query in queries:
        replace.put(query, query.withNewPlan(rewritten(query.plan())))
    return node.transformExpressions(replace) if queries else node


def _joined(scala: Scala, child: Any, subqueries: list[Any]) -> tuple[Any, Any]:  # noqa: ANN401
    """A child with the values of subqueries as columns, and what replaces these by the columns."""
    replace = scala.dataflow.Replace()
    logical, plans = scala.catalyst.plans.logical, scala.catalyst.plans
    for query in subqueries:
        most, plan = query.plan().maxRows(), query.plan()
        if not most.isDefined() or most.get() > 1:
            plan = _the_only_row(scala, plan)
        column = scala.alias(plan.output().head())
        one = logical.Project(scala.seq([column]), plan)
        kind = "Inner$" if is_one_row(plan) else "LeftOuter$"
        join = getattr(plans, kind).__getattr__("MODULE$")
        child = logical.Join(child, one, join, scala.nothing, logical.JoinHint.NONE())
        replace.put(query, column.toAttribute())
    return child, replace


def _the_only_row(scala: Scala, plan: Any) -> Any:  # noqa: ANN401
    """The value of a subquery that has no row or one; with more, the query fails, as SQL has it.

    Raises:
        SqlUnsupportedError: its values have no order, and no aggregate can tell the only one.
    """
    expressions, kind = scala.catalyst.expressions, plan.output().head().dataType()
    if not expressions.RowOrdering.isOrderable(kind):
        raise SqlUnsupportedError(
            f"a subquery that may give several rows is not supported as a value of {kind.sql()}",
            hint="use an aggregate in it, or LIMIT 1",
        )
    literal, aggregate = scala.literal, expressions.aggregate
    count = aggregate.Count(scala.seq([literal(1)])).toAggregateExpression()
    value = aggregate.Max(plan.output().head()).toAggregateExpression()
    text = scala.seq([literal("errorMessage"), literal(_SEVERAL)])
    error = expressions.RaiseError(
        literal("USER_RAISED_EXCEPTION"), expressions.CreateMap(text), kind
    )
    one = expressions.Cast(literal(1), count.dataType(), scala.nothing)
    several = expressions.GreaterThan(count, one)
    column = scala.alias(expressions.If(several, error, value))
    logical = scala.catalyst.plans.logical
    return logical.Aggregate(scala.seq([]), scala.seq([column]), plan, scala.nothing)


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

"""Subqueries in a dataflow, written so that Spark gives what SQL says.

- ``(SELECT u.d FROM u WHERE u.id = t.a)``: Spark knows of no keys, and takes it that there may be
  several rows. An aggregate of the one row has the same value, and there is always one of it.
- ``a IN (SELECT ...)`` as a column: where it is not known, Spark gives false.
- ``= ANY (SELECT ...)``, ``<> ALL (SELECT ...)``: Spark has IN only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.views.plan.functions import has_aggregate
from millstream.views.plan.trees import alias, call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.sql.inputs import Input
    from millstream.views.plan.errors import ErrorReporter

_PARTS = {"expressions", "from_", "where"}
_LOGIC = (exp.Alias, exp.Connector, exp.Not, exp.Paren)
_NOT_VALUES = (exp.From, exp.Join, exp.Lateral, exp.SetOperation, exp.In, exp.Exists, exp.With)


def aggregate_lookups(tree: exp.Query, inputs: Callable[[str], Input]) -> None:
    """Have the scalar subqueries of a query that look up a row by its key be aggregates of it.

    Args:
        tree: the query, changed in place.
        inputs: gives what a log is by its name, and raises when there is none.
    """
    for each in list(tree.find_all(exp.Subquery)):
        if isinstance(each.parent, _NOT_VALUES) or not isinstance(each.this, exp.Select):
            continue
        item = each.this.expressions[0]
        if _finds_one(each.this, inputs) and not has_aggregate(item):
            value = call("max", item.unalias())
            item.replace(alias(value, item.alias) if item.alias else value)


def rewrite_tests(query: exp.Select) -> None:
    """Have IN of a subquery, as a column, be NULL where it is not known."""
    for item in query.expressions:
        for each in list(item.walk(prune=lambda each: not isinstance(each, _LOGIC))):
            if isinstance(each, exp.In) and each.args.get("query"):
                case = exp.Case().when(each, exp.true()).when(exp.not_(each), exp.false())
                each.replace(case)


def rewrite_quantified(tree: exp.Query, errors: ErrorReporter) -> None:
    """Have ANY and ALL of a subquery be IN and NOT IN.

    Raises:
        SqlUnsupportedError: it is with another comparison.
    """
    for each in list(tree.find_all(exp.Any, exp.All)):
        query, test = each.this.unnest(), each.parent
        if not isinstance(query, exp.Query):
            continue
        if not isinstance(test, exp.EQ if isinstance(each, exp.Any) else exp.NEQ):
            hint = "Write EXISTS (SELECT ... WHERE ...), or compare with MIN or MAX."
            errors.refuse(test, "ANY and ALL are supported as = ANY and <> ALL only", hint)
        found = exp.In(this=test.this, query=exp.Subquery(this=query))
        test.replace(found if isinstance(each, exp.Any) else exp.Not(this=found))


def _finds_one(query: exp.Select, inputs: Callable[[str], Input]) -> bool:
    """Whether there is at most one row that a SELECT finds, by the key of what it reads."""
    if {name for name, value in query.args.items() if value} != _PARTS:
        return False
    table = query.args["from_"].this
    if not isinstance(table, exp.Table) or common_of(table) is not None:
        return False
    if {name for name, value in table.args.items() if value} - {"this", "alias"}:
        return False
    schema, known = inputs(table.name).schema, table.alias_or_name.lower()
    names = {each.lower() for each in schema.names}

    def is_own(column: exp.Column) -> bool:
        return column.table.lower() == known if column.table else column.name.lower() in names

    fixed = set(fixed_columns(query.args["where"].this, is_own))
    return bool(schema.key) and {each.lower() for each in schema.key} <= fixed


def fixed_columns(condition: exp.Expr, is_own: Callable[[exp.Column], bool]) -> Iterator[str]:
    """The columns that must be equal to what a query's rows do not decide."""
    if isinstance(condition, exp.Paren):
        yield from fixed_columns(condition.this, is_own)
    elif isinstance(condition, exp.And):
        yield from fixed_columns(condition.this, is_own)
        yield from fixed_columns(condition.expression, is_own)
    elif type(condition) is exp.EQ:
        sides = (condition.this, condition.expression)
        for side, other in (sides, sides[::-1]):
            is_column = isinstance(side, exp.Column) and is_own(side)
            if is_column and not other.find(exp.Query) and not any(map(is_own, _columns(other))):
                yield side.name.lower()


def _columns(tree: exp.Expr) -> Iterator[exp.Column]:
    return tree.find_all(exp.Column)

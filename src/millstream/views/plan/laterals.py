"""LATERAL VIEW before a join, which Spark's grammar has not: as a subquery that the join reads.

sqlglot keeps the joins and the lateral views of a SELECT apart, and writes all joins first. That is
another query where a join keeps rows that have no match, or names a column of the lateral view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.views.plan.trees import nested, select

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter

_HINT = "Write it in a subquery: FROM (SELECT * FROM t LATERAL VIEW ...) AS t JOIN ..."


def nest_laterals(tree: exp.Expr, errors: ErrorReporter) -> None:
    """Have each SELECT within a tree read, instead of lateral views before joins, a subquery.

    It is named as what the lateral views are of: a column ``x.c`` of a lateral view ``x`` of ``t``
    becomes ``t.c``.

    Raises:
        SqlUnsupportedError: a lateral view is of a join, and before another one.
    """
    for query in list(tree.find_all(exp.Select)):
        joins = query.args.get("joins") or []
        laterals = query.args.get("laterals") or []
        if joins and laterals and _start(laterals[0]) < _start(joins[-1]):
            _nest(query, joins, laterals, errors)


def _nest(
    query: exp.Select, joins: list[exp.Expr], laterals: list[exp.Expr], errors: ErrorReporter
) -> None:
    first = [each for each in laterals if _start(each) < _start(joins[0])]
    after = [each for each in laterals if _start(each) > _start(joins[-1])]
    source = query.args["from_"].this
    between = [each for each in laterals if each not in first and each not in after]
    if between or not source.alias_or_name:
        lateral = (between or first)[0]
        errors.refuse(lateral, "LATERAL VIEW between two joins is not supported", _HINT)
    name, inner = source.alias_or_name, {each.alias.lower() for each in first}
    for item in query.expressions:
        of = item.table.lower() if item.is_star and isinstance(item, exp.Column) else None
        if of is not None and of in {name.lower(), *inner}:
            message = f"{item.table}.* beside LATERAL VIEW and a join is not supported"
            errors.refuse(item, message, _HINT)
    for each in query.find_all(exp.Column):
        if each.table.lower() in inner and not _is_another(each, query):
            each.set("table", exp.to_identifier(name, quoted=True))
    made = select([exp.Star()], source)
    made.set("laterals", [each.copy() for each in first])
    subquery = nested(made)
    subquery.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    query.args["from_"].set("this", subquery)
    query.set("laterals", after)


def _is_another(column: exp.Column, query: exp.Select) -> bool:
    """Whether a column is of a relation of that name in a subquery."""
    inner = column.parent_select
    while inner is not None and inner is not query:
        sources = [inner.args.get("from_"), *(inner.args.get("joins") or [])]
        sources = [each.this for each in sources if each is not None]
        names = [each.alias_or_name for each in [*sources, *(inner.args.get("laterals") or [])]]
        if column.table.lower() in map(str.lower, names):
            return True
        inner = inner.parent_select
    return False


def _start(tree: exp.Expr) -> int:
    """Where a tree begins in the text."""
    return min((each.meta["start"] for each in tree.walk() if "start" in each.meta), default=0)

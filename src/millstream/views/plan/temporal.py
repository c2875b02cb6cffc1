"""FOR SYSTEM_TIME AS OF in a dataflow: joins with a table as it was at a row's LSN.

``a JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k`` has one match or none if ``k`` is the key of
the table. So it is written as an ASOF JOIN of Spark's, which its optimizer leaves as it is, with a
mark that ``views.lower.asof`` knows again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.views.plan.asof import conjuncts, using
from millstream.views.plan.functions import function_name
from millstream.views.plan.subqueries import fixed_columns
from millstream.views.plan.trees import both, call, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.inputs import Input
    from millstream.views.plan.errors import ErrorReporter

_SHAPE = "Write FROM source JOIN table FOR SYSTEM_TIME AS OF source.ts ON source.k = table.k."


def rewrite_temporal(
    tree: exp.Expr, inputs: Callable[[str], Input], errors: ErrorReporter
) -> list[str]:
    """Write joins FOR SYSTEM_TIME AS OF as ASOF joins; returns the table of each of them.

    Args:
        tree: the query.
        inputs: gives what a log is by its name, and raises when there is none.
        errors: raises errors.

    Raises:
        SqlUnsupportedError: it is not of a table, by its key.
    """
    found = []
    for table in list(tree.find_all(exp.Table)):
        if table.args.get("version") is not None:
            _rewrite(table, inputs, errors)
            found.append(table.name.lower())
    return found


def _rewrite(table: exp.Table, inputs: Callable[[str], Input], errors: ErrorReporter) -> None:
    join, when = table.parent, table.args["version"].expression
    is_moment = isinstance(when, exp.Column) or function_name(when) == "proctime"
    if not isinstance(join, exp.Join) or not is_moment or common_of(table) is not None:
        errors.refuse(table, "FOR SYSTEM_TIME AS OF is not supported here", _SHAPE)
    if join.method or join.side not in {"", "LEFT"} or join.kind not in {"", "INNER", "OUTER"}:
        what = "FOR SYSTEM_TIME AS OF is supported with JOIN and LEFT JOIN only"
        errors.refuse(join, what, _SHAPE)
    given = inputs(table.name)
    if given.kind != "table" or not given.schema.key:
        what = f"FOR SYSTEM_TIME AS OF is for tables with a key, and {given.name} is none"
        errors.refuse(table, what, _SHAPE)
    conditions = using(join, has_match=True, errors=errors) + conjuncts(join.args.get("on"))
    conditions = _equalities(join, conditions)
    time = _match(join, given, conditions, errors)
    marked = call("format_string", text("system time"), time.this)
    table.set("version", None)
    join.set("using", None)
    join.set("side", join.side)
    join.set("kind", "ASOF")
    join.set("match_condition", time)
    join.set("on", both([*conditions, exp.NEQ(this=marked, expression=text(""))]))


def _equalities(join: exp.Join, conditions: list[exp.Expr]) -> list[exp.Expr]:
    """Have the other conditions of an inner join filter what it gives; return the equalities."""
    query = join.parent_select
    others = [each for each in conditions if not isinstance(each, exp.EQ)]
    joins = query.args.get("joins") or [] if query is not None else []
    keeps = all(each.side not in {"RIGHT", "FULL"} for each in joins)
    if not others or query is None or join.side or join not in joins or not keeps:
        return conditions
    where = query.args.get("where")
    query.set("where", exp.Where(this=both([where.this if where else None, *others])))
    return [each for each in conditions if isinstance(each, exp.EQ)]


def _match(
    join: exp.Join, table: Input, conditions: list[exp.Expr], errors: ErrorReporter
) -> exp.GTE:
    """What Spark is to compare as times: the two sides of an equality by the table's key."""
    known, names = join.this.alias_or_name.lower(), {each.lower() for each in table.schema.names}

    def is_own(column: exp.Column) -> bool:
        return column.table.lower() == known if column.table else column.name.lower() in names

    fixed = {name: each for each in conditions for name in fixed_columns(each, is_own)}
    others = [each for each in conditions if not isinstance(each, exp.EQ)]
    if others or not {each.lower() for each in table.schema.key} <= set(fixed):
        hint = f"Join it by all of its key, {', '.join(table.schema.key)}, and filter in WHERE."
        at = others[0] if others else join
        errors.refuse(at, "FOR SYSTEM_TIME AS OF takes equalities by the table's key", hint)
    first = fixed[table.schema.key[0].lower()]
    return exp.GTE(this=first.this.copy(), expression=first.expression.copy())

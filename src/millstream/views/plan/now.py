"""Conditions on the time in a dataflow: ``WHERE ts > NOW() - INTERVAL '5 minutes'``.

NOW() of a view is the newest row of the clock's log. Its conditions are written as EXISTS over that
log, a form that Spark's optimizer moves to where it belongs; ``lower.clock_filter`` recognizes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from millstream.sql.inputs import CLOCK, CLOCK_COLUMN
from millstream.views.plan.asof import conjuncts
from millstream.views.plan.functions import NOW_HINT, function_name
from millstream.views.plan.qualify import has_names, lifted
from millstream.views.plan.trees import both, closed, column, number, select

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter

_NAMES: Final = frozenset({"now", "current_timestamp", "proctime"})
_FLIPPED: Final[dict[type[exp.Expr], type[exp.Binary]]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def lift_having(tree: exp.Query) -> exp.Query:
    """Return a query with conditions on the time in WHERE of a query around, not in HAVING."""
    for query in reversed(list(tree.find_all(exp.Select))):
        having = query.args.get("having")
        conditions = [] if having is None else conjuncts(having.this)
        timed = [each for each in conditions if _reads_clock(each)]
        if not timed or query.args.get("qualify") or not has_names(query):
            continue
        others = both([each for each in conditions if not any(each is one for one in timed)])
        query.set("having", None if others is None else exp.Having(this=others))
        tree = lifted(tree, query, both(timed) or exp.true())
    return tree


def rewrite_now(tree: exp.Query, errors: ErrorReporter) -> None:
    """Write the conditions of WHERE that have NOW() as EXISTS over the clock's log.

    Raises:
        SqlUnsupportedError: it is no comparison of the time with a value of a row.
    """
    for query in reversed(list(tree.find_all(exp.Select))):  # inner ones first: they are copied
        _from_joins(query)
        where = query.args.get("where")
        if where is None:
            continue
        conditions = conjuncts(where.this)
        timed = [each for each in conditions if _reads_clock(each)]
        if timed:
            bounds = [bound for each in timed for bound in _conditions(each, errors)]
            others = [each for each in conditions if not any(each is one for one in timed)]
            where.set("this", both([*others, _exists(bounds)]))


def _from_joins(query: exp.Select) -> None:
    """Move the conditions on the time in the ON of inner joins to WHERE."""
    for join in query.args.get("joins") or ():
        on, is_inner = join.args.get("on"), not join.side and join.kind in {"", "INNER", "CROSS"}
        conditions = conjuncts(on) if on is not None and is_inner else []
        timed = [each for each in conditions if _reads_clock(each)]
        if not timed or join.method:
            continue
        others = [each for each in conditions if not any(each is one for one in timed)]
        join.set("on", both(others) or exp.true())
        where = query.args.get("where")
        before = [] if where is None else [where.this]
        query.set("where", exp.Where(this=both([*before, *timed])))


def is_clock(table: exp.Table) -> bool:
    """Whether a relation is the clock's log, and not one that the user has named."""
    return bool(table.meta.get("clock"))


def _exists(bounds: list[exp.Expr]) -> exp.Exists:
    name = exp.to_identifier(CLOCK, quoted=True)
    clock = exp.Table(this=name, alias=exp.TableAlias(this=name.copy()))
    clock.meta["clock"] = True
    return exp.Exists(this=select([number(1)], clock, both(bounds)))


def _is_now(tree: exp.Expr) -> bool:
    return function_name(tree) in _NAMES


def _reads_clock(tree: exp.Expr) -> bool:
    """Whether NOW() is in an expression; what is in a subquery is that one's own."""
    return any(map(_is_now, tree.walk(prune=lambda each: isinstance(each, exp.Query))))


def _conditions(test: exp.Expr, errors: ErrorReporter) -> list[exp.Expr]:
    """Conditions over the clock's column that must all hold, instead of one with NOW()."""
    if isinstance(test, exp.Between) or type(test) in _FLIPPED:
        return _bounds(test, errors)
    return [closed(_condition(test, errors))]


def _condition(test: exp.Expr, errors: ErrorReporter) -> exp.Expr:
    """A condition over the clock's column, instead of one with NOW(): AND, OR and NOT of bounds."""
    if isinstance(test, exp.Paren | exp.Not):
        return type(test)(this=_condition(test.this, errors))
    if isinstance(test, exp.And | exp.Or):
        sides = [closed(_condition(each, errors)) for each in (test.this, test.expression)]
        return type(test)(this=sides[0], expression=sides[1])
    if not _reads_clock(test):
        if test.find(exp.Query) is not None:
            what = "a subquery beside a condition on NOW() is not supported with OR"
            errors.refuse(test, what, "Give the subquery's value a name in a query below.")
        return test.copy()
    if isinstance(test, exp.EQ):
        sides = [closed(_condition(kind(**test.args), errors)) for kind in (exp.GTE, exp.LTE)]
        return exp.And(this=sides[0], expression=sides[1])
    if isinstance(test, exp.NEQ):
        sides = [closed(_condition(kind(**test.args), errors)) for kind in (exp.LT, exp.GT)]
        return exp.Or(this=sides[0], expression=sides[1])
    bounds = both(_bounds(test, errors))
    return test if bounds is None else bounds


def _bounds(test: exp.Expr, errors: ErrorReporter) -> list[exp.Expr]:
    """Comparisons of the clock's column, instead of a condition."""
    if isinstance(test, exp.Between) and not test.args.get("symmetric"):
        parts: list[exp.Expr] = []
        for compare, side in ((exp.GTE, test.args["low"]), (exp.LTE, test.args["high"])):
            part = compare(this=test.this.copy(), expression=side.copy())
            parts += _bounds(part, errors) if _reads_clock(part) else [part]
        return parts
    if type(test) not in _FLIPPED:
        errors.refuse(_first(test), "this condition on NOW() is not supported in a view", NOW_HINT)
    clock, value, kind = test.this, test.expression, type(test)
    if not _reads_clock(clock):
        clock, value, kind = value, clock, _FLIPPED[kind]
    clock, value, kind = _solved(clock.unnest(), value, kind)
    if _reads_clock(value) or not _is_shifted(clock) or not _is_of_row(value):
        errors.refuse(_first(test), "this condition on NOW() is not supported in a view", NOW_HINT)
    made = clock.transform(
        lambda each: column(CLOCK_COLUMN, CLOCK) if _is_now(each) else each, copy=True
    )
    return [kind(this=closed(made), expression=closed(value))]


def _solved(
    clock: exp.Expr, value: exp.Expr, kind: type[exp.Expr]
) -> tuple[exp.Expr, exp.Expr, type[exp.Expr]]:
    """Move the values of a row to the other side: NOW() - ts < x is NOW() < ts + x."""
    while isinstance(clock, exp.Add | exp.Sub):
        left, right = clock.this, clock.expression
        if _has_column(right):
            inverse = exp.Sub if isinstance(clock, exp.Add) else exp.Add
            if inverse is exp.Add:
                value = exp.Add(this=closed(right), expression=closed(value))
            else:
                value = exp.Sub(this=closed(value), expression=closed(right))
            clock = left.unnest()
        elif _has_column(left):
            if isinstance(clock, exp.Add):
                value = exp.Sub(this=closed(value), expression=closed(left))
            else:
                value = exp.Sub(this=closed(left), expression=closed(value))
                kind = _FLIPPED[kind]
            clock = right.unnest()
        else:
            break
    return clock, value, kind


def _has_column(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is not None and not _reads_clock(tree)


def _is_shifted(tree: exp.Expr) -> bool:
    """Whether a tree is NOW(), plus or minus something fixed."""
    inner = tree.unnest()
    if isinstance(inner, exp.Add | exp.Sub) and _reads_clock(inner.this):
        return _is_shifted(inner.this) and not _reads_clock(inner.expression)
    if isinstance(inner, exp.Add):
        return _is_shifted(inner.expression)
    return _is_now(inner)


def _is_of_row(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is not None and tree.find(exp.Query) is None


def _first(tree: exp.Expr) -> exp.Expr:
    """The first NOW() in a tree."""
    return next(each for each in tree.walk(bfs=False) if _is_now(each))

"""ASOF JOIN in a dataflow, written as Spark's own.

``a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts`` gives each row of ``a`` the one row of ``b`` that is
nearest in time; so does ``MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k``, and ``USING (k, ts)``.
Spark has the second form. NEAREST and a tolerance, which it has not, stay in ON as conditions that
its optimizer leaves as they are; ``views.lower.asof`` knows them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from millstream.views.plan.functions import function_name
from millstream.views.plan.trees import both, call, closed, text

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter

_LATER = (exp.GTE, exp.GT)
_EARLIER = (exp.LTE, exp.LT)
_INEQUALITIES = (*_LATER, *_EARLIER)
_EQUALITIES = (exp.EQ, exp.NullSafeEQ)
_PAIR = 2
_SHAPE = "Write a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts."
_NEAREST = "Write MATCH_CONDITION (NEAREST(a.ts, b.ts)) TOLERANCE INTERVAL '5' SECOND ON a.k = b.k."


@dataclass(frozen=True, slots=True)
class _Match:
    """Which rows match.

    Attributes:
        left: a time.
        right: the one that it is compared with.
        test: how; None for the nearest.
    """

    left: exp.Expr
    right: exp.Expr
    test: type[exp.Expr] | None

    def condition(self) -> exp.Expr:
        """The comparison itself; for the nearest, one of those that hold for it or not."""
        made = exp.GTE if self.test is None else self.test
        return made(this=self.left.copy(), expression=self.right.copy())


def rewrite_asof(tree: exp.Expr, errors: ErrorReporter) -> None:
    """Write the ASOF joins of a query as those of Spark.

    Raises:
        SqlUnsupportedError: it is a RIGHT or FULL join, or has not exactly one inequality.
    """
    for join in list(tree.find_all(exp.Join)):
        if join.method == "ASOF":
            _rewrite(join, errors)


def _rewrite(join: exp.Join, errors: ErrorReporter) -> None:
    side, kind = join.side.upper(), join.kind.upper()
    if side not in {"", "LEFT"} or kind not in {"", "INNER", "OUTER"}:
        words = " ".join(filter(None, ("ASOF", side, kind)))
        hint = "Write ASOF JOIN or ASOF LEFT JOIN; each row of the left side has one match or none."
        errors.refuse(join, f"{words} JOIN is not supported", hint)
    given = join.args.get("match_condition")
    conditions = using(join, has_match=given is not None, errors=errors) + conjuncts(
        join.args.get("on")
    )
    equal = [each for each in conditions if isinstance(each, _EQUALITIES)]
    others = [each for each in conditions if not isinstance(each, _EQUALITIES)]
    match, bounds = _match(join, conjuncts(given) + others, errors)
    tolerance = join.args.get("tolerance")
    if tolerance is not None:
        bounds.append(_within(match, tolerance))
    if match.test is None:
        marked = call("format_string", text("nearest"), match.left)
        bounds.append(exp.NEQ(this=marked, expression=text("")))
    for name in ("method", "using", "tolerance"):
        join.set(name, None)
    join.set("side", side)
    join.set("kind", "ASOF")
    join.set("match_condition", match.condition())
    join.set("on", both([*equal, *bounds]))


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that must all hold, of which None has none."""
    if condition is None:
        return []
    inner = condition.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return conjuncts(inner.this) + conjuncts(inner.expression)


def _match(
    join: exp.Join, conditions: list[exp.Expr], errors: ErrorReporter
) -> tuple[_Match, list[exp.Expr]]:
    """The one comparison of times, and the conditions that bound how far these are apart."""
    for each in conditions:
        rest = [other for other in conditions if other is not each]
        match = _as_match(each)
        if match is not None and all(_is_bound(other, match) for other in rest):
            return match, rest
    return _refuse(join, conditions, errors)


def _refuse(join: exp.Join, conditions: list[exp.Expr], errors: ErrorReporter) -> NoReturn:
    """Say why conditions are no match with a tolerance."""
    strange = [each for each in conditions if not isinstance(each, _INEQUALITIES)]
    nearest = [each for each in strange if function_name(each) == "nearest"]
    if nearest:
        errors.refuse(nearest[0], "NEAREST takes two times, and a tolerance at most", _NEAREST)
    if strange:
        hint = "Join by equalities and one inequality, and filter in WHERE or in a subquery."
        errors.refuse(strange[0], "this condition of an ASOF JOIN is not supported", hint)
    if not conditions:
        what = "an ASOF JOIN needs an inequality, which says what is nearest"
        errors.refuse(join, what, _SHAPE)
    hint = "Write one, and a tolerance as AND a.ts - b.ts <= INTERVAL '5' SECOND."
    errors.refuse(conditions[-1], "an ASOF JOIN takes one inequality", hint)


def _as_match(condition: exp.Expr) -> _Match | None:
    if isinstance(condition, _INEQUALITIES):
        return _Match(condition.this.unnest(), condition.expression.unnest(), type(condition))
    if function_name(condition) == "nearest" and len(condition.expressions) == _PAIR:
        left, right = condition.expressions
        return _Match(left, right, None)
    return None


def _within(match: _Match, tolerance: exp.Expr) -> exp.Expr:
    """That two times are no farther apart than a tolerance."""
    apart = call("abs", exp.Sub(this=closed(match.left), expression=closed(match.right)))
    return exp.LTE(this=apart, expression=closed(tolerance))


def _is_bound(condition: exp.Expr, match: _Match) -> bool:
    """Whether a condition is a tolerance: how far the times of a match may be apart.

    If it holds for a row, it does for all that are nearer.
    """
    if not isinstance(condition, _INEQUALITIES):
        return False
    low, high = condition.this.unnest(), condition.expression.unnest()
    if isinstance(condition, _LATER):
        low, high = high, low
    if match.test is None:
        inner = low.expressions if function_name(low) == "abs" else []
        pairs = ((match.left, match.right), (match.right, match.left))
        return any(_is_difference(each, *pair) for each in inner for pair in pairs) and _fixed(high)
    earlier, later = match.left, match.right
    if issubclass(match.test, _LATER):
        earlier, later = later, earlier
    return (
        (_is_difference(low, later, earlier) and _fixed(high))
        or (_same(low, later) and _is_shifted(high, exp.Add, earlier))
        or (_same(high, earlier) and _is_shifted(low, exp.Sub, later))
    )


def _is_difference(tree: exp.Expr, first: exp.Expr, second: exp.Expr) -> bool:
    inner = tree.unnest()
    return (
        isinstance(inner, exp.Sub) and _same(inner.this, first) and _same(inner.expression, second)
    )


def _is_shifted(tree: exp.Expr, kind: type[exp.Binary], time: exp.Expr) -> bool:
    """Whether a tree is a time and, or minus, something fixed."""
    return isinstance(tree, kind) and _same(tree.this, time) and _fixed(tree.expression)


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    texts = [each.unnest().sql(identify=True).lower() for each in (one, other)]
    return texts[0] == texts[1]


def _fixed(tree: exp.Expr) -> bool:
    return tree.find(exp.Column, exp.Query) is None


# ---- USING


def using(join: exp.Join, *, has_match: bool, errors: ErrorReporter) -> list[exp.Expr]:
    """The conditions of USING; without MATCH_CONDITION, the last column is the time.

    Its columns are, without a table before them, those of the left side, and once in ``*``.
    """
    names = [each.name for each in join.args.get("using") or []]
    query = join.parent
    if not names:
        return []
    if not isinstance(query, exp.Select) or query.args["joins"][0] is not join:
        hint = "Write ON a.k = b.k AND a.ts >= b.ts."
        errors.refuse(join, "USING of such a join after another join is not supported", hint)
    left, right = query.args["from_"].this.alias_or_name, join.this.alias_or_name
    _merge(query, names, left, right)
    kinds: list[type[exp.Binary]] = [exp.EQ] * len(names)
    if not has_match:
        kinds[-1] = exp.GTE
    return [
        kind(this=_column(name, left), expression=_column(name, right))
        for kind, name in zip(kinds, names, strict=True)
    ]


def _merge(query: exp.Select, names: list[str], left: str, right: str) -> None:
    """Have a SELECT see the columns of USING on the left side only."""
    known = {name.lower() for name in names}
    for each in query.walk(prune=lambda each: isinstance(each, exp.Query) and each is not query):
        if isinstance(each, exp.Column) and not each.table and each.name.lower() in known:
            each.set("table", exp.to_identifier(left, quoted=True))
    for item in query.expressions:
        if isinstance(item, exp.Star):
            for name in names:
                item.append("except_", _column(name, right))


def _column(name: str, of: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(of, quoted=True))

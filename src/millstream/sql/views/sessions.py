"""Sessions: the aggregates of SESSION windows, which one function of ours computes together.

``ms_sessions(ts, lsn, gap, spec, v0, v1, ...)`` gives the sessions of a key as an array of structs:
``_start``, ``_end``, and ``a0``, ``a1``, ... for the parts of the spec, such as ``sum:0``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.flow import LSN
from millstream.sql.views.numbers import number_type
from millstream.sql.views.trees import both, call, cast, column, iff, number, text
from millstream.sql.views.weighted import average, known_kind, refuse_average

if TYPE_CHECKING:
    from millstream.sql.views.aggregates import Aggregate
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Ground

SESSION = "_s"
"""The name of one session in expressions over it."""

_HINT = "A SESSION has COUNT, COUNT_IF, SUM, AVG, MIN, MAX, FIRST and LAST."


@dataclass(slots=True)
class Sessions:
    """Gathers what the sessions of one query compute.

    Attributes:
        ground: the rows.
        errors: raises errors.
        parts: the parts of the spec, each once.
        values: the values that they take, each once.
    """

    ground: Ground
    errors: ErrorReporter
    parts: list[str] = field(default_factory=list)
    values: list[exp.Expr] = field(default_factory=list)

    def take(self, aggregate: Aggregate) -> exp.Expr:
        """Return an aggregate as an expression over one session.

        Raises:
            SqlUnsupportedError: sessions do not have it.
        """
        name = aggregate.name
        if aggregate.distinct and name not in {"min", "max"}:
            self._refuse(aggregate, f"{name.upper()}(DISTINCT)")
        if name == "count":
            return self._count(aggregate)
        if name == "count_if":
            return self._part("count", _one(both([aggregate.condition, aggregate.args[0]])))
        if name in {"first", "last"} and aggregate.condition is not None:
            self._refuse(aggregate, f"{name.upper()} with FILTER or IGNORE NULLS")
        if name == "avg":
            return self._average(aggregate)
        if name not in {"sum", "min", "max", "first", "last"}:
            self._refuse(aggregate, name.upper())
        return self._part(name, _only(aggregate, aggregate.args[0]))

    def call(self, time: exp.Expr, gap: int) -> exp.Expr:
        """Return the call that computes everything that was taken."""
        spec = text(";".join(self.parts or ["count"]))
        gap_micros = cast(number(gap), "BIGINT")
        return call("ms_sessions", time, LSN, gap_micros, spec, *self.values)

    def _refuse(self, aggregate: Aggregate, what: str) -> None:
        self.errors.refuse(aggregate.tree, f"{what} is not supported in a SESSION", _HINT)

    def _count(self, aggregate: Aggregate) -> exp.Expr:
        args = [each for each in aggregate.args if not isinstance(each, exp.Star | exp.Literal)]
        if not args and aggregate.condition is None:
            return self._part("count")
        if len(args) == 1:
            return self._part("count", _only(aggregate, args[0]))
        known = [exp.Not(this=exp.Is(this=each.copy(), expression=exp.Null())) for each in args]
        return self._part("count", _one(both([aggregate.condition, *known])))

    def _average(self, aggregate: Aggregate) -> exp.Expr:
        value = aggregate.args[0]
        kind = known_kind(value, "avg", self.ground, self.errors)
        given = _only(aggregate, value)
        total, count = self._part("sum", given), self._part("count", given)
        mean = average(total, count, kind, number_type(value, self.ground))
        if mean is None:
            refuse_average(aggregate.tree, self.errors)
        some = exp.GT(this=count.copy(), expression=number(0))
        return exp.Case(ifs=[exp.If(this=some, true=mean)])

    def _part(self, name: str, value: exp.Expr | None = None) -> exp.Expr:
        part = name
        if value is not None:
            if value not in self.values:
                self.values.append(value)
            part = f"{name}:{self.values.index(value)}"
        if part not in self.parts:
            self.parts.append(part)
        return column(f"a{self.parts.index(part)}", SESSION)


def _only(aggregate: Aggregate, value: exp.Expr) -> exp.Expr:
    """Return a value that is NULL, and so does not count, where FILTER leaves the row out."""
    if aggregate.condition is None:
        return value
    return iff(aggregate.condition, value, exp.Null())


def _one(condition: exp.Expr | None) -> exp.Expr:
    return iff(condition or exp.true(), number(1), exp.Null())

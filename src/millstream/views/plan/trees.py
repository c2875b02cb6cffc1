"""Trees: how the planner writes Spark SQL, as sqlglot's trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from sqlglot import ErrorLevel, exp
from sqlglot.generators.spark import SparkGenerator
from sqlglot.transforms import any_to_exists, eliminate_distinct_on, preprocess, unnest_to_explode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_E = TypeVar("_E", bound=exp.Expr)

_CLOSED = (exp.Column, exp.Literal, exp.Paren, exp.Dot, exp.Boolean, exp.Null, exp.Identifier)


def column(name: str, of: str | None = None) -> exp.Column:
    """Return a column by its name, perhaps a field of another one.

    >>> column("price").sql(dialect="spark"), column("end", "_w").sql(dialect="spark")
    ('`price`', '`_w`.`end`')
    """
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(of, quoted=True))


def call(name: str, *args: exp.Expr) -> exp.Anonymous:
    """Return the call of one of Spark's functions, or of ours."""
    return exp.Anonymous(this=name, expressions=[each.copy() for each in args])


def number(value: int) -> exp.Expr:
    """Return a whole number; one that an INT cannot hold is a BIGINT by itself."""
    return exp.Literal.number(value)


def text(value: str) -> exp.Literal:
    """Return a string."""
    return exp.Literal.string(value)


def alias(tree: exp.Expr, name: str) -> exp.Alias:
    """Return an expression under a name."""
    return exp.Alias(this=tree.copy(), alias=exp.to_identifier(name, quoted=True))


def closed(tree: exp.Expr) -> exp.Expr:
    """Return a copy that can stand beside any operator: in parentheses if it must be."""
    made = tree.copy()
    if isinstance(made, _CLOSED):
        return made
    is_call = isinstance(made, exp.Func | exp.Cast | exp.Case | exp.Anonymous)
    return made if is_call and not isinstance(made, exp.Binary) else exp.Paren(this=made)


def both(parts: Iterable[exp.Expr | None]) -> exp.Expr | None:
    """Return the conjunction of conditions; None when there is none."""
    conditions = [closed(part) for part in parts if part is not None]
    return exp.and_(*conditions, copy=False) if conditions else None


def iff(condition: exp.Expr, yes: exp.Expr, no: exp.Expr) -> exp.If:
    """Return ``IF(condition, yes, no)``."""
    return exp.If(this=condition.copy(), true=yes.copy(), false=no.copy())


def is_null(tree: exp.Expr) -> exp.Expr:
    """Return ``tree IS NULL``."""
    return exp.Is(this=closed(tree), expression=exp.Null())


def not_null(tree: exp.Expr) -> exp.Expr:
    """Return ``tree IS NOT NULL``."""
    return exp.Not(this=is_null(tree))


def is_true(tree: exp.Expr) -> exp.Expr:
    """Return ``tree IS TRUE``: false, not NULL, where it is not known."""
    return exp.Is(this=exp.Paren(this=tree.copy()), expression=exp.true())


def cast(tree: exp.Expr, to: str) -> exp.Cast:
    """Return ``CAST(tree AS to)``."""
    return exp.Cast(this=tree.copy(), to=exp.DataType.build(to, dialect="spark"))


def select(
    items: Sequence[exp.Expr],
    source: exp.Expr,
    where: exp.Expr | None = None,
    group: Sequence[exp.Expr] = (),
) -> exp.Select:
    """Return ``SELECT items FROM source WHERE ... GROUP BY ...``."""
    made = exp.Select(
        expressions=[item.copy() for item in items], from_=exp.From(this=source.copy())
    )
    if where is not None:
        made.set("where", exp.Where(this=where.copy()))
    if group:
        made.set("group", exp.Group(expressions=[each.copy() for each in group]))
    return made


def nested(query: exp.Query) -> exp.Subquery:
    """Return a query as what another one reads from."""
    return exp.Subquery(this=query)


def moved(tree: _E, place: exp.Expr) -> _E:
    """Return a copy of a tree for the place of another one, so that errors point there."""
    made = tree.copy()
    for each in made.walk():
        each.meta.pop("start", None)
    starts = [each.meta["start"] for each in place.walk() if "start" in each.meta]
    if starts:
        made.meta["start"] = min(starts)
    return made


def rendered(tree: exp.Expr) -> str:
    """Return the text for Spark.

    Raises:
        sqlglot.UnsupportedError: Spark SQL cannot express something in it.
    """
    generator = _Generator(dialect="spark", comments=False, unsupported_level=ErrorLevel.RAISE)
    return generator.generate(tree)


class _Generator(SparkGenerator):
    """Leaves common table expressions where they are: two of one name may differ.

    QUALIFY stays as well, which Spark has: sqlglot would make a subquery of it, and take each
    column in it whose name is an alias for the alias, ``t.a`` of ``SELECT b AS a`` as ``b``.
    """

    EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
        **SparkGenerator.TRANSFORMS,
        exp.Select: preprocess([eliminate_distinct_on, unnest_to_explode, any_to_exists]),
    }

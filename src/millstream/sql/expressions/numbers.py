"""Functions of numbers: rounding, roots, signs, the greatest and the least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from millstream.model.types import MAX_PRECISION, decimal_type
from millstream.sql.expressions import kernels
from millstream.sql.expressions.arithmetic import bounded
from millstream.sql.expressions.casts import unit_and_limit
from millstream.sql.expressions.comparisons import comparison
from millstream.sql.expressions.kinds import integer_range, is_decimal, is_integer
from millstream.sql.expressions.nodes import Datum, Op

if TYPE_CHECKING:
    from millstream.model.types import SqlType

SQUARE_ROOT = Op("SQRT", "SQRT({0})", "square_root({0})", pc.sqrt)
SIGN = Op("SIGN", "SIGN({0})", "sign({0})")
IS_NAN = Op(
    "ISNAN",
    "ISNAN({0})",
    "is_nan({0})",
    lambda value: pc.fill_null(pc.is_nan(value), False),
    strict=False,
)


def to_whole(*, up: bool) -> Op:
    """Return CEIL or FLOOR of a DOUBLE."""
    name = "CEIL" if up else "FLOOR"
    python = "ceiling({0})" if up else "floor({0})"
    return Op(
        name,
        f"{name}({{0}})",
        python,
        lambda value: kernels.rounded_to_integer(value, up=up),
        raises=True,
    )


def decimal_to_whole(of: SqlType, *, up: bool) -> tuple[Op, SqlType]:
    """Return CEIL or FLOOR of a DECIMAL, and the type of its result."""
    name, way = ("CEIL", "ceil") if up else ("FLOOR", "floor")
    if of.arrow.scale == 0:
        return Op(f"{name} {of.sql}", f"{name}({{0}})", "{0}", lambda value: value), of
    whole = bounded(of.arrow.precision - of.arrow.scale + 1, 0)
    op = Op(
        f"{name} {of.sql}",
        f"{name}({{0}})",
        f"decimal_fit({{0}}, {{p0}}, {{p1}}, {way!r})",
        params=unit_and_limit(whole),
        raises=True,
    )
    return op, whole


def rounding(of: SqlType, places: int) -> tuple[Op, SqlType] | None:
    """Return ROUND to places after the point, and its type; None when it would not be exact."""
    name, text = f"ROUND {of.sql} {places}", f"ROUND({{0}}, {places})"
    if of.kind == "DOUBLE":
        return Op(name, text, f"round_float({{0}}, {places})"), of
    if is_integer(of):
        if places >= 0:
            return Op(name, text, "{0}", lambda value: value), of
        _, high = integer_range(of)
        python = f"{{t}} if {-high - 1} <= ({{t}} := round_integer({{0}}, {10**-places})) <= {high}"
        return Op(name, text, f"{python} else too_large()", raises=True), of
    if not is_decimal(of) or places < 0:
        return None
    scale = min(places, of.arrow.scale)
    digits = of.arrow.precision - of.arrow.scale + scale + 1
    rounded = decimal_type(min(digits, MAX_PRECISION), scale)
    python = "decimal_fit({0}, {p0}, {p1})"
    return Op(name, text, python, params=unit_and_limit(rounded), raises=True), rounded


def extreme(of: SqlType, count: int, *, greatest: bool) -> Op:
    """Return GREATEST or LEAST, which pass over NULLs."""
    name = "GREATEST" if greatest else "LEAST"
    inner = ", ".join(f"{{{place}}}" for place in range(count))
    better = comparison(">" if greatest else "<", of, number_on_the_right=False).arrow
    assert better is not None  # noqa: S101 - comparisons are never left to Python

    def arrow(*values: Datum) -> Datum:
        best = values[0]
        for value in values[1:]:
            best = kernels.pick(best, value, better(value, best))
        return best

    return Op(
        f"{name} {of.sql} {count}",
        f"{name}({inner})",
        f"{name.lower()}({inner})",
        arrow,
        strict=False,
        partial=True,
    )

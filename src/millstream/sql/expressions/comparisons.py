"""Comparisons: Spark's order, in which NaN equals itself and is greater than all other numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from millstream.sql.expressions.kinds import is_float
from millstream.sql.expressions.nodes import Datum, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType

    Kernel = Callable[[Any, Any], Any]

SWAPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What a comparison becomes when its sides change places."""

_PLAIN: dict[str, tuple[str, Kernel]] = {
    "=": ("{0} == {1}", pc.equal),
    "<>": ("{0} != {1}", pc.not_equal),
    "<": ("{0} < {1}", pc.less),
    "<=": ("{0} <= {1}", pc.less_equal),
    ">": ("{0} > {1}", pc.greater),
    ">=": ("{0} >= {1}", pc.greater_equal),
}

# IEEE says no to every order with a NaN; so x > 1 is what x <= 1 is not.
_NUMBER_ON_THE_RIGHT: dict[str, tuple[str, Kernel]] = {
    **_PLAIN,
    ">": ("not {0} <= {1}", lambda left, right: pc.invert(pc.less_equal(left, right))),
    ">=": ("not {0} < {1}", lambda left, right: pc.invert(pc.less(left, right))),
}


def _same(left: Datum, right: Datum) -> Datum:
    both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
    return pc.or_(pc.equal(left, right), both_nan)


def _less(left: Datum, right: Datum) -> Datum:
    return pc.and_(pc.invert(pc.is_nan(left)), pc.invert(pc.greater_equal(left, right)))


def _less_equal(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.is_nan(right), pc.greater_equal(right, left))


_FLOATS: dict[str, tuple[str, Kernel]] = {
    "=": ("({0} == {1} or ({0} != {0} and {1} != {1}))", _same),
    "<>": (
        "not ({0} == {1} or ({0} != {0} and {1} != {1}))",
        lambda left, right: pc.invert(_same(left, right)),
    ),
    "<": ("({0} == {0} and not {0} >= {1})", _less),
    "<=": ("({1} != {1} or {1} >= {0})", _less_equal),
    ">": ("({1} == {1} and not {1} >= {0})", lambda left, right: _less(right, left)),
    ">=": ("({0} != {0} or {0} >= {1})", lambda left, right: _less_equal(right, left)),
}


def comparison(symbol: str, of: SqlType, *, number_on_the_right: bool) -> Op:
    """Return the comparison of two values of one type.

    Args:
        symbol: one of ``SWAPPED``.
        of: the type of both sides.
        number_on_the_right: whether the right side is known, and no NaN.
    """
    forms = _PLAIN
    if is_float(of):
        forms = _NUMBER_ON_THE_RIGHT if number_on_the_right else _FLOATS
    python, arrow = forms[symbol]
    return Op(
        f"{symbol} {of.sql}",
        f"{{0}} {symbol} {{1}}",
        python,
        arrow,
        null_is_false=python == "{0} == {1}",
    )


def null_safe_equal(of: SqlType) -> Op:
    """Return ``<=>``, for which NULL is a value like any other."""
    kernel = _same if is_float(of) else pc.equal

    def same(left: Datum, right: Datum) -> Datum:
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.fill_null(pc.or_kleene(both, pc.fill_null(kernel(left, right), False)), False)

    python = "same({0}, {1})" if is_float(of) else "({0} == {1})"
    return Op(f"<=> {of.sql}", "{0} <=> {1}", python, same, strict=False)

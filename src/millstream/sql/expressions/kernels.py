"""What the Arrow form calls where one kernel does not do: arrays in, an array out.

What is wrong in some row is raised as ArrowInvalid, as Arrow's own kernels do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ExpressionError, RowError
from millstream.model.arrow_values import column_values
from millstream.model.types import VARCHAR, array_type
from millstream.sql.expressions import runtime

if TYPE_CHECKING:
    from millstream.model.types import SqlType
    from millstream.sql.expressions.nodes import Datum


_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
_LONGEST = 106751991 * 86400 * 10**6
_TEXTS = array_type(VARCHAR).arrow


def require(good: Datum) -> None:
    """Raise if a value, or one value of an array, is False; NULL is neither."""
    all_good = good if isinstance(good, pa.Scalar) else pc.all(good)
    if all_good.as_py() is False:
        raise pa.ArrowInvalid("overflow")


def remainder(left: Datum, right: Datum) -> Datum:
    """Return what is left of integers after a division; it has the sign of the dividend."""
    one = pa.scalar(1, right.type)
    # The least integer by -1 overflows, though nothing is left of it, as by 1.
    divisor = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), one, right)
    return pc.subtract(left, pc.multiply(pc.divide_checked(left, divisor), divisor))


def float_to_integer(value: Datum, target: pa.DataType) -> Datum:
    """Return floats without what follows the point, as integers."""
    whole = pc.trunc(value)
    high = float(1 << (target.bit_width - 1))
    # As in Java, the float just beyond the greatest BIGINT still becomes it.
    limit = pc.less_equal(whole, high) if target.bit_width == 64 else pc.less(whole, high)
    require(pc.and_(limit, pc.greater_equal(whole, -high)))
    if target.bit_width < 64:
        return pc.cast(whole, target, safe=False)
    top = pc.equal(whole, high)
    inside = pc.if_else(top, pa.scalar(0.0, whole.type), whole)
    return pc.if_else(top, pa.scalar((1 << 63) - 1), pc.cast(inside, target, safe=False))


def rounded_to_integer(value: Datum, *, up: bool) -> Datum:
    """Return CEIL or FLOOR of floats, for which NaN is 0."""
    value = pc.if_else(pc.is_nan(value), pa.scalar(0.0, value.type), value)
    whole = pc.ceil(value) if up else pc.floor(value)
    require(pc.less(whole, float(1 << 63)))  # which CAST lets pass
    return float_to_integer(whole, pa.int64())


def in_python_years(value: Datum) -> Datum:
    """Return timestamps if they are all in the years that Python knows, 1 to 9999."""
    kind = pa.timestamp("us", "UTC")
    first, last = pa.scalar(_FIRST, kind), pa.scalar(_LAST, kind)
    require(pc.and_(pc.greater_equal(value, first), pc.less_equal(value, last)))
    return value


def in_interval_range(value: Datum) -> Datum:
    """Return intervals if they are no longer than an INTERVAL may be."""
    micros = pc.cast(value, pa.int64())
    require(pc.and_(pc.greater_equal(micros, -_LONGEST), pc.less_equal(micros, _LONGEST)))
    return value


def python_values(of: SqlType, array: pa.Array) -> list[Any]:
    """Return the values of an array for an operation that Python runs."""
    try:
        return column_values("", of, array)
    except RowError as error:  # a view has worked it out, or an older version has let it in
        reason = error.message.partition(": ")[2]
        raise ExpressionError(
            reason,
            hint="Leave such rows out with WHERE, or select the column itself, as Arrow.",
        ) from error


def is_ascii(value: Datum) -> bool:
    """Whether text is all ASCII, for which the kernels of ASCII are right, and fast."""
    if isinstance(value, pa.Scalar):
        return bool(value.as_py() is None or value.as_py().isascii())
    return bool(pc.all(pc.string_is_ascii(value)).as_py() is not False)


def pick(left: Datum, right: Datum, better: Datum) -> Datum:
    """Return the right value where it is better, or where the left one is NULL."""
    take = pc.or_(pc.is_null(left), pc.fill_null(better, False))
    return pc.if_else(take, right, left)


def split(value: Datum, mark: str, most: int) -> Datum:
    """Return texts as arrays of what stands between marks; the last ones of more are together."""
    found = pc.split_pattern(value, mark, max_splits=None if most < 0 else most)
    return found.cast(_TEXTS)


def element(values: Datum, place: Datum) -> Datum:
    """Return one element of each array, from 0.

    Raises:
        ExpressionError: an array has none there.
    """
    rows = max((len(each) for each in (values, place) if isinstance(each, pa.Array)), default=-1)
    if rows < 0:
        return element(pa.array([values.as_py()], values.type), place)[0]
    if isinstance(values, pa.Scalar):
        values = pa.repeat(values, rows)
    places = pc.cast(place, pa.int64())
    lengths = pc.list_value_length(values)
    good = pc.and_(pc.greater_equal(places, 0), pc.less(places, lengths))
    bad = pc.index(good, pa.scalar(value=False)).as_py()
    if bad >= 0:
        at = places if isinstance(places, pa.Scalar) else places[bad]
        runtime.element(values[bad].as_py(), at.as_py())
    counts = pc.fill_null(pc.cast(lengths, pa.int64()), 0)
    starts = pc.subtract(pc.cumulative_sum(counts), counts)
    # NULL where an array, or the place, is NULL.
    wanted = pc.if_else(pc.is_valid(good), pc.add(starts, places), pa.scalar(None, pa.int64()))
    return pc.list_flatten(values).take(wanted)

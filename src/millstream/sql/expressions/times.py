"""Operations on DATE, TIMESTAMP and INTERVAL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.types import DATE, INTERVAL, TIMESTAMP, SqlType
from millstream.sql.expressions import kernels
from millstream.sql.expressions.nodes import Datum, Op

if TYPE_CHECKING:
    from collections.abc import Callable

_DURATION = pa.duration("us")


def _moved(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda left, right: kernels.in_python_years(_micros(kernel, TIMESTAMP, left, right))


def _length(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda left, right: kernels.in_interval_range(_micros(kernel, INTERVAL, left, right))


def _micros(kernel: Callable[..., Any], of: SqlType, left: Datum, right: Datum) -> Datum:
    # As integers: the checked kernels of times look at what is under a NULL, those of integers not.
    integers = kernel(pc.cast(left, pa.int64()), pc.cast(right, pa.int64()))
    return pc.cast(integers, of.arrow)


def _days_between(left: Datum, right: Datum) -> Datum:
    days = pc.subtract(pc.cast(left, pa.int32()), pc.cast(right, pa.int32()))
    return pc.cast(pc.multiply(pc.cast(days, pa.int64()), 86400 * 10**6), _DURATION)


OPERATIONS: dict[tuple[str, str, str], tuple[Op, SqlType]] = {
    ("TIMESTAMP", "+", "INTERVAL"): (
        Op("+ TIME", "{0} + {1}", "{0} + {1}", _moved(pc.add_checked), raises=True),
        TIMESTAMP,
    ),
    ("TIMESTAMP", "-", "INTERVAL"): (
        Op("- TIME", "{0} - {1}", "{0} - {1}", _moved(pc.subtract_checked), raises=True),
        TIMESTAMP,
    ),
    ("TIMESTAMP", "-", "TIMESTAMP"): (
        Op("- TIMES", "{0} - {1}", "{0} - {1}", pc.subtract),
        INTERVAL,
    ),
    ("DATE", "-", "DATE"): (Op("- DATES", "{0} - {1}", "{0} - {1}", _days_between), INTERVAL),
    ("INTERVAL", "+", "INTERVAL"): (
        Op(
            "+ INTERVAL",
            "{0} + {1}",
            "short_enough({0} + {1})",
            _length(pc.add_checked),
            raises=True,
        ),
        INTERVAL,
    ),
    ("INTERVAL", "-", "INTERVAL"): (
        Op(
            "- INTERVAL",
            "{0} - {1}",
            "short_enough({0} - {1})",
            _length(pc.subtract_checked),
            raises=True,
        ),
        INTERVAL,
    ),
}
"""By the kinds of the operands and the symbol between them: the operation and its type."""

NEGATIVE = Op("NEG INTERVAL", "-{0}", "-{0}", pc.negate)


def add_days(symbol: str) -> Op:
    """Return ``date + integer`` or ``date - integer``."""
    return Op(
        f"{symbol} DAYS", f"{{0}} {symbol} {{1}}", f"add_days({{0}}, {symbol}{{1}})", raises=True
    )


_FIELDS: dict[str, tuple[str, Callable[..., Any]]] = {
    "YEAR": ("{0}.year", pc.year),
    "QUARTER": ("({0}.month + 2) // 3", pc.quarter),
    "MONTH": ("{0}.month", pc.month),
    "DAY": ("{0}.day", pc.day),
    "DAYOFYEAR": ("{0}.timetuple().tm_yday", pc.day_of_year),
    "DAYOFWEEK": ("{0}.isoweekday() % 7 + 1", lambda value: _weekday(value, first=1)),
    "WEEKDAY": ("{0}.weekday()", lambda value: _weekday(value, first=0)),
    "WEEKOFYEAR": ("{0}.isocalendar()[1]", pc.iso_week),
    "HOUR": ("{0}.hour", pc.hour),
    "MINUTE": ("{0}.minute", pc.minute),
    "SECOND": ("{0}.second", pc.second),
}


def _weekday(value: Datum, *, first: int) -> Datum:
    if first == 0:
        return pc.day_of_week(value)
    return pc.day_of_week(value, count_from_zero=False, week_start=7)


def field(name: str, of: SqlType) -> Op | None:
    """Return the operation that reads a field of a DATE or TIMESTAMP; None when it has none."""
    if name not in _FIELDS or (of == DATE and name in {"HOUR", "MINUTE", "SECOND"}):
        return None
    python, kernel = _FIELDS[name]

    def arrow(value: Datum) -> Datum:
        if of == TIMESTAMP:
            # As a local time: in UTC it is the same, and no zone need be looked up.
            value = pc.cast(value, pa.timestamp("us"))
        return pc.cast(kernel(value), pa.int32())

    return Op(f"{name} {of.sql}", f"{name}({{0}})", python, arrow)


UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "YEAR"),
    "QUARTER": "QUARTER",
    **dict.fromkeys(("MONTH", "MON", "MM"), "MONTH"),
    "WEEK": "WEEK",
    **dict.fromkeys(("DAY", "DD"), "DAY"),
    "HOUR": "HOUR",
    "MINUTE": "MINUTE",
    "SECOND": "SECOND",
    "MILLISECOND": "MILLISECOND",
    "MICROSECOND": "MICROSECOND",
}
"""The units of DATE_TRUNC, by all of their names."""


def truncation(unit: str) -> Op:
    """Return DATE_TRUNC to a unit."""

    def arrow(value: Datum) -> Datum:
        local = pc.cast(value, pa.timestamp("us"))
        floor = pc.floor_temporal(local, unit=unit.lower(), week_starts_monday=True)
        return kernels.in_python_years(pc.cast(floor, TIMESTAMP.arrow))

    return Op(
        f"DATE_TRUNC {unit}",
        f"DATE_TRUNC('{unit}', {{0}})",
        f"truncate({{0}}, {unit!r})",
        arrow,
        raises=unit == "WEEK",  # the first week of the year 1 begins before it
    )

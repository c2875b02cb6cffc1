"""DATE, TIMESTAMP and INTERVAL: arithmetic, fields, DATE_TRUNC; each operation with its binding."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.model.types import DATE, INTEGER, INTERVAL, TIMESTAMP, SqlType, decimal_type
from millstream.sql.expressions import kernels, literals
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Datum, Literal, Node, Op, Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from millstream.sql.expressions.bind import Binder


# --- Operations -----------------------------------------------------------------------------------

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

NEGATIVE_INTERVAL = Op("NEG INTERVAL", "-{0}", "-{0}", pc.negate)


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


def field_op(name: str, of: SqlType) -> Op | None:
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


def seconds(value: datetime) -> Decimal:
    """Return the seconds of a time, with its microseconds."""
    return Decimal(value.second * 1_000_000 + value.microsecond).scaleb(-6)


SECONDS = Op("SECONDS", "EXTRACT(SECOND FROM {0})", "{p0}({0})", params=(seconds,))


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


# --- Binding --------------------------------------------------------------------------------------


def time_arithmetic(binder: Binder, tree: Tree, symbol: str, left: Node, right: Node) -> Node:
    """Return ``+`` or ``-`` of two operands, at least one of them a DATE, TIMESTAMP or INTERVAL."""
    kinds = (left.type.kind, symbol, right.type.kind)
    if kinds in {("INTERVAL", "+", "TIMESTAMP"), ("INTERVAL", "+", "DATE")}:
        left, right, kinds = right, left, (kinds[2], "+", kinds[0])
    if kinds[0] == "DATE" and kinds[2] == "INTERVAL" and symbol in {"+", "-"}:
        return _date_and_interval(binder, tree, symbol, left)
    if kinds[0] == "DATE" and kinds[2] in {"TINYINT", "SMALLINT", "INTEGER"} and symbol in "+-":
        return call(add_days(symbol), left, right, of=DATE)
    if kinds in {("DATE", "-", "TIMESTAMP"), ("TIMESTAMP", "-", "DATE")}:
        left, right = (binder.coerce(tree, each, TIMESTAMP) for each in (left, right))
        kinds = ("TIMESTAMP", "-", "TIMESTAMP")
    found = OPERATIONS.get(kinds)
    if found is None:
        binder.mismatch(
            tree,
            f"there is no operator {left.type.sql} {symbol} {right.type.sql}",
            "CAST one operand, or see whether parentheses are missing.",
        )
    op, of = found
    return call(op, left, right, of=of)


def _date_and_interval(binder: Binder, tree: Tree, symbol: str, left: Node) -> Node:
    side = tree.expression if left.type == DATE and not _is_interval(tree.this) else tree.this
    days = literals.days_of_interval(side) if isinstance(side, exp.Interval) else None
    if days is None:
        binder.refuse(
            tree,
            "to a DATE only days can be added",
            "Write INTERVAL '1' DAY, or CAST the DATE AS TIMESTAMP first.",
        )
    return call(add_days(symbol), left, Literal(days, INTEGER), of=DATE)


def _is_interval(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Interval)


def time_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a DATE or a TIMESTAMP."""
    # sqlglot wraps the argument of YEAR and its kin in a conversion, which changes nothing here.
    tree = tree.this if isinstance(tree, exp.TsOrDsToDate) else tree
    node = binder.bind(tree)
    if node.type not in {DATE, TIMESTAMP}:
        binder.mismatch(
            tree, f"expected DATE or TIMESTAMP, got {node.type.sql}", "Write TIMESTAMP '...'."
        )
    return node


def _field(name: str) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        return field(binder, tree, name, time_of(binder, tree.this))

    return bind


def field(binder: Binder, tree: exp.Expr, name: str, node: Node) -> Node:
    """Return a field of a DATE or TIMESTAMP."""
    if name in {"HOUR", "MINUTE", "SECOND"}:
        node = binder.coerce(tree, node, TIMESTAMP)
    op = field_op(name, node.type)
    if op is None:
        binder.refuse(tree, f"there is no {name} of a time", "Use YEAR, MONTH, DAY, HOUR, MINUTE.")
    return call(op, node, of=INTEGER)


_EXTRACT = {
    **{name: name for name in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")},
    "WEEK": "WEEKOFYEAR",
    "DOW": "DAYOFWEEK",
    "DOY": "DAYOFYEAR",
    "DAYOFWEEK": "DAYOFWEEK",
}


def _extract(binder: Binder, tree: exp.Extract) -> Node:
    return part(binder, tree, tree.this.name.upper(), tree.expression)


def part(binder: Binder, tree: exp.Expr, name: str, time: exp.Expr) -> Node:
    """Return the part of a time that EXTRACT names; its seconds have microseconds."""
    if name == "SECOND":
        node = binder.coerce(time, time_of(binder, time), TIMESTAMP)
        return call(SECONDS, node, of=decimal_type(8, 6))
    if name not in _EXTRACT:
        binder.refuse(
            tree,
            f"EXTRACT({name} ...) is not supported",
            f"EXTRACT takes {', '.join(_EXTRACT)}, SECOND.",
        )
    return field(binder, tree, _EXTRACT[name], time_of(binder, time))


def _truncate(binder: Binder, tree: exp.TimestampTrunc) -> Node:
    unit = UNITS.get(tree.args["unit"].name.upper())
    if unit is None:
        binder.refuse(
            tree, "DATE_TRUNC does not support this unit", f"It takes {', '.join(UNITS)}."
        )
    node = binder.coerce(tree, time_of(binder, tree.this), TIMESTAMP)
    return call(truncation(unit), node, of=TIMESTAMP)


BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Year: _field("YEAR"),
    exp.Quarter: _field("QUARTER"),
    exp.Month: _field("MONTH"),
    exp.Day: _field("DAY"),
    exp.DayOfMonth: _field("DAY"),
    exp.DayOfWeek: _field("DAYOFWEEK"),
    exp.DayOfYear: _field("DAYOFYEAR"),
    exp.WeekOfYear: _field("WEEKOFYEAR"),
    exp.Hour: _field("HOUR"),
    exp.Minute: _field("MINUTE"),
    exp.Second: _field("SECOND"),
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncate,
}

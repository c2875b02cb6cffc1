"""Functions of dates: months and days added, counted and cut off; numbers since 1970; DATE_FORMAT.

Each has its operation, what Python runs for it, and its binding.
"""

from __future__ import annotations

import calendar
import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import ExpressionError
from millstream.model.clock import EPOCH, MICROSECOND
from millstream.model.types import BIGINT, DATE, INTEGER, TIMESTAMP, VARCHAR
from millstream.sql.expressions import times
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.nodes import Datum, Literal, Node, Op, string_text
from millstream.sql.expressions.text import integer_of
from millstream.sql.expressions.text_values import text_to_date
from millstream.sql.expressions.type_rules import is_integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder

    Writer = Callable[[datetime], str]


# --- What Python runs -----------------------------------------------------------------------------

_FIRST = date(1970, 1, 1)


def add_months(value: date, months: int) -> date:
    """Return the same day of another month, or the last day of it.

    >>> add_months(date(2024, 1, 31), 1)
    datetime.date(2024, 2, 29)
    """
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    return date(year, month + 1, min(value.day, calendar.monthrange(year, month + 1)[1]))


def last_day(value: date) -> date:
    """Return the last day of a month."""
    return value.replace(day=calendar.monthrange(value.year, value.month)[1])


def make_date(year: int, month: int, day: int) -> date:
    """Return the date of three numbers."""
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise ExpressionError(
            f"there is no date {year}-{month}-{day}", hint="Years are 1 to 9999."
        ) from error


def truncate_date(value: date, unit: str) -> date:
    """Return the first day of the year, quarter, month or week that a day is in."""
    if unit == "WEEK":
        return value - timedelta(days=value.weekday())
    if unit == "MONTH":
        return value.replace(day=1)
    return value.replace(day=1, month=1 if unit == "YEAR" else (value.month - 1) // 3 * 3 + 1)


def from_unix(count: int, micros: int) -> datetime:
    """Return the time that is so many times so many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=count * micros)


# --- DATE_FORMAT ----------------------------------------------------------------------------------

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "M": lambda time: time.month,
    "d": lambda time: time.day,
    "H": lambda time: time.hour,
    "h": lambda time: (time.hour + 11) % 12 + 1,
    "K": lambda time: time.hour % 12,
    "k": lambda time: (time.hour + 23) % 24 + 1,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
}
_WORDS: dict[str, Writer] = {
    "yy": lambda time: f"{time.year % 100:02}",
    "MMM": lambda time: _MONTHS[time.month - 1][:3],
    "MMMM": lambda time: _MONTHS[time.month - 1],
    **dict.fromkeys(("E", "EE", "EEE"), lambda time: _DAYS[time.weekday()][:3]),
    "EEEE": lambda time: _DAYS[time.weekday()],
    "a": lambda time: "AM" if time.hour < 12 else "PM",
    "D": lambda time: str(time.timetuple().tm_yday),
    "DDD": lambda time: f"{time.timetuple().tm_yday:03}",
}
_PART = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z'\[\]{}#]+")


_SPECIAL = re.compile(r"\s*(epoch|now|today|tomorrow|yesterday)", re.IGNORECASE)


def formatter(pattern: str) -> Writer | None:
    """Return what writes times by a pattern of Java; None when it has more than is known here.

    >>> formatter("d.M.yyyy HH:mm")(datetime(2026, 1, 31, 9, 5))
    '31.1.2026 09:05'
    """
    writers: list[Writer] = []
    place = 0
    while place < len(pattern):
        found = _PART.match(pattern, place)
        writer = None if found is None else _writer(found.group())
        if found is None or writer is None:
            return None
        writers.append(writer)
        place = found.end()
    return lambda time: "".join([write(time) for write in writers])


def _writer(part: str) -> Writer | None:
    if not part[0].isascii() or not part[0].isalpha():
        return _constant(part)
    letter, length = part[0], len(part)
    if part in _WORDS:
        return _WORDS[part]
    if letter in _NUMBERS and length <= 2:
        return _padded(_NUMBERS[letter], length)
    if letter == "y" and length <= 4:
        return _padded(lambda time: time.year, length)
    if letter == "S" and length <= 6:
        return lambda time: f"{time.microsecond:06}"[:length]
    return None


def _constant(part: str) -> Writer:
    text = part
    if part[0] == "'":
        text = part[1:-1].replace("''", "'") or "'"
    return lambda _time: text


def _padded(number: Callable[[datetime], int], length: int) -> Writer:
    return lambda time: f"{number(time):0{length}}"


# --- Operations -----------------------------------------------------------------------------------


def _days_between(left: Datum, right: Datum) -> Datum:
    return pc.subtract(pc.cast(left, pa.int32()), pc.cast(right, pa.int32()))


def _op(name: str, count: int, function: Callable[..., Any], *, raises: bool = False) -> Op:
    inner = ", ".join(f"{{{place}}}" for place in range(count))
    return Op(name, f"{name}({inner})", f"{{p0}}({inner})", params=(function,), raises=raises)


DATEDIFF = Op("DATEDIFF", "DATEDIFF({0}, {1})", "({0} - {1}).days", _days_between)
ADD_MONTHS = _op("ADD_MONTHS", 2, add_months, raises=True)
LAST_DAY = _op("LAST_DAY", 1, last_day)
MAKE_DATE = _op("MAKE_DATE", 3, make_date, raises=True)
TO_DATE = _op("TO_DATE", 1, text_to_date, raises=True)
UNIX_DATE = Op(
    "UNIX_DATE",
    "UNIX_DATE({0})",
    "({0} - {p0}).days",
    lambda value: pc.cast(value, pa.int32()),
    params=(_FIRST,),
)
DATE_FROM_UNIX_DATE = Op(
    "DATE_FROM_UNIX_DATE",
    "DATE_FROM_UNIX_DATE({0})",
    "{p0} + {p1}({0})",
    params=(_FIRST, timedelta),
    raises=True,
)
_UNITS = {"SECONDS": 1_000_000, "MILLIS": 1000, "MICROS": 1}


def unix(name: str) -> Op:
    """Return UNIX_SECONDS, UNIX_MILLIS or UNIX_MICROS."""
    unit = MICROSECOND * _UNITS[name]
    return Op(f"UNIX_{name}", f"UNIX_{name}({{0}})", "({0} - {p0}) // {p1}", params=(EPOCH, unit))


def timestamp(name: str) -> Op:
    """Return TIMESTAMP_SECONDS, TIMESTAMP_MILLIS or TIMESTAMP_MICROS."""
    params, text = (from_unix, _UNITS[name]), f"TIMESTAMP_{name}"
    return Op(text, f"{text}({{0}})", "{p0}({0}, {p1})", params=params, raises=True)


def truncation(unit: str) -> Op:
    """Return TRUNC to a unit."""
    text = f"TRUNC({{0}}, '{unit}')"
    return Op(text, text, "{p0}({0}, {p1})", params=(truncate_date, unit))


# --- Binding --------------------------------------------------------------------------------------


def date_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a DATE, or a TIMESTAMP, which is made one."""
    node = binder.bind(tree)
    if node.type.kind == "NULL":
        return Literal(None, DATE)
    if node.type == TIMESTAMP or (isinstance(node, Literal) and node.type == VARCHAR):
        return binder.coerce(tree, node, DATE)
    if node.type != DATE:
        binder.mismatch(
            tree, f"expected DATE or TIMESTAMP, got {node.type.sql}", "CAST it AS DATE."
        )
    return node


def _moved(symbol: str) -> Callable[[Binder, exp.Anonymous], Node]:
    def bind(binder: Binder, tree: exp.Anonymous) -> Node:
        day, count = tree.expressions
        args = (date_of(binder, day), integer_of(binder, count))
        return call(times.add_days(symbol), *args, of=DATE)

    return bind


def _of_dates(op: Op, of: SqlType) -> Callable[[Binder, exp.Anonymous], Node]:
    return lambda binder, tree: call(
        op, *(date_of(binder, each) for each in tree.expressions), of=of
    )


def _add_months(binder: Binder, tree: exp.Anonymous) -> Node:
    day, months = tree.expressions
    return call(ADD_MONTHS, date_of(binder, day), integer_of(binder, months), of=DATE)


def _of_integers(op: Op) -> Callable[[Binder, exp.Anonymous], Node]:
    return lambda binder, tree: call(
        op, *(integer_of(binder, each) for each in tree.expressions), of=DATE
    )


def _trunc(binder: Binder, tree: exp.Anonymous) -> Node:
    day, said = tree.expressions
    unit = times.UNITS.get(said.name.upper()) if said.is_string else None
    if unit not in {"YEAR", "QUARTER", "MONTH", "WEEK"}:
        binder.refuse(tree, "TRUNC does not support this unit", "Write TRUNC(day, 'MONTH').")
    return call(truncation(unit), date_of(binder, day), of=DATE)


def _to_date(binder: Binder, tree: exp.Anonymous) -> Node:
    [arg] = tree.expressions
    node = binder.bind(arg)
    if node.type != VARCHAR:
        return date_of(binder, arg)
    if isinstance(node, Literal) and _SPECIAL.match(node.value or ""):
        binder.refuse(tree, f"{node.sql} is another day every day", "Write '2026-01-31'.")
    return call(TO_DATE, node, of=DATE)


def _date_part(binder: Binder, tree: exp.Anonymous) -> Node:
    name, time = tree.expressions
    if not name.is_string:
        binder.refuse(tree, "the part of a time must be a constant", "Write EXTRACT(YEAR FROM ts).")
    return times.part(binder, tree, name.name.upper(), time)


def _unix_date(binder: Binder, tree: exp.Anonymous) -> Node:
    node = binder.bind(tree.expressions[0])
    if node.type != DATE:
        binder.mismatch(tree, f"expected DATE, got {node.type.sql}", "CAST it AS DATE.")
    return call(UNIX_DATE, node, of=INTEGER)


def _unix(name: str) -> Callable[[Binder, exp.Anonymous], Node]:
    def bind(binder: Binder, tree: exp.Anonymous) -> Node:
        node = times.time_of(binder, tree.expressions[0])
        if node.type != TIMESTAMP:
            binder.mismatch(tree, "expected TIMESTAMP, got DATE", "CAST it AS TIMESTAMP.")
        return call(unix(name), node, of=BIGINT)

    return bind


def _timestamp(name: str) -> Callable[[Binder, exp.Anonymous], Node]:
    def bind(binder: Binder, tree: exp.Anonymous) -> Node:
        node = binder.bind(tree.expressions[0])
        if not is_integer(node.type):
            binder.mismatch(tree, f"expected BIGINT, got {node.type.sql}", "CAST it AS BIGINT.")
        return call(timestamp(name), binder.coerce(tree, node, BIGINT), of=TIMESTAMP)

    return bind


def _date_format(binder: Binder, tree: exp.Anonymous) -> Node:
    time, pattern = tree.expressions
    known = binder.bind(pattern)
    write = None
    if isinstance(known, Literal) and isinstance(known.value, str):
        write = formatter(known.value)
    if write is None or not isinstance(known, Literal):
        binder.refuse(
            tree,
            "DATE_FORMAT does not support this pattern",
            "Write a constant of y M d H h m s S E a and signs, such as 'yyyy-MM-dd HH:mm:ss'.",
        )
    node = binder.coerce(time, times.time_of(binder, time), TIMESTAMP)
    shown = string_text(known.value).replace("{", "{{").replace("}", "}}")
    text = f"DATE_FORMAT({{0}}, {shown})"
    return call(Op(text, text, "{p0}({0})", params=(write,)), node, of=VARCHAR)


NAMED: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    "ADD_MONTHS": _add_months,
    "DATEDIFF": _of_dates(DATEDIFF, INTEGER),
    "DATE_ADD": _moved("+"),
    "DATE_DIFF": _of_dates(DATEDIFF, INTEGER),
    "DATE_FORMAT": _date_format,
    "DATE_FROM_UNIX_DATE": _of_integers(DATE_FROM_UNIX_DATE),
    **dict.fromkeys(("DATEPART", "DATE_PART"), _date_part),
    "DATE_SUB": _moved("-"),
    "LAST_DAY": _of_dates(LAST_DAY, DATE),
    "MAKE_DATE": _of_integers(MAKE_DATE),
    "TO_DATE": _to_date,
    "TRUNC": _trunc,
    "UNIX_DATE": _unix_date,
    **{f"UNIX_{name}": _unix(name) for name in _UNITS},
    **{f"TIMESTAMP_{name}": _timestamp(name) for name in _UNITS},
}

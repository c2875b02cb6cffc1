"""Literals: the values that numbers, dates, timestamps and intervals in a text stand for."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.model.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    VARCHAR,
    decimal_type,
)
from millstream.sql.expressions.nodes import NULL_TYPE, Literal
from millstream.sql.expressions.type_rules import integer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.expressions.bind import Binder
    from millstream.sql.expressions.nodes import Node, Tree

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4}(?:-\d{1,2}){0,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:\.(?P<part>\d{1,6}))?\ ?"
    r"(?P<zone>Z|UTC|[+-]\d{1,2}(?::\d{2})?)?)?)?",
    re.ASCII,
)
_BLANK = "".join(map(chr, range(0x21)))
_SECONDS = {"MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": 10**6}
_MICROS = _SECONDS | {
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
    "DAY": 86400 * 10**6,
    "WEEK": 7 * 86400 * 10**6,
}
_LONGEST_NUMBER = 400
_LONGEST = 106751991 * _MICROS["DAY"]  # what an INTERVAL may be at most
_QUANTITY = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s+([A-Za-z]+)", re.ASCII)


def number(text: str) -> Literal | None:
    """Return the number that a text stands for, of the type that Spark gives it; None if too long.

    >>> number("1.50").type.sql, number("7").type.sql, number("1e3").value
    ('DECIMAL(3, 2)', 'INTEGER', 1000.0)
    """
    if "e" in text.lower():
        value = float(text)
        return None if math.isinf(value) else Literal(value, DOUBLE, number=True)
    if len(text) > _LONGEST_NUMBER:
        return None
    if "." not in text:
        whole = int(text)
        of = integer_of(whole)
        if of is not None:
            return Literal(whole, of, number=True)
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        return None
    return Literal(exact or exact.copy_abs(), decimal_type(precision, scale), number=True)


def hex_bytes(digits: str) -> bytes:
    r"""Return the bytes of ``X'...'``; of an odd number of digits the first stands alone.

    >>> hex_bytes("1FF")
    b'\x01\xff'
    """
    return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)


def parse_date(text: str) -> date | None:
    """Return the date of a text such as ``2026-01-31``; None when it is none.

    >>> parse_date("2026-1-31")
    datetime.date(2026, 1, 31)
    """
    matched = _DATE.fullmatch(text.strip(_BLANK))
    if matched is None:
        return None
    try:
        return date(int(matched[1]), int(matched[2] or 1), int(matched[3] or 1))
    except ValueError:
        return None


def time_hint(target: SqlType) -> str:
    """Return how values of DATE or TIMESTAMP are written."""
    if target.kind == "DATE":
        return "Write '2026-01-31'."
    return "Write '2026-01-31', '2026-01-31 12:30:00' or '2026-01-31 12:30:00+01:00'."


def parse_timestamp(text: str) -> datetime | None:
    """Return the time of a text such as ``2026-01-31 12:30:00.5``, in UTC if it names no zone.

    >>> parse_timestamp("2026-01-31T12:30:00+01:00").isoformat()
    '2026-01-31T11:30:00+00:00'
    """
    matched = _TIMESTAMP.fullmatch(text.strip(_BLANK))
    day = matched and parse_date(matched["date"])
    if not matched or not day:
        return None
    hour, minute, second = (int(matched[name] or 0) for name in ("hour", "minute", "second"))
    micros = int((matched["part"] or "").ljust(6, "0"))
    try:
        plain = datetime.combine(day, time(hour, minute, second, micros), UTC)
        return (plain - _offset(matched["zone"] or "Z")).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> timedelta:
    if zone in {"Z", "UTC"}:
        return timedelta(0)
    hours, _, minutes = zone[1:].partition(":")
    size = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if int(minutes or 0) > 59 or size > timedelta(hours=18):
        raise ValueError(zone)
    return -size if zone[0] == "-" else size


def parse_interval(text: str, unit: str) -> timedelta | None:
    """Return the length of ``INTERVAL 'text' unit``; of ``INTERVAL 'text'`` when unit is empty.

    >>> parse_interval("90", "SECOND"), parse_interval("1 day 2 hours", "")
    (datetime.timedelta(seconds=90), datetime.timedelta(days=1, seconds=7200))
    """
    parts = [(text, unit)] if unit else _QUANTITY.findall(text)
    rest = _QUANTITY.sub("", text).strip() if not unit else ""
    if not parts or rest:
        return None
    total = 0
    for amount, word in parts:
        micros = _micros(amount.strip(), word.upper())
        if micros is None:
            return None
        total += micros
    return timedelta(microseconds=total) if abs(total) <= _LONGEST else None


def is_suffixed(tree: exp.Expr) -> bool:
    """Whether a CAST was written as a number with its type behind it, such as ``100L``.

    sqlglot makes the same of both; only in the one that was not written out do both begin at once.
    """
    if not isinstance(tree, exp.Cast) or not isinstance(tree.this, exp.Literal):
        return False
    start = tree.meta.get("start")
    return start is not None and start == tree.this.meta.get("start")


def days_of_interval(tree: exp.Interval) -> int | None:
    """Return the days of an INTERVAL that was written in days and weeks only; None of any other."""
    unit = tree.args.get("unit")
    if not isinstance(tree.this, exp.Literal) or not (unit is None or isinstance(unit, exp.Var)):
        return None
    text = tree.this.name
    words = [unit.name] if unit else [word for _, word in _QUANTITY.findall(text)]
    if not {word.upper().removesuffix("S") for word in words} <= {"DAY", "WEEK"}:
        return None
    value = parse_interval(text, unit.name if unit else "")
    return None if value is None else value.days


def _micros(amount: str, word: str) -> int | None:
    word = word if word in _MICROS else word.removesuffix("S")
    if word not in _MICROS or not re.fullmatch(r"[+-]?\d+(\.\d{1,6})?", amount, re.ASCII):
        return None
    if "." in amount and word != "SECOND":
        return None
    return int(Decimal(amount) * _MICROS[word])


# --- Binding --------------------------------------------------------------------------------------


def bind_literal(binder: Binder, tree: exp.Literal) -> Node:
    """Return the node of a number or a text."""
    if tree.is_string:
        return Literal(tree.this, VARCHAR)
    made = number(tree.this)
    if made is None:
        short = tree.this if len(tree.this) < 40 else f"{tree.this[:40]}..."
        hint = "A DECIMAL has 38 digits at most, a DOUBLE goes up to 1.8e308."
        binder.refuse(tree, f"the number {short} is too large", hint)
    return made


def _interval(binder: Binder, tree: exp.Interval) -> Node:
    unit = tree.args.get("unit")
    text = tree.this.name if isinstance(tree.this, exp.Literal) else ""
    if isinstance(tree.this, exp.Neg):
        text = "-" + tree.this.this.name
    plain = unit is None or isinstance(unit, exp.Var)
    value = parse_interval(text, unit.name if unit else "") if plain else None
    if value is None:
        binder.refuse(
            tree,
            "this INTERVAL is not supported",
            "Write INTERVAL '90' SECOND, or INTERVAL '1 day 2 hours'; "
            "months and years have no fixed length.",
        )
    return Literal(value, INTERVAL)


def text_as(binder: Binder, tree: exp.Expr, node: Literal, target: SqlType) -> Literal:
    """Return the DATE or TIMESTAMP of a literal text."""
    if target.kind not in _TIMES:
        binder.mismatch(
            tree,
            f"expected {target.sql}, got a text",
            "Write the value without quotes, or CAST it.",
        )
    return _read(binder, tree, node, target, hint=time_hint(target))


def compared_text(binder: Binder, tree: exp.Expr, node: Literal, target: SqlType) -> Literal:
    """Return a literal text that is compared with a BIGINT, a DOUBLE or a BOOLEAN as such."""
    return _read(binder, tree, node, target, hint="Write the value without quotes.")


def _read(binder: Binder, tree: exp.Expr, node: Literal, target: SqlType, *, hint: str) -> Literal:
    if node.value is None:  # CAST(NULL AS VARCHAR)
        return Literal(None, target)
    value = {**_TIMES, **_COMPARED}[target.kind](node.value)
    if value is None:
        binder.mismatch(tree, f"{node.sql} is not a valid {target.sql}", hint)
    return Literal(value, target)


def _whole(text: str) -> int | None:
    found = _WHOLE.fullmatch(text.strip(_BLANK))
    value = None if found is None else int(found[0])
    return value if value is not None and -(1 << 63) <= value < 1 << 63 else None


def _double(text: str) -> float | None:
    return float(text) if _DOUBLE.fullmatch(text.strip(_BLANK)) else None


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text.strip(_BLANK).lower())


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_TIMES: dict[str, Callable[[str], Any]] = {"DATE": parse_date, "TIMESTAMP": parse_timestamp}
_COMPARED: dict[str, Callable[[str], Any]] = {
    "BIGINT": _whole,
    "BOOLEAN": _truth,
    "DOUBLE": _double,
}
"""How Spark reads a text that is compared with a number or a BOOLEAN."""

BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    exp.Literal: bind_literal,
    exp.Interval: _interval,
    exp.Null: lambda _binder, _tree: Literal(None, NULL_TYPE),
    exp.Boolean: lambda _binder, tree: Literal(tree.this, BOOLEAN),
    exp.RawString: lambda _binder, tree: Literal(tree.this, VARCHAR),
    exp.HexString: lambda _binder, tree: Literal(hex_bytes(tree.this), BINARY),
}

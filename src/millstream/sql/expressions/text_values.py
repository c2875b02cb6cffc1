"""What CAST of VARCHAR calls while it runs: the value that a text denotes, or an error.

Texts that are not NULL in, a value out; ``READERS`` has the functions by name.
"""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from millstream.errors import ExpressionError
from millstream.sql.expressions.runtime import decimal_fit, overflow


def malformed(text: str, kind: str) -> ExpressionError:
    """Return the error of a text that cannot be read as a type."""
    return ExpressionError(
        f"{text!r} cannot be read as {kind}", hint="TRY_CAST gives NULL instead."
    )


_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
# Possessive quantifiers (++) keep a text that is no number from being read again and again.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_HEX = re.compile(r"[+-]?0[xX]([0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?")
_DECIMAL = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_DATE = re.compile(r"\+?([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_SPECIAL = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def text_to_integer(text: str, high: int, kind: str) -> int:
    """Return the integer that a text denotes."""
    plain = text.strip(_BLANK)
    if not _INTEGER.fullmatch(plain) or len(plain) > 4000:
        raise malformed(text, kind)
    value = int(plain)
    if not -high - 1 <= value <= high:
        raise malformed(text, kind)
    return value


def text_to_double(text: str) -> float:
    """Return the float that a text denotes, in the grammar of Java."""
    plain = text.strip(_BLANK)
    if _FLOAT.fullmatch(plain):
        return float(plain.rstrip("dDfF"))
    if plain.lower() in _SPECIAL:
        return _SPECIAL[plain.lower()]
    if _HEX.fullmatch(plain):
        head, exponent = plain.lower().split("p")
        try:
            return float.fromhex(f"{head}p{exponent.rstrip('df')}")
        except OverflowError:
            return -math.inf if plain.startswith("-") else math.inf
    raise malformed(text, "DOUBLE")


def text_to_decimal(text: str, quantum: Decimal, limit: Decimal) -> Decimal:
    """Return the DECIMAL that a text denotes, rounded."""
    plain = text.strip(_BLANK)
    if not _DECIMAL.fullmatch(plain):
        raise malformed(text, "DECIMAL")
    value = Decimal(plain)
    if value.adjusted() > 60:
        raise overflow()
    if value.adjusted() < -60:
        return decimal_fit(Decimal(0), quantum, limit)
    with_room = Context(prec=len(plain) + 200, rounding=ROUND_HALF_UP)
    return decimal_fit(with_room.quantize(value, quantum), quantum, limit)


def text_to_boolean(text: str) -> bool:
    """Return the BOOLEAN that a text denotes."""
    plain = text.strip(_BLANK).lower()
    if plain in _TRUE:
        return True
    if plain in _FALSE:
        return False
    raise malformed(text, "BOOLEAN")


def text_to_date(text: str) -> date:
    """Return the DATE that a text denotes: a year, perhaps a month, perhaps a day, a time after."""
    found = _DATE.fullmatch(text.strip(_BLANK))
    if not found:
        raise malformed(text, "DATE")
    year, month, day = (int(each or 1) for each in found.groups())
    try:
        return date(year, month, day)
    except ValueError as error:
        raise malformed(text, "DATE") from error


READERS: dict[str, Any] = {
    each.__name__: each
    for each in (text_to_boolean, text_to_date, text_to_decimal, text_to_double, text_to_integer)
}
"""All that the text of a Python form may call of these."""

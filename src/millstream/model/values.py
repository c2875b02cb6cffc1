"""Which Python values belong to a SQL type, and their canonical form.

The checks are strict because pyarrow alone is not: it makes 1 of 1.5, loses the time of a datetime
in a DATE, and takes an int for the microseconds of a TIMESTAMP, all without a word.

The canonical values, which a check returns and which rows hold: bool, int, float, Decimal (with
exactly the scale of its type), str, bytes, date, datetime (in UTC), timedelta, list for an ARRAY,
dict for a STRUCT and for a MAP, None for NULL.
"""

from __future__ import annotations

import operator
import reprlib
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from numbers import Rational, Real
from typing import Any

from millstream.errors import SchemaMismatchError
from millstream.model.zones import UTC_TIMES

Check = Callable[[Any], Any]
"""Returns a value in canonical form (None stays None), or raises SchemaMismatchError."""

ColumnFits = Callable[[Sequence[Any]], bool]
"""Whether values, all of exactly the canonical class, may stay as they are; False: check each."""


# --- Scalars --------------------------------------------------------------------------------------


def _misfit(expected: str, value: object, hint: str = "") -> SchemaMismatchError:
    try:
        shown = reprlib.repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "of too many digits to print"
    kind = type(value).__name__
    return SchemaMismatchError(f"expected {expected}, got {kind} {shown}", hint=hint)


def _whole(expected: str, value: object, hint: str = "") -> int:
    """Return the value of an int or of anything that says it is one, such as numpy's integers."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            return int(operator.index(value))
        except TypeError:  # an array of several, which has the method but no value
            pass
    raise _misfit(expected, value, hint)


def check_boolean(value: object) -> bool | None:
    """Check a BOOLEAN, which only True and False are."""
    if value is True or value is False or value is None:
        return value
    raise _misfit("BOOLEAN", value, "Only True and False are BOOLEAN; convert with bool(value).")


def integer_check(kind: str, low: int, high: int) -> Check:
    """Return the check of the ints from ``low`` to ``high``."""
    hint = f"{kind} takes an int from {low} to {high}; convert with int(value) if that is meant."

    def check(value: object) -> int | None:
        if type(value) is int:
            whole = value
        elif value is None:
            return None
        else:
            whole = _whole(kind, value, hint)
        if low <= whole <= high:
            return whole
        raise _misfit(kind, value, hint)

    return check


def _number(expected: str, value: object) -> float:
    """Return a float of the same value; Decimal and Fraction are refused, as few have one."""
    hint = f"{expected} takes a float, or an int that a float can hold exactly."
    if isinstance(value, float):
        return float(value)
    # numpy's floats of other widths are Real, and so is Fraction, which is Rational too.
    exact: Real | int
    if isinstance(value, Real) and not isinstance(value, Rational):
        exact = value
    else:
        exact = _whole(expected, value, hint)
    try:
        number = float(exact)
    except OverflowError as error:
        raise _misfit(expected, value, hint) from error
    if number == exact or number != number:  # noqa: PLR0124 - only NaN is not itself
        return number
    raise _misfit(expected, value, hint)


def check_double(value: object) -> float | None:
    """Check a DOUBLE: a float, or a number that a float holds exactly."""
    if type(value) is float or value is None:
        return value
    return _number("DOUBLE", value)


_FLOAT32 = struct.Struct("<f")


def check_real(value: object) -> float | None:
    """Check a REAL, and round it to 32 bits."""
    if value is None:
        return None
    number = value if type(value) is float else _number("REAL", value)
    try:
        # Rounded here, so that a row reads the same before and after its way through Arrow.
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError as error:
        raise _misfit("REAL", value, "It is too large for 32 bits; use DOUBLE.") from error
    if nearest != number and hasattr(value, "__index__"):
        raise _misfit("REAL", value, "REAL holds ints exactly up to 2**24; use DOUBLE or BIGINT.")
    return nearest


def check_varchar(value: object) -> str | None:
    """Check a VARCHAR: text that UTF-8 can hold."""
    if type(value) is str:
        text = value
    elif value is None:
        return None
    elif isinstance(value, str):
        text = str.__str__(value)  # of an enum: its value, where str() may give its name
    else:
        raise _misfit("VARCHAR", value, "Convert it with str(value), or bytes with .decode().")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            hint = "It has a lone surrogate, which UTF-8 cannot hold; decode with errors='replace'."
            raise _misfit("VARCHAR", value, hint) from error
    return text


def length_check(check: Check, most: int) -> Check:
    """Return the check of a text of at most so many characters."""

    def check_length(value: object) -> str | None:
        text: str | None = check(value)
        if text is not None and len(text) > most:
            raise too_long(len(text), most)
        return text

    return check_length


def too_long(length: int, most: int) -> SchemaMismatchError:
    """Return the error of a text that is longer than its column allows."""
    return SchemaMismatchError(
        f"a text of {length} characters is longer than VARCHAR({most})",
        hint=f"Cut it, such as with LEFT(..., {most}), or declare the column longer.",
    )


def check_binary(value: object) -> bytes | None:
    """Check a BINARY: bytes of any make."""
    if type(value) is bytes or value is None:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _misfit("BINARY", value, "BINARY takes bytes; convert text with .encode().")


def check_date(value: object) -> date | None:
    """Check a DATE, which a datetime is not."""
    if type(value) is date or value is None:
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return date(value.year, value.month, value.day)
    raise _misfit("DATE", value, "DATE takes a date; of a datetime, give value.date().")


def check_timestamp(value: object) -> datetime | None:
    """Check a TIMESTAMP, and bring it to UTC; without a zone it is in UTC."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise _misfit("TIMESTAMP", value, "TIMESTAMP takes a datetime; without a zone it is UTC.")
    # pandas' Timestamp is a datetime with more digits, and its NaT is one without a value.
    if getattr(value, "nanosecond", 0) or value != value:  # noqa: PLR0124 - NaT is not itself
        raise _misfit("TIMESTAMP", value, "It must have whole microseconds; give None for NaT.")
    zone = UTC if value.utcoffset() is None else value.tzinfo
    plain = datetime.combine(value.date(), value.time(), zone)
    try:
        return UTC_TIMES.of(plain)
    except OverflowError as error:
        raise _misfit("TIMESTAMP", value, "In UTC it is outside the years 1 to 9999.") from error


# The whole days that 64 bits of microseconds hold: pyarrow multiplies the days first, and gives up
# on a negative timedelta whose days alone go beyond although its seconds lead back.
LONGEST = timedelta(days=106751991)


def check_interval(value: object) -> timedelta | None:
    """Check an INTERVAL: a timedelta of whole microseconds that fit 64 bits."""
    if value is None:
        return None
    # pandas' NaT compares as False with everything, so it is refused too.
    if not isinstance(value, timedelta) or not -LONGEST <= value <= LONGEST:
        hint = "INTERVAL takes a timedelta of at most 292 thousand years."
        raise _misfit("INTERVAL", value, hint)
    if type(value) is timedelta:
        return value
    if getattr(value, "nanoseconds", 0):
        raise _misfit("INTERVAL", value, "It must have whole microseconds; round it first.")
    return timedelta(value.days, value.seconds, value.microseconds)


# --- With parameters or parts ---------------------------------------------------------------------


def decimal_check(sql: str, precision: int, scale: int) -> Check:
    """Return the check of DECIMAL(precision, scale)."""
    hint = f"{sql} takes a Decimal or an int that it holds exactly; round it first."
    quantum = Decimal(1).scaleb(-scale)
    # quantize with these traps is the whole check: too many digits, or digits that would be lost.
    context = Context(prec=precision, traps=[InvalidOperation, Inexact])

    def check(value: object) -> Decimal | None:
        if value is None:
            return None
        number = value if isinstance(value, Decimal) else Decimal(_whole(sql, value, hint))
        try:
            exact = number.quantize(quantum, context=context)
        except (InvalidOperation, Inexact) as error:
            raise _misfit(sql, value, hint) from error
        if exact.is_nan():
            raise _misfit(sql, value, hint)
        return exact or exact.copy_abs()  # Arrow knows no -0

    return check


def array_check(sql: str, check_element: Check) -> Check:
    """Return the check of an ARRAY from that of its elements."""

    def check(value: object) -> list[Any] | None:
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return list(map(check_element, value))
        raise _misfit(sql, value, "ARRAY takes a list or a tuple.")

    return check


def struct_check(sql: str, fields: Mapping[str, Check]) -> Check:
    """Return the check of a STRUCT from those of its fields."""
    known, checks = fields.keys(), list(fields.items())

    def check(value: object) -> dict[str, Any] | None:
        if value is None:
            return None
        if isinstance(value, tuple) and len(value) == len(checks):
            pairs = zip(checks, value, strict=True)
            return {name: check_field(each) for (name, check_field), each in pairs}
        if isinstance(value, dict) and value.keys() <= known:
            return {name: check_field(value.get(name)) for name, check_field in checks}
        hint = "STRUCT takes a dict of its fields, or a tuple of all of them in order."
        raise _misfit(sql, value, hint)

    return check


def map_check(sql: str, key: str, check_key: Check, check_value: Check) -> Check:
    """Return the check of a MAP from those of its keys, whose type is ``key``, and its values."""

    def check(value: object) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict) or None in value:
            raise _misfit(sql, value, "MAP takes a dict without the key None.")
        checked = {check_key(k): check_value(v) for k, v in value.items()}
        # NaN does not equal itself, but a map has it once, for DuckDB and Spark.
        if len(checked) != len(value) or sum(k != k for k in checked) > 1:  # noqa: PLR0124
            raise _misfit(sql, value, f"Two of its keys are the same {key}.")
        return checked

    return check


def not_null(sql: str, check: Check) -> Check:
    """Return a check that takes what ``check`` takes, except NULL."""

    def check_present(value: object) -> object:
        if value is None:
            raise null_error(sql)
        return check(value)

    return check_present


def null_error(sql: str) -> SchemaMismatchError:
    """Return the error of a NULL in a column of the type ``sql`` that is NOT NULL."""
    return SchemaMismatchError(
        f"expected {sql} NOT NULL, got NULL",
        hint="Give a value, or declare the column without NOT NULL.",
    )


# --- Whole columns --------------------------------------------------------------------------------


def integers_fit(low: int, high: int) -> ColumnFits:
    """Return the test of a column of ints."""

    def fits(values: Sequence[int]) -> bool:
        return low <= min(values) and max(values) <= high

    return fits


def always(values: Sequence[Any]) -> bool:  # noqa: ARG001
    """Fit: the class alone decides."""
    return True


def all_ascii(values: Sequence[str]) -> bool:
    """Whether all are ASCII, so that none needs a look for lone surrogates."""
    return all(map(str.isascii, values))


def all_utc(values: Sequence[datetime]) -> bool:
    """Whether all are in datetime's own UTC."""
    return not [value for value in values if value.tzinfo is not UTC]


def all_short(values: Sequence[timedelta]) -> bool:
    """Whether all fit 64 bits of microseconds."""
    return min(values) >= -LONGEST and max(values) <= LONGEST

"""The canonical text of names and values, as the dialect would read it back."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from millstream.model.names import quote_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType

quoted = quote_name


def string_text(value: str) -> str:
    r"""Return a string as a literal.

    >>> print(string_text("it's a \\"))
    'it''s a \\'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def literal_text(value: object, of: SqlType) -> str:
    """Return a value of a type as text that is read as the same value of the same type.

    >>> from millstream.model.types import BIGINT, DOUBLE
    >>> literal_text(7, BIGINT), literal_text(100.0, DOUBLE)
    ('7L', '100.0D')
    """
    if value is None:
        return "NULL" if of.kind == "NULL" else f"CAST(NULL AS {of.sql})"
    make = _TEXTS.get(of.kind)
    return make(value) if make else f"CAST({value} AS {of.sql})"


def _bigint(value: int) -> str:
    # The minus is no part of the number that L follows, and without it the least is too large.
    return f"{value}L" if value > -(1 << 63) else str(value)


def _double(value: float) -> str:
    if math.isfinite(value):
        return f"{value!r}D"
    return f"CAST('{value}' AS DOUBLE)"


def _timestamp(value: datetime) -> str:
    return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"


def _interval(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    whole, part = divmod(abs(micros), 1_000_000)
    return f"INTERVAL '{'-' if micros < 0 else ''}{whole}.{part:06}' SECOND"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "BOOLEAN": lambda value: str(value).upper(),
    "INTEGER": str,
    "BIGINT": _bigint,
    "DOUBLE": _double,
    "REAL": lambda value: f"CAST({_double(value)} AS REAL)",
    "VARCHAR": string_text,
    "BINARY": lambda value: f"X'{value.hex().upper()}'",
    "DATE": lambda value: f"DATE '{value.isoformat()}'",
    "TIMESTAMP": _timestamp,
    "INTERVAL": _interval,
}

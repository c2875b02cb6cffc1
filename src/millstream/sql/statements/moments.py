"""Moments: an LSN, a time, or how long ago, after SINCE and AS OF."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from millstream.sql.statements.statement import AsOf

if TYPE_CHECKING:
    from millstream.sql.statements.reader import StatementReader

_NOW = ("NOW", "CURRENT_TIMESTAMP")
_AS_OF = (
    "Write AS OF 42, AS OF TIMESTAMP '2026-01-01 00:00:00' or AS OF NOW() - INTERVAL '5 minutes'."
)


def read_as_of(reader: StatementReader) -> AsOf:
    """Read ``AS OF ...``."""
    line, column = reader.place
    reader.expect("AS", hint=_AS_OF)
    reader.expect("OF", hint=_AS_OF)
    return AsOf(read_moment(reader, "AS OF", _AS_OF), line, column)


def read_moment(reader: StatementReader, after: str, hint: str) -> int | datetime | timedelta:
    """Read an LSN, a time in UTC, or how long ago.

    Args:
        reader: what is read.
        after: the words before it.
        hint: what may follow them.
    """
    if reader.word == "INTERVAL":
        return _read_ago(reader, after, hint)
    if reader.skip_any(*_NOW):
        if reader.skip("("):
            reader.expect(")", hint=hint)
        return _read_ago(reader, after, hint) if reader.skip("-") else timedelta(0)
    typed = reader.skip_any("TIMESTAMP", "DATE", "LSN")
    at = reader.offset
    value = reader.constant()
    if isinstance(value, int) and value >= 0 and typed in {"", "LSN"}:
        return value
    if not isinstance(value, str) or typed == "LSN":
        raise reader.error(f"expected an LSN or a time after {after}", hint=hint, at=at)
    try:
        when = datetime.fromisoformat(value.strip())
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise reader.error(f"{value!r} is not a time", hint=hint, at=at) from error


def _read_ago(reader: StatementReader, after: str, hint: str) -> timedelta:
    at = reader.offset
    ago = reader.interval()
    reader.skip("AGO")
    if ago < timedelta(0):
        raise reader.error(f"{after} lies in the future", hint=hint, at=at)
    return ago

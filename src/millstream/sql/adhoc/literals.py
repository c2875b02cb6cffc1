"""Constants in DuckDB's SQL, each with its type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from millstream.sql.adhoc.physical import duck_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def constant(value: Any, of: SqlType) -> str:  # noqa: ANN401 - a value of any type
    """Return the text of a value.

    >>> from millstream.model.types import INTEGER, TINYINT, VARCHAR
    >>> constant(7, INTEGER), constant(7, TINYINT), constant("it's", VARCHAR)
    ('7', "CAST('7' AS TINYINT)", "'it''s'")
    """
    if value is None:
        return f"CAST(NULL AS {duck_type(of)})"
    write = _WRITERS.get(of.kind)
    if write is not None:
        return write(value)
    digits = format(value, "f") if of.kind == "DECIMAL" else value
    return f"CAST('{digits}' AS {duck_type(of)})"


def text(value: str) -> str:
    """Return a string in quotes; DuckDB's parser ends at a NUL, so that one is spelt out."""
    parts = ["'" + part.replace("'", "''") + "'" for part in value.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def _micros(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


_WRITERS: dict[str, Callable[[Any], str]] = {
    "VARCHAR": text,
    "BOOLEAN": lambda value: str(value).upper(),
    "INTEGER": lambda value: f"({value})" if value < 0 else str(value),
    "BIGINT": lambda value: f"CAST({value} AS BIGINT)",
    "BINARY": lambda value: f"unhex('{value.hex()}')",
    "TIMESTAMP": lambda value: f"make_timestamp(CAST({_micros(value)} AS BIGINT))",
    "INTERVAL": lambda value: f"CAST({value // _MICROSECOND} AS BIGINT)",
}

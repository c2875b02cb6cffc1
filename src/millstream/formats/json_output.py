"""Values as JSON, in the form that ``json_rows`` reads back.

DATE, TIMESTAMP and INTERVAL are ISO 8601 text, DECIMAL is text with all its digits, BINARY is
base64. NaN and infinities, which JSON has no numbers for, are text.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millstream.model.clock import MICROSECOND

if TYPE_CHECKING:
    from millstream.model.batch import ChangeBatch


def to_json(value: Any) -> str:  # noqa: ANN401 - anything that columns hold
    """Values of columns as JSON text, in lists, dicts and tuples as they come.

    >>> to_json([1, "é", Decimal("1.50"), date(2026, 1, 31), b"abc", float("nan")])
    '[1,"é","1.50","2026-01-31","YWJj","NaN"]'
    """
    try:
        return _encode(value)
    except (ValueError, TypeError):  # a number that is none; a MAP whose keys are no text
        return _encode(_plain(value))


def change_objects(batch: ChangeBatch) -> list[dict[str, Any]]:
    """The changes of a batch as they are sent over HTTP: op, row, before, LSN."""
    if batch.is_insert_only:
        return [
            {"op": "insert", "row": row, "before": None, "lsn": lsn}
            for row, lsn in zip(batch.held_rows, batch.lsns, strict=True)
        ]
    return [
        {"op": each.op, "row": each.row, "before": each.before, "lsn": each.lsn} for each in batch
    ]


def _default(value: object) -> str:
    """The text of a value that JSON has no form for."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, timedelta):
        return _interval(value)
    return str(value)  # an Unreadable


def _interval(value: timedelta) -> str:
    """An ISO 8601 duration.

    >>> _interval(timedelta(days=-1, seconds=0.5))
    '-PT86399.500000S'
    """
    micros = value // MICROSECOND
    seconds, rest = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}PT{seconds}{f'.{rest:06}' if rest else ''}S"


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any column
    if isinstance(value, float):
        return value if value - value == 0 else _not_finite(value)
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124


def _key(key: Any) -> str:  # noqa: ANN401 - of a MAP
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str):
        return key
    if isinstance(key, float) and key - key != 0:
        return _not_finite(key)
    return repr(key) if isinstance(key, int | float) else _default(key)


_encode = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    separators=(",", ":"),
    default=_default,
).encode

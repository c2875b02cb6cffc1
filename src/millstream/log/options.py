"""The ranges of a log's numeric options, checked before anything is opened. Pure."""

from __future__ import annotations

from typing import Final, cast

from millstream.errors import InvalidOptionError

MAX_SEGMENT_BYTES: Final = 1 << 40
LEAST_RETENTION_INTERVAL: Final = 0.001
_YEAR: Final = 365 * 86_400.0


def check_options(
    *, segment_bytes: object, sync_interval: object, retention_interval: object
) -> None:
    """Raise unless each option of a log is within its range.

    Raises:
        InvalidOptionError: one is not; the message names it.
    """
    if type(segment_bytes) is not int or not 1 <= segment_bytes <= MAX_SEGMENT_BYTES:
        raise InvalidOptionError(
            f"segment_bytes is {segment_bytes!r}",
            hint=f"a whole number of bytes from 1 to {MAX_SEGMENT_BYTES:,}",
        )
    _check_seconds("sync_interval", sync_interval, 0.0)
    # Without any pause, rounds of retention would follow each other and occupy a core.
    _check_seconds("retention_interval", retention_interval, LEAST_RETENTION_INTERVAL)


def _check_seconds(name: str, value: object, least: float) -> None:
    # NaN is in no range.
    if type(value) in {int, float} and least <= cast("float", value) <= _YEAR:
        return
    raise InvalidOptionError(
        f"{name} is {value!r}", hint=f"seconds, from {least:g} to {_YEAR:,.0f} (a year)"
    )

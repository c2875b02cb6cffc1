"""The ranges of a log's numeric options, checked before anything is opened. Pure."""

from __future__ import annotations

from typing import Final

from millstream.errors import InvalidOptionError
from millstream.model.arguments import check_seconds

MAX_SEGMENT_BYTES: Final = 1 << 40
LEAST_RETENTION_INTERVAL: Final = 0.001


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
    check_seconds(sync_interval, "sync_interval")
    # Without any pause, rounds of retention would follow each other and occupy a core.
    check_seconds(retention_interval, "retention_interval", least=LEAST_RETENTION_INTERVAL)

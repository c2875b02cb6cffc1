"""Arguments of the public API: checked at the door, refused with an error of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from millstream.errors import InvalidOptionError

_YEAR: Final = 365 * 86_400.0


def check_path(path: object, what: str = "path") -> Path:
    """Return the path of a file or a directory.

    Raises:
        InvalidOptionError: it is none, or no file can have it.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidOptionError(
            f"{what}: expected a str or a Path, got {type(path).__name__}", hint="Give a path."
        )
    try:
        name = os.fsencode(path)
    except (TypeError, ValueError):
        name = b""
    if not name or b"\0" in name:  # of an empty one pathlib would make the current directory
        raise InvalidOptionError(
            f"{what} is {path!r}, which no file can have", hint="Give another one."
        )
    return Path(path)


def check_seconds(value: object, what: str, *, least: float = 0.0) -> None:
    """Raise unless a value is a number of seconds, no longer than a year.

    Raises:
        InvalidOptionError: it is not; NaN is in no range.
    """
    if type(value) in {int, float} and least <= cast("float", value) <= _YEAR:
        return
    raise InvalidOptionError(
        f"{what} is {value!r}", hint=f"seconds, from {least:g} to {_YEAR:,.0f} (a year)"
    )


def check_text(value: object, what: str, *, optional: bool = False) -> None:
    """Raise unless a value is text.

    Raises:
        InvalidOptionError: it is not.
    """
    if not (isinstance(value, str) or (optional and value is None)):
        hint = "Give a str, or None." if optional else "Give a str."
        raise InvalidOptionError(f"{what}: expected a str, got {type(value).__name__}", hint=hint)


def check_mapping(value: object, what: str) -> None:
    """Raise unless a value is a dict, or None.

    Raises:
        InvalidOptionError: it is not.
    """
    if not isinstance(value, (Mapping, type(None))):
        raise InvalidOptionError(
            f"{what}: expected a dict, got {type(value).__name__}", hint="Give a dict, or None."
        )

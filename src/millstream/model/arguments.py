"""Arguments of the public API: checked at the door, refused with an error of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidOptionError, SchemaMismatchError, TimeRangeError
from millstream.model.clock import from_datetime

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


def check_paths(paths: object, what: str = "directories") -> tuple[Path, ...]:
    """Return the paths of some directories.

    Raises:
        InvalidOptionError: it is no list, or one of them is no path.
    """
    if not isinstance(paths, Sequence) or isinstance(paths, (str, bytes)):
        raise InvalidOptionError(
            f"{what}: expected a list of paths, got {type(paths).__name__}", hint="Give a list."
        )
    return tuple(check_path(each, what) for each in paths)


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


def check_weights(weights: Sequence[int] | pa.Array | None, rows: int) -> pa.Array | None:
    """The weights as int64; None when all are +1."""
    if weights is None:
        return None
    try:
        arrow = weights if isinstance(weights, pa.Array) else pa.array(list(weights))
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaMismatchError(f"weights must be numbers: {error}") from error
    if not (pa.types.is_integer(arrow.type) or len(arrow) == rows == 0):
        raise SchemaMismatchError(
            f"weights of type {arrow.type}",
            hint="whole numbers: +1 a row appears, -1 it disappears",
        )
    if len(arrow) != rows or arrow.null_count or pc.any(pc.equal(arrow, 0)).as_py():
        raise SchemaMismatchError(
            f"{len(arrow)} weights for {rows} rows, or a weight that is NULL or 0",
            hint="give each row a weight other than 0, or give no weights",
        )
    return None if pc.all(pc.equal(arrow, 1), min_count=0).as_py() else arrow.cast(pa.int64())


def check_watermark(watermark: int | datetime | None) -> int | None:
    """A watermark in microseconds since 1970 UTC."""
    if isinstance(watermark, datetime):
        watermark = from_datetime(watermark)
    if watermark is None or (type(watermark) is int and -(2**63) < watermark < 2**63):
        return watermark
    raise TimeRangeError(
        f"{watermark!r} is not a watermark",
        hint="give a datetime, or microseconds since 1970 UTC as an int",
    )

"""What the generator draws: values of one column by a distribution, a block at a time."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.model.schema import Column

    Draw = Callable[[np.random.Generator], Any]

BLOCK: Final = 8192
"""Rows whose random values are made at once; a part of what a seed means."""

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROS: Final = tuple(
    (datetime(*bound, tzinfo=UTC) - _ZERO) // timedelta(microseconds=1)
    for bound in ((1, 1, 1), (9999, 12, 31))
)
"""The bounds of a TIMESTAMP, in microseconds since 1970."""

_INTEGERS: Final = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
_EPOCH: Final = date(1970, 1, 1)
_DAYS: Final = ((date.min - _EPOCH).days, (date.max - _EPOCH).days)
_DEFAULTS: Final = {"TINYINT": (0, 100), "DATE": (18_262, 20_088)}
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)
_MOST_LETTERS: Final = 2_000
_MOST_RANKS: Final = 10_000_000
_LARGEST_FLOAT: Final = {"REAL": 3.4e38, "DOUBLE": 1.7e308}


def bounds(column: Column) -> tuple[float, float] | None:
    """The least and the greatest value of a column of numbers or dates; None for other types."""
    kind = column.type.kind
    if kind in _INTEGERS:
        return -(2 ** _INTEGERS[kind]), 2 ** _INTEGERS[kind] - 1
    if kind in _LARGEST_FLOAT:
        return -_LARGEST_FLOAT[kind], _LARGEST_FLOAT[kind]
    if kind == "DECIMAL":
        precision, scale = column.type.arrow.precision, column.type.arrow.scale
        below = math.nextafter(10.0 ** (precision - scale), 0)  # where a double has fewer digits
        most = min((10**precision - 1) / 10**scale, below)
        return -most, most
    return _DAYS if kind == "DATE" else None


def within(name: str, value: float, low: float, high: float) -> Any:  # noqa: ANN401 - the value
    """A value that must lie between two others; ValueError if it does not, or is NaN."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value:.15g}, and must be from {low:.15g} to {high:.15g}")
    return value


def default_kind(base: str, given: dict[str, str]) -> str:
    """The distribution of a column for which none is named."""
    if "values" in given:
        return "choice"
    return "now" if base == "TIMESTAMP" else "uniform"


def drawing(kind: str, column: Column, given: dict[str, str]) -> Draw:
    """What draws the values of a block; takes its options out of what is given.

    Raises:
        ValueError: a distribution that there is not, or whose numbers cannot be.
    """
    base = column.type.kind
    if kind == "choice":
        return _choice(given)
    if kind == "uniform" and base == "BOOLEAN":
        share = within("mean", float(given.pop("mean", 0.5)), 0, 1)
        return lambda rng: rng.random(BLOCK) < share
    if kind == "uniform" and base in {"VARCHAR", "BINARY"}:
        length = within("length", int(given.pop("length", 8)), 1, _MOST_LETTERS)
        return lambda rng: _texts(rng.integers(0, len(_LETTERS), (BLOCK, length)))
    limits = bounds(column)
    if limits is None:
        raise ValueError(f"a {base} cannot be drawn as {kind!r}")
    return _number_drawing(kind, base, given, limits)


def _choice(given: dict[str, str]) -> Draw:
    if "values" not in given:
        raise ValueError("the kind 'choice' needs values")
    values = [each.strip() for each in given.pop("values").split(",")]
    weights, shares = given.pop("weights", None), None
    if weights is not None:
        parts = np.array([within("a weight", float(each), 0, 1e15) for each in weights.split(",")])
        if len(parts) != len(values):
            raise ValueError(f"there are {len(values)} values and {len(parts)} weights")
        if not parts.sum():
            raise ValueError("all weights are 0")
        shares = parts / parts.sum()
    picked = np.array(values, object)
    return lambda rng: picked[rng.choice(len(values), BLOCK, p=shares)]


def _number_drawing(
    kind: str, base: str, given: dict[str, str], limits: tuple[float, float]
) -> Draw:
    """What draws numbers, or dates as days since 1970."""
    is_whole = base in _INTEGERS or base == "DATE"

    def number(name: str, default: float, low: float, high: float) -> Any:  # noqa: ANN401
        text = str(given.pop(name, default))
        if base == "DATE" and text[4:5] == "-":
            return (date.fromisoformat(text) - _EPOCH).days
        value = float(text) if not is_whole or not _is_digits(text) else int(text)
        return within(name, value, low, high)

    if kind == "uniform":
        least, most = _DEFAULTS.get(base, (0, 1000 if base in _INTEGERS else 1))
        low = number("min", min(least, limits[1]), *limits)
        high = number("max", min(most, limits[1]), *limits)
        if low > high:
            raise ValueError(f"min is {low:.15g}, and max is {high:.15g}")
        if is_whole:
            return lambda rng: rng.integers(math.ceil(low), math.floor(high), BLOCK, endpoint=True)
        return lambda rng: rng.uniform(low, high, BLOCK)
    if kind == "normal":
        mean, deviation = number("mean", 0, *limits), number("stddev", 1, 0, 1e300)
        return lambda rng: rng.normal(mean, deviation, BLOCK)
    if kind == "exponential":
        scale = number("mean", 1, 0, limits[1])
        return lambda rng: rng.exponential(scale, BLOCK)
    if kind == "zipf":
        ranks = int(number("max", min(1000, limits[1]), 1, min(limits[1], _MOST_RANKS)))
        shares_up_to = np.cumsum(np.arange(1, ranks + 1) ** -number("exponent", 1.1, 0, 100))
        total = shares_up_to[-1]
        return lambda rng: np.searchsorted(shares_up_to, rng.random(BLOCK) * total) + 1
    raise ValueError(f"there is no kind {kind!r}")


def _is_digits(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _texts(letters: NDArray[Any]) -> NDArray[Any]:
    """Rows of places of letters as texts."""
    width = letters.shape[1]
    return np.ascontiguousarray(_LETTERS[letters]).view(f"S{width}").reshape(-1).astype(f"U{width}")


def as_arrow(values: Any, column: Column) -> pa.Array:  # noqa: ANN401 - an array of numpy
    """Drawn values as those of a column: rounded where it has whole numbers, cut at its bounds."""
    base, arrow = column.type.kind, column.type.arrow
    if base in _INTEGERS and values.dtype.kind == "f":
        bound = 2.0 ** _INTEGERS[base] - (1024 if base == "BIGINT" else 1)
        values = np.clip(np.rint(values), -bound, bound).astype(np.int64)
    limits = bounds(column)
    if limits is not None and values.dtype.kind == "f":
        values = np.clip(values, float(limits[0]), float(limits[1]))
    if base == "DATE":
        return pa.array(values.astype(np.int32), pa.int32()).cast(arrow)
    if base == "DECIMAL":
        exponent = Decimal(1).scaleb(-arrow.scale)
        return pa.array([Decimal(str(each)).quantize(exponent) for each in values.tolist()], arrow)
    if base == "BINARY":
        return pa.array(values.tolist(), pa.string()).cast(arrow)
    array = pa.array(values.tolist() if values.dtype.kind in "OU" else values)
    return array.cast(arrow)


def masked(values: pa.Array, nulls: pa.Array) -> pa.Array:
    """Values, with NULL where an array of booleans says so."""
    return pc.if_else(nulls, pa.scalar(None, values.type), values)

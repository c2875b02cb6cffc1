"""The generator: rows that it makes up, for demos, tests and benchmarks.

A row is a function of the seed and of its number, whatever the rate and whatever is restarted;
only ``now`` is the time at which it was made. Values are made by column, with numpy.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.contract import (
    Delivery,
    Option,
    SourceConnector,
    SourceEnd,
    SourceReader,
)
from millstream.errors import Error, InvalidOptionError
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from millstream.connectors.contract import Settings
    from millstream.model.schema import Column, Schema

    _Draw = Callable[[np.random.Generator], Any]

BLOCK: Final = 8192
"""Rows whose random values are made at once; a part of what a seed means."""

_BEAT: Final = 0.002
"""Seconds between two deliveries at least, when there is a rate."""

_INTEGERS: Final = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}
_NUMBERS: Final = {*_INTEGERS, "REAL", "DOUBLE", "DECIMAL"}
_EPOCH: Final = date(1970, 1, 1)
_BOUNDS: Final = {"TINYINT": (0, 100), "DATE": (18_262, 20_088)}
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)
_KINDS: Final = ("sequence", "uniform", "normal", "exponential", "zipf", "choice", "now", "series")
_HINTS: Final = (
    "kind, min, max, mean, stddev, exponent, values, weights, start, step, length, nulls"
)


class Generator(SourceConnector):
    """``connector = 'generator'``."""

    name = "generator"
    kinds = ("source", "table")
    rejects = False
    options = (
        Option("rows", "int", help="how many rows in all; without, it never ends"),
        Option("rows_per_second", "float", help="the rate; without, as fast as it can"),
        Option("batch_rows", "int", default=10_000, help="at most so many rows in a delivery"),
        Option("seed", "int", default=0, help="the same seed gives the same rows"),
        Option("fields.*", help=f"of a column, fields.COLUMN.: {_HINTS}"),
    )

    def check(self) -> None:
        """Raise unless all columns can be made up."""
        _columns(self.target.schema, self.settings)
        for name in ("rows", "rows_per_second", "batch_rows"):
            value = self.settings[name]
            if value is not None and value <= 0:
                raise InvalidOptionError(f"{name} is {value:g}", hint="a number above 0")

    def open(self, position: Any) -> SourceReader:  # noqa: ANN401 - how many rows there are
        """Go on after so many rows."""
        return _Reader(self.target.schema, self.settings, position or 0)


CONNECTOR: Final = Generator


class _Reader(SourceReader):
    def __init__(self, schema: Schema, settings: Settings, made: int) -> None:
        self._schema = schema
        self._columns = _columns(schema, settings)
        self._limit: int | None = settings["rows"]
        self._rate: float | None = settings["rows_per_second"]
        self._batch: int = settings["batch_rows"]
        self._made = self._first = made
        self._began = time.monotonic()
        self._last = 0.0

    def read(self, timeout: float) -> Delivery | None:
        if self._limit is not None and self._made >= self._limit:
            raise SourceEnd
        count = self._due(timeout)
        if count == 0:
            return None
        columns = [make(self._made, count) for make in self._columns]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema.arrow)
        self._made += count
        return Delivery(rows=rows, position=self._made)

    def _due(self, timeout: float) -> int:
        """How many rows to make now; waits for the first one, at most for the timeout."""
        most = self._batch if self._limit is None else min(self._batch, self._limit - self._made)
        if self._rate is None:
            return most
        made = self._made - self._first
        wait = max(self._began + (made + 1) / self._rate, self._last + _BEAT) - time.monotonic()
        if wait > timeout:
            time.sleep(timeout)
            return 0
        if wait > 0:
            time.sleep(wait)
        self._last = time.monotonic()
        return min(most, max(1, int((self._last - self._began) * self._rate) - made))

    def lag(self) -> int | None:
        return None if self._limit is None else self._limit - self._made

    def metrics(self) -> dict[str, int | float]:
        return {"made": self._made}


# ---- columns


def _columns(schema: Schema, settings: Settings) -> list[_Field]:
    """What makes each column, from the number of the first row and how many there are.

    Raises:
        InvalidOptionError: a column that there is not, or that cannot be made so.
    """
    given = settings.under("fields.")
    names = {name.lower() for name in schema.names}
    for key in given:
        if key.rpartition(".")[0] not in names:
            raise InvalidOptionError(
                f"fields.{key} is for no column", hint=f"fields.COLUMN.NAME, of {_HINTS}"
            )
    made = []
    for place, column in enumerate(schema.columns):
        prefix = f"{column.name.lower()}."
        own = {key.removeprefix(prefix): v for key, v in given.items() if key.startswith(prefix)}
        try:
            made.append(_Field(column, own, settings["seed"], place))
        except (ValueError, TypeError, ArithmeticError, Error) as error:
            why = error.message if isinstance(error, Error) else str(error)
            raise InvalidOptionError(
                f"fields.{column.name}: {why}",
                hint=f"of {_HINTS}; kind is one of {', '.join(_KINDS)}",
            ) from None
    return made


class _Field:
    """Makes the values of one column."""

    def __init__(self, column: Column, given: dict[str, str], seed: int, place: int) -> None:
        self._column, self._given = column, dict(given)
        self._arrow = column.type.arrow
        self._key = np.array([seed & (2**64 - 1), place], np.uint64)
        self._block, self._held = -1, pa.nulls(0, self._arrow)
        base = column.type.kind
        kind = self._given.pop("kind", _default(base, self._given))
        self._nulls = float(self._given.pop("nulls", 0))
        self._row_wise = {"now": self._now, "sequence": self._sequence, "series": self._series}.get(
            kind
        )
        self._drawn = None if self._row_wise else _drawing(kind, base, self._given)
        if self._row_wise is not None:
            self._start, self._step = self._range(kind, base)
            self._row_wise(0, 1)
        self._draw(0)
        if self._given:
            raise ValueError(f"{next(iter(self._given))} means nothing for the kind {kind!r}")
        if self._nulls and not column.nullable:
            raise ValueError("the column is NOT NULL")

    def __call__(self, first: int, count: int) -> pa.Array:
        """The values of so many rows from a number on."""
        if self._row_wise is not None and not self._nulls:
            return self._row_wise(first, count)
        parts, row, end = [], first, first + count
        while row < end:
            block, offset = divmod(row, BLOCK)
            if block != self._block:
                self._draw(block)
            size = min(BLOCK - offset, end - row)
            parts.append(self._held.slice(offset, size))
            row += size
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _draw(self, block: int) -> None:
        rng = np.random.Generator(np.random.Philox(key=self._key, counter=block << 64))
        mask = rng.random(BLOCK) < self._nulls if self._nulls else None
        if self._row_wise is not None:
            values = self._row_wise(block * BLOCK, BLOCK)
        elif self._drawn is not None:
            values = _arrow(self._drawn(rng), self._column)
        self._block = block
        self._held = values if mask is None else _masked(values, mask)

    # ---- values of the row's number

    def _range(self, kind: str, base: str) -> tuple[Any, Any]:
        start, step = self._given.pop("start", None), self._given.pop("step", None)
        if kind == "sequence":
            if base not in _NUMBERS and base != "VARCHAR":
                raise ValueError(f"a {base} has no sequence")
            return int(start or 0), int(step or 1)
        if base != "TIMESTAMP":
            raise ValueError(f"the kind {kind!r} is for a TIMESTAMP")
        begin = datetime.fromisoformat(start) if start else datetime(2024, 1, 1, tzinfo=UTC)
        begin = begin if begin.tzinfo else begin.replace(tzinfo=UTC)
        every = parse_duration(step) if step else timedelta(seconds=1)
        return int(begin.timestamp() * 1_000_000), every // timedelta(microseconds=1)

    def _sequence(self, first: int, count: int) -> pa.Array:
        numbers = self._start + self._step * np.arange(first, first + count, dtype=np.int64)
        if self._column.type.kind == "VARCHAR":
            return pa.array(numbers).cast(pa.string())
        return _arrow(numbers, self._column)

    def _series(self, first: int, count: int) -> pa.Array:
        micros = self._start + self._step * np.arange(first, first + count, dtype=np.int64)
        return pa.array(micros, pa.int64()).cast(self._arrow)

    def _now(self, _: int, count: int) -> pa.Array:
        micros = time.time_ns() // 1000
        return pa.array(np.full(count, micros, np.int64), pa.int64()).cast(self._arrow)


def _default(base: str, given: dict[str, str]) -> str:
    if "values" in given:
        return "choice"
    return "now" if base == "TIMESTAMP" else "uniform"


def _drawing(kind: str, base: str, given: dict[str, str]) -> _Draw:
    """What draws the values of a block."""
    if kind == "choice":
        values = [each.strip() for each in given.pop("values").split(",")]
        weights = given.pop("weights", None)
        shares = None
        if weights is not None:
            parts = np.array([float(each) for each in weights.split(",")])
            shares = parts / parts.sum()
        picked = np.array(values, object)
        return lambda rng: picked[rng.choice(len(values), BLOCK, p=shares)]
    if kind == "uniform" and base == "BOOLEAN":
        share = float(given.pop("mean", 0.5))
        return lambda rng: rng.random(BLOCK) < share
    if kind == "uniform" and base in {"VARCHAR", "BINARY"}:
        length = int(given.pop("length", 8))
        return lambda rng: _texts(rng.integers(0, len(_LETTERS), (BLOCK, length)))
    if base not in _NUMBERS and base != "DATE":
        raise ValueError(f"a {base} cannot be drawn as {kind!r}")
    return _number_drawing(kind, base, given)


def _number_drawing(kind: str, base: str, given: dict[str, str]) -> _Draw:
    """What draws numbers, or dates as days since 1970."""

    def number(name: str, default: float) -> float:
        text = str(given.pop(name, default))
        return (date.fromisoformat(text) - _EPOCH).days if text[4:5] == "-" else float(text)

    if kind == "uniform":
        least, most = _BOUNDS.get(base, (0, 1000 if base in _INTEGERS else 1))
        low, high = number("min", least), number("max", most)
        if base in _INTEGERS or base == "DATE":
            return lambda rng: rng.integers(int(low), int(high), BLOCK, endpoint=True)
        return lambda rng: rng.uniform(low, high, BLOCK)
    if kind == "normal":
        mean, deviation = number("mean", 0), number("stddev", 1)
        return lambda rng: rng.normal(mean, deviation, BLOCK)
    if kind == "exponential":
        scale = number("mean", 1)
        return lambda rng: rng.exponential(scale, BLOCK)
    if kind == "zipf":
        shares_up_to = np.cumsum(
            np.arange(1, int(number("max", 1000)) + 1) ** -number("exponent", 1.1)
        )
        total = shares_up_to[-1]
        return lambda rng: np.searchsorted(shares_up_to, rng.random(BLOCK) * total) + 1
    raise ValueError(f"there is no kind {kind!r}")


def _texts(letters: NDArray[Any]) -> NDArray[Any]:
    """Rows of places of letters as texts."""
    width = letters.shape[1]
    return np.ascontiguousarray(_LETTERS[letters]).view(f"S{width}").reshape(-1).astype(f"U{width}")


def _arrow(values: Any, column: Column) -> pa.Array:  # noqa: ANN401 - an array of numpy
    """Drawn values as those of a column: rounded where it has whole numbers, cut at its bounds."""
    base, arrow = column.type.kind, column.type.arrow
    if base in _INTEGERS and values.dtype.kind == "f":
        bound = 2.0 ** _INTEGERS[base] - (1024 if base == "BIGINT" else 1)
        values = np.clip(np.rint(values), -bound, bound).astype(np.int64)
    if base == "DATE":
        return pa.array(values.astype(np.int32), pa.int32()).cast(arrow)
    if base == "DECIMAL":
        exponent = Decimal(1).scaleb(-arrow.scale)
        return pa.array([Decimal(str(each)).quantize(exponent) for each in values.tolist()], arrow)
    if base == "BINARY":
        return pa.array(values.tolist(), pa.string()).cast(arrow)
    array = pa.array(values.tolist() if values.dtype.kind in "OU" else values)
    return array.cast(arrow)


def _masked(values: pa.Array, mask: NDArray[np.bool_]) -> pa.Array:
    kept = pa.array(~mask)
    return pc.if_else(kept, values, pa.nulls(len(values), values.type))

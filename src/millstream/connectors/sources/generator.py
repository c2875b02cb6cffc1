"""The generator: rows that it makes up, for demos, tests and benchmarks.

A row is a function of the seed and of its number, whatever the rate and whatever is restarted;
only ``now`` is the time at which it was made. Values are made by column, with numpy.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.contract import (
    Delivery,
    Option,
    SourceConnector,
    SourceEnd,
    SourceReader,
)
from millstream.connectors.sources._draws import (
    BLOCK,
    MICROS,
    as_arrow,
    bounds,
    default_kind,
    drawing,
    masked,
    within,
)
from millstream.errors import ConnectorFailedError, Error, InvalidOptionError
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings
    from millstream.model.schema import Column, Schema

_MOST: Final = {"rows": 2**62, "rows_per_second": 1_000_000_000, "batch_rows": 1_000_000}
_BEAT: Final = 0.002
"""Seconds between two deliveries at least, when there is a rate."""

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
        for name, most in _MOST.items():
            value = self.settings[name]
            if value is not None and not 0 < value <= most:
                raise InvalidOptionError(
                    f"{name} is {value:g}", hint=f"a number above 0, and at most {most:,}"
                )
        for each in _columns(self.target.schema, self.settings):
            each.check_end(self.settings["rows"])

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
        self._block = -1
        self._held: Any = None
        base = column.type.kind
        kind = self._given.pop("kind", default_kind(base, self._given))
        self._nulls = within("nulls", float(self._given.pop("nulls", 0)), 0, 1)
        self._row_wise = {"now": self._now, "sequence": self._sequence, "series": self._series}.get(
            kind
        )
        self._drawn = None if self._row_wise else drawing(kind, column, self._given)
        self._counts = kind in {"sequence", "series"}
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
        if self._row_wise is None:
            return self._drawn_values(first, count)
        values = self._row_wise(first, count)
        return masked(values, self._drawn_values(first, count)) if self._nulls else values

    def _drawn_values(self, first: int, count: int) -> pa.Array:
        """What was drawn for so many rows: values, or which are NULL if those are not drawn."""
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
        nulls = pa.array(rng.random(BLOCK) < self._nulls) if self._nulls else None
        self._block, self._held = block, nulls
        if self._drawn is not None:
            values = as_arrow(self._drawn(rng), self._column)
            self._held = values if nulls is None else masked(values, nulls)

    # ---- values of the row's number

    def _range(self, kind: str, base: str) -> tuple[Any, Any]:
        start, step = self._given.pop("start", None), self._given.pop("step", None)
        if kind == "sequence":
            limits = (-(2**63), 2**63 - 1) if base == "VARCHAR" else bounds(self._column)
            if limits is None or base == "DATE":
                raise ValueError(f"a {base} has no sequence")
            self._least, self._most = max(limits[0], -(2**63)), min(limits[1], 2**63 - 1)
            return int(start or 0), int(step or 1)
        if base != "TIMESTAMP":
            raise ValueError(f"the kind {kind!r} is for a TIMESTAMP")
        begin = datetime.fromisoformat(start) if start else datetime(2024, 1, 1, tzinfo=UTC)
        begin = begin if begin.tzinfo else begin.replace(tzinfo=UTC)
        every = parse_duration(step) if step else timedelta(seconds=1)
        self._least, self._most = MICROS
        since = begin - datetime(1970, 1, 1, tzinfo=UTC)
        return since // timedelta(microseconds=1), every // timedelta(microseconds=1)

    def check_end(self, rows: int | None) -> None:
        """Raise InvalidOptionError if counting leaves the type before so many rows are made."""
        last = 0 if rows is None else rows - 1
        if self._counts and not self._holds(last):
            raise InvalidOptionError(
                f"fields.{self._column.name}: row {last + 1:,} is out of the range of "
                f"{self._column.type.sql}",
                hint="give fewer rows, a smaller step, or a larger type",
            )

    def _holds(self, row: int) -> bool:
        value: int = self._start + self._step * row
        return self._least <= value <= self._most

    def _numbers(self, first: int, count: int) -> Any:  # noqa: ANN401 - an array of numpy
        if not (self._holds(first) and self._holds(first + count - 1)):
            raise ConnectorFailedError(
                f"fields.{self._column.name} has left the range of {self._column.type.sql}",
                hint="give rows, a smaller step, or a larger type",
            )
        if abs(self._step) * (first + count) >= 2**63:
            return np.array(
                [self._start + self._step * (first + n) for n in range(count)], np.int64
            )
        return self._start + self._step * np.arange(first, first + count, dtype=np.int64)

    def _sequence(self, first: int, count: int) -> pa.Array:
        numbers = self._numbers(first, count)
        if self._column.type.kind == "VARCHAR":
            return pa.array(numbers).cast(pa.string())
        return as_arrow(numbers, self._column)

    def _series(self, first: int, count: int) -> pa.Array:
        return pa.array(self._numbers(first, count), pa.int64()).cast(self._arrow)

    def _now(self, _: int, count: int) -> pa.Array:
        micros = time.time_ns() // 1000
        return pa.array(np.full(count, micros, np.int64), pa.int64()).cast(self._arrow)

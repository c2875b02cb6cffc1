"""A feed's columns: how batches of the logs become the rows that Spark sees.

One log: its columns under their own names. Several: ``_log`` says which one a row is of, and each
log's columns are named ``_<log>_<column>``. Always there: ``_lsn``, ``_weight`` and ``_wm``, the
watermark that held before the row's batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema

LOG: Final = "_log"
LSN: Final = "_lsn"
WEIGHT: Final = "_weight"
WATERMARK: Final = "_wm"

_TIME = pa.timestamp("us", "UTC")


def feed_schema(schemas: Sequence[Schema]) -> pa.Schema:
    """All columns that a feed of some logs has."""
    fields = [
        pa.field(name_in_feed(log, each.name, len(schemas)), each.type)
        for log, schema in enumerate(schemas)
        for each in schema.arrow
    ]
    fields += [
        pa.field(LOG, pa.int32(), nullable=False),
        pa.field(LSN, pa.int64(), nullable=False),
        pa.field(WEIGHT, pa.int64(), nullable=False),
        pa.field(WATERMARK, _TIME),
    ]
    return pa.schema(fields)


def used(columns: pa.Schema, sql: str) -> pa.Schema:
    """The columns that a query names. One at least: without any, rows could not be counted."""
    named = [each for each in columns if f"`{each.name}`" in sql]
    return pa.schema(named or [columns.field(LSN)])


def name_in_feed(log: int, column: str, logs: int) -> str:
    """What a log's column is called in a feed of so many logs."""
    return column if logs == 1 else f"_{log}_{column}"


class Columns:
    """Makes the record batches of one reader, which wants some of the columns.

    Args:
        schemas: the logs' columns.
        wanted: the names of the columns, in order.
    """

    def __init__(self, schemas: Sequence[Schema], wanted: Sequence[str]) -> None:
        whole = feed_schema(schemas)
        self._names = set(whole.names)
        self._places: dict[tuple[int, Schema], dict[str, int]] = {}
        self.schema = pa.schema([whole.field(name) for name in wanted])
        self._logs = len(schemas)

    def batch(self, log: int, rows: ChangeBatch, watermark: int | None) -> pa.RecordBatch:
        """Rows of a log, with the watermark that held before them."""
        size = len(rows)
        arrow = rows.arrow if size else None
        places = self._placed(log, rows.schema)
        columns = []
        for field in self.schema:
            place = places.get(field.name)
            if place is not None and arrow is not None:
                columns.append(arrow.column(place))
            elif field.name == LSN:
                columns.append(rows.lsns_arrow() if size else pa.array([], pa.int64()))
            elif field.name == WEIGHT:
                columns.append(rows.weights_arrow() if size else pa.array([], pa.int64()))
            elif field.name == LOG:
                columns.append(pa.repeat(pa.scalar(log, pa.int32()), size))
            elif field.name == WATERMARK:
                columns.append(pa.repeat(pa.scalar(watermark, _TIME), size))
            else:
                columns.append(pa.nulls(size, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _placed(self, log: int, schema: Schema) -> dict[str, int]:
        """Where a log's columns are, by their names in the feed; joined rows have those already."""
        known = self._places.get((log, schema))
        if known is None:
            own = [name_in_feed(log, name, self._logs) for name in schema.names]
            names = own if own[0] in self._names else schema.names
            known = self._places[log, schema] = {name: i for i, name in enumerate(names)}
        return known

    def none(self) -> pa.RecordBatch:
        """No rows."""
        return pa.RecordBatch.from_arrays(
            [pa.array([], each.type) for each in self.schema], schema=self.schema
        )

"""A feed's columns: how batches of the logs become the rows that Spark sees, and of which types.

One log: its columns under their own names. Several: ``_log`` says which one a row is of, and each
log's columns are named ``_<log>_<column>``. Always there: ``_lsn``, ``_weight`` and ``_wm``, the
watermark that held before the row's batch. ``_row_lsn`` is the LSN that a row has in its log:
``_lsn`` is that of the change, which may be that of a view's first rows.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import SqlUnsupportedError
from millstream.model.types import SqlType, type_from_arrow
from millstream.spark.bridge.few_rows import COUNT, few_rows
from millstream.spark.bridge.frames import FEW, ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Schema
    from millstream.spark.bridge.few_rows import Writer

Sources = list[tuple[int | str, pa.DataType]]
Part = tuple["ChangeBatch", int | None]
"""A batch, and the watermark that held before it."""

Encoded = tuple[int, "bytes | pa.Buffer"]
"""Rows, and the kind of the frame that they are in."""

NO_ROWS: Final[Encoded] = (FEW, COUNT.pack(0))

LOG: Final = "_log"
LSN: Final = "_lsn"
WEIGHT: Final = "_weight"
WATERMARK: Final = "_wm"
ROW_LSN: Final = "_row_lsn"

INITIAL: Final = -2
"""In place of a log: see ``Entry.INITIAL`` in Java."""

_FEW: Final = 64
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
        *dated_fields(),
    ]
    return pa.schema(fields)


def name_in_feed(log: int, column: str, logs: int) -> str:
    """What a log's column is called in a feed of so many logs."""
    return column if logs == 1 else f"_{log}_{column}"


def dated_fields() -> list[pa.Field]:
    """The columns that a dated log has after its own: place in the log, watermark before it."""
    return [pa.field(ROW_LSN, pa.int64()), pa.field(WATERMARK, _TIME)]


class FeedColumns:
    """Makes the record batches of one reader, which wants some of the columns.

    Args:
        schemas: the logs' columns.
        wanted: the names of the columns, in order.

    Attributes:
        schema: the columns.
        names: their names.
    """

    def __init__(self, schemas: Sequence[Schema], wanted: Sequence[str]) -> None:
        everything = feed_schema(schemas)
        self.schema = pa.schema([everything.field(name) for name in wanted])
        self.names = tuple(wanted)
        self._schemas = schemas
        self._logs = len(schemas)
        self._sources: dict[int, tuple[Schema, Sources]] = {}  # hashing a schema takes long
        self._writers: dict[int, tuple[Schema, Writer | None]] = {}

    def wanted(self, log: int) -> list[str]:
        """The columns of a log that are wanted; if there are none, one by which rows count."""
        names, wanted = self._schemas[log].names, set(self.names)
        found = [name for name in names if name_in_feed(log, name, self._logs) in wanted]
        return found or [names[0]]

    def batch(self, log: int, rows: ChangeBatch, watermark: int | None) -> pa.RecordBatch:
        """Rows of a log, with the watermark that held before them."""
        if 0 < len(rows) <= _FEW and not rows.is_arrow and not rows.schema.is_nested:
            columns = self._of_rows(log, rows, watermark, self._sources_in(log, rows.schema))
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self.batches(log, [(rows, watermark)])

    def encoded(self, log: int, rows: ChangeBatch, watermark: int | None) -> Encoded:
        """Rows of a log, with the watermark before them, for a frame; a few without Arrow."""
        if not rows.is_arrow and len(rows) <= _FEW:
            known = self._writers.get(log)
            if known is None or known[0] is not rows.schema:
                known = self._writers[log] = (rows.schema, self._writer(log, rows.schema))
            if known[1] is not None:
                try:
                    return FEW, known[1](rows, watermark)
                except (AttributeError, TypeError):  # a value that is Unreadable
                    pass
        return ROWS, self.batch(log, rows, watermark).serialize()

    def _writer(self, log: int, schema: Schema) -> Writer | None:
        named = {LOG: str(log), LSN: "lsn", WEIGHT: "weight", WATERMARK: "mark"}
        sources = self._sources_of(log, schema)
        values = [
            f"row[{source}]" if isinstance(source, int) else named.get(source, "None")
            for source, _ in sources
        ]
        return few_rows([kind for _, kind in sources], values)

    def joined(self, parts: Sequence[tuple[int, Part]]) -> pa.RecordBatch:
        """Batches of several logs as one, each with its log's number; neighbours are made together.

        Rows that were pushed one by one are batches of one row each: columns of their own would
        cost more than all else that is done to them.
        """
        alike = groupby(parts, key=lambda each: (each[0], id(each[1][0].schema)))
        made = [self._run(log, [part for _, part in run]) for (log, _), run in alike]
        if len(made) == 1:
            return made[0]
        return pa.concat_batches(made) if made else self.none()

    def _run(self, log: int, parts: Sequence[Part]) -> pa.RecordBatch:
        return self.batch(log, *parts[0]) if len(parts) == 1 else self.batches(log, parts)

    def batches(self, log: int, parts: Sequence[Part]) -> pa.RecordBatch:
        """Batches of one log and one schema as one, each with the watermark before it."""
        batches = [batch for batch, _ in parts]
        size = sum(map(len, batches))
        arrow = _rows_of(batches) if size else None
        columns = []
        for source, kind in self._sources_in(log, batches[0].schema):
            if arrow is None or source == "":
                columns.append(pa.nulls(size, kind))
            elif isinstance(source, int):
                columns.append(arrow.column(source))
            elif source == LSN:
                columns.append(_lsns(batches, size))
            elif source == WEIGHT:
                columns.append(_weights(batches, size))
            elif source == LOG:
                columns.append(pa.repeat(pa.scalar(log, kind), size))
            else:
                columns.append(_watermarks(parts, kind, size))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _sources_in(self, log: int, schema: Schema) -> Sources:
        known = self._sources.get(log)
        if known is None or known[0] is not schema:
            known = self._sources[log] = (schema, self._sources_of(log, schema))
        return known[1]

    def _of_rows(
        self, log: int, rows: ChangeBatch, watermark: int | None, sources: Sources
    ) -> list[pa.Array]:
        """The columns of a few rows of Python; only those that are wanted are made."""
        held = rows.held_rows
        columns = []
        for source, kind in sources:
            if isinstance(source, int):
                values: list[Any] = [row[source] for row in held]
            elif source == LSN:
                values = list(rows.lsns)
            elif source == WEIGHT:
                values = rows.weights
            else:
                value = log if source == LOG else watermark if source == WATERMARK else None
                values = [value] * len(held)
            columns.append(pa.array(values, kind))
        return columns

    def _sources_of(self, log: int, schema: Schema) -> Sources:
        """Where each column comes from: a place in the rows, a name, or nothing."""
        names = [name_in_feed(log, name, self._logs) for name in schema.names]
        places: dict[str, int | str] = {name: place for place, name in enumerate(names)}
        places |= {name: name for name in (LOG, LSN, WEIGHT, WATERMARK)}
        places[ROW_LSN] = LSN
        return [(places.get(field.name, ""), field.type) for field in self.schema]

    def initial_row(self, lsn: int) -> pa.RecordBatch:
        """The row that says, to a dataflow, that nothing was read before."""
        values = {LOG: INITIAL, LSN: lsn, WEIGHT: 0}
        return pa.RecordBatch.from_arrays(
            [pa.array([values.get(each.name)], each.type) for each in self.schema],
            schema=self.schema,
        )

    def none(self) -> pa.RecordBatch:
        """No rows."""
        return pa.RecordBatch.from_arrays(
            [pa.array([], each.type) for each in self.schema], schema=self.schema
        )


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _rows_of(batches: Sequence[ChangeBatch]) -> pa.RecordBatch:
    if len(batches) > 1 and not any(batch.is_arrow for batch in batches):
        return batches[0].schema.rows_to_arrow([row for each in batches for row in each.held_rows])
    held = [batch.arrow for batch in batches]
    return held[0] if len(held) == 1 else pa.concat_batches(held)


def _are_small(batches: Sequence[ChangeBatch], size: int) -> bool:
    """Whether an array for each batch would cost more than a list of all values."""
    return len(batches) > 1 and size < _FEW * len(batches)


def _lsns(batches: Sequence[ChangeBatch], size: int) -> pa.Array:
    if _are_small(batches, size):
        return pa.array([lsn for batch in batches for lsn in batch.lsns], pa.int64())
    return _joined([batch.lsns_arrow() for batch in batches])


def _weights(batches: Sequence[ChangeBatch], size: int) -> pa.Array:
    if all(batch.is_insert_only for batch in batches):
        return pa.repeat(pa.scalar(1, pa.int64()), size)
    return _joined([batch.weights_arrow() for batch in batches])


def _watermarks(parts: Sequence[Part], kind: pa.DataType, size: int) -> pa.Array:
    """The watermark before each row; that of a part holds for all of its rows."""
    first = parts[0][1]
    if all(mark == first for _, mark in parts):
        return pa.repeat(pa.scalar(first, kind), size)
    if _are_small([batch for batch, _ in parts], size):
        return pa.array([mark for batch, mark in parts for _ in range(len(batch))], kind)
    return _joined([pa.repeat(pa.scalar(mark, kind), len(batch)) for batch, mark in parts])


# ---- Spark's types

_NAMES: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INTEGER": "integer",
    "BIGINT": "long",
    "REAL": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "INTERVAL": "interval day to second",
}


def columns_json(schema: pa.Schema) -> str:
    """Arrow columns as the JSON of a Spark StructType."""
    return json.dumps({"type": "struct", "fields": [_field(each) for each in schema]})


def _field(field: pa.Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type(type_from_arrow(field.type)),
        "nullable": field.nullable,
        "metadata": {},
    }


def _type(kind: SqlType) -> Any:  # noqa: ANN401 - a name, or an object of JSON
    if kind.kind == "DECIMAL":
        return f"decimal({kind.arrow.precision},{kind.arrow.scale})"
    if kind.kind == "ARRAY":
        return {"type": "array", "elementType": _type(kind.children[0]), "containsNull": True}
    if kind.kind == "MAP":
        key, value = map(_type, kind.children)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind.kind == "STRUCT":
        fields = [
            {"name": name, "type": _type(each), "nullable": True, "metadata": {}}
            for name, each in zip(kind.names, kind.children, strict=True)
        ]
        return {"type": "struct", "fields": fields}
    return _NAMES[kind.kind]


def arrow_of(types: Any, sql: str = "") -> pa.Schema:  # noqa: ANN401 - a StructType
    """The Arrow columns of a result.

    Raises:
        SqlUnsupportedError: Spark gives a type that the model does not have.
    """
    fields = json.loads(types.json())["fields"]
    return pa.schema([(each["name"], _arrow(each["type"], each["name"], sql)) for each in fields])


_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def _arrow(kind: Any, name: str, sql: str) -> pa.DataType:  # noqa: ANN401
    if isinstance(kind, str):
        return _scalar(kind, name, sql)
    if kind["type"] == "array":
        return pa.list_(_arrow(kind["elementType"], name, sql))
    if kind["type"] == "map":
        return pa.map_(_arrow(kind["keyType"], name, sql), _arrow(kind["valueType"], name, sql))
    return pa.struct([(each["name"], _arrow(each["type"], name, sql)) for each in kind["fields"]])


def _scalar(kind: str, name: str, sql: str) -> pa.DataType:
    if kind in _ARROW:
        return _ARROW[kind]
    if kind.startswith("decimal("):
        precision, scale = kind[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if kind.startswith("interval ") and "year" not in kind and "month" not in kind:
        return pa.duration("us")
    raise SqlUnsupportedError(
        f"the column {name!r} would be of Spark's type {kind}, which Millstream does not have",
        sql=sql,
        hint="CAST it to a supported type, such as VARCHAR",
    )

"""``ChangeBatch``: weighted rows in LSN order, as Python tuples or as Arrow."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError, TimeRangeError
from millstream.model.change import Change, Gap
from millstream.model.clock import from_datetime
from millstream.model.lsn import NO_LSN
from millstream.model.token import ResumeToken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from millstream.model.schema import Schema

Kind = Literal["changes", "snapshot"]
Row = tuple[Any, ...]

_HIDDEN = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_weight", pa.int64(), nullable=False),
    pa.field("_lsn", pa.int64(), nullable=False),
)


class ChangeBatch:
    """Some consecutive changes of one log: rows, their weights, and the LSN range they stand for.

    Rows are held in one form, tuples or an Arrow record batch; the other is made when first asked
    for, and kept. Weights are None when every row appears (+1), which is the usual case and costs
    nothing. LSNs are counted up from ``first_lsn`` unless a filter took rows out, in which case
    each row's LSN is listed.

    A batch is never changed after it was made: many subscribers read the same one.

    >>> from millstream import ChangeBatch, Schema
    >>> schema = Schema.of(symbol="VARCHAR", price="DOUBLE")
    >>> batch = ChangeBatch.from_rows(schema, [("AAPL", 187.2), ("MSFT", 402.1)])
    >>> batch.to_arrow().num_rows, [change.op for change in batch]
    (2, ['insert', 'insert'])

    Attributes:
        schema: the user's columns.
        topic: the name of the log it was read from; empty before it was appended to one.
        first_lsn: the first LSN that the batch stands for.
        lsn: the last one: who has handled this batch has handled everything up to here.
        kind: ``"changes"``, or ``"snapshot"`` when the rows are a state and not a step.
        watermark: the event time, in microseconds since 1970 UTC, that has passed; None if unknown.
        committed_at: when the log took it, in microseconds since 1970 UTC; 0 before that.
        gap: what this reader was not given just before this batch, or None.
    """

    __slots__ = (
        "_arrow",
        "_lsns",
        "_origin",
        "_rows",
        "_weights",
        "committed_at",
        "first_lsn",
        "gap",
        "kind",
        "lsn",
        "schema",
        "topic",
        "watermark",
    )

    def __init__(
        self,
        schema: Schema,
        rows: list[Row] | None,
        arrow: pa.RecordBatch | None,
        weights: pa.Array | None,
        *,
        topic: str = "",
        first_lsn: int = NO_LSN,
        lsn: int = NO_LSN,
        lsns: Sequence[int] | None = None,
        kind: Kind = "changes",
        watermark: int | None = None,
        committed_at: int = 0,
        gap: Gap | None = None,
        origin: tuple[UUID, int] | None = None,
    ) -> None:
        self.schema = schema
        self._rows = rows
        self._arrow = arrow
        self._weights = weights
        self.topic = topic
        self.first_lsn = first_lsn
        self.lsn = lsn
        self._lsns = lsns
        self.kind = kind
        self.watermark = watermark
        self.committed_at = committed_at
        self.gap = gap
        self._origin = origin

    @classmethod
    def from_rows(
        cls,
        schema: Schema,
        rows: Sequence[Row],
        *,
        weights: Sequence[int] | None = None,
        watermark: int | datetime | None = None,
    ) -> ChangeBatch:
        """A batch of Python tuples, each checked against the schema.

        Raises:
            RowError: a value that does not fit; it names the row and the column.
            SchemaMismatchError: weights that are not one number, other than 0, for each row.
        """
        return cls(
            schema,
            schema.check_rows(rows),
            None,
            _checked_weights(weights, len(rows)),
            watermark=_checked_watermark(watermark),
        )

    @classmethod
    def from_arrow(
        cls,
        schema: Schema,
        data: pa.RecordBatch,
        *,
        weights: Sequence[int] | pa.Array | None = None,
        watermark: int | datetime | None = None,
    ) -> ChangeBatch:
        """A batch of Arrow columns; not copied when its schema is the right one already.

        Raises:
            SchemaMismatchError: columns or types that do not fit and cannot be cast without loss.
        """
        return cls(
            schema,
            None,
            schema.conform(data),
            _checked_weights(weights, data.num_rows),
            watermark=_checked_watermark(watermark),
        )

    def __len__(self) -> int:
        """The number of weighted rows; an update counts two."""
        return len(self._rows) if self._rows is not None else int(self._held_arrow().num_rows)

    def __repr__(self) -> str:
        name = f" of {self.topic}" if self.topic else ""
        return f"<ChangeBatch{name}: {len(self)} rows, LSN {self.first_lsn}..{self.lsn}>"

    @property
    def rows(self) -> list[Row]:
        """The rows as tuples of Python values. Do not change the list."""
        if self._rows is None:
            self._rows = self.schema.arrow_to_rows(self._held_arrow())
        return self._rows

    @property
    def arrow(self) -> pa.RecordBatch:
        """The user's columns as an Arrow record batch, without LSNs and weights."""
        if self._arrow is None:
            self._arrow = self.schema.rows_to_arrow(self.rows)
        return self._arrow

    @property
    def is_arrow(self) -> bool:
        """Whether the Arrow form is there without any work."""
        return self._arrow is not None

    @property
    def is_insert_only(self) -> bool:
        """Whether every weight is +1."""
        return self._weights is None

    @property
    def weights(self) -> list[int]:
        """The weight of each row: +1 it appears, -1 it disappears."""
        if self._weights is None:
            return [1] * len(self)
        weights: list[int] = self._weights.to_pylist()
        return weights

    @property
    def lsns(self) -> Sequence[int]:
        """The LSN of each row."""
        if self._lsns is not None:
            return self._lsns
        return range(self.first_lsn, self.first_lsn + len(self))

    @property
    def token(self) -> str:
        """The text from which a reader resumes just after this batch; empty outside a log."""
        if self._origin is None:
            return ""
        database, epoch = self._origin
        return str(ResumeToken(database, epoch, self.lsn))

    def weights_arrow(self) -> pa.Array:
        """The weights as an Arrow int64 array."""
        if self._weights is None:
            return pa.repeat(pa.scalar(1, pa.int64()), len(self))
        return self._weights

    def to_arrow(self) -> pa.RecordBatch:
        """The user's columns followed by ``_op``, ``_weight`` and ``_lsn``.

        ``_op`` is ``"update"`` on both rows of an update; ``_weight`` tells the old from the new.
        """
        batch, rows = self.arrow, len(self)
        lsns = (
            pa.arange(self.first_lsn, self.first_lsn + rows)
            if self._lsns is None
            else pa.array(self._lsns, pa.int64())
        )
        columns = [*batch.columns, self._ops_arrow(), self.weights_arrow(), lsns]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *_HIDDEN]))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """What pandas, polars, DuckDB and pyarrow read a batch through, without a copy."""
        table = pa.Table.from_batches([self.to_arrow()])
        return table.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Change]:
        """The changes one by one; the two rows of an update come as one change."""
        schema, rows, lsns = self.schema, self.rows, self.lsns
        if self._weights is None:
            for row, lsn in zip(rows, lsns, strict=True):
                yield Change("insert", row, None, lsn, schema)
            return
        updates = set(self._updates())
        for place, (row, weight) in enumerate(zip(rows, self.weights, strict=True)):
            if place - 1 in updates:
                yield Change("update", row, rows[place - 1], lsns[place], schema)
            elif place in updates:
                continue
            elif weight > 0:
                for _ in range(weight):
                    yield Change("insert", row, None, lsns[place], schema)
            else:
                for _ in range(-weight):
                    yield Change("delete", row, row, lsns[place], schema)

    def placed(
        self, topic: str, first_lsn: int, *, committed_at: int, origin: tuple[UUID, int]
    ) -> ChangeBatch:
        """The same rows, now at their place in a log."""
        return ChangeBatch(
            self.schema,
            self._rows,
            self._arrow,
            self._weights,
            topic=topic,
            first_lsn=first_lsn,
            lsn=first_lsn + max(len(self), 1) - 1,
            watermark=self.watermark,
            committed_at=committed_at,
            origin=origin,
        )

    def with_watermark(self, watermark: int | datetime) -> ChangeBatch:
        """The same batch with a watermark that holds after it."""
        marked = self.slice(0)
        marked.watermark = _checked_watermark(watermark)
        return marked

    def slice(self, start: int, stop: int | None = None) -> ChangeBatch:
        """The rows from place ``start`` up to, not including, ``stop``, in the forms at hand."""
        size = len(self)
        stop = size if stop is None else min(stop, size)
        weights = None if self._weights is None else self._weights.slice(start, stop - start)
        lsns = self.lsns[start:stop]
        return ChangeBatch(
            self.schema,
            self._rows[start:stop] if self._rows is not None else None,
            self._arrow.slice(start, stop - start) if self._arrow is not None else None,
            weights,
            topic=self.topic,
            first_lsn=lsns[0] if lsns else self.first_lsn,
            lsn=lsns[-1] if lsns else self.lsn,
            lsns=None if self._lsns is None else lsns,
            kind=self.kind,
            watermark=self.watermark if stop == size else None,  # it holds after the last row
            committed_at=self.committed_at,
            gap=self.gap if start == 0 else None,
            origin=self._origin,
        )

    def _updates(self) -> list[int]:
        """The places of the old rows of updates: -1 then +1, side by side, with equal keys.

        Without a key a -1 next to a +1 may just as well be two strangers, so it stays a delete
        and an insert: both are exact, only the pairing is a courtesy.
        """
        if self._weights is None or not self.schema.key:
            return []
        key, rows = [self.schema.names.index(name) for name in self.schema.key], self.rows
        return [
            place
            for place, pair in enumerate(pairwise(self.weights))
            if pair == (-1, 1) and all(rows[place][k] == rows[place + 1][k] for k in key)
        ]

    def _ops_arrow(self) -> pa.Array:
        """The ``_op`` column, by the same rule as ``_updates`` but without a look at any row."""
        if self._weights is None:
            return pa.repeat("insert", len(self))
        weights = self.weights_arrow()
        ops = pc.if_else(pc.greater(weights, 0), "insert", "delete")
        if not self.schema.key or len(self) < 2:
            return ops
        pair = pc.and_(pc.equal(weights[:-1], -1), pc.equal(weights[1:], 1))
        for name in self.schema.key:
            column = self.arrow.column(name)
            pair = pc.and_(pair, _same(column[:-1], column[1:]))
        none = pa.array([False])
        old = pa.concat_arrays([pair, none])
        new = pa.concat_arrays([none, pair])
        return pc.if_else(pc.or_(old, new), "update", ops)

    def _held_arrow(self) -> pa.RecordBatch:
        if self._arrow is None:
            raise AssertionError("a ChangeBatch holds rows or Arrow")
        return self._arrow


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Where two arrays are equal; two NULLs are, as they are in a key."""
    return pc.if_else(
        pc.or_(pc.is_null(left), pc.is_null(right)),
        pc.and_(pc.is_null(left), pc.is_null(right)),
        pc.equal(left, right),
    )


def _checked_weights(weights: Sequence[int] | pa.Array | None, rows: int) -> pa.Array | None:
    """The weights as int64; None when all are +1."""
    if weights is None:
        return None
    try:
        arrow = weights if isinstance(weights, pa.Array) else pa.array(list(weights))
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaMismatchError(f"weights that are no numbers: {error}") from error
    if not (pa.types.is_integer(arrow.type) or len(arrow) == rows == 0):
        raise SchemaMismatchError(
            f"weights of type {arrow.type}", hint="whole numbers: +1 a row appears, -1 it goes"
        )
    if len(arrow) != rows or arrow.null_count or pc.any(pc.equal(arrow, 0)).as_py():
        raise SchemaMismatchError(
            f"{len(arrow)} weights for {rows} rows, or a weight that is NULL or 0",
            hint="give each row a weight other than 0, or give no weights",
        )
    return None if pc.all(pc.equal(arrow, 1), min_count=0).as_py() else arrow.cast(pa.int64())


def _checked_watermark(watermark: int | datetime | None) -> int | None:
    """A watermark in microseconds since 1970 UTC."""
    if isinstance(watermark, datetime):
        watermark = from_datetime(watermark)
    if watermark is None or (type(watermark) is int and -(2**63) < watermark < 2**63):
        return watermark
    raise TimeRangeError(
        f"{watermark!r} is no watermark",
        hint="give a datetime, or microseconds since 1970 UTC as an int",
    )

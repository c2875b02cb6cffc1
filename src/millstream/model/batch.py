"""``ChangeBatch``: weighted rows in LSN order, as Python tuples or as Arrow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from millstream.errors import InvalidOptionError
from millstream.model.arguments import check_watermark, check_weights
from millstream.model.change import Change, Commits, Gap, changes, ops
from millstream.model.display import PublicNames, pandas_frame, polars_frame, public_names
from millstream.model.lsn import NO_LSN, ResumeToken
from millstream.model.weighted_rows import MaskedRows, Row, RowLsns, WeightedRows
from millstream.threads import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from uuid import UUID

    from millstream.model.schema import Schema

Kind = Literal["changes", "snapshot"]
Causes = tuple[tuple[int, int], ...] | None
"""Of the commits in a batch, the last LSN and the cause of each."""

_MAKERS = {"of_row", "keep_mask", "keep_places", "netted", "piece", "placed", "put_at", "take"}
_INTERNAL = _MAKERS | {"each", "held_rows", "is_arrow", "is_counted", "copy"}
_INTERNAL |= {"acknowledged_by", "causes", "commits", "with_columns", "with_watermark"}
_HIDDEN = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_weight", pa.int64(), nullable=False),
    pa.field("_lsn", pa.int64(), nullable=False),
)


class ChangeBatch(WeightedRows, metaclass=PublicNames, internal=_INTERNAL):
    """Consecutive changes of one log: rows, their weights, and the range of LSNs they cover.

    A delivered batch does not change: many subscribers on many threads may share one. Iterate over
    it to get one ``Change`` after the other, or convert it to Arrow, pandas or polars.

    >>> from millstream import ChangeBatch, Schema
    >>> schema = Schema.of(symbol="VARCHAR", price="DOUBLE")
    >>> batch = ChangeBatch.from_rows(schema, [("AAPL", 187.2), ("MSFT", 402.1)])
    >>> batch.to_arrow().num_rows, [change.op for change in batch]
    (2, ['insert', 'insert'])

    Attributes:
        schema: the user's columns.
        topic: the source, table or view of the rows; empty before the batch is committed.
        first_lsn: the first LSN that the batch covers.
        lsn: the last LSN that the batch covers: a reader that has processed this batch has
            processed everything up to it.
        kind: ``"snapshot"`` if the rows are the current rows, else ``"changes"``.
        watermark: the event time, in microseconds since 1970 UTC, that has passed; None if unknown.
        committed_at: when the batch was committed, in microseconds since 1970 UTC; 0 before that.
            Of a batch of several commits, the time of the last one; ``commit_time`` has each.
        gap: the changes before this batch that this reader did not receive, or None.
        cause: of changes of a view, the LSN up to which the view had processed its inputs; 0
            otherwise, and for a snapshot. Of a batch of several commits, the cause of the last one;
            ``cause_of`` has each.
    """

    __slots__ = (
        "_acknowledge",
        "_causes",
        "_commits",
        "_origin",
        "cause",
        "committed_at",
        "gap",
        "kind",
        "lsn",
        "topic",
        "watermark",
    )

    def __init__(
        self,
        schema: Schema,
        rows: list[Row] | None,
        arrow: pa.RecordBatch | MaskedRows | None,
        weights: pa.Array | None,
        *,
        topic: str = "",
        first_lsn: int = NO_LSN,
        lsn: int = NO_LSN,
        lsns: RowLsns = None,
        kind: Kind = "changes",
        watermark: int | None = None,
        committed_at: int = 0,
        gap: Gap | None = None,
        origin: tuple[UUID, int] | None = None,
        cause: int = 0,
        commits: Commits | None = None,
        causes: Causes = None,
        acknowledge: Callable[[int], None] | None = None,
    ) -> None:
        self.schema = schema
        self._rows = rows
        self._arrow = arrow
        self._weights = weights
        self.topic: str = topic
        self.first_lsn: int = first_lsn
        self.lsn: int = lsn
        self._lsns = lsns
        self.kind = kind
        self.watermark: int | None = watermark
        self.committed_at: int = committed_at
        self.gap: Gap | None = gap
        self._origin = origin
        self.cause: int = cause
        self._commits = commits  # None: one commit
        self._causes = causes  # None: one cause
        self._acknowledge = acknowledge  # None: not of a durable subscription

    @classmethod
    def of_row(cls, schema: Schema, topic: str, row: Row) -> ChangeBatch:
        """A batch of one checked row that has no place yet: the quickest way to make one."""
        batch = cls.__new__(cls)
        batch.schema = schema
        batch._rows = [row]
        batch._arrow = batch._weights = batch._lsns = batch._origin = batch._commits = None
        batch.watermark = batch.gap = batch._causes = batch._acknowledge = None
        batch.first_lsn = batch.lsn = batch.committed_at = batch.cause = 0
        batch.topic = topic
        batch.kind = "changes"
        return batch

    @classmethod
    def from_rows(
        cls,
        schema: Schema,
        rows: Sequence[Row],
        *,
        weights: Sequence[int] | None = None,
        watermark: int | datetime | None = None,
    ) -> ChangeBatch:
        """Return a batch of Python tuples, which are validated against the schema.

        Raises:
            RowError: a value does not fit its column. The error names the row and the column.
            SchemaMismatchError: the weights are not one number, other than 0, for each row.
        """
        return cls(
            schema,
            schema.check_rows(rows),
            None,
            check_weights(weights, len(rows)),
            watermark=check_watermark(watermark),
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
        """Return a batch of Arrow columns, without a copy if their types match the schema.

        Raises:
            SchemaMismatchError: the columns do not match, or a type cannot be cast without loss.
            RowError: Python cannot hold a value. The error names the row and the column.
        """
        return cls(
            schema,
            None,
            schema.admit(data),
            check_weights(weights, data.num_rows),
            watermark=check_watermark(watermark),
        )

    def __bool__(self) -> bool:
        """True, even without rows: a gap or a watermark is news, too."""
        return True

    def __repr__(self) -> str:
        name = f" of {self.topic}" if self.topic else ""
        rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
        kind = "" if self.kind == "changes" else f" {self.kind}"
        gap = "" if self.gap is None else ", after a gap"
        return f"<ChangeBatch{kind}{name}: {rows}, LSN {self.first_lsn}..{self.lsn}{gap}>"

    @property
    def commits(self) -> Commits | None:
        """The commits that its rows are from; None when it is one."""
        return self._commits

    @property
    def causes(self) -> Causes:
        """Of the commits that its rows are from, the last LSN and the cause; None: it is one."""
        return self._causes

    def commit_time(self, lsn: int) -> int:
        """Return when the row at an LSN was committed, in microseconds since 1970 UTC."""
        return self.committed_at if self._commits is None else self._commits.time(lsn)

    def cause_of(self, lsn: int) -> int:
        """Return the cause of a view's change at an LSN; 0 for other relations."""
        if self._causes is None:
            return self.cause
        place = bisect_left(self._causes, (lsn, 0))
        return self._causes[min(place, len(self._causes) - 1)][1]

    @property
    def token(self) -> str:
        """The text with which a reader resumes after this batch; empty before it is committed."""
        if self._origin is None:
            return ""
        database, epoch = self._origin
        return str(ResumeToken(database, epoch, self.lsn))

    @uninterrupted
    def ack(self) -> None:
        """Acknowledge everything up to this batch, for the durable subscription that delivered it.

        The subscription resumes after this batch when it is opened the next time.

        Raises:
            InvalidOptionError: the batch is not from a durable subscription.
        """
        if self._acknowledge is None:
            raise InvalidOptionError(
                "only a batch of a durable subscription can be acknowledged",
                hint="subscribe with name='...'",
            )
        self._acknowledge(self.lsn)

    def acknowledged_by(self, acknowledge: Callable[[int], None]) -> ChangeBatch:
        """The batch as a durable subscription gives it: ``ack`` calls a function with its LSN."""
        own = self._with(self.schema, self._rows, self._arrow, self._weights, self._lsns)
        own._acknowledge = acknowledge
        return own

    def to_arrow(self) -> pa.RecordBatch:
        """Return the user's columns, followed by ``_op``, ``_weight`` and ``_lsn``.

        Both rows of an update have the ``_op`` ``"update"``; the ``_weight`` is -1 for the old row
        and +1 for the new row.
        """
        batch = self.arrow
        columns = [*batch.columns, self._ops(), self.weights_arrow(), self.lsns_arrow()]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*batch.schema, *_HIDDEN]))

    def to_pandas(self) -> Any:  # noqa: ANN401 - pandas need not be there
        """Return the columns of ``to_arrow`` as a pandas frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return pandas_frame(pa.Table.from_batches([self.to_arrow()]))

    def to_polars(self) -> Any:  # noqa: ANN401 - polars need not be there
        """Return the columns of ``to_arrow`` as a polars frame.

        Raises:
            MissingExtraError: polars is not installed.
        """
        return polars_frame(pa.Table.from_batches([self.to_arrow()]))

    def __dir__(self) -> list[str]:
        return public_names(self, _INTERNAL)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the batch to pandas, polars, DuckDB or pyarrow, without a copy."""
        table = pa.Table.from_batches([self.to_arrow()])
        return table.__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Change]:
        """Yield one change after the other; the two rows of an update are one change."""
        weights = None if self._weights is None else self.weights
        lsns = self.lsns
        causes: Iterable[int] = repeat(self.cause, len(lsns))
        if self._causes is not None:
            causes = map(self.cause_of, lsns)
        return changes(self.schema, self.held_rows, weights, lsns, causes)

    def placed(
        self, topic: str, first_lsn: int, *, committed_at: int, origin: tuple[UUID, int]
    ) -> ChangeBatch:
        """A batch of the same rows at their place in a log."""
        there = self.copy()
        there.kind, there.gap = "changes", None
        there.put_at(topic, first_lsn, committed_at, origin)
        return there

    def put_at(
        self, topic: str, first_lsn: int, committed_at: int, origin: tuple[UUID, int]
    ) -> None:
        """Give the batch its place in a log; only before anybody else has seen it."""
        rows = self._rows
        size = len(rows) if rows is not None else self._held_arrow().num_rows
        self.topic = topic
        self.first_lsn = first_lsn
        self.lsn = first_lsn + size - 1 if size else first_lsn
        self.committed_at = committed_at
        self._origin = origin
        self._lsns = self._commits = None

    def with_watermark(self, watermark: int | datetime) -> ChangeBatch:
        """A batch of the same rows, with a watermark that holds after them."""
        marked = self.slice(0)
        marked.watermark = check_watermark(watermark)
        return marked

    def copy(self, *, kind: Kind | None = None, gap: Gap | None = None) -> ChangeBatch:
        """A batch of the same rows, as another kind or with a gap before them."""
        other = self._with(self.schema, self._rows, self._arrow, self._weights, self._lsns)
        other.kind = kind or self.kind
        other.gap = gap or self.gap
        return other

    def with_columns(
        self, schema: Schema, rows: list[Row] | None, arrow: pa.RecordBatch | None
    ) -> ChangeBatch:
        """The changes with other columns: the result of a projection."""
        return self._with(schema, rows, arrow, self._weights, self._lsns)

    def keep_places(self, places: Sequence[int]) -> ChangeBatch:
        """The rows at some places, in order; the batch stands for the same LSNs as before."""
        rows, lsns = self.held_rows, self.lsns
        weights = None
        if self._weights is not None:
            weights = self._weights.take(pa.array(places, pa.int64()))
        kept = [rows[place] for place in places]
        return self._with(self.schema, kept, None, weights, [lsns[place] for place in places])

    def keep_mask(self, mask: pa.BooleanArray) -> ChangeBatch:
        """The rows where a mask is true; the batch stands for the same LSNs as before."""
        weights = None if self._weights is None else self._weights.filter(mask)
        # Rows and LSNs are taken out by the thread that needs them, not by the dispatcher.
        kept = MaskedRows(self.arrow, mask, mask.true_count)
        return self._with(self.schema, None, kept, weights, (self, mask))

    def take(self, places: pa.Array) -> ChangeBatch:
        """The rows at some places, in that order, as Arrow."""
        weights = None if self._weights is None else self._weights.take(places)
        lsns = self.lsns_arrow().take(places)
        return self._with(self.schema, None, self.arrow.take(places), weights, lsns)

    def netted(
        self,
        first: ChangeBatch,
        rows: list[Row],
        weights: list[int],
        lsns: list[int],
        commits: Commits,
        *,
        causes: Causes = None,
    ) -> ChangeBatch:
        """A batch that stands for everything from ``first`` up to this one."""
        net = self._with(self.schema, rows, None, pa.array(weights, pa.int64()), lsns)
        net.first_lsn, net.gap = first.first_lsn, first.gap
        net._commits, net._causes = commits, causes
        return net

    def slice(self, start: int, stop: int | None = None) -> ChangeBatch:
        """Return the rows from place ``start`` up to, not including, ``stop``.

        The slices of a batch cover adjoining ranges of LSNs, which together are the batch's range.
        """
        size = len(self)
        stop = size if stop is None else stop
        if type(start) is not int or type(stop) is not int or start < 0:
            raise InvalidOptionError(f"slice({start!r}, {stop!r})", hint="places, from 0 on")
        start, stop = min(start, size), min(stop, size)
        part = self._cut(start, stop)
        if start > 0:
            part.gap = None
        if stop < size:
            part.watermark = None  # it holds after the last row
        if self.kind == "snapshot" and self._lsns is not None:
            if stop < size:
                part.lsn = NO_LSN  # from a part of a state no reader can resume
            return part
        if start > 0:
            part.first_lsn = self._lsn_at(start - 1) + 1
        if stop < size:
            part.lsn = self._lsn_at(stop - 1) if stop > start else part.first_lsn - 1
            part.committed_at = self.commit_time(part.lsn)
            part.cause = self.cause_of(part.lsn)
        return part

    def piece(self, start: int, stop: int) -> ChangeBatch:
        """Some rows, as a batch that stands for all LSNs of this one."""
        part = self._cut(start, stop)
        if self._lsns is None:
            part._lsns = list(range(self.first_lsn + start, self.first_lsn + stop))
        return part

    def _cut(self, start: int, stop: int) -> ChangeBatch:
        lsns = self._lsns
        if isinstance(lsns, tuple):
            lsns = self._lsns = self.lsns_arrow()
        return self._with(
            self.schema,
            self._rows[start:stop] if self._rows is not None else None,
            self.arrow.slice(start, stop - start) if self._arrow is not None else None,
            None if self._weights is None else self._weights.slice(start, stop - start),
            None if lsns is None else lsns[start:stop],
        )

    @classmethod
    def concat(cls, batches: Sequence[ChangeBatch]) -> ChangeBatch:
        """Join consecutive batches with the same topic, schema and kind into one batch."""
        if not isinstance(batches, Sequence) or not batches or not _all_batches(batches):
            raise InvalidOptionError("expected a list of batches", hint="[batch, batch]")
        first, last = batches[0], batches[-1]
        if len(batches) == 1:
            return first
        rows = arrow = None
        if all(batch.is_arrow for batch in batches):
            arrow = pa.concat_batches([batch.arrow for batch in batches])
        else:
            rows = [row for batch in batches for row in batch.held_rows]
        weights = None
        if not all(batch.is_insert_only for batch in batches):
            weights = pa.concat_arrays([batch.weights_arrow() for batch in batches])
        joined = first._with(first.schema, rows, arrow, weights, _joined_lsns(batches))
        joined.lsn, joined.committed_at = last.lsn, last.committed_at
        joined._commits = joined_commits(batches)
        joined.cause, joined._causes = last.cause, _joined_causes(batches)
        marks = [batch.watermark for batch in batches if batch.watermark is not None]
        joined.watermark = marks[-1] if marks else None
        return joined

    def _with(
        self,
        schema: Schema,
        rows: list[Row] | None,
        arrow: pa.RecordBatch | MaskedRows | None,
        weights: pa.Array | None,
        lsns: RowLsns,
    ) -> ChangeBatch:
        """Another batch at the same place in the log."""
        return ChangeBatch(
            schema,
            rows,
            arrow,
            weights,
            topic=self.topic,
            first_lsn=self.first_lsn,
            lsn=self.lsn,
            lsns=lsns,
            kind=self.kind,
            watermark=self.watermark,
            committed_at=self.committed_at,
            gap=self.gap,
            origin=self._origin,
            cause=self.cause,
            commits=self._commits,
            causes=self._causes,
            acknowledge=self._acknowledge,
        )

    def _ops(self) -> pa.Array:
        if self._weights is None:
            return pa.repeat("insert", len(self))
        return ops(self._weights, [self.arrow.column(name) for name in self.schema.key])


def _all_batches(batches: Sequence[object]) -> bool:
    return all(isinstance(each, ChangeBatch) for each in batches)


def joined_commits(batches: Sequence[ChangeBatch]) -> Commits | None:
    """The commits of batches that follow each other; None when all were committed at one time."""
    return Commits.across([(each.lsn, each.committed_at, each.commits) for each in batches])


def _joined_causes(batches: Sequence[ChangeBatch]) -> Causes:
    """The causes of batches that follow each other; None when it is one."""
    causes = [each for batch in batches for each in batch._causes or ((batch.lsn, batch.cause),)]
    return None if causes[0][1] == causes[-1][1] else tuple(causes)  # they never run back


def _joined_lsns(batches: Sequence[ChangeBatch]) -> list[int] | pa.Array | None:
    """The LSNs of batches that follow each other; None when they can be counted up."""
    first = batches[0]
    end = first.first_lsn
    for batch in batches:
        if not batch.is_counted or batch.first_lsn != end:
            break
        end += len(batch)
    else:
        return None
    if all(batch.is_arrow for batch in batches):
        return pa.concat_arrays([batch.lsns_arrow() for batch in batches])
    return [lsn for batch in batches for lsn in batch.lsns]

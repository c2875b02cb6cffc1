"""Rows without a value: which rows of a log a query cannot be computed for, until they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.dispatch import select
from millstream.errors import ExpressionError
from millstream.model.batch import ChangeBatch
from millstream.spark.failure import FailedRow
from millstream.state.runs import net

if TYPE_CHECKING:
    from millstream.sql import SelectPlan


class BadRows:
    """The rows of one log that a query has no value for. A retraction takes a row out again.

    Args:
        plan: the query, which filters and projects each row by itself.

    Attributes:
        error: what the query raises for the first of them.
    """

    def __init__(self, plan: SelectPlan) -> None:
        self.error: ExpressionError | None = None
        self._plan = plan
        self._rows: ChangeBatch | None = None

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def split(self, batch: ChangeBatch) -> tuple[ChangeBatch | None, ChangeBatch | None]:
        """What the query keeps of the rows that it has a value for; and the other rows."""
        try:
            return select(batch, self._plan), None
        except ExpressionError:
            size = len(batch)
            if size == 1:
                return None, batch
        good, bad = [], []
        for start, stop in ((0, size // 2), (size // 2, size)):
            kept, others = self.split(batch.piece(start, stop))
            good += [] if kept is None else [kept]
            bad += [] if others is None else [others]
        return (ChangeBatch.concat(good) if good else None), ChangeBatch.concat(bad)

    def add(self, rows: ChangeBatch) -> None:
        """Take in rows without a value, and retractions of such rows."""
        known = self._rows
        if known is None:
            data, weights, lsns = rows.arrow, rows.weights_arrow(), rows.lsns_arrow()
        else:
            data = pa.concat_batches([known.arrow, rows.arrow])
            weights = pa.concat_arrays([known.weights_arrow(), rows.weights_arrow()])
            lsns = pa.concat_arrays([known.lsns_arrow(), rows.lsns_arrow()])
        found, counts = net(data, weights.to_numpy())
        places = pa.array(found)
        self._rows = None
        if len(places):
            self._rows = ChangeBatch(
                rows.schema,
                None,
                data.take(places),
                pa.array(counts),
                topic=rows.topic,
                lsns=lsns.take(places),
            )

    def clear(self) -> None:
        """Forget all of them."""
        self._rows = None

    def first(self) -> FailedRow:
        """The first of them; there is one."""
        if self._rows is None:
            raise AssertionError("every row has a value")
        row = self._rows.piece(0, 1)
        try:
            select(row, self._plan)
        except ExpressionError as error:
            self.error = error
        return FailedRow.of(row, 0)

"""Rows without a value: which rows of a log a query cannot be computed for, until they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.dispatch import select
from millstream.errors import ExpressionError
from millstream.model.batch import ChangeBatch
from millstream.state.runs import net
from millstream.views.run.failures import FailedRow

if TYPE_CHECKING:
    from millstream.model.schema import Row
    from millstream.sql import SelectPlan


class BadRows:
    """The rows of one log that a query has no value for. A retraction takes a row out again.

    Args:
        plan: the query, which filters and projects each row by itself.
    """

    def __init__(self, plan: SelectPlan) -> None:
        self._plan = plan
        self._rows: ChangeBatch | None = None

    def __len__(self) -> int:
        return 0 if self._rows is None else len(self._rows)

    def split(self, batch: ChangeBatch) -> tuple[ChangeBatch | None, ChangeBatch | None]:
        """What the query keeps of the rows that it has a value for; and the other rows."""
        try:
            return select(batch, self._plan), None
        except ExpressionError:
            pass
        kept: list[Row] = []
        places, bad = list[int](), list[int]()
        for place in range(len(batch)):
            try:
                value = self._value(batch, place)
            except ExpressionError:
                bad.append(place)
                continue
            if value is not None:
                kept.append(value)
                places.append(place)
        good = batch.keep_places(places).with_columns(self._plan.schema, kept, None)
        return good if kept else None, batch.take(pa.array(bad)) if bad else None

    def _value(self, batch: ChangeBatch, place: int) -> Row | None:
        """What the query makes of the row at a place; None: it does not keep it."""
        plan, row = self._plan, batch.held_rows[place]
        try:
            if plan.predicate is not None and not plan.predicate.test(row):
                return None
            return row if plan.projection is None else plan.projection.row(row)
        except (AttributeError, TypeError):  # a value that is Unreadable; Arrow can compute with it
            kept = select(batch.piece(place, place + 1), plan)
            return None if kept is None else kept.held_rows[0]

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

    def first(self) -> tuple[FailedRow, ExpressionError]:
        """The first of them, and what the query raises for it; there is one."""
        if self._rows is not None:
            row = self._rows.piece(0, 1)
            try:
                self._value(row, 0)
            except ExpressionError as error:
                return FailedRow.of(row, 0), error
        raise AssertionError("every row has a value")

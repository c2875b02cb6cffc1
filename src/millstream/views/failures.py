"""Why a view cannot go on: the errors of its readers, and the rows that it has no value for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.dispatch import select
from millstream.errors import Error, ExpressionError, ViewFailedError
from millstream.model.batch import ChangeBatch
from millstream.state.runs import net
from millstream.views.planning import OutdatedRowsError
from millstream.views.run.failures import CORRECT, REPLACE, FailedRow, view_failure

if TYPE_CHECKING:
    from millstream.catalog import Definition
    from millstream.model.schema import Row
    from millstream.sql import SelectPlan


def view_failed(name: str, raised: Exception) -> ViewFailedError:
    """The error that readers of a view get for what was raised in one of its threads."""
    if isinstance(raised, ViewFailedError) and raised.view == name:
        return raised
    return view_failure(
        name,
        raised,
        f"{type(raised).__name__}: {raised}",
        "open the database again; this is a bug in Millstream, please report it",
    )


def no_value(name: str, bad: BadRows, *, retracts: bool) -> ViewFailedError:
    """The error of a view whose query has no value for some rows of its input.

    Args:
        name: the view.
        bad: these rows.
        retracts: whether they may be corrected or deleted.
    """
    row, raised = bad.first()
    error = view_failure(name, raised, str(raised), "", row)
    error.hint = f"{error.hint} {CORRECT if retracts else REPLACE}".strip()
    return error


def unrepeatable(definition: Definition, state: str) -> ViewFailedError:
    """The error of a view that would have to read its inputs again, and cannot.

    Args:
        definition: the view.
        state: what its checkpoint is.
    """
    gone = "are, too" if state == "gone" else "are gone"
    return ViewFailedError(
        f"the checkpoint of {definition.name} is {state}, and rows that it has read {gone}",
        view=definition.name,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {definition.name} begins with what is kept",
    )


def unopened(definition: Definition, error: Exception) -> ViewFailedError:
    """The error of a view that could not be opened."""
    kind = definition.kind.upper()
    what = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    failed = ViewFailedError(
        f"{definition.name} could not be opened: {what}",
        view=definition.name,
        hint=error.hint
        if isinstance(error, OutdatedRowsError)
        else f"SHOW CREATE {definition.name} shows it; CREATE OR REPLACE it, or DROP {kind} it",
    )
    failed.__cause__ = error
    return failed


def half_dropped(name: str, error: Error) -> ViewFailedError:
    """The error of a view that was stopped and could not be dropped."""
    return ViewFailedError(
        f"{name} was to be dropped: {error.message}",
        view=name,
        hint="drop it again, or open the database again",
    )


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

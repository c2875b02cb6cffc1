"""The rows of a view whose groups have several rows each, such as the sessions of a user.

Spark sends all rows of a group each time; only the difference from the last set is emitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SchemaMismatchError
from millstream.state.result_reader import SHOWN
from millstream.state.rows import Rows
from millstream.state.runs import newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.model.batch import ChangeBatch
    from millstream.model.schema import Column, Schema
    from millstream.state.rows import Diff

ROWS = "_rows"
"""The column with a group's rows: an array of structs."""


class Sets:
    """The rows of a view by group; interface and threads as of ``Rows``.

    Args:
        schema: the user's columns.
        groups: the columns that identify a group; none when there is only one.
        match: the columns that identify a row within its group. A row with the same values in
            them is the same row, updated.
        hidden: columns that are kept but not shown; among them those of ``groups``.

    Attributes:
        rows: the rows, by group and match.
    """

    def __init__(
        self,
        schema: Schema,
        groups: Sequence[str],
        match: Sequence[str],
        hidden: Sequence[Column] = (),
    ) -> None:
        self.rows = Rows(schema, (*groups, *match), hidden)
        self.schema = schema
        self.stored_schema = self.rows.stored_schema
        self._groups = list(groups)
        self._match = list(match)
        names = self.stored_schema.names
        self._keys = [names.index(name) for name in (*groups, *match)]

    def __len__(self) -> int:
        return len(self.rows)

    def diff(self, batch: pa.RecordBatch) -> Diff:
        """What new sets of some groups change; of a group that is there twice, the last counts.

        Args:
            batch: the groups' columns, and ``_rows``.

        Raises:
            SchemaMismatchError: two rows of a set have the same match.
        """
        return self.rows.diff(self.keyed(batch, self.rows))

    def keyed(self, batch: pa.RecordBatch, *known: Rows) -> pa.RecordBatch:
        """Sets as one result for each row: the rows of the sets, and those that left them.

        Args:
            batch: the groups' columns, and ``_rows``.
            known: what holds rows of the groups; where two hold the same row, the last counts.

        Returns:
            The stored columns and ``_shown``, which is false for rows that have left.
        """
        batch = self._last_of_each(batch)
        names = self.stored_schema.names
        old = [
            part.select(list(names)).replace_schema_metadata(self.stored_schema.arrow.metadata)
            for rows in known
            for part in rows.members(batch, self._groups)
        ]
        new = self._flat(batch)
        both = pa.concat_batches([*old, new])
        last = np.sort(newest(both, self._keys).places)
        before = both.num_rows - new.num_rows
        shown = last >= before
        if shown.sum() != new.num_rows:
            raise SchemaMismatchError(
                f"two rows of one group have the same {', '.join(self._match) or 'group'}",
                hint="The columns that identify a row of a group must differ in each of its rows.",
            )
        rows = both.take(pa.array(last))
        fields = [*self.stored_schema.arrow, pa.field(SHOWN, pa.bool_())]
        return pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(shown)], schema=pa.schema(fields)
        )

    def apply(self, diff: Diff) -> None:
        """Apply the last diff."""
        self.rows.apply(diff)

    def load(self, batch: ChangeBatch) -> None:
        """Apply changes of the stored columns that were committed before, in order."""
        self.rows.load(batch)

    def snapshot(self, *, stored: bool = False) -> pa.Table:
        """All rows at one moment: the user's columns, or all that are stored."""
        return self.rows.snapshot(stored=stored)

    def _last_of_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        groups = [batch.schema.get_field_index(name) for name in self._groups]
        places = np.sort(newest(batch, groups).places)
        return batch.take(pa.array(places)) if len(places) < batch.num_rows else batch

    def _flat(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the sets, one after another, in the stored columns."""
        sets = batch.column(ROWS)
        lengths = pc.fill_null(sets.value_lengths(), 0).to_numpy(zero_copy_only=False)
        of = pa.array(np.repeat(np.arange(batch.num_rows), lengths))
        members = sets.flatten()
        inner = dict(zip([each.name for each in members.type], members.flatten(), strict=True))
        arrays = {
            name: inner[name] if name in inner else batch.column(name).take(of)
            for name in self.stored_schema.names
        }
        return self.stored_schema.conform(pa.RecordBatch.from_pydict(arrays))

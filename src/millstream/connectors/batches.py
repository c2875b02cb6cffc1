"""``SinkBatch``: a batch of changes for a sink's writer, and its upserts and deletes by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import ConnectorFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.model.batch import ChangeBatch
    from millstream.model.change import Change
    from millstream.model.schema import Schema

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The effect of a batch on a store with one row per key. No key is in both lists.

    Attributes:
        upserts: the rows that exist after the batch, one for each changed key.
        deletes: the keys, in the order of the schema's key, that do not exist after the batch.
    """

    upserts: list[Row]
    deletes: list[Row]


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A batch for a sink.

    Attributes:
        changes: rows, weights and LSNs: iterate for ``Change`` (op, row, before, lsn);
            ``to_arrow()`` has the columns and ``_op``, ``_weight``, ``_lsn``.
        replaces: whether to discard everything stored before, in the same transaction. True for
            the first part of a snapshot, at the start or because rows were lost.
        is_complete: False for all parts of a snapshot except the last. Only a complete part has a
            token, and may end a transaction.
        token: the value that ``position`` must return to resume after this batch; empty if the
            batch is not complete.
    """

    changes: ChangeBatch
    replaces: bool = False
    is_complete: bool = True
    token: str = ""

    @property
    def kind(self) -> str:
        """``"snapshot"`` if the rows are the current rows, else ``"changes"``."""
        return self.changes.kind

    @property
    def schema(self) -> Schema:
        """The columns, and the key if there is one."""
        return self.changes.schema

    @property
    def lsn(self) -> int:
        """The last LSN that the batch covers; 0 if it is not complete."""
        return self.changes.lsn

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def inserted(self) -> pa.Table:
        """Return the rows as an Arrow table, for a store that only appends.

        Raises:
            ConnectorFailedError: a row changes or disappears, which such a store cannot represent.
        """
        if not self.changes.is_insert_only and any(each != 1 for each in self.changes.weights):
            raise ConnectorFailedError(
                "rows of the sink's input change or disappear, and it can only append",
                hint="use a mode that updates, or a view that only has new rows",
            )
        return pa.Table.from_batches([self.changes.arrow])

    def net(self) -> NetChanges:
        """Return the rows to upsert and the keys to delete: for each key, the final state.

        Raises:
            ConnectorFailedError: the input has no key.
        """
        schema = self._keyed()
        places = [schema.names.index(name) for name in schema.key]
        rows = self.changes.held_rows
        if self.changes.is_insert_only:  # no key was there before, so none comes twice
            return NetChanges(list(rows), [])
        last: dict[Row, Row | None] = {}
        for row, weight in zip(rows, self.changes.weights, strict=True):
            key = tuple([row[place] for place in places])
            if weight > 0:
                last[key] = row
            elif key not in last or _same(last[key], row):
                last[key] = None
        upserts = [row for row in last.values() if row is not None]
        return NetChanges(upserts, [key for key, row in last.items() if row is None])

    def net_tables(self) -> tuple[pa.Table, pa.Table]:
        """Return the result of ``net`` as Arrow tables: whole rows, and the key's columns."""
        schema = self._keyed()
        keys = schema.of_key
        if self.changes.is_insert_only:
            return self.inserted(), keys.arrow.empty_table()
        net = self.net()
        upserts = pa.Table.from_batches([schema.rows_to_arrow(net.upserts)])
        return upserts, pa.Table.from_batches([keys.rows_to_arrow(net.deletes)])

    def _keyed(self) -> Schema:
        schema = self.changes.schema
        if not schema.key:
            raise ConnectorFailedError(
                "the sink's input has no key, so its rows cannot be updated",
                hint="select the key of the table or view, or use a mode that appends changes",
            )
        return schema


def _same(one: Row | None, other: Row) -> bool:
    """Whether two rows are the same; NaN, which no number equals, is the same as NaN."""
    return one == other or repr(one) == repr(other)

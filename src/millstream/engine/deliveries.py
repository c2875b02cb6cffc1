"""Deliveries of connectors: rows, dead letters and the position after them, in one commit.

The position of each connector is a topic of its own, whose last row counts; a hold protects it from
retention, which removes the others.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.contract import Delivery, Rejected
from millstream.errors import ConnectorFailedError, ObjectNotFoundError, RowError
from millstream.log import Retention
from millstream.model.batch import ChangeBatch
from millstream.model.clock import to_datetime
from millstream.model.row_change import RowChange, upsert
from millstream.model.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.engine.inlets import Inlets
    from millstream.log import Hold, Log
    from millstream.model.schema import Column
    from millstream.model.weighted_rows import Row
    from millstream.tables import Tables

    Batches = list[tuple[str, ChangeBatch]]

PREFIX: Final = "__position."
"""What the topics of positions begin with."""

DEAD_LETTERS: Final = Schema.of(
    received="TIMESTAMP NOT NULL",
    reason="VARCHAR NOT NULL",
    origin="VARCHAR NOT NULL",
    payload="BINARY NOT NULL",
)
"""The columns of a log of dead letters."""

_SCHEMA: Final = Schema.of(position="VARCHAR NOT NULL")
_KEPT_SECONDS: Final = 10.0


class StoredPosition:
    """The position of one connector: the last row of its topic.

    Args:
        log: where it is.
        topic: its topic.

    Attributes:
        value: the position; None before the first one.
        lsn: where it is in the log.
        topic: its topic.
    """

    def __init__(self, log: Log, topic: str) -> None:
        self.value: Any = None
        self.lsn = 0
        self.topic = topic
        self._log = log
        self._hold: Hold | None = None
        for batch in log.salvage(topic):
            for (text,) in batch.held_rows:
                self.value, self.lsn = json.loads(text), batch.lsn
                self.keep(batch.lsn)

    @staticmethod
    def create(log: Log, topic: str) -> None:
        """Make its topic. In the dispatcher's thread, or before it commits."""
        if topic not in log.topics:
            log.create_topic(topic, _SCHEMA, retention=Retention(max_age=_KEPT_SECONDS))

    def entry(self, value: Any) -> tuple[str, ChangeBatch]:  # noqa: ANN401 - a JSON value
        """What goes into a commit."""
        return self.topic, ChangeBatch(_SCHEMA, [(json.dumps(value),)], None, None)

    def keep(self, lsn: int) -> None:
        """Earlier ones are not needed: the one at an LSN is on the disk."""
        if self._hold is None:
            self._hold = self._log.hold(self.topic, lsn=lsn, kept=True)
        self._hold.advance(lsn)

    def release(self) -> None:
        """It is needed no more."""
        if self._hold is not None:
            self._hold.release()


class Deliveries:
    """Commits the deliveries of one connector to its source or table.

    Attributes:
        stored: the position after what was committed.
    """

    def __init__(
        self,
        definition: Definition,
        stored: StoredPosition,
        *,
        log: Log,
        dispatcher: Dispatcher,
        catalog: Catalog,
        inlets: Inlets,
        tables: Tables,
        add_column: Callable[[Definition, Column], None],
    ) -> None:
        self.stored = stored
        self._created = definition
        self._log = log
        self._dispatcher = dispatcher
        self._catalog = catalog
        self._inlets = inlets
        self._tables = tables
        self._add_column = add_column

    @property
    def position(self) -> Any:  # noqa: ANN401 - a JSON value
        """Where the connector is to go on."""
        return self.stored.value

    @property
    def lsn(self) -> int:
        """Where that position is in the log."""
        return self.stored.lsn

    def is_durable(self, lsn: int) -> bool:
        """Whether everything up to the LSN of a position is on the disk."""
        if self._log.durable_lsn < lsn:
            return False
        self.stored.keep(lsn)
        return True

    def definition(self) -> Definition:
        """What it feeds, with the columns that it has now.

        Raises:
            ObjectNotFoundError: it was dropped.
        """
        if not self._catalog.has(self._created):
            raise ObjectNotFoundError(f"{self._created.name} was dropped")
        return self._catalog[self._created.name]

    def commit(self, delivery: Delivery, check: Callable[[], None]) -> tuple[int, int, int]:
        """Commit a delivery; returns its LSN, how many rows it had, how many were rejected.

        ``check`` raises if the connector may not commit any more. It is called by what commits, and
        a fence is set between commits: after that, nothing comes through.
        """
        check()
        for column in delivery.new_columns:
            self._add_column(self._created, column)
        definition = self.definition()
        if definition.kind == "table":
            return self._commit_changes(definition, delivery, check)
        return self._commit_rows(definition, delivery, check)

    # ---- sources

    def _commit_rows(
        self, definition: Definition, delivery: Delivery, check: Callable[[], None]
    ) -> tuple[int, int, int]:
        rejected = list(delivery.rejected)
        batches = source_batches(definition.schema, delivery, rejected)
        count = sum(map(len, batches))
        more = self._entries(definition, delivery, rejected)
        if not batches and not more:
            return self._dispatcher.lsn, 0, 0
        inlet, last = self._inlets[definition], 0

        def committed() -> Batches:
            check()
            _ = self._inlets[definition]  # raises if the source was dropped meanwhile
            for batch in batches:
                if inlet.event_time.has_column or batch.watermark is not None:
                    inlet.event_time.observe(batch)
            return [*((definition.name, batch) for batch in batches), *more]

        def applied(placed: list[ChangeBatch]) -> None:
            nonlocal last
            last = placed[-1].lsn
            inlet.pushed += count
            self._took(delivery, last)

        shown = [batch.copy() for batch in batches] if inlet.inline else []
        self._dispatcher.commit_here(committed, applied)
        for each in inlet.inline:
            for batch in shown:
                each.batch(batch)
        return last, count, len(rejected)

    # ---- tables

    def _commit_changes(
        self, definition: Definition, delivery: Delivery, check: Callable[[], None]
    ) -> tuple[int, int, int]:
        made: list[RowChange] = [*map(upsert, _tuples(definition.schema, delivery.rows))]
        made += delivery.changes
        more, last = self._entries(definition, delivery, delivery.rejected), self._dispatcher.lsn

        def applied(lsn: int) -> None:
            nonlocal last
            last = lsn
            self._took(delivery, lsn)

        count = self._tables.replay(definition, made, more, applied, check=check)
        return last, count, len(delivery.rejected)

    # ---- what both have

    def _took(self, delivery: Delivery, lsn: int) -> None:
        if delivery.position is not None:
            self.stored.value, self.stored.lsn = delivery.position, lsn

    def _entries(
        self, definition: Definition, delivery: Delivery, rejected: Sequence[Rejected]
    ) -> Batches:
        """The dead letters, and last the position: its LSN is the commit's."""
        entries: Batches = []
        connection = definition.connection
        if rejected:
            if connection is None or not connection.dead_letters:
                raise ConnectorFailedError(
                    f"a record was rejected, and {definition.name} has no dead letters: "
                    f"{rejected[0].reason}",
                    hint="the connector says that it rejects nothing; this is a bug in it",
                )
            entries.append((connection.dead_letters, letters(rejected, self._log.clock())))
        if delivery.position is not None:
            entries.append(self.stored.entry(delivery.position))
        return entries


def letters(rejected: Sequence[Rejected], now: int) -> ChangeBatch:
    """Rejected records as rows of a log of dead letters."""
    received = to_datetime(now)
    rows: list[Row] = [(received, each.reason, each.origin, each.payload) for each in rejected]
    return ChangeBatch.from_rows(DEAD_LETTERS, rows)


def source_batches(
    schema: Schema, delivery: Delivery, rejected: list[Rejected]
) -> list[ChangeBatch]:
    """The rows of a delivery as batches; tuples that do not fit are added to what is rejected.

    Raises:
        SchemaMismatchError: Arrow data that does not fit.
        ConnectorFailedError: changes by key, which a source does not have.
    """
    if delivery.changes:
        raise ConnectorFailedError(
            "a source has no keys: its rows cannot be changed",
            hint="CREATE TABLE with a PRIMARY KEY, WITH the same options",
        )
    rows = delivery.rows
    batches: list[ChangeBatch] = []
    if isinstance(rows, pa.Table | pa.RecordBatch):
        parts = [rows] if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()
        batches = [ChangeBatch.from_arrow(schema, part) for part in parts if part.num_rows]
    elif rows:
        checked = _fitting(schema, rows, rejected)
        batches = [ChangeBatch(schema, checked, None, None)] if checked else []
    if delivery.watermark is not None:
        batches = batches or [ChangeBatch(schema, [], None, None)]
        batches[-1] = batches[-1].with_watermark(delivery.watermark)
    return batches


def _fitting(schema: Schema, rows: Sequence[Row], rejected: list[Rejected]) -> list[Row]:
    """The rows that fit, checked; the others are rejected."""
    width = len(schema.columns)
    wide = [row + (None,) * (width - len(row)) for row in rows]
    try:
        return schema.check_rows(wide)
    except RowError:
        pass  # one by one, to find those that do not
    kept: list[Row] = []
    for row in wide:
        try:
            kept += schema.check_rows([row])
        except RowError as error:
            reason = error.message.replace("row 0, ", "", 1)
            rejected.append(Rejected(reason, repr(row).encode()))
    return kept


def _tuples(schema: Schema, rows: pa.Table | pa.RecordBatch | Sequence[Row]) -> Sequence[Row]:
    """Rows of a delivery to a table as tuples."""
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        return rows
    parts = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    return [row for part in parts for row in schema.arrow_to_rows(schema.admit(part))]

"""The source ``postgres-cdc``: a table of PostgreSQL, followed by logical replication (pgoutput).

First the rows that are there, as of the beginning of its replication slot, then each transaction
as one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors._postgres import CONNECTION_OPTIONS, EXTRA, connect, quoted
from millstream.connectors.contract import (
    Option,
    Settings,
    SourceConnector,
    Target,
    TargetKind,
)
from millstream.connectors.sources._postgres_position import Position
from millstream.connectors.sources._postgres_reader import PostgresReader
from millstream.connectors.sources._postgres_slot import drop_slot
from millstream.connectors.sources._postgres_table import FollowedTable, check_server

if TYPE_CHECKING:
    from millstream.model.schema import Schema


class PostgresCdc(SourceConnector):
    """A table of PostgreSQL."""

    name = "postgres-cdc"
    extra = EXTRA
    kinds: tuple[TargetKind, ...] = ("table",)  # type: ignore[misc]
    rejects = False
    options = (
        *CONNECTION_OPTIONS,
        Option("table", required=True, help="such as public.orders"),
        Option("publication", help="one that is there; otherwise it makes its own"),
        Option("slot", help="the name of its replication slot; millstream_ID"),
        Option("max_slot_lag", "size", help="the slot is given up when it holds more of the WAL"),
        Option(
            "on_lost_slot",
            "choice",
            default="fail",
            choices=("fail", "snapshot"),
            help="whether a lost slot stops it, or all rows are read again",
        ),
        Option(
            "invalid_values",
            "choice",
            default="fail",
            choices=("fail", "null"),
            help="values that the column here cannot hold, such as infinity",
        ),
        Option(
            "snapshot_rows", "int", default=50_000, help="rows in a commit of the snapshot", least=1
        ),
    )

    def __init__(self, settings: Settings, target: Target) -> None:
        super().__init__(settings, target)
        self._followed = FollowedTable(settings, target)

    def check(self) -> None:
        """Look whether the server, the table and its columns are as they must be."""
        with connect(self.settings) as connection:
            check_server(connection)
            self._followed.check_slot(connection)
            table = self._followed.now(connection)
            self._followed.check_fits(table, self._followed.sent(connection, table))

    def discover(self) -> Schema:
        """The columns of the table, and its key."""
        with connect(self.settings) as connection:
            return self._followed.schema(connection)

    def open(self, position: Any) -> PostgresReader:  # noqa: ANN401 - a JSON value
        """Connect, and go on after a position."""
        at = None if position is None else Position.from_json(position)
        return PostgresReader(self._followed, at)

    def drop(self, position: Any) -> None:  # noqa: ANN401, ARG002 - a JSON value
        """Remove the slot, and the publication if it was made here."""
        with connect(self.settings) as connection:
            drop_slot(connection, self._followed.slot)
            if not self.settings["publication"]:
                connection.execute(
                    f"DROP PUBLICATION IF EXISTS {quoted(self._followed.publication)}"
                )


CONNECTOR = PostgresCdc

"""The engine: the parts of an open database, and what needs several of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.dispatch import make_durable
from millstream.errors import ClosedError

if TYPE_CHECKING:
    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.engine.connections import Connections
    from millstream.engine.inlets import Inlets
    from millstream.engine.once import InsertKeys
    from millstream.errors import Error
    from millstream.log import Log
    from millstream.queries.relations import Relations
    from millstream.sources import Inlet
    from millstream.sql import Point
    from millstream.subscriptions import Positions, Registry
    from millstream.tables import Tables
    from millstream.views.saver import Saver
    from millstream.views.views import Views


@dataclass(eq=False)
class Engine:
    """The parts of an open database.

    Attributes:
        log: the log.
        catalog: what exists.
        dispatcher: Ring 1: commits, and delivers to subscribers.
        inlets: where the rows of sources are pushed.
        notifications: where NOTIFY pushes its rows.
        saver: writes the rows of tables and views to files.
        tables: the tables, with their rows.
        views: the views that run.
        relations: reads the current rows of all of them.
        positions: how far durable subscriptions have come.
        registry: the subscriptions that are open.
        insert_keys: the keys of inserts that count once.
        connections: the connectors that run.
        select_all: the plan of all rows of a topic, or of those of one tenant.
        points: texts that were found to be statements about one row.
        lifted: texts without their literals, and what they are then; None: no such statement.
        is_closed: whether it was closed, or is being closed just now.
    """

    log: Log
    catalog: Catalog
    dispatcher: Dispatcher
    inlets: Inlets
    notifications: Inlet
    saver: Saver
    tables: Tables
    views: Views
    relations: Relations
    positions: Positions
    registry: Registry
    insert_keys: InsertKeys
    connections: Connections

    def __post_init__(self) -> None:
        self.select_all = self.views.storage.select_all
        self.points: dict[str, Point] = {}
        self.lifted: dict[str, Point | None] = {}
        self.is_closed = False

    def open_relation(self, definition: Definition, watermark: int | None = None) -> None:
        """Let a source or a table be used; a source goes on from a watermark."""
        if definition.kind == "source":
            self.inlets.open(definition, watermark)
            return
        table = self.tables.open(definition, self.saver.read(definition))
        if table.error is None:
            self.saver.add(definition, table)

    def remove_relation(self, name: str, error: Error) -> None:
        """Drop a source, table or view and its rows; its readers end with an error.

        Called by the dispatcher's thread.
        """
        definition = self.catalog.drop(name)
        self.saver.remove(definition)
        self.tables.remove(name)
        self.inlets.remove(name, error)
        self.connections.forget(name)
        self.positions.drop_target(name)
        self.dispatcher.fan_out.drop_routes(name, error)
        self.dispatcher.fan_out.forget(name)

    def check(self) -> None:
        """Raise unless it is open.

        Raises:
            ClosedError: it was closed, or was opened before a fork.
            LogFailedError: the disk failed.
        """
        if self.is_closed:
            raise ClosedError("the database is closed", hint="open it again")
        self.dispatcher.check()

    def flush(self) -> int:
        """Wait until all pushed rows are on the disk and delivered; returns the last LSN.

        Raises:
            LogFullError: the disk is full; pushed rows are kept in memory until there is room.
        """
        return make_durable(self.dispatcher, self.log)

"""What views read from and write to: the log, the dispatcher, the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.catalog.tenants import SelectAll
from millstream.delivery.tail import LogTail

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.catalog import Catalog, Definition
    from millstream.dispatch import Dispatcher
    from millstream.log import Log
    from millstream.model.schema import Schema


class Storage:
    """The log of a database, what commits to it, and what exists in it.

    Args:
        log: the log.
        dispatcher: commits to it.
        catalog: the definitions.

    Attributes:
        log: the log.
        dispatcher: commits to it.
        catalog: the definitions.
        select_all: plans of all rows of a log, or of those of one tenant.
    """

    def __init__(self, log: Log, dispatcher: Dispatcher, catalog: Catalog) -> None:
        self.log = log
        self.dispatcher = dispatcher
        self.catalog = catalog
        self.select_all = SelectAll(catalog.get)

    def tail(self, topic: str, lsn: int) -> LogTail:
        """The batches of a log after an LSN."""
        return LogTail(self.log, self.dispatcher, (topic,), self.select_all, lsn)

    def definition_of(self, name: str) -> Definition:
        """A log that the catalog knows."""
        return self.catalog[name]

    def schema_of(self, name: str) -> Schema:
        """The columns of a log that the catalog knows."""
        return self.definition_of(name).schema

    @property
    def checkpoints(self) -> Path:
        """The directory with the checkpoints of all views."""
        return self.log.path / "views"

    def checkpoint_of(self, definition: Definition) -> Path:
        """The directory with a view's checkpoint."""
        return self.checkpoints / definition.file_name

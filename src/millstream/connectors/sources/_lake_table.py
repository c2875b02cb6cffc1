"""What sources of lake tables share: their columns, and looking for what is new."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import ClassVar, Final

import pyarrow as pa

from millstream.connectors.contract import Option, SourceConnector, SourceReader
from millstream.errors import ConnectorFailedError, SchemaMismatchError
from millstream.model.schema import Column, Schema

FOLLOWING: Final = (
    Option(
        "start",
        "choice",
        default="snapshot",
        choices=("snapshot", "now"),
        help="with the rows that it has, or with what comes next",
    ),
    Option("poll_interval", "duration", default=1.0, help="how often the table is looked at"),
)


class LakeSource(SourceConnector):
    """Follows a table of a lake, which has columns and no key."""

    kinds: ClassVar = ("source", "table")
    rejects = False

    @abstractmethod
    def found(self) -> pa.Schema:
        """The columns of the table."""

    def check(self) -> None:
        """See that there is a table, and that its columns fit.

        Raises:
            ConnectorFailedError: they do not.
        """
        found = self.found().remove_metadata()
        for name in self.target.schema.names:
            if name not in found.names:
                raise ConnectorFailedError(
                    f"the table has no column {name!r}", hint=f"columns: {', '.join(found.names)}"
                )
        fields = [found.field(name) for name in self.target.schema.names]
        no_rows = pa.RecordBatch.from_pylist([], pa.schema(fields))
        try:
            self.target.schema.admit(no_rows)
        except SchemaMismatchError as error:
            raise ConnectorFailedError(error.message, hint=error.hint) from None

    def discover(self) -> Schema:
        """The columns of the table; keys it has none."""
        if self.target.kind == "table":
            raise ConnectorFailedError(
                f"a table of {self.name.capitalize()} has no key that rows are found by",
                hint=f"write it: CREATE TABLE {self.target.name} (id BIGINT PRIMARY KEY, ...)",
            )
        return nullable(self.found())


def nullable(found: pa.Schema) -> Schema:
    """Columns of a lake as they are here; any of them may be NULL."""
    columns = Schema.from_arrow(found.remove_metadata()).columns
    return Schema(tuple(Column(each.name, each.type) for each in columns))


class LakeReader(SourceReader):
    """Looks for what is new, every now and then.

    Args:
        every: seconds between two looks.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._next_look = 0.0

    @abstractmethod
    def is_behind(self) -> bool:
        """Whether something is known that was not read."""

    @abstractmethod
    def look(self) -> None:
        """Look at the table as it is now."""

    def has_next(self, timeout: float) -> bool:
        """Whether there is something to read; waits for it."""
        deadline = time.monotonic() + timeout
        while not self.is_behind():
            now = time.monotonic()
            if now >= self._next_look:
                self._next_look = now + self._every
                self.look()
                if self.is_behind():
                    break
            if now >= deadline:
                return False
            time.sleep(max(0.0, min(deadline, self._next_look) - time.monotonic()))
        return True

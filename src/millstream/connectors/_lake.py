"""What sinks of lake tables share: batches are gathered, and stored with their token as one commit.

A commit of a lake costs milliseconds and leaves files behind, so a batch of a few rows is held for
a moment. What is held is not acknowledged, and comes again after a crash.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors._storage import appended, check_not_again, stored_schema
from millstream.connectors.batches import SinkBatch
from millstream.connectors.contract import Option, SinkWriter
from millstream.errors import ConnectorFailedError
from millstream.model.batch import ChangeBatch

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings, SinkInput

Keys = list[tuple[Any, ...]]

LAKE_OPTIONS: Final = (
    Option(
        "mode",
        "choice",
        choices=("append", "upsert", "changelog"),
        help="new rows; the rows as they are, by key; or all changes",
    ),
    Option("commit_interval", "duration", default=1.0, help="for how long rows are gathered"),
    Option(
        "commit_rows",
        "int",
        default=500_000,
        help="a commit has about so many rows at most",
        least=1,
    ),
    Option("overwrite", "bool", default=False, help="upsert: replace rows that are not the sink's"),
)


class LakeWriter(SinkWriter):
    """Gathers batches and has them committed.

    Args:
        settings: the values of ``LAKE_OPTIONS``.
        source: what the sink reads.
        mode: how it is stored.
        stored: the token that the table has; None: none.

    Attributes:
        mode: how it is stored.
        commits: how many commits were made.
    """

    def __init__(
        self, settings: Settings, source: SinkInput, mode: str, stored: str | None
    ) -> None:
        super().__init__()
        self.mode = mode
        self.commits = 0
        self._source = source
        self._stored = stored
        self._most_rows: int = settings["commit_rows"]
        self._seconds: float = settings["commit_interval"]
        self._may_overwrite: bool = settings["overwrite"]
        self._held: list[ChangeBatch] = []
        self._rows = 0
        self._began = 0.0
        self._replaces = False
        self._token = ""

    # ---- what a table's library does

    @abstractmethod
    def append(self, rows: pa.Table, token: str) -> None:
        """Commit new rows and the token, as one."""

    @abstractmethod
    def merge(self, upserts: pa.Table, deletes: pa.Table, before: Keys, token: str) -> None:
        """Commit rows to put and keys to delete, and the token, as one.

        Args:
            upserts: the rows.
            deletes: the keys, as a table.
            before: the keys among both that the table has; the others are new.
            token: the token.
        """

    @abstractmethod
    def replace(self, rows: pa.Table, token: str) -> None:
        """Commit rows in place of all that are there, and the token, as one."""

    @abstractmethod
    def has_rows(self) -> bool:
        """Whether the table has rows."""

    # ---- the contract

    def position(self) -> str | None:
        """The token that the table has."""
        return self._stored

    def write(self, batch: SinkBatch) -> bool:
        """Hold a batch, and commit when it is time."""
        if batch.replaces:
            self._begin_snapshot()
        if not self._held:
            self._began = time.monotonic()
        self._held.append(batch.changes)
        self._rows += len(batch)
        if not batch.is_complete:
            return False
        self._token = batch.token
        if not self._rows and not self._replaces:
            self._held = []
            return True
        is_due = self._replaces or batch.kind == "snapshot" or self._rows >= self._most_rows
        return self._commit() if is_due or self._is_old() else False

    def flush(self, *, finish: bool) -> bool:
        """Commit what is held when it is old enough."""
        if not self._held:
            return True
        return self._commit() if self._token and (finish or self._is_old()) else False

    def _is_old(self) -> bool:
        return time.monotonic() - self._began >= self._seconds

    def _begin_snapshot(self) -> None:
        if self._held:
            self._commit()
        if self.mode != "upsert":
            check_not_again(has_token=self._stored is not None, what="the table")
        elif self._stored is None and not self._may_overwrite and self.has_rows():
            raise _has_rows()
        self._replaces, self._token = True, ""

    def _commit(self) -> bool:
        held, token = self._held, self._token
        if self.mode == "upsert" and not self._replaces:
            changes = ChangeBatch.concat(held)
            upserts, deletes = SinkBatch(changes).net_tables()
            if upserts.num_rows or deletes.num_rows:
                self.merge(_plain(upserts), _plain(deletes), keys_before(changes), token)
                self.commits += 1
        else:
            self._commit_rows(held, token)
        self._stored = token
        self._held, self._rows, self._replaces, self._token = [], 0, False, ""
        return True

    def _commit_rows(self, held: list[ChangeBatch], token: str) -> None:
        schema = stored_schema(self._source, self.mode)
        if held:
            parts = [appended(SinkBatch(each), self.mode) for each in held]
            schema = parts[-1].schema
            rows = _plain(pa.Table.from_batches([each.cast(schema) for each in parts]))
        else:
            rows = _plain(schema.empty_table())
        if self.mode == "upsert":
            self.replace(rows, token)
        elif rows.num_rows:
            self.append(rows, token)
        else:
            return
        self.commits += 1

    def metrics(self) -> dict[str, int | float]:
        """How many commits were made, and how many rows wait for theirs."""
        return {"commits": self.commits, "held_rows": self._rows}


def keys_before(changes: ChangeBatch) -> Keys:
    """The keys of changes that had a row before them: those whose first change takes one away."""
    names = changes.schema.names
    places = [names.index(name) for name in changes.schema.key]
    first: dict[tuple[Any, ...], int] = {}
    for row, weight in zip(changes.held_rows, changes.weights, strict=True):
        first.setdefault(tuple([row[place] for place in places]), weight)
    return [key for key, weight in first.items() if weight < 0]


def _plain(table: pa.Table) -> pa.Table:
    """A table whose columns may all be NULL, without metadata: as tables outside have it."""
    fields = [pa.field(each.name, each.type) for each in table.schema]
    return table.cast(pa.schema(fields))


def check_table(source: SinkInput, schema: pa.Schema, found: list[str]) -> None:
    """Raise if the table has a column that the sink does not write.

    Raises:
        ConnectorFailedError: it has.
    """
    missing = [name for name in found if name not in schema.names]
    if missing:
        raise ConnectorFailedError(
            f"the table has the column {missing[0]!r}, which {source.relation} has not",
            hint="name another table, or select such a column",
        )


def check_rows(settings: Settings, mode: str, *, has_rows: bool) -> None:
    """Raise if a new sink would replace rows that the table has.

    Raises:
        ConnectorFailedError: it would.
    """
    if mode == "upsert" and has_rows and not settings["overwrite"]:
        raise _has_rows()


def _has_rows() -> ConnectorFailedError:
    return ConnectorFailedError(
        "the table has rows that this sink has not written, and would replace",
        hint="name another table, or write overwrite = true",
    )


def check_types(schema: pa.Schema, what: str) -> None:
    """Raise if a column has a type that lakes do not have.

    Raises:
        ConnectorFailedError: an INTERVAL.
    """
    for each in schema:
        if "duration" in str(each.type):
            raise ConnectorFailedError(
                f"{what} has no type for column {each.name!r}, which is an INTERVAL",
                hint="select it as a number of seconds",
            )

"""``connector = 'delta'``: a table of Delta Lake that has the rows of a view, or its changes.

A commit has the rows of some batches and, as an application transaction, the token after them: a
restart reads the token and goes on exactly after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from millstream.connectors._delta import open_table, storage_options, stored_token, token_versions
from millstream.connectors._lake import (
    LAKE_OPTIONS,
    LakeWriter,
    check_rows,
    check_table,
    check_types,
)
from millstream.connectors._storage import ACCESS, STORAGE, check_mode, default_mode, stored_schema
from millstream.connectors.contract import Option, SinkConnector
from millstream.connectors.registry import needs
from millstream.errors import ConnectorFailedError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.connectors._lake import Keys
    from millstream.connectors.contract import SinkWriter

_DELETED: Final = "__millstream_deleted"


class DeltaSink(SinkConnector):
    """Writes a table of Delta Lake."""

    name = "delta"
    extra = "delta"
    transactional = True
    options: ClassVar = (
        Option("path", "place", required=True, help="the directory of the table, or its URL"),
        *LAKE_OPTIONS,
        Option("partition_by", help="columns, with commas, by which a new table is partitioned"),
        Option("optimize_every", "int", help="compact its files after so many commits", least=1),
        *ACCESS,
        STORAGE,
    )

    @property
    def mode(self) -> str:
        """How it is stored."""
        given: str | None = self.settings["mode"]
        return given or default_mode(self.input)

    @property
    def partitions(self) -> list[str]:
        """The columns of the partitions."""
        given: str = self.settings["partition_by"] or ""
        return [each.strip() for each in given.split(",") if each.strip()]

    def check(self) -> None:
        """See that the columns fit, and the table can be reached."""
        check_mode(self.mode, self.input)
        schema = stored_schema(self.input, self.mode)
        check_types(schema, "Delta Lake")
        for name in self.partitions:
            if name not in schema.names:
                raise InvalidOptionError(
                    f"partition_by: there is no column {name!r}",
                    hint=f"columns: {', '.join(schema.names)}",
                )
        table = open_table(self.settings)
        if table is None:
            return
        check_table(self.input, schema, pa.schema(table.schema().to_arrow()).names)
        check_rows(self.settings, self.mode, has_rows=bool(table.file_uris()))

    def open(self) -> SinkWriter:
        """Read the token that the table has."""
        return DeltaWriter(self)


class DeltaWriter(LakeWriter):
    """Commits to a table of Delta Lake."""

    def __init__(self, connector: DeltaSink) -> None:
        settings, source = connector.settings, connector.input
        self._delta = needs("deltalake", "delta")
        self._errors = needs("deltalake.exceptions", "delta")
        self._app = f"millstream.{source.id}"
        self._settings = settings
        self._partitions = connector.partitions or None
        self._optimize_every: int | None = settings["optimize_every"]
        self._table: Any = open_table(settings)
        self._names: list[str] = []  # the columns of the last append
        stored = None if self._table is None else stored_token(self._table, self._app)
        super().__init__(settings, source, connector.mode, stored)

    def _properties(self, token: str) -> Any:  # noqa: ANN401 - of the library
        versions = token_versions(self._app, token)
        return self._delta.CommitProperties(
            custom_metadata={"millstream.sink": self._app, "millstream.token": token},
            app_transactions=[self._delta.Transaction(*each) for each in versions.items()],
        )

    def _write(self, rows: pa.Table, token: str, mode: str, schema_mode: str | None) -> None:
        target = self._settings["path"] if self._table is None else self._table
        options = storage_options(self._settings) or None

        def write() -> None:
            self._delta.write_deltalake(
                target,
                rows,
                mode=mode,
                schema_mode=schema_mode,
                partition_by=self._partitions,
                storage_options=options if self._table is None else None,
                commit_properties=self._properties(token),
            )

        self._committed(write)
        if self._table is None:
            self._table = open_table(self._settings)

    def append(self, rows: pa.Table, token: str) -> None:
        """An append; columns that are new are added to the table."""
        is_new = rows.column_names != self._names
        self._write(rows, token, "append", "merge" if is_new and self._table is not None else None)
        self._names = rows.column_names

    def replace(self, rows: pa.Table, token: str) -> None:
        """An overwrite: older versions of the table stay as they are."""
        self._write(rows, token, "overwrite", "overwrite")

    def merge(self, upserts: pa.Table, deletes: pa.Table, before: Keys, token: str) -> None:
        """A MERGE by the key."""
        if not before:  # all keys are new
            self.append(upserts, token)
            return
        names, key = upserts.schema.names, self._source.schema.key
        rows = pa.concat_tables(
            [
                upserts.append_column(_DELETED, pa.repeat(False, upserts.num_rows)),
                deletes.append_column(_DELETED, pa.repeat(True, deletes.num_rows)),
            ],
            promote_options="default",
        ).select([*names, _DELETED])
        same = " AND ".join(f"s.{_q(name)} IS NOT DISTINCT FROM t.{_q(name)}" for name in key)
        values = {_q(name): f"s.{_q(name)}" for name in names}

        def write() -> None:
            (
                self._table.merge(
                    rows,
                    same,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=self._properties(token),
                )
                .when_matched_delete(f"s.{_DELETED}")
                .when_matched_update(values)
                .when_not_matched_insert(values, predicate=f"NOT s.{_DELETED}")
                .execute()
            )

        self._committed(write)

    def _committed(self, write: Callable[[], None]) -> None:
        """Commit, and compact now and then.

        Raises:
            ConnectorFailedError: the columns do not fit the table.
        """
        try:
            write()
            every = self._optimize_every
            if every and self._table is not None and (self.commits + 1) % every == 0:
                self._table.optimize.compact()
        except self._errors.SchemaMismatchError as error:
            raise ConnectorFailedError(
                f"the columns do not fit the table: {error}", hint="name another table"
            ) from error

    def has_rows(self) -> bool:
        """Whether the table has rows."""
        return self._table is not None and bool(self._table.file_uris())

    def metrics(self) -> dict[str, int | float]:
        """Commits, rows that wait, the version of the table."""
        version = {} if self._table is None else {"table_version": self._table.version()}
        return {**super().metrics(), **version}


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


CONNECTOR = DeltaSink

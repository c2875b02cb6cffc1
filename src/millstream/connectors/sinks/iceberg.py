"""``connector = 'iceberg'``: a table of Iceberg that has the rows of a view, or its changes.

A commit has the rows of some batches and the token after them, which is a property of the table
(and, to be seen, of its snapshot): a restart reads it and goes on exactly after it.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millstream.connectors._iceberg import CATALOG, find_table, open_catalog
from millstream.connectors._lake import (
    LAKE_OPTIONS,
    LakeWriter,
    check_rows,
    check_table,
    check_types,
)
from millstream.connectors._storage import check_mode, default_mode, stored_schema
from millstream.connectors.contract import SinkConnector
from millstream.connectors.registry import needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.connectors._lake import Keys
    from millstream.connectors.contract import SinkWriter


class IcebergSink(SinkConnector):
    """Writes a table of Iceberg."""

    name = "iceberg"
    extra = "iceberg"
    transactional = True
    options: ClassVar = (
        *CATALOG,
        *(each for each in LAKE_OPTIONS if each.name != "commit_rows"),
        *(replace(each, default=50_000) for each in LAKE_OPTIONS if each.name == "commit_rows"),
    )

    @property
    def mode(self) -> str:
        """How it is stored."""
        given: str | None = self.settings["mode"]
        return given or default_mode(self.input)

    def check(self) -> None:
        """See that the columns fit, and the catalog can be reached."""
        check_mode(self.mode, self.input)
        schema = stored_schema(self.input, self.mode)
        check_types(schema, "Iceberg")
        table = find_table(open_catalog(self.settings), self.settings["table"])
        if table is None:
            return
        check_table(self.input, schema, table.schema().as_arrow().names)
        check_rows(self.settings, self.mode, has_rows=_has_rows(table))

    def open(self) -> SinkWriter:
        """Read the token that the table has; a table that is not there is made."""
        return IcebergWriter(self)


class IcebergWriter(LakeWriter):
    """Commits to a table of Iceberg."""

    def __init__(self, connector: IcebergSink) -> None:
        settings, source = connector.settings, connector.input
        self._catalog = open_catalog(settings)
        self._table = find_table(self._catalog, settings["table"])
        if self._table is None:
            schema = stored_schema(source, connector.mode)
            namespace = settings["table"].rpartition(".")[0]
            self._catalog.create_namespace_if_not_exists(namespace)
            fields = [pa.field(each.name, each.type) for each in schema]
            self._table = self._catalog.create_table(settings["table"], schema=pa.schema(fields))
        self._property = f"millstream.token.{source.id}"
        stored = self._table.properties.get(self._property)
        super().__init__(settings, source, connector.mode, stored)

    @contextlib.contextmanager
    def _transaction(self, rows: pa.Table, token: str) -> Iterator[tuple[Any, pa.Table, Any]]:
        """A transaction that ends with the token; the rows in the types of the table."""
        known = self._table.schema().as_arrow().names
        with self._table.transaction() as transaction:
            if any(name not in known for name in rows.column_names):
                with transaction.update_schema() as update:
                    update.union_by_name(rows.schema)
            schema = transaction.table_metadata.schema().as_arrow()
            wanted = [schema.field(name) for name in rows.column_names]
            yield transaction, rows.cast(pa.schema(wanted)), {"millstream.token": token}
            transaction.set_properties({self._property: token})

    def append(self, rows: pa.Table, token: str) -> None:
        """An append; columns that are new are added to the table."""
        with self._transaction(rows, token) as (transaction, made, properties):
            transaction.append(made, snapshot_properties=properties)

    def replace(self, rows: pa.Table, token: str) -> None:
        """An overwrite of everything: older snapshots stay as they are."""
        with self._transaction(rows, token) as (transaction, made, properties):
            if self.has_rows():
                transaction.overwrite(made, snapshot_properties=properties)
            elif made.num_rows:
                transaction.append(made, snapshot_properties=properties)

    def merge(self, upserts: pa.Table, deletes: pa.Table, before: Keys, token: str) -> None:  # noqa: ARG002
        """The rows with these keys are deleted by copying their files, and the new ones added."""
        with self._transaction(upserts, token) as (transaction, made, properties):
            if before:
                gone = _matching(self._source.schema.key, before)
                transaction.delete(gone, snapshot_properties=properties)
            if made.num_rows:
                transaction.append(made, snapshot_properties=properties)

    def has_rows(self) -> bool:
        """Whether the table has rows."""
        return _has_rows(self._table)


def _has_rows(table: Any) -> bool:  # noqa: ANN401 - of the library
    snapshot = table.current_snapshot()
    return snapshot is not None and snapshot.summary["total-records"] != "0"


def _matching(names: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> Any:  # noqa: ANN401
    """What is true for the rows that have one of some keys."""
    library = needs("pyiceberg.expressions", "iceberg")
    if len(names) == 1:
        values = [key for (key,) in keys]
        plain = [each for each in values if each is not None and not _is_nan(each)]
        terms = [library.In(names[0], plain)] if plain else []
        if any(each is None for each in values):
            terms.append(library.IsNull(names[0]))
        if any(map(_is_nan, values)):
            terms.append(library.IsNaN(names[0]))
    else:
        terms = [
            library.And(*(_equal(library, *each) for each in zip(names, key, strict=True)))
            for key in keys
        ]
    return library.Or(*terms) if len(terms) > 1 else terms[0]


def _equal(library: Any, name: str, value: Any) -> Any:  # noqa: ANN401 - of the library
    if value is None:
        return library.IsNull(name)
    return library.IsNaN(name) if _is_nan(value) else library.EqualTo(name, value)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


CONNECTOR = IcebergSink

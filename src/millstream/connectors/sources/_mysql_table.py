"""The table that ``mysql-cdc`` follows: what it is now, whether it fits, and how rows are made."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.connectors.sources._mysql import (
    InvalidValueError,
    MyColumn,
    MyTable,
    connection_settings,
    describe,
    fits,
    name_parts,
    sql_type,
    value,
)
from millstream.errors import ConnectorFailedError, SchemaMismatchError
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.connectors.contract import Settings, Target

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where the connector is; kept as JSON with every delivery.

    Attributes:
        gtid: the transactions that are in; None while there is a snapshot.
        width: how many columns the table has.
        shape: a checksum of them.
        skipped: the names of columns that CREATE left out.
    """

    gtid: str | None
    width: int
    shape: int
    skipped: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """What is kept."""
        return [self.gtid, self.width, self.shape, *self.skipped]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> Position:
        """What ``to_json`` has made."""
        gtid, width, shape, *skipped = kept
        return cls(gtid, width, shape, tuple(skipped))


def checksum(columns: Sequence[MyColumn]) -> int:
    """A checksum of names and types of columns."""
    return zlib.crc32(repr([(each.name, each.full) for each in columns]).encode())


class FollowedTable:
    """A table of MariaDB or MySQL, and what is here of it.

    Attributes:
        settings: the values of the connector's options.
        target: the table here.
    """

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings = settings
        self.target = target
        *database, name = name_parts(settings["table"]) or [""]
        self.database: str = ".".join(database) or connection_settings(settings)["database"] or ""
        self.name = name

    def now(self, connection: Any) -> MyTable:  # noqa: ANN401 - the driver's
        """The table as it is now.

        Raises:
            ConnectorFailedError: there is none, or it has no transactions.
        """
        table = describe(connection, self.database, self.name)
        if table is None:
            raise ConnectorFailedError(
                f"there is no table {self.database}.{self.name}",
                hint="check the option table, and that the user may SELECT from it",
            )
        if table.engine.lower() not in {"innodb", "rocksdb"}:
            raise ConnectorFailedError(
                f"{table.sql} has no transactions, as its engine is {table.engine}",
                hint=f"ALTER TABLE {table.sql} ENGINE = InnoDB",
            )
        return table

    def schema(self, connection: Any) -> Schema:  # noqa: ANN401 - the driver's
        """The columns of the table, and its key."""
        table = self.now(connection)
        if not table.keys:
            raise _no_key(table)
        columns = []
        for each in table.columns:
            of = sql_type(each)
            if of is None:
                raise ConnectorFailedError(
                    f"the column {each.name} is {each.full}, which cannot be followed",
                    hint="CREATE the table with a list of columns without it",
                )
            columns.append(Column(each.name, of, nullable=each.name not in table.keys[0]))
        return Schema(tuple(columns), table.keys[0])

    def check_fits(self, table: MyTable) -> None:
        """Check columns and key against those of the target.

        Raises:
            ConnectorFailedError: they do not fit.
        """
        if not table.keys:
            raise _no_key(table)
        columns = {each.name.lower(): each for each in table.columns}
        for column in self.target.schema.columns:
            found = columns.get(column.name.lower())
            if found is None:
                raise ConnectorFailedError(
                    f"{table.sql} has no column {column.name}",
                    hint=f"its columns are {', '.join(columns)}; if it was dropped or renamed, "
                    "DROP the table and CREATE it anew",
                )
            if not fits(found, column.type):
                raise ConnectorFailedError(
                    f"the column {column.name} is {found.full} there, which does not fit "
                    f"{column.type.sql}",
                    hint="CREATE the table without columns to have them from there",
                )
        key = {name.lower() for name in self.target.schema.key}
        if key not in [{name.lower() for name in each} for each in table.keys]:
            raise ConnectorFailedError(
                f"the key ({', '.join(sorted(key))}) is no unique key of {table.sql}",
                hint=f"write PRIMARY KEY ({', '.join(table.keys[0])})",
            )


def _no_key(table: MyTable) -> ConnectorFailedError:
    return ConnectorFailedError(
        f"{table.sql} has no primary key, so its rows cannot be told apart",
        hint=f"ALTER TABLE {table.sql} ADD PRIMARY KEY (...)",
    )


class RowMaker:
    """Makes rows of the driver's values.

    Args:
        schema: the columns here, and the key.
        table: the table there.
        nullify: NULL in place of a value that cannot be had here, in place of an error.
    """

    def __init__(self, schema: Schema, table: MyTable, *, nullify: bool) -> None:
        columns = {each.name.lower(): each for each in table.columns}
        self._schema = schema
        self._nullify = nullify
        self.columns = [columns[name.lower()] for name in schema.names]
        self._places = [schema.names.index(name) for name in schema.key]

    def row(self, values: Mapping[str, Any], nothing: Mapping[str, str]) -> Row:
        """The row of an event; ``nothing`` says why a value is None."""
        return self.made(
            [
                nothing.get(each.name, "")
                if values.get(each.name) is None and nothing.get(each.name, "null") != "null"
                else values.get(each.name)
                for each in self.columns
            ]
        )

    def made(self, values: Sequence[Any]) -> Row:
        """The row of values in the order of the columns here.

        Raises:
            ConnectorFailedError: a value cannot be had here.
        """
        row = []
        for each, column, given in zip(self.columns, self._schema.columns, values, strict=True):
            given = "" if each.type == "set" and given == "empty set" else given  # noqa: PLW2901
            try:
                row.append(column.check(value(each, column.type, given)))
            except (InvalidValueError, SchemaMismatchError) as error:
                if not self._nullify or column.name in self._schema.key:
                    raise ConnectorFailedError(
                        f"the column {column.name} has a value that {column.type.sql} cannot hold: "
                        f"{given!s:.60}",
                        hint="correct it there, and skip it with invalid_values = 'null'",
                    ) from error
                row.append(None)
        return tuple(row)

    def key(self, row: Row) -> Row:
        """The key of a row."""
        return tuple([row[place] for place in self._places])

"""The table that ``postgres-cdc`` follows: what it is now, and whether it fits what is here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from millstream.connectors._postgres import PgTable, describe
from millstream.connectors._postgres_types import sql_type
from millstream.connectors.sources._postgres_rows import check_types
from millstream.connectors.sources._postgres_slot import published_columns
from millstream.errors import ConnectorFailedError
from millstream.model.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from millstream.connectors.contract import Settings, Target

    Connection = psycopg.Connection[tuple[Any, ...]]


class FollowedTable:
    """A table of PostgreSQL, and what is here of it.

    Attributes:
        settings: the values of the connector's options.
        target: the table here.
    """

    def __init__(self, settings: Settings, target: Target) -> None:
        self.settings = settings
        self.target = target

    @property
    def slot(self) -> str:
        """The name of its slot, and of its publication if that is not given."""
        return str(self.settings["slot"] or f"millstream_{self.target.id}".lower()[:63])

    @property
    def publication(self) -> str:
        """The name of the publication."""
        return str(self.settings["publication"] or self.slot)

    @property
    def nullifies(self) -> bool:
        """Whether values that cannot be had here are NULL, in place of an error."""
        return bool(self.settings["invalid_values"] == "null")

    def now(self, connection: Connection) -> PgTable:
        """The table as it is now.

        Raises:
            ConnectorFailedError: there is none, or it is of a kind that is not replicated.
        """
        name = self.settings["table"]
        table = describe(connection, name)
        if table is None:
            raise ConnectorFailedError(
                f"there is no table {name} in PostgreSQL",
                hint="give its schema too, such as public.orders; names with capitals need quotes",
            )
        if table.kind not in {"r", "p"}:
            raise ConnectorFailedError(
                f"{name} is no table", hint="views and foreign tables are not replicated"
            )
        return table

    def check_slot(self, connection: Connection) -> None:
        """Look whether a slot of the given name can be made: one that is there is another's.

        Raises:
            ConnectorFailedError: it cannot.
        """
        slot = self.settings["slot"]
        if slot is None:
            return
        if re.fullmatch("[a-z0-9_]{1,63}", slot) is None:
            raise ConnectorFailedError(
                f"{slot!r} cannot be the name of a replication slot",
                hint="slots are named with up to 63 small letters, digits and underscores",
            )
        for what, listed in (
            ("replication slot", "SELECT slot_name FROM pg_replication_slots"),
            ("publication", "SELECT pubname FROM pg_publication"),
        ):
            is_given = what == "publication" and self.settings["publication"]
            if not is_given and (slot,) in connection.execute(listed).fetchall():
                raise ConnectorFailedError(
                    f"there is a {what} {slot} already, and another may need it",
                    hint="give slot another name, leave it out, or drop the old one first",
                )

    def sent(self, connection: Connection, table: PgTable) -> tuple[str, ...]:
        """The names of the columns that are replicated."""
        published = None
        if self.settings["publication"]:
            published = published_columns(connection, self.publication, table.oid)
        return tuple(
            each.name
            for each in table.columns
            if not each.is_generated and (published is None or each.name in published)
        )

    def check_fits(self, table: PgTable, sent: Sequence[str]) -> None:
        """Check columns and key against those of the target.

        Raises:
            ConnectorFailedError: they do not fit.
        """
        check_types(
            self.target.schema,
            {each.name.lower(): each.type for each in table.columns if each.name in sent},
        )
        identity = {name.lower() for name in table.identity_key}
        if not identity:
            raise no_key(table)
        key = {name.lower() for name in self.target.schema.key}
        nullable = {each.name.lower() for each in table.columns if each.is_nullable}
        unique = [
            {name.lower() for name in each}
            for each in table.keys
            if each in table.nulls_equal or not nullable & {name.lower() for name in each}
        ]
        if key not in unique or not key <= identity:
            fitting = _identity_key(table)
            raise ConnectorFailedError(
                f"the key ({', '.join(sorted(key))}) is not one that {table.sql} is sent with",
                hint=f"write PRIMARY KEY ({', '.join(fitting)})"
                if fitting
                else f"ALTER TABLE {table.sql} REPLICA IDENTITY USING INDEX a_unique_index",
            )

    def schema(self, connection: Connection) -> Schema:
        """The columns of the table, and its key.

        Raises:
            ConnectorFailedError: it has no key.
        """
        table = self.now(connection)
        sent = self.sent(connection, table)
        key = _identity_key(table)
        if not key:
            raise no_key(table)
        columns = [
            Column(each.name, sql_type(each.type, each.typmod), nullable=each.name not in key)
            for each in table.columns
            if each.name in sent
        ]
        return Schema(tuple(columns), key)


def _identity_key(table: PgTable) -> tuple[str, ...]:
    """A unique key that the table's updates and deletes are replicated with; empty: none."""
    return next((each for each in table.keys if set(each) <= set(table.identity_key)), ())


def no_key(table: PgTable) -> ConnectorFailedError:
    """A table whose updates and deletes say not which row they mean."""
    return ConnectorFailedError(
        f"{table.sql} has no primary key or replica identity, so updates and deletes cannot be "
        "followed",
        hint=f"ALTER TABLE {table.sql} ADD PRIMARY KEY (...), or REPLICA IDENTITY USING INDEX with "
        "a unique index of NOT NULL columns",
    )


def check_server(connection: Connection) -> None:
    """Check what logical replication needs of the server and of the user.

    Raises:
        ConnectorFailedError: it cannot replicate.
    """
    found = connection.execute(
        "SELECT current_setting('wal_level'), current_setting('server_version_num')::int, "
        "r.rolreplication OR r.rolsuper, (SELECT count(*) FROM pg_replication_slots) >= "
        "current_setting('max_replication_slots')::int, pg_is_in_recovery() "
        "FROM pg_roles r WHERE r.rolname = current_user"
    ).fetchall()[0]
    level, version, may_replicate, is_full, is_standby = found
    if version < 130000:
        raise ConnectorFailedError("PostgreSQL is older than 13", hint="use PostgreSQL 13 or newer")
    if is_standby:
        raise ConnectorFailedError("the server is a standby", hint="connect to the primary")
    if level != "logical":
        raise ConnectorFailedError(
            f"the server's wal_level is {level}, and replication needs logical",
            hint="ALTER SYSTEM SET wal_level = 'logical', and restart PostgreSQL",
        )
    if not may_replicate:
        raise ConnectorFailedError("the user may not replicate", hint="ALTER ROLE name REPLICATION")
    if is_full:
        raise ConnectorFailedError(
            "all replication slots of the server are in use",
            hint="raise max_replication_slots, or drop slots that nobody uses",
        )

"""The source ``mysql-cdc``: a table of MariaDB or MySQL, followed by its binary log (rows, GTID).

First the rows that are there, in a consistent snapshot at a GTID position, then each transaction
as one commit.
"""

from __future__ import annotations

import zlib
from typing import Any

from millstream.connectors.contract import (
    Option,
    Settings,
    SourceConnector,
    Target,
    TargetKind,
)
from millstream.connectors.sources._mysql import CONNECTION_OPTIONS, EXTRA, ask, connect
from millstream.connectors.sources._mysql_reader import MysqlReader
from millstream.connectors.sources._mysql_table import FollowedTable, Position
from millstream.errors import ConnectorFailedError
from millstream.model.schema import Schema  # noqa: TC001

_WANTED = (
    ("log_bin", {"ON", "1"}, "start the server with --log-bin"),
    ("binlog_format", {"ROW"}, "SET GLOBAL binlog_format = 'ROW'"),
    ("binlog_row_image", {"FULL"}, "SET GLOBAL binlog_row_image = 'FULL'"),
    ("binlog_row_metadata", {"FULL"}, "SET GLOBAL binlog_row_metadata = 'FULL'"),
)


class MysqlCdc(SourceConnector):
    """A table of MariaDB or MySQL."""

    name = "mysql-cdc"
    extra = EXTRA
    kinds: tuple[TargetKind, ...] = ("table",)  # type: ignore[misc]
    rejects = False
    options = (
        *CONNECTION_OPTIONS,
        Option("table", required=True, help="such as shop.orders, or orders of the url's database"),
        Option(
            "server_id",
            "int",
            help="its number as a replica, unique among replicas",
            least=1,
            most=2**32 - 1,
        ),
        Option(
            "on_lost_binlog",
            "choice",
            default="fail",
            choices=("fail", "snapshot"),
            help="whether binary logs that are gone stop it, or all rows are read again",
        ),
        Option(
            "invalid_values",
            "choice",
            default="fail",
            choices=("fail", "null"),
            help="values that the column here cannot hold, such as 0000-00-00",
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
        connection = connect(self.settings)
        try:
            _check_server(connection)
            self._followed.check_fits(self._followed.now(connection))
        finally:
            connection.close()

    def discover(self) -> Schema:
        """The columns of the table, and its key."""
        connection = connect(self.settings)
        try:
            return self._followed.schema(connection)
        finally:
            connection.close()

    def open(self, position: Any) -> MysqlReader:  # noqa: ANN401 - a JSON value
        """Connect, and go on after a position."""
        number = self.settings["server_id"]
        if number is None:
            number = 1000 + zlib.crc32(self.target.id.encode()) % (2**32 - 2000)
        at = None if position is None else Position.from_json(position)
        return MysqlReader(self._followed, at, number)


def _check_server(connection: Any) -> None:  # noqa: ANN401 - the driver's
    """Check what following the binary log needs of the server.

    Raises:
        ConnectorFailedError: it cannot be followed.
    """
    names = [name for name, *_ in _WANTED]
    marks = ", ".join(["%s"] * (len(names) + 1))
    found = dict(
        ask(
            connection,
            f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})",
            *names,
            "gtid_mode",
        )
    )
    for name, wanted, hint in _WANTED:
        if str(found.get(name, "")).upper() not in wanted:
            raise ConnectorFailedError(
                f"the server's {name} is {found.get(name) or 'not known'}", hint=hint
            )
    if "gtid_mode" in found and found["gtid_mode"] != "ON":
        raise ConnectorFailedError("the server's gtid_mode is off", hint="turn GTIDs on")


CONNECTOR = MysqlCdc

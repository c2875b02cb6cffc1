"""The reader of ``mysql-cdc``: a snapshot at a GTID position, then the binary log after it."""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import replace
from typing import Any, Final

from millstream.connectors.contract import Delivery, SourceReader
from millstream.connectors.registry import needs
from millstream.connectors.sources._mysql import (
    EXTRA,
    LOST_BINLOG,
    MyTable,
    ask,
    connect,
    connection_settings,
    failure,
    quoted,
    sql_type,
)
from millstream.connectors.sources._mysql_binlog import (
    effect,
    with_mariadb_gtid,
    with_mysql_gtid,
)
from millstream.connectors.sources._mysql_table import (
    FollowedTable,
    Position,
    RowMaker,
    checksum,
)
from millstream.errors import ConnectorError, ConnectorFailedError
from millstream.model.row_change import TRUNCATE, RowChange, delete, upsert
from millstream.model.schema import Column

HEARTBEAT_SECONDS: Final = 0.2
"""How often the server sends something when there is nothing: so long a read waits at most."""
IDLE_SECONDS: Final = 30.0
"""When nothing of the table comes, the position moves on after so long."""


class SnapshotNeeded(Exception):  # noqa: N818 - a turn that reading takes
    """The table was changed in a way that the binary log does not show: its rows are read again."""


class MysqlReader(SourceReader):
    """Reads a table of MariaDB or MySQL.

    Args:
        followed: the table, there and here.
        position: where to go on; None: at the beginning.
        server_id: its number as a replica.
    """

    def __init__(self, followed: FollowedTable, position: Position | None, server_id: int) -> None:
        self._followed = followed
        self._server_id = server_id
        self._driver: Any = needs("pymysql", EXTRA)
        self._schema = followed.target.schema
        self._new_columns: list[Column] = []
        self._changes: list[RowChange] = []
        self._gtid = ""
        self._behind = self._transactions = 0
        self._moved = time.monotonic()
        self._stream: Any = None
        self._rows: Any = None
        self._snapshot: Any = None
        self._side = connect(followed.settings)
        try:
            (version,) = ask(self._side, "SELECT version()")[0]
            self._is_mariadb = "mariadb" in version.lower()
            self._position = position or Position(None, 0, 0)
            self._maker = self._known(followed.now(self._side))
            if self._position.gtid is None:
                self._start_snapshot(replaces=position is not None)
            else:
                self._start_stream()
        except BaseException:
            self.close()
            raise

    # ---- the contract

    def read(self, timeout: float) -> Delivery | None:  # noqa: ARG002 - the heartbeat ends it
        """The next rows of the snapshot, or the next transaction."""
        try:
            if self._rows is not None:
                return self._read_snapshot()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the driver
                return self._read_stream()
        except SnapshotNeeded:
            self._start_snapshot(replaces=True)
            return None
        except self._driver.Error as error:
            code = error.args[0] if error.args else 0
            if code == LOST_BINLOG and self._followed.settings["on_lost_binlog"] == "snapshot":
                self._start_snapshot(replaces=True)
                return None
            raise failure(error, "the binary log cannot be read") from error

    def lag(self) -> int | None:
        """How many seconds ago the last transaction was made that came."""
        return self._behind

    def metrics(self) -> dict[str, int | float]:
        """How many transactions came; empty while there is a snapshot."""
        return {} if self._stream is None else {"transactions": self._transactions}

    def close(self) -> None:
        """Close all connections."""
        self._close_snapshot()
        for each in (self._stream, self._side):
            if each is not None:
                with contextlib.suppress(Exception):
                    each.close()

    # ---- the snapshot

    def _start_snapshot(self, *, replaces: bool) -> None:
        """Begin to read all rows as of a position."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        followed = self._followed
        followed.check_fits(followed.now(self._side))
        self._changes, self._replaces = [], replaces
        connection = self._snapshot = connect(
            followed.settings, cursorclass=self._driver.cursors.SSCursor
        )
        gtid = self._as_of_now(connection, followed)
        table = followed.now(self._side)
        self._maker = self._known(table, evolves=replaces)
        names = ", ".join(
            # FLOAT is shown with six digits, unless it is computed with
            f"{quoted(each.name)} + 0e0" if each.type == "float" else quoted(each.name)
            for each in self._maker.columns
        )
        self._rows = connection.cursor()
        self._rows.execute(f"SELECT {names} FROM {table.sql}")  # noqa: S608
        self._position = replace(self._position, gtid=None)
        self._until = gtid

    def _as_of_now(self, connection: Any, followed: FollowedTable) -> str:  # noqa: ANN401
        """Let a connection see the table as it is now; returns the position."""
        if self._is_mariadb:
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            place = dict(ask(connection, "SHOW STATUS LIKE 'binlog_snapshot_%%'"))
            file, at = place["Binlog_snapshot_file"], place["Binlog_snapshot_position"]
            return str(ask(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, at)[0][0] or "")
        name = f"{quoted(followed.database)}.{quoted(followed.name)}"
        ask(self._side, f"FLUSH TABLES {name} WITH READ LOCK")
        try:
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            return str(ask(connection, "SELECT @@global.gtid_executed")[0][0]).replace("\n", "")
        finally:
            ask(self._side, "UNLOCK TABLES")

    def _read_snapshot(self) -> Delivery:
        most = self._followed.settings["snapshot_rows"]
        rows = [self._maker.made(row) for row in self._rows.fetchmany(most)]
        if len(rows) < most:
            self._close_snapshot()
            self._position = replace(self._position, gtid=self._until)
            self._start_stream()
        new_columns, self._new_columns = self._new_columns, []
        position = self._position.to_json()
        if not self._replaces:
            return Delivery(rows=rows, position=position, new_columns=new_columns)
        self._replaces = False
        changes = [TRUNCATE, *map(upsert, rows)]
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    def _close_snapshot(self) -> None:
        self._rows = None  # closing its cursor would read all rows that are left
        if self._snapshot is not None:
            with contextlib.suppress(Exception):
                self._snapshot._force_close()  # noqa: SLF001
            self._snapshot = None

    # ---- the columns

    def _known(self, table: MyTable, *, evolves: bool = False) -> RowMaker:
        """Take the columns of the table as they are; new ones are added here if it ``evolves``."""
        here = {name.lower() for name in self._schema.names}
        others = [each for each in table.columns if each.name.lower() not in here]
        skipped = self._position.skipped
        if self._position.width == 0:
            skipped = tuple(each.name for each in others)
        elif evolves:
            for each in others:
                of = sql_type(each)
                if each.name not in skipped and of is not None:
                    column = Column(each.name, of)
                    self._schema = self._schema.with_column(column)
                    self._new_columns.append(column)
                    self._changes = [
                        change if change.row is None else change._replace(row=(*change.row, None))
                        for change in self._changes
                    ]
        if self._position.width == 0 or evolves:
            self._position = replace(
                self._position,
                width=len(table.columns),
                shape=checksum(table.columns),
                skipped=skipped,
            )
        self._followed.check_fits(table)
        nullify = self._followed.settings["invalid_values"] == "null"
        return RowMaker(self._schema, table, nullify=nullify)

    def _altered(self) -> None:
        """The table was altered: it has new columns at the end, or its rows are read again."""
        table, position = self._followed.now(self._side), self._position
        added = table.columns[position.width :]
        if checksum(table.columns[: position.width]) != position.shape:
            raise SnapshotNeeded
        if any(not each.is_plain for each in added):
            raise SnapshotNeeded
        self._maker = self._known(table, evolves=True)

    # ---- the binary log

    def _start_stream(self) -> None:
        log: Any = needs("pymysqlreplication", EXTRA)
        events: Any = needs("pymysqlreplication.event", EXTRA)
        rows: Any = needs("pymysqlreplication.row_event", EXTRA)
        self._takers = {
            rows.WriteRowsEvent: self._insert,
            rows.UpdateRowsEvent: self._update,
            rows.DeleteRowsEvent: self._delete,
            events.XidEvent: self._commit,
            events.QueryEvent: self._query,
            events.GtidEvent: self._begin,
            events.MariadbGtidEvent: self._begin,
            events.HeartbeatLogEvent: self._idle,
            events.XAPrepareEvent: self._prepare,
        }
        settings = {**connection_settings(self._followed.settings), "database": None}
        opened: list[int] = []

        def connected(**options: Any) -> Any:  # noqa: ANN401 - the driver's
            opened.append(1)
            if len(opened) > 2:  # not the stream, nor that for questions: it would begin anew
                raise ConnectorError("the connection to the server is lost")
            return self._driver.connect(**options)

        self._stream = log.BinLogStreamReader(
            settings,
            server_id=self._server_id,
            only_events=list(self._takers),
            only_schemas=[self._followed.database],
            only_tables=[self._followed.name],
            auto_position=self._position.gtid,
            is_mariadb=self._is_mariadb,
            blocking=True,
            slave_heartbeat=HEARTBEAT_SECONDS,
            enable_logging=False,
            pymysql_wrapper=connected,
        )
        self._gtid = ""

    def _read_stream(self) -> Delivery | None:
        while True:
            event = self._stream.fetchone()
            if event is None:
                raise ConnectorError("the server has ended the binary log's stream")
            taker = self._takers[type(event)]
            delivery = taker(event)
            if delivery is not None:
                return delivery if isinstance(delivery, Delivery) else None

    def _begin(self, event: Any) -> Delivery | bool | None:  # noqa: ANN401 - the driver's
        """A transaction begins; between two of them, reading may end."""
        self._gtid, self._changes = event.gtid, []
        return self._moved_on()

    def _rows_of(self, event: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - the driver's
        bits = event.columns_present_bitmap
        if sum(each.bit_count() for each in bits) != event.number_of_columns:
            raise ConnectorFailedError(
                "an event in the binary log has only a part of its columns",
                hint="binlog_row_image must be FULL in every session; DROP and CREATE the table",
            )
        rows: list[dict[str, Any]] = event.rows
        return rows

    def _insert(self, event: Any) -> None:  # noqa: ANN401 - the driver's
        for each in self._rows_of(event):
            row = self._maker.row(each["values"], each["none_sources"])
            self._changes.append(upsert(row))

    def _update(self, event: Any) -> None:  # noqa: ANN401 - the driver's
        maker = self._maker
        for each in self._rows_of(event):
            old = maker.key(maker.row(each["before_values"], each["before_none_sources"]))
            row = maker.row(each["after_values"], each["after_none_sources"])
            self._changes.append(upsert(row, None if maker.key(row) == old else old))

    def _delete(self, event: Any) -> None:  # noqa: ANN401 - the driver's
        for each in self._rows_of(event):
            row = self._maker.row(each["values"], each["none_sources"])
            self._changes.append(delete(self._maker.key(row)))

    def _query(self, event: Any) -> Delivery | None:  # noqa: ANN401 - the driver's
        sql = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        word = sql.strip().upper()
        if word == "BEGIN" or word.startswith("SAVEPOINT"):
            return None
        if word == "ROLLBACK":
            self._changes = []
        if word in {"COMMIT", "ROLLBACK"}:
            return self._commit(event)
        followed, schema = self._followed, event.schema.decode()
        done = effect(sql, schema, followed.database, followed.name)
        if done == "truncate":
            self._changes.append(TRUNCATE)
        elif done == "gone":
            raise ConnectorFailedError(
                f"the table was dropped, renamed or created again: {sql:.80}",
                hint="DROP the table here, and CREATE it anew",
            )
        elif done == "statement":
            raise ConnectorFailedError(
                "changes were logged as a statement, not as rows",
                hint="binlog_format must be ROW in every session; DROP and CREATE the table",
            )
        elif done == "rewritten":
            raise SnapshotNeeded
        elif done == "altered":
            self._altered()
        return self._commit(event)

    def _prepare(self, event: Any) -> None:  # noqa: ANN401, ARG002 - the driver's
        if self._changes:
            raise ConnectorFailedError(
                "XA transactions are not followed", hint="use plain transactions for this table"
            )

    def _commit(self, event: Any) -> Delivery | None:  # noqa: ANN401 - the driver's
        self._behind = max(0, int(time.time()) - event.timestamp)
        if self._gtid:
            merged = with_mariadb_gtid if self._is_mariadb else with_mysql_gtid
            self._position = replace(
                self._position, gtid=merged(self._position.gtid or "", self._gtid)
            )
            self._gtid = ""
        changes, self._changes = self._changes, []
        new_columns, self._new_columns = self._new_columns, []
        if not changes and not new_columns:
            return None
        self._transactions += 1
        self._moved = time.monotonic()
        position = self._position.to_json()
        return Delivery(changes=changes, position=position, new_columns=new_columns)

    def _idle(self, event: Any) -> Delivery | bool:  # noqa: ANN401, ARG002 - the driver's
        self._behind = 0
        return self._moved_on() or True

    def _moved_on(self) -> Delivery | None:
        """Let the position follow the server when nothing of the table comes."""
        now = time.monotonic()
        if now - self._moved < IDLE_SECONDS:
            return None
        self._moved = now
        return Delivery(position=self._position.to_json())

"""MariaDB and MySQL for ``mysql-cdc``: connections, typed errors, tables, types and values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from millstream.connectors.contract import Option
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError
from millstream.model.types import SqlType, parse_type

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTRA: Final = "mysql"
CONNECTION_OPTIONS: Final = (
    Option("url", required=True, help="mysql://user:password@host:port/database"),
    Option("password", secret=True, help="in place of one in the URL"),
    Option("ssl_ca", help="the certificates that the server's is checked with; turns TLS on"),
)
LOST_BINLOG: Final = 1236
_HINTS: Final = {
    1044: "grant the user the database",
    1045: "check the user and the password in url",
    1049: "check the name of the database in url",
    1227: "grant the user REPLICATION SLAVE, BINLOG MONITOR (MySQL: REPLICATION CLIENT) and SELECT",
    2003: "check host and port in url, and that the server runs",
    LOST_BINLOG: "keep binary logs for longer: binlog_expire_logs_seconds",
}
_PERMANENT: Final = {1044, 1142, 1146, 1227, LOST_BINLOG}


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the driver is given to connect.

    Raises:
        ConnectorFailedError: the URL is none.
    """
    url = urlsplit(settings["url"])
    try:
        port = url.port or 3306
    except ValueError:
        port = 0
    if url.scheme not in {"mysql", "mariadb"} or not url.hostname or not port:
        raise ConnectorFailedError(
            "the url is not understood",
            hint="write mysql://user:password@host:3306/database; in a password, write @ : / ? # "
            "as %40 %3A %2F %3F %23",
        )
    if url.query or url.fragment:  # to pass over a wish for TLS, say, would be worse
        raise ConnectorFailedError(
            "the url has parameters, and none are known",
            hint="leave out what follows ? or #; ssl_ca is an option of its own",
        )
    made: dict[str, Any] = {
        "host": url.hostname,
        "port": port,
        "user": unquote(url.username or ""),
        "password": settings["password"] or unquote(url.password or ""),
        "database": url.path.strip("/") or None,
        "charset": "utf8mb4",
        "connect_timeout": 10,
        "read_timeout": 60,
    }
    if settings["ssl_ca"]:
        made["ssl_ca"] = settings["ssl_ca"]
    return made


def connect(settings: Mapping[str, Any], **more: Any) -> Any:  # noqa: ANN401 - the driver's
    """Open a connection, in autocommit mode, whose times are in UTC.

    Raises:
        ConnectorError: the server cannot be reached, or refuses; with a hint.
    """
    driver: Any = needs("pymysql", EXTRA)
    made = connection_settings(settings)
    try:
        return driver.connect(
            **made, autocommit=True, init_command="SET time_zone = '+00:00'", **more
        )
    except driver.Error as error:
        raise failure(error, "cannot connect to the server") from None
    except OSError as error:  # of the certificates: those of the network are the driver's
        raise ConnectorFailedError(
            f"ssl_ca {settings['ssl_ca']} cannot be used: {error.strerror or error}",
            hint="give the path of a file of certificates in PEM",
        ) from None


def failure(error: Exception, doing: str) -> ConnectorError:
    """What an error of the driver means: whether it is permanent, and what can be done."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    kind = ConnectorFailedError if code in _PERMANENT else ConnectorError
    hint = _HINTS.get(code, "see the server's log")
    if "same server_" in text:
        hint = "give each of them a server_id of its own"
        kind = ConnectorError  # the other one may go
    return kind(f"{doing}: {' '.join(text.split())}", hint=hint)


def ask(connection: Any, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """The rows that a statement answers with.

    Raises:
        ConnectorError: it was refused.
    """
    driver: Any = needs("pymysql", EXTRA)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())
    except driver.Error as error:
        raise failure(error, "the server refuses") from error


# ---- tables


@dataclass(frozen=True, slots=True)
class MyColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type, such as ``decimal``.
        full: its type with all parameters, such as ``enum('a','b')``.
        is_plain: whether rows from before it have NULL in it.
        length: of a binary of fixed length, that length; 0: none.
    """

    name: str
    type: str
    full: str
    is_plain: bool
    length: int = 0


@dataclass(frozen=True, slots=True)
class MyTable:
    """A table.

    Attributes:
        database: where it is.
        name: its name.
        engine: its storage engine.
        columns: its columns.
        keys: the columns of its unique keys that have no NULL, the primary key first.
    """

    database: str
    name: str
    engine: str
    columns: tuple[MyColumn, ...]
    keys: tuple[tuple[str, ...], ...]

    @property
    def sql(self) -> str:
        """Its name, quoted."""
        return f"{quoted(self.database)}.{quoted(self.name)}"


_COLUMNS: Final = """
SELECT column_name, lower(data_type), lower(column_type), is_nullable = 'YES' AND extra = '' AND
       (column_default IS NULL OR column_default = 'NULL'),
       IF(data_type = 'binary', character_maximum_length, 0), extra
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
ORDER BY ordinal_position
"""
_KEYS: Final = """
SELECT index_name, column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index
"""


def describe(connection: Any, database: str, name: str) -> MyTable | None:  # noqa: ANN401
    """A table as it is now; None when there is none. Generated columns are left out."""
    found = ask(
        connection,
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s "
        "AND table_type = 'BASE TABLE'",
        database,
        name,
    )
    if not found:
        return None
    rows = ask(connection, _COLUMNS, database, name)
    columns = tuple(
        MyColumn(each, of, full, bool(plain), int(length or 0))
        for each, of, full, plain, length, extra in rows
        if "GENERATED" not in extra.upper() or "DEFAULT_GENERATED" in extra.upper()
    )
    required = {each for each, *_ in ask(connection, _REQUIRED, database, name)}
    keys: dict[str, tuple[str, ...]] = {}
    for index, column in ask(connection, _KEYS, database, name):
        keys[index] = (*keys.get(index, ()), column)
    unique = tuple(key for key in keys.values() if required >= set(key))
    return MyTable(database, name, str(found[0][0]), columns, unique)


_REQUIRED: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND is_nullable = 'NO'
"""


def name_parts(text: str) -> list[str]:
    """The parts of a name, which backquotes may be around, and points between.

    >>> name_parts("shop.`a.b``c`"), name_parts("orders")
    (['shop', 'a.b`c'], ['orders'])
    """
    parts = re.findall(r"`((?:[^`]|``)+)`(?:\.|$)|([^.`][^.]*)(?:\.|$)", text)
    return [in_quotes.replace("``", "`") or plain for in_quotes, plain in parts]


def quoted(name: str) -> str:
    """A name as an identifier.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


# ---- types and values

_TEXTS: Final = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}
_BINARIES: Final = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_INTEGERS: Final = {
    "tinyint": ("TINYINT", "SMALLINT"),
    "smallint": ("SMALLINT", "INTEGER"),
    "mediumint": ("INTEGER", "INTEGER"),
    "int": ("INTEGER", "BIGINT"),
    "bigint": ("BIGINT", "DECIMAL(20, 0)"),
}
_OTHERS: Final = {
    "float": "REAL",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP",
    "time": "INTERVAL",
    "year": "INTEGER",
}
_RANKS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


def sql_type(column: MyColumn) -> SqlType | None:
    """The type that a column has here; None: there is none.

    >>> sql_type(MyColumn("n", "int", "int(10) unsigned", True))
    SqlType(sql='BIGINT')
    """
    of, full = column.type, column.full
    if of in _INTEGERS:
        return parse_type(_INTEGERS[of]["unsigned" in full])
    if of == "decimal":
        precision, scale = re.findall(r"\d+", full)[:2]
        return parse_type(f"DECIMAL({precision}, {scale})") if int(precision) <= 38 else None
    if of in _TEXTS:
        return parse_type("VARCHAR")
    if of in _BINARIES:
        return parse_type("BINARY")
    if of == "time" and "(" in full:
        return None  # the driver misreads negative times with fractions
    return parse_type(_OTHERS[of]) if of in _OTHERS else None


def fits(column: MyColumn, into: SqlType) -> bool:
    """Whether all values of a column can be in one of a type here."""
    own = sql_type(column)
    if own is None:
        return False
    if own == into:
        return True
    if own.kind in _RANKS and into.kind in _RANKS:
        return _RANKS.index(own.kind) <= _RANKS.index(into.kind)
    whole = own.kind in _RANKS and into.kind == "DECIMAL"
    if whole or (own.kind == into.kind == "DECIMAL"):
        return True  # a value that it cannot hold is an error when it comes
    return (own.kind, into.kind) in {("REAL", "DOUBLE"), ("INTEGER", "DOUBLE")}


class InvalidValueError(ValueError):
    """A value that cannot be had here."""


def value(column: MyColumn, into: SqlType, given: Any) -> Any:  # noqa: ANN401 - of any type
    """A value of the driver, of the binary log or of a SELECT alike, as it is here.

    Raises:
        InvalidValueError: it cannot be had here.
    """
    if given is None:
        return None
    kind = column.type
    if kind in _BINARIES and given == "":
        given = b""  # no bytes are a text for the driver, of the binary log
    if kind == "set":
        order = re.findall(r"'((?:[^']|'')*)'", column.full)
        members = given if isinstance(given, set) else set(given.split(",")) - {""}
        return ",".join(each for each in order if each.replace("''", "'").lower() in _low(members))
    if kind in {"datetime", "timestamp"}:
        if not isinstance(given, datetime):
            raise InvalidValueError(str(given))
        return given.replace(tzinfo=UTC)
    if (kind == "date" and not isinstance(given, date)) or (
        kind == "time" and not isinstance(given, timedelta)
    ):
        raise InvalidValueError(str(given))
    if column.length:
        return given.ljust(column.length, b"\0")
    if into.kind == "DECIMAL":
        return Decimal(given)
    return float(given) if into.kind in {"REAL", "DOUBLE"} else given


def _low(members: set[str]) -> set[str]:
    return {each.lower() for each in members}

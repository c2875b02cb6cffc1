"""What the connectors of PostgreSQL share: connections, typed errors, what a table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors._postgres_types import PgType
from millstream.connectors.contract import Option
from millstream.connectors.registry import needs
from millstream.errors import ConnectorError, ConnectorFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import psycopg

EXTRA: Final = "postgres"
CONNECTION_OPTIONS: Final = (
    Option("url", required=True, help="postgresql://user:password@host:port/database"),
    Option("password", secret=True, help="in place of one in the URL"),
)

# What output functions write must not depend on the server's settings.
SESSION: Final = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'iso_8601'; "
    "SET extra_float_digits = 3; SET bytea_output = 'hex'; SET client_encoding = 'UTF8'; "
    "SET row_security = off"
)
_DEFAULTS: Final = {
    "connect_timeout": 10,
    "application_name": "millstream",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# A repetition does not help: data, definitions and rights that do not fit.
_PERMANENT: Final = ("22", "23", "42", "0A", "3F")
_STATE_HINTS: Final = {
    "0A000": "write the table as schema.table; names with capitals in quotes",
    "3F000": "create the schema, or give another one",
    "42602": "write the table as schema.table; names with capitals in quotes",
    "22021": "PostgreSQL has no zero bytes in texts: leave them out in the query of the sink",
}
_HINTS: Final = (
    (
        "certificate verify failed",
        "sslrootcert in url must be the root of the server's certificate",
    ),
    ("does not match host name", "give the host in url the name that the server's certificate has"),
    ("root certificate file", "give the path of the root certificate: sslrootcert in url"),
    ("does not support SSL", "turn on ssl in PostgreSQL; sslmode in url asks for it"),
    ("no encryption", "the server wants TLS: sslmode=require, or verify-full, in url"),
    ("password authentication failed", "check the user and the password in url"),
    ("no password supplied", "give a password: the option password, or in url"),
    ("does not exist", "check the name of the database and of the user in url"),
    ("refused", "check host and port in url, and that PostgreSQL accepts TCP connections"),
    ("no pg_hba.conf entry", "allow the connection in the server's pg_hba.conf"),
    ("translate host name", "check the host in url"),
    ("resolve host", "check the host in url"),
    ("server on socket", "give host and port in url"),
    ("sslmode value", "sslmode is disable, prefer, require, verify-ca or verify-full"),
)


# ---- connections


def connect(
    settings: Mapping[str, Any], *, replication: bool = False
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open a connection in autocommit mode.

    Raises:
        ConnectorError: the server cannot be reached, or refuses; with a hint.
    """
    driver: Any = needs("psycopg", EXTRA)
    try:
        given = driver.conninfo.conninfo_to_dict(settings["url"])
    except driver.ProgrammingError as error:
        raise ConnectorFailedError(
            f"the url is not understood: {_line(error)}",
            hint="write postgresql://user:password@host:port/database",
        ) from None
    options = {**_DEFAULTS, **{name: each for name, each in given.items() if each is not None}}
    if settings["password"]:
        options["password"] = settings["password"]
    if replication:
        options["replication"] = "database"
    try:
        made: psycopg.Connection[tuple[Any, ...]] = driver.connect(
            autocommit=True, prepare_threshold=None if replication else 5, **options
        )
        made.pgconn.exec_(SESSION.encode())
    except driver.Error as error:
        text = _line(error)
        hint = next((hint for part, hint in _HINTS if part in text), "see the server's log")
        raise ConnectorError(f"cannot connect to PostgreSQL: {text}", hint=hint) from None
    return made


def failure(error: Exception, doing: str) -> ConnectorError:
    """What an error of the driver means: whether it is permanent, and what can be done."""
    state = getattr(error, "sqlstate", None) or ""
    kind = ConnectorFailedError if state[:2] in _PERMANENT else ConnectorError
    detail = getattr(getattr(error, "diag", None), "message_detail", None)
    text = _line(error) if detail is None or detail in str(error) else f"{_line(error)}: {detail}"
    hint = getattr(getattr(error, "diag", None), "message_hint", None) or ""
    if state == "42501":
        hint = "grant the right to the user of the connector"
    if not hint:
        hint = _STATE_HINTS.get(state, "see the table and the columns, and the server's log")
    return kind(f"{doing}: {text}", hint=hint)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def command_failure(result: Any, doing: str) -> ConnectorError:  # noqa: ANN401 - a PGresult
    """The error of a command in the simple protocol."""
    errors: Any = needs("psycopg.errors", EXTRA)
    return failure(errors.error_from_result(result), doing)


# ---- tables


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column of a table of PostgreSQL.

    Attributes:
        name: its name.
        type: its type.
        typmod: its parameters, such as precision and scale; -1: none.
        is_nullable: whether it may be NULL.
        has_default: whether rows that were there before it may have a value in it.
        is_generated: whether it is computed from others: it is not replicated.
        fills_itself: whether a new row gets a value in it by itself.
    """

    name: str
    type: PgType
    typmod: int
    is_nullable: bool
    has_default: bool
    is_generated: bool
    fills_itself: bool


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table of PostgreSQL.

    Attributes:
        oid: its number.
        sql: its name, quoted.
        kind: ``r``, or ``p`` for a partitioned one.
        identity: its replica identity: ``d``, ``f``, ``i`` or ``n``.
        columns: all of them.
        keys: the columns of its unique indexes, the primary key first.
        identity_key: the columns that updates and deletes are replicated with.
        nulls_equal: those of ``keys`` where a NULL equals a NULL.
    """

    oid: int
    sql: str
    kind: str
    identity: str
    columns: tuple[PgColumn, ...]
    keys: tuple[tuple[str, ...], ...]
    identity_key: tuple[str, ...]
    nulls_equal: frozenset[tuple[str, ...]]


_TABLE: Final = """
SELECT c.oid::bigint, format('%%I.%%I', n.nspname, c.relname), c.relkind::text, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS: Final = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, NOT a.attnotnull,
       a.atthasdef OR a.atthasmissing OR a.attnotnull OR a.attidentity <> '', a.attgenerated <> '',
       a.atthasdef OR a.attidentity <> ''
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS: Final = """
SELECT array(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k(n, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
             WHERE k.place <= i.indnkeyatts ORDER BY k.place),
       i.indisprimary, i.indisreplident,
       coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false)
FROM pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
      AND i.indexprs IS NULL AND i.indimmediate
ORDER BY NOT i.indisprimary, NOT i.indisreplident, i.indexrelid
"""
_TYPES: Final = """
WITH RECURSIVE t(oid) AS (
    SELECT oid FROM pg_type WHERE oid = ANY(%s)
  UNION
    SELECT p.oid FROM t JOIN pg_type e ON e.oid = t.oid
    JOIN pg_type p ON p.oid = e.typbasetype OR (e.typcategory = 'A' AND p.oid = e.typelem))
SELECT p.oid::bigint, p.typname, p.typtype::text, p.typcategory::text, p.typbasetype::bigint,
       p.typtypmod, CASE WHEN p.typcategory = 'A' THEN p.typelem ELSE 0 END::bigint
FROM t JOIN pg_type p USING (oid)
"""


def describe(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> PgTable | None:
    """The table of a name as it is now; None when there is none.

    Raises:
        ConnectorError: the catalog cannot be read.
    """
    driver: Any = needs("psycopg", EXTRA)
    try:
        found = connection.execute(_TABLE, [name]).fetchone()
        if found is None:
            return None
        oid, sql, kind, identity = found
        rows = connection.execute(_COLUMNS, [oid]).fetchall()
        indexes = connection.execute(_KEYS, [oid]).fetchall()
        types = types_of(connection, [row[1] for row in rows])
    except driver.Error as error:
        raise failure(error, f"the table {name} cannot be looked up") from error
    columns = tuple(PgColumn(name, types[of], typmod, *more) for name, of, typmod, *more in rows)
    keys = tuple(tuple(names) for names, *_ in indexes)
    primary = next((tuple(names) for names, is_primary, *_ in indexes if is_primary), ())
    chosen = next((tuple(names) for names, _, is_chosen, _ in indexes if is_chosen), ())
    every = tuple(column.name for column in columns)
    identity_key = {"d": primary, "i": chosen, "f": every}.get(identity, ())
    equal = frozenset(tuple(names) for names, *_, nulls_equal in indexes if nulls_equal)
    return PgTable(oid, sql, kind, identity, columns, keys, identity_key, equal)


def types_of(
    connection: psycopg.Connection[tuple[Any, ...]], oids: Sequence[int]
) -> dict[int, PgType]:
    """The types of some numbers; domains are what they are made of."""
    found = {row[0]: row for row in connection.execute(_TYPES, [list(oids)]).fetchall()}

    def made(oid: int) -> PgType:
        _, name, kind, category, base, typmod, element = found[oid]
        if kind == "d" and base in found:
            inner = made(base)
            return PgType(oid, inner.name, inner.kind, inner.element, typmod)
        inside = made(element) if category == "A" and element in found else None
        return PgType(oid, name, kind, inside)

    return {oid: made(oid) for oid in oids if oid in found}


def quoted(name: str) -> str:
    """A name as an identifier of SQL.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a literal of SQL or of a replication command.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def names(columns: Sequence[str]) -> str:
    """Names as identifiers, with commas."""
    return ", ".join(map(quoted, columns))

"""Permissions: which statements and calls each role may run, and which of them a tenant may.

One table, ``TABLE``, decides for embedded sessions and for every transport. A statement or a call
that is not in it needs the role ``admin`` and is refused for tenants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.errors import RoleError, TenantError
from millstream.masking import without_secrets
from millstream.sql import (
    AddColumn,
    CopyFrom,
    CopyTo,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Listen,
    Notify,
    Pause,
    Query,
    Select,
    Show,
    ShowChanges,
    ShowCreate,
    SkipDamage,
    Unlisten,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.sql import Statement

Role = Literal["read", "write", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "write", "admin")
"""Each may do what those before it may."""

_OF_ALL: Final = "it changes or shows what belongs to all tenants; run it without a tenant"
_ROWS_OF_ALL: Final = "rows of other tenants count in it; run it without a tenant"


@dataclass(frozen=True, slots=True)
class Permission:
    """One row of the table.

    Attributes:
        action: a statement, in capitals; or a call, as a verb and its object.
        role: the least role that may run it.
        refused: why a tenant may not run it; empty: a tenant may, on its own rows.
    """

    action: str
    role: Role
    refused: str = ""

    @property
    def described(self) -> str:
        """What is done, after "cannot"."""
        return f"run {self.action}" if self.action[0].isupper() else self.action


def _rows(role: Role, *actions: str, refused: str = "") -> Iterator[Permission]:
    return (Permission(each, role, refused) for each in actions)


_ROWS: Final = (
    # ---- reading
    *_rows("read", "SELECT", "LIVE SELECT", "EXPLAIN", "DESCRIBE"),
    *_rows("read", "SHOW SOURCES", "SHOW TABLES", "SHOW VIEWS", "SHOW STREAMS", "SHOW CHANGES"),
    *_rows("read", "SHOW SUBSCRIPTIONS", "SHOW SINKS", "SHOW CONNECTORS", refused=_OF_ALL),
    *_rows("read", "SHOW CREATE", "DESCRIBE SINK", refused=_OF_ALL),
    *_rows("read", "EXPLAIN CREATE MATERIALIZED VIEW", "EXPLAIN CREATE STREAM", refused=_OF_ALL),
    *_rows("read", "LISTEN", "UNLISTEN", "SHOW CHANNELS"),
    *_rows("read", "subscribe", "follow the change bus", "see the topology"),
    *_rows("read", "see causes", "see metrics", refused=_ROWS_OF_ALL),
    *_rows("read", "COPY TO STDOUT"),
    # ---- writing rows and messages
    *_rows("write", "INSERT", "UPDATE", "DELETE", "COPY FROM STDIN", "NOTIFY"),
    *_rows("write", "push rows", "keep a durable subscription"),
    *_rows("write", "set a watermark", refused="it holds for the rows of all tenants"),
    # ---- what exists
    *_rows("admin", "CREATE SOURCE", "CREATE TABLE", refused=_OF_ALL),
    *_rows("admin", "CREATE MATERIALIZED VIEW", "CREATE STREAM", refused=_OF_ALL),
    *_rows("admin", "DROP SOURCE", "DROP TABLE", "DROP VIEW", "DROP STREAM", refused=_OF_ALL),
    *_rows("admin", "ALTER ADD COLUMN", "ALTER SKIP DAMAGE", refused=_OF_ALL),
    *_rows("admin", "DROP SUBSCRIPTION"),
    # ---- files of the server, and addresses that the client chooses
    *_rows("admin", "COPY FROM a file", "COPY TO a file", refused=_OF_ALL),
    *_rows("admin", "CREATE SOURCE with a connector", refused=_OF_ALL),
    *_rows("admin", "CREATE TABLE with a connector", refused=_OF_ALL),
    *_rows("admin", "CREATE SINK", "DROP SINK", "ALTER PAUSE", "ALTER RESUME", refused=_OF_ALL),
    *_rows("admin", "see webhooks", "change webhooks"),  # of tenants: to public addresses only
    # ---- the connection itself, in PostgreSQL's protocol
    *_rows("read", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"),
    *_rows("read", "SET", "RESET", "DISCARD", "SHOW a setting", "PREPARE", "EXECUTE", "DEALLOCATE"),
    *_rows("read", "DECLARE", "FETCH", "CLOSE", "SELECT of pg_catalog", "SELECT pg_sleep"),
)
TABLE: Final[Mapping[str, Permission]] = {each.action: each for each in _ROWS}
"""By action, who may do it."""


def _query(statement: Select | Query) -> str:
    return "LIVE SELECT" if statement.live else "SELECT"


def _created(kind: str) -> Callable[[CreateSource | CreateTable], str]:
    def action(statement: CreateSource | CreateTable) -> str:
        return f"CREATE {kind}{' with a connector' if 'connector' in statement.options else ''}"

    return action


def _view(statement: CreateView) -> str:
    return "CREATE MATERIALIZED VIEW" if statement.kind == "view" else "CREATE STREAM"


def _explain(statement: Explain) -> str:
    inner = statement.statement
    return f"EXPLAIN {_view(inner)}" if isinstance(inner, CreateView) else "EXPLAIN"


_ACTIONS: Final[dict[type[Statement], str | Callable[[Any], str]]] = {
    Select: _query,
    Query: _query,
    Insert: "INSERT",
    Update: "UPDATE",
    Delete: "DELETE",
    CopyFrom: "COPY FROM a file",
    CopyTo: "COPY TO a file",
    CreateSource: _created("SOURCE"),
    CreateTable: _created("TABLE"),
    CreateView: _view,
    CreateSink: "CREATE SINK",
    Drop: lambda statement: f"DROP {statement.kind.upper()}",
    AddColumn: "ALTER ADD COLUMN",
    SkipDamage: "ALTER SKIP DAMAGE",
    Pause: lambda statement: "ALTER PAUSE" if statement.paused else "ALTER RESUME",
    Show: lambda statement: f"SHOW {statement.kind.upper()}",
    ShowCreate: "SHOW CREATE",
    ShowChanges: "SHOW CHANGES",
    Describe: lambda statement: "DESCRIBE SINK" if statement.kind == "sink" else "DESCRIBE",
    Explain: _explain,
    Listen: "LISTEN",
    Unlisten: "UNLISTEN",
    Notify: "NOTIFY",
}


def action_of(statement: Statement) -> str:
    """The action that a statement is, as the table names it.

    >>> from millstream.sql import parse
    >>> [action_of(each) for each in parse("SELECT * FROM t; SHOW SINKS; DROP TABLE t")]
    ['SELECT', 'SHOW SINKS', 'DROP TABLE']
    """
    kind = type(statement)
    found = _ACTIONS.get(kind, kind.__name__)
    return found if isinstance(found, str) else found(statement)


def permission_of(action: str) -> Permission:
    """The row of an action; of one that the table does not have, the strictest.

    >>> permission_of("INSERT").role, permission_of("FLY").role
    ('write', 'admin')
    """
    return TABLE.get(action) or Permission(action, "admin", _OF_ALL)


def needed_role(action: str) -> Role:
    """The least role that may do something."""
    return permission_of(action).role


def check(action: str, role: Role, tenant: str | None, text: str = "") -> None:
    """Raise unless a role may do something, as a tenant or without one.

    Args:
        action: what is to be done.
        role: of whom.
        tenant: the tenant; None: no tenant.
        text: the text of the statement, for the message.

    Raises:
        RoleError: the role is too low.
        TenantError: tenants may not.
    """
    permission = permission_of(action)
    if ROLES.index(role) < ROLES.index(permission.role):
        raise RoleError(
            f"the role {role!r} cannot {permission.described}",
            hint=f"use a key with the role {permission.role!r}",
        )
    if tenant is not None and permission.refused:
        what = f"run: {without_secrets(text)}" if text else permission.described
        raise TenantError(f"a tenant cannot {what}", hint=permission.refused)

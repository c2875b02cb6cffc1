"""Who a client is, and which statements its role may run. Every transport checks it here.

A tenant's restrictions are those of ``Session(tenant=...)``; roles only say which statements may be
run at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from millstream.errors import RoleError
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
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.sql import ParameterValues, Statement

Role = Literal["read", "write", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "write", "admin")
"""Each may do what those before it may."""

_NEEDED: Final[dict[type[Statement], Role]] = {
    **dict.fromkeys((Select, Query, Show, ShowChanges, ShowCreate, Describe, Explain), "read"),
    **dict.fromkeys((Listen, Unlisten), "read"),
    **dict.fromkeys((Insert, Update, Delete, Notify), "write"),
    **dict.fromkeys((CreateSource, CreateTable, CreateView, CreateSink), "admin"),
    **dict.fromkeys((Drop, AddColumn, SkipDamage, Pause), "admin"),
    **dict.fromkeys((CopyFrom, CopyTo), "admin"),  # files of the server's machine
}
_KEPT: Final = 4096
_LONGEST_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known of a text of SQL before it is run.

    Attributes:
        role: the least role that may run it.
        verb: of the first statement that needs this role.
        live: whether a LIVE SELECT is in it, which never ends.
        listens: whether it needs a connection that messages can come on.
    """

    role: Role
    verb: str
    live: bool
    listens: bool


_known: Final[dict[str, Facts]] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is.

    >>> Identity("dashboard", "acme", "read").may("write")
    False

    Attributes:
        name: the name of its key.
        tenant: whose rows it sees; None: all.
        role: what it may do.
    """

    name: str
    tenant: str | None = None
    role: Role = "admin"

    def may(self, role: Role) -> bool:
        """Whether it may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: Role, what: str) -> None:
        """Raise unless it may do what a role may.

        Raises:
            RoleError: it may not; ``what`` says what was refused.
        """
        if not self.may(role):
            raise RoleError(
                f"the role {self.role!r} cannot {what}", hint=f"use a key with the role {role!r}"
            )


LOCAL: Final = Identity("local")
"""Everybody, where no keys are asked for."""


def needed_role(statements: Iterable[Statement]) -> Role:
    """The least role that may run statements.

    >>> from millstream.sql import parse
    >>> needed_role(parse("SELECT * FROM t; DELETE FROM t"))
    'write'
    """
    # What this table does not name yet needs the highest role.
    needed = [ROLES.index(_NEEDED.get(type(each), "admin")) for each in statements]
    return ROLES[max(needed, default=0)]


def check_statements(identity: Identity, statements: Iterable[Statement]) -> None:
    """Raise unless a client may run statements that were parsed.

    Raises:
        RoleError: it may not.
    """
    for statement in statements:
        identity.require(needed_role([statement]), f"run {_verb(statement.text)}")


def facts_of(sql: str, parameters: ParameterValues = None) -> Facts:
    """What must be known of a text of SQL before it is run; remembered, since parsing takes time.

    Raises:
        SqlError: the text cannot be parsed.
    """
    known = _known.get(sql)
    if known is None:
        statements = parse(sql, parameters)
        live = any(isinstance(each, Select | Query) and each.live for each in statements)
        listens = any(isinstance(each, Listen | Unlisten) for each in statements)
        role = needed_role(statements)
        needing = next((each for each in statements if needed_role([each]) == role), None)
        known = Facts(role, "that" if needing is None else _verb(needing.text), live, listens)
        if len(_known) >= _KEPT:
            _known.clear()
        if len(sql) <= _LONGEST_KEPT:
            _known[sql] = known
    return known


def check_sql(identity: Identity, sql: str, parameters: ParameterValues = None) -> Facts:
    """Raise unless a client may run a text of SQL; returns what is known of it.

    Raises:
        RoleError: it may not.
        SqlError: the text cannot be parsed.
    """
    facts = facts_of(sql, parameters)
    identity.require(facts.role, f"run {facts.verb}")
    return facts


def _verb(sql: str) -> str:
    return sql.split(maxsplit=1)[0].upper()[:20] if sql.split() else "that"

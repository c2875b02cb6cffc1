"""Who a client is. What it may do is decided by its session, as ``engine.permissions`` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.engine import permissions
from millstream.engine.permissions import ROLES, Role, action_of
from millstream.sql import Listen, Query, Select, Unlisten, parse

if TYPE_CHECKING:
    from millstream.sql import ParameterValues

__all__ = ["LOCAL", "ROLES", "Facts", "Identity", "Role", "check_sql", "facts_of"]

_KEPT: Final = 4096
_LONGEST_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known of a text of SQL before it is run.

    Attributes:
        actions: what its statements do, as ``engine.permissions`` names it, with their texts.
        live: whether a LIVE SELECT is in it, which never ends.
        listens: whether it needs a connection that messages can come on.
    """

    actions: tuple[tuple[str, str], ...]
    live: bool
    listens: bool


_known: Final[dict[str, Facts]] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client is.

    Attributes:
        name: the name of its key.
        tenant: whose rows it sees; None: all.
        role: what it may do.
    """

    name: str
    tenant: str | None = None
    role: Role = "admin"

    def check(self, action: str, text: str = "") -> None:
        """Raise unless it may do something.

        >>> Identity("dashboard", "acme", "read").check("INSERT")
        Traceback (most recent call last):
        millstream.errors.RoleError: the role 'read' cannot run INSERT...

        Raises:
            RoleError: its role is too low.
            TenantError: it is a tenant, and tenants may not.
        """
        permissions.check(action, self.role, self.tenant, text)


LOCAL: Final = Identity("local")
"""Everybody, where no keys are asked for."""


def facts_of(sql: str, parameters: ParameterValues = None) -> Facts:
    """What must be known of a text of SQL before it is run; remembered, since parsing takes time.

    Raises:
        SqlError: the text cannot be parsed.
    """
    known = _known.get(sql)
    if known is None:
        statements = parse(sql, parameters)
        known = Facts(
            tuple((action_of(each), each.text) for each in statements),
            live=any(isinstance(each, Select | Query) and each.live for each in statements),
            listens=any(isinstance(each, Listen | Unlisten) for each in statements),
        )
        if len(_known) >= _KEPT:
            _known.clear()
        if len(sql) <= _LONGEST_KEPT:
            _known[sql] = known
    return known


def check_sql(identity: Identity, sql: str, parameters: ParameterValues = None) -> None:
    """Raise unless a client may run a text of SQL: for answers that begin before it is run.

    Raises:
        RoleError: its role is too low.
        TenantError: it is a tenant, and tenants may not.
        SqlError: the text cannot be parsed.
    """
    for action, text in facts_of(sql, parameters).actions:
        identity.check(action, text)

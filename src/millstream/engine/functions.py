"""Functions of a session: the time, and what PostgreSQL's clients ask of a connection."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from millstream.model.types import BIGINT, BOOLEAN, DATE, INTEGER, TIMESTAMP, VARCHAR
from millstream.sql.statements.constants import CLOCKS
from millstream.sql.statements.parameters import Constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.model.types import SqlType

DATABASE: Final = "millstream"
SERVER_VERSION: Final = "15.0 (Millstream)"
"""What PostgreSQL's clients are told."""

_DATES: Final = frozenset({"current_date", "curdate"})
_USERS: Final = frozenset({"current_user", "session_user", "user", "current_role"})
_FIXED: Final[dict[str, tuple[object, SqlType]]] = {
    "version": (f"PostgreSQL {SERVER_VERSION}", VARCHAR),
    **dict.fromkeys(("current_database", "current_catalog"), (DATABASE, VARCHAR)),
    "current_schema": ("public", VARCHAR),
    "pg_client_encoding": ("UTF8", VARCHAR),
    "pg_is_in_recovery": (False, BOOLEAN),
    "pg_my_temp_schema": (0, INTEGER),
    "txid_current": (0, BIGINT),
    **dict.fromkeys(("inet_server_addr", "inet_client_addr"), (None, VARCHAR)),
    "inet_server_port": (None, INTEGER),
}
_NAMES: Final = CLOCKS | _USERS | _FIXED.keys()
_ANY: Final = re.compile(
    r"now|current_|user|version|local|curdate|timestamp\s*\(|pg_|txid|inet_|set_config",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ConnectionFunction:
    """A function of a connection.

    Attributes:
        type: the type of its value.
        call: gives its value for some arguments; raises if it does not take them.
        counts: how many arguments it takes.
    """

    type: SqlType
    call: Callable[..., Any]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionFunctions:
    """The functions whose values are those of a session, and stay while a statement runs.

    Attributes:
        user: who it is.
        more: the functions of a connection, by their names in small letters.
        moment: the time; None: no statement runs.
        calls: whether functions are called; else only their types are known.
    """

    user: str = DATABASE
    more: Mapping[str, ConnectionFunction] | None = None
    moment: datetime | None = None
    calls: bool = True

    def started(self, sql: str, moment: datetime, *, calls: bool = True) -> SessionFunctions | None:
        """The functions of a statement that begins now; None if its text calls none.

        Args:
            sql: the text.
            moment: the time.
            calls: whether they are called; else they are NULLs of their types.
        """
        if not isinstance(sql, str) or _ANY.search(sql) is None:
            return None
        return replace(self, moment=moment, calls=calls)

    @property
    def names(self) -> frozenset[str]:
        """Their names."""
        return _NAMES if self.more is None else _NAMES | self.more.keys()

    def call(self, name: str, args: Sequence[object]) -> Constant | None:
        """The value of a call."""
        found = None if self.more is None else self.more.get(name)
        if found is not None:
            if len(args) not in found.counts:
                return None
            return Constant(name, found.call(*args) if self.calls else None, found.type)
        if args:
            return None
        value, of = self._value(name)
        return Constant(name, value if self.calls else None, of)

    def _value(self, name: str) -> tuple[object, SqlType]:
        if name in _FIXED:
            return _FIXED[name]
        if name in _USERS:
            return self.user, VARCHAR
        moment = self.moment or datetime.now(UTC)
        return (moment.date(), DATE) if name in _DATES else (moment, TIMESTAMP)


FUNCTIONS: Final = SessionFunctions()
"""Those of a session of nobody in particular."""

"""The functions of a connection: its settings, its number, and those that stand alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.engine.functions import ConnectionFunction, SessionFunctions
from millstream.model.types import BOOLEAN, INTEGER, VARCHAR
from millstream.server.postgres.errors import PostgresError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.server.postgres.settings import Settings

_TRUE: Final = ConnectionFunction(BOOLEAN, lambda *_: True, (1, 2))
_NOTHING: Final = ConnectionFunction(VARCHAR, lambda *_: "", (1, 2))


def connection_functions(user: str, settings: Settings, process: int) -> SessionFunctions:
    """The functions that the statements of a connection can call.

    Args:
        user: who it is.
        settings: its settings.
        process: its number.
    """

    def current_setting(name: object, missing_ok: object = False) -> str | None:
        try:
            return settings.get(str(name))
        except PostgresError:
            return None if missing_ok else ""

    def set_config(name: object, value: object, _is_local: object) -> str:
        text = "" if value is None else str(value)
        if settings.has(str(name)):
            settings.set(str(name), text)
        return text

    return SessionFunctions(
        user,
        {
            "current_setting": ConnectionFunction(VARCHAR, current_setting, (1, 2)),
            "set_config": ConnectionFunction(VARCHAR, set_config, (3,)),
            "pg_backend_pid": ConnectionFunction(INTEGER, lambda: process, (0,)),
            **dict.fromkeys(("pg_advisory_lock", "pg_advisory_xact_lock"), _NOTHING),
            **dict.fromkeys(("pg_advisory_unlock", "pg_try_advisory_lock"), _TRUE),
            "pg_notify": ConnectionFunction(VARCHAR, _alone("pg_notify"), (2,)),
            "pg_sleep": ConnectionFunction(VARCHAR, _alone("pg_sleep"), (1,)),
        },
    )


def _alone(name: str) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        raise PostgresError(
            f"{name} stands alone: SELECT {name}(...)",
            sqlstate="0A000",
            hint="run it as a statement of its own",
        )

    return refuse

"""Errors of the server, as the classes that a database in this process raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

# What an error of an older server has for what the constructors of some classes want.
_UNKNOWN: dict[str, dict[str, Any]] = {
    "BAD_ROW": {"row": -1, "column": None},
    "DUPLICATE_KEY": {"key": ()},
    "LSN_NOT_KEPT": {"oldest": 0},
    "SLOW_CONSUMER": {"token": ""},
    "VIEW_FAILED": {"view": "", "topic": None, "lsn": None, "key": None},
    "LOG_FILES": {"files": (), "missing": ()},
    "LOG_CORRUPT": {"segment": "", "offset": 0, "next_lsn": None},
}


def error_from(found: Mapping[str, Any], *, sql: str = "", token: str = "") -> errors.Error:
    """The error that a server's JSON describes; of an unknown code, a ServerError.

    >>> error_from({"code": "OBJECT_NOT_FOUND", "message": "there is no t", "hint": "CREATE it"})
    ObjectNotFoundError('there is no t')

    Args:
        found: ``{"code", "message", "hint", "line", "column", "details"}``.
        sql: the statement that was sent, to show the place in it.
        token: of a subscription, where it goes on.
    """
    message, hint = str(found.get("message", "")), str(found.get("hint") or "")
    code = str(found.get("code", ""))
    kind = _KINDS.get(code)
    if kind is None:
        return errors.ServerError(message or f"the server answered {code}", hint=hint)
    if issubclass(kind, errors.SqlError):
        line, column = int(found.get("line") or 0), int(found.get("column") or 0)
        return kind(message, sql=sql, line=line, column=column, hint=hint)
    unknown, given = _UNKNOWN.get(code, {}), found.get("details") or {}
    details = {name: _value(given.get(name, other)) for name, other in unknown.items()}
    if token and "token" in details:
        details["token"] = token
    made = kind(message, hint=hint, **details)
    for name in given.keys() - unknown.keys():
        if hasattr(made, name):
            setattr(made, name, _value(given[name]))
    return made


def _value(given: Any) -> Any:  # noqa: ANN401 - of any type
    """A detail as the error has it: JSON has no tuples."""
    return tuple(given) if isinstance(given, list) else given


_KINDS = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.Error)
}

"""Answers over HTTP: JSON, and errors with the status that fits them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from millstream import errors
from millstream.formats.json_output import to_json

if TYPE_CHECKING:
    from millstream.model.schema import Schema

_logger = logging.getLogger("millstream.server")

_STATUS: Final[tuple[tuple[type[errors.Error], int], ...]] = (
    (errors.AuthenticationError, 401),
    (errors.RoleError, 403),
    (errors.OriginError, 403),
    (errors.TenantError, 403),
    (errors.FileRefusedError, 403),
    (errors.AddressRefusedError, 403),
    (errors.TooLargeError, 413),
    (errors.MediaTypeError, 415),
    (errors.LimitError, 429),
    (errors.SourceFullError, 429),
    (errors.QueryTimeoutError, 504),
    (errors.ObjectNotFoundError, 404),
    (errors.TopicNotFoundError, 404),
    (errors.SubscriptionNotFoundError, 404),
    (errors.ObjectExistsError, 409),
    (errors.SubscriptionExistsError, 409),
    (errors.DuplicateKeyError, 409),
    (errors.InUseError, 409),
    (errors.ObjectChangedError, 409),
    (errors.DdlTimeoutError, 503),
    (errors.LsnNotKeptError, 410),
    (errors.RowTooLargeError, 413),
    (errors.LogFullError, 507),
    (errors.LogError, 503),
    (errors.ClosedError, 503),
    (errors.PipelineError, 503),
    (errors.ViewNotReadyError, 503),
    (errors.ViewFailedError, 409),
    (errors.KeyFileError, 500),
    (errors.MissingExtraError, 500),
    (errors.ConnectorFailedError, 400),
    (errors.ConnectorError, 502),
)
_DETAILS: Final = (
    *("row", "column", "key", "oldest", "token", "view", "topic", "lsn"),
    *("segment", "offset", "next_lsn", "files", "missing", "count", "rows_lost"),
)
"""The attributes of errors that clients get."""
JSON: Final = "application/json"
ARROW: Final = "application/vnd.apache.arrow.stream"


def status_of(error: errors.Error) -> int:
    """The HTTP status of an error; what fits no other is the client's fault.

    >>> status_of(errors.ObjectNotFoundError("no t")), status_of(errors.SqlSyntaxError("what"))
    (404, 400)
    """
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def error_json(error: BaseException) -> dict[str, Any]:
    """An error as clients get it; of one that is no Millstream error, only that there was one."""
    if not isinstance(error, errors.Error):
        _logger.error("a request failed", exc_info=error)
        return {
            "code": "INTERNAL",
            "message": "the server failed; its log says why",
            "hint": "",
            "line": None,
            "column": None,
        }
    details = _details(error)
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": getattr(error, "line", None) or None,
        "column": (getattr(error, "column", None) or None)
        if isinstance(error, errors.SqlError)
        else None,
        **({"details": details} if details else {}),
    }


def _details(error: errors.Error) -> dict[str, Any]:
    """What an error knows besides its message: the row, the key, the token, the view."""
    if isinstance(error, errors.SqlError):  # its text is the client's, its place is beside it
        return {}
    return {name: value for name, value in vars(error).items() if name in _DETAILS}


def columns_json(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema."""
    return [{"name": each.name, "type": each.type.sql} for each in schema.columns]


def json_answer(
    content: Any,  # noqa: ANN401 - anything that is JSON
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """JSON."""
    return Response(to_json(content).encode(), status, headers, media_type=JSON)


def error_answer(error: BaseException) -> Response:
    """An error."""
    status = status_of(error) if isinstance(error, errors.Error) else 500
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="millstream"'
    if status in {429, 503}:
        headers["Retry-After"] = "1"
    return json_answer({"error": error_json(error)}, status, headers)

"""Bodies of requests: read within their limits, and checked to be what was asked for."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from millstream.errors import MediaTypeError, RequestError, TooLargeError

if TYPE_CHECKING:
    from starlette.requests import Request

    from millstream.server.settings import Limits


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body.

    Raises:
        TooLargeError: it is larger than allowed.
        RequestError: it came too slowly, or is compressed.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise MediaTypeError("compressed bodies are not read", hint="send it as it is")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_large(limits)
                parts.append(part)
    except TimeoutError as error:
        raise RequestError(
            f"the body did not come within {limits.body_seconds:g} seconds"
        ) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: Limits) -> TooLargeError:
    return TooLargeError(
        f"the body has more than {limits.body_bytes:,} bytes",
        hint="send it in parts, or start the server with a larger --max-body",
    )


def json_object(body: bytes | str) -> dict[str, Any]:
    """The object of a JSON text.

    Raises:
        RequestError: it is something else.
    """
    try:
        found = json.loads(body)
        if (rb"\u" if isinstance(body, bytes) else r"\u") in body:  # type: ignore[operator]
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            "a text has a lone surrogate, which UTF-8 cannot hold", hint="escape both, or neither"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("expected a JSON object", hint='such as {"sql": "SELECT ..."}')
    return found


def taken(found: dict[str, Any], **kinds: Any) -> list[Any]:  # noqa: ANN401 - types
    """The values of some names in an object, each of its type, or None when it is not there.

    >>> taken({"sql": "SELECT 1"}, sql=str, params=list)
    ['SELECT 1', None]

    Raises:
        RequestError: a value of another type, or a name that is none of these.
    """
    unknown = sorted(set(found) - set(kinds))
    if unknown:
        raise RequestError(
            f"unknown: {', '.join(unknown[:5])}"[:200], hint=f"known: {', '.join(kinds)}"
        )
    values = []
    for name, kind in kinds.items():
        value = found.get(name)
        is_bool = isinstance(value, bool) and kind is not bool
        if value is not None and (is_bool or not isinstance(value, kind)):
            raise RequestError(f"{name}: {type(value).__name__} is not expected here")
        values.append(value)
    return values

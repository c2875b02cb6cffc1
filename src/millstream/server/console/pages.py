"""The files of the console, and the headers that keep its page from doing anything else."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

PAGE: Final = "/"
MODULE: Final = "/v1/millstream.js"
"""Where pages, also those of other sites that ``--origin`` allows, import the client from."""

_FILES: Final = {PAGE: "index.html", MODULE: "millstream.js"}
_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# The page loads its own files and calls its own server; what looks like a script in a row is text.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def routes() -> list[BaseRoute]:
    """A route for each file, read once. They need no key: they say nothing of the database."""
    folder = files(__package__) / "static"
    named = {f"/console/{each.name}": each.name for each in folder.iterdir()}
    return [
        _route(path, name, (folder / name).read_bytes())
        for path, name in {**named, **_FILES}.items()
        if "." in name
    ]


def _route(path: str, name: str, body: bytes) -> BaseRoute:
    media_type = _MEDIA_TYPES[name[name.rindex(".") :]]

    async def answer(_: Request) -> Response:
        return Response(body, headers=_HEADERS, media_type=media_type)

    return Route(path, answer, methods=["GET"])

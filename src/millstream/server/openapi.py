"""``/openapi.json``: the endpoints as an OpenAPI 3.1 document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.server.answers import ARROW, json_answer
from millstream.server.ingest import MEDIA_TYPES
from millstream.server.prometheus import MEDIA_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from millstream.server.service import Service

_ERRORS = {
    400: "The request or its SQL is refused.",
    401: "A key is needed.",
    403: "The key, or the web page, may not do it.",
    404: "There is no such object.",
    409: "It is there already, or in use, or has failed.",
    410: "Retention has removed it.",
    413: "It is too large.",
    415: "The media type is not read.",
    429: "Too much at once.",
    500: "The server failed.",
    503: "The database takes nothing at the moment.",
    504: "It took too long.",
    507: "The disk is full.",
}
_NAME = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
_NULLABLE_INT = {"type": ["integer", "null"]}
_SCHEMAS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "hint", "line", "column"],
                "properties": {
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                    "line": _NULLABLE_INT,
                    "column": _NULLABLE_INT,
                    "details": {"type": "object"},
                },
            }
        },
    },
    "Statement": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            "sql": {"type": "string", "minLength": 1},
            "params": {"type": ["array", "object", "null"]},
            "stale_ok": {"type": "boolean"},
            "timeout": {"type": "number", "minimum": 0},
        },
    },
    "Column": {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"name": {"type": "string"}, "type": {"type": "string"}},
    },
    "Result": {
        "type": "object",
        "required": ["columns", "rows", "status"],
        "properties": {
            "columns": {"type": "array", "items": {"$ref": "#/components/schemas/Column"}},
            "rows": {"type": "array", "items": {"type": "array"}},
            "status": {"type": "string"},
            "rowcount": {"type": "integer"},
            "lsn": {"type": "integer"},
            "catching_up": {"type": "array", "items": {"type": "string"}},
        },
    },
    "Inserted": {
        "type": "object",
        "required": ["rows"],
        "properties": {
            "rows": {"type": "integer"},
            "lsn": {"type": "integer"},
            "repeated": {"type": "boolean"},
        },
    },
    "Frames": {
        "type": "object",
        "required": ["token", "frames"],
        "properties": {
            "token": {"type": ["string", "null"]},
            "frames": {"type": "array", "items": {"type": "object", "required": ["type"]}},
        },
    },
    "Webhook": {
        "type": "object",
        "required": ["name", "sql", "url"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "sql": {"type": "string", "minLength": 1},
            "url": {"type": "string", "format": "uri"},
            "secret": {"type": "string"},
            "attempts": {"type": "integer", "minimum": 1, "maximum": 100},
            "max_rows": {"type": "integer", "minimum": 1, "maximum": 100_000},
        },
    },
    "Watermark": {
        "type": "object",
        "required": ["watermark"],
        "additionalProperties": False,
        "properties": {"watermark": {"type": ["string", "integer"]}},
    },
    "Object": {"type": "object"},
}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(name)}}


def _responses(ok: str, name: str, *errors: int) -> dict[str, Any]:
    """The answers of an endpoint: the one that is wanted, and errors."""
    found: dict[str, Any] = {"200": {"description": ok, "content": _content(name)}}
    for status in (401, 403, *errors):
        found[str(status)] = {"description": _ERRORS[status], "content": _content("Error")}
    return found


def _query(name: str, about: str, *, required: bool = False, **schema: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": name,
        "in": "query",
        "description": about,
        "required": required,
        "schema": schema or {"type": "string"},
    }


def _sql() -> dict[str, Any]:
    answers = _responses("The last one's result.", "Result", *_ERRORS)
    answers["200"]["content"][ARROW] = {"schema": {"type": "string"}}
    return {
        "summary": "Run statements",
        "requestBody": {"required": True, "content": _content("Statement")},
        "responses": answers,
    }


def _push() -> dict[str, Any]:
    return {
        "summary": "Add rows to a source or a table, all of them or none",
        "parameters": [
            {
                "name": "name",
                "in": "path",
                "required": True,
                "description": "The source or table.",
                "schema": _NAME,
            },
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "A retry with the same key adds nothing twice.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            },
            _query("replace", "Whether rows replace those of their key.", type="boolean"),
        ],
        "requestBody": {
            "required": True,
            "content": {each: {"schema": {}} for each in MEDIA_TYPES},
        },
        "responses": _responses("How many rows were added.", "Inserted", *_ERRORS),
    }


def _watermark() -> dict[str, Any]:
    body = _content("Watermark")
    name = {"name": "name", "in": "path", "required": True, "schema": _NAME}
    return {
        "summary": "Promise that no row that comes later is older than a time",
        "parameters": [name],
        "requestBody": {"required": True, "content": body},
        "responses": _responses("The newest LSN.", "Object", *_ERRORS),
    }


def _cause() -> dict[str, Any]:
    lsn = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    return {
        "summary": "What led to the change of a view at an LSN, by source and table",
        "parameters": [{"name": "lsn", "in": "path", "required": True, "schema": lsn}],
        "responses": _responses("Changes.", "Object", *_ERRORS, 410),
    }


def _following() -> list[dict[str, Any]]:
    """The parameters of those who follow a query."""
    return [
        _query("sql", "A SELECT.", required=True, type="string", minLength=1),
        _query("params", "The values of its parameters, as JSON."),
        _query("start", "now, earliest, snapshot, a token, an LSN or a time."),
        _query("backpressure", "What happens when the client is too slow."),
        _query("buffer_rows", "How many rows wait for it.", type="integer", minimum=1),
        _query("max_rows", "At most so many rows in a frame.", type="integer", minimum=1),
        _query("max_delay", "Seconds to wait for max_rows.", type="number", minimum=0),
    ]


def _subscribe() -> dict[str, Any]:
    answers = _responses("Frames, until the client leaves.", "Object", 400, 429, 503, 504)
    answers["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    last = {"name": "Last-Event-ID", "in": "header", "required": False}
    return {
        "summary": "The changes of a query, as Server-Sent Events",
        "parameters": [*_following(), last | {"schema": {"type": "string"}}],
        "responses": answers,
    }


def _poll() -> dict[str, Any]:
    seconds = _query("timeout", "Seconds to wait for a change.", type="number", minimum=0)
    return {
        "summary": "The changes of a query since a token",
        "parameters": [*_following(), seconds],
        "responses": _responses("Frames, and their last token.", "Frames", 400, 429, 503, 504),
    }


def _hook(summary: str, status: str = "200", *, named: bool = True) -> dict[str, Any]:
    errors = (400, 404, 409, 413, 415, 429, 503, 504)
    answers = _responses("Done.", "Object", *errors)
    answers[status] = answers.pop("200")
    name = {"name": "name", "in": "path", "required": True, "schema": _NAME}
    tenant = {"name": "tenant", "in": "query", "schema": {"type": "string"}}
    return {"summary": summary, "responses": answers} | (
        {"parameters": [name, tenant]} if named else {}
    )


def _webhooks() -> dict[str, Any]:
    body = {"required": True, "content": _content("Webhook")}
    added = _hook("Add a webhook; the answer has its secret", "201", named=False)
    return {
        "/v1/webhooks": {
            "get": _hook("The webhooks", named=False),
            "post": added | {"requestBody": body},
        },
        "/v1/webhooks/{name}": {"delete": _hook("Remove a webhook")},
        "/v1/webhooks/{name}/replay": {"post": _hook("Post its dead letters once more")},
    }


def _get(summary: str, *errors: int) -> dict[str, Any]:
    return {"summary": summary, "responses": _responses("It.", "Object", *errors)}


def paths() -> dict[str, Any]:
    """The endpoints."""
    metrics = _get("Counters, as Prometheus reads them", 429, 503, 504)
    metrics["responses"]["200"]["content"] = {MEDIA_TYPE: {"schema": {"type": "string"}}}
    return {
        "/v1/sql": {"post": _sql()},
        "/v1/sources/{name}": {"post": _push()},
        "/v1/sources/{name}/watermark": {"post": _watermark()},
        "/v1/subscribe": {"get": _subscribe()},
        "/v1/poll": {"get": _poll()},
        **_webhooks(),
        "/v1/catalog": {"get": _get("What exists", 429, 503, 504)},
        "/v1/topology": {"get": _get("What flows where", 429, 503, 504)},
        "/v1/cause/{lsn}": {"get": _cause()},
        "/metrics": {"get": metrics},
        "/health": {"get": _get("Whether the process is there") | {"security": []}},
        "/ready": {"get": _get("Whether it takes requests", 503) | {"security": []}},
        "/openapi.json": {"get": _get("This document") | {"security": []}},
    }


async def document(service: Service, _: Request) -> Response:
    """The document."""
    keyed: dict[str, Any] = {"security": [{"key": []}]} if service.settings.auth else {}
    return json_answer(
        {
            "openapi": "3.1.0",
            "info": {"title": "Millstream", "version": __version__},
            "paths": paths(),
            "components": {
                "schemas": _SCHEMAS,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            **keyed,
        }
    )

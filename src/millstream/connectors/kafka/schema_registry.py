"""The schema registry: schemas by id and by subject, over HTTP, each asked for once."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.http import http_url
from millstream.errors import ConnectorError, InvalidOptionError

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings

_SECONDS: Final = 10.0
_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class UnknownSchemaError(ConnectorError):
    """The registry does not have a schema."""

    code = "CONNECTOR_UNKNOWN_SCHEMA"


class SchemaRegistry:
    """A client of a registry that speaks as Confluent's does.

    Args:
        url: where it is; it may have a user and a password.
        user: of basic authentication.
        password: likewise.
    """

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        parts = http_url(url, "schema_registry")
        user = user or urllib.parse.unquote(parts.username or "")
        password = password or urllib.parse.unquote(parts.password or "")
        host = parts.netloc.rpartition("@")[2]
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if user:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        self._by_id: dict[int, Any] = {}

    @classmethod
    def of(cls, settings: Settings) -> SchemaRegistry:
        """The registry that the settings of a connector name."""
        if not settings["schema_registry"]:
            raise InvalidOptionError(
                "Avro needs a schema registry", hint="write schema_registry = 'http://host:8081'"
            )
        return cls(
            settings["schema_registry"],
            settings["schema_registry_user"],
            settings["schema_registry_password"],
        )

    def schema(self, number: int) -> Any:  # noqa: ANN401 - a schema of Avro
        """The schema with an id.

        Raises:
            UnknownSchemaError: there is none, or it is not of Avro.
            ConnectorError: the registry does not answer.
        """
        found = self._by_id.get(number)
        if found is None:
            found = _avro(self._ask("GET", f"/schemas/ids/{number}"))
            self._by_id[number] = found
        return found

    def latest(self, subject: str) -> Any:  # noqa: ANN401 - a schema of Avro
        """The newest schema of a subject; raises as ``schema``."""
        return _avro(self._ask("GET", f"/subjects/{_quoted(subject)}/versions/latest"))

    def register(self, subject: str, schema: Any) -> int:  # noqa: ANN401 - a schema of Avro
        """The id of a schema, which is added to its subject if it is new.

        Raises:
            ConnectorError: the registry does not answer, or the schema is not compatible.
        """
        found = self._ask(
            "POST", f"/subjects/{_quoted(subject)}/versions", {"schema": json.dumps(schema)}
        )
        return int(found["id"])

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url + path, data, self._headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refused(error, path) from None
        except (OSError, ValueError) as error:
            raise ConnectorError(
                f"the schema registry does not answer: {error}",
                hint="check schema_registry, and that it runs",
            ) from None


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _avro(answer: Any) -> Any:  # noqa: ANN401 - JSON
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UnknownSchemaError(f"the schema is of {kind}, not of Avro")
    if answer.get("references"):
        raise UnknownSchemaError("the schema refers to others, which is not supported")
    return json.loads(answer["schema"])


def _refused(error: urllib.error.HTTPError, path: str) -> ConnectorError:
    with error:
        try:
            reason = json.load(error)["message"]
        except (ValueError, KeyError, TypeError, OSError):
            reason = error.reason
    if error.code == 404:
        return UnknownSchemaError(f"the schema registry has no {path}: {reason}")
    hint = "check schema_registry_user and schema_registry_password"
    return ConnectorError(
        f"the schema registry refuses {path}: {error.code} {reason}",
        hint=hint if error.code in {401, 403} else "as the registry reports it",
    )

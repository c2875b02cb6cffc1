"""Tables of Delta Lake: how they are reached, and how a token is kept in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from millstream.connectors.registry import needs
from millstream.errors import ConnectorFailedError
from millstream.model.lsn import ResumeToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.connectors.contract import Settings

_S3: Final = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
    "endpoint": "AWS_ENDPOINT_URL",
}
_AZURE: Final = {
    "account": "AZURE_STORAGE_ACCOUNT_NAME",
    "access_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "endpoint": "AZURE_STORAGE_ENDPOINT",
}
_HALF: Final = 1 << 63
_WHOLE: Final = 1 << 64


def storage_options(settings: Settings) -> dict[str, str]:
    """The options of an object store, as the library names them."""
    url: str = settings["path"]
    names = _AZURE if url.startswith(("abfs", "az://")) else _S3
    made = {name: str(settings[ours]) for ours, name in names.items() if settings[ours] is not None}
    if made.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        made["AWS_ALLOW_HTTP"] = "true"
    if settings["anonymous"]:
        made["AWS_SKIP_SIGNATURE"] = "true"
    return made | settings.under("storage.")


def open_table(settings: Settings, version: int | None = None) -> Any:  # noqa: ANN401 - untyped
    """The table; None when there is none.

    Raises:
        MissingExtraError: deltalake is not installed.
        ConnectorFailedError: it cannot be read by this library.
    """
    delta = needs("deltalake", "delta")
    errors = needs("deltalake.exceptions", "delta")
    try:
        return delta.DeltaTable(
            settings["path"], version=version, storage_options=storage_options(settings) or None
        )
    except errors.TableNotFoundError:
        return None
    except errors.DeltaProtocolError as error:
        raise ConnectorFailedError(
            f"the table {settings['path']} cannot be read: {error}",
            hint="it uses features of Delta Lake that the library deltalake does not have",
        ) from error


# ---- tokens: as versions of transactions, which a table keeps when old commits are cleaned up


def token_versions(app: str, token: str) -> dict[str, int]:
    """A token as versions of application transactions, which are numbers.

    >>> token = str(ResumeToken(UUID(int=2**127 + 7), epoch=3, lsn=42))
    >>> versions = token_versions("s", token)
    >>> token_of("s", versions) == token
    True
    """
    parsed = ResumeToken.parse(token)
    high, low = divmod(parsed.database.int, _WHOLE)
    return {
        app: parsed.lsn,
        f"{app}.epoch": parsed.epoch,
        f"{app}.database.high": high - _HALF,
        f"{app}.database.low": low - _HALF,
    }


def token_of(app: str, versions: Mapping[str, int | None]) -> str | None:
    """The token that ``token_versions`` has made these of; None when there is none."""
    lsn, epoch = versions.get(app), versions.get(f"{app}.epoch")
    high, low = versions.get(f"{app}.database.high"), versions.get(f"{app}.database.low")
    if lsn is None or epoch is None or high is None or low is None:
        return None
    return str(ResumeToken(UUID(int=(high + _HALF) * _WHOLE + low + _HALF), epoch, lsn))


def stored_token(table: Any, app: str) -> str | None:  # noqa: ANN401 - a table of the library
    """The token that a table has of a sink."""
    names = (app, f"{app}.epoch", f"{app}.database.high", f"{app}.database.low")
    return token_of(app, {name: table.transaction_version(name) for name in names})

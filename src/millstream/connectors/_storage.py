"""What connectors of files and lakes share: the options of object stores, and of modes of sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option
from millstream.errors import ConnectorFailedError, InvalidOptionError
from millstream.files.place import Place, open_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from millstream.connectors.batches import SinkBatch
    from millstream.connectors.contract import Settings, SinkInput

ACCESS: Final = (
    Option("access_key", secret=True, help="of S3; of ABFS, the key of the account"),
    Option("secret_key", secret=True, help="of S3"),
    Option("session_token", secret=True, help="of S3"),
    Option("sas_token", secret=True, help="of ABFS"),
    Option("region", help="of S3"),
    Option("endpoint", help="the address of another server than the cloud's"),
    Option("account", help="of ABFS"),
    Option("anonymous", "bool", help="without credentials: S3 and GCS"),
)
"""How an object store is reached, for those who use Arrow's file systems."""

STORAGE: Final = Option(
    "storage.*", secret=True, help="options of the object store, as its library names them"
)


def place_of(settings: Settings, url: str) -> Place:
    """The place of a path or a URL, with the options of a connector.

    Raises:
        InvalidOptionError: an option that this store does not have.
        FileAccessError: it cannot be reached.
    """
    access: Mapping[str, Any] = {each.name: settings[each.name] for each in ACCESS}
    return open_place(url, access)


# ---- sinks


def check_mode(mode: str, source: SinkInput) -> None:
    """Raise if what a sink reads cannot be written in a mode.

    Raises:
        InvalidOptionError: rows disappear, or there is no key.
    """
    if mode == "append" and source.retracts:
        raise InvalidOptionError(
            f"rows of {source.relation} change or disappear, and mode 'append' only appends",
            hint="use mode = 'changelog', or 'upsert' where there is one",
        )
    if mode == "upsert" and not source.schema.key:
        raise InvalidOptionError(
            f"{source.relation} has no key, which mode 'upsert' needs",
            hint="use mode = 'append' or mode = 'changelog', or select the key",
        )


def default_mode(source: SinkInput) -> str:
    """The mode of a lake's sink that names none: the one that shows everything most plainly."""
    if not source.retracts:
        return "append"
    return "upsert" if source.schema.key else "changelog"


def appended(batch: SinkBatch, mode: str) -> pa.RecordBatch:
    """The rows of a batch for a store that only appends: as they are, or as a changelog."""
    if mode == "changelog":
        return batch.changes.to_arrow().replace_schema_metadata()
    if not batch.changes.is_insert_only:
        batch.inserted()  # raises if a row disappears
    return batch.changes.arrow.replace_schema_metadata()


def stored_schema(source: SinkInput, mode: str) -> pa.Schema:
    """The columns of what ``appended`` gives."""
    from millstream.model.batch import ChangeBatch  # noqa: PLC0415 - for its hidden columns

    empty = ChangeBatch(source.schema, [], None, None)
    found = empty.to_arrow() if mode == "changelog" else empty.arrow
    return found.schema.remove_metadata()


def check_not_again(*, has_token: bool, what: str) -> None:
    """Raise when a sink that appends is to begin anew, though it has stored rows before.

    Raises:
        ConnectorFailedError: it would store rows twice.
    """
    if has_token:
        raise ConnectorFailedError(
            f"the changes after what {what} has are no longer in the log, and appending all rows "
            "anew would store them twice",
            hint="DROP the sink, empty what it has written, and create it again; "
            "or use mode = 'upsert', which replaces",
        )

"""Tables of Iceberg: their catalogs and what both sides need of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.contract import Option
from millstream.connectors.registry import needs
from millstream.errors import ConnectorFailedError

if TYPE_CHECKING:
    from millstream.connectors.contract import Settings

CATALOG: Final = (
    Option("table", required=True, help="namespace.name"),
    Option("catalog", default="default", help="its name in PyIceberg's configuration"),
    Option("catalog.type", embedded=True, help="its kind: rest, sql, hive, glue, ..."),
    Option("catalog.uri", embedded=True, help="its address"),
    Option("catalog.warehouse", embedded=True, help="where its tables are"),
    Option(
        "catalog.*", secret=True, embedded=True, help="its other properties, such as catalog.token"
    ),
)


def open_catalog(settings: Settings) -> Any:  # noqa: ANN401 - of the library
    """The catalog.

    Raises:
        MissingExtraError: pyiceberg is not installed.
        ConnectorFailedError: its properties are wrong, or name code to run.
    """
    if "." not in settings["table"]:
        raise ConnectorFailedError(
            f"the table {settings['table']!r} has no namespace", hint="write namespace.name"
        )
    given = settings.under("catalog.")
    for name in given:
        if name.lower().endswith("impl"):
            raise ConnectorFailedError(
                f"catalog.{name} would run code that the statement names",
                hint="write it in ~/.pyiceberg.yaml, and name that catalog",
            )
    library = needs("pyiceberg.catalog", "iceberg")
    properties = {name: str(value) for name, value in given.items() if value is not None}
    try:
        return library.load_catalog(settings["catalog"], **properties)
    except ValueError as error:
        raise ConnectorFailedError(
            f"the catalog {settings['catalog']!r} cannot be used: {error}",
            hint="write catalog.type, catalog.uri and catalog.warehouse, or see ~/.pyiceberg.yaml",
        ) from error


def find_table(catalog: Any, name: str) -> Any:  # noqa: ANN401 - of the library
    """A table; None when there is none."""
    errors = needs("pyiceberg.exceptions", "iceberg")
    try:
        return catalog.load_table(name)
    except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
        return None

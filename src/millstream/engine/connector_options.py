"""The options of a statement with a connector: whose they are, and whether they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.catalog.options import names_of
from millstream.connectors.options import OptionProblemError, Scrubber, check_options
from millstream.connectors.supervisor import describe
from millstream.errors import (
    ConnectorError,
    Error,
    ObjectNotFoundError,
    SqlOptionError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.catalog import Connection
    from millstream.catalog.connection import OptionValue
    from millstream.connectors.contract import Option
    from millstream.sql import CreateSink, CreateSource, CreateTable
    from millstream.sql import Option as GivenOption


def kind_of(statement: CreateSource | CreateTable) -> str:
    """Source or table."""
    return "source" if hasattr(statement, "watermark") else "table"


def connector_of(statement: CreateSource | CreateTable | CreateSink) -> str:
    """The name of the connector that a statement asks for."""
    option = statement.options.get("connector")
    if option is None:
        raise SqlOptionError(
            "a sink needs a connector",
            sql=statement.sql,
            line=statement.line,
            column=statement.column,
            hint="write WITH (connector = '...', ...)",
        )
    return str(option.value)


def split(
    statement: CreateSource | CreateTable | CreateSink, kind: str
) -> tuple[dict[str, GivenOption], dict[str, OptionValue]]:
    """The options of the relation itself, and the values of those of its connector."""
    known = () if kind == "sink" else names_of(kind)
    own = {name: each for name, each in statement.options.items() if name in known}
    given = {
        name: each.value
        for name, each in statement.options.items()
        if name not in known and name != "connector"
    }
    return own, given


def checked(
    statement: CreateSource | CreateTable | CreateSink,
    given: Mapping[str, OptionValue],
    known: tuple[Option, ...],
) -> tuple[str, ...]:
    """The names of the secret options among those that were given, all checked."""
    try:
        return check_options(given, known)
    except OptionProblemError as problem:
        raise refused(
            statement, problem.name, problem.message, problem.hint, at_name=problem.about_name
        ) from None


def refused(
    statement: CreateSource | CreateTable | CreateSink,
    name: str,
    message: str,
    hint: str,
    *,
    at_name: bool = False,
) -> SqlOptionError:
    """The error at an option, or at its name; at the connector if it was not given."""
    option = statement.options.get(name) or statement.options["connector"]
    line, column = option.name_at if at_name else (option.line, option.column)
    return SqlOptionError(message, sql=statement.sql, line=line, column=column, hint=hint)


class located:  # noqa: N801 - a context manager, used as a function
    """Raises what a registry does not find as an error at its option."""

    def __init__(self, statement: CreateSource | CreateTable | CreateSink) -> None:
        self._statement = statement

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ObjectNotFoundError):
            raise refused(self._statement, "connector", error.message, error.hint) from None


def asked(connection: Connection, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it gives
    """What a connector answers; what it raises, without secrets, as an error of ours."""
    scrub = Scrubber(connection.options, connection.secrets)
    try:
        return ask()
    except Error as error:
        clean = error.again()
        clean.message, clean.hint = scrub(error.message), scrub(error.hint)
        clean.args = (clean.message,)
        clean.__cause__ = None
    except Exception as error:  # noqa: BLE001 - drivers raise anything
        clean = ConnectorError(
            f"the connector {connection.connector!r} cannot be opened: {scrub(describe(error))}",
            hint="see that the system outside runs and can be reached, and check the options",
        )
    raise clean  # here, where it has no context: that of a driver may hold secrets

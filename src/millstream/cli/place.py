"""What a command works on: a directory, a temporary database, or a server's address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

import millstream
from millstream.errors import InvalidOptionError

if TYPE_CHECKING:
    from millstream import Database

DIRECTORY: Final = "MILLSTREAM_DIR"

Place = Annotated[
    str | None,
    typer.Argument(metavar="[DIR|URL]", help="The database; without, a temporary one."),
]
RequiredPlace = Annotated[
    str | None,
    typer.Argument(metavar="DIR|URL", help="The database.", envvar=DIRECTORY),
]
Key = Annotated[
    str | None, typer.Option("--key", help="The API key, for a URL.", envvar="MILLSTREAM_KEY")
]


def open_place(place: str | None, key: str | None = None) -> Database:
    """Open a directory, or connect to a server's address.

    Raises:
        InvalidOptionError: a key without a URL.
        DisconnectedError: the server cannot be reached.
    """
    if place is not None and "://" in place:
        # A client has those methods of a database that the commands call.
        return cast("Database", millstream.connect(place, key=key))
    if key is not None:
        raise InvalidOptionError(
            "--key is for the URL of a server", hint="a directory needs no key: leave it out"
        )
    return millstream.open(place)


def required(place: str | None) -> str:
    """The place, which must be given: a temporary database has nothing that could be read.

    Raises:
        InvalidOptionError: it was not.
    """
    if place is None:
        raise InvalidOptionError(
            "no database is given", hint=f"name its directory or URL, or set {DIRECTORY}"
        )
    return place

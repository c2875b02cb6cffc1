"""``millstream keys``: create, list and revoke the API keys of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from millstream.server.keys import Keys

Role = Literal["read", "write", "admin"]

app = typer.Typer(
    help="API keys of a server: who may use it, as which tenant, in which role.",
    no_args_is_help=True,
)
Place = Annotated[
    Path, typer.Argument(help="The database's directory, or a .json file of keys.", metavar="DIR")
]


def _keys(place: Path) -> Keys:
    from millstream.server.keys import Keys  # noqa: PLC0415 - --help loads no Arrow

    return Keys(place)


@app.command()
def create(
    directory: Place,
    name: Annotated[str, typer.Argument(help="A name for it; PostgreSQL's user name.")],
    role: Annotated[Role, typer.Option(help="What it may do.")] = "read",
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's rows.")] = None,
) -> None:
    """Make a key and print it. It is shown this once, and stored hashed."""
    secret = _keys(directory).create(name, role=role, tenant=tenant)
    typer.echo(secret)


@app.command("list")
def show(directory: Place) -> None:
    """List the keys: name, role, tenant, when it was made. The keys themselves are not stored."""
    for key in _keys(directory):
        typer.echo(f"{key.name}\t{key.role}\t{key.tenant or '-'}\t{key.created}")


@app.command()
def revoke(directory: Place, name: Annotated[str, typer.Argument(help="The key's name.")]) -> None:
    """Remove a key; a running server refuses it from now on."""
    _keys(directory).revoke(name)
    typer.echo(f"revoked {name}")

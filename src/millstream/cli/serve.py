"""``millstream serve``: a database for other processes."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

import millstream
from millstream.errors import MissingExtraError
from millstream.server.addresses import parse_networks
from millstream.server.settings import Limits, Settings, parse_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from millstream import Database
    from millstream.server.run import Server

_SWITCH_SECONDS = 0.0005
"""Threads that take in rows wait less for the one that sends to clients; Python's own is ten times
this."""


def serve(  # noqa: PLR0917 - Typer makes options of them
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="The database; without, a temporary one."),
    ] = None,
    http: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:8080",
    pg: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also serve PostgreSQL's protocol."),
    ] = None,
    auth: Annotated[bool, typer.Option("--auth", help="Ask for keys: millstream keys.")] = False,
    keys: Annotated[
        Path | None, typer.Option(help="The file of keys; else keys.json in DIR.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without keys.")
    ] = False,
    origin: Annotated[
        list[str] | None, typer.Option(help="A site whose pages may use it; may be repeated.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="Another name of this machine; may be repeated.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate: then it is TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, if in another file.")] = None,
    files_dir: Annotated[
        list[Path] | None,
        typer.Option(help="A directory whose files COPY may name; may be repeated."),
    ] = None,
    webhook_network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK",
            help="Addresses that webhooks of tenants may reach besides public ones; repeatable.",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = Limits.body_bytes,
    max_connections: Annotated[int, typer.Option()] = Limits.connections,
    max_subscriptions: Annotated[
        int, typer.Option(help="Of one key.")
    ] = Limits.subscriptions_per_key,
    query_timeout: Annotated[float, typer.Option(help="Seconds.")] = Limits.query_seconds,
    workers: Annotated[int, typer.Option(help="Threads that run SQL.")] = Limits.workers,
) -> None:
    """Serve a database over HTTP, Server-Sent Events, WebSocket and PostgreSQL's protocol.

    On this machine only, and without keys, unless told otherwise. Ends with Ctrl-C.

    Examples:
        millstream serve market.db --http 127.0.0.1:8080 --pg 127.0.0.1:5432
        millstream serve market.db --http 0.0.0.0:8080 --auth --tls-cert server.pem
    """
    settings = Settings(
        http=parse_address(http),
        postgres=None if pg is None else parse_address(pg),
        auth=auth,
        insecure=insecure,
        origins=tuple(origin or ()),
        hosts=tuple(host or ()),
        certificate=tls_cert,
        private_key=tls_key,
        directories=tuple(files_dir or ()),
        webhook_networks=parse_networks(webhook_network or ()),
        limits=Limits(
            body_bytes=max_body,
            connections=max_connections,
            subscriptions_per_key=max_subscriptions,
            query_seconds=query_timeout,
            workers=workers,
        ),
    )
    from millstream.server.keys import Keys  # noqa: PLC0415 - --help loads no Arrow

    run = server_module()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with millstream.open(directory) as database:
        found = Keys(keys or database.path)
        server = run.Server(database, settings, found)
        server.run(lambda ready: _announce(ready, database.path), last=database.close)


@contextlib.contextmanager
def served(
    database: Database, settings: Settings, failed: Callable[[BaseException], None]
) -> Iterator[str]:
    """Serve a database from a thread of its own; gives the addresses.

    Args:
        database: it.
        settings: how; keys are those in the database's directory.
        failed: called with what ends it early.
    """
    from millstream.server.keys import Keys  # noqa: PLC0415 - --help loads no Arrow

    server = server_module().Server(database, settings, Keys(database.path))
    ready = threading.Event()

    def run() -> None:
        try:
            server.run(lambda _: ready.set())
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            failed(error)
        finally:
            ready.set()

    sys.setswitchinterval(_SWITCH_SECONDS)
    thread = threading.Thread(target=run, name="millstream-serve")
    thread.start()
    try:
        ready.wait()
        yield _addresses(server)
    finally:
        server.stop()
        thread.join()


def _addresses(server: Server) -> str:
    return " ".join(filter(None, (server.http, server.postgres)))


def _announce(server: Server, path: Path) -> None:
    typer.echo(f"millstream serves {path} at {_addresses(server)}")


def server_module() -> ModuleType:
    """``millstream.server.run``, which is loaded only when something is served.

    Raises:
        MissingExtraError: what it needs is not installed.
    """
    try:
        return importlib.import_module("millstream.server.run")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("millstream"):
            raise
        raise MissingExtraError(
            f"{error.name} is not installed", hint="pip install 'millstream[server]'"
        ) from error

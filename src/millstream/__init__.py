"""Millstream: a streaming database that you pip install.

The public names live here and are imported when first used, so that ``import millstream`` loads
neither Arrow nor Spark nor the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from millstream import errors as errors
    from millstream.client import Client as Client
    from millstream.database import Database as Database
    from millstream.engine.prepare import Prepared as Prepared
    from millstream.engine.session import Session as Session
    from millstream.errors import Error as Error
    from millstream.log import Log as Log
    from millstream.log import Retention as Retention
    from millstream.model import Change as Change
    from millstream.model import ChangeBatch as ChangeBatch
    from millstream.model import Column as Column
    from millstream.model import Schema as Schema
    from millstream.model import Unreadable as Unreadable
    from millstream.model.cut import Cut as Cut
    from millstream.model.result import Result as Result
    from millstream.sources import Source as Source
    from millstream.subscriptions import Ack as Ack
    from millstream.subscriptions import AsyncCutSubscription as AsyncCutSubscription
    from millstream.subscriptions import AsyncSubscription as AsyncSubscription
    from millstream.subscriptions import Backpressure as Backpressure
    from millstream.subscriptions import CallbackSubscription as CallbackSubscription
    from millstream.subscriptions import ChangeEvent as ChangeEvent
    from millstream.subscriptions import CutSubscription as CutSubscription
    from millstream.subscriptions import InlineSubscription as InlineSubscription
    from millstream.subscriptions import Notification as Notification
    from millstream.subscriptions import Sample as Sample
    from millstream.subscriptions import Start as Start
    from millstream.subscriptions import Subscription as Subscription

__version__ = "0.1.0.dev0"

_HOMES = {
    "Ack": "millstream.subscriptions",
    "AsyncCutSubscription": "millstream.subscriptions",
    "AsyncSubscription": "millstream.subscriptions",
    "Backpressure": "millstream.subscriptions",
    "CallbackSubscription": "millstream.subscriptions",
    "Change": "millstream.model",
    "ChangeBatch": "millstream.model",
    "ChangeEvent": "millstream.subscriptions",
    "Client": "millstream.client",
    "Column": "millstream.model",
    "Cut": "millstream.model.cut",
    "CutSubscription": "millstream.subscriptions",
    "Database": "millstream.database",
    "Error": "millstream.errors",
    "InlineSubscription": "millstream.subscriptions",
    "Log": "millstream.log",
    "Notification": "millstream.subscriptions",
    "Prepared": "millstream.engine.prepare",
    "Result": "millstream.model.result",
    "Retention": "millstream.log",
    "Sample": "millstream.subscriptions",
    "Schema": "millstream.model",
    "Session": "millstream.engine.session",
    "Source": "millstream.sources",
    "Start": "millstream.subscriptions",
    "Subscription": "millstream.subscriptions",
    "Unreadable": "millstream.model",
}

__all__ = [
    "Ack",
    "AsyncCutSubscription",
    "AsyncSubscription",
    "Backpressure",
    "CallbackSubscription",
    "Change",
    "ChangeBatch",
    "ChangeEvent",
    "Client",
    "Column",
    "Cut",
    "CutSubscription",
    "Database",
    "Error",
    "InlineSubscription",
    "Log",
    "Notification",
    "Prepared",
    "Result",
    "Retention",
    "Sample",
    "Schema",
    "Session",
    "Source",
    "Start",
    "Subscription",
    "Unreadable",
    "__version__",
    "connect",
    "errors",
    "open",
]


def open(  # noqa: A001
    path: str | Path | None = None,
    *,
    sync_interval: float = 0.01,
    retention_interval: float = 60.0,
    segment_bytes: int = 64 << 20,
    ddl_timeout: float = 30.0,
    repair: bool = False,
    spark: Any = None,  # noqa: ANN401 - a SparkSession; pyspark is imported with the first view
    master: str | None = None,
    spark_options: Mapping[str, str] | None = None,
) -> Database:
    """Open a database in a directory, which is created if it does not exist.

    Without a path, the database is temporary.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")

    Args:
        path: the directory; None: a temporary one.
        sync_interval: maximum number of seconds between writing async rows and syncing them to
            disk.
        retention_interval: seconds between two rounds of retention.
        segment_bytes: size at which the log starts a new file.
        ddl_timeout: seconds that CREATE, DROP and ALTER wait for one another.
        repair: open the database although files of the log are missing or wrong. Readers of the
            lost rows get a damage report. Without ``repair``, LogFilesError is raised.
        spark: your own SparkSession for views; None: the first view starts one.
        master: the Spark master of that session; None: embedded in this process.
        spark_options: further options, as for ``SparkSession.builder.config``.
    """
    from millstream.database import Database  # noqa: PLC0415 - importing the package loads no Arrow

    return Database(
        path,
        sync_interval=sync_interval,
        retention_interval=retention_interval,
        segment_bytes=segment_bytes,
        ddl_timeout=ddl_timeout,
        repair=repair,
        spark=spark,
        master=master,
        spark_options=spark_options,
    )


def connect(url: str, *, key: str | None = None, timeout: float = 10.0) -> Client:
    """Connect to a server that ``millstream serve`` runs. A client has the methods of a database.

    Args:
        url: the server's address, such as ``"http://127.0.0.1:8080"``.
        key: an API key, for a server with ``--auth``.
        timeout: seconds for which a call is retried while the server cannot be reached.

    Raises:
        DisconnectedError: the server cannot be reached.
        AuthenticationError: the key is missing or wrong.
        MissingExtraError: httpx or websockets is not installed.
    """
    from millstream.client import Client  # noqa: PLC0415 - importing the package loads no Arrow

    return Client(url, key=key, timeout=timeout)


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("millstream.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'millstream' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

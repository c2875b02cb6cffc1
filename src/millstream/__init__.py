"""Millstream: a streaming database that you pip install.

The public names live here and are imported when first used, so that ``import millstream`` loads
neither Arrow nor Spark nor the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from millstream import errors as errors
    from millstream.database import Database as Database
    from millstream.errors import Error as Error
    from millstream.log import Log as Log
    from millstream.log import Retention as Retention
    from millstream.model import Change as Change
    from millstream.model import ChangeBatch as ChangeBatch
    from millstream.model import Column as Column
    from millstream.model import Schema as Schema
    from millstream.model.result import Result as Result
    from millstream.sources import Source as Source
    from millstream.subscriptions import AsyncSubscription as AsyncSubscription
    from millstream.subscriptions import ChangeEvent as ChangeEvent
    from millstream.subscriptions import Notification as Notification
    from millstream.subscriptions import Subscription as Subscription

__version__ = "0.1.0.dev0"

_HOMES = {
    "AsyncSubscription": "millstream.subscriptions",
    "Change": "millstream.model",
    "ChangeBatch": "millstream.model",
    "ChangeEvent": "millstream.subscriptions",
    "Column": "millstream.model",
    "Database": "millstream.database",
    "Error": "millstream.errors",
    "Log": "millstream.log",
    "Notification": "millstream.subscriptions",
    "Result": "millstream.model.result",
    "Retention": "millstream.log",
    "Schema": "millstream.model",
    "Source": "millstream.sources",
    "Subscription": "millstream.subscriptions",
}

__all__ = [
    "AsyncSubscription",
    "Change",
    "ChangeBatch",
    "ChangeEvent",
    "Column",
    "Database",
    "Error",
    "Log",
    "Notification",
    "Result",
    "Retention",
    "Schema",
    "Source",
    "Subscription",
    "__version__",
    "connect",
    "errors",
    "open",
]


def open(path: str | Path | None = None, **options: Any) -> Database:  # noqa: A001, ANN401
    """Open a database: a directory, made when it is not there; without a path, a temporary one.

    Options are those of ``Database``.

    >>> import millstream as ms
    >>> with ms.open() as db:
    ...     _ = db.execute("CREATE SOURCE trades (symbol VARCHAR, price DOUBLE)")
    """
    from millstream.database import Database  # noqa: PLC0415 - importing the package loads no Arrow

    return Database(path, **options)


connect = open


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
    return sorted({*globals(), *_HOMES})

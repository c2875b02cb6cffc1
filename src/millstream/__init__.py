"""Millstream: a streaming database that you pip install.

The public names live here and are imported when first used, so that ``import millstream`` loads
neither Arrow nor Spark nor the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream import errors as errors
    from millstream.errors import Error as Error
    from millstream.log import Log as Log
    from millstream.log import Retention as Retention
    from millstream.model import Change as Change
    from millstream.model import ChangeBatch as ChangeBatch
    from millstream.model import Column as Column
    from millstream.model import Schema as Schema

__version__ = "0.1.0.dev0"

_HOMES = {
    "Change": "millstream.model",
    "ChangeBatch": "millstream.model",
    "Column": "millstream.model",
    "Error": "millstream.errors",
    "Log": "millstream.log",
    "Retention": "millstream.log",
    "Schema": "millstream.model",
}

__all__ = [
    "Change",
    "ChangeBatch",
    "Column",
    "Error",
    "Log",
    "Retention",
    "Schema",
    "__version__",
    "errors",
]


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

"""What exists: sources, tables, views and sinks, durable and versioned.

Takes: definitions that a statement has made.
Gives: the definition of a name, and the statement that would make it again.
Never knows: rows, producers, subscribers.
"""

from millstream.catalog.catalog import (
    LEAST_HISTORY,
    SYSTEM,
    Catalog,
    Definition,
    Kind,
    SinkDefinition,
)
from millstream.catalog.connection import Connection
from millstream.catalog.ddl_lock import DDL_SECONDS, DdlLock
from millstream.catalog.options import Options, options_of

__all__ = [
    "DDL_SECONDS",
    "LEAST_HISTORY",
    "SYSTEM",
    "Catalog",
    "Connection",
    "DdlLock",
    "Definition",
    "Kind",
    "Options",
    "SinkDefinition",
    "options_of",
]

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
from millstream.catalog.options import Options, options_of

__all__ = [
    "LEAST_HISTORY",
    "SYSTEM",
    "Catalog",
    "Connection",
    "Definition",
    "Kind",
    "Options",
    "SinkDefinition",
    "options_of",
]

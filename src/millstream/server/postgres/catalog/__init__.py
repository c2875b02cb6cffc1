"""``pg_catalog`` and ``information_schema``: what exists, as PostgreSQL's clients ask for it.

Takes: queries in PostgreSQL's dialect, and the definitions that a session may see.
Gives: their rows, from relations that are made of the definitions, in a DuckDB of its own.
Never knows: the rows of sources, tables and views.
"""

from millstream.server.postgres.catalog.answering import (
    CatalogQueries,
    calls_catalog,
    calls_spark,
    cast_types,
    reads_catalog,
    reads_nothing,
)

__all__ = [
    "CatalogQueries",
    "calls_catalog",
    "calls_spark",
    "cast_types",
    "reads_catalog",
    "reads_nothing",
]

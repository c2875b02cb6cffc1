"""PostgreSQL's wire protocol, version 3: psql, psycopg, SQLAlchemy, Grafana.

Takes: bytes of clients, an open database.
Gives: its rows in PostgreSQL's types and formats; errors with SQLSTATE, position and hint.
Never knows: how statements run; what it does not do itself, a ``Session`` does.
"""

from millstream.server.postgres.server import Limits, PostgresServer, serve_postgres

__all__ = ["Limits", "PostgresServer", "serve_postgres"]

"""The client: a database that another process serves, with the methods of one that is opened here.

Takes: the address of a server, a key, SQL, rows.
Gives: results, subscriptions and sources, which go on by themselves after the server was away.
Never knows: the engine, the log, Spark. All goes over HTTP and one WebSocket.
"""

from millstream.client.client import Client

__all__ = ["Client"]

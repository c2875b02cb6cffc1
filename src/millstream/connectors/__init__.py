"""Connectors: rows from systems outside into the log, and changes out to them.

Takes: deliveries of source connectors; batches of a sink's subscription.
Gives: the contract that a connector is written against, its registry, and the thread that runs one:
retries, rates, states.
Never knows: statements, sessions, how a commit is made; the engine passes that in.
"""

from millstream.connectors.batches import NetChanges, SinkBatch
from millstream.connectors.contract import (
    Delivery,
    Option,
    Rejected,
    Settings,
    SinkConnector,
    SinkInput,
    SinkWriter,
    SourceConnector,
    SourceEnd,
    SourceReader,
    Target,
)
from millstream.connectors.registry import needs, register, unregister
from millstream.errors import ConnectorError, ConnectorFailedError
from millstream.model.row_change import TRUNCATE, UNCHANGED, RowChange, delete, upsert
from millstream.model.schema import Column, Schema

__all__ = [
    "TRUNCATE",
    "UNCHANGED",
    "Column",
    "ConnectorError",
    "ConnectorFailedError",
    "Delivery",
    "NetChanges",
    "Option",
    "Rejected",
    "RowChange",
    "Schema",
    "Settings",
    "SinkBatch",
    "SinkConnector",
    "SinkInput",
    "SinkWriter",
    "SourceConnector",
    "SourceEnd",
    "SourceReader",
    "Target",
    "delete",
    "needs",
    "register",
    "unregister",
    "upsert",
]

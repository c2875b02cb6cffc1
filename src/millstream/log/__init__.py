"""The durable log: one LSN order, many topics, in segments of checked frames.

Takes: batches of weighted rows, alone or as transactions over several topics.
Gives: LSNs, durability, and readers that start anywhere and follow the end without polling.
Never knows: SQL, Spark, subscribers; what a row means.
"""

from millstream.log.appending import Transaction
from millstream.log.log import Log
from millstream.log.reader import Reader
from millstream.log.recovery import Damage, Recovery
from millstream.log.retention import Hold, Retained
from millstream.log.topics import Retention, Topic, schema_from_text, schema_text

__all__ = [
    "Damage",
    "Hold",
    "Log",
    "Reader",
    "Recovery",
    "Retained",
    "Retention",
    "Topic",
    "Transaction",
    "schema_from_text",
    "schema_text",
]

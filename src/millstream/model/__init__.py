"""What travels: schemas, batches of changes, LSNs, resume tokens, watermarks, the clock.

Takes: values of the user, as Python rows or as Arrow.
Gives: checked, typed, immutable things that every other package passes on.
Never knows: disks, threads, sockets, SQL text, Spark.
"""

from millstream.model.arrow_values import Unreadable
from millstream.model.batch import ChangeBatch
from millstream.model.change import Change, Gap
from millstream.model.clock import Clock, ManualClock, MonotonicWatermark, system_clock
from millstream.model.lsn import FIRST_LSN, NO_LSN, ResumeToken
from millstream.model.schema import Column, Schema
from millstream.model.types import SqlType, parse_type

__all__ = [
    "FIRST_LSN",
    "NO_LSN",
    "Change",
    "ChangeBatch",
    "Clock",
    "Column",
    "Gap",
    "ManualClock",
    "MonotonicWatermark",
    "ResumeToken",
    "Schema",
    "SqlType",
    "Unreadable",
    "parse_type",
    "system_clock",
]

"""For tests of programs that use Millstream, and for its own.

``databases``: a database that is gone afterwards, a clock that tests move, waiting on conditions
instead of on the time, a subscriber's copy of a result. ``connectors``: a harness for authors of
connectors; ``scenarios`` are what they tell it, ``kills`` its kills under load. ``child``: a
database in a process of its own, to be killed.
"""

from millstream.testing.databases import (
    TIMEOUT,
    Background,
    ManualClock,
    Mirror,
    database,
    engine_of,
    inbox_of,
    inlet_of,
    paused,
    wait_until,
    writer_of,
)

__all__ = [
    "TIMEOUT",
    "Background",
    "ManualClock",
    "Mirror",
    "database",
    "engine_of",
    "inbox_of",
    "inlet_of",
    "paused",
    "wait_until",
    "writer_of",
]

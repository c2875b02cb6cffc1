"""What planners are given: the logs that a query reads, as the catalog knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from millstream.model.schema import Schema

if TYPE_CHECKING:
    from millstream.sql.statements.statement import CreateView


@dataclass(frozen=True, slots=True)
class Input:
    """What a planner knows of a log that a query reads.

    Attributes:
        name: the log, as the catalog writes it.
        kind: what writes it: a "source", a "table", a "view" or a "stream".
        schema: its columns.
        retracts: whether it retracts: rows of it may be updated or deleted.
        event_time: the column that its watermark follows, or None.
        view: of a view whose rows are those of its query at each LSN, the statement that created
            it: a query that reads others beside it can read what the view reads instead, and shows
            no state in which one is ahead of the other.
    """

    name: str
    kind: Literal["source", "table", "view", "stream"]
    schema: Schema
    retracts: bool = False
    event_time: str | None = None
    view: CreateView | None = None


CLOCK: Final = "__clock"
"""The log of the clock: the time that NOW() has in views, one row for each tick."""

CLOCK_COLUMN: Final = "__now"
CLOCK_INPUT: Final = Input(
    CLOCK, "source", Schema.of(**{CLOCK_COLUMN: "TIMESTAMP NOT NULL"}), retracts=True
)
"""Only its newest row counts, so a view begins with what it has, as with the rows of a table."""

TICKS: Final = Input(CLOCK, "source", CLOCK_INPUT.schema)
"""The clock's log for a view that waits for its ticks, and reads none of its rows."""

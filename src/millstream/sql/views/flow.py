"""Flows: rows on their way from the feed, before and after they are grouped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.plan import FEED
from millstream.sql.views.trees import both, column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.model.types import SqlType
    from millstream.sql.views.plan import Window

Columns = tuple[tuple[str, exp.Expr], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a column of a ground comes from.

    Attributes:
        type: its type; None when only Spark knows.
        of: for each input by its index, the input's column that it is, as it stands.
        is_time: whether it is the event time of all these inputs.
    """

    type: SqlType | None = None
    of: Mapping[int, str] = field(default_factory=dict)
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Ground:
    """What a flow's expressions are over: the feed itself, or a query over it.

    Attributes:
        source: what follows FROM.
        origins: what is known of its columns, by name.
        time: its column with the event time, by which FIRST and LAST go; None when there is none.
        is_feed: whether it is the feed itself.
        retracts: whether its rows may disappear.
        row_lsn: its column with the place of a row in the log, the same when the row comes and when
            it is taken back; None when there is none.
    """

    source: exp.Expr
    origins: Mapping[str, Origin]
    time: str | None = None
    is_feed: bool = True
    retracts: bool = False
    row_lsn: str | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """What a ground is if its rows are groups.

    Attributes:
        keys: the ground's columns that are the keys, without the window.
        start: the start of the window, over the ground's columns; None without a window.
        end: its end.
        window: the window.
        weight: the ground's column with the number of rows in the group, if that may become 0.
        hash: the hash of all keys.
        sessions: the array of sessions, over the ground's columns; the flow's columns are then
            over one session, ``_s``.
        fixed: whether a group never changes once it is there.
        timed: whether the window is over the event time, which the watermark follows.
        frees: whether a group gets no more rows once its window has closed.
    """

    keys: tuple[str, ...]
    start: exp.Expr | None
    end: exp.Expr | None
    window: Window | None
    weight: str | None
    hash: exp.Expr
    sessions: exp.Expr | None = None
    fixed: bool = False
    timed: bool = False
    frees: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """A query that is understood: columns and conditions over a ground.

    Attributes:
        ground: what the expressions are over.
        columns: names and expressions, in order.
        where: which rows are kept; of groups: which are shown.
        log: the index of the one log that it reads, when its ground is the feed itself.
        groups: what its rows stand for, when they are groups.
    """

    ground: Ground
    columns: Columns
    where: exp.Expr | None = None
    log: int = 0
    groups: Groups | None = None

    def filtered(self, condition: exp.Expr | None) -> Flow:
        """Return the flow of the rows for which a condition holds, too."""
        return replace(self, where=both([self.where, condition]))


def feed_name(log: int, name: str, inputs: int) -> str:
    """Return how the feed calls a column of one of its inputs.

    >>> feed_name(0, "price", 1), feed_name(1, "price", 2)
    ('price', '_1_price')
    """
    return name if inputs == 1 else f"_{log}_{name}"


def feed_table() -> exp.Expr:
    """Return the feed as what a query reads from."""
    return exp.Table(this=exp.to_identifier(FEED))


LSN, WEIGHT, WATERMARK = column("_lsn"), column("_weight"), column("_wm")

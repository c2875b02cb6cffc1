"""What a view is, once its SQL is understood: what it reads, what Spark runs, what comes out.

Pure values. Types of the result are not here: Spark finds them when it sees ``spark_sql``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.sql.inputs import CLOCK

WindowKind = Literal["tumble", "hop", "session", "cumulate"]
_LOG, _DATED = "__log", "__dated"


def log_relation(log: int) -> str:
    """The relation that is one of the inputs."""
    return f"{_LOG}{log}"


def dated_relation(log: int) -> str:
    """The relation that is one of the inputs with the columns ``_row_lsn`` and ``_wm`` besides."""
    return f"{_DATED}{log}"


def is_relation(name: str) -> bool:
    """Whether a name in ``ViewPlan.spark_sql`` is that of an input.

    >>> is_relation("__log12"), is_relation("__dated0"), is_relation("orders")
    (True, True, False)
    """
    prefix = _DATED if name.startswith(_DATED) else _LOG
    return name.startswith(prefix) and name.removeprefix(prefix).isdecimal()


@dataclass(frozen=True, slots=True)
class Window:
    """A window over event time, in microseconds.

    Attributes:
        kind: how windows follow each other.
        column: what it is over, as it is written.
        size: how long a window is; of a session, the gap that ends it.
        slide: from one start to the next; of CUMULATE, the step; of TUMBLE, the size.
        offset: where windows begin, counted from 1970 UTC.
    """

    kind: WindowKind
    column: str
    size: int
    slide: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """EMIT other than CHANGES: what rows wait for before they leave the dataflow.

    Attributes:
        every: that a multiple of so many microseconds passes by the clock; None: that the watermark
            passes the end of their window.
        lateness: for how many microseconds more.
    """

    every: int | None = None
    lateness: int = 0


@dataclass(frozen=True, slots=True)
class SortKey:
    """One item of ORDER BY.

    Attributes:
        column: the name or the place of a column of the result.
        descending: whether the largest value comes first.
        nulls_first: whether NULL comes before all values.
    """

    column: str | int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A view's query, ready for Spark.

    Attributes:
        inputs: the logs it reads; a row's ``_log`` is an index into them.
        spark_sql: Spark SQL over the relations ``__log0`` ..., one for each input.
        keys: the result's columns that distinguish its rows, if these are groups.
        emit: what rows wait for before they leave the dataflow; None: for nothing.
        window: the window of its groups, if their rows can be late.
        lateness: for how long after a window's end late rows still count, in microseconds.
        retracts: whether rows of the view may disappear or change.
        fingerprint: equal for queries that mean the same.
        through: the views of which it reads the inputs instead.
        unique: the places of the columns of each input that no two of its rows have in common.
        widths: how many columns each input had when the view was created.
        dated: the places of the inputs that are read with ``_row_lsn`` and ``_wm``, too: from the
            relations ``__dated0`` ...
        grows: whether each input only grows: no row of it ever changes or goes.
        retracting: the places of the inputs whose rows may disappear: the view begins with their
            current rows.
        temporal: the places of the tables of which it reads the history, since rows are joined
            with what they had (FOR SYSTEM_TIME AS OF).
        added: the columns that the result has besides the user's: what its order goes by, and the
            ends of windows.
        order: how its current rows are sorted when they are read.
    """

    inputs: tuple[str, ...]
    spark_sql: str
    keys: tuple[str, ...] = ()
    emit: Waiting | None = None
    window: Window | None = None
    lateness: int = 0
    retracts: bool = True
    fingerprint: str = ""
    through: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    unique: tuple[tuple[int, ...], ...] = ()
    dated: tuple[int, ...] = ()
    grows: tuple[bool, ...] = ()
    retracting: tuple[int, ...] = ()
    temporal: tuple[int, ...] = ()
    order: tuple[SortKey, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether it reads nothing: of the clock's log, only the first tick."""
        return self.inputs == (CLOCK,) and all(self.grows) and self.emit is None

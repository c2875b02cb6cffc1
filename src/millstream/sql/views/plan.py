"""What a view is, once its SQL is understood: what it reads, what Spark runs, what comes out.

Pure values. Types of the result are not here: Spark finds them when it sees ``spark_sql``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["rows", "groups", "sets"]
WindowKind = Literal["tumble", "hop", "session", "cumulate"]
FEED = "__feed"
"""The relation that ``ViewPlan.spark_sql`` reads, but for lines of operators."""


_LOG, _DATED = "__log", "__dated"


def log_relation(log: int) -> str:
    """The relation that is one of the inputs, in the SQL of a line of operators."""
    return f"{_LOG}{log}"


def dated_relation(log: int) -> str:
    """The relation that is one of the inputs with the columns ``_row_lsn`` and ``_wm`` besides."""
    return f"{_DATED}{log}"


def is_relation(name: str) -> bool:
    """Whether a name in ``ViewPlan.spark_sql`` is that of the feed or of an input.

    >>> is_relation("__log12"), is_relation("__dated0"), is_relation("orders")
    (True, True, False)
    """
    prefix = _DATED if name.startswith(_DATED) else _LOG
    return name == FEED or (name.startswith(prefix) and name.removeprefix(prefix).isdecimal())


@dataclass(frozen=True, slots=True)
class Window:
    """A window over event time, in microseconds.

    Attributes:
        kind: how windows follow each other.
        column: the input's column that it looks at.
        size: how long a window is; of a session, the gap that ends it.
        slide: from one start to the next; of CUMULATE, the step; of TUMBLE, the size.
        offset: where windows begin, counted from 1970 UTC.
        columns: the column for each of the plan's inputs; empty for those that have none, such
            as joined tables.
    """

    kind: WindowKind
    column: str
    size: int
    slide: int
    offset: int = 0
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lookup:
    """A join with a table, which the feed does: each row gets the columns of the table's rows.

    Attributes:
        table: the index of the table in ``ViewPlan.inputs``.
        on: pairs of a column and the table's column that must be equal. The first is written as
            the index of its input and its name.
        outer: whether a row without a match is kept, with NULLs.
    """

    table: int
    on: tuple[tuple[tuple[int, str], str], ...]
    outer: bool = False


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
        shape: what its rows are, see the planner's docstring.
        spark_sql: Spark SQL over the relation ``__feed``.
        columns: the names of the user's columns, which come first in the result.
        keys: the result's columns that distinguish groups; none of a global aggregate.
        window: the window of its groups.
        lookups: joins with tables.
        lateness: for how long after a window's end late rows still count, in microseconds.
        retracts: whether rows of the view may disappear or change.
        frees: whether Spark forgets a group once its window takes no more rows.
        live: whether the live gear can run it.
        why: why it can or cannot, in a few words for people.
        fingerprint: equal for queries that mean the same.
        line: whether Spark's plan of it is made a line of operators: then ``spark_sql`` reads the
            relations ``__log0`` ..., one for each input, and ``columns`` are known to Spark only.
        through: of a line, the views of which it reads the inputs instead.
        widths: of a line, how many columns each input had when the view was created.
        dated: of a line, the places of the inputs that are read with ``_row_lsn`` and ``_wm``, too:
            from the relations ``__dated0`` ...
        grows: of a line, whether each input only grows: no row of it ever changes or goes.
        retracting: the places of the inputs whose rows may disappear: the view begins with their
            current rows. None where a join is done by the feed, which reads their history.
        temporal: of a line, the places of the tables of which it reads the history, since rows are
            joined with what they had (FOR SYSTEM_TIME AS OF).
        added: of a line, the columns that the result has besides the user's: the keys of its groups
            and the ends of their windows, for an EMIT that waits.
        order: of a line, how its current rows are sorted when they are read.
        match: of "sets": the user's columns by which a new row of a group is paired with an old
            one, as an update; its keys and the start of the session, as far as they are selected.
    """

    inputs: tuple[str, ...]
    shape: Shape
    spark_sql: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    window: Window | None = None
    lookups: tuple[Lookup, ...] = ()
    lateness: int = 0
    retracts: bool = True
    frees: bool = False
    live: bool = True
    why: str = ""
    fingerprint: str = ""
    match: tuple[str, ...] = ()
    line: bool = False
    through: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    dated: tuple[int, ...] = ()
    grows: tuple[bool, ...] = ()
    retracting: tuple[int, ...] = ()
    temporal: tuple[int, ...] = ()
    order: tuple[SortKey, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_global(self) -> bool:
        """Whether it is one group that is there even without any row, which a line gives itself."""
        return self.shape == "groups" and not self.keys and not self.line

"""GROUP BY: keys, a window over event time, aggregates; and what SELECT can say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.clock import MICROSECOND
from millstream.model.types import INTERVAL, TIMESTAMP
from millstream.sql.adhoc.aggregates import AggregateSuffix, BoundAggregate, bind_aggregate
from millstream.sql.adhoc.binder import TIME_WINDOWS, RowBinder, beyond_rows, time_function
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import Literal, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.adhoc.draft import Draft
    from millstream.sql.adhoc.from_clause import Found, FromScope
    from millstream.sql.expressions.nodes import ColumnRef


# --- Windows over event time, in microseconds since 1970 ------------------------------------------

_COUNTS = {"TUMBLE": (1, 2), "HOP": (2, 3), "CUMULATE": (2, 3), "SESSION": (1, 1)}
_FORMS = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1 minute')",
    "HOP": "HOP(ts, INTERVAL '10 seconds', INTERVAL '1 minute'): first the step, then the size",
    "CUMULATE": "CUMULATE(ts, INTERVAL '1 hour', INTERVAL '1 day'): first the step, then the size",
    "SESSION": "SESSION(ts, INTERVAL '5 minutes')",
}
_MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window over event time.

    Attributes:
        kind: its name.
        time: the TIMESTAMP that it looks at.
        size: how long a window is; of a session, the gap that ends it.
        slide: from one start to the next; of CUMULATE, the step.
        offset: where windows begin, counted from 1970 UTC.
    """

    kind: str
    time: Node
    size: int
    slide: int
    offset: int = 0

    def start(self, micros: str) -> str:
        """Return the start of the last window that begins at a time or before."""
        step = self.size if self.kind == "CUMULATE" else self.slide
        return _floor(micros, step, self.offset)

    def places(self, micros: str) -> str:
        """Return the list of the starts, of CUMULATE the ends, of the windows that a time is in."""
        if self.kind == "CUMULATE":
            first = _floor(micros, self.slide, self.offset)
            last = f"{self.start(micros)} + {self.size}"
        else:
            first, last = self.start(f"({micros} - {self.size})"), self.start(micros)
        return f"range({first} + {self.slide}, {last} + 1, {self.slide})"


def _floor(micros: str, step: int, offset: int) -> str:
    # The sign of % is that of the dividend: before 1970 it takes a step to be above zero.
    past = f"((({micros} - {offset % step}) % {step} + {step}) % {step})"
    return f"({micros} - {past})"


def bind_window(rows: RowBinder, tree: exp.Anonymous) -> TimeWindow:
    """Return the window of TUMBLE and its kin."""
    kind = tree.name.upper()
    least, most = _COUNTS[kind]
    args = tree.expressions
    if not least <= len(args) - 1 <= most:
        rows.mismatch(tree, f"{kind} has {len(args)} arguments", f"Write {_FORMS[kind]}.")
    time = rows.coerce(args[0], rows.bind(args[0]), TIMESTAMP)
    lengths = [_micros(rows, each) for each in args[1:]]
    offset = lengths.pop() if len(lengths) > least else 0
    slide, size = lengths[0], lengths[-1]
    _check(rows, tree, kind, slide, size)
    return TimeWindow(kind, time, size, slide, offset)


def _check(rows: RowBinder, tree: exp.Expr, kind: str, slide: int, size: int) -> None:
    if slide <= 0 or size <= 0:
        rows.refuse(tree, "the length of a window must be positive", f"Write {_FORMS[kind]}.")
    if slide > size:
        rows.refuse(tree, "the step is longer than the window", f"Write {_FORMS[kind]}.")
    if size // slide > _MOST_WINDOWS:
        message = f"a row would be in more than {_MOST_WINDOWS} windows"
        rows.refuse(tree, message, "Make the step longer.")
    if kind == "CUMULATE" and size % slide:
        rows.refuse(tree, "the window is not a multiple of the step", f"Write {_FORMS[kind]}.")


def _micros(rows: RowBinder, tree: exp.Expr) -> int:
    node: Any = rows.bind(tree)
    if not isinstance(node, Literal) or node.type != INTERVAL or node.value is None:
        rows.mismatch(
            tree, "the length of a window must be a constant INTERVAL", "Write INTERVAL '1 minute'."
        )
    return int(node.value // MICROSECOND)


# --- The table of groups --------------------------------------------------------------------------

WINDOW_COLUMNS = {"START": "w_start", "END": "w_end"}
"""What the ends of a window are called in the table, in microseconds."""


class GroupTable:
    """Writes the table of groups: keys are k0, k1 and so on, aggregates a0, a1.

    Args:
        draft: what the plan gathers.
        scope: the columns of the rows that are grouped.
        keys: what the rows of a group have in common.
        aggregates: what is made of the rows of a group.
    """

    def __init__(
        self,
        draft: Draft,
        scope: FromScope,
        keys: Sequence[Node],
        aggregates: Sequence[BoundAggregate],
    ) -> None:
        self._draft = draft
        self._scope = scope
        self._keys = keys
        self._aggregates = aggregates

    def sql(self, source: str, where: str, window: TimeWindow | None) -> str:
        """Return the table.

        Args:
            source: what follows FROM.
            where: the condition of WHERE; empty when there is none.
            window: the window over event time, if there is one. Rows without a time are in none.
        """
        if window is None:
            return self._grouped(self._key_texts(), [], _from(source, where))
        time = self._draft.text(window.time)
        there = f"{time} IS NOT NULL"
        rest = _from(source, f"{where} AND {there}" if where else there)
        if window.kind == "SESSION":
            return self._sessions(window, f"epoch_us({time})", rest)
        return self._windows(window, f"epoch_us({time})", rest)

    def _key_texts(self) -> list[str]:
        return [self._draft.key_text(each) for each in self._keys]

    def _windows(self, window: TimeWindow, micros: str, rest: str) -> str:
        if window.kind == "TUMBLE":
            start = window.start(micros)
            return self._grouped(self._key_texts(), [start, f"{start} + {window.size}"], rest)
        # A row is in several windows: one row is made for each of them.
        rows, _ = self._moved([f"unnest({window.places(micros)}) AS w"], rest)
        ends = ["w", f"w + {window.size}"]
        if window.kind == "CUMULATE":
            ends = [window.start("(w - 1)"), "w"]
        return self._grouped(self._key_texts(), ends, rows)

    def _sessions(self, window: TimeWindow, micros: str, rest: str) -> str:
        names = [f"k{place}" for place in range(len(self._keys))]
        texts = zip(self._key_texts(), names, strict=True)
        added = [f"{micros} AS w", *(f"{text} AS {name}" for text, name in texts)]
        rows, alias = self._moved(added, rest)
        part = f"PARTITION BY {', '.join(names)} " if names else ""
        over = f"OVER ({part}ORDER BY w"
        within = f"w <= lag(w) {over}) + {window.size}"
        begun = f"SELECT *, CASE WHEN {within} THEN 0 ELSE 1 END AS begun{rows}"
        # Rows of one time are peers: RANGE gives all of them the same number.
        number = f"sum(begun) {over} RANGE UNBOUNDED PRECEDING) AS number"
        numbered = f" FROM (SELECT *, {number} FROM ({begun})) AS {alias}"  # noqa: S608 - all bound
        ends = ["min(w)", f"max(w) + {window.size}"]
        return self._grouped(names, ends, numbered, by=[*names, "number"])

    def _moved(self, added: list[str], rest: str) -> tuple[str, str]:
        """Return FROM a table of the columns that are used and of some more, and its name."""
        alias = self._draft.alias()
        hidden = [each.lsn for each in self._scope.items if each.lsn is not None]
        used = [each for each in (*self._scope.columns, *hidden) if self._draft.is_used(each)]
        texts = [f"{self._draft.text(each)} AS c{each.index}" for each in used]
        for each in used:
            self._draft.move(each, f"{alias}.c{each.index}")
        return f" FROM (SELECT {', '.join([*texts, *added])}{rest}) AS {alias}", alias

    def _grouped(
        self, keys: list[str], ends: list[str], rest: str, *, by: list[str] | None = None
    ) -> str:
        items = [f"{text} AS k{place}" for place, text in enumerate(keys)]
        items += [f"{t} AS {n}" for t, n in zip(ends, WINDOW_COLUMNS.values(), strict=False)]
        if by is None:
            by = [str(place + 1) for place in range(len(items))]
        items += [
            f"{m.write(AggregateSuffix())} AS a{place}" for place, m in enumerate(self._aggregates)
        ]
        # SELECT 1 ... HAVING TRUE has a group, though it selects no aggregate.
        text = f"SELECT {', '.join(items or ['count(*) AS a0'])}{rest}"
        return f"{text} GROUP BY {', '.join(by)}" if by else text


def _from(source: str, where: str) -> str:
    text = f" FROM {source}" if source else ""
    return f"{text} WHERE {where}" if where else text


# --- Binding --------------------------------------------------------------------------------------


def as_window(tree: exp.Expr) -> exp.Anonymous | None:
    """Return the window of a key, which may be a start or an end that says all of it."""
    kind, _, side = time_function(tree).partition("_")
    if kind not in TIME_WINDOWS or (side and len(tree.expressions) <= _COUNTS[kind][0]):
        return None
    return exp.Anonymous(this=kind, expressions=tree.expressions).update_positions(tree)


class GroupBinder(RowBinder):
    """Binds expressions over groups of rows.

    Attributes:
        rows: binds what is inside of aggregates, and keys.
        alias: the name of the table of groups.
    """

    def __init__(self, rows: RowBinder) -> None:
        super().__init__(rows.draft, rows.scope, rows.ctes, rows.outer)
        self.rows = rows
        self.alias = rows.draft.alias()
        self.window: TimeWindow | None = None
        self._keys: list[tuple[Node, ColumnRef]] = []
        self._aggregates: dict[exp.Expr, tuple[BoundAggregate, ColumnRef]] = {}
        self._window_parts: dict[str, ColumnRef] = {}

    # --- What GROUP BY says -----------------------------------------------------------------------

    def add_key(self, tree: exp.Expr) -> None:
        """Add what rows of a group have in common: an expression, or a window."""
        window = as_window(tree)
        if window is not None:
            self._add_window(window)
            return
        beyond = next(beyond_rows(tree), None)
        if beyond is not None:
            self.refuse(
                beyond,
                "GROUP BY does not take this expression",
                "Group by columns and expressions.",
            )
        node = self.rows.bind(tree)
        comparable(self, tree, [node])
        if not any(node == key for key, _ in self._keys):
            text = f"{self.alias}.k{len(self._keys)}"
            ref = self.draft.column("", node.type, text, nullable=node.nullable)
            self._keys.append((node, ref))

    def _add_window(self, tree: exp.Anonymous) -> None:
        if self.window is not None:
            self.refuse(tree, "GROUP BY takes one window only", "Leave one of them out.")
        self.window = bind_window(self.rows, tree)
        for side, name in WINDOW_COLUMNS.items():
            text = f"make_timestamp({self.alias}.{name})"
            self._window_parts[side] = self.draft.column("", TIMESTAMP, text, nullable=False)

    # --- What SELECT, HAVING and ORDER BY say -----------------------------------------------------

    def bind(self, tree: exp.Expr | None) -> Node:
        """Return the node of a tree: a key, or something that is made of keys and aggregates."""
        if tree is not None and self._is_of_rows(tree):
            node = self.rows.bind(tree)
            for key, ref in self._keys:
                if key == node:
                    return ref
        return super().bind(tree)

    def _is_of_rows(self, tree: exp.Expr) -> bool:
        if next(beyond_rows(tree), None) is not None:
            return False
        columns = list(tree.find_all(exp.Column))
        return bool(columns) and all(
            self.rows.scope.find(self, each, [part.name for part in each.parts])
            for each in columns
            if not isinstance(each.this, exp.Star)
        )

    def own(self, tree: exp.Expr, parts: Sequence[str]) -> Found | None:
        """Return the key that a dotted name stands for, or the start or end of the window."""
        found = self.rows.own(tree, parts)
        if found is None:
            side = parts[0].upper().removeprefix("WINDOW_")
            known = len(parts) == 1 and side != parts[0].upper() and side in self._window_parts
            return (self._window_parts[side], []) if known else None
        same = [ref for key, ref in self._keys if key == found[0]]
        if not same:
            name = ".".join(parts)
            self.error(
                SqlColumnError,
                tree,
                f"{name} is not the same for all rows of a group",
                f"Add it to GROUP BY, or aggregate it: MAX({name}), COUNT({name}).",
            )
        return same[0], found[1]

    def aggregate(self, tree: exp.Expr) -> Node:
        """Bind an aggregate; one that comes again is worked out once."""
        if tree not in self._aggregates:
            self._refuse_subqueries(tree)
            made = bind_aggregate(self.rows, tree)
            text = f"{self.alias}.a{len(self._aggregates)}"
            ref = self.draft.column("", made.type, text, nullable=made.nullable)
            self._aggregates[tree] = (made, ref)
        return self._aggregates[tree][1]

    def _refuse_subqueries(self, tree: exp.Expr) -> None:
        query = tree.find(exp.Query)
        if query is not None:
            self.refuse(
                query, "a subquery in an aggregate is not supported", "Join it in FROM instead."
            )

    def time_part(self, tree: exp.Expr) -> Node:
        """Bind the start or end of the window."""
        assert isinstance(tree, exp.Anonymous)  # noqa: S101 - time_function knows no others
        kind, _, side = time_function(tree).partition("_")
        if self.window is None or not side:
            return super().time_part(tree)
        if kind not in {self.window.kind, "WINDOW"} or not self._is_same(self.window, tree):
            self.refuse(
                tree,
                "this is not the window of GROUP BY",
                f"Write {self.window.kind}_{side} with the same arguments.",
            )
        return self._window_parts[side]

    def _is_same(self, window: TimeWindow, tree: exp.Anonymous) -> bool:
        """Whether the arguments of a start or end are those of the window, or the first of them."""
        args = tree.expressions
        if len(args) > _COUNTS[window.kind][0]:
            again = exp.Anonymous(this=window.kind, expressions=args)
            return bind_window(self.rows, again) == window
        if not args:
            return True
        time = self.rows.coerce(args[0], self.rows.bind(args[0]), TIMESTAMP)
        lengths = [_micros(self.rows, each) for each in args[1:]]
        return time == window.time and lengths == [window.slide, window.size][: len(lengths)]

    def table(self, source: str, where: str) -> str:
        """Return the SELECT that makes one row of each group.

        Args:
            source: what follows FROM.
            where: the condition of WHERE; empty when there is none.
        """
        keys = [node for node, _ in self._keys]
        made = [each for each, _ in self._aggregates.values()]
        return GroupTable(self.draft, self.scope, keys, made).sql(source, where, self.window)

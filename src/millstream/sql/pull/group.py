"""Groups: keys, a window over event time, aggregates; and what SELECT can say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import TIMESTAMP
from millstream.sql.expr.comparing import comparable
from millstream.sql.expr.nodes import ColumnRef, Node
from millstream.sql.pull.aggregates import Aggregate, Tail, bind_aggregate
from millstream.sql.pull.binder import RowBinder
from millstream.sql.pull.names import TIME_WINDOWS, beyond_rows, time_word
from millstream.sql.pull.times import TimeWindow, bind_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.pull.scope import Found

_SIDES = {"START": "w_start", "END": "w_end"}


class GroupBinder(RowBinder):
    """Binds expressions over groups of rows.

    Attributes:
        rows: binds what is inside of aggregates, and keys.
        alias: the name of the table of groups.
    """

    def __init__(self, rows: RowBinder) -> None:
        super().__init__(rows.draft, rows.scope, rows.shared, rows.outer)
        self.rows = rows
        self.alias = rows.draft.alias()
        self.window: TimeWindow | None = None
        self._keys: list[tuple[Node, ColumnRef]] = []
        self._aggregates: dict[exp.Expr, tuple[Aggregate, ColumnRef]] = {}
        self._window_parts: dict[str, ColumnRef] = {}

    # --- What GROUP BY says -----------------------------------------------------------------------

    def add_key(self, tree: exp.Expr) -> None:
        """Add what rows of a group have in common: an expression, or a window."""
        if time_word(tree) in TIME_WINDOWS:
            self._add_window(tree)
            return
        beyond = next(beyond_rows(tree), None)
        if beyond is not None:
            self.refuse(beyond, "this cannot be grouped by", "Group by columns and expressions.")
        node = self.rows.bind(tree)
        comparable(self, tree, [node])
        if not any(node == key for key, _ in self._keys):
            text = f"{self.alias}.k{len(self._keys)}"
            ref = self.draft.column("", node.type, text, nullable=node.nullable)
            self._keys.append((node, ref))

    def _add_window(self, tree: exp.Expr) -> None:
        assert isinstance(tree, exp.Anonymous)  # noqa: S101 - time_word knows no others
        if self.window is not None:
            self.refuse(tree, "there is a window already", "Group by one window.")
        self.window = bind_window(self.rows, tree)
        for side in _SIDES:
            text = f"make_timestamp({self.alias}.{_SIDES[side]})"
            self._window_parts[side] = self.draft.column("", TIMESTAMP, text, nullable=False)

    # --- What SELECT, HAVING and ORDER BY say -----------------------------------------------------

    def bind(self, tree: exp.Expr) -> Node:
        """Return the node of a tree: a key, or something that is made of keys and aggregates."""
        if self._is_of_rows(tree):
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
        for key, ref in self._keys:
            if key == found[0]:
                return ref, found[1]
        name = ".".join(parts)
        self.error(
            SqlColumnError,
            tree,
            f"{name} is not the same for all rows of a group",
            f"Add it to GROUP BY, or aggregate it: MAX({name}), COUNT({name}).",
        )

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
            self.refuse(query, "a subquery inside of an aggregate", "Join it in FROM instead.")

    def time_part(self, tree: exp.Expr) -> Node:
        """Bind the start or end of the window."""
        assert isinstance(tree, exp.Anonymous)  # noqa: S101 - time_word knows no others
        kind, _, side = time_word(tree).partition("_")
        if self.window is None or not side:
            return super().time_part(tree)
        same = not tree.expressions or (
            kind != "WINDOW"
            and bind_window(self.rows, exp.Anonymous(this=kind, expressions=tree.expressions))
            == self.window
        )
        if kind not in {self.window.kind, "WINDOW"} or not same:
            self.refuse(
                tree,
                "this is not the window of GROUP BY",
                f"Write {self.window.kind}_{side} with the same arguments.",
            )
        return self._window_parts[side]

    # --- The table of groups ----------------------------------------------------------------------

    def table(self, source: str, where: str) -> str:
        """Return the SELECT that makes one row of each group.

        Args:
            source: what follows FROM.
            where: the condition of WHERE; empty when there is none.
        """
        if self.window is None:
            keys = [self.draft.key_text(node) for node, _ in self._keys]
            return self._grouped(keys, [], _from(source, where))
        if self.window.kind == "SESSION":
            return self._sessions(source, where, self.window)
        return self._windows(source, where, self.window)

    def _windows(self, source: str, where: str, window: TimeWindow) -> str:
        micros = f"epoch_us({self.draft.text(window.time)})"
        there = f"{self.draft.text(window.time)} IS NOT NULL"
        rest = _from(source, f"{where} AND {there}" if where else there)
        if window.kind == "TUMBLE":
            start, end = window.start(micros), f"{window.start(micros)} + {window.size}"
            keys = [self.draft.key_text(node) for node, _ in self._keys]
            return self._grouped(keys, [f"{start} AS w_start", f"{end} AS w_end"], rest)
        rows = self._moved([f"unnest({window.starts(micros)}) AS w"], rest)
        keys = [self.draft.key_text(node) for node, _ in self._keys]
        start, end = "w", f"w + {window.size}"
        if window.kind == "CUMULATE":
            start, end = window.whole_start("w"), "w"
        return self._grouped(keys, [f"{start} AS w_start", f"{end} AS w_end"], rows)

    def _sessions(self, source: str, where: str, window: TimeWindow) -> str:
        time = self.draft.text(window.time)
        there = f"{time} IS NOT NULL"
        rest = _from(source, f"{where} AND {there}" if where else there)
        keys = [self.draft.key_text(node) for node, _ in self._keys]
        added = [f"{text} AS k{place}" for place, text in enumerate(keys)]
        rows = self._moved([f"epoch_us({time}) AS w", *added], rest)
        names = [f"k{place}" for place in range(len(keys))]
        part = f"PARTITION BY {', '.join(names)} " if names else ""
        over = f"OVER ({part}ORDER BY w"
        # Rows of one time are peers: RANGE gives all of them the same number.
        flags = (
            f"SELECT *, CASE WHEN w <= lag(w) {over}) + {window.size} THEN 0 ELSE 1 END AS n{rows}"
        )
        alias = self._last_alias
        numbered = f"SELECT *, sum(n) {over} RANGE UNBOUNDED PRECEDING) AS s FROM ({flags})"
        ends = ["min(w) AS w_start", f"max(w) + {window.size} AS w_end"]
        return self._grouped(names, ends, f" FROM ({numbered}) AS {alias}", grouped=["s"])

    def _moved(self, added: list[str], rest: str) -> str:
        """Return FROM a table of the columns that are used, and of some that are added."""
        alias = self._last_alias = self.draft.alias()
        used = [each for each in self._row_columns() if self.draft.is_used(each)]
        texts = [f"{self.draft.text(each)} AS c{each.index}" for each in used]
        for each in used:
            self.draft.move(each, f"{alias}.c{each.index}")
        return f" FROM (SELECT {', '.join([*texts, *added])}{rest}) AS {alias}"

    def _row_columns(self) -> list[ColumnRef]:
        hidden = [each.lsn for each in self.scope.relations if each.lsn is not None]
        return [*self.scope.columns, *hidden]

    def _grouped(
        self, keys: list[str], window: list[str], rest: str, *, grouped: Sequence[str] = ()
    ) -> str:
        items = [f"{text} AS k{place}" for place, text in enumerate(keys)]
        count = len(items)
        if window and not grouped:
            count += len(window)
        items += window
        items += [
            f"{made.write(Tail())} AS a{place}"
            for place, (made, _) in enumerate(self._aggregates.values())
        ]
        by = [*map(str, range(1, count + 1)), *grouped]
        # Without a column there would be no SELECT: SELECT 1 FROM t HAVING TRUE has groups, too.
        text = f"SELECT {', '.join(items or ['count(*) AS a0'])}{rest}"
        return f"{text} GROUP BY {', '.join(by)}" if by else text


def _from(source: str, where: str) -> str:
    text = f" FROM {source}" if source else ""
    return f"{text} WHERE {where}" if where else text

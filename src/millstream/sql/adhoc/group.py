"""Groups: keys, a window over event time, aggregates; and what SELECT can say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import TIMESTAMP
from millstream.sql.adhoc.aggregates import bind_aggregate
from millstream.sql.adhoc.binder import RowBinder
from millstream.sql.adhoc.grouping import WINDOW_COLUMNS, GroupTable
from millstream.sql.adhoc.names import TIME_WINDOWS, beyond_rows, time_word
from millstream.sql.adhoc.times import TimeWindow, bind_window
from millstream.sql.expressions.conditions import comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.adhoc.parts import Aggregate
    from millstream.sql.adhoc.scope import Found
    from millstream.sql.expressions.nodes import ColumnRef, Node


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

    def table(self, source: str, where: str) -> str:
        """Return the SELECT that makes one row of each group.

        Args:
            source: what follows FROM.
            where: the condition of WHERE; empty when there is none.
        """
        keys = [node for node, _ in self._keys]
        made = [each for each, _ in self._aggregates.values()]
        return GroupTable(self.draft, self.scope, keys, made).sql(source, where, self.window)

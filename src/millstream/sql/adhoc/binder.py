"""Binding expressions of a query: columns of several tables, aliases, subqueries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import BOOLEAN
from millstream.sql.adhoc import over
from millstream.sql.adhoc.names import is_aggregate, time_word
from millstream.sql.expressions.bind import Binder, struct_field
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import ColumnRef, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.adhoc.draft import Bound, Draft, Output
    from millstream.sql.adhoc.scope import Found, Scope


class RowBinder(Binder):
    """Binds expressions over the rows of a FROM.

    Args:
        draft: what the plan gathers.
        scope: the columns that can be named.
        shared: the queries of WITH, by name.
        outer: the binder of the query around this one, whose columns can be named as well.

    Attributes:
        first: aliases that come before columns, as in ORDER BY.
        last: aliases that are looked at when there is no such column.
        over: whether a window function may stand here.
    """

    def __init__(
        self,
        draft: Draft,
        scope: Scope,
        shared: Mapping[str, Bound],
        outer: RowBinder | None = None,
    ) -> None:
        super().__init__(None, draft.sql, None)
        self.draft = draft
        self.scope = scope
        self.shared = shared
        self.outer = outer
        self.first: dict[str, Node] = {}
        self.last: dict[str, Node] = {}
        self.over = False

    def bind(self, tree: exp.Expr | None) -> Node:
        """Return the node of a tree; subqueries and windows become columns with a text."""
        if tree is None:
            return super().bind(tree)
        bind = _BINDERS.get(type(tree))
        if bind is not None:
            return bind(self, tree)
        if is_aggregate(tree):
            return self.aggregate(tree)
        return self.time_part(tree) if time_word(tree) else super().bind(tree)

    # --- Columns ----------------------------------------------------------------------------------

    def column(self, tree: exp.Column) -> Node:
        """Bind a column, perhaps behind the name of its table, perhaps with fields of it."""
        if isinstance(tree.this, exp.Star):
            self.refuse(tree, "* is not allowed here", "Name the columns.")
        parts = [each.name for each in tree.parts]
        found = self.resolve(tree, parts)
        if found is None:
            self._missing(tree, parts)
        node, fields = found
        for name in fields:
            node = struct_field(self, tree, node, name)
        return node

    def resolve(self, tree: exp.Expr, parts: Sequence[str]) -> Found | None:
        """Return what a dotted name stands for, here or in a query around; None when nothing."""
        name = parts[0].lower()
        if len(parts) == 1 and name in self.first:
            return self.first[name], []
        found = self.own(tree, parts)
        if found is None and name in self.last:
            found = self.last[name], list(parts[1:])
        if found is None and self.outer is not None:
            found = self.outer.resolve(tree, parts)
        return found

    def own(self, tree: exp.Expr, parts: Sequence[str]) -> Found | None:
        """Return what a dotted name stands for in this FROM."""
        found = self.scope.find(self, tree, parts)
        if found is not None and isinstance(found[0], ColumnRef):
            self.draft.use(found[0])
        return found

    def _missing(self, tree: exp.Expr, parts: Sequence[str]) -> NoReturn:
        names = {each.name for each in self.scope.relations}
        if len(parts) > 1 and parts[0].lower() not in names:
            known = ", ".join(sorted(filter(None, names)))
            hint = f"Available in FROM: {known}." if known else ""
            self.error(SqlColumnError, tree, f"there is nothing called {parts[0]}", hint)
        name = ".".join(parts)
        self.error(SqlColumnError, tree, f"there is no column {name}", self.scope.hint(parts))

    # --- What other binders do otherwise ----------------------------------------------------------

    def aggregate(self, tree: exp.Expr) -> Node:
        """Bind an aggregate."""
        return self.refuse(
            tree,
            "an aggregate is not allowed here",
            "Aggregates go into SELECT, HAVING and ORDER BY; to filter by one, use HAVING.",
        )

    def time_part(self, tree: exp.Expr) -> Node:
        """Bind the start or end of a window over event time."""
        return self.refuse(
            tree,
            f"{time_word(tree)} is not allowed here",
            "GROUP BY a window, such as TUMBLE(ts, INTERVAL '1 minute'), then select TUMBLE_START.",
        )

    # --- Subqueries -------------------------------------------------------------------------------

    def _truth(self, text: str, *, nullable: bool) -> Node:
        return self.draft.column("", BOOLEAN, f"({text})", nullable=nullable)

    def exists(self, tree: exp.Exists) -> Node:
        """Bind EXISTS (SELECT ...)."""
        query = self.draft.subquery(tree.this, self)
        return self._truth(f"EXISTS ({query.sql})", nullable=False)

    def scalar(self, tree: exp.Subquery) -> Node:
        """Bind a subquery that stands for one value."""
        query = self.draft.subquery(tree, self)
        only = self._one_column(tree, query)
        return self.draft.column(only.name, only.type, f"({query.sql})")

    def among(self, tree: exp.In) -> Node:
        """Bind IN, of a list or of a subquery."""
        if tree.args.get("query") is None:
            return super().bind(tree)
        if isinstance(tree.this, exp.Tuple):
            self.refuse(
                tree, "IN of several columns is not supported", "Write EXISTS (SELECT ...) instead."
            )
        query, value = self.draft.subquery(tree.args["query"], self), self.bind(tree.this)
        only = self._one_column(tree, query)
        alias = self.draft.alias()
        there = self.draft.column(only.name, only.type, f"{alias}.c0", nullable=only.nullable)
        of = comparable(self, tree, [value, there])
        texts = [self.draft.text(self.coerce(tree, each, of)) for each in (value, there)]
        rows = f"SELECT {texts[1]} FROM ({query.sql}) AS {alias}"  # noqa: S608 - all bound
        return self._truth(f"{texts[0]} IN ({rows})", nullable=value.nullable or only.nullable)

    def _one_column(self, tree: exp.Expr, query: Bound) -> Output:
        if len(query.columns) != 1:
            self.mismatch(
                tree, f"this subquery has {len(query.columns)} columns", "Select one column in it."
            )
        return query.columns[0]


_BINDERS: dict[type, Callable[[RowBinder, Any], Node]] = {
    exp.Column: lambda self, tree: self.column(tree),
    exp.Window: over.bind_over,
    exp.Subquery: RowBinder.scalar,
    exp.Exists: RowBinder.exists,
    exp.In: RowBinder.among,
}

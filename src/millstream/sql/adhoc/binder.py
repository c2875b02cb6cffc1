"""Binding expressions of a query: columns of several tables, aliases, subqueries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import BOOLEAN
from millstream.sql.adhoc.window_functions import bind_over
from millstream.sql.expressions.bind import Binder, struct_field
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import ColumnRef, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.sql.adhoc.draft import BoundQuery, Draft, OutputColumn
    from millstream.sql.adhoc.from_clause import Found, FromScope


AGGREGATE_NAMES = frozenset({"EVERY", "SOME", "MEAN", "STD"})
"""Aggregates that sqlglot leaves to the names that were written."""

TIME_WINDOWS = frozenset({"TUMBLE", "HOP", "SESSION", "CUMULATE"})
TIME_FUNCTIONS = TIME_WINDOWS | {
    f"{kind}_{side}" for kind in (*TIME_WINDOWS, "WINDOW") for side in ("START", "END")
}
"""Windows over event time, their starts and their ends."""


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether a tree is an aggregate, with what may stand around one."""
    if isinstance(tree, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        return True
    if isinstance(tree, exp.Anonymous):
        return tree.name.upper() in AGGREGATE_NAMES
    return isinstance(tree, exp.AggFunc)


def time_function(tree: exp.Expr) -> str:
    """Return the name of a window over event time, or of its start or end; else nothing."""
    name = tree.name.upper() if isinstance(tree, exp.Anonymous) else ""
    return name if name in TIME_FUNCTIONS else ""


def beyond_rows(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a tree that more than one row goes into."""
    is_query = isinstance(tree, (exp.Query, exp.Exists, exp.Window))
    if is_query or is_aggregate(tree) or time_function(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from beyond_rows(child)


def needs_groups(tree: exp.Expr) -> bool:
    """Whether a tree needs rows to be grouped: it has an aggregate that is not OVER a window."""
    for part in beyond_rows(tree):
        if isinstance(part, (exp.Query, exp.Exists)):
            continue
        if not isinstance(part, exp.Window):
            return True
        function = part.this
        while isinstance(function, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
            function = function.this
        inner = [*function.iter_expressions()]
        around = [each for key, each in part.args.items() if key != "this"]
        if any(map(needs_groups, [*inner, *_trees(around)])):
            return True
    return False


def _trees(values: list[object]) -> Iterator[exp.Expr]:
    for value in values:
        if isinstance(value, exp.Expr):
            yield value
        elif isinstance(value, list):
            yield from _trees(value)


# --- Over rows ------------------------------------------------------------------------------------


class RowBinder(Binder):
    """Binds expressions over the rows of a FROM.

    Args:
        draft: what the plan gathers.
        scope: the columns that can be named.
        ctes: the queries of WITH, by name.
        outer: the binder of the query around this one, whose columns can be named as well.

    Attributes:
        aliases_first: aliases that come before columns, as in ORDER BY.
        aliases_last: aliases that are looked at when there is no such column.
        allows_over: whether a window function may stand here.
    """

    def __init__(
        self,
        draft: Draft,
        scope: FromScope,
        ctes: Mapping[str, BoundQuery],
        outer: RowBinder | None = None,
    ) -> None:
        super().__init__(None, draft.sql, None)
        self.draft = draft
        self.scope = scope
        self.ctes = ctes
        self.outer = outer
        self.aliases_first: dict[str, Node] = {}
        self.aliases_last: dict[str, Node] = {}
        self.allows_over = False

    def bind(self, tree: exp.Expr | None) -> Node:
        """Return the node of a tree; subqueries and windows become columns with a text."""
        if tree is None:
            return super().bind(tree)
        bind = _BINDERS.get(type(tree))
        if bind is not None:
            return bind(self, tree)
        if is_aggregate(tree):
            return self.aggregate(tree)
        return self.time_part(tree) if time_function(tree) else super().bind(tree)

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
        if len(parts) == 1 and name in self.aliases_first:
            return self.aliases_first[name], []
        found = self.own(tree, parts)
        if found is None and name in self.aliases_last:
            found = self.aliases_last[name], list(parts[1:])
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
        names = {each.name for each in self.scope.items}
        if len(parts) > 1 and parts[0].lower() in self.draft.named - names:
            what = f"{parts[0]}, of a query around this one, is not supported in FROM"
            self.refuse(tree, f"{what} in a query in process", "Join them instead.")
        if len(parts) > 1 and parts[0].lower() not in names:
            known = ", ".join(sorted(filter(None, names)))
            hint = f"Available in FROM: {known}." if known else ""
            self.error(SqlColumnError, tree, f"there is no table or alias {parts[0]}", hint)
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
            f"{time_function(tree)} is not allowed here",
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

    def _one_column(self, tree: exp.Expr, query: BoundQuery) -> OutputColumn:
        if len(query.columns) != 1:
            self.mismatch(
                tree, f"this subquery has {len(query.columns)} columns", "Select one column in it."
            )
        return query.columns[0]


_BINDERS: dict[type, Callable[[RowBinder, Any], Node]] = {
    exp.Column: lambda self, tree: self.column(tree),
    exp.Window: bind_over,
    exp.Subquery: RowBinder.scalar,
    exp.Exists: RowBinder.exists,
    exp.In: RowBinder.among,
}

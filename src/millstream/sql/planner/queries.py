"""Queries: SELECT by SELECT, from the feed to the rows or groups that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.limits import common_of
from millstream.sql.planner.checks import check_select, check_union
from millstream.sql.planner.flow import Flow
from millstream.sql.planner.functions import has_aggregate
from millstream.sql.planner.groups import Grouping
from millstream.sql.planner.relations import relation
from millstream.sql.planner.scope import Scope
from millstream.sql.planner.windows import is_window

if TYPE_CHECKING:
    from millstream.sql.planner.flow import Columns
    from millstream.sql.planner.relations import Logs
    from millstream.sql.planner.telling import Teller

_OWN_VIEW = "CREATE MATERIALIZED VIEW for the inner query, and read that one."


@dataclass(slots=True)
class Planner:
    """Understands queries over some logs.

    Attributes:
        logs: what they read.
        teller: raises errors.
        lateness: for how long late rows count, in microseconds.
    """

    logs: Logs
    teller: Teller
    lateness: int = 0

    def flow(self, tree: exp.Expr) -> Flow:
        """Return what a query gives."""
        if isinstance(tree, exp.Subquery):
            return self.flow(tree.this)
        if isinstance(tree, exp.SetOperation):
            return self._union(tree)
        if not isinstance(tree, exp.Select):
            self.teller.refuse(tree, "this is no query that a view can have", "Write SELECT.")
        check_select(tree, self.teller)
        below, scope = self._from(tree)
        if tree.args.get("where"):
            below = below.filtered(scope.resolve(tree.args["where"].this, aliases=False))
        return self._selected(tree, below, scope)

    def _union(self, tree: exp.SetOperation) -> Flow:
        check_union(tree, self.teller)
        raise NotImplementedError

    def _from(self, tree: exp.Select) -> tuple[Flow, Scope]:
        source = tree.args["from_"].this
        below = self._source(source)
        scope = Scope(self.teller, (relation(source.alias_or_name, below),))
        return below, scope

    def _source(self, tree: exp.Expr) -> Flow:
        if not isinstance(tree, exp.Table):
            return self.flow(tree)
        common = common_of(tree)
        return self.logs.flow(self.logs.index(tree.name)) if common is None else self.flow(common.this)

    def _selected(self, tree: exp.Select, below: Flow, scope: Scope) -> Flow:
        items = tree.expressions
        group, having = tree.args.get("group"), tree.args.get("having")
        distinct = tree.args.get("distinct")
        grouped = group is not None or having is not None or any(map(has_aggregate, items))
        if not grouped and not distinct:
            return Flow(below.ground, self._columns(items, scope), below.where, below.log, below.groups)
        if below.groups is not None:
            self.teller.refuse(tree, "an aggregate over an aggregate is not supported", _OWN_VIEW)
        scope.windowed = True
        columns = self._columns(items, scope)
        grouping = Grouping(below, self.teller, self.lateness)
        if distinct and grouped:
            self.teller.refuse(tree, "DISTINCT over groups is not supported", _OWN_VIEW)
        if distinct:
            for _, each in columns:
                grouping.add_key(each)
        for each in group.expressions if group else []:
            grouping.add_key(self._key(each, columns, scope))
        condition = scope.resolve(having.this) if having else None
        return grouping.flow(columns, condition)

    def _key(self, tree: exp.Expr, columns: Columns, scope: Scope) -> exp.Expr:
        if isinstance(tree, exp.Literal) and not tree.is_string:
            place = int(tree.this) - 1
            if not 0 <= place < len(columns):
                self.teller.no_column(tree, f"there is no column {tree.this}", "Count from 1.")
            return columns[place][1]
        return scope.resolve(tree)

    def _columns(self, items: list[exp.Expr], scope: Scope) -> Columns:
        columns: list[tuple[str, exp.Expr]] = []
        for item in items:
            if item.is_star:
                columns += scope.star(item)
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            resolved = scope.resolve(inner)
            name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else ""
            name = name or f"_c{len(columns)}"
            columns.append((name, resolved))
            if isinstance(item, exp.Alias):
                scope.aliases.setdefault(name.lower(), resolved)
        return tuple(columns)

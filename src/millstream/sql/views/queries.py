"""Queries: SELECT by SELECT, from the feed to the rows or groups that the query selects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.sql.views.checks import check_query, check_union
from millstream.sql.views.flow import Flow
from millstream.sql.views.functions import OWN_VIEW, has_aggregate
from millstream.sql.views.generators import generated, is_generator, item_names
from millstream.sql.views.groups import Grouping
from millstream.sql.views.joins import Joiner
from millstream.sql.views.scope import Relation, Scope
from millstream.sql.views.unions import united
from millstream.sql.views.windows import is_bound, is_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Columns
    from millstream.sql.views.relations import Logs


@dataclass(slots=True)
class Planner:
    """Understands queries over some logs.

    Attributes:
        logs: what they read.
        errors: raises errors.
        lateness: for how long late rows count, in microseconds.
    """

    logs: Logs
    errors: ErrorReporter
    lateness: int = 0

    def flow(self, tree: exp.Expr) -> Flow:
        """Return what a query gives."""
        if isinstance(tree, exp.Query):
            check_query(tree, self.errors)
        if isinstance(tree, exp.Subquery):
            return self.flow(tree.this)
        if isinstance(tree, exp.SetOperation):
            parts = [self.flow(each) for each in self._parts(tree)]
            return united(parts, self.logs, tree, self.errors)
        if not isinstance(tree, exp.Select):
            hint = "Write SELECT ... FROM a source, a table or a view."
            self.errors.refuse(tree, "only SELECT is supported in a view", hint)
        below, scope = self._from(tree)
        if tree.args.get("where"):
            below = below.filtered(scope.resolve(tree.args["where"].this, aliases=False))
        return self._selected(tree, below, scope)

    def _parts(self, tree: exp.Expr) -> list[exp.Expr]:
        """The parts of a UNION ALL, from left to right."""
        if isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
            check_query(tree, self.errors)
            return self._parts(tree.this)
        if not isinstance(tree, exp.SetOperation):
            return [tree]
        check_query(tree, self.errors)
        check_union(tree, self.errors)
        return [*self._parts(tree.this), *self._parts(tree.expression)]

    def _from(self, tree: exp.Select) -> tuple[Flow, Scope]:
        if tree.args.get("from_") is None:
            hint = "Name a source, a table or a view: SELECT ... FROM trades."
            self.errors.refuse(tree, "a view without FROM would never change", hint)
        source = tree.args["from_"].this
        below = self._source(source)
        scope = Scope(self.errors, (self._relation(source, below),))
        joiner = Joiner(below, scope, self.logs, self.errors)
        for join in [*(source.args.get("joins") or []), *(tree.args.get("joins") or [])]:
            joiner.join(join)
        below, scope = joiner.flow, joiner.scope
        for lateral in tree.args.get("laterals") or []:
            below = self._lateral(lateral, below, scope)
        return below, scope

    def _source(self, tree: exp.Expr) -> Flow:
        common = common_of(tree) if isinstance(tree, exp.Table) else None
        if common is not None:
            return _renamed(self.flow(common.this), common.args.get("alias"), self.errors)
        if isinstance(tree, exp.Table):
            check_query(tree, self.errors)
            return self.logs.flow(self.logs.index(tree.name))
        return self.flow(tree)

    def _relation(self, tree: exp.Expr, flow: Flow) -> Relation:
        flow = _renamed(flow, tree.args.get("alias"), self.errors)
        return Relation(tree.alias_or_name.lower(), flow.columns)

    def _lateral(self, tree: exp.Expr, below: Flow, scope: Scope) -> Flow:
        if not tree.args.get("view") or not is_generator(tree.this):
            hint = "Write LATERAL VIEW EXPLODE(...) t AS c."
            self.errors.refuse(tree, "LATERAL is not supported in a view", hint)
        named = tree.args.get("alias")
        names = [each.name for each in named.args.get("columns") or []] if named else []
        outer = bool(tree.args.get("outer"))
        resolved = scope.resolve(tree.this, aliases=False)
        below, columns = generated(below, resolved, names, self.errors, outer=outer)
        scope.relations = (*scope.relations, Relation(tree.alias.lower(), columns))
        return below

    def _selected(self, tree: exp.Select, below: Flow, scope: Scope) -> Flow:
        items = tree.expressions
        group, having = tree.args.get("group"), tree.args.get("having")
        grouped = group is not None or having is not None or any(map(has_aggregate, items))
        if grouped or tree.args.get("distinct"):
            return self._grouped(tree, below, scope, grouped=grouped)
        columns: list[tuple[str, exp.Expr]] = []
        for item in items:
            self._check_windows(item)
            if is_generator(item):
                self._check_one(items)
                names = item_names(item)
                resolved = scope.resolve(_inner(item))
                below, added = generated(below, resolved, names, self.errors)
                columns += added
            else:
                columns += self._column(item, len(columns), scope)
        return Flow(below.ground, tuple(columns), below.where, below.log, below.groups)

    def _check_windows(self, item: exp.Expr) -> None:
        """Refuse a window of rows that are not grouped: of a HOP, a row is in several."""
        found = [each for each in item.walk() if is_window(each) or is_bound(each)]
        if found:
            name = str(found[0].this).upper()
            hint = "Add TUMBLE(ts, INTERVAL '1 minute') to GROUP BY."
            self.errors.refuse(found[0], f"{name} needs a window in GROUP BY", hint)

    def _check_one(self, items: list[exp.Expr]) -> None:
        several = [each for each in items if is_generator(each)][1:]
        if several:
            hint = "Write the other one as LATERAL VIEW."
            self.errors.refuse(several[0], "there are two generators in one SELECT", hint)

    def _grouped(self, tree: exp.Select, below: Flow, scope: Scope, *, grouped: bool) -> Flow:
        if below.groups is not None:
            self.errors.refuse(tree, "an aggregate over an aggregate is not supported", OWN_VIEW)
        distinct, group = tree.args.get("distinct"), tree.args.get("group")
        if distinct and grouped:
            self.errors.refuse(tree, "DISTINCT over groups is not supported", OWN_VIEW)
        scope.windowed = True
        columns: list[tuple[str, exp.Expr]] = []
        for item in tree.expressions:
            columns += self._column(item, len(columns), scope)
        grouping = Grouping(below, self.errors, self.lateness)
        for key in self._keys(group, columns, scope, distinct=bool(distinct)):
            grouping.add_key(key)
        having = tree.args.get("having")
        condition = scope.resolve_having(having.this, grouping.keys) if having else None
        return grouping.flow(tuple(columns), condition)

    def _keys(
        self,
        group: exp.Expr | None,
        columns: Sequence[tuple[str, exp.Expr]],
        scope: Scope,
        *,
        distinct: bool,
    ) -> list[exp.Expr]:
        if distinct or (group is not None and group.args.get("all")):
            return [each for _, each in columns if not has_aggregate(each)]
        keys = [] if group is None else group.expressions
        return [self._key(each, columns, scope) for each in keys]

    def _key(
        self, tree: exp.Expr, columns: Sequence[tuple[str, exp.Expr]], scope: Scope
    ) -> exp.Expr:
        if not isinstance(tree, exp.Literal) or tree.is_string:
            return scope.resolve(tree)
        place = int(tree.this) - 1 if tree.is_int else -1
        if not 0 <= place < len(columns):
            hint = f"There are {len(columns)} columns; count from 1."
            self.errors.no_column(tree, f"there is no column {tree.this} to group by", hint)
        return columns[place][1]

    def _column(self, item: exp.Expr, place: int, scope: Scope) -> Columns:
        """Return what one item of a SELECT stands for."""
        if item.is_star:
            return scope.star(item)
        inner = _inner(item)
        if isinstance(item, exp.Aliases) or any(map(is_generator, inner.walk())):
            hint = "Write it alone in the SELECT, in a subquery, or as LATERAL VIEW."
            self.errors.refuse(item, "a generator is not supported here", hint)
        resolved = scope.resolve(inner)
        name = item.alias if isinstance(item, exp.Alias) else self._own_name(inner.unnest(), scope)
        if isinstance(item, exp.Alias):
            scope.aliases.setdefault(name.lower(), resolved)
        return ((name or f"_c{place}", resolved),)

    def _own_name(self, tree: exp.Expr, scope: Scope) -> str:
        if not isinstance(tree, exp.Column | exp.Dot):
            return ""
        return scope.written(tree.name)


def _inner(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def _renamed(flow: Flow, named: exp.Expr | None, errors: ErrorReporter) -> Flow:
    """Return a flow under the names that ``AS t (a, b)`` gives to its columns."""
    names = [each.name for each in named.args.get("columns") or []] if named else []
    if not names:
        return flow
    if len(names) != len(flow.columns):
        hint = f"There are {len(flow.columns)} columns."
        errors.no_column(named, f"{len(names)} names do not fit", hint)
    columns = tuple((name, tree) for name, (_, tree) in zip(names, flow.columns, strict=True))
    return replace(flow, columns=columns)

"""Joins: a log with tables, whose rows the feed looks up for each row of the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.refusals import common_of
from millstream.sql.views.functions import has_aggregate
from millstream.sql.views.plan import Lookup
from millstream.sql.views.scope import Relation, Scope
from millstream.sql.views.trees import both

if TYPE_CHECKING:
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Flow
    from millstream.sql.views.relations import Logs

_SHAPE = "Write FROM log JOIN table ON log.a = table.b, or LEFT JOIN."
_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})

On = tuple[tuple[int, str], str]


class Joiner:
    """Takes the joins of one FROM, one after the other.

    Attributes:
        flow: the rows so far.
        scope: their names so far.
    """

    def __init__(self, flow: Flow, scope: Scope, logs: Logs, errors: ErrorReporter) -> None:
        self.flow = flow
        self.scope = scope
        self._logs = logs
        self._errors = errors

    def join(self, tree: exp.Join) -> None:
        """Take one join.

        Raises:
            SqlUnsupportedError: it is not one with a table by equality of columns.
        """
        outer = self._side(tree)
        index = self._table(tree)
        table = self._logs.flow(index)
        using = [each.name for each in tree.args.get("using") or []]
        hidden = frozenset(name.lower() for name in using)
        relation = Relation(tree.this.alias_or_name.lower(), table.columns, hidden)
        if any(each.name == relation.name for each in self.scope.relations):
            hint = "Give one of them another name: JOIN t AS u."
            self._errors.no_column(tree.this, f"{relation.name} is twice in FROM", hint)
        before = self.scope
        self.scope = Scope(self._errors, (*before.relations, relation))
        conditions = self._conditions(tree)
        on = [pair for each in conditions for pair in [self._equality(each, index)] if pair]
        rest = [each for each in conditions if not self._equality(each, index)]
        on += [self._using(tree, name, before, relation) for name in using]
        self._check(tree, on, rest, outer=outer)
        self._logs.lookups.append(Lookup(index, tuple(on), outer))
        # When the table changes, the feed takes back what it has joined.
        is_kept = not self._logs.inputs[self.flow.log].retracts
        row_lsn = "_row_lsn" if is_kept else None
        ground = replace(self.flow.ground, retracts=True, row_lsn=row_lsn)
        self.flow = replace(self.flow, ground=ground, where=both([self.flow.where, *rest]))

    def _side(self, tree: exp.Join) -> bool:
        words = {str(tree.args.get(key) or "").upper() for key in ("method", "side", "kind")}
        words -= {"", "INNER", "OUTER"}
        if words == {"LEFT"}:
            return True
        if words:
            what = f"{' '.join(sorted(words))} JOIN"
            self._errors.refuse(tree, f"{what} is not supported in a view", _SHAPE)
        if not tree.args.get("on") and not tree.args.get("using"):
            self._errors.refuse(tree, "a join without ON is not supported in a view", _SHAPE)
        return False

    def _table(self, tree: exp.Join) -> int:
        if not isinstance(tree.this, exp.Table) or common_of(tree.this) is not None:
            hint = "Join the table itself, and filter in WHERE."
            self._errors.refuse(tree, "a join with a subquery is not supported in a view", hint)
        if self.flow.groups is not None or not self.flow.ground.is_feed:
            hint = "CREATE MATERIALIZED VIEW for the left side, and join that one with the table."
            self._errors.refuse(tree, "the left side of a join must be a log", hint)
        index = self._logs.index(tree.this.name)
        if self._logs.inputs[index].kind != "table":
            hint = "Only a table can be joined: FROM log JOIN table ON ..."
            what = (
                f"a join with a {self._logs.inputs[index].kind}, {tree.this.name}, is not supported"
            )
            self._errors.refuse(tree, what, hint)
        if index == self.flow.log or any(each.table == index for each in self._logs.lookups):
            hint = "Join it in a second view."
            self._errors.refuse(tree, f"the table {tree.this.name} is read twice", hint)
        return index

    def _conditions(self, tree: exp.Join) -> list[exp.Expr]:
        on = tree.args.get("on")
        if on is None:
            return []
        if has_aggregate(on):
            self._errors.refuse(on, "an aggregate in ON is not supported", "Write it in HAVING.")
        resolved = self.scope.resolve(on, aliases=False)
        return list(resolved.flatten()) if isinstance(resolved, exp.And) else [resolved]

    def _equality(self, tree: exp.Expr, index: int) -> On | None:
        """Return the columns that a condition says are equal: of what was there, of the table."""
        tree = tree.unnest()
        if not isinstance(tree, exp.EQ):
            return None
        sides = [self._place(tree.this), self._place(tree.expression)]
        for left, right in (sides, sides[::-1]):
            if left and right and right[0] == index != left[0]:
                self._check_types(tree, left, right)
                return left, right[1]
        return None

    def _place(self, tree: exp.Expr) -> tuple[int, str] | None:
        tree = tree.unnest()
        origin = self.flow.ground.origins.get(tree.name) if isinstance(tree, exp.Column) else None
        return next(iter(origin.of.items())) if origin else None

    def _using(self, tree: exp.Join, name: str, before: Scope, relation: Relation) -> On:
        column = exp.column(name)
        left = self._place(before.resolve(column, aliases=False))
        found = relation.find(name)
        right = None if found is None else self._place(found)
        if left is None or right is None:
            self._errors.no_column(tree, f"USING ({name}) is not a column of both sides", _SHAPE)
        self._check_types(tree, left, right)
        return left, right[1]

    def _check_types(self, tree: exp.Expr, left: tuple[int, str], right: tuple[int, str]) -> None:
        types = []
        for log, name in (left, right):
            schema = self._logs.inputs[log].schema
            types.append(schema.columns[schema.names.index(name)].type)
        nested = any(each.children for each in types)
        if nested or (types[0] != types[1] and not {each.kind for each in types} <= _WHOLE):
            what = f"{left[1]} is {types[0].sql}, and {right[1]} is {types[1].sql}"
            self._errors.refuse(tree, what, "Join columns of one simple type.")

    def _check(self, tree: exp.Join, on: list[On], rest: list[exp.Expr], *, outer: bool) -> None:
        if not on:
            what = "a join needs a column of the log that equals one of the table"
            self._errors.refuse(tree, what, _SHAPE)
        if outer and rest:
            hint = "Only equality of columns may be in the ON of a LEFT JOIN."
            self._errors.refuse(rest[0], "this condition of a LEFT JOIN is not supported", hint)

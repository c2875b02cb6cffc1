"""FROM: sources, tables, views and subqueries, the joins between them, and the names they give."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SqlColumnError, SqlTypeError
from millstream.model.types import BIGINT
from millstream.sql.adhoc.draft import LSN, BoundQuery, Draft
from millstream.sql.adhoc.duckdb_types import name_text
from millstream.sql.expressions.conditions import compare
from millstream.sql.expressions.nodes import And, Call, Coalesce, ColumnRef, Node, joined
from millstream.sql.refusals import check_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from millstream.sql.adhoc.binder import RowBinder
    from millstream.sql.expressions.bind import Binder
    from millstream.sql.inputs import Input


Found = tuple[Node, list[str]]
"""What a name stands for, and the names of fields that follow it."""


@dataclass(slots=True)
class FromItem:
    """One part of FROM.

    Attributes:
        name: what the query calls it; empty when it has no name.
        columns: what it has.
        input: what is known of it when it is a source, table or view itself.
        lsn: its column of LSNs, if it is such.
    """

    name: str
    columns: list[ColumnRef]
    input: Input | None = None
    lsn: ColumnRef | None = None


@dataclass(slots=True)
class FromScope:
    """The parts of a FROM, in order.

    Attributes:
        items: the parts.
        merged: columns that USING made one of two.
        hidden: columns that ``*`` leaves out, as a merged one stands for them.
    """

    items: list[FromItem] = field(default_factory=list)
    merged: dict[str, tuple[str, Node]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)

    def find(self, binder: Binder, tree: exp.Expr, parts: Sequence[str]) -> Found | None:
        """Return what a dotted name stands for; None when it is not of this scope."""
        names = [each.lower() for each in parts]
        if len(names) > 1:
            columns = [
                column
                for relation in self.items
                if relation.name == names[0]
                for column in relation.columns
                if column.name.lower() == names[1]
            ]
            if columns:
                return self._only(binder, tree, columns), list(parts[2:])
        nodes = [node for name, node in self.star() if name.lower() == names[0]]
        return (self._only(binder, tree, nodes), list(parts[1:])) if nodes else None

    @property
    def columns(self) -> list[ColumnRef]:
        """All columns."""
        return [column for relation in self.items for column in relation.columns]

    def star(self) -> list[tuple[str, Node]]:
        """Return what ``*`` stands for: merged columns first, each once."""
        rest = [(each.name, each) for each in self.columns if each.index not in self.hidden]
        return [*self.merged.values(), *rest]

    def star_of(self, name: str) -> list[tuple[str, Node]] | None:
        """Return what ``name.*`` stands for; None when nothing has that name."""
        found = [each for each in self.items if each.name == name.lower()]
        return [(each.name, each) for each in found[0].columns] if found else None

    def _only(self, binder: Binder, tree: exp.Expr, found: Sequence[Node]) -> Node:
        if len(found) > 1:
            binder.error(
                SqlColumnError,
                tree,
                f"{tree.name} is a column of several tables",
                f"Write which one: t.{tree.name}.",
            )
        return found[0]

    def hint(self, parts: Sequence[str]) -> str:
        """Return what may have been meant by a name that is not there."""
        names = list(dict.fromkeys(column.name for column in self.columns))
        folded = {each.lower(): each for each in names}
        near = difflib.get_close_matches(parts[-1].lower(), folded, n=1)
        if near:
            return f"Did you mean {folded[near[0]]}?"
        return f"Available columns: {', '.join(names)}." if names else "Name what to select from."


# --- Reading FROM ---------------------------------------------------------------------------------

_JOINS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "CROSS JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
    ("", "ANTI"): "ANTI JOIN",
}


_MOST_ROWS = 100
"""Of VALUES in FROM; more are read by Spark."""


def _is_plain(tree: exp.Values) -> bool:
    """Whether VALUES has few rows, and each value has a type of its own."""
    values = [part for row in tree.expressions for part in (row.expressions or [row])]
    has_null = any(isinstance(each.unnest(), exp.Null) for each in values)
    return len(tree.expressions) <= _MOST_ROWS and not has_null


def _as_union(tree: exp.Values) -> exp.Query:
    """Return VALUES as SELECTs with UNION ALL between them; its columns are col1, col2, ..."""
    selects: list[exp.Query] = []
    for row in tree.expressions:
        given = row.expressions if isinstance(row, exp.Tuple) else [row.unnest()]
        items = [exp.alias_(each.copy(), f"col{n}") for n, each in enumerate(given, 1)]
        selects.append(exp.Select(expressions=items))
    return reduce(lambda one, two: exp.Union(this=one, expression=two, distinct=False), selects)


class FromClause:
    """Reads the FROM of one SELECT.

    Args:
        rows: the binder of the SELECT, whose scope is filled.
        query: binds a subquery in FROM.
    """

    def __init__(self, rows: RowBinder, query: Callable[[exp.Expr], BoundQuery]) -> None:
        self._rows = rows
        self._draft: Draft = rows.draft
        self._scope: FromScope = rows.scope
        self._query = query

    def read(self, tree: exp.Select) -> str:
        """Return what follows FROM; empty when there is none."""
        start = tree.args.get("from_")
        if start is None:
            return ""
        relation, text = self._relation(start.this)
        self._scope.items.append(relation)
        for each in (*(start.this.args.get("joins") or ()), *(tree.args.get("joins") or ())):
            text = self._join(text, each)
        return text

    # --- One part ---------------------------------------------------------------------------------

    def _relation(self, tree: exp.Expr) -> tuple[FromItem, str]:
        if isinstance(tree, exp.Table):
            check_parts(tree, {"this", "alias", "joins"}, "FROM", self._rows.sql)
            if not isinstance(tree.this, exp.Identifier):
                self._rows.refuse(
                    tree, "a function in FROM is not supported", "Name a source, table or view."
                )
            name = tree.name
            ctes = self._rows.ctes.get(name.lower())
            if ctes is None:
                return self._stored(tree, name)
            return self._derived(tree, ctes, ctes.sql, name)
        if isinstance(tree, exp.Subquery):
            check_parts(tree, {"this", "alias", "joins"}, "FROM", self._rows.sql)
            bound = self._query(tree.this)
            return self._derived(tree, bound, f"({bound.sql})", "")
        if isinstance(tree, exp.Values) and _is_plain(tree):
            bound = self._query(_as_union(tree))
            return self._derived(tree, bound, f"({bound.sql})", "")
        return self._rows.refuse(
            tree,
            "this is not allowed in FROM",
            "Name a table, or write (SELECT ...).",
        )

    def _stored(self, tree: exp.Expr, name: str) -> tuple[FromItem, str]:
        known, alias = self._draft.find(name), self._draft.alias()
        table = known.name
        self._draft.reads.setdefault(table, {})
        self._draft.scans[table] = self._draft.scans.get(table, 0) + 1
        columns = [
            self._draft.stored(table, alias, each.name, each.type, nullable=each.nullable)
            for each in known.schema.columns
        ]
        lsn = self._draft.stored(table, alias, LSN, BIGINT, nullable=False)
        relation = FromItem(_name_of(tree, name), self._renamed(tree, columns), known, lsn)
        self._draft.named.add(relation.name)
        return relation, f"{name_text(table)} AS {alias}"

    def _derived(
        self, tree: exp.Expr, bound: BoundQuery, source: str, name: str
    ) -> tuple[FromItem, str]:
        alias = self._draft.alias()
        columns = [
            self._draft.column(each.name, each.type, f"{alias}.c{place}", nullable=each.nullable)
            for place, each in enumerate(bound.columns)
        ]
        return FromItem(_name_of(tree, name), self._renamed(tree, columns)), f"{source} AS {alias}"

    def _renamed(self, tree: exp.Expr, columns: Sequence[ColumnRef]) -> list[ColumnRef]:
        alias = tree.args.get("alias")
        names = [each.name for each in alias.args.get("columns") or ()] if alias else []
        if not names:
            return list(columns)
        if len(names) != len(columns):
            self._rows.error(
                SqlTypeError,
                tree,
                f"{len(names)} names for {len(columns)} columns",
                "Give each column one name.",
            )
        return [
            ColumnRef(each.index, name, each.type, each.nullable)
            for each, name in zip(columns, names, strict=True)
        ]

    # --- Joins ------------------------------------------------------------------------------------

    def _join(self, left: str, tree: exp.Join) -> str:
        if tree.method == "ASOF":
            what, hint = "ASOF JOIN is not supported in an ad-hoc query", "Create a view of it."
            self._rows.refuse(tree, what, hint)
        check_parts(tree, {"this", "side", "kind", "on", "using"}, "a join", self._rows.sql)
        side, kind = (str(tree.args.get(each) or "").upper() for each in ("side", "kind"))
        join = _JOINS.get((side, kind))
        if join is None:
            self._rows.refuse(
                tree, f"{side} {kind} JOIN is not supported", "Use INNER, LEFT, RIGHT or FULL."
            )
        before = self._scope.columns
        relation, text = self._relation(tree.this)
        if tree.this.args.get("joins"):
            self._rows.refuse(
                tree, "a join in parentheses is not supported", "Write joins one after the other."
            )
        self._scope.items.append(relation)
        condition = self._condition(tree, relation, before, join)
        if join in {"SEMI JOIN", "ANTI JOIN"}:
            self._scope.items.pop()
        if join in {"LEFT JOIN", "FULL JOIN"}:
            self._open(relation.columns)
        if join in {"RIGHT JOIN", "FULL JOIN"}:
            self._open(before)
        if condition is None:
            return f"{left} CROSS JOIN {text}"
        return f"{left} {join.removeprefix('CROSS ')} {text} ON {condition}"

    def _condition(
        self, tree: exp.Join, relation: FromItem, before: Sequence[ColumnRef], join: str
    ) -> str | None:
        names = [each.name for each in tree.args.get("using") or ()]
        if names:
            pairs = [self._using(tree, relation, before, name, join) for name in names]
            return self._draft.form.condition(joined(And, pairs))
        on = tree.args.get("on")
        if on is not None:
            return self._draft.form.condition(self._rows.bind_boolean(on))
        if join not in {"JOIN", "CROSS JOIN"}:
            self._rows.refuse(tree, f"{join} needs ON", "Write ON a.x = b.x, or USING (x).")
        return None

    def _using(
        self, tree: exp.Join, relation: FromItem, before: Sequence[ColumnRef], name: str, join: str
    ) -> Node:
        """Return the equality of a column that both sides have, which becomes one column."""
        parted = FromScope([FromItem("", list(before))], self._scope.merged, self._scope.hidden)
        there = FromScope([relation])
        found = [each.find(self._rows, tree, [name]) for each in (parted, there)]
        if found[0] is None or found[1] is None:
            self._rows.mismatch(tree, f"{name} is not a column of both sides", "Write ON instead.")
        left, right = found[0][0], found[1][0]
        for each in (left, right):
            if isinstance(each, ColumnRef):
                self._draft.use(each)
                self._scope.hidden.add(each.index)
        if join not in {"SEMI JOIN", "ANTI JOIN"}:
            merged = {"RIGHT JOIN": right, "FULL JOIN": self._merged(tree, left, right)}
            self._scope.merged[name.lower()] = (name, merged.get(join, left))
        else:
            self._scope.hidden.discard(left.index if isinstance(left, ColumnRef) else -1)
        return compare(self._rows, tree, "=", left, right)

    def _merged(self, tree: exp.Expr, left: Node, right: Node) -> Node:
        of = self._rows.common(tree, [left, right])
        sides = tuple(self._rows.coerce(tree, each, of) for each in (left, right))
        return Coalesce(sides, of)

    def _open(self, columns: Sequence[ColumnRef]) -> None:
        """Make columns nullable, as a row without a match has NULLs in them."""
        changed = {each.index: each for each in columns}
        for relation in self._scope.items:
            relation.columns = [
                ColumnRef(each.index, each.name, each.type, nullable=True)
                if each.index in changed
                else each
                for each in relation.columns
            ]
        for name, (shown, node) in self._scope.merged.items():
            self._scope.merged[name] = (shown, _opened(node, changed))


def _opened(node: Node, changed: Container[int]) -> Node:
    """Return a merged column as one that can be NULL where its parts can."""
    if isinstance(node, ColumnRef):
        nullable = node.nullable or node.index in changed
        return ColumnRef(node.index, node.name, node.type, nullable)
    if isinstance(node, Coalesce):
        return Coalesce(tuple(_opened(each, changed) for each in node.args), node.type)
    if isinstance(node, Call):
        return Call(node.op, tuple(_opened(each, changed) for each in node.args), node.type)
    return node


def _name_of(tree: exp.Expr, name: str) -> str:
    alias = tree.args.get("alias")
    return (alias.name if alias is not None and alias.name else name).lower()

"""The plan of an ad-hoc query: WITH, UNION and its kin, and the columns of the result."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import Error, SqlColumnError, SqlUnsupportedError
from millstream.model.names import unique_names
from millstream.model.schema import Column, Schema
from millstream.sql.adhoc.binder import RowBinder
from millstream.sql.adhoc.draft import BoundQuery, Draft, OutputColumn
from millstream.sql.adhoc.from_clause import FromScope
from millstream.sql.adhoc.select import bind_select, ordered_rows
from millstream.sql.expressions.conditions import comparable
from millstream.sql.refusals import check_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.adhoc.to_duckdb import Kernel
    from millstream.sql.inputs import Input
    from millstream.sql.statements.statement import Query


_SET_PARTS = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}


@dataclass(frozen=True, slots=True)
class AdhocPlan:
    """An ad-hoc query in DuckDB's SQL, with what it reads and gives.

    Attributes:
        sql: DuckDB's SQL; its columns are called c0, c1 and so on.
        tables: the sources, tables and views that it reads, as the catalog writes them.
        columns: of each of these, the columns that are needed, ``_lsn`` perhaps among them.
        scans: how often it reads each of these.
        schema: the columns of the result; a second one of a name gets a number behind it.
        names: what the query calls them.
        kernels: the functions that DuckDB must be given.
    """

    sql: str
    tables: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    scans: Mapping[str, int]
    schema: Schema
    names: tuple[str, ...]
    kernels: tuple[Kernel, ...]


def plan_adhoc(query: Query, inputs: Callable[[str], Input]) -> AdhocPlan:
    """Return the plan of a query.

    Args:
        query: the statement.
        inputs: returns what is known of a source, table or view; raises when there is none.

    Raises:
        SqlColumnError: a column or a function that is not there.
        SqlTypeError: types without a common one.
        SqlUnsupportedError: something that cannot be answered exactly.
    """
    if query.emit is not None:
        raise SqlUnsupportedError(
            "EMIT is for views and subscriptions: an ad-hoc query has no changes to emit",
            sql=query.sql,
            line=query.emit.line,
            column=query.emit.column,
            hint="Leave EMIT out, or subscribe to the query.",
        )
    queries = _Queries(query.sql, inputs)
    draft = queries.draft
    bound = queries.bind(query.tree, {}, None)
    ctes = ", ".join(f"{name} AS ({text})" for name, text in draft.ctes)
    tables = tuple(draft.reads)
    return AdhocPlan(
        f"WITH {ctes} {bound.sql}" if ctes else bound.sql,
        tables,
        MappingProxyType({name: tuple(draft.reads[name]) for name in tables}),
        MappingProxyType(draft.scans),
        _schema(bound.columns, query),
        tuple(each.name for each in bound.columns),
        tuple(draft.form.kernels.values()),
    )


def _schema(columns: Sequence[OutputColumn], query: Query) -> Schema:
    names = unique_names([each.name for each in columns])
    try:
        pairs = zip(names, columns, strict=True)
        return Schema(tuple(Column(name, e.type, nullable=e.nullable) for name, e in pairs))
    except Error as error:
        raise SqlColumnError(
            error.message, sql=query.sql, line=query.line, column=query.column, hint=error.hint
        ) from error


class _Queries:
    """Binds queries and the queries inside of them."""

    def __init__(self, sql: str, find: Callable[[str], Input]) -> None:
        self.draft = Draft(sql, find, lambda tree, outer: self.bind(tree, outer.ctes, outer))
        self._plain = RowBinder(self.draft, FromScope(), {})

    def bind(
        self, tree: exp.Expr, ctes: Mapping[str, BoundQuery], outer: RowBinder | None
    ) -> BoundQuery:
        """Return a query in DuckDB's SQL, with its columns."""
        if isinstance(tree, exp.Subquery):
            check_parts(tree, {"this"}, "a query in parentheses", self._plain.sql)
            return self.bind(tree.this, ctes, outer)
        ctes = self._with(tree, ctes)
        if isinstance(tree, exp.SetOperation):
            return self._set(tree, ctes, outer)
        if isinstance(tree, exp.Select):
            return bind_select(self.draft, tree, ctes, outer, self.bind)
        return self._plain.refuse(tree, "this is not a query", "Write SELECT ... FROM ...")

    def _with(self, tree: exp.Expr, ctes: Mapping[str, BoundQuery]) -> Mapping[str, BoundQuery]:
        """Return the queries of WITH by name, with those that a query adds."""
        part = tree.args.get("with_")
        if part is None:
            return ctes
        check_parts(part, {"expressions"}, "WITH", self._plain.sql)
        known = dict(ctes)
        for each in part.expressions:
            check_parts(each, {"this", "alias"}, "WITH", self._plain.sql)
            bound = self.bind(each.this, known, None)
            # A name that no source, table or view can have.
            name = f'"with {len(self.draft.ctes)}"'
            self.draft.ctes.append((name, bound.sql))
            known[each.alias.lower()] = BoundQuery(name, self._renamed(each, bound.columns))
        return known

    def _renamed(
        self, tree: exp.Expr, columns: tuple[OutputColumn, ...]
    ) -> tuple[OutputColumn, ...]:
        names = [each.name for each in tree.args["alias"].args.get("columns") or ()]
        if not names:
            return columns
        if len(names) != len(columns):
            message = f"{len(names)} names for {len(columns)} columns"
            self._plain.mismatch(tree, message, "Give each column one name.")
        return tuple(
            OutputColumn(name, each.type, each.nullable)
            for name, each in zip(names, columns, strict=True)
        )

    # --- UNION and its kin ------------------------------------------------------------------------

    def _set(
        self, tree: exp.SetOperation, ctes: Mapping[str, BoundQuery], outer: RowBinder | None
    ) -> BoundQuery:
        check_parts(tree, _SET_PARTS, tree.key.upper(), self._plain.sql)
        left, right = (self.bind(each, ctes, outer) for each in (tree.this, tree.expression))
        if len(left.columns) != len(right.columns):
            message = f"{len(left.columns)} and {len(right.columns)} columns cannot be put together"
            self._plain.mismatch(tree.expression, message, "Select as many on both sides.")
        keyed = not isinstance(tree, exp.Union) or bool(tree.args.get("distinct"))
        columns = self._common(tree.expression, left, right, keyed=keyed)
        sides = [self._as(tree, each, columns, keyed=keyed) for each in (left, right)]
        word = f"{tree.key.upper()}{'' if tree.args.get('distinct') else ' ALL'}"
        bound = BoundQuery(f"({sides[0]}) {word} ({sides[1]})", columns)
        return ordered_rows(self.draft, tree, bound, ctes)

    def _common(
        self, tree: exp.Expr, left: BoundQuery, right: BoundQuery, *, keyed: bool
    ) -> tuple[OutputColumn, ...]:
        columns = []
        for one, two in zip(left.columns, right.columns, strict=True):
            nodes = [self.draft.column("", each.type, "") for each in (one, two)]
            find = comparable if keyed else RowBinder.common
            of = find(self._plain, tree, nodes)  # type: ignore[arg-type]
            columns.append(OutputColumn(one.name, of, one.nullable or two.nullable))
        return tuple(columns)

    def _as(
        self, tree: exp.Expr, side: BoundQuery, columns: Sequence[OutputColumn], *, keyed: bool
    ) -> str:
        """Return a side with its columns brought to the types that both sides have."""
        alias = self.draft.alias()
        write = self.draft.key_text if keyed else self.draft.text
        texts = []
        for place, (own, made) in enumerate(zip(side.columns, columns, strict=True)):
            node = self.draft.column("", own.type, f"{alias}.c{place}")
            text = write(self._plain.coerce(tree, node, made.type))
            texts.append(f"{text} AS c{place}")
        return f"SELECT {', '.join(texts)} FROM ({side.sql}) AS {alias}"  # noqa: S608 - all bound

"""Binding: names become columns, operands get a common type, and what is not exact is refused."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow.compute as pc
from sqlglot import exp

from millstream.errors import SqlColumnError, SqlError, SqlTypeError, SqlUnsupportedError
from millstream.model.names import quote_name
from millstream.model.types import BOOLEAN, VARCHAR
from millstream.sql.dialect import Millstream
from millstream.sql.expressions import functions, kernels
from millstream.sql.expressions.casts import cast
from millstream.sql.expressions.fold import call
from millstream.sql.expressions.literals import text_as
from millstream.sql.expressions.nodes import (
    NULL_TYPE,
    ColumnRef,
    Literal,
    Node,
    Op,
)
from millstream.sql.expressions.type_rules import common_type, is_number
from millstream.sql.positions import place_of, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.schema import Schema
    from millstream.model.types import SqlType


def bind(
    expression: exp.Expr, schema: Schema | None, *, sql: str = "", alias: str | None = None
) -> Node:
    """Return the typed expression of a tree over the columns of a schema.

    Args:
        expression: sqlglot's tree.
        schema: the columns that it may name; None when it may name none.
        sql: the text that the tree is of, for errors.
        alias: the name that columns may be qualified with.

    Raises:
        SqlColumnError: a column or a function that is not there.
        SqlTypeError: types without a common one.
        SqlUnsupportedError: something that cannot be answered exactly.
    """
    return Binder(schema, sql, alias).bind(expression)


def columns_of(schema: Schema) -> list[ColumnRef]:
    """Return a node for each column of a schema."""
    return [
        ColumnRef(place, column.name, column.type, column.nullable)
        for place, column in enumerate(schema.columns)
    ]


class Binder:
    """Binds the parts of one expression, and raises errors at their places in the text.

    Args:
        schema: the columns that may be named; None when none may.
        sql: the text that the trees are of, for errors.
        alias: the name that columns may be qualified with.
    """

    def __init__(self, schema: Schema | None, sql: str, alias: str | None) -> None:
        self.sql = sql
        self._depth = 0
        self._around: exp.Expr | None = None  # what is being bound
        self._alias = alias.lower() if alias else None
        columns = columns_of(schema) if schema else []
        self._columns = {column.name.lower(): column for column in columns}

    def bind(self, tree: exp.Expr | None) -> Node:
        """Return the node of a tree; None stands for an argument that was not written."""
        if tree is None:
            around = self._around or exp.Null()
            self.mismatch(around, "an argument is missing", "Write all arguments of the function.")
        odd = [name for name in _REFUSED if tree.args.get(name)]
        if odd:
            self.refuse(
                tree,
                f"this form of {self.describe(tree)} is not supported",
                "Leave out the arguments, or the words, that it does not take.",
            )
        if self._depth > _DEEPEST:
            self.refuse(tree, "the expression is nested too deep", "Split it into several columns.")
        bind = _BINDERS.get(type(tree))
        if not functions.is_admitted(tree) or (bind is None and isinstance(tree, exp.Func)):
            bind = functions.refusal(tree)
        if bind is None:
            what = f"{self.describe(tree)} is not supported here"
            self.refuse(tree, what, "Rewrite the expression without it.")
        self._depth += 1
        outer, self._around = self._around, tree
        node = bind(self, tree)
        self._around = outer
        self._depth -= 1
        return node

    def bind_boolean(self, tree: exp.Expr) -> Node:
        """Return the node of a tree that must be a condition."""
        node = self.bind(tree)
        if node.type.kind == "NULL":
            return Literal(None, BOOLEAN)
        if node.type != BOOLEAN:
            self.mismatch(
                tree, f"expected a condition, got {node.type.sql}", "Compare it with something."
            )
        return node

    def coerce(self, tree: exp.Expr, node: Node, target: SqlType) -> Node:
        """Return a node converted to the target type, as Spark does implicitly."""
        if isinstance(node, Literal) and node.type == VARCHAR and target != VARCHAR:
            node = text_as(self, tree, node, target)
        made = cast(node, target)
        if made is None:
            self.mismatch(
                tree,
                f"cannot convert {node.type.sql} to {target.sql} exactly",
                f"Write CAST(... AS {target.sql}) to convert it all the same, or use another type.",
            )
        return made

    def common(self, tree: exp.Expr, nodes: Sequence[Node], *, compared: bool = False) -> SqlType:
        """Return the type that several nodes are brought to; text literals follow the others."""
        texts = {id(each) for each in nodes if isinstance(each, Literal) and each.type == VARCHAR}
        of = common_type(each.type for each in nodes if id(each) not in texts)
        if of is None or of == VARCHAR or of.kind not in {"DATE", "TIMESTAMP"}:
            types = [each.type for each in nodes]
            if all(each.kind == "NULL" for each in types):
                return NULL_TYPE
            of = common_type(types)
        if of is None:
            names = list(dict.fromkeys(each.type.sql for each in nodes))
            message = f"{' and '.join(names)} have no common type"
            if compared:
                message = f"cannot compare {' with '.join(names)}"
            if all(is_number(each.type) or each.type.kind == "NULL" for each in nodes):
                # Spark rounds decimals to a type that holds less than both.
                self.refuse(tree, f"{message} in a query in process", "CAST one of them.")
            self.mismatch(tree, message, "CAST one to the type of the other.")
        return of

    # --- Errors -----------------------------------------------------------------------------------

    def describe(self, tree: exp.Expr) -> str:
        """Return what a tree is called in a message."""
        return words_of(tree, self.sql, Millstream)

    def error(self, kind: type[SqlError], tree: exp.Expr, message: str, hint: str) -> NoReturn:
        """Raise an error at the place of a tree."""
        line, column = place_of(tree, self.sql) if self.sql else (0, 0)
        raise kind(message, sql=self.sql, line=line, column=column, hint=hint)

    def refuse(self, tree: exp.Expr, message: str, hint: str) -> NoReturn:
        """Raise the error of what cannot be answered exactly."""
        self.error(SqlUnsupportedError, tree, message, hint)

    def mismatch(self, tree: exp.Expr, message: str, hint: str) -> NoReturn:
        """Raise the error of a type that is not allowed at the place of a tree."""
        self.error(SqlTypeError, tree, message, hint)

    # --- Columns ---------------------------------------------------------------------------------

    def column(self, tree: exp.Column) -> Node:
        """Bind a column, perhaps behind the name of its table, perhaps with fields of it."""
        parts = [each.name for each in tree.parts]
        if isinstance(tree.this, exp.Star):
            self.refuse(tree, "* is not allowed here", "Name the columns.")
        if len(parts) > 1 and parts[0].lower() == self._alias:
            parts = parts[1:]
        node = self._columns.get(parts[0].lower())
        if node is None:
            self._no_column(tree, parts)
        found: Node = node
        for name in parts[1:]:
            found = struct_field(self, tree, found, name)
        return found

    def is_whole(self, tree: exp.Expr) -> bool:
        """Whether a star stands for all columns; else it stands for the fields of a STRUCT.

        Raises:
            SqlColumnError: what is named before it is not there.
        """
        star = tree.this if isinstance(tree, exp.Column) else tree
        if not isinstance(star, exp.Star):
            return False
        if any(star.args.values()):
            self.refuse(tree, "only * and t.* are supported", "Name the columns.")
        names = [each.name for each in tree.parts[:-1]] if isinstance(tree, exp.Column) else []
        if not names or [each.lower() for each in names] == [self._alias]:
            return True
        if names[0].lower() not in {*self._columns, self._alias}:
            hint = f"What is selected from is called {self._alias} here."
            self.error(SqlColumnError, tree, f"there is no table or alias {names[0]}", hint)
        return False

    def _no_column(self, tree: exp.Expr, parts: Sequence[str]) -> NoReturn:
        name = parts[0]
        if not self._columns:
            self.error(
                SqlColumnError,
                tree,
                f"{name} cannot be used here: only constants can",
                "A text is written in single quotes: '...'.",
            )
        if len(parts) > 1 and self._alias and parts[1].lower() in self._columns:
            hint = f"What is selected from is called {self._alias} here."
            self.error(SqlColumnError, tree, f"there is no table or alias {name}", hint)
        near = difflib.get_close_matches(name.lower(), self._columns, n=1)
        names = ", ".join(each.name for each in self._columns.values())
        hint = (
            f"Did you mean {self._columns[near[0]].name}?"
            if near
            else f"Available columns: {names}."
        )
        self.error(SqlColumnError, tree, f"there is no column {name}", hint)


# --- Fields of STRUCT, elements of ARRAY and MAP --------------------------------------------------


def struct_of_star(tree: exp.Expr) -> exp.Expr | None:
    """Return what stands before ``.*``: ``s`` of ``s.*``, ``(s).y`` of ``(s).y.*``; None: nothing.

    >>> from sqlglot import parse_one
    >>> struct_of_star(parse_one("SELECT t.s.* FROM t").expressions[0]).sql()
    't.s'
    """
    if isinstance(tree, exp.Dot):
        inner: exp.Expr = tree.this
        return inner
    parts = [each.copy() for each in tree.parts[:-1]] if isinstance(tree, exp.Column) else []
    if not parts:
        return None
    return exp.Column(**dict(zip(("this", "table", "db"), reversed(parts), strict=False)))


def struct_star(binder: Binder, tree: exp.Expr) -> list[tuple[str, Node]]:
    """Return the fields of a STRUCT, for ``s.*``."""
    inner = struct_of_star(tree)
    if inner is None:
        binder.refuse(tree, "only * and t.* are supported", "Name the columns.")
    node = binder.bind(inner)
    if node.type.kind != "STRUCT":
        what = f"{binder.describe(inner)} is {node.type.sql}, and has no fields"
        binder.mismatch(tree, what, "Write .* after a table, or after a STRUCT.")
    return [(name, struct_field(binder, tree, node, name)) for name in node.type.names]


def struct_field(binder: Binder, tree: exp.Expr, node: Node, name: str) -> Node:
    """Return a field of a STRUCT."""
    if node.type.kind != "STRUCT":
        binder.mismatch(tree, f"{node.sql} is {node.type.sql}, and has no fields", "Leave it out.")
    names = [each.lower() for each in node.type.names]
    if name.lower() not in names:
        _no_field(binder, tree, node, name)
    place = names.index(name.lower())
    exact, of = node.type.names[place], node.type.children[place]
    op = Op(
        f"FIELD {exact!r}",
        "{0}." + quote_name(exact).replace("{", "{{").replace("}", "}}"),
        "{0}[{p0}]",
        lambda value: pc.struct_field(value, [place]),
        params=(exact,),
        partial=True,
    )
    return call(op, node, of=of)


def _dot(binder: Binder, tree: exp.Dot) -> Node:
    if not isinstance(tree.expression, exp.Identifier):
        binder.refuse(tree, "only a field can follow a dot", "Write column.field.")
    return struct_field(binder, tree, binder.bind(tree.this), tree.expression.name)


def _bracket(binder: Binder, tree: exp.Bracket) -> Node:
    if len(tree.expressions) != 1 or tree.args.get("offset") or tree.args.get("safe"):
        binder.refuse(tree, "this subscript is not supported", "Write a[0], or m['key'].")
    node, key = binder.bind(tree.this), binder.bind(tree.expressions[0])
    if node.type.kind == "ARRAY" and key.type.kind in {"TINYINT", "SMALLINT", "INTEGER"}:
        form = "element({0}, {1})"
        op = Op("ELEMENT", "{0}[{1}]", form, kernels.element, raises=True, partial=True)
        return call(op, node, key, of=node.type.children[0])
    if node.type.kind == "MAP" and node.type.children[0].kind not in {"REAL", "DOUBLE"}:
        key = binder.coerce(tree.expressions[0], key, node.type.children[0])
        op = Op("ENTRY", "{0}[{1}]", "{0}.get({1})", partial=True)
        return call(op, node, key, of=node.type.children[1])
    return binder.mismatch(
        tree,
        f"cannot subscript {node.type.sql} with {key.type.sql}",
        "An ARRAY takes an INTEGER, a MAP a key of its type that is no float.",
    )


def _no_field(binder: Binder, tree: exp.Expr, node: Node, name: str) -> NoReturn:
    near = difflib.get_close_matches(name, node.type.names, n=1)
    names = ", ".join(node.type.names)
    hint = f"Did you mean {near[0]}?" if near else f"Available fields: {names}."
    binder.error(SqlColumnError, tree, f"there is no field {name} in {node.sql}", hint)


_DEEPEST = 60
"""How deep expressions may be nested: Python takes no more than 200 parentheses, we need three."""

_REFUSED = (
    *("binary", "collation", "encoding", "json_scope", "symmetric", "truncate", "zone"),
    *("zero_start", "negative_length_returns_null", "decimals_truncate"),
)
"""What sqlglot keeps beside the operands; to pass over it would change the meaning."""

_BINDERS: dict[type, Callable[[Binder, Any], Node]] = {
    exp.Column: Binder.column,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Paren: lambda self, tree: self.bind(tree.this),
    **functions.BINDERS,
}

"""An aggregate while it is bound: its arguments, and what is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.model.types import DOUBLE
from millstream.sql.expressions.nodes import Choice, Literal, Node
from millstream.sql.expressions.type_rules import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.types import SqlType
    from millstream.sql.adhoc.binder import RowBinder

AggregateTree = Any
"""One of sqlglot's trees of an aggregate, of the class that has the parts that are read of it."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands behind an aggregate: the conditions of FILTER, and OVER."""

    conditions: tuple[str, ...] = ()
    over: str = ""

    def where(self, condition: str) -> Tail:
        """Return a tail with one condition more."""
        return Tail((*self.conditions, condition), self.over)

    def __str__(self) -> str:
        kept = f" FILTER (WHERE {' AND '.join(self.conditions)})" if self.conditions else ""
        return kept + self.over


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate that is bound.

    Attributes:
        write: returns its text, with a tail behind each of its functions.
        type: the type of the result.
        nullable: whether it can be NULL.
        ordered: whether it looks at rows in an order of its own, which no OVER can have.
    """

    write: Callable[[Tail], str]
    type: SqlType
    nullable: bool = True
    ordered: bool = False


class Parts:
    """The parts of one aggregate, bound when asked for."""

    def __init__(
        self, rows: RowBinder, tree: AggregateTree, when: Node | None, *, skips_nulls: bool
    ) -> None:
        self.rows = rows
        self.tree = tree
        self.when = when
        self.skips_nulls = skips_nulls
        self.draft = rows.draft

    @property
    def args(self) -> list[exp.Expr]:
        """The arguments, without DISTINCT."""
        this = self.tree.this
        if isinstance(self.tree, exp.Anonymous):
            return list(self.tree.expressions)
        if isinstance(this, exp.Distinct):
            return list(this.expressions)
        more = [self.tree.args.get("expression"), *self.tree.expressions]
        return [each for each in (this, *more) if each is not None]

    @property
    def distinct(self) -> str:
        """DISTINCT, if it was written."""
        return "DISTINCT " if isinstance(self.tree.this, exp.Distinct) else ""

    def node(self, tree: exp.Expr) -> Node:
        """Bind an argument; where FILTER leaves a row out, it is not evaluated."""
        node = self.rows.bind(tree)
        if node.type.kind == "NULL":
            self.rows.refuse(tree, "NULL has no type here", "Write CAST(NULL AS INT).")
        if self.when is not None and node.raises:
            return Choice(((self.when, node),), Literal(None, node.type), node.type)
        return node

    def one(self) -> Node:
        """Bind the only argument."""
        if len(self.args) != 1:
            self.rows.mismatch(
                self.tree,
                f"{name_of(self.rows, self.tree)} takes one argument here",
                "Check the number of arguments.",
            )
        return self.node(self.args[0])

    def number(self) -> Node:
        """Bind the only argument, a number."""
        node = self.one()
        if not is_number(node.type):
            message = f"expected a number, got {node.type.sql}"
            self.rows.mismatch(self.args[0], message, "CAST it to a number.")
        return node

    def double(self) -> Node:
        """Bind the only argument as a DOUBLE."""
        return self.rows.coerce(self.tree, self.number(), DOUBLE)

    def text(self, node: Node) -> str:
        """Return the text of an argument; of a DISTINCT one, as a key."""
        return self.draft.key_text(node) if self.distinct else self.draft.text(node)

    def simple(self, name: str, node: Node, of: SqlType) -> Aggregate:
        """Return an aggregate that DuckDB has as it is."""
        return Aggregate(lambda tail: f"{name}({self.distinct}{self.text(node)}){tail}", of)


def name_of(rows: RowBinder, function: AggregateTree) -> str:
    """Return the name of an aggregate as it was written, for people."""
    return rows.words(function)

"""Scopes: the columns that a SELECT can name, by the parts of its FROM."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import SqlColumnError
from millstream.sql.expressions.nodes import ColumnRef, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from millstream.sql.expressions.bind import Binder
    from millstream.sql.inputs import Input

Found = tuple[Node, list[str]]
"""What a name stands for, and the names of fields that follow it."""


@dataclass(slots=True)
class Relation:
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
class Scope:
    """The parts of a FROM, in order.

    Attributes:
        relations: the parts.
        merged: columns that USING made one of two.
        hidden: columns that ``*`` leaves out, as a merged one stands for them.
    """

    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, tuple[str, Node]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)

    def find(self, binder: Binder, tree: exp.Expr, parts: Sequence[str]) -> Found | None:
        """Return what a dotted name stands for; None when it is not of this scope."""
        names = [each.lower() for each in parts]
        if len(names) > 1:
            columns = [
                column
                for relation in self.relations
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
        return [column for relation in self.relations for column in relation.columns]

    def star(self) -> list[tuple[str, Node]]:
        """Return what ``*`` stands for: merged columns first, each once."""
        rest = [(each.name, each) for each in self.columns if each.index not in self.hidden]
        return [*self.merged.values(), *rest]

    def star_of(self, name: str) -> list[tuple[str, Node]] | None:
        """Return what ``name.*`` stands for; None when nothing has that name."""
        found = [each for each in self.relations if each.name == name.lower()]
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

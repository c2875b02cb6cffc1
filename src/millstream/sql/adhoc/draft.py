"""The draft of a plan: what is gathered while the parts of one query are bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sql.adhoc.duckdb_types import name_text
from millstream.sql.adhoc.to_duckdb import DuckDBForm
from millstream.sql.expressions.nodes import ColumnRef, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

    from millstream.model.types import SqlType
    from millstream.sql.adhoc.binder import RowBinder
    from millstream.sql.inputs import Input


LSN = "_lsn"
"""The column of a relation that holds each row's place in the log."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column that a query gives; in its SQL it is called by its place, ``c0``."""

    name: str
    type: SqlType
    nullable: bool


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query that is ready: its SQL and the columns of its rows."""

    sql: str
    columns: tuple[OutputColumn, ...]


class Draft:
    """Gathers the columns with their texts, unique aliases, and what the query reads.

    Args:
        sql: the text that the trees are of, for errors.
        find: returns what is known of a source, table or view.
        subquery: binds a query inside of an expression, whose columns it may use.

    Attributes:
        named: what all parts of FROM are called that were read so far.
    """

    def __init__(
        self,
        sql: str,
        find: Callable[[str], Input],
        subquery: Callable[[exp.Expr, RowBinder], BoundQuery],
    ) -> None:
        self.sql = sql
        self.find = find
        self.subquery = subquery
        self.form = DuckDBForm(lambda ref: self._texts[ref.index])
        self.ctes: list[tuple[str, str]] = []
        self.reads: dict[str, dict[str, None]] = {}
        self.scans: dict[str, int] = {}
        self.named: set[str] = set()
        self._texts: list[str] = []
        self._origins: dict[int, tuple[str, str]] = {}
        self._aliases = 0

    def alias(self) -> str:
        """Return a name for a part of FROM, which no column is likely to have."""
        self._aliases += 1
        return f"_ms{self._aliases}"

    def column(self, name: str, of: SqlType, text: str, *, nullable: bool = True) -> ColumnRef:
        """Return a new column, which is written as a text."""
        self._texts.append(text)
        return ColumnRef(len(self._texts) - 1, name, of, nullable)

    def stored(
        self, table: str, alias: str, name: str, of: SqlType, *, nullable: bool
    ) -> ColumnRef:
        """Return a column of a table; the table is read with it only once it is used."""
        ref = self.column(name, of, f"{alias}.{name_text(name)}", nullable=nullable)
        self._origins[ref.index] = (table, name)
        return ref

    def use(self, ref: ColumnRef) -> None:
        """Record that a column is needed, so that it is read."""
        if ref.index in self._origins:
            table, name = self._origins[ref.index]
            self.reads[table][name] = None

    def is_used(self, ref: ColumnRef) -> bool:
        """Whether a column is needed; one that is not stored always is."""
        if ref.index not in self._origins:
            return True
        table, name = self._origins[ref.index]
        return name in self.reads[table]

    def move(self, ref: ColumnRef, text: str) -> None:
        """Replace the text that a column is written as."""
        self._texts[ref.index] = text

    def text(self, node: Node) -> str:
        """Return an expression in DuckDB's SQL."""
        return self.form.value(node)

    def key_text(self, node: Node) -> str:
        """Return an expression by which rows are grouped or compared: Spark takes -0.0 for 0.0."""
        text = self.text(node)
        if node.type.kind not in {"REAL", "DOUBLE"}:
            return text
        return f"(CASE WHEN {text} = 0 THEN abs({text}) ELSE {text} END)"

"""Typed expressions: what ``bind`` makes of a tree and what every compiler reads.

All conversions are written out: the arguments of a node have exactly the types that it works on.

The order of evaluation is part of the meaning, since an operand that is not reached cannot raise:
AND, OR, CASE and COALESCE stop when they know; every other operation that gives NULL for a NULL
stops at the first NULL among its arguments.

The canonical text of a node is read back as the same node: equal texts mean equal filters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.clock import MICROSECOND
from millstream.model.names import quote_name
from millstream.model.types import BOOLEAN, SqlType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta


Value = Any
"""A value in canonical form; None is NULL."""

Datum = Any
"""An Arrow array, or a scalar that stands for the same value in every row."""

Tree = Any
"""One of sqlglot's trees, of a class that has the parts that are read of it."""

NULL_TYPE = SqlType("NULL", "NULL", pa.null(), lambda value: value)
"""The type of a NULL that nothing has given a type to yet."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on values of fixed types, in its forms for Python and for Arrow.

    Attributes:
        name: says all there is to say; two operations of one name are the same.
        sql: its text, with ``{0}``, ``{1}`` for the arguments.
        python: a Python expression of the arguments ``{0}``, ``{1}``, the ``params`` ``{p0}`` and
            the functions of ``runtime``.
        arrow: a function of arrays and scalars; None when only Python can do it.
        params: values that the Python form needs.
        raises: whether some values make it raise.
        strict: whether it gives NULL as soon as an argument is NULL. If not, it sees the NULLs.
        partial: whether it can give NULL though no argument is NULL.
        backwards: whether the last argument is evaluated first, as a divisor is.
        null_is_false: whether the Python form is False when one argument is None and the other not.
    """

    name: str
    sql: str
    python: str
    arrow: Callable[..., Any] | None = field(compare=False, default=None)
    params: tuple[Any, ...] = field(compare=False, default=())
    raises: bool = field(compare=False, default=False)
    strict: bool = field(compare=False, default=True)
    partial: bool = field(compare=False, default=False)
    backwards: bool = field(compare=False, default=False)
    null_is_false: bool = field(compare=False, default=False)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the input, by its place."""

    index: int
    name: str
    type: SqlType
    nullable: bool
    raises: bool = False

    @property
    def sql(self) -> str:
        """The canonical text."""
        return quote_name(self.name)


@dataclass(frozen=True, slots=True)
class Literal:
    """A value, in canonical form.

    Attributes:
        number: whether it was written as a number, whose type Spark then takes as narrow as it is.
    """

    value: Any
    type: SqlType
    number: bool = field(compare=False, default=False)
    raises: bool = False

    @property
    def nullable(self) -> bool:
        """Whether it is NULL."""
        return self.value is None

    @property
    def sql(self) -> str:
        """The canonical text."""
        return literal_text(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Call:
    """An operation on the values of its arguments."""

    op: Op
    args: tuple[Node, ...]
    type: SqlType

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return self.op.partial or (self.op.strict and any(each.nullable for each in self.args))

    @property
    def raises(self) -> bool:
        """Whether some row can make it raise."""
        return self.op.raises or any(each.raises for each in self.args)

    @property
    def sql(self) -> str:
        """The canonical text."""
        return self.op.sql.format(*(inner_text(each) for each in self.args))


@dataclass(frozen=True, slots=True)
class _Connective:
    left: Node
    right: Node
    type: SqlType = BOOLEAN

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return self.left.nullable or self.right.nullable

    @property
    def raises(self) -> bool:
        """Whether some row can make it raise."""
        return self.left.raises or self.right.raises


class _Condition:
    __slots__ = ()
    arg: Node

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return self.arg.nullable

    @property
    def raises(self) -> bool:
        """Whether some row can make it raise."""
        return self.arg.raises


@dataclass(frozen=True, slots=True)
class And(_Connective):
    """AND: not evaluated further when the left side is FALSE."""

    @property
    def sql(self) -> str:
        """The canonical text."""
        return " AND ".join(map(_part_text, conjuncts(self)))


@dataclass(frozen=True, slots=True)
class Or(_Connective):
    """OR: not evaluated further when the left side is TRUE."""

    @property
    def sql(self) -> str:
        """The canonical text."""
        return " OR ".join(map(_part_text, disjuncts(self)))


@dataclass(frozen=True, slots=True)
class Not(_Condition):
    """NOT."""

    arg: Node
    type: SqlType = BOOLEAN

    @property
    def sql(self) -> str:
        """The canonical text."""
        return f"NOT {inner_text(self.arg)}"


@dataclass(frozen=True, slots=True)
class IsNull(_Condition):
    """IS NULL."""

    arg: Node
    type: SqlType = BOOLEAN
    nullable: bool = False

    @property
    def sql(self) -> str:
        """The canonical text."""
        return f"{inner_text(self.arg)} IS NULL"


@dataclass(frozen=True, slots=True)
class IsTrue(_Condition):
    """IS TRUE, or IS FALSE."""

    arg: Node
    wanted: bool
    type: SqlType = BOOLEAN
    nullable: bool = False

    @property
    def sql(self) -> str:
        """The canonical text."""
        return f"{inner_text(self.arg)} IS {str(self.wanted).upper()}"


@dataclass(frozen=True, slots=True)
class InList(_Condition):
    """IN, of values that are known: of the argument's type, none NULL and none NaN.

    Attributes:
        with_null: whether NULL was in the list, too: then what is not found is NULL, not FALSE.
    """

    arg: Node
    values: tuple[Any, ...]
    with_null: bool
    type: SqlType = BOOLEAN

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return self.with_null or self.arg.nullable

    @property
    def sql(self) -> str:
        """The canonical text."""
        texts = sorted(literal_text(each, self.arg.type) for each in self.values)
        if self.with_null:
            texts.append("NULL")
        return f"{inner_text(self.arg)} IN ({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class Case:
    """CASE: the value of the first branch whose condition is TRUE."""

    branches: tuple[tuple[Node, Node], ...]
    default: Node
    type: SqlType

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return self.default.nullable or any(value.nullable for _, value in self.branches)

    @property
    def raises(self) -> bool:
        """Whether some row can make it raise."""
        return self.default.raises or any(c.raises or v.raises for c, v in self.branches)

    @property
    def sql(self) -> str:
        """The canonical text."""
        cases = " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in self.branches)
        return f"CASE {cases} ELSE {self.default.sql} END"


@dataclass(frozen=True, slots=True)
class Coalesce:
    """COALESCE: the first value that is not NULL."""

    args: tuple[Node, ...]
    type: SqlType

    @property
    def nullable(self) -> bool:
        """Whether it can be NULL."""
        return all(each.nullable for each in self.args)

    @property
    def raises(self) -> bool:
        """Whether some row can make it raise."""
        return any(each.raises for each in self.args)

    @property
    def sql(self) -> str:
        """The canonical text."""
        return f"COALESCE({', '.join(each.sql for each in self.args)})"


Node = ColumnRef | Literal | Call | And | Or | Not | IsNull | IsTrue | InList | Case | Coalesce


def inner_text(node: Node) -> str:
    """Return the text of a node as part of a larger one: in parentheses where it may need them."""
    simple = isinstance(node, (ColumnRef, Literal, Coalesce, Case))
    function = isinstance(node, Call) and node.op.sql.endswith(")") and node.op.sql[0].isalpha()
    text = node.sql
    return text if (simple or function) and not text.startswith("-") else f"({text})"


def _part_text(node: Node) -> str:
    return f"({node.sql})" if isinstance(node, (And, Or, Not)) else node.sql


def conjuncts(node: Node) -> list[Node]:
    """Return the parts of a conjunction, in order; the node itself when it is none."""
    if isinstance(node, And):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def disjuncts(node: Node) -> list[Node]:
    """Return the parts of a disjunction, in order; the node itself when it is none."""
    if isinstance(node, Or):
        return [*disjuncts(node.left), *disjuncts(node.right)]
    return [node]


def joined(kind: type[And | Or], parts: Sequence[Node]) -> Node:
    """Return the conjunction or disjunction of parts, as a tree that is as flat as can be.

    How they are grouped makes no difference; a thousand levels would be too many for Python.
    """
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return kind(joined(kind, parts[:half]), joined(kind, parts[half:]))


# --- Canonical text of values ---------------------------------------------------------------------


def string_text(value: str) -> str:
    r"""Return a string as a literal.

    >>> print(string_text("it's a \\"))
    'it''s a \\'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def literal_text(value: object, of: SqlType) -> str:
    """Return a value of a type as text that is read as the same value of the same type.

    >>> from millstream.model.types import BIGINT, DOUBLE
    >>> literal_text(7, BIGINT), literal_text(100.0, DOUBLE)
    ('7L', '100.0D')
    """
    if value is None:
        return "NULL" if of.kind == "NULL" else f"CAST(NULL AS {of.sql})"
    make = _TEXTS.get(of.kind)
    return make(value) if make else f"CAST({value} AS {of.sql})"


def _bigint(value: int) -> str:
    # The minus is no part of the number that L follows, and without it the least is too large.
    return f"{value}L" if value > -(1 << 63) else str(value)


def _double(value: float) -> str:
    if math.isfinite(value):
        return f"{value!r}D"
    return f"CAST('{value}' AS DOUBLE)"


def _timestamp(value: datetime) -> str:
    return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"


def _interval(value: timedelta) -> str:
    micros = value // MICROSECOND
    whole, part = divmod(abs(micros), 1_000_000)
    return f"INTERVAL '{'-' if micros < 0 else ''}{whole}.{part:06}' SECOND"


_TEXTS: dict[str, Callable[[Any], str]] = {
    "BOOLEAN": lambda value: str(value).upper(),
    "INTEGER": str,
    "BIGINT": _bigint,
    "DOUBLE": _double,
    "REAL": lambda value: f"CAST({_double(value)} AS REAL)",
    "VARCHAR": string_text,
    "BINARY": lambda value: f"X'{value.hex().upper()}'",
    "DATE": lambda value: f"DATE '{value.isoformat()}'",
    "TIMESTAMP": _timestamp,
    "INTERVAL": _interval,
}

"""The form for DuckDB: an expression as the text of one in DuckDB's SQL.

What is not reached must not raise: CASE and COALESCE stop when they know, in DuckDB too. AND and OR
do not, as its optimizer may change their order; where the right side can raise, they become a CASE.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.types import REAL
from millstream.sql.adhoc.duckdb_types import constant, duck_type, name_text
from millstream.sql.expressions.nodes import (
    And,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    InList,
    IsNull,
    IsTrue,
    Literal,
    Node,
    Not,
    Or,
    conjuncts,
    joined,
)
from millstream.sql.expressions.to_arrow import compile_array
from millstream.sql.expressions.type_rules import INTEGERS, is_decimal, is_float, is_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.types import SqlType


AnyNode = Any
"""A node of the class that a method is registered for."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function that DuckDB lacks, or has with another meaning.

    Attributes:
        name: its name in the plan's SQL; two kernels of one name are the same.
        takes: the types of its arguments.
        gives: the type of its result.
        volatile: whether DuckDB must not work it out before there are rows: of constants alone, it
            can only raise.
        run: from arrays of these types, all of one length, to the array of results. NULLs are among
            them. It raises ExpressionError for a row without a result.
    """

    name: str
    takes: tuple[SqlType, ...]
    gives: SqlType
    volatile: bool
    run: Callable[[Sequence[pa.Array]], pa.Array]


def kernel_of(node: Call) -> Kernel:
    """Return the kernel of an operation, compiled as for any other query."""
    takes = tuple(each.type for each in node.args)
    volatile = _is_constant(node)
    text = "\n".join([node.op.name, node.type.sql, str(volatile), *(each.sql for each in takes)])
    name = f"ms_{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    places = [f"c{place}" for place in range(len(takes))]
    refs = tuple(
        ColumnRef(place, places[place], of, nullable=True) for place, of in enumerate(takes)
    )
    make = compile_array(Call(node.op, refs, node.type))

    def run(arrays: Sequence[pa.Array]) -> pa.Array:
        return make(pa.RecordBatch.from_arrays(list(arrays), names=places))

    return Kernel(name, takes, node.type, volatile, run)


def _stops(node: Call) -> list[int]:
    """Return which arguments must not be NULL for those that come after them to be evaluated."""
    if not node.op.strict:
        return []
    order = list(range(len(node.args)))
    if node.op.backwards:
        order.reverse()
    return [
        place
        for at, place in enumerate(order)
        if node.args[place].nullable and any(node.args[each].raises for each in order[at + 1 :])
    ]


def _is_constant(node: Call) -> bool:
    return all(isinstance(each, Literal) for each in node.args)


class DuckDBForm:
    """Writes expressions, and keeps the kernels that they call.

    One method for each class of node: hence more than usual.

    Args:
        column: the text of a column.
    """

    def __init__(self, column: Callable[[ColumnRef], str]) -> None:
        self.kernels: dict[str, Kernel] = {}
        self._column = column

    def value(self, node: Node) -> str:
        """Return a text whose value is the node's; it can stand anywhere."""
        return self._VALUES[type(node)](self, node)

    def condition(self, node: Node) -> str:
        """Return a text that is TRUE for the rows that a WHERE keeps.

        The parts that cannot raise come first, where DuckDB may use them for joins and scans; the
        others are evaluated in order, for rows that passed all before.
        """
        parts = conjuncts(node)
        safe = [each for each in parts if not each.raises]
        risky = [each for each in parts if each.raises]
        texts = [self.value(each) for each in safe]
        guarded = [joined(And, safe), *risky] if safe else risky
        if risky:
            texts.append(self._in_order([self.value(each) for each in guarded]))
        return " AND ".join(texts)

    def _in_order(self, texts: list[str]) -> str:
        result = texts[-1]
        for each in reversed(texts[:-1]):
            result = f"(CASE WHEN {each} THEN {result} ELSE FALSE END)"
        return result

    # --- The nodes --------------------------------------------------------------------------------

    def _column_value(self, node: AnyNode) -> str:
        return self._column(node)

    def _literal(self, node: AnyNode) -> str:
        return constant(node.value, node.type)

    def _call(self, node: AnyNode) -> str:
        template = None if _is_constant(node) else native(node)
        args = [self.value(each) for each in node.args]
        if template is not None:
            text = f"({template.format(*args)})"
        else:
            text = self.kernel(kernel_of(node), *args)
        there = " AND ".join(f"{args[place]} IS NOT NULL" for place in _stops(node))
        return f"(CASE WHEN {there} THEN {text} END)" if there else text

    def kernel(self, kernel: Kernel, *args: str) -> str:
        """Return a call of a kernel, which is kept."""
        self.kernels[kernel.name] = kernel
        return f"{kernel.name}({', '.join(args)})"

    def _and(self, node: AnyNode) -> str:
        left, right = self.value(node.left), self.value(node.right)
        if not node.right.raises:
            return f"({left} AND {right})"
        rest = f"WHEN {left} THEN {right} ELSE NULL AND {right}"
        return f"(CASE WHEN NOT {left} THEN FALSE {rest} END)"

    def _or(self, node: AnyNode) -> str:
        left, right = self.value(node.left), self.value(node.right)
        if not node.right.raises:
            return f"({left} OR {right})"
        rest = f"WHEN NOT {left} THEN {right} ELSE NULL OR {right}"
        return f"(CASE WHEN {left} THEN TRUE {rest} END)"

    def _not(self, node: AnyNode) -> str:
        return f"(NOT {self.value(node.arg)})"

    def _is_null(self, node: AnyNode) -> str:
        return f"({self.value(node.arg)} IS NULL)"

    def _is_true(self, node: AnyNode) -> str:
        return f"({self.value(node.arg)} IS NOT DISTINCT FROM {str(node.wanted).upper()})"

    def _in_list(self, node: AnyNode) -> str:
        texts = [constant(each, node.arg.type) for each in node.values]
        texts += ["NULL"] if node.with_null else []
        return f"({self.value(node.arg)} IN ({', '.join(texts)}))"

    def _case(self, node: AnyNode) -> str:
        cases = " ".join(f"WHEN {self.value(c)} THEN {self.value(v)}" for c, v in node.branches)
        return f"(CASE {cases} ELSE {self.value(node.default)} END)"

    def _coalesce(self, node: AnyNode) -> str:
        return f"coalesce({', '.join(self.value(each) for each in node.args)})"

    _VALUES: dict[type, Callable[[DuckDBForm, Any], str]] = {  # noqa: RUF012
        ColumnRef: _column_value,
        Literal: _literal,
        Call: _call,
        And: _and,
        Or: _or,
        Not: _not,
        IsNull: _is_null,
        IsTrue: _is_true,
        InList: _in_list,
        Case: _case,
        Coalesce: _coalesce,
    }


# --- What DuckDB does exactly as Spark does -------------------------------------------------------

# Each of these is held against our own compiled form, and that against Spark, in the tests. An
# operation that is not here runs as a kernel, which is always right and a little slower.

_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}  # NaN equals itself and is the greatest, there too
_FIELDS = {
    **{name: f"{name.lower()}({{0}})" for name in ("YEAR", "QUARTER", "MONTH", "DAY")},
    **{name: f"{name.lower()}({{0}})" for name in ("HOUR", "MINUTE", "SECOND", "DAYOFYEAR")},
    "WEEKOFYEAR": "weekofyear({0})",
    "DAYOFMONTH": "day({0})",
    "DAYOFWEEK": "dayofweek({0}) + 1",
    "WEEKDAY": "isodow({0}) - 1",
}
_SEARCHES = {
    "STARTSWITH": "starts_with({0}, {1})",
    "ENDSWITH": "ends_with({0}, {1})",
    "CONTAINS": "contains({0}, {1})",
}


def native(node: Call) -> str | None:
    """Return an operation with ``{0}``, ``{1}`` for its arguments; None when it needs a kernel."""
    word = node.op.name.split(" ", 1)[0]
    write = _WRITERS.get(word)
    return None if write is None else write(node, word)


def _compare(_node: Call, word: str) -> str:
    return f"{{0}} {word} {{1}}"


def _calculate(node: Call, word: str) -> str | None:
    if len(node.args) != 2 or node.args[0].type.kind in {"DATE", "TIMESTAMP", "INTERVAL"}:
        return None
    if is_decimal(node.type):
        return _decimal(node, word)
    return f"{{0}} {word} {{1}}"


def _decimal(node: Call, word: str) -> str | None:
    if node.op.raises:
        return None  # it rounds, or overflows at another place than DuckDB does
    scales = [each.type.arrow.scale for each in node.args]
    if word != "*":
        scales = [node.type.arrow.scale] * 2
    # In their own widths DuckDB multiplies in 64 bits, which may not do.
    left, right = (f"CAST({{{place}}} AS DECIMAL(38, {each}))" for place, each in enumerate(scales))
    return f"CAST({left} {word} {right} AS {duck_type(node.type)})"


def _sign(node: Call, word: str) -> str | None:
    if not (is_integer(node.type) or is_float(node.type)):
        return None
    # DuckDB widens the least integer, which then does not fit the CAST.
    return f"CAST(-{{0}} AS {duck_type(node.type)})" if word == "NEG" else None


def _cast(node: Call, _word: str) -> str | None:
    source, target = node.args[0].type, node.type
    text = f"CAST({{0}} AS {duck_type(target)})"
    if is_integer(source):
        wider = is_integer(target) and INTEGERS.index(source) <= INTEGERS.index(target)
        return text if wider or target.kind in {"DOUBLE", "VARCHAR"} else None
    pair = (source.kind, target.kind)
    exact = {("REAL", "DOUBLE"), ("DATE", "TIMESTAMP"), ("TIMESTAMP", "DATE")}
    return text if pair in exact else None


def _field(_node: Call, word: str) -> str:
    return f"CAST({_FIELDS[word]} AS INTEGER)"


def _search(_node: Call, word: str) -> str:
    return _SEARCHES[word]


def _struct_field(node: Call, _word: str) -> str:
    name = str(node.op.params[0]).replace("{", "{{").replace("}", "}}")
    return f"({{0}}).{name_text(name)}"


def _extreme(node: Call, word: str) -> str:
    form = "CAST({{{}}} AS DOUBLE)" if node.type == REAL else "{{{}}}"
    text = f"{word.lower()}({', '.join(form.format(place) for place in range(len(node.args)))})"
    # Of REALs, DuckDB makes keys to sort by and reads them again: -0.0 comes back as 0.0.
    return f"CAST({text} AS {duck_type(REAL)})" if node.type == REAL else text


def _concat(node: Call, _word: str) -> str:
    return " || ".join(f"{{{place}}}" for place in range(len(node.args)))


_WRITERS: dict[str, Callable[[Call, str], str | None]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    "<=>": lambda _node, _word: "{0} IS NOT DISTINCT FROM {1}",
    **dict.fromkeys(("+", "-", "*"), _calculate),
    "NEG": _sign,
    "&": lambda _node, _word: "{0} & {1}",
    "|": lambda _node, _word: "{0} | {1}",
    "^": lambda _node, _word: "xor({0}, {1})",
    "~": lambda _node, _word: "~{0}",
    "CAST": _cast,
    **dict.fromkeys(_FIELDS, _field),
    **dict.fromkeys(_SEARCHES, _search),
    "FIELD": _struct_field,
    "GREATEST": _extreme,
    "LEAST": _extreme,
    "CONCAT": _concat,
    "LENGTH": lambda node, _word: (
        "CAST(length({0}) AS INTEGER)" if node.args[0].type.kind == "VARCHAR" else None
    ),
    "ISNAN": lambda _node, _word: "coalesce(isnan({0}), FALSE)",
}

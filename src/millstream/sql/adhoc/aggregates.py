"""Aggregates, with the types and the NULLs that Spark gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.model.types import BIGINT, BOOLEAN, DOUBLE, MAX_PRECISION, array_type, decimal_type
from millstream.sql.adhoc.duckdb_types import duck_type
from millstream.sql.adhoc.to_duckdb import kernel_of
from millstream.sql.dialect import WRITTEN
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import Call, Case, ColumnRef, Literal, Node, Op
from millstream.sql.expressions.type_rules import (
    is_decimal,
    is_float,
    is_integer,
    is_number,
    unit_and_limit,
)
from millstream.sql.function_names import AGGREGATES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.types import SqlType
    from millstream.sql.adhoc.binder import RowBinder


AggregateTree = Any
"""One of sqlglot's trees of an aggregate, of the class that has the parts that are read of it."""


@dataclass(frozen=True, slots=True)
class AggregateSuffix:
    """What follows an aggregate in SQL: the conditions of FILTER, and OVER."""

    conditions: tuple[str, ...] = ()
    over: str = ""

    def where(self, condition: str) -> AggregateSuffix:
        """Return a suffix with one condition more."""
        return AggregateSuffix((*self.conditions, condition), self.over)

    def __str__(self) -> str:
        kept = f" FILTER (WHERE {' AND '.join(self.conditions)})" if self.conditions else ""
        return kept + self.over


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate that is bound.

    Attributes:
        write: returns its text, with a suffix behind each of its functions.
        type: the type of the result.
        nullable: whether it can be NULL.
        ordered: whether it looks at rows in an order of its own, which no OVER can have.
    """

    write: Callable[[AggregateSuffix], str]
    type: SqlType
    nullable: bool = True
    ordered: bool = False


class AggregateArguments:
    """The arguments of one aggregate, each bound when it is read."""

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
            return Case(((self.when, node),), Literal(None, node.type), node.type)
        return node

    def one(self) -> Node:
        """Bind the only argument."""
        if len(self.args) != 1:
            self.rows.mismatch(
                self.tree,
                f"{self.rows.describe(self.tree)} takes one argument here",
                "Check the number of arguments.",
            )
        return self.node(self.args[0])

    def number(self) -> Node:
        """Bind the only argument, a number."""
        node = self.one()
        if not is_number(node.type):
            message = f"expected a number, got {node.type.sql}"
            if node.type.kind == "INTERVAL":
                what = f"{self.rows.describe(self.tree)} of an INTERVAL is not supported"
                self.rows.refuse(self.args[0], f"{what} in a query in process", "CAST it.")
            self.rows.mismatch(self.args[0], message, "CAST it to a number.")
        return node

    def double(self) -> Node:
        """Bind the only argument as a DOUBLE."""
        return self.rows.coerce(self.tree, self.number(), DOUBLE)

    def text(self, node: Node) -> str:
        """Return the text of an argument; of a DISTINCT one, as a key."""
        return self.draft.key_text(node) if self.distinct else self.draft.text(node)

    def simple(self, name: str, node: Node, of: SqlType) -> BoundAggregate:
        """Return an aggregate that DuckDB has as it is."""
        return BoundAggregate(
            lambda suffix: f"{name}({self.distinct}{self.text(node)}){suffix}", of
        )


# --- Binding --------------------------------------------------------------------------------------


def bind_aggregate(rows: RowBinder, tree: exp.Expr) -> BoundAggregate:
    """Return an aggregate over rows, with its FILTER and IGNORE NULLS."""
    function, when, skips_nulls = _unwrapped(rows, tree)
    make = _by_name(function) or _AGGREGATES.get(type(function))
    written = function.meta.get(WRITTEN)
    if make is None or (written is not None and str(written).upper() not in AGGREGATES):
        rows.refuse(
            function, f"{rows.describe(function)} is not supported in a query", _hint(function)
        )
    if isinstance(function, exp.Anonymous) and len(function.expressions) != 1:
        rows.mismatch(
            function, f"{function.name.upper()} takes 1 argument", "Check the number of arguments."
        )
    if skips_nulls and not isinstance(function, _POSITIONAL):
        rows.refuse(tree, "IGNORE NULLS is for FIRST and LAST", "Leave it out.")
    made = make(AggregateArguments(rows, function, when, skips_nulls=skips_nulls))
    if when is None:
        return made
    return BoundAggregate(
        lambda suffix: made.write(suffix.where(rows.draft.text(when))),
        made.type,
        made.nullable,
        made.ordered,
    )


def _unwrapped(rows: RowBinder, tree: exp.Expr) -> tuple[AggregateTree, Node | None, bool]:
    when: Node | None = None
    skips_nulls = False
    function: Any = tree
    while isinstance(function, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        if isinstance(function, exp.Filter):
            when = rows.bind_boolean(function.expression.this)
        skips_nulls = skips_nulls or isinstance(function, exp.IgnoreNulls)
        function = function.this
    return function, when, skips_nulls


def _by_name(function: exp.Expr) -> Callable[[AggregateArguments], BoundAggregate] | None:
    if not isinstance(function, exp.Anonymous):
        return None
    return _NAMED.get(function.name.upper())


def _hint(function: exp.Expr) -> str:
    if isinstance(function, exp.ApproxDistinct):
        return "Each engine estimates in its own way; write COUNT(DISTINCT x), which is exact."
    return f"Available aggregates: {', '.join(FUNCTIONS)}."


# --- Counts and sums ------------------------------------------------------------------------------


def _count(parts: AggregateArguments) -> BoundAggregate:
    if isinstance(parts.tree.this, exp.Star):
        return BoundAggregate(lambda suffix: f"count(*){suffix}", BIGINT, nullable=False)
    nodes = [parts.node(each) for each in parts.args]
    if not nodes:
        parts.rows.mismatch(parts.tree, "COUNT takes an argument", "Write COUNT(*).")

    def write(suffix: AggregateSuffix) -> str:
        texts = [parts.text(each) for each in nodes]
        if len(texts) == 1:
            return f"count({parts.distinct}{texts[0]}){suffix}"
        there = " AND ".join(f"{each} IS NOT NULL" for each in texts)
        values = f"row({', '.join(texts)})"
        return f"count({parts.distinct}CASE WHEN {there} THEN {values} END){suffix}"

    return BoundAggregate(write, BIGINT, nullable=False)


def _count_if(parts: AggregateArguments) -> BoundAggregate:
    node = parts.rows.bind_boolean(parts.args[0])
    return BoundAggregate(
        lambda suffix: f"count(CASE WHEN {parts.text(node)} THEN 1 END){suffix}",
        BIGINT,
        nullable=False,
    )


def _sum(parts: AggregateArguments) -> BoundAggregate:
    node = parts.number()
    if is_integer(node.type):
        # DuckDB adds up in 128 bits: only a result that does not fit is an error.
        made = parts.simple("sum", node, BIGINT)
        return BoundAggregate(lambda suffix: f"CAST({made.write(suffix)} AS BIGINT)", BIGINT)
    if not is_decimal(node.type):
        return parts.simple("sum", parts.rows.coerce(parts.tree, node, DOUBLE), DOUBLE)
    of = _sum_type(node.type)
    made = parts.simple("sum", node, of)
    return BoundAggregate(lambda suffix: f"CAST({made.write(suffix)} AS {duck_type(of)})", of)


def _sum_type(of: SqlType) -> SqlType:
    return decimal_type(min(MAX_PRECISION, of.arrow.precision + 10), of.arrow.scale)


def _average(parts: AggregateArguments) -> BoundAggregate:
    node = parts.number()
    if not is_decimal(node.type):
        # Spark adds up doubles even of integers.
        return parts.simple("avg", parts.rows.coerce(parts.tree, node, DOUBLE), DOUBLE)
    scale, total, count = node.type.arrow.scale, _sum_type(node.type), decimal_type(20, 0)
    precision = min(MAX_PRECISION, node.type.arrow.precision + 4)
    of = decimal_type(precision, min(MAX_PRECISION, scale + 4, precision))
    args = (ColumnRef(0, "", total, nullable=True), ColumnRef(1, "", count, nullable=True))
    python = "decimal_divide({0}, {1}, {p0}, {p1})"
    op = Op(f"AVG {node.type.sql}", "", python, params=unit_and_limit(of), raises=True)
    kernel = kernel_of(Call(op, args, of))

    def write(suffix: AggregateSuffix) -> str:
        text = f"{parts.distinct}{parts.text(node)}"
        return parts.draft.form.kernel(
            kernel,
            f"CAST(sum({text}){suffix} AS {duck_type(total)})",
            f"CAST(count({text}){suffix} AS {duck_type(count)})",
        )

    return BoundAggregate(write, of)


def _of_doubles(name: str) -> Callable[[AggregateArguments], BoundAggregate]:
    return lambda parts: parts.simple(name, parts.double(), DOUBLE)


# --- Truth and order ------------------------------------------------------------------------------


def _of_truths(name: str) -> Callable[[AggregateArguments], BoundAggregate]:
    return lambda parts: parts.simple(name, parts.rows.bind_boolean(parts.args[0]), BOOLEAN)


def _of_bits(name: str) -> Callable[[AggregateArguments], BoundAggregate]:
    def make(parts: AggregateArguments) -> BoundAggregate:
        node = parts.one()
        if not is_integer(node.type):
            parts.rows.mismatch(parts.tree, f"expected an integer, got {node.type.sql}", "CAST it.")
        return parts.simple(name, node, node.type)

    return make


def _extreme(name: str) -> Callable[[AggregateArguments], BoundAggregate]:
    def make(parts: AggregateArguments) -> BoundAggregate:
        node = parts.one()
        comparable(parts.rows, parts.tree, [node])
        return parts.simple(name, node, node.type)

    return make


_OWN_FORM = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "SMALLINT"), "INTEGER"),
    "REAL": "DOUBLE",
}


def _by_another(name: str) -> Callable[[AggregateArguments], BoundAggregate]:
    def make(parts: AggregateArguments) -> BoundAggregate:
        if len(parts.args) != 2 or parts.tree.args.get("count"):
            parts.rows.mismatch(
                parts.tree, "MAX_BY and MIN_BY take two arguments", "Write MAX_BY(x, time)."
            )
        node, key = (parts.node(each) for each in parts.args)
        comparable(parts.rows, parts.tree, [key])

        def write(suffix: AggregateSuffix) -> str:
            texts = [parts.draft.text(each) for each in (node, key)]
            if not is_float(node.type):
                return f"{name}({', '.join(texts)}){suffix}"
            # Where DuckDB has no form of its own for both types, it makes 0.0 of -0.0.
            kinds = [_OWN_FORM.get(each.type.kind, duck_type(each.type)) for each in (node, key)]
            made = (f"CAST({text} AS {kind})" for text, kind in zip(texts, kinds, strict=True))
            return f"CAST({name}({', '.join(made)}){suffix} AS {duck_type(node.type)})"

        return BoundAggregate(write, node.type)

    return make


# --- By the order of the log ----------------------------------------------------------------------


def _log_order(parts: AggregateArguments) -> Sequence[ColumnRef]:
    """Return the columns that give rows their order: event time, then LSN."""
    relations = parts.rows.scope.items
    of = relations[0].input if len(relations) == 1 else None
    lsn = relations[0].lsn if relations else None
    if of is None or lsn is None or of.retracts or of.kind not in {"source", "stream"}:
        name = parts.rows.describe(parts.tree)
        parts.rows.refuse(
            parts.tree,
            f"{name} needs the rows of one source, in the order of its log",
            "Say which row you mean: MIN_BY(x, time), MAX_BY(x, time), or MIN and MAX.",
        )
    times = [each for each in relations[0].columns if each.name == of.event_time]
    for each in (*times, lsn):
        parts.draft.use(each)
    return [*times, lsn]


def _first(parts: AggregateArguments) -> BoundAggregate:
    return _at_end(parts, "ASC NULLS FIRST")


def _last(parts: AggregateArguments) -> BoundAggregate:
    return _at_end(parts, "DESC NULLS LAST")


def _at_end(parts: AggregateArguments, way: str) -> BoundAggregate:
    node, order = parts.one(), _log_order(parts)

    def write(suffix: AggregateSuffix) -> str:
        text = parts.draft.text(node)
        keys = ", ".join(f"{parts.draft.text(each)} {way}" for each in order)
        if parts.skips_nulls:
            suffix = suffix.where(f"{text} IS NOT NULL")
        return f"first({text} ORDER BY {keys}){suffix}"

    return BoundAggregate(write, node.type, ordered=True)


def _list(parts: AggregateArguments) -> BoundAggregate:
    if parts.distinct:
        parts.rows.refuse(
            parts.tree, "a list of DISTINCT values has no defined order", "Write COLLECT_SET(x)."
        )
    node, lsn = parts.one(), _log_order(parts)[-1]

    def write(suffix: AggregateSuffix) -> str:
        text = parts.draft.text(node)
        kept = suffix.where(f"{text} IS NOT NULL")
        return f"coalesce(list({text} ORDER BY {parts.draft.text(lsn)}){kept}, [])"

    return BoundAggregate(write, array_type(node.type), nullable=False, ordered=True)


def _set(parts: AggregateArguments) -> BoundAggregate:
    node = parts.one()
    comparable(parts.rows, parts.tree, [node])
    if is_float(node.type):
        message = f"COLLECT_SET of {node.type.sql} is not supported"
        parts.rows.refuse(parts.tree, message, "Spark keeps both -0.0 and 0.0; CAST it to DECIMAL.")

    def write(suffix: AggregateSuffix) -> str:
        text = parts.draft.text(node)
        return (
            f"coalesce(list_sort(list(DISTINCT {text}){suffix.where(f'{text} IS NOT NULL')}), [])"
        )

    return BoundAggregate(write, array_type(node.type), nullable=False, ordered=True)


_POSITIONAL = (exp.First, exp.FirstValue, exp.AnyValue, exp.Last, exp.LastValue)

_AGGREGATES: dict[type, Callable[[AggregateArguments], BoundAggregate]] = {
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Sum: _sum,
    exp.Avg: _average,
    exp.Min: _extreme("min"),
    exp.Max: _extreme("max"),
    exp.ArgMin: _by_another("arg_min_null"),
    exp.ArgMax: _by_another("arg_max_null"),
    exp.Stddev: _of_doubles("stddev_samp"),
    exp.StddevSamp: _of_doubles("stddev_samp"),
    exp.StddevPop: _of_doubles("stddev_pop"),
    exp.Variance: _of_doubles("var_samp"),
    exp.VariancePop: _of_doubles("var_pop"),
    exp.LogicalAnd: _of_truths("bool_and"),
    exp.LogicalOr: _of_truths("bool_or"),
    exp.BitwiseAndAgg: _of_bits("bit_and"),
    exp.BitwiseOrAgg: _of_bits("bit_or"),
    exp.BitwiseXorAgg: _of_bits("bit_xor"),
    exp.First: _first,
    exp.FirstValue: _first,
    exp.AnyValue: _first,
    exp.Last: _last,
    exp.LastValue: _last,
    exp.ArrayAgg: _list,
    exp.ArrayUniqueAgg: _set,
}
_NAMED: dict[str, Callable[[AggregateArguments], BoundAggregate]] = {
    "EVERY": _of_truths("bool_and"),
    "SOME": _of_truths("bool_or"),
    "MEAN": _average,
    "STD": _of_doubles("stddev_samp"),
}

FUNCTIONS = (
    *("ANY_VALUE", "ARRAY_AGG", "AVG", "BIT_AND", "BIT_OR", "BIT_XOR", "BOOL_AND", "BOOL_OR"),
    *(
        "COLLECT_LIST",
        "COLLECT_SET",
        "COUNT",
        "COUNT_IF",
        "EVERY",
        "FIRST",
        "LAST",
        "MAX",
        "MAX_BY",
        "MIN",
    ),
    *("MIN_BY", "SOME", "STDDEV", "STDDEV_POP", "SUM", "VARIANCE", "VAR_POP"),
)
"""The names of all aggregates, for hints."""

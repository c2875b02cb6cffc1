"""Window functions: what stands before OVER, the rows that it looks at, and ORDER BY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.model.types import DOUBLE, INTEGER
from millstream.sql.adhoc.aggregates import AggregateSuffix, BoundAggregate, bind_aggregate
from millstream.sql.expressions.casts import cast
from millstream.sql.expressions.conditions import comparable
from millstream.sql.expressions.nodes import Literal, Node
from millstream.sql.expressions.type_rules import is_integer
from millstream.sql.refusals import check_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.model.types import SqlType
    from millstream.sql.adhoc.binder import RowBinder


_RANKS: dict[type, tuple[str, SqlType]] = {
    exp.RowNumber: ("row_number", INTEGER),
    exp.Rank: ("rank", INTEGER),
    exp.DenseRank: ("dense_rank", INTEGER),
    exp.PercentRank: ("percent_rank", DOUBLE),
    exp.CumeDist: ("cume_dist", DOUBLE),
}
_ENDS: dict[type, str] = {
    exp.First: "first_value",
    exp.FirstValue: "first_value",
    exp.AnyValue: "first_value",
    exp.Last: "last_value",
    exp.LastValue: "last_value",
}


def bind_over(binder: RowBinder, tree: exp.Window) -> Node:
    """Return the column of a window function."""
    if not binder.allows_over:
        binder.refuse(
            tree,
            "a window function is not allowed here",
            "Window functions go into SELECT and ORDER BY; to filter by one, use a subquery.",
        )
    binder.allows_over = False  # not inside of itself
    try:
        made, over = _function(binder, tree.this), _window(binder, tree)
    finally:
        binder.allows_over = True
    return binder.draft.column(
        "", made.type, made.write(AggregateSuffix(over=over)), nullable=made.nullable
    )


def _function(binder: RowBinder, tree: exp.Expr) -> BoundAggregate:
    function: Any = tree
    nulls = ""
    while isinstance(function, (exp.IgnoreNulls, exp.RespectNulls)):
        nulls = " IGNORE NULLS" if isinstance(function, exp.IgnoreNulls) else ""
        function = function.this
    for kinds, make in _MAKERS:
        if isinstance(function, kinds):
            return make(binder, function, nulls)
    if isinstance(tree, exp.Filter) and isinstance(tree.this, tuple(_ENDS)):
        binder.refuse(tree, "FILTER is for aggregates", "Use IGNORE NULLS with a CASE.")
    made = bind_aggregate(binder, tree)
    if made.ordered or list(tree.find_all(exp.Distinct)):
        binder.refuse(tree, "this aggregate cannot be used with OVER", "Use a subquery.")
    return made


def _rank(binder: RowBinder, tree: exp.Expr, _nulls: str) -> BoundAggregate:
    check_parts(tree, set(), "a rank", binder.sql)
    name, of = _RANKS[type(tree)]
    cast = "CAST({} AS INTEGER)" if of == INTEGER else "{}"
    return BoundAggregate(lambda suffix: cast.format(f"{name}(){suffix}"), of, nullable=False)


def _ntile(binder: RowBinder, tree: exp.Expr, _nulls: str) -> BoundAggregate:
    count = _known_integer(binder, tree.this, "NTILE", least=1)
    return BoundAggregate(
        lambda suffix: f"CAST(ntile({count}){suffix} AS INTEGER)", INTEGER, nullable=False
    )


def _end(binder: RowBinder, tree: exp.Expr, nulls: str) -> BoundAggregate:
    node = binder.bind(tree.this)
    name = _ENDS[type(tree)]
    return BoundAggregate(
        lambda suffix: f"{name}({binder.draft.text(node)}{nulls}){suffix}", node.type
    )


def _nth(binder: RowBinder, tree: exp.Expr, nulls: str) -> BoundAggregate:
    node, place = (
        binder.bind(tree.this),
        _known_integer(binder, tree.args["offset"], "NTH_VALUE", least=1),
    )
    return BoundAggregate(
        lambda suffix: f"nth_value({binder.draft.text(node)}, {place}{nulls}){suffix}", node.type
    )


def _neighbour(binder: RowBinder, tree: exp.Expr, nulls: str) -> BoundAggregate:
    name = "lag" if isinstance(tree, exp.Lag) else "lead"
    node, offset, other = binder.bind(tree.this), tree.args.get("offset"), tree.args.get("default")
    step = 1 if offset is None else _known_integer(binder, offset, name.upper(), least=0)
    default = Literal(None, node.type) if other is None else _as(binder, other, node.type)
    texts = [binder.draft.text(each) for each in (node, default)]
    return BoundAggregate(
        lambda suffix: f"{name}({texts[0]}, {step}, {texts[1]}{nulls}){suffix}", node.type
    )


def _as(binder: RowBinder, tree: exp.Expr, of: SqlType) -> Node:
    """Return the default of LAG or LEAD, which takes the type of the column."""
    node = binder.bind(tree)
    made = cast(node, of) if isinstance(node, Literal) else node
    same = isinstance(made, Literal) and isinstance(node, Literal) and made.value == node.value
    if made is None or made.type != of or (made is not node and not same):
        binder.mismatch(
            tree, f"the default is not of type {of.sql}", f"Write CAST(... AS {of.sql})."
        )
    return made


def _known_integer(binder: RowBinder, tree: exp.Expr, name: str, *, least: int) -> int:
    node = binder.bind(tree)
    if not isinstance(node, Literal) or not is_integer(node.type) or node.value is None:
        binder.refuse(tree, f"{name} needs a constant number", "Write digits, such as 1.")
    if node.value < least:
        binder.refuse(tree, f"{name} takes {least} or more", "Write a larger number.")
    return int(node.value)


_MAKERS: tuple[tuple[tuple[type, ...], Callable[[RowBinder, Any, str], BoundAggregate]], ...] = (
    (tuple(_RANKS), _rank),
    ((exp.Ntile,), _ntile),
    (tuple(_ENDS), _end),
    ((exp.NthValue,), _nth),
    ((exp.Lag, exp.Lead), _neighbour),
)


# --- The rows -------------------------------------------------------------------------------------


def _window(binder: RowBinder, tree: exp.Window) -> str:
    check_parts(tree, {"this", "partition_by", "order", "spec", "over"}, "OVER", binder.sql)
    parts = []
    keys = [binder.bind(each) for each in tree.args.get("partition_by") or ()]
    for each in keys:
        comparable(binder, tree, [each])
    if keys:
        parts.append(f"PARTITION BY {', '.join(map(binder.draft.key_text, keys))}")
    order = tree.args.get("order")
    if order is not None:
        parts.append(f"ORDER BY {order_text(binder, order.expressions, binder.bind)}")
    spec = tree.args.get("spec")
    if spec is not None:
        parts.append(_frame(binder, spec, ordered=order is not None))
    return f" OVER ({' '.join(parts)})"


def _frame(binder: RowBinder, spec: exp.Expr, *, ordered: bool) -> str:
    kind = str(spec.args.get("kind") or "").upper()
    bounds = [_bound(binder, spec, side, kind) for side in ("start", "end")]
    if kind not in {"ROWS", "RANGE"} or spec.args.get("exclude"):
        binder.refuse(spec, "this frame is not supported", "Write ROWS BETWEEN ... AND ...")
    if kind == "ROWS" and not ordered:
        binder.refuse(spec, "ROWS needs an order", "Write ORDER BY before it.")
    return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound(binder: RowBinder, spec: exp.Expr, side: str, kind: str) -> str:
    value, way = spec.args.get(side), str(spec.args.get(f"{side}_side") or "").upper()
    if value is None:
        return "CURRENT ROW"
    if isinstance(value, str):
        return f"{value.upper()} {way}".strip()
    if kind == "RANGE":
        binder.refuse(
            spec, "RANGE with an offset is not supported", "Write ROWS, or RANGE with UNBOUNDED."
        )
    return f"{_known_integer(binder, value, 'ROWS', least=0)} {way}"


# --- ORDER BY -------------------------------------------------------------------------------------


def order_text(
    binder: RowBinder, trees: Sequence[exp.Expr], bind: Callable[[exp.Expr], Node]
) -> str:
    """Return what follows ORDER BY; empty when only constants do, which order nothing."""
    texts = []
    for tree in trees:
        if not isinstance(tree, exp.Ordered) or tree.args.get("with_fill"):
            binder.refuse(tree, "this ORDER BY is not supported", "Write ORDER BY a, b DESC.")
        node = bind(tree.this)
        comparable(binder, tree, [node])
        if isinstance(node, Literal):
            continue
        way = "DESC" if tree.args.get("desc") else "ASC"
        nulls = "FIRST" if tree.args.get("nulls_first") else "LAST"
        texts.append(f"{binder.draft.text(node)} {way} NULLS {nulls}")
    return ", ".join(texts)

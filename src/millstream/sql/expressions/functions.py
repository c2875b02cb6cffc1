"""Binding functions: by the class that sqlglot gives to a name, or by the name itself."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.model.types import BIGINT, BOOLEAN, DOUBLE, INTEGER
from millstream.sql.dialect import WRITTEN
from millstream.sql.expressions import choosing, dating, numbers, writing
from millstream.sql.expressions.fold import call, is_null
from millstream.sql.expressions.kinds import is_decimal, is_integer, is_number
from millstream.sql.expressions.nodes import Inverse, Literal, Node, Op, Tree
from millstream.sql.function_names import AGGREGATES, COUNTS, SYNONYMS, counts_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder

# --- Numbers --------------------------------------------------------------------------------------


def _ceil_or_floor(binder: Binder, tree: Tree) -> Node:
    if tree.args.get("decimals") is not None or tree.args.get("to") is not None:
        binder.refuse(tree, "a second argument is not supported", "Scale the number, then round.")
    node, up = number_of(binder, tree.this), isinstance(tree, exp.Ceil)
    if is_integer(node.type):
        return binder.coerce(tree, node, BIGINT)
    if is_decimal(node.type):
        op, of = numbers.decimal_to_whole(node.type, up=up)
        return call(op, node, of=of)
    return call(numbers.to_whole(up=up), binder.coerce(tree, node, DOUBLE), of=BIGINT)


def _round(binder: Binder, tree: exp.Round) -> Node:
    node, places = number_of(binder, tree.this), tree.args.get("decimals")
    known = Literal(0, INTEGER) if places is None else binder.bind(places)
    if not isinstance(known, Literal) or not is_integer(known.type) or known.value is None:
        binder.refuse(tree, "ROUND needs a known number of places", "Write ROUND(x, 2).")
    if not -30 <= known.value <= 38:
        binder.refuse(tree, "ROUND takes -30 to 38 places", "Write ROUND(x, 2).")
    found = numbers.rounding(node.type, known.value)
    if found is None:
        binder.refuse(
            tree, f"ROUND of {node.type.sql} is not exact", "CAST it AS DOUBLE or DECIMAL first."
        )
    op, of = found
    return call(op, node, of=of)


def _of_double(op: Op) -> Callable[[Binder, Tree], Node]:
    def bind(binder: Binder, tree: Tree) -> Node:
        node = number_of(binder, tree.this)
        return call(op, binder.coerce(tree, node, DOUBLE), of=DOUBLE)

    return bind


def _is_nan(binder: Binder, tree: exp.IsNan) -> Node:
    node = binder.coerce(tree, number_of(binder, tree.this), DOUBLE)
    return call(numbers.IS_NAN, node, of=BOOLEAN)


def number_of(binder: Binder, tree: exp.Expr) -> Node:
    """Return the node of a tree that must be a number."""
    node = binder.bind(tree)
    if not is_number(node.type):
        binder.mismatch(tree, f"expected a number, got {node.type.sql}", "CAST it to a number.")
    return node


# --- By name --------------------------------------------------------------------------------------


def _btrim(binder: Binder, tree: exp.Anonymous) -> Node:
    characters = tree.expressions[1] if len(tree.expressions) > 1 else None
    return writing.trim(binder, exp.Trim(this=tree.expressions[0], expression=characters))


def _weekday(binder: Binder, tree: exp.Anonymous) -> Node:
    return dating.field(binder, tree, "WEEKDAY", dating.time_of(binder, tree.expressions[0]))


_BY_NAME: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    "ISNULL": lambda binder, tree: is_null(binder.bind(tree.expressions[0])),
    "ISNOTNULL": lambda binder, tree: Inverse(is_null(binder.bind(tree.expressions[0]))),
    "BTRIM": _btrim,
    "WEEKDAY": _weekday,
}


def _by_name(binder: Binder, tree: exp.Anonymous) -> Node:
    name = tree.name.upper()
    if name not in COUNTS and name not in AGGREGATES:
        _unknown(binder, tree, name)
    least, most = COUNTS.get(name, (0, 0))
    if name not in _BY_NAME or not least <= len(tree.expressions) <= most:
        what = f"{name} takes {counts_text(name)}"
        hint = "The unit is a text: DATE_TRUNC('HOUR', ts)."
        other = "Check the number of arguments."
        binder.mismatch(tree, what, hint if name == "DATE_TRUNC" else other)
    return _BY_NAME[name](binder, tree)


def _unknown(binder: Binder, tree: exp.Expr, name: str) -> NoReturn:
    near = difflib.get_close_matches(name, FUNCTIONS, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Available functions: {', '.join(FUNCTIONS)}."
    binder.error(SqlColumnError, tree, f"there is no function {name}", hint)


def _other(binder: Binder, tree: exp.Expr) -> Node:
    name = str(tree.meta.get(WRITTEN) or binder.words(tree)).upper()
    return binder.refuse(
        tree,
        f"the function {name} is not supported",
        f"Available functions: {', '.join(FUNCTIONS)}.",
    )


def is_admitted(tree: exp.Expr) -> bool:
    """Whether a tree is no function, or was called by one of our names."""
    written = tree.meta.get(WRITTEN)
    return written is None or str(written).upper() in COUNTS


def refusal(tree: exp.Expr) -> Callable[[Binder, Any], Node]:
    """Return what refuses a function."""
    return next((_REFUSALS[kind] for kind in type(tree).__mro__ if kind in _REFUSALS), _other)


def _pattern(binder: Binder, tree: exp.RegexpLike) -> Node:
    return binder.refuse(
        tree,
        "regular expressions are not supported",
        "They differ between Java and Python; use LIKE, STARTSWITH, ENDSWITH or CONTAINS.",
    )


def _now(binder: Binder, tree: exp.Func) -> Node:
    return binder.refuse(
        tree,
        f"{tree.sql_name()} is not supported",
        "A row must be answered the same at any time; write a TIMESTAMP, or compare two columns.",
    )


def _aggregate(binder: Binder, tree: exp.AggFunc) -> Node:
    return binder.refuse(
        tree,
        f"{tree.sql_name()} is an aggregate, and aggregates are not supported yet",
        "Select the rows, and aggregate in your callback.",
    )


FUNCTIONS = tuple(sorted({*COUNTS, "CAST", "EXTRACT", "TRY_CAST"} - SYNONYMS))
"""The names of all functions."""

BINDERS: dict[type, Callable[[Binder, Tree], Node]] = {
    **choosing.BINDERS,
    **writing.BINDERS,
    **dating.BINDERS,
    exp.Ceil: _ceil_or_floor,
    exp.Floor: _ceil_or_floor,
    exp.Round: _round,
    exp.Sqrt: _of_double(numbers.SQUARE_ROOT),
    exp.Sign: _of_double(numbers.SIGN),
    exp.IsNan: _is_nan,
    exp.Anonymous: _by_name,
}
_REFUSALS: dict[type, Callable[[Binder, Any], Node]] = {
    exp.RegexpLike: _pattern,
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _now,
    exp.AggFunc: _aggregate,
}

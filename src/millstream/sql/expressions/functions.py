"""Functions: all that expressions may call, by name or by the class that sqlglot gives to a name.

A name that is not in ``sql.function_names`` is refused, with what is near it.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from millstream.errors import SqlColumnError
from millstream.sql.dialect import WRITTEN, Millstream
from millstream.sql.expressions import (
    bits,
    casts,
    conditions,
    dates,
    literals,
    numbers,
    patterns,
    pieces,
    text,
    times,
)
from millstream.sql.expressions.fold import is_null
from millstream.sql.expressions.nodes import Node, Not, Tree
from millstream.sql.function_names import AGGREGATES, COUNTS, JAVA_ROUNDED, SYNONYMS, counts_text
from millstream.sql.spark_functions import SPARK_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.expressions.bind import Binder


# --- By name --------------------------------------------------------------------------------------


def _btrim(binder: Binder, tree: exp.Anonymous) -> Node:
    characters = tree.expressions[1] if len(tree.expressions) > 1 else None
    return text.trim(binder, exp.Trim(this=tree.expressions[0], expression=characters))


def _weekday(binder: Binder, tree: exp.Anonymous) -> Node:
    return times.field(binder, tree, "WEEKDAY", times.time_of(binder, tree.expressions[0]))


_BY_NAME: dict[str, Callable[[Binder, exp.Anonymous], Node]] = {
    "ISNULL": lambda binder, tree: is_null(binder.bind(tree.expressions[0])),
    "ISNOTNULL": lambda binder, tree: Not(is_null(binder.bind(tree.expressions[0]))),
    "BTRIM": _btrim,
    "WEEKDAY": _weekday,
    **bits.NAMED,
    **dates.NAMED,
    **numbers.NAMED,
    **patterns.NAMED,
    **pieces.NAMED,
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


_ELSEWHERE = (
    "docs/sql.md lists the functions that run in this process; views may have all of Spark's."
)
_PARAMETER = "Give the value as a parameter: write ?, and pass it in a list after the SQL."
_CLOCKS = frozenset({"NOW", "CURDATE", "CURRENT_TIME"})
_NESTED = frozenset({"ARRAY", "MAP", "NAMED_STRUCT", "STRUCT"})
_ROUNDED = (
    "Java rounds its last digit in a way of its own; a view, which runs on Spark, may have it."
)


_SPARKS = frozenset({"ARRAYS_ZIP", "EXISTS", "FORALL", "GET_JSON_OBJECT", "INLINE", "TRANSFORM"})
"""Functions of Spark's that sqlglot does not know by these names."""


def _unknown(binder: Binder, tree: exp.Expr, name: str) -> NoReturn:
    if name in Millstream.Parser.FUNCTIONS or name in _SPARKS:
        binder.refuse(tree, f"the function {name} is not supported here", _ELSEWHERE)
    near = difflib.get_close_matches(name, (*FUNCTIONS, *AGGREGATES), n=1)
    hint = f"Did you mean {near[0]}?" if near else _ELSEWHERE
    if name in JAVA_ROUNDED:
        hint = _ROUNDED
    elif name in _CLOCKS:
        hint = _PARAMETER
    if name in SPARK_FUNCTIONS and name not in _CLOCKS:
        hint = hint if name in JAVA_ROUNDED else _ELSEWHERE
        binder.refuse(tree, f"the function {name} is not supported here", hint)
    binder.error(SqlColumnError, tree, f"there is no function {name}", hint)


def _other(binder: Binder, tree: exp.Expr) -> Node:
    name = str(tree.meta.get(WRITTEN) or binder.describe(tree)).upper()
    hint = _ROUNDED if name in JAVA_ROUNDED else _ELSEWHERE
    if name in _NESTED:
        hint = _PARAMETER
    return binder.refuse(tree, f"the function {name} is not supported here", hint)


def is_admitted(tree: exp.Expr) -> bool:
    """Whether a tree is not a function, or was called by a supported name."""
    written = tree.meta.get(WRITTEN)
    return written is None or str(written).upper() in COUNTS


def refusal(tree: exp.Expr) -> Callable[[Binder, Any], Node]:
    """Return the function that refuses a function call, with a hint for its kind."""
    return next((_REFUSALS[kind] for kind in type(tree).__mro__ if kind in _REFUSALS), _other)


def _now(binder: Binder, tree: exp.Func) -> Node:
    return binder.refuse(
        tree,
        f"{tree.sql_name()} is not supported",
        "A row must give the same result at any time; write a TIMESTAMP, or compare two columns.",
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
    **literals.BINDERS,
    **conditions.BINDERS,
    **numbers.BINDERS,
    **bits.BINDERS,
    **casts.BINDERS,
    **text.BINDERS,
    **times.BINDERS,
    **patterns.BINDERS,
    exp.Anonymous: _by_name,
}
"""What binds each class of tree: the operators, functions and literals of all families."""

_REFUSALS: dict[type, Callable[[Binder, Any], Node]] = {
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _now,
    exp.AggFunc: _aggregate,
}

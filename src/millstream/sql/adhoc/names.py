"""Which trees are aggregates and parts of windows: by sqlglot's classes, or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator

AGGREGATE_NAMES = frozenset({"EVERY", "SOME", "MEAN", "STD"})
"""Aggregates that sqlglot leaves to the names that were written."""

TIME_WINDOWS = frozenset({"TUMBLE", "HOP", "SESSION", "CUMULATE"})
_TIME_WORDS = TIME_WINDOWS | {
    f"{kind}_{side}" for kind in (*TIME_WINDOWS, "WINDOW") for side in ("START", "END")
}


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether a tree is an aggregate, with what may stand around one."""
    if isinstance(tree, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        return True
    if isinstance(tree, exp.Anonymous):
        return tree.name.upper() in AGGREGATE_NAMES
    return isinstance(tree, exp.AggFunc)


def time_word(tree: exp.Expr) -> str:
    """Return the name of a window over event time, or of its start or end; else nothing."""
    name = tree.name.upper() if isinstance(tree, exp.Anonymous) else ""
    return name if name in _TIME_WORDS else ""


def beyond_rows(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a tree that more than one row goes into."""
    whole = isinstance(tree, (exp.Query, exp.Exists, exp.Window))
    if whole or is_aggregate(tree) or time_word(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from beyond_rows(child)


def groups(tree: exp.Expr) -> bool:
    """Whether a tree needs rows to be grouped: it has an aggregate that is not OVER a window."""
    for part in beyond_rows(tree):
        if isinstance(part, (exp.Query, exp.Exists)):
            continue
        if not isinstance(part, exp.Window):
            return True
        function = part.this
        while isinstance(function, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
            function = function.this
        inner = [*function.iter_expressions()]
        around = [each for key, each in part.args.items() if key != "this"]
        if any(map(groups, [*inner, *_trees(around)])):
            return True
    return False


def _trees(values: list[object]) -> Iterator[exp.Expr]:
    for value in values:
        if isinstance(value, exp.Expr):
            yield value
        elif isinstance(value, list):
            yield from _trees(value)

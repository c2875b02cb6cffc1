"""Generators: EXPLODE and the like, in SELECT or as LATERAL VIEW, as a ground with more rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.views.flow import Flow, Origin
from millstream.sql.views.functions import GENERATORS, OWN_VIEW, function_name
from millstream.sql.views.trees import column, nested, select

if TYPE_CHECKING:
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Columns

_DEFAULTS = {"explode": ("col",), "posexplode": ("pos", "col")}


def is_generator(tree: exp.Expr) -> bool:
    """Whether a tree is the call of a generator, perhaps with aliases."""
    inner = tree.this if isinstance(tree, exp.Alias | exp.Aliases) else tree
    return function_name(inner) in GENERATORS


def item_names(item: exp.Expr) -> list[str]:
    """Return the names that a SELECT gives to what a generator makes."""
    if isinstance(item, exp.Aliases):
        return [each.name for each in item.expressions]
    return [item.alias] if isinstance(item, exp.Alias) else []


def generated(
    flow: Flow, call: exp.Expr, names: list[str], errors: ErrorReporter, *, outer: bool = False
) -> tuple[Flow, Columns]:
    """Return a flow with a row for each that a generator makes, and the columns that it adds.

    Args:
        flow: the rows that it is applied to.
        call: the resolved call.
        names: what its columns are called; its own names if there are none.
        errors: raises errors.
        outer: whether a row for which it makes none stays, with NULLs.
    """
    if flow.groups is not None:
        errors.refuse(call, "a generator over groups is not supported", OWN_VIEW)
    name = function_name(call)
    names = names or list(_DEFAULTS.get(name.removesuffix("_outer"), ()))
    if not names:
        errors.refuse(call, f"{name.upper()} needs names for its columns", "Write AS (a, b).")
    function = f"{name}_outer" if outer and not name.endswith("_outer") else name
    ground = flow.ground
    first = sum(each.startswith("_x") for each in ground.origins)
    added = [f"_x{first + place}" for place in range(len(names))]
    args = [
        each for each in (call.args.get("this"), *call.expressions) if isinstance(each, exp.Expr)
    ]
    made = exp.Anonymous(this=function, expressions=[each.copy() for each in args])
    items = exp.Aliases(
        this=made, expressions=[exp.to_identifier(each, quoted=True) for each in added]
    )
    source = nested(select([exp.Star(), items], ground.source, flow.where))
    origins = {**ground.origins, **{each: Origin() for each in added}}
    above = replace(ground, source=source, origins=origins, is_feed=False)
    columns = tuple(zip(names, map(column, added), strict=True))
    return replace(flow, ground=above, where=None), columns

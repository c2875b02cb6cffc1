"""Output: the flow of a whole view as Spark SQL, with its hidden columns."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.sql.planner.flow import LSN, WEIGHT
from millstream.sql.planner.plan import ViewPlan
from millstream.sql.planner.trees import alias, both, column, is_true, number, rendered, select

if TYPE_CHECKING:
    from millstream.sql.planner.flow import Flow, Groups
    from millstream.sql.planner.plan import Shape
    from millstream.sql.planner.relations import Logs
    from millstream.sql.planner.telling import Teller
    from millstream.sql.statements import Emit

_HIDDEN = re.compile(r"_k\d+|_end|_shown|_hash|_rows|_lsn|_op|_weight", re.IGNORECASE)
_LIVE = "one feed, one partition, row by row"


def output(flow: Flow, logs: Logs, emit: Emit, lateness: int, teller: Teller) -> ViewPlan:
    """Return the plan of a view that is this flow.

    Raises:
        SqlColumnError: two columns of one name, or a name that is kept.
    """
    _check_names(flow, teller)
    shape: Shape = "rows"
    keys: tuple[str, ...] = ()
    items = [alias(tree, name) for name, tree in flow.columns]
    where = flow.where
    if flow.groups is None:
        items += [LSN, WEIGHT]
        retracts = flow.ground.retracts
    else:
        shape = "groups"
        hidden, keys = _group_columns(flow, flow.groups)
        items += hidden
        where = None
        retracts = not flow.groups.fixed and emit.mode != "final"
    sql = rendered(select(items, flow.ground.source, where))
    names = tuple(each.name for each in logs.inputs)
    meaning = "\n".join([*map(str.lower, names), sql, repr(logs.lookups), repr(emit), str(lateness)])
    return ViewPlan(
        inputs=names,
        shape=shape,
        spark_sql=sql,
        columns=tuple(name for name, _ in flow.columns),
        keys=keys,
        window=flow.groups.window if flow.groups else None,
        lookups=tuple(logs.lookups),
        lateness=lateness,
        retracts=retracts,
        why=_LIVE,
        fingerprint=hashlib.sha256(meaning.encode()).hexdigest(),
    )


def _group_columns(flow: Flow, groups: Groups) -> tuple[list[exp.Expr], tuple[str, ...]]:
    names: dict[exp.Expr, str] = {}
    for name, tree in flow.columns:
        names.setdefault(tree, name)
    hidden: list[exp.Expr] = []
    keys: list[str] = []
    for place, key in enumerate(groups.keys):
        name = names.get(column(key), f"_k{place}")
        if name.startswith("_k") and column(key) not in names:
            hidden.append(alias(column(key), name))
        keys.append(name)
    if groups.end is not None:
        hidden.append(alias(groups.end, "_end"))
        start = groups.start if groups.window and groups.window.kind != "cumulate" else None
        keys.append(names.get(start) or names.get(groups.end) or "_end")  # type: ignore[arg-type]
    weighed = None
    if groups.weight:
        weighed = exp.GT(this=column(groups.weight), expression=number(0))
    shown = both([weighed, None if flow.where is None else is_true(flow.where)])
    if shown is not None:
        hidden.append(alias(shown, "_shown"))
    hidden.append(alias(groups.hash, "_hash"))
    return hidden, tuple(keys)


def _check_names(flow: Flow, teller: Teller) -> None:
    seen: set[str] = set()
    for name, tree in flow.columns:
        if name.lower() in seen:
            hint = "Give one of them another name with AS."
            teller.no_column(tree, f"there are two columns {name}", hint)
        if _HIDDEN.fullmatch(name):
            hint = f"Give it another name: AS {name.strip('_')}."
            teller.no_column(tree, f"the name {name} is kept for Millstream's own column", hint)
        seen.add(name.lower())

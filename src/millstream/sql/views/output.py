"""Output: the flow of a whole view as Spark SQL, with its hidden columns."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import UnsupportedError, exp

from millstream.sql.views.flow import LSN, WEIGHT
from millstream.sql.views.functions import function_name
from millstream.sql.views.plan import ViewPlan
from millstream.sql.views.sessions import SESSION
from millstream.sql.views.trees import (
    alias,
    call,
    column,
    iff,
    is_true,
    nested,
    number,
    rendered,
    select,
    text,
)

if TYPE_CHECKING:
    from millstream.sql.statements.statement import CreateView
    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.flow import Flow, Groups
    from millstream.sql.views.plan import Shape
    from millstream.sql.views.relations import Logs

_HIDDEN = re.compile(r"_k\d+|_start|_end|_shown|_hash|_rows|_lsn|_op|_weight", re.IGNORECASE)
_GROWING = {"collect_list", "percentile", "percentile_cont", "percentile_disc", "median", "mode"}
"""Aggregates that keep all values of a group: the live gear would copy them for each row."""
_LIVE = "one feed, one partition, row by row"


def output(flow: Flow, logs: Logs, view: CreateView, errors: ErrorReporter) -> ViewPlan:
    """Return the plan of a view that is this flow.

    Raises:
        SqlColumnError: two columns of one name, or a name that is kept.
    """
    _check_columns(flow, errors)
    shape, query, keys, match = _shaped(flow)
    try:
        sql = rendered(query)
    except UnsupportedError as error:
        errors.refuse(None, f"Spark SQL cannot express it: {error}", "Write it in another way.")
    growing = [name for name in map(function_name, query.walk()) if name in _GROWING]
    names = tuple(each.name for each in logs.inputs)
    lateness = view.lateness // timedelta(microseconds=1)
    meaning = [*map(str.lower, names), sql, *map(repr, (logs.lookups, view.emit, lateness))]
    return ViewPlan(
        inputs=names,
        shape=shape,
        spark_sql=sql,
        columns=tuple(name for name, _ in flow.columns),
        keys=keys,
        window=flow.groups.window if flow.groups else None,
        lookups=tuple(logs.lookups),
        lateness=lateness,
        retracts=_retracts(flow, view, logs),
        frees=flow.groups is not None and flow.groups.frees,
        live=not growing,
        why=f"the state of {growing[0].upper()} grows with its group" if growing else _LIVE,
        fingerprint=hashlib.sha256("\n".join(meaning).encode()).hexdigest(),
        match=match,
    )


def _retracts(flow: Flow, view: CreateView, logs: Logs) -> bool:
    """Whether a row that the view has shown may change or disappear."""
    takes_back = logs.ground.retracts or bool(logs.lookups)
    if flow.groups is None:
        return takes_back
    once = view.emit.mode == "close" and not view.lateness and not takes_back
    return not (flow.groups.fixed or view.emit.mode == "final" or once)


def _shaped(flow: Flow) -> tuple[Shape, exp.Select, tuple[str, ...], tuple[str, ...]]:
    """Return the shape, the query, the columns that are the key, and those that match rows."""
    source, groups = flow.ground.source, flow.groups
    if groups is None:
        items = [alias(tree, name) for name, tree in flow.columns]
        return "rows", select([*items, LSN, WEIGHT], source, flow.where), (), ()
    if groups.sessions is not None:
        return _sets(flow, groups, groups.sessions)
    hidden, keys = _group_columns(flow, groups)
    shown = _shown(flow, groups)
    columns = flow.columns
    if shown is not None:
        source = nested(select([exp.Star(), alias(shown, "_shown")], source))
        columns = tuple((name, _if_shown(tree, groups)) for name, tree in columns)
        hidden.append(column("_shown"))
    items = [alias(tree, name) for name, tree in columns]
    return "groups", select([*items, *hidden, alias(groups.hash, "_hash")], source), keys, ()


def _shown(flow: Flow, groups: Groups) -> exp.Expr | None:
    """Return whether a group is to be seen; None when it always is."""
    having = None if flow.where is None else is_true(flow.where)
    if groups.weight is None:
        return having
    some = exp.GT(this=column(groups.weight), expression=number(0))
    # Not AND: of a group without rows, what HAVING says may have no value, such as 1 / COUNT(*).
    return some if having is None else iff(some, having, exp.false())


def _if_shown(tree: exp.Expr, groups: Groups) -> exp.Expr:
    """Return an expression that is computed only where the group is shown, as after HAVING."""
    if isinstance(tree, exp.Column) or tree in (groups.start, groups.end):
        return tree
    return exp.Case(ifs=[exp.If(this=column("_shown"), true=tree.copy())])


def _sets(
    flow: Flow, groups: Groups, sessions: exp.Expr
) -> tuple[Shape, exp.Select, tuple[str, ...], tuple[str, ...]]:
    if flow.where is not None:
        sessions = call("filter", sessions, _each_session(flow.where))
    hidden: list[tuple[str, exp.Expr]] = []
    if groups.end is not None:
        # A row just at a session's end still belongs to it: it has closed once that has passed.
        micros = exp.Add(this=call("unix_micros", groups.end), expression=number(1))
        hidden.append(("_end", call("timestamp_micros", micros)))
    shows_start = any(tree == groups.start for _, tree in flow.columns)
    if groups.start is not None and not shows_start:
        hidden.append(("_start", groups.start))  # distinguishes the sessions of a group
    fields = [each for name, tree in (*flow.columns, *hidden) for each in (text(name), tree)]
    rows = call("transform", sessions, _each_session(call("named_struct", *fields)))
    keys = tuple(f"_k{place}" for place in range(len(groups.keys)))
    items = [alias(column(key), name) for key, name in zip(groups.keys, keys, strict=True)]
    items += [alias(groups.hash, "_hash"), alias(rows, "_rows")]
    same = [*map(column, groups.keys), groups.start]
    match = tuple(name for name, tree in flow.columns if tree in same)
    if not shows_start:
        match = (*match, "_start")
    return "sets", select(items, flow.ground.source), keys, match


def _each_session(tree: exp.Expr) -> exp.Expr:
    return exp.Lambda(this=tree.copy(), expressions=[exp.to_identifier(SESSION)])


def _group_columns(flow: Flow, groups: Groups) -> tuple[list[exp.Expr], tuple[str, ...]]:
    """Return the hidden columns of groups, and the names of all that distinguish groups."""
    names: dict[exp.Expr, str] = {}
    for name, tree in flow.columns:
        names.setdefault(tree, name)
    hidden: list[exp.Expr] = []
    keys: list[str] = []
    for place, key in enumerate(groups.keys):
        if column(key) not in names:
            hidden.append(alias(column(key), f"_k{place}"))
        keys.append(names.get(column(key), f"_k{place}"))
    if groups.end is not None and groups.start is not None and groups.window is not None:
        hidden.append(alias(groups.end, "_end"))
        # All windows of a CUMULATE that begin together have one start.
        start = None if groups.window.kind == "cumulate" else names.get(groups.start)
        keys.append(start or names.get(groups.end) or "_end")
    return hidden, tuple(keys)


def _check_columns(flow: Flow, errors: ErrorReporter) -> None:
    seen: set[str] = set()
    for name, tree in flow.columns:
        if name.lower() in seen:
            hint = "Give one of them another name with AS."
            errors.no_column(tree, f"there are two columns {name}", hint)
        if _HIDDEN.fullmatch(name):
            hint = f"Give it another name: AS {name.strip('_')}."
            errors.no_column(tree, f"the name {name} is kept for Millstream's own column", hint)
        if isinstance(tree, exp.Null):
            hint = f"Write CAST(NULL AS VARCHAR) AS {name}."
            errors.mismatch(tree, f"{name} is NULL of no type", hint)
        seen.add(name.lower())

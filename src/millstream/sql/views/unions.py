"""Unions: UNION ALL as one scan of the feed, which each part picks its rows from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.model.types import BIGINT, DOUBLE
from millstream.sql.views.flow import LSN, WATERMARK, WEIGHT, Flow, Ground, Origin, feed_name
from millstream.sql.views.functions import OWN_VIEW
from millstream.sql.views.numbers import widest_kind
from millstream.sql.views.trees import call, column, nested, select, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.views.errors import ErrorReporter
    from millstream.sql.views.relations import Logs

_STANDS_FOR = {"integer": BIGINT, "float": DOUBLE}


def united(flows: Sequence[Flow], logs: Logs, tree: exp.Expr, errors: ErrorReporter) -> Flow:
    """Return the rows of several flows in one.

    A second scan of the feed would not see the same rows at the same time, so there is one: each
    row of the feed becomes an array with a struct for every part that takes it.

    Raises:
        SqlUnsupportedError: a part has groups, a join or a generator.
        SqlColumnError: the parts have different numbers of columns.
    """
    for flow in flows:
        if flow.groups is not None:
            errors.refuse(tree, "UNION ALL of aggregates is not supported", OWN_VIEW)
        if not flow.ground.is_feed or logs.lookups:
            what = "UNION ALL of joins, or of rows that a function made, is not supported"
            errors.refuse(tree, what, OWN_VIEW)
        if len(flow.columns) != len(flows[0].columns):
            counts = " and ".join(str(len(each.columns)) for each in flows)
            hint = "Select as many columns in each part; NULL where there is none."
            errors.no_column(tree, f"the parts of UNION ALL have {counts} columns", hint)
    times = [_time(flow, logs) for flow in flows]
    timed = None not in times
    parts = [_part(flow, time if timed else None) for flow, time in zip(flows, times, strict=True)]
    rows = call("inline", call("array_compact", call("array", *parts)))
    source = nested(select([LSN, WEIGHT, WATERMARK, rows], logs.ground.source))
    origins = {}
    for place in range(len(flows[0].columns)):
        origins[f"_u{place}"] = _origin([flow.columns[place][1] for flow in flows], flows)
    ground = Ground(
        source,
        origins,
        time="_t" if timed else None,
        is_feed=False,
        retracts=logs.ground.retracts,
    )
    names = [name for name, _ in flows[0].columns]
    columns = tuple((name, column(f"_u{place}")) for place, name in enumerate(names))
    return Flow(ground, columns)


def _time(flow: Flow, logs: Logs) -> str | None:
    time = logs.inputs[flow.log].event_time
    return None if time is None else feed_name(flow.log, time, len(logs.inputs))


def _part(flow: Flow, time: str | None) -> exp.Expr:
    fields = [(f"_u{place}", tree) for place, (_, tree) in enumerate(flow.columns)]
    if time is not None:
        fields.append(("_t", column(time)))
    struct = call("named_struct", *(each for name, tree in fields for each in (text(name), tree)))
    if flow.where is None:
        return struct
    return exp.Case(ifs=[exp.If(this=flow.where.copy(), true=struct)])


def _origin(trees: Sequence[exp.Expr], flows: Sequence[Flow]) -> Origin:
    """Return what is known of a column that is one of several expressions."""
    origins = [
        flow.ground.origins.get(tree.name) if isinstance(tree, exp.Column) else None
        for tree, flow in zip(trees, flows, strict=True)
    ]
    known = [origin for origin in origins if origin is not None]
    types = {origin.type for origin in known}
    if len(known) == len(trees) and len(types) == 1:
        pairs = {(log, name) for origin in known for log, name in origin.of.items()}
        logs = dict(pairs)
        is_one = len(logs) == len(pairs)  # no log has it in two of its columns
        return Origin(types.pop(), logs if is_one else {}, all(each.is_time for each in known))
    kind = widest_kind(trees, flows[0].ground)
    return Origin(_STANDS_FOR.get(kind or ""))

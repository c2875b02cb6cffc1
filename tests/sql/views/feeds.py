"""Feeds made by hand, and what a view's rows are once Spark has answered: the tests' own engine."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa

from millstream.sql.views.flow import feed_name


def feed_table(plan, logs, changes, watermark=None):
    """The relation ``__feed`` of a plan, as an Arrow table.

    Args:
        plan: the plan.
        logs: the inputs, by name.
        changes: rows and weights of each log, in order, by name.
        watermark: what ``_wm`` is.
    """
    inputs = [logs[name] for name in plan.inputs]
    rows = [
        ({log: row, "place": place}, weight, log)
        for log, each in enumerate(inputs)
        if all(lookup.table != log for lookup in plan.lookups)
        for place, (row, weight) in enumerate(changes[each.name])
    ]
    for lookup in plan.lookups:
        rows = [joined for row in rows for joined in _looked_up(row, lookup, inputs, changes)]
    columns = {
        "_lsn": pa.array(range(1, len(rows) + 1), pa.int64()),
        "_weight": pa.array([weight for _, weight, _ in rows], pa.int64()),
        "_wm": pa.array([watermark] * len(rows), pa.timestamp("us", "UTC")),
    }
    if plan.lookups:
        columns["_row_lsn"] = pa.array([parts["place"] for parts, _, _ in rows], pa.int64())
    if len(inputs) > 1:
        columns["_log"] = pa.array([log for _, _, log in rows], pa.int32())
    for log, each in enumerate(inputs):
        for place, column in enumerate(each.schema.columns):
            values = [None if parts.get(log) is None else parts[log][place] for parts, _, _ in rows]
            name = feed_name(log, column.name, len(inputs))
            columns[name] = pa.array(values, column.type.arrow)
    return pa.table(columns)


def _looked_up(row, lookup, inputs, changes):
    """The row with each change of the table that fits; what does not last cancels out."""
    parts, weight, log = row
    table = inputs[lookup.table]
    wanted = [
        parts[left][inputs[left].schema.names.index(name)] if parts.get(left) else None
        for (left, name), _ in lookup.on
    ]
    places = [table.schema.names.index(name) for _, name in lookup.on]
    found = [
        ({**parts, lookup.table: other}, weight * change, log)
        for other, change in changes[table.name]
        if None not in wanted and [other[place] for place in places] == wanted
    ]
    lasting = sum(change for _, change, _ in found) * weight
    if lookup.outer and not lasting:
        found.append(({**parts, lookup.table: None}, weight, log))
    return found


def visible(plan, table):
    """The rows of the view: a bag of tuples of the user's columns."""
    count = len(plan.columns)
    if plan.shape == "rows":
        bag = Counter()
        for row in table.to_pylist():
            *values, _, weight = row.values()
            bag[plain(tuple(values))] += weight
        return +bag
    if plan.shape == "sets":
        rows = [tuple(each.values())[:count] for row in table["_rows"].to_pylist() for each in row]
        return Counter(map(plain, rows))
    shown = [row for row in table.to_pylist() if row.get("_shown", True)]
    keys = [plain(tuple(row[name] for name in plan.keys)) for row in shown]
    assert len(set(keys)) == len(keys), f"{plan.keys} are no key"
    return Counter(plain(tuple(row.values())[:count]) for row in shown)


def plain(value):
    """The value such that equal is what SQL calls equal, and hashable."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return tuple((name, plain(each)) for name, each in value.items())
    return value


def types_of(schema):
    """The types of columns, whether they may be NULL or not."""
    return [str(field.type).replace(" not null", "") for field in schema]

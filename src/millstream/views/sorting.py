"""The order of a view's rows when they are read, as Spark sorts them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.views.plan.plan import SortKey

Direction = Literal["ascending", "descending"]


def ordered(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    """Rows in an order; NaN is larger than any other number, and a NULL is first or last.

    Rows that do not have a column of the order, a hidden one, stay as they are.

    >>> from millstream.views.plan.plan import SortKey
    >>> rows = pa.table({"n": [1.0, None, float("nan"), 2.0]})
    >>> ordered(rows, [SortKey("n", descending=True, nulls_first=False)])["n"].to_pylist()
    [nan, 2.0, 1.0, None]
    """
    names = [name.lower() for name in rows.column_names]
    wanted = {each.column.lower() for each in order if isinstance(each.column, str)}
    if not order or not wanted <= set(names):
        return rows
    keys: dict[str, pa.ChunkedArray | pa.Array] = {}
    directions: list[tuple[str, Direction]] = []
    for key in order:
        named = key.column
        values = rows.column(named if isinstance(named, int) else names.index(named.lower()))
        nulls: Direction = "descending" if key.nulls_first else "ascending"
        direction: Direction = "descending" if key.descending else "ascending"
        parts = [(pc.is_null(values), nulls)]
        if pa.types.is_nested(values.type):  # which Arrow cannot sort
            values = _ranks(values)
        if pa.types.is_floating(values.type):  # which Arrow has with the NULLs
            parts.append((pc.fill_null(pc.is_nan(values), fill_value=False), direction))
        for part, its_direction in (*parts, (values, direction)):
            name = str(len(keys))
            keys[name] = part
            directions.append((name, its_direction))
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=directions))


def _ranks(values: pa.ChunkedArray) -> pa.Array:
    """The places of lists and structs in their order; NULL within them is least, NaN greatest."""
    found = [_comparable(each) for each in values.to_pylist()]
    places = {each: place for place, each in enumerate(sorted(set(found)))}
    return pa.array([places[each] for each in found], pa.int64())


def _comparable(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any type
    """A value such that Python orders it as Spark does."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple(map(_comparable, value.values())))
    if isinstance(value, list):
        return (1, tuple(map(_comparable, value)))
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)

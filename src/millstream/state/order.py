"""The order of a view's rows when they are read, as Spark sorts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.views.plan import SortKey

Direction = Literal["ascending", "descending"]


def ordered(rows: pa.Table, order: Sequence[SortKey]) -> pa.Table:
    """Rows in an order; NaN is larger than any other number, and a NULL is first or last.

    >>> from millstream.sql.views.plan import SortKey
    >>> rows = pa.table({"n": [1.0, None, float("nan"), 2.0]})
    >>> ordered(rows, [SortKey("n", descending=True, nulls_first=False)])["n"].to_pylist()
    [nan, 2.0, 1.0, None]
    """
    if not order:
        return rows
    names = [name.lower() for name in rows.column_names]
    keys: dict[str, pa.ChunkedArray] = {}
    directions: list[tuple[str, Direction]] = []
    for key in order:
        named = key.column
        values = rows.column(named if isinstance(named, int) else names.index(named.lower()))
        nulls: Direction = "descending" if key.nulls_first else "ascending"
        direction: Direction = "descending" if key.descending else "ascending"
        parts = [(pc.is_null(values), nulls)]
        if pa.types.is_floating(values.type):  # which Arrow has with the NULLs
            parts.append((pc.fill_null(pc.is_nan(values), fill_value=False), direction))
        for part, its_direction in (*parts, (values, direction)):
            name = str(len(keys))
            keys[name] = part
            directions.append((name, its_direction))
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=directions))

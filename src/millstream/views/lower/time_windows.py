"""Windows over event time in Spark's plans: what they are over, and what stays within them."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from millstream.views.lower.plans import each_of, find_all, id_of, inner, kind_of, source_of

OVER: Final = {"Window", "WindowGroupLimit"}
"""Nodes of functions over rows in order."""

_OF_ALL: Final = {"NTile", "PercentRank", "CumeDist"}
"""Functions over rows in order that depend on how many rows a partition has."""

_EXPLODED: Final = re.compile(r"_e\d+")
"""The columns that ``views.plan.windows`` makes of HOP and CUMULATE."""


def is_same(expression: Any, column: Any) -> bool:  # noqa: ANN401
    """Whether an expression is a column."""
    is_column = kind_of(expression) == "AttributeReference"
    return is_column and bool(expression.exprId().equals(column.exprId()))


def has_column(node: Any, column: Any) -> bool:  # noqa: ANN401
    """Whether a column is among those of a plan."""
    return bool(node.outputSet().contains(column))


class TimeWindow(NamedTuple):
    """The start of a TUMBLE over a column.

    Attributes:
        time: the column.
        size: how long it is.
        text: equal for windows that are the same but for their column.
    """

    time: Any
    size: int
    text: str


def window_in(expression: Any) -> TimeWindow | None:  # noqa: ANN401
    """The window that an expression is the start of, see ``window_specs.tumbled_start``."""
    if kind_of(expression) == "MicrosToTimestamp":
        expression = expression.child()
    if kind_of(expression) != "Subtract" or kind_of(expression.right()) != "Pmod":
        return None
    times = [each.child() for each in find_all(expression, "UnixMicros")]
    columns = {id_of(each) for each in times}
    if len(columns) != 1 or -1 in columns or expression.references().size() != 1:
        return None
    text = str(expression.toString()).replace(str(times[0].toString()), "ts")
    return TimeWindow(times[0], int(expression.right().right().eval(None)), text)


def exploded_in(node: Any, time: Any) -> tuple[str, Any] | None:  # noqa: ANN401
    """The text and the column of the windows whose ends a node gives, see ``hopping_ends``.

    A row is in several of them, which all end after its time.
    """
    if kind_of(node) != "Generate" or _EXPLODED.fullmatch(str(time.name())) is None:
        return None
    times = [each.child() for each in find_all(node.generator(), "UnixMicros")]
    columns = {id_of(each) for each in times}
    if len(columns) != 1 or -1 in columns or node.generator().references().size() != 1:
        return None
    return str(node.generator().toString()).replace(str(times[0].toString()), "ts"), times[0]


# ---- functions over rows in order


def is_in_order(node: Any, window: str | None, time: Any) -> bool:  # noqa: ANN401
    """Return whether OVER changes no row of an earlier window: by its partition, or its order.

    Args:
        node: one of ``OVER``.
        window: the text of the window; None as long as the column is its start or its end.
        time: the column.
    """
    child, given = node.child(), dict[int, Any]()
    if not has_column(child, time):
        return False
    while kind_of(child) in {*OVER, "Filter", "Sort"}:
        child = child.child()
    if kind_of(child) == "Project":
        given = {id_of(each): inner(each) for each in each_of(child.projectList())}
    column = given.get(id_of(time), time)
    if window is None:
        found = window_in(source_of(column))
        if found is None:
            return False
        window, column = found.text, found.time
    keys = [given.get(id_of(each), each) for each in each_of(node.partitionSpec())]
    if any(_is_window(each, window, column) for each in keys):
        return True
    return _goes_by(node, given, column)


def _is_window(key: Any, window: str, time: Any) -> bool:  # noqa: ANN401
    found = window_in(source_of(key))
    return found is not None and found.text == window and is_same(found.time, time)


def _goes_by(node: Any, given: dict[int, Any], time: Any) -> bool:  # noqa: ANN401
    """Whether rows are in the order of a time, and no value depends on a later one."""
    order = each_of(node.orderSpec())
    if not order or "Ascending" not in kind_of(order[0].direction()):
        return False
    first = order[0].child()
    if not is_same(given.get(id_of(first), first), time):
        return False
    if kind_of(node) == "WindowGroupLimit":
        return True
    return all(
        map(_ends_here, (over for e in each_of(node.windowExpressions()) for over in _overs(e)))
    )


def _overs(expression: Any) -> list[Any]:  # noqa: ANN401
    """The functions over rows in order in an expression."""
    return find_all(expression, "WindowExpression")


def _ends_here(over: Any) -> bool:  # noqa: ANN401
    """Whether a function depends on no row after the one at hand, but for its equals in order."""
    frame = over.windowSpec().frameSpecification()
    if kind_of(frame) != "SpecifiedWindowFrame" or kind_of(over.windowFunction()) in _OF_ALL:
        return False
    upper = frame.upper()
    if kind_of(upper).startswith("CurrentRow"):
        return True
    value = upper.eval(None) if kind_of(upper) in {"Literal", "UnaryMinus"} else 1
    return isinstance(value, int) and value <= 0
